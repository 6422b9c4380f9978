"""Handles the eviction subresource: deletes a pod if its PodDisruptionBudget allows it.

Source: pkg/registry/core/pod/storage/eviction.go, Kubernetes 1.36.
"""

from typing import Any, Final

from stower.api import admission, deletion, pods
from stower.api.bindings import SUCCESS
from stower.api.bodies import check_kind, check_media, check_shape, parse_object
from stower.api.calls import Call
from stower.api.errors import OTHER_NAMESPACE, ApiError, bad_request, conflict, forbidden
from stower.api.requests import DeleteOptions, Response, answer, delete_options, write_options
from stower.api.selectors import Requirement
from stower.api.store import Record

Object = dict[str, Any]
DISRUPTED_MAX: Final = 2000
TOO_MANY: Final = "Cannot evict pod as it would violate the pod's disruption budget."
CONDITION: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(call: Call) -> Response:
    """POST of an Eviction to a pod."""
    options = write_options(call.request, "CreateOptions")
    check_media(call)
    body = parse_object(call.request.body, "Eviction")
    if body.get("apiVersion") != "policy/v1beta1":
        check_kind(call, body, "Eviction", "policy/v1")
    warnings = check_shape(call, body, "Eviction", "policy/v1", options)
    meta = body.get("metadata") or {}
    if meta.get("namespace", call.namespace) != call.namespace:
        raise bad_request(OTHER_NAMESPACE)
    admission.check_namespace(call, call.name)
    if meta.get("name") != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    given = delete_options(call.request, body.get("deleteOptions") or {})
    given.dry_run |= options.dry_run
    record = call.record()
    pod = record.decode()
    phase = (pod.get("status") or {}).get("phase")
    deleting = "deletionTimestamp" in pod["metadata"]
    if phase not in ("Succeeded", "Failed", "Pending") and not deleting:
        refusal = _spend_budget(call, pod, given.dry_run)
        if refusal is not None:
            return refusal
    _check_preconditions(call, record, given)
    if not given.dry_run:
        record = _mark(call, record)
        deletion.remove(call, record, given)
    return answer(201, SUCCESS, warnings)


def _check_preconditions(call: Call, record: Record, given: DeleteOptions) -> None:
    if given.uid and given.uid != record.uid:
        raise conflict(
            "", "Pod", call.name,
            f"the UID in the precondition ({given.uid}) does not match the UID in record "
            f"({record.uid}). The object might have been deleted and then recreated",
        )  # fmt: skip
    if given.resource_version and given.resource_version != str(record.revision):
        raise conflict(
            "", "Pod", call.name,
            f"the ResourceVersion in the precondition ({given.resource_version}) does not match "
            f"the ResourceVersion in record ({record.revision}). The object might have been "
            "modified",
        )  # fmt: skip


def _mark(call: Call, record: Record) -> Record:
    pod = record.decode()
    if not pods.set_condition(pod["status"], CONDITION, call.now):
        return record
    return call.context.store.put(call.collection, record.key, pod)


def label_requirements(selector: Object | None) -> tuple[Requirement, ...] | None:
    """The conditions of a LabelSelector; None where there is no selector, which takes nothing."""
    if selector is None:
        return None
    found = [
        Requirement(key, "in", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    words = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for term in selector.get("matchExpressions") or ():
        values = tuple(term.get("values") or ())
        found.append(Requirement(term["key"], words.get(term.get("operator", ""), "in"), values))
    return tuple(found)


def _spend_budget(call: Call, pod: Object, dry_run: bool) -> Response | None:
    """Take one disruption from the pod's budget, or the answer that there is none."""
    budgets = call.context.store.collection(("policy", "poddisruptionbudgets"))
    labels = pod["metadata"].get("labels") or {}
    found = []
    for key in budgets.keys_in(call.namespace):
        budget = budgets.records[key].decode()
        terms = label_requirements(budget["spec"].get("selector"))
        if terms is not None and all(term.matches(labels) for term in terms):
            found.append((key, budget))
    if not found:
        return None
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
        status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": text, "code": 500,
        }  # fmt: skip
        return answer(500, status)
    key, budget = found[0]
    status = budget["status"]
    ready = any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in pod["status"].get("conditions") or ()
    )
    desired = status.get("desiredHealthy", 0)
    if not ready:
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return None
        if status.get("currentHealthy", 0) >= desired > 0:
            return None
    _check_and_decrement(call, budget)
    if not dry_run:
        status.setdefault("disruptedPods", {})[call.name] = call.now
        if not status["disruptionsAllowed"]:
            _set_disallowed(budget, call.now)
        call.context.store.put(budgets, key, budget)
    return None


def _check_and_decrement(call: Call, budget: Object) -> None:
    status, name = budget["status"], budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        error = _too_many(text)
        assert error.details is not None
        error.details["retryAfterSeconds"] = 10
        error.headers["Retry-After"] = "10"
        raise error
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(
            "policy", "poddisruptionbudgets", name, "pdb disruptions allowed is negative"
        )
    if len(status.get("disruptedPods") or {}) > DISRUPTED_MAX:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudgets", name, text)
    if allowed == 0:
        raise _too_many(f"The disruption budget {name} {_describe_denial(status)}")
    status["disruptionsAllowed"] = allowed - 1


def _describe_denial(status: Object) -> str:
    """Why no disruption is allowed now."""
    conditions = status.get("conditions") or ()
    found: Object = next((c for c in conditions if c.get("type") == "DisruptionAllowed"), {})
    told = found.get("message", "") if found.get("status") == "False" else ""
    if told and found.get("reason") == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {told}"
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= desired:
        return f"needs {desired} healthy pods and has {healthy} currently"
    if told:
        return f"does not allow evicting pods currently ({found.get('reason', '')}): {told}"
    return "does not allow evicting pods currently"


def _set_disallowed(budget: Object, now: str) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": budget["status"].get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    others = [
        c for c in budget["status"].get("conditions") or () if c["type"] != "DisruptionAllowed"
    ]
    budget["status"]["conditions"] = [*others, condition]


def _too_many(text: str) -> ApiError:
    causes = [{"reason": "DisruptionBudget", "message": text}]
    return ApiError(429, "TooManyRequests", TOO_MANY, {"causes": causes})
