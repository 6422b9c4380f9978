"""Dispatches requests for subresources and unstored resources: one function for each."""

from collections.abc import Callable
from typing import Any, Final

from stower.api import bindings, evictions, patch_requests, reads, reviews, scale, writes
from stower.api.calls import Call
from stower.api.content_negotiation import OBJECT, choose_format
from stower.api.errors import ApiError, bad_request, method_not_allowed, no_such_path
from stower.api.requests import Response, flag
from stower.api.watches import Watch

Object = dict[str, Any]
Handler = Callable[[Call], Response | Watch]
# What simulated containers do not do, by the subresource that asks for it.
SIMULATED: Final = {
    "log": "they write no log",
    "exec": "no command can run in them",
    "attach": "there is no process to attach to",
    "portforward": "they listen on no port",
}


def handle(call: Call) -> Response | Watch:
    """A request for a part of an object."""
    sub = call.resource.subresources[call.subresource]
    if call.request.info.verb not in sub.verbs:
        raise method_not_allowed()
    if call.resource.namespaced and not call.namespace:
        raise no_such_path()
    function = SUBRESOURCES.get((call.resource.plural, call.subresource))
    function = function or ANY.get(call.subresource)
    if function is None:
        raise _not_carried_out(call)
    return function(call)


def _not_carried_out(call: Call) -> ApiError:
    """What is said of a request that only a real container could answer."""
    text = (
        f"{call.resource.plural}/{call.subresource} of {call.name} is not supported: this server "
        "does not connect to nodes"
    )
    if call.resource.plural == "pods":
        _check_container(call)
        if not call.record().fields.get("spec.nodeName"):
            return bad_request(f"pod {call.name} does not have a host assigned")
        why = SIMULATED.get(call.subresource)
        if why is not None:
            text = f'the containers of pod "{call.name}" are simulated: {why}'
    return ApiError(501, "NotImplemented", text)


def _check_container(call: Call) -> None:
    """A container that is asked for is one of the pod's."""
    item = call.record().decode()
    wanted = call.request.value("container")
    fields = ("initContainers", "containers", "ephemeralContainers")
    spec = item.get("spec") or {}
    if wanted and wanted not in {c["name"] for f in fields for c in spec.get(f) or ()}:
        raise bad_request(f"container {wanted} is not valid for pod {call.name}")


def _part(call: Call) -> Response | Watch:
    """A subresource that is the object itself, with rules of its own."""
    verb = call.request.info.verb
    if verb == "get":
        return reads.get(call)
    return writes.update(call) if verb == "update" else patch_requests.patch(call)


def _log(call: Call) -> Response:
    """No output of a pod that has not run; for followers, why there is none."""
    _check_container(call)
    if call.record().fields.get("spec.nodeName"):
        error = _not_carried_out(call)
        if flag(call.request, "follow"):
            # A client that follows a log asks again after an error, each second.
            return Response(200, [f"{error.message}\n".encode()], content_type="text/plain")
        raise error
    return Response(204, [], content_type="text/plain")


def _finalize(call: Call) -> Response:
    """PUT of a namespace with fewer finalizers in its spec."""
    return writes.update(call)


def handle_unstored(call: Call) -> Response | Watch:
    """A request for something that is not kept."""
    key = (call.resource.group, call.resource.plural)
    function = UNSTORED.get(key)
    if key == ("", "componentstatuses"):
        if call.request.info.verb != "list":
            raise method_not_allowed()
        return reads.list_objects(call)
    if function is None or call.request.info.verb != "create" or call.name:
        raise method_not_allowed()
    if call.resource.namespaced and not call.namespace:
        raise method_not_allowed()
    choose_format(call.request, OBJECT, call.resource, has_table=False)
    return function(call)


ANY: Final[dict[str, Handler]] = {"status": _part, "scale": scale.handle, "approval": _part}
SUBRESOURCES: Final[dict[tuple[str, str], Handler]] = {
    ("namespaces", "finalize"): _finalize,
    ("pods", "binding"): bindings.bind,
    ("pods", "ephemeralcontainers"): _part,
    ("pods", "eviction"): evictions.evict,
    ("pods", "log"): _log,
    ("pods", "resize"): _part,
    ("serviceaccounts", "token"): reviews.token,
}
UNSTORED: Final[dict[tuple[str, str], Handler]] = {
    ("", "bindings"): bindings.bind_named,
    ("authentication.k8s.io", "selfsubjectreviews"): reviews.self_subject,
    ("authentication.k8s.io", "tokenreviews"): reviews.token_review,
    ("authorization.k8s.io", "localsubjectaccessreviews"): reviews.access,
    ("authorization.k8s.io", "selfsubjectaccessreviews"): reviews.access,
    ("authorization.k8s.io", "selfsubjectrulesreviews"): reviews.rules,
    ("authorization.k8s.io", "subjectaccessreviews"): reviews.access,
}
