"""Derives the attributes of a request (verb, resource, name) that authorization and audit use.

Reads the request alone, before any object is looked up. Source: apiserver
pkg/endpoints/request/requestinfo.go, Kubernetes 1.36.
"""

from typing import Final, NamedTuple

from stower.api.requests import Request, truth

VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
                "DELETE": "delete"}  # fmt: skip
# What hangs below a namespace's own path and is no resource in it.
OF_NAMESPACE: Final = ("status", "finalize")


class Attributes(NamedTuple):
    """Verb, and of what. `path`: where it is about no resource."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """With its subresource, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(request: Request) -> Attributes:
    """Of a request."""
    method, parts = request.method, request.path.strip("/").split("/")
    is_core = parts[0] == "api" and len(parts) > 2
    if not is_core and not (parts[0] == "apis" and len(parts) > 3):
        return Attributes(method.lower(), path=request.path)
    group, version, rest = ("", parts[1], parts[2:]) if is_core else (parts[1], parts[2], parts[3:])
    verb = VERBS.get(method, method.lower())
    if rest[0] in ("watch", "proxy"):
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in OF_NAMESPACE:
            rest = rest[2:]
    resource, name, sub = (*rest, "", "", "")[:3]
    if not name and verb == "get":
        verb = "watch" if truth(request, "watch") else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    if not name and verb in ("list", "watch", "deletecollection"):
        name = _get_selected_name(request)
    return Attributes(verb, group, version, resource, sub, namespace, name)


def _get_selected_name(request: Request) -> str:
    """The one name that a field selector lets through."""
    for term in request.value("fieldSelector").split(","):
        key, _, value = term.partition("=")
        if key == "metadata.name":
            return value.removeprefix("=")
    return ""
