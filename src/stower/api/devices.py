"""Sets and drops fields of claims, slices and taint rules on a write, and checks admin access.

Source: pkg/registry/resource (strategies and utils.go), Kubernetes 1.36, its default gates.
"""

from typing import Any, Final

from stower.api.calls import Call
from stower.api.errors import INTERNAL, FieldError
from stower.api.validation import resource_claims
from stower.api.validation.resource_slices import LISTS
from stower.api.validation.rules import forbidden

Object = dict[str, Any]
Faults = list[FieldError]
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
MAPPINGS: Final = "nodeAllocatableResourceMappings"


# Administrators


def new_claim(call: Call, item: Object) -> Faults:
    """A new claim; one with the rights of an administrator needs a namespace for such."""
    requests = item["spec"]["devices"].get("requests") or ()
    return [*_admin_requests(call, item, requests), *resource_claims.claim(item)]


def new_template(call: Call, item: Object) -> Faults:
    """The same of a template."""
    requests = item["spec"]["spec"]["devices"].get("requests") or ()
    return [*_admin_requests(call, item, requests), *resource_claims.template(item)]


def claim_status(call: Call, new: Object, old: Object) -> Faults:
    """The status of a claim; an allocation that is there keeps the rights that it has."""
    kind = call.resource.type
    assert kind is not None
    faults = resource_claims.claim_status(kind, new, old)
    before = resource_claims.results(old.get("status") or {})
    if any(result.get("adminAccess") for result in before):
        return faults
    for i, result in enumerate(resource_claims.results(new.get("status") or {})):
        if result.get("adminAccess"):
            path = f"status.allocation.devices.results[{i}].adminAccess"
            return [*_admin(call, new, path), *faults]
    return faults


def _admin_requests(call: Call, item: Object, requests: Any) -> Faults:
    for i, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess"):
            # The path of a claim, without `exactly`, for templates too.
            return _admin(call, item, f"spec.devices.requests[{i}].adminAccess")
    return []


def _admin(call: Call, item: Object, path: str) -> Faults:
    namespace = item["metadata"].get("namespace") or call.namespace
    record = call.context.store.collection(("", "namespaces")).records.get(namespace)
    if record is None:
        text = (
            "could not retrieve namespace to verify admin access: namespaces "
            f'"{namespace}" not found'
        )
        return [FieldError(INTERNAL, path, None, text)]
    labels = record.decode()["metadata"].get("labels") or {}
    if labels.get(ADMIN_LABEL) == "true":
        return []
    text = (
        f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing "
        "namespace"
    )
    return [forbidden(path, text)]


# Claims


def drop_deallocated(new: Object, old: Object) -> None:
    """What drivers said about devices goes when the claim gives them back."""
    status = new.get("status") or {}
    kept = {resource_claims.result_key(result) for result in resource_claims.results(status)}
    before = resource_claims.results(old.get("status") or {})
    gone = {resource_claims.result_key(result) for result in before} - kept
    devices = status.get("devices") or []
    left = [device for device in devices if resource_claims.result_key(device) not in gone]
    if len(left) == len(devices):
        return
    if left:
        status["devices"] = left
    else:
        del status["devices"]


# Slices


def new_slice(call: Call, item: Object) -> None:
    """A new slice, without what is behind gates that are off."""
    _drop_disabled(item, None)


def changed_slice(call: Call, new: Object, old: Object) -> None:
    """The same of a changed slice; what it uses already it may go on with."""
    _drop_disabled(new, old)


def _devices(item: Object | None) -> list[Object]:
    found: list[Object] = (item or {"spec": {}})["spec"].get("devices") or []
    return found


def _lists(device: Object) -> list[tuple[Object, str]]:
    attributes = (device.get("attributes") or {}).values()
    return [(a, name) for a in attributes for name in LISTS if a.get(name) is not None]


def _drop_disabled(item: Object, old: Object | None) -> None:
    """DRANodeAllocatableResources and DRAListTypeAttributes are off by default."""
    before = _devices(old)
    if not any(device.get(MAPPINGS) for device in before):
        for device in _devices(item):
            device.pop(MAPPINGS, None)
    if not any(map(_lists, before)):
        for device in _devices(item):
            for attribute, name in _lists(device):
                del attribute[name]


def slice_warnings(call: Call, item: Object) -> list[str]:
    """Names of drivers are compared as they are written."""
    driver = item["spec"].get("driver", "")
    if driver == driver.lower():
        return []
    return [
        f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'
    ]


# Taint rules


def changed_rule(call: Call, new: Object, old: Object) -> None:
    """A new effect counts from now on, unless the client says since when."""
    taint, before = new["spec"]["taint"], old["spec"]["taint"]
    is_other = taint.get("effect", "") != before.get("effect", "")
    if is_other and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = call.now
