"""Defines Api, an API server as one pure object: takes a request, returns a response or a watch.

Api holds no thread, clock or socket: the time comes with each request, random values come from a
seed. The same requests give the same responses, byte for byte.
"""

from collections.abc import Callable
from typing import Any, Final

from stower.api import (
    content_negotiation,
    custom_definitions,
    deletion,
    discovery,
    health,
    patch_requests,
    reads,
    subresources,
    writes,
)
from stower.api.calls import Call
from stower.api.context import Context
from stower.api.errors import ApiError, bad_request, method_not_allowed, no_such_path
from stower.api.identifiers import Identifiers
from stower.api.impersonation import Headers, impersonate
from stower.api.rbac import BOOTSTRAP, Rbac
from stower.api.rbac import GROUP as RBAC
from stower.api.registry import Registry
from stower.api.request_info import METHODS, RequestInfo
from stower.api.requests import Request, Response, encode, refusal
from stower.api.selectors import reader_of
from stower.api.store import NamespaceFullError, Store, TooLargeError
from stower.api.tokens import BadTokenError, TokenIssuer
from stower.api.users import SERVER, UserInfo
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


# What carries out a verb on a stored resource.
OF_ONE: Final[dict[str, Callable[[Call], Response | Watch]]] = {
    "get": reads.get,
    "update": writes.update,
    "patch": patch_requests.patch,
    "delete": deletion.delete,
}
OF_ALL: Final[dict[str, Callable[[Call], Response | Watch]]] = {
    "list": reads.list_objects,
    "watch": reads.watch,
    "create": writes.create,
    "deletecollection": deletion.delete_collection,
}
OF_READING_ALL: Final = ("list", "watch")  # a field selector may name one object
READS: Final = ("get", *OF_READING_ALL)


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

    def token_user(self, token: bytes, now_ns: int) -> UserInfo | None:
        """Returns the owner of a service account's token; None if it is not valid here."""
        try:
            return self.context.tokens.owner_of(token, now_ns).user
        except BadTokenError:
            return None

    def acting_user(self, caller: UserInfo, impersonation: Headers) -> UserInfo:
        """Returns the user that a request is carried out as. Raises ApiError 400 or 403."""
        return impersonate(self.rbac, caller, impersonation) if impersonation else caller

    def authorize(self, user: UserInfo, info: RequestInfo) -> None:
        """Checks that a user may do what is asked. Raises ApiError 403."""
        if self.rbac is not None:
            self.rbac.check(user, info)

    # Built-in objects

    def restore(self) -> None:
        """Serves the custom resources whose definitions were loaded into the store."""
        for record in self.store.collection(custom_definitions.KEY).records.values():
            custom_definitions.serve(self.context, record.decode())

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

    def _ask(self, method: str, path: str, body: Object, now_ns: int) -> Response:
        request = Request(method, path, now_ns, body=encode(body), user=SERVER, user_agent="stower")
        response = self.handle(request)
        assert isinstance(response, Response)
        return response

    def _make(self, path: str, body: Object, now_ns: int) -> None:
        response = self._ask("POST", path, body, now_ns)
        if response.status != 201:
            raise AssertionError(f"cannot create a built-in object at {path}: {response}")

    # Requests

    def handle(self, request: Request) -> Response | Watch:
        """Answers a request. An ApiError becomes the Status of the response."""
        self.store.compact(request.now_ns)
        try:
            response = self._dispatch(request)
        except ApiError as error:
            response = refusal(error)
        except TooLargeError:
            text = "etcdserver: request is too large"
            response = refusal(ApiError(413, "RequestEntityTooLarge", text))
        except NamespaceFullError as error:
            response = refusal(ApiError(403, "Forbidden", str(error)))
        except RecursionError:
            response = refusal(
                bad_request("the body of the request is nested too deeply; reduce its depth")
            )
        if isinstance(response, Response):
            response.revision = self.store.revision
        return response

    def _dispatch(self, request: Request) -> Response | Watch:
        info = request.info
        if request.impersonation or self.rbac is not None:
            request.decision = "forbid"
            user = self.acting_user(request.user, request.impersonation)
            if request.impersonation:
                request.impersonator, request.user = request.user, user
            self.authorize(user, info)
        request.decision = "allow"
        if info.is_resource:
            return self._resource(request, info)
        path = info.path.rstrip("/") or "/"
        return self._other(request, path, path[1:].split("/")) or health.NOTHING_HERE

    def _other(self, request: Request, path: str, parts: list[str]) -> Response | None:
        """Answers a request that is not for a resource. Raises ApiError 404 or 405."""
        if health.is_health(path):
            return health.answer_health(request, path)
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
        if parts[0] not in ("api", "apis"):
            return None
        group = "" if parts[0] == "api" else parts[1]
        if group not in self.registry.groups:
            return None
        if parts[0] == "api":
            found = discovery.api_resources(self.registry, "", parts[1])
        elif len(parts) == 2:
            found = discovery.api_group(self.registry, group)
        else:
            found = discovery.api_resources(self.registry, group, parts[2])
        if found is None:  # below a served group, a 404 is a Status
            raise no_such_path(group, parts[-1])
        return found

    def _resource(self, request: Request, info: RequestInfo) -> Response | Watch:
        """Carries out the verb of a request for a resource of a served group."""
        if info.group not in self.registry.groups:
            return health.NOTHING_HERE
        resource = self.registry.find(info.group, info.version, info.resource)
        if info.version not in self.registry.groups[info.group]:
            raise no_such_path(info.group, info.version)
        if resource is None or info.is_malformed or info.verb == "proxy":
            raise no_such_path()
        if info.in_namespace and not resource.namespaced:
            raise no_such_path()
        if METHODS.get(info.verb) != request.method:
            raise method_not_allowed()
        namespace = info.namespace if resource.namespaced else ""
        call = Call(self.context, request, resource, namespace, info.name, info.subresource)
        response = self._carry_out(call, info)
        if resource.custom is not None and resource.custom.deprecation:
            if isinstance(response, Response):
                response.warnings = (resource.custom.deprecation, *response.warnings)
        return response

    def _carry_out(self, call: Call, info: RequestInfo) -> Response | Watch:
        resource = call.resource
        if info.subresource:
            if info.subresource not in resource.subresources:
                raise no_such_path()
            return subresources.handle(call)
        if not resource.stored:
            return subresources.handle_unstored(call)
        return self._stored(call, info.verb)

    def _stored(self, call: Call, verb: str) -> Response | Watch:
        """Carries out the verb of a request for one stored object or all of a resource."""
        is_cluster_wide = call.resource.namespaced and not call.namespace
        if call.name and verb not in OF_READING_ALL and is_cluster_wide:
            raise no_such_path()
        is_of_one = verb in OF_ONE
        if is_of_one != bool(call.name) and verb not in OF_READING_ALL:
            raise method_not_allowed()
        if verb not in call.resource.verbs or (is_cluster_wide and verb not in OF_READING_ALL):
            raise method_not_allowed()
        function = (OF_ONE if is_of_one else OF_ALL)[verb]
        if verb not in READS:  # before anything is written
            target = (
                content_negotiation.LIST
                if verb == "deletecollection"
                else content_negotiation.OBJECT
            )
            content_negotiation.choose_format(call.request, target, call.resource)
        return function(call)
