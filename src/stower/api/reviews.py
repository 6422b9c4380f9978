"""Handles access reviews, self subject reviews, token reviews and token requests.

Without roles (api/rbac.py) every authenticated user may do everything, as with
--authorization-mode=AlwaysAllow. Source: pkg/registry/authentication, pkg/registry/authorization,
1.36.
"""

from typing import Any, Final

from stower.api.attributes import Attributes
from stower.api.bodies import read_unstored
from stower.api.calls import Call
from stower.api.errors import INVALID, FieldError, invalid
from stower.api.rbac import MASTERS
from stower.api.requests import Request, Response, answer, encode
from stower.model.times import SECOND_NS, time_text

Object = dict[str, Any]
TOKEN_SECONDS: Final = 3600


def _body(call: Call) -> Object:
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


def access(call: Call) -> Response:
    """May somebody do something?"""
    item = _body(call)
    spec = item.get("spec") or {}
    given = [n for n in ("resourceAttributes", "nonResourceAttributes") if spec.get(n) is not None]
    if len(given) != 1:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        if given:
            text = "cannot be specified in combination with resourceAttributes"
        where = "spec.nonResourceAttributes" if given else "spec.resourceAttributes"
        value = spec.get("nonResourceAttributes") if given else None
        errors = [FieldError(INVALID, where, value, text)]
        raise invalid("authorization.k8s.io", "", "", errors)
    rbac = call.context.rbac
    if rbac is None:
        return _respond(call, item, spec, {"allowed": True})
    is_own = call.resource.plural == "selfsubjectaccessreviews"
    user = call.request.user if is_own else str(spec.get("user") or "")
    groups = call.request.groups if is_own else tuple(map(str, spec.get("groups") or ()))
    allowed = rbac.is_allowed(user, groups, _read_attributes(spec))
    return _respond(call, item, spec, {"allowed": allowed})


def _read_attributes(spec: Object) -> Attributes:
    """What a review is about."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        return Attributes(str(other.get("verb", "")), path=str(other.get("path", "")))
    found = spec["resourceAttributes"]
    names = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(*(str(found.get(name) or "") for name in names))


def rules(call: Call) -> Response:
    """What may I do?"""
    item = _body(call)
    rbac, request = call.context.rbac, call.request
    if rbac is not None and MASTERS not in request.groups:
        namespace = str((item.get("spec") or {}).get("namespace") or "")
        found = rbac.rules_of(request.user, request.groups, namespace)
        named = [{"verbs": r.verbs, "apiGroups": r.groups, "resources": r.resources,
                  "resourceNames": r.names} for r in found if r.resources]  # fmt: skip
        paths = [{"verbs": r.verbs, "nonResourceURLs": r.paths} for r in found if r.paths]
        own = {"resourceRules": named, "nonResourceRules": paths, "incomplete": False}
        return _respond(call, item, {}, own)
    every = ["*"]
    status = {
        "resourceRules": [{"verbs": every, "apiGroups": every, "resources": every}],
        "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
        "incomplete": False,
    }
    return _respond(call, item, {}, status)


def user_info(request: Request) -> Object:
    """Who asks."""
    return {
        "username": request.user,
        "uid": f"{request.user}-uid",
        "groups": list(request.groups),
    }


def self_subject(call: Call) -> Response:
    """Who am I?"""
    item = _body(call)
    response = _respond(call, item, None, {"userInfo": user_info(call.request)})
    body = {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"creationTimestamp": call.now},
        "status": {"userInfo": user_info(call.request)},
    }
    response.parts = [encode(body)]
    return response


def token_review(call: Call) -> Response:
    """Whose token is this?"""
    item = _body(call)
    spec = item.get("spec") or {}
    user = call.context.tokens.user_of(str(spec.get("token", "")), call.request.now_ns)
    if user is None:
        status: Object = {"user": {}, "error": "invalid bearer token"}
    else:
        name, groups = user
        info = {"username": name, "groups": list(groups)}
        status = {"authenticated": True, "user": info}
    return _respond(call, item, spec, status)


def token(call: Call) -> Response:
    """A token for a service account. It opens nothing but this server's token reviews."""
    record = call.record()
    item = read_unstored(call, "TokenRequest", "authentication.k8s.io/v1")
    spec = dict(item.get("spec") or {})
    seconds = spec.setdefault("expirationSeconds", TOKEN_SECONDS)
    if type(seconds) is not int or seconds < 600:
        text = "may not specify a duration less than 10 minutes"
        errors = [FieldError(INVALID, "spec.expirationSeconds", seconds, text)]
        raise invalid("authentication.k8s.io", "TokenRequest", call.name, errors)
    end = call.request.now_ns + seconds * SECOND_NS
    made = call.context.tokens.issue(call.namespace, call.name, record.uid, end // SECOND_NS)
    body = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": call.name,
            "namespace": call.namespace,
            "creationTimestamp": call.now,
        },
        "spec": spec,
        "status": {"token": made, "expirationTimestamp": time_text(end)},
    }
    return answer(201, body)
