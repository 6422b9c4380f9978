"""Defines Api, an API server as one pure object: takes a request, returns a response or a watch.

Api holds no thread, clock or socket: the time comes with each request, random values come from a
seed. The same requests give the same responses, byte for byte.
"""

from collections.abc import Callable
from typing import Any, Final

from stower.api import (
    content_negotiation,
    custom_resources,
    deletion,
    discovery,
    patch_requests,
    reads,
    subresources,
    writes,
)
from stower.api.attributes import attributes_of
from stower.api.calls import Call
from stower.api.context import Context
from stower.api.errors import ApiError, bad_request, method_not_allowed, no_such_path
from stower.api.identifiers import Identifiers
from stower.api.rbac import BOOTSTRAP, Rbac
from stower.api.rbac import GROUP as RBAC
from stower.api.registry import Registry
from stower.api.requests import Request, Response, encode, list_options, refusal
from stower.api.selectors import reader_of
from stower.api.store import Store, TooLargeError
from stower.api.tokens import TokenIssuer
from stower.api.watches import Watch

Object = dict[str, Any]
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
SYSTEM_CLASSES: Final = (
    ("system-cluster-critical", 2_000_000_000,
     "Used for system critical pods that must run in the cluster, but can be moved to another node "
     "if necessary."),
    ("system-node-critical", 2_000_001_000,
     "Used for system critical pods that must not be moved from their current node."),
)  # fmt: skip
HEALTH: Final = ("/healthz", "/livez", "/readyz")
NOTHING_HERE: Final = Response(
    404, [b"404 page not found\n"], content_type="text/plain; charset=utf-8"
)


Verb = tuple[str, Callable[[Call], Response | Watch]]
OF_ONE: Final[dict[str, Verb]] = {
    "GET": ("get", reads.get_or_list),
    "PUT": ("update", writes.update),
    "PATCH": ("patch", patch_requests.patch),
    "DELETE": ("delete", deletion.delete),
}
OF_ALL: Final[dict[str, Verb]] = {
    "GET": ("list", reads.get_or_list),
    "POST": ("create", writes.create),
    "DELETE": ("deletecollection", deletion.delete_collection),
}


def _only_get(request: Request) -> None:
    if request.method != "GET":
        raise method_not_allowed()


class Api:
    """The objects of one API server, and the operations on them."""

    def __init__(
        self,
        registry: Registry,
        seed: int | str = 0,
        plugins: frozenset[str] = frozenset(),
        secret: str = "",
        by_roles: bool = False,
    ) -> None:
        """Creates an empty API server.

        `plugins` are admission plugins that are on besides the default ones. `secret` signs tokens
        of service accounts. `by_roles`: whether a request needs a role that allows it; otherwise
        every request is allowed.
        """
        self.registry = registry
        self.store = Store(reader_of)
        self.rbac = Rbac(self.store) if by_roles else None
        self.context = Context(
            registry,
            self.store,
            self.rbac,
            Identifiers(seed),
            TokenIssuer(secret, self.store),
            plugins,
        )

    def token_user(self, token: str, now_ns: int) -> tuple[str, tuple[str, ...]] | None:
        """Returns name and groups of the owner of a service account's token; None if invalid."""
        return self.context.tokens.user_of(token, now_ns)

    # Built-in objects

    def restore(self) -> None:
        """Serves the custom resources whose definitions were loaded into the store."""
        for record in self.store.collection(custom_resources.KEY).records.values():
            custom_resources.serve(self.context, record.decode())

    def bootstrap(self, now_ns: int) -> None:
        """Creates the built-in objects that are missing."""
        namespaces = self.store.collection(("", "namespaces"))
        for name in NAMESPACES:
            if name not in namespaces.records:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                self._make("/api/v1/namespaces", body, now_ns)
        classes = self.store.collection(("scheduling.k8s.io", "priorityclasses"))
        for name, value, text in SYSTEM_CLASSES:
            if name not in classes.records:
                priority: Object = {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                    "description": text,
                }
                self._make("/apis/scheduling.k8s.io/v1/priorityclasses", priority, now_ns)
        for item in BOOTSTRAP if self.rbac is not None else ():
            plural = f"{item['kind'].lower()}s"
            if item["metadata"]["name"] not in self.store.collection((RBAC, plural)).records:
                body = {"apiVersion": f"{RBAC}/v1", **item}
                self._make(f"/apis/{RBAC}/v1/{plural}", body, now_ns)

    def _make(self, path: str, body: Object, now_ns: int) -> None:
        request = Request("POST", path, now_ns, body=encode(body), user="system:apiserver",
                          user_agent="stower")  # fmt: skip
        response = self.handle(request)
        if isinstance(response, Watch) or response.status != 201:
            raise AssertionError(f"cannot create a built-in object at {path}: {response}")

    # Requests

    def handle(self, request: Request) -> Response | Watch:
        """Answers a request. An ApiError becomes the Status of the response."""
        try:
            response = self._dispatch(request)
        except ApiError as error:
            response = refusal(error)
        except TooLargeError:
            text = "etcdserver: request is too large"
            response = refusal(ApiError(413, "RequestEntityTooLarge", text))
        except RecursionError:
            response = refusal(
                bad_request("the body of the request is nested too deeply; reduce its depth")
            )
        if isinstance(response, Response):
            response.revision = self.store.revision
        return response

    def _dispatch(self, request: Request) -> Response | Watch:
        if self.rbac is not None:
            self.rbac.check(request.user, request.groups, attributes_of(request))
        path = request.path.rstrip("/") or "/"
        parts = path[1:].split("/")
        if parts[0] == "api" and len(parts) > 2:
            return self._resource(request, "", parts[1], parts[2:])
        if parts[0] == "apis" and len(parts) > 3 and parts[1] in self.registry.groups:
            return self._resource(request, parts[1], parts[2], parts[3:])
        found = self._other(request, path, parts)
        if found is None and not self._is_delegated(parts):
            return NOTHING_HERE
        if found is None:
            raise no_such_path()
        return found

    def _is_delegated(self, parts: list[str]) -> bool:
        """Returns whether the path belongs to a served group: its 404 is then a Status."""
        return parts[0] == "api" or (
            parts[0] == "apis" and len(parts) > 1 and parts[1] in self.registry.groups
        )

    def _other(self, request: Request, path: str, parts: list[str]) -> Response | None:
        if path in HEALTH or path.startswith(tuple(f"{h}/" for h in HEALTH)):
            return Response(200, [b"ok"], content_type="text/plain; charset=utf-8")
        if path == "/version":
            _only_get(request)
            return discovery.version(self.registry)
        if path == "/":
            return discovery.paths(self.registry)
        if parts[0] in ("api", "apis") and len(parts) < 4:
            _only_get(request)
        if path in ("/api", "/apis"):
            if discovery.wants_aggregated(request):
                return discovery.aggregate(self.registry, path)
            if path == "/api":
                return discovery.api_versions(request)
            return discovery.api_groups(self.registry)
        if parts[0] == "openapi":
            found = self.context.documents().answer(path, request.accept)
            return found or Response(404, [], "text/plain")
        if parts[0] == "api" and len(parts) == 2:
            return discovery.api_resources(self.registry, "", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            return discovery.api_group(self.registry, parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return discovery.api_resources(self.registry, parts[1], parts[2])
        return None

    def _resource(
        self, request: Request, group: str, version: str, rest: list[str]
    ) -> Response | Watch:
        watching = rest[0] == "watch"
        if watching:
            rest = rest[1:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
            if not namespace:
                raise no_such_path()
        if not rest:
            raise no_such_path()
        resource = self.registry.find(group, version, rest[0])
        if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
            raise no_such_path()
        name = rest[1] if len(rest) > 1 else ""
        sub = rest[2] if len(rest) > 2 else ""
        call = Call(self.context, request, resource, namespace, name, sub)
        if sub:
            if sub not in resource.subresources:
                raise no_such_path()
            return subresources.handle(call)
        if not resource.stored:
            return subresources.handle_unstored(call)
        if name and resource.namespaced and not namespace:
            raise no_such_path()
        if watching:
            if request.method != "GET":
                raise method_not_allowed()
            return reads.watch(call, list_options(request, watch=True))
        return self._verb(call)

    def _verb(self, call: Call) -> Response | Watch:
        method = call.request.method
        verbs = OF_ONE if call.name else OF_ALL
        if not call.name:
            if call.resource.namespaced and not call.namespace and method != "GET":
                raise method_not_allowed()
        found = verbs.get(method)
        if found is None or found[0] not in call.resource.verbs:
            raise method_not_allowed()
        verb, function = found
        if method != "GET":  # before anything is written
            target = (
                content_negotiation.OBJECT
                if verb != "deletecollection"
                else content_negotiation.LIST
            )
            content_negotiation.choose_format(call.request, target, call.resource)
        return function(call)
