"""Defines requests and responses of the API, and parses the options of requests.

Paths and queries are decoded, bodies are JSON: the transport turns YAML and protobuf into JSON.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from stower.api.errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_LONG,
    ApiError,
    FieldError,
    bad_request,
    invalid,
    unsupported,
)
from stower.api.request_info import RequestInfo, first_value, is_true, read_request_info
from stower.api.users import ADMIN, UserInfo
from stower.model.integers import parse_decimal

Object = dict[str, Any]
encode = msgspec.json.Encoder().encode

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
META: Final = "meta.k8s.io"
NUMBER_SHOWN: Final = 100  # characters of a number in the error about it
UNREAD: Final = RequestInfo("")


@dataclass(slots=True)
class Request:
    """One request.

    `info` is read from method, path and query; nothing else reads a path. Api replaces `user` by
    the user that the request impersonates.
    """

    method: str
    path: str
    now_ns: int
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    user: UserInfo = ADMIN
    impersonation: tuple[tuple[str, str], ...] = ()  # Impersonate headers, names in lower case
    user_agent: str = ""
    server: str = "127.0.0.1"  # host and port that the client used
    info: RequestInfo = field(default=UNREAD, repr=False)
    # Of a body that came as YAML: why it has no JSON (`body` is then the YAML), and what a strict
    # reader has against its keys.
    yaml_faults: tuple[str, str] = ("", "")
    impersonator: UserInfo | None = field(init=False, default=None)  # whose request it was
    decision: str = field(init=False, default="")  # the authorizer's: allow, forbid, or none yet

    def __post_init__(self) -> None:
        if self.info is UNREAD:
            self.info = read_request_info(self.method, self.path, self.query)

    def value(self, name: str) -> str:
        """The first value of a parameter, or empty."""
        return (first_value(self.query, name) or "") if self.query else ""

    def values(self, name: str) -> list[str]:
        """All values of a parameter."""
        if not self.query:
            return []
        return [value for key, value in self.query if key == name]


@dataclass(slots=True)
class Response:
    """One answer; `revision` must be durable before it is sent."""

    status: int
    parts: list[bytes]
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    revision: int = 0
    may_end: bool = False  # of a refusal: see ApiError

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)


def answer(status: int, body: Object, warnings: Iterable[str] = ()) -> Response:
    """A response with a JSON value."""
    return Response(status, [encode(body)], warnings=tuple(warnings))


def refusal(error: ApiError) -> Response:
    """The response of an error."""
    response = answer(error.code, error.status())
    response.headers.update(error.headers)
    response.may_end = error.may_end
    return response


# Options


def flag(request: Request, name: str) -> bool | None:
    """Returns whether a flag is set; None where it is absent."""
    return None if first_value(request.query, name) is None else is_true(request.query, name)


def integer(request: Request, name: str) -> int | None:
    """A number of the query."""
    text = request.value(name)
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    number = parse_decimal(digits)
    if number is None:
        shown = text[:NUMBER_SHOWN]
        raise bad_request(f'strconv.ParseInt: parsing "{shown}": invalid syntax')
    return -number if text[0] == "-" else number


MANAGER_MAX: Final = 128


@dataclass(slots=True)
class WriteOptions:
    """Options of create, update, patch and delete.

    subresource: as whose change a write through another resource is recorded.
    """

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"
    force: bool = False
    subresource: str = ""


def write_options(request: Request, kind: str) -> WriteOptions:
    """The options of a write. `kind`: CreateOptions, UpdateOptions or PatchOptions."""
    apply = request.content_type == APPLY_PATCH
    if not request.query and not apply:
        return WriteOptions(False, agent_name(request), "Warn", False)
    errors = []
    manager = request.value("fieldManager")
    if apply and not manager:
        errors.append(FieldError(REQUIRED, "fieldManager", "", "is required for apply patch"))
    if kind == "PatchOptions" and not apply and request.value("force"):
        errors.append(
            FieldError(FORBIDDEN, "force", None, "may not be specified for non-apply patch")
        )
    if len(manager) > MANAGER_MAX:
        text = f"may not be more than {MANAGER_MAX} bytes"
        errors.append(FieldError(TOO_LONG, "fieldManager", manager, text))
    bad = next((i for i, c in enumerate(manager) if not c.isprintable()), None)
    if bad is not None:
        text = f'invalid character "\\\\x{ord(manager[bad]):02x}" in position {bad}: only printable'
        errors.append(FieldError(INVALID, "fieldManager", manager, text))
    dry_run, more = _dry_run(request.values("dryRun"))
    errors += more
    validation = request.value("fieldValidation")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        words = ("", "Ignore", "Strict", "Warn")
        errors.append(unsupported("fieldValidation", validation, words))
    if errors:
        raise invalid(META, kind, "", errors)
    return WriteOptions(
        dry_run,
        manager or agent_name(request),
        validation or "Warn",
        is_true(request.query, "force"),
    )


def agent_name(request: Request) -> str:
    """The field manager of a client that names none: the head of its user agent."""
    name = request.user_agent.partition("/")[0][:MANAGER_MAX]
    return name or "unknown"


def _dry_run(values: list[str]) -> tuple[bool, list[FieldError]]:
    if any(value != "All" for value in values):
        return False, [unsupported("dryRun", values, ("All",))]
    return bool(values), []


@dataclass(slots=True)
class DeleteOptions:
    """Options of delete and deletecollection, of the query or the body."""

    dry_run: bool = False
    grace_seconds: int | None = None
    policy: str | None = None
    uid: str | None = None
    resource_version: str | None = None


POLICIES: Final = ("Foreground", "Background", "Orphan")


def delete_options(request: Request, body: Object | None) -> DeleteOptions:
    """The options of a deletion. Raises ApiError 400 or 422."""
    found = DeleteOptions()
    if body is not None:
        found.grace_seconds = body.get("gracePeriodSeconds")
        found.policy = body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        values = body.get("dryRun") or []
        preconditions = body.get("preconditions") or {}
        found.uid = preconditions.get("uid")
        found.resource_version = preconditions.get("resourceVersion")
    else:
        found.grace_seconds = integer(request, "gracePeriodSeconds")
        found.policy = request.value("propagationPolicy") or None
        orphan = flag(request, "orphanDependents")
        values = request.values("dryRun")
    found.dry_run, errors = _dry_run(values)
    if orphan is not None and found.policy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError(INVALID, "propagationPolicy", found.policy, text))
    if found.policy is not None and found.policy not in POLICIES:
        errors.append(unsupported("propagationPolicy", found.policy, (*POLICIES, "nil")))
    if errors:
        raise invalid(META, "DeleteOptions", "", errors)
    if orphan is not None:
        found.policy = "Orphan" if orphan else "Background"
    return found


@dataclass(slots=True)
class ListOptions:
    """Options of list and watch."""

    labels: str
    fields: str
    limit: int
    token: str
    revision: int | None
    match: str
    bookmarks: bool
    initial_events: bool | None
    timeout_seconds: int | None


def list_options(request: Request) -> ListOptions:
    """The options of a list, watch or deletecollection. Raises ApiError."""
    watch = request.info.verb == "watch"
    initial = flag(request, "sendInitialEvents")
    version, match = request.value("resourceVersion"), request.value("resourceVersionMatch")
    limit, timeout = integer(request, "limit"), integer(request, "timeoutSeconds")
    token = request.value("continue")
    errors = _match_errors(version, match, watch, initial, token)
    if errors:
        raise invalid(META, "ListOptions", "", errors)
    if token and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    revision = parse_revision(version, listing=not watch)
    return ListOptions(
        labels=request.value("labelSelector"),
        fields=request.value("fieldSelector"),
        limit=max(0, limit or 0),
        token=token,
        revision=revision,
        match=match,
        bookmarks=is_true(request.query, "allowWatchBookmarks"),
        initial_events=initial,
        timeout_seconds=timeout,
    )


def _match_errors(
    version: str, match: str, watch: bool, initial: bool | None, token: str
) -> list[FieldError]:
    """Source: apimachinery meta/internalversion/validation."""
    where = "resourceVersionMatch"
    errors = []
    if watch:
        if initial is not None:
            if match != "NotOlderThan":
                text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                errors.append(FieldError(FORBIDDEN, where, None, text))
        elif match:
            text = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            errors.append(FieldError(FORBIDDEN, where, None, text))
        if match and match != "NotOlderThan":
            errors.append(unsupported(where, match, ("NotOlderThan",)))
        if match and token:
            text = "resourceVersionMatch is forbidden when continue is provided"
            errors.append(FieldError(FORBIDDEN, where, None, text))
        return errors
    if match:
        if not version:
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            errors.append(FieldError(FORBIDDEN, where, None, text))
        if token:
            text = "resourceVersionMatch is forbidden when continue is provided"
            errors.append(FieldError(FORBIDDEN, where, None, text))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(unsupported(where, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(FieldError(FORBIDDEN, where, None, text))
    if initial is not None:
        text = "sendInitialEvents is forbidden for list"
        errors.append(FieldError(FORBIDDEN, "sendInitialEvents", None, text))
    return errors


def parse_revision(text: str, listing: bool = False) -> int | None:
    """The revision of a parameter; None where there is none.

    Raises ApiError 400 for a list, 500 for anything else, as upstream.
    """
    if not text:
        return None
    number = parse_decimal(text, bits=64)
    if number is not None:
        return number
    why = "value out of range" if text.isascii() and text.isdecimal() else "invalid syntax"
    shown = text[:NUMBER_SHOWN]
    message = f'strconv.ParseUint: parsing "{shown}": {why}'
    message = f'resourceVersion: Invalid value: "{shown}": {message}'
    if listing:
        raise bad_request(f"invalid resource version: {message}")
    raise ApiError(500, "", message)


# Continue tokens


def make_token(revision: int, start: str) -> str:
    """Where the next page starts: after this key, as things were at the revision."""
    value = {"v": f"{META}/v1", "rv": revision, "start": f"{start}\0"}
    return base64.urlsafe_b64encode(encode(value)).rstrip(b"=").decode()


def read_token(token: str) -> tuple[int, str]:
    """Revision (-1: any) and key of a token. Raises ApiError 400."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        raise bad_request("invalid continue token: continue key is not valid") from None
    try:
        value = msgspec.json.decode(raw)
        start = str(value["start"])
        if value["v"] != f"{META}/v1" or value["rv"] == 0 or not start or ".." in start:
            raise bad_request(
                "invalid continue token: continue key is not valid: incorrect encoded start "
                "resourceVersion, version or key"
            )
        revision = value["rv"]
        if type(revision) is not int or not -1 <= revision < 1 << 63:
            raise ValueError(f"rv: got {str(revision)[:20]}, want an integer of 64 bits")
        return revision, start.removesuffix("\0")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        head = raw[:1].decode("latin-1")
        sign = head if head.isprintable() and head.isascii() else f"\\u{ord(head or ' '):04x}"
        raise bad_request(
            "invalid continue token: continue key is not valid: "
            f"invalid character '{sign}' looking for beginning of value"
        ) from None
