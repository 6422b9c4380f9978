"""Handles access reviews, self subject reviews, token reviews and token requests.

Without roles (api/rbac.py) every authenticated user may do everything, as with
--authorization-mode=AlwaysAllow. Source: pkg/registry/authentication, pkg/registry/authorization,
pkg/registry/core/serviceaccount/storage/token.go, 1.36.
"""

from typing import Any, Final

from stower.api.bodies import read_unstored
from stower.api.calls import Call
from stower.api.errors import (
    INVALID,
    FieldError,
    bad_request,
    conflict,
    details,
    invalid,
    not_found,
)
from stower.api.request_info import RequestInfo
from stower.api.requests import Response, answer, encode
from stower.api.store import Record
from stower.api.tokens import AUDIENCE, BOUND_KINDS, BadTokenError
from stower.api.users import MASTERS, UserInfo
from stower.model.times import SECOND_NS, time_text

Object = dict[str, Any]
GROUP: Final = "authorization.k8s.io"
TOKENS: Final = "authentication.k8s.io"
LOCAL: Final = "localsubjectaccessreviews"
SELF: Final = "selfsubjectaccessreviews"
TOKEN_SECONDS: Final = 3600
TOKEN_SECONDS_MIN: Final = 600
TOKEN_SECONDS_MAX: Final = 1 << 32
AUDIENCE_LENGTH_MAX: Final = 1_024
AUDIENCES_MAX: Final = 32  # not bounded upstream; each is part of every request with the token


def _read(call: Call) -> Object:
    return read_unstored(call, call.resource.kind, call.resource.api_version)


def _respond(call: Call, item: Object, spec: Object | None, status: Object) -> Response:
    body: Object = {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": {
            k: v for k, v in (item.get("metadata") or {}).items() if k in ("name", "namespace")
        },
    }
    if spec is not None:
        body["spec"] = spec
    return answer(201, {**body, "status": status})


# Access


def access(call: Call) -> Response:
    """Answers whether somebody may do something. Raises ApiError 422."""
    item = _read(call)
    spec = item.get("spec") or {}
    plural = call.resource.plural
    errors = _spec_errors(spec, plural)
    if plural == LOCAL:
        errors += _local_errors(call, item, spec)
    if errors:
        raise invalid(GROUP, "", "", errors)
    rbac = call.context.rbac
    if rbac is None:
        return _respond(call, item, spec, {"allowed": True})
    user = call.request.user
    if plural != SELF:
        user = UserInfo(spec.get("user") or "", tuple(spec.get("groups") or ()))
    return _respond(call, item, spec, {"allowed": rbac.is_allowed(user, _read_attributes(spec))})


def _spec_errors(spec: Object, plural: str) -> list[FieldError]:
    errors = []
    given = [n for n in ("resourceAttributes", "nonResourceAttributes") if spec.get(n) is not None]
    if not given:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(FieldError(INVALID, "spec.resourceAttributes", None, text))
    elif len(given) > 1:
        text = "cannot be specified in combination with resourceAttributes"
        value = spec["nonResourceAttributes"]
        errors.append(FieldError(INVALID, "spec.nonResourceAttributes", value, text))
    if plural != SELF and not spec.get("user") and not spec.get("groups"):
        text = "at least one of user or group must be specified"
        errors.append(FieldError(INVALID, "spec.user", "", text))
    return errors


def _local_errors(call: Call, item: Object, spec: Object) -> list[FieldError]:
    """A LocalSubjectAccessReview is about its own namespace."""
    if (item.get("metadata") or {}).get("namespace", call.namespace) != call.namespace:
        raise bad_request(f"spec.resourceAttributes.namespace must match namespace: "
                          f"{call.namespace}")  # fmt: skip
    errors = []
    asked = spec.get("resourceAttributes")
    if asked is not None and (asked.get("namespace") or "") != call.namespace:
        where, text = "spec.resourceAttributes.namespace", "must match metadata.namespace"
        errors.append(FieldError(INVALID, where, asked.get("namespace") or "", text))
    other = spec.get("nonResourceAttributes")
    if other is not None:
        text = "disallowed on this kind of request"
        errors.append(FieldError(INVALID, "spec.nonResourceAttributes", other, text))
    return errors


def _read_attributes(spec: Object) -> RequestInfo:
    """Returns what a review is about."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        verb, path = other.get("verb") or "", other.get("path") or ""
        return RequestInfo(verb, path=path, is_resource=False)
    found = spec["resourceAttributes"]
    verb, group, version, resource, subresource, namespace, name = (
        str(found.get(name) or "")
        for name in (
            "verb", "group", "version", "resource", "subresource", "namespace", "name",
        )
    )  # fmt: skip
    return RequestInfo(verb, group, version, resource, subresource, namespace, name)


def rules(call: Call) -> Response:
    """Returns the rules that apply to the caller in a namespace."""
    item = _read(call)
    rbac, user = call.context.rbac, call.request.user
    if rbac is not None and MASTERS not in user.groups:
        found = rbac.rules_of(user, (item.get("spec") or {}).get("namespace") or "")
        named = [{"verbs": r.verbs, "apiGroups": r.groups, "resources": r.resources,
                  "resourceNames": r.names} for r in found if r.resources]  # fmt: skip
        paths = [{"verbs": r.verbs, "nonResourceURLs": r.paths} for r in found if r.paths]
        status: Object = {"resourceRules": named, "nonResourceRules": paths, "incomplete": False}
        return _respond(call, item, {}, status)
    every = ["*"]
    status = {
        "resourceRules": [{"verbs": every, "apiGroups": every, "resources": every}],
        "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
        "incomplete": False,
    }
    return _respond(call, item, {}, status)


# Users and tokens


def self_subject(call: Call) -> Response:
    """Returns who the caller is."""
    _read(call)
    body = {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"creationTimestamp": call.now},
        "status": {"userInfo": call.request.user.to_object()},
    }
    return Response(201, [encode(body)])


def token_review(call: Call) -> Response:
    """Returns whose token it is, if it is for one of the audiences. Raises ApiError 400."""
    item = _read(call)
    spec = item.get("spec") or {}
    token = spec.get("token") or ""
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    audiences = tuple(spec.get("audiences") or ()) or (AUDIENCE,)
    try:
        owner = call.context.tokens.owner_of(
            token.encode("utf-8", "replace"), call.request.now_ns, audiences
        )
    except BadTokenError as error:
        status: Object = {"user": {}, "error": str(error)}
    else:
        status = {
            "authenticated": True,
            "user": owner.user.to_object(),
            "audiences": list(owner.audiences),
        }
    return _respond(call, item, spec, status)


def token(call: Call) -> Response:
    """Issues a token for a service account. Raises ApiError 400, 404, 409 or 422."""
    item = read_unstored(call, "TokenRequest", f"{TOKENS}/v1")
    meta = item.get("metadata") or {}
    for field, wanted in (("name", call.name), ("namespace", call.namespace)):
        if meta.get(field) and meta[field] != wanted:
            text = f"must match the service account {field} if specified"
            raise invalid(TOKENS, "TokenRequest", call.name, [
                FieldError(INVALID, f"metadata.{field}", meta[field], text)
            ])  # fmt: skip
    account = call.record()
    if meta.get("uid") and meta["uid"] != account.uid:
        raise conflict(TOKENS, "TokenRequest", call.name, (
            f"the UID in the token request ({meta['uid']}) does not match the UID of the service "
            f"account ({account.uid})"
        ))  # fmt: skip
    spec = dict(item.get("spec") or {})
    audiences = spec["audiences"] = list(spec.get("audiences") or (AUDIENCE,))
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = TOKEN_SECONDS
    seconds = spec["expirationSeconds"]
    errors = _token_errors(audiences, seconds)
    if errors:
        raise invalid(TOKENS, "TokenRequest", "", errors)
    bound = _find_bound(call, spec.get("boundObjectRef"))
    now_s = call.request.now_ns // SECOND_NS
    made = call.context.tokens.issue(
        account, bound, tuple(audiences), call.context.identifiers.new_uid(), now_s,
        now_s + seconds,
    )  # fmt: skip
    body = {
        "kind": "TokenRequest",
        "apiVersion": f"{TOKENS}/v1",
        "metadata": {
            "name": call.name,
            "namespace": call.namespace,
            "creationTimestamp": call.now,
        },
        "spec": spec,
        "status": {
            "token": made,
            "expirationTimestamp": time_text((now_s + seconds) * SECOND_NS),
        },
    }
    return answer(201, body)


def _token_errors(audiences: list[Any], seconds: int) -> list[FieldError]:
    errors = []
    where = "spec.expirationSeconds"
    if seconds < TOKEN_SECONDS_MIN:
        text = "may not specify a duration less than 10 minutes"
        errors.append(FieldError(INVALID, where, seconds, text))
    if seconds > TOKEN_SECONDS_MAX:
        text = "may not specify a duration larger than 2^32 seconds"
        errors.append(FieldError(INVALID, where, seconds, text))
    if len(audiences) > AUDIENCES_MAX:
        text = f"must have at most {AUDIENCES_MAX} items"
        errors.append(FieldError(INVALID, "spec.audiences", len(audiences), text))
    for i, audience in enumerate(audiences[:AUDIENCES_MAX]):
        if not isinstance(audience, str) or len(audience) > AUDIENCE_LENGTH_MAX:
            text = f"must be a text of at most {AUDIENCE_LENGTH_MAX} characters"
            errors.append(FieldError(INVALID, f"spec.audiences[{i}]", "", text))
    return errors


def _find_bound(call: Call, reference: Object | None) -> tuple[str, Record] | None:
    """Returns kind and object of a boundObjectRef. Raises ApiError 400, 404 or 409."""
    if reference is None:
        return None
    version, kind = reference.get("apiVersion") or "", reference.get("kind") or ""
    if kind not in BOUND_KINDS or "/" in version:
        raise bad_request(f"cannot bind token to object of type {version}, Kind={kind}")
    _, key, is_namespaced = BOUND_KINDS[kind]
    name = reference.get("name") or ""
    path = f"{call.namespace}/{name}" if is_namespaced else name
    record = call.context.store.collection(key).records.get(path)
    if record is None:
        raise not_found("", key[1], name)
    if kind == "Pod":
        used = (record.decode().get("spec") or {}).get("serviceAccountName") or ""
        if used != call.name:
            raise bad_request(
                f'cannot bind token for serviceaccount "{call.name}" to pod running with '
                "different serviceaccount name."
            )
    uid = reference.get("uid")
    if uid and uid != record.uid:
        error = conflict("", kind, name, (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The "
            "object might have been deleted and then recreated"
        ))  # fmt: skip
        error.details = details("", kind, name)
        raise error
    return kind, record
