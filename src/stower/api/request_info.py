"""Defines RequestInfo: what a request asks for, read once from its method, path and query.

Authorizer, router and audit log read nothing else, so that what is carried out is what was
authorized. Source: apiserver pkg/endpoints/request/requestinfo.go, Kubernetes 1.36.
"""

from typing import Final, NamedTuple

from stower.api.errors import ApiError
from stower.api.selectors import parse_fields

Query = tuple[tuple[str, str], ...]

VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
                "DELETE": "delete"}  # fmt: skip
# The only method that carries out a verb. HEAD is authorized as GET and not served for resources.
METHODS: Final = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT",
                  "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}  # fmt: skip
VERBS_IN_PATH: Final = ("watch", "proxy")  # deprecated: /api/v1/watch/pods
NAMESPACE_SUBRESOURCES: Final = ("status", "finalize")
FALSE: Final = ("0", "false")


class RequestInfo(NamedTuple):
    """The verb, and the resource or the path it is applied to.

    `path` is set where `is_resource` is false. `name` is also set by a field selector on
    metadata.name of a list or watch. `in_namespace`: the path has the form
    /namespaces/NAMESPACE/RESOURCE. `is_malformed`: no resource has such a path, whatever is served.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True
    in_namespace: bool = False
    is_malformed: bool = False

    @property
    def full_resource(self) -> str:
        """The resource with its subresource, as rules of roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def read_request_info(method: str, path: str, query: Query) -> RequestInfo:
    """Returns what a request asks for. `path` and `query` are decoded."""
    parts = path.strip("/").split("/")
    is_core = parts[0] == "api" and len(parts) > 2
    if not is_core and not (parts[0] == "apis" and len(parts) > 3):
        return RequestInfo(method.lower(), path=path or "/", is_resource=False)
    group, version, rest = ("", parts[1], parts[2:]) if is_core else (parts[1], parts[2], parts[3:])
    malformed = path.startswith("//") or "" in parts
    verb = VERBS.get(method, "")
    in_path = rest[0] in VERBS_IN_PATH
    if in_path:
        verb, rest = rest[0], rest[1:]
    namespace, in_namespace = "", False
    if rest[:1] == ["namespaces"] and len(rest) > 1:
        namespace = rest[1]
        in_namespace = len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES
        rest = rest[2:] if in_namespace else rest
    resource, name, subresource = (*rest, "", "", "")[:3]
    malformed |= len(rest) > 3 or not resource or (in_path and bool(subresource))
    if not name and verb == "get":
        verb = "watch" if is_true(query, "watch") else "list"
        name = _read_selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        verb, group, version, resource, subresource, namespace, name, "", True, in_namespace,
        malformed,
    )  # fmt: skip


def first_value(query: Query, name: str) -> str | None:
    """Returns the first value of a parameter; None where it is absent."""
    return next((value for key, value in query if key == name), None)


def is_true(query: Query, name: str) -> bool:
    """Returns whether a flag is set: absent is false, anything but a false word is true."""
    value = first_value(query, name)
    return value is not None and value.lower() not in FALSE


def _read_selected_name(query: Query) -> str:
    """Returns the name that a field selector requires; empty where it requires none."""
    text = first_value(query, "fieldSelector")
    if not text:
        return ""
    try:
        terms = parse_fields(text)
    except ApiError:
        return ""  # the request is refused later
    name = next((t.value for t in terms if t.field == "metadata.name" and t.equal), "")
    return "" if name in (".", "..") or "/" in name or "%" in name else name
