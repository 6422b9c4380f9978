"""Validates ResourceClaims, their status, and ResourceClaimTemplates.

Source: pkg/apis/resource/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.equality import same_at
from stower.api.errors import FieldError, unsupported
from stower.api.metadata import annotation_errors, label_errors
from stower.api.schema import Type
from stower.api.validation import devices_common as common
from stower.api.validation import negotiation
from stower.api.validation.go_values import go_template, go_value
from stower.api.validation.rules import (
    IMMUTABLE,
    POSITIVE,
    Faults,
    Object,
    byte_count,
    forbidden,
    invalid,
    named,
    one_of,
    required,
    too_long,
    too_many,
)
from stower.api.validation.scheduling import node_selector
from stower.model import names
from stower.model.kinds.resource_claim import FIRST_AVAILABLE_MAX, RESERVED_FOR_MAX, RESULTS_MAX

CONSTRAINTS_MAX: Final = 32
CONDITIONS_MAX: Final = 8
DATA_BYTES_MAX: Final = 10 * 1024
INTERFACE_BYTES_MAX: Final = 256
HARDWARE_BYTES_MAX: Final = 128
ADDRESSES_MAX: Final = 16
MODES: Final = ("All", "ExactCount")
SOURCES: Final = ("FromClaim", "FromClass")
TEMPLATE_METADATA: Final = ("annotations", "labels")
_NOT_A_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
Requests = dict[str, set[str]]
DeviceKey = tuple[str, str, str, str]


def claim(item: Object) -> Faults:
    """The spec of a new claim, and what its annotations say to drivers."""
    faults = list(_devices("spec.devices", item["spec"]["devices"]))
    return [*faults, *negotiation.claim_annotations(item["metadata"])]


def claim_update(kind: Type, new: Object, old: Object) -> Faults:
    """The spec of a claim stays."""
    faults = list(negotiation.claim_annotations_update(new["metadata"], old["metadata"]))
    if not same_at(kind, new["spec"], old["spec"], "spec"):
        faults.append(invalid("spec", go_value("ResourceClaimSpec", new["spec"]), IMMUTABLE))
    return faults


def template(item: Object) -> Faults:
    """The claim that a template is for, and what of its metadata may be given."""
    meta = item["spec"].get("metadata") or {}
    at = "spec.metadata"
    faults = annotation_errors(meta.get("annotations"), f"{at}.annotations")
    faults += label_errors(meta.get("labels"), f"{at}.labels")
    for name, value in meta.items():
        is_set = value or (name == "deletionGracePeriodSeconds" and value is not None)
        if is_set and name not in TEMPLATE_METADATA:
            # Go's name of the field, with its first letter lowered.
            shown = "uID" if name == "uid" else name
            faults.append(forbidden(f"{at}.{shown}", "cannot be set"))
    faults += negotiation.template_annotations(meta)
    return [*faults, *_devices("spec.spec.devices", item["spec"]["spec"]["devices"])]


def template_update(kind: Type, new: Object, old: Object) -> Faults:
    """The spec of a template stays; it is looked through all the same."""
    faults = template(new)
    if not same_at(kind, new["spec"], old["spec"], "spec"):
        faults.append(invalid("spec", go_template(new["spec"]), IMMUTABLE))
    return faults


# Requests


def _devices(path: str, given: Object) -> Iterator[FieldError]:
    known = _requests(given)
    yield from common.check_each_unique(
        f"{path}.requests",
        given.get("requests"),
        common.REQUESTS_MAX,
        _request,
        common.name_of,
    )
    yield from common.check_each(
        f"{path}.constraints",
        given.get("constraints"),
        CONSTRAINTS_MAX,
        lambda at, item: _constraint(at, item, known),
    )
    yield from common.check_each(
        f"{path}.config",
        given.get("config"),
        common.CONFIGS_MAX,
        lambda at, item: _configuration(at, item, known),
    )


def _requests(given: Object) -> Requests:
    """The names of requests, each with those of its alternatives."""
    return {
        common.name_of(request): {
            common.name_of(part) for part in request.get("firstAvailable") or ()
        }
        for request in given.get("requests") or ()
    }


def _reference(path: str, name: str, known: Requests) -> Iterator[FieldError]:
    """The name of a request, or of a request and one of its alternatives."""
    parts = name.split("/")
    if len(parts) <= 2:
        for part in parts:
            yield from common.dns_label(path, part)
    found = len(parts) <= 2 and parts[0] in known
    if not found or (len(parts) == 2 and parts[1] not in known[parts[0]]):
        yield invalid(path, name, _NOT_A_REQUEST)


def _references(path: str, given: Any, known: Requests) -> Iterator[FieldError]:
    return common.check_each_unique(
        path,
        given,
        common.REQUESTS_MAX,
        lambda at, name: _reference(at, name, known),
        common.identity,
    )


def _request(path: str, given: Object) -> Iterator[FieldError]:
    yield from common.dns_label(f"{path}.name", common.name_of(given))
    exactly, alternatives = given.get("exactly"), given.get("firstAvailable")
    if exactly is not None and alternatives:
        yield invalid(path, None, f"{_ONE_KIND}, but multiple fields are set")
    elif exactly is not None:
        yield from _one_request(f"{path}.exactly", exactly)
    elif alternatives:
        yield from common.check_each_unique(
            f"{path}.firstAvailable",
            alternatives,
            FIRST_AVAILABLE_MAX,
            _alternative,
            common.name_of,
        )
    else:
        yield required(path, _ONE_KIND)


def _alternative(path: str, given: Object) -> Iterator[FieldError]:
    yield from common.dns_label(f"{path}.name", common.name_of(given))
    yield from _one_request(path, given)


def _one_request(path: str, given: Object) -> Iterator[FieldError]:
    device_class = given.get("deviceClassName", "")
    if device_class:
        yield from named(f"{path}.deviceClassName", device_class, names.subdomain_faults)
    else:
        yield required(f"{path}.deviceClassName")
    yield from common.selectors(f"{path}.selectors", given.get("selectors"), stored=False)
    mode, count = given.get("allocationMode", ""), given.get("count", 0)
    if mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            yield invalid(f"{path}.count", count, text)
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, POSITIVE)
    else:
        yield unsupported(f"{path}.allocationMode", mode, MODES)
    yield from common.check_each(
        f"{path}.tolerations", given.get("tolerations"), None, common.toleration
    )


def _constraint(path: str, given: Object, known: Requests) -> Iterator[FieldError]:
    yield from _references(f"{path}.requests", given.get("requests"), known)
    for field in ("matchAttribute", "distinctAttribute"):
        if given.get(field) is not None:
            yield from common.fully_qualified(f"{path}.{field}", given[field])
            return
    text = (  # as upstream has it, for none at all too
        'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields '
        "are set"
    )
    yield required(path, text)


def _configuration(path: str, given: Object, known: Requests) -> Iterator[FieldError]:
    yield from _references(f"{path}.requests", given.get("requests"), known)
    yield from common.configuration(path, given, stored=False)


# Status


def result_key(result: Object) -> DeviceKey:
    """What tells allocated devices, and shares of one device, apart."""
    driver, pool, device = (result.get(name, "") for name in ("driver", "pool", "device"))
    return driver, pool, device, result.get("shareID") or ""


def _format_device(device: Object) -> Object:
    names_of = ("Driver", "Pool", "Device", "ShareID")
    return dict(zip(names_of, result_key(device), strict=True))


def results(status: Object) -> list[Object]:
    """The devices that are allocated to a claim."""
    allocation = status.get("allocation") or {}
    found: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return found


def claim_status(kind: Type, new: Object, old: Object) -> Faults:
    """The status of a claim: devices, who uses them, and what drivers say about them."""
    return list(_status(kind, new, old))


def _status(kind: Type, new: Object, old: Object) -> Iterator[FieldError]:
    status, before = new.get("status") or {}, old.get("status") or {}
    users = status.get("reservedFor") or []
    yield from common.check_each_unique(
        "status.reservedFor", users, RESERVED_FOR_MAX, _user, lambda user: user.get("uid", "")
    )
    allocated = {result_key(result) for result in results(status)}
    yield from common.check_each_unique(
        "status.devices",
        status.get("devices"),
        None,
        lambda at, device: _device(at, device, allocated),
        result_key,
        _format_device,
    )
    allocation = status.get("allocation")
    if users and allocation is None:
        text = "may not be specified when `allocated` is not set"
        yield forbidden("status.reservedFor", text)
    elif users and "deletionTimestamp" in new["metadata"]:
        known = before.get("reservedFor") or []
        if any(user not in known for user in users):
            text = (
                "new entries may not be added while `deallocationRequested` or "
                "`deletionTimestamp` are set"
            )
            yield forbidden("status.reservedFor", text)
    if allocation is None:
        return
    if before.get("allocation") is None:
        known_requests = _requests(new["spec"]["devices"])
        yield from _allocation("status.allocation", allocation, known_requests)
    elif not same_at(kind, allocation, before["allocation"], "status", "allocation"):
        shown = go_value("AllocationResult", allocation)
        yield invalid("status.allocation", shown, IMMUTABLE)


def _user(path: str, given: Object) -> Iterator[FieldError]:
    for field in ("resource", "name", "uid"):
        if not given.get(field):
            yield required(f"{path}.{field}")


def _device(path: str, given: Object, allocated: set[DeviceKey]) -> Iterator[FieldError]:
    """What a driver says about one device."""
    yield from common.driver(f"{path}.driver", given.get("driver", ""))
    yield from common.pool(f"{path}.pool", given.get("pool", ""))
    yield from common.dns_label(f"{path}.device", given.get("device", ""))
    yield from common.share(f"{path}.shareID", given.get("shareID"))
    if result_key(given) not in allocated:
        yield invalid(path, _format_device(given), "must be an allocated device in the claim")
    conditions = given.get("conditions") or ()
    if len(conditions) > CONDITIONS_MAX:
        yield too_many(f"{path}.conditions", len(conditions), CONDITIONS_MAX)
    yield from common.conditions(f"{path}.conditions", conditions)
    if given.get("data") is not None:
        yield from common.raw(f"{path}.data", given["data"], DATA_BYTES_MAX)
    network, at = given.get("networkData") or {}, f"{path}.networkData"
    for field, limit in (
        ("interfaceName", INTERFACE_BYTES_MAX),
        ("hardwareAddress", HARDWARE_BYTES_MAX),
    ):
        if byte_count(network.get(field, "")) > limit:
            yield too_long(f"{at}.{field}", limit)
    yield from common.check_each_unique(
        f"{at}.ips", network.get("ips"), ADDRESSES_MAX, common.interface_address, common.identity
    )


def _allocation(path: str, given: Object, known: Requests) -> Iterator[FieldError]:
    devices = given.get("devices") or {}
    yield from common.check_each(
        f"{path}.devices.results",
        devices.get("results"),
        RESULTS_MAX,
        lambda at, item: _result(at, item, known),
    )
    yield from common.check_each(
        f"{path}.devices.config",
        devices.get("config"),
        2 * common.CONFIGS_MAX,  # those of the class and those of the claim
        lambda at, item: _allocated_configuration(at, item, known),
    )
    if given.get("nodeSelector") is not None:
        yield from node_selector(f"{path}.nodeSelector", given["nodeSelector"])


def _result(path: str, given: Object, known: Requests) -> Iterator[FieldError]:
    yield from _reference(f"{path}.request", given.get("request", ""), known)
    yield from common.driver(f"{path}.driver", given.get("driver", ""))
    yield from common.pool(f"{path}.pool", given.get("pool", ""))
    yield from common.dns_label(f"{path}.device", given.get("device", ""))
    yield from common.binding_conditions(path, given)
    yield from common.share(f"{path}.shareID", given.get("shareID"))


def _allocated_configuration(path: str, given: Object, known: Requests) -> Iterator[FieldError]:
    yield from one_of(f"{path}.source", given.get("source", ""), SOURCES)
    yield from _configuration(path, given, known)
