"""Validates ResourceSlices: node selection, devices, attributes, capacity, counters.

Source: pkg/apis/resource/validation/validation.go, Kubernetes 1.36.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from stower.api.equality import same_at
from stower.api.errors import FieldError
from stower.api.schema import Type
from stower.api.validation import devices_common as common
from stower.api.validation.amounts import is_native, quantity
from stower.api.validation.go_values import go_value, go_values
from stower.api.validation.rules import (
    IMMUTABLE,
    POSITIVE,
    Faults,
    Object,
    byte_count,
    forbidden,
    invalid,
    missing,
    named,
    required,
    too_long,
    too_many,
)
from stower.api.validation.scheduling import node_selector
from stower.model import names
from stower.model.quantity import Quantity

DEVICES_MAX: Final = 128
ADVANCED_DEVICES_MAX: Final = 64  # where one has taints, counters or attributes that are lists
COUNTER_SETS_MAX: Final = 8
COUNTERS_MAX: Final = 32
CONSUMED_SETS_MAX: Final = 2
ENTRIES_MAX: Final = 32  # attributes and capacities of a device
VALUES_MAX: Final = 48  # of its attributes, each item of a list counted
VALUE_BYTES_MAX: Final = 64
TAINTS_MAX: Final = 16
VALID_VALUES_MAX: Final = 10
LISTS: Final = ("bools", "ints", "strings", "versions")
_KEY_BYTES_MAX: Final = common.DOMAIN_BYTES_MAX + 1 + common.IDENTIFIER_BYTES_MAX
_UNSET_OR_TRUE: Final = "must be either unset or set to true"
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_DEVICE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_NO_DEVICE_PLACE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRE: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+{_BUILD}(\.{_BUILD})*)?\Z"
)


def resource_slice(item: Object) -> Faults:
    """A new slice."""
    return list(_slice(item["spec"], {}, lambda one, other: False))


def resource_slice_update(kind: Type, new: Object, old: Object) -> Faults:
    """A changed slice: its pool, driver and node stay; taints that stay are not looked at."""
    spec, before = new["spec"], old["spec"]
    faults = []
    for path, now, then in (
        ("spec.pool.name", _pool(spec).get("name", ""), _pool(before).get("name", "")),
        ("spec.driver", spec.get("driver", ""), before.get("driver", "")),
        ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
    ):
        if now != then:
            faults.append(invalid(path, now, IMMUTABLE))
    devices: dict[str, Object] = {}
    for device in before.get("devices") or ():
        devices.setdefault(common.name_of(device), device)

    def same_taints(one: Object, other: Object) -> bool:
        taints = one.get("taints"), other.get("taints")
        return same_at(kind, *taints, "spec", "devices", "*", "taints")

    return [*_slice(spec, devices, same_taints), *faults]


def _pool(spec: Object) -> Object:
    found: Object = spec.get("pool") or {}
    return found


def _slice(
    spec: Object, old: dict[str, Object], same_taints: Callable[[Object, Object], bool]
) -> Iterator[FieldError]:
    yield from common.driver("spec.driver", spec.get("driver", ""))
    pool = _pool(spec)
    yield from common.pool("spec.pool.name", pool.get("name", ""))
    if (count := pool.get("resourceSliceCount", 0)) <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, POSITIVE)
    if (generation := pool.get("generation", 0)) < 0:
        text = "must be greater than or equal to zero"
        yield invalid("spec.pool.generation", generation, text)
    yield from _places(spec)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def device_rule(path: str, device: Object) -> Iterator[FieldError]:
        before = old.get(common.name_of(device))
        is_tainted_anew = before is None or not same_taints(device, before)
        return _device(path, device, per_device, is_tainted_anew)

    is_advanced = any(map(_is_advanced, devices or ()))
    yield from common.check_each_unique(
        "spec.devices",
        devices,
        ADVANCED_DEVICES_MAX if is_advanced else DEVICES_MAX,
        device_rule,
        common.name_of,
    )
    yield from common.check_each_unique(
        "spec.sharedCounters", counters, COUNTER_SETS_MAX, _counter_set, common.name_of
    )


def _is_advanced(device: Object) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(
        attribute.get(name) is not None
        for attribute in (device.get("attributes") or {}).values()
        for name in LISTS
    )


# Nodes


def _places(spec: Object) -> Iterator[FieldError]:
    """Where the devices of a slice can be reached from: said in one way."""
    said = []
    if (name := spec.get("nodeName")) is not None:
        if name:
            said.append("`nodeName`")
            yield from named("spec.nodeName", name, names.subdomain_faults)
        else:
            text = "must be either unset or set to a non-empty string"
            yield invalid("spec.nodeName", name, text)
    if (selector := spec.get("nodeSelector")) is not None:
        said.append("`nodeSelector`")
        yield from node_selector("spec.nodeSelector", selector)
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            shown = go_values("NodeSelectorTerm", terms)
            yield invalid("spec.nodeSelector.nodeSelectorTerms", shown, text)
    for field in ("allNodes", "perDeviceNodeSelection"):
        yield from _flag(f"spec.{field}", spec.get(field))
        if spec.get(field):
            said.append(f"`{field}`")
    if not said:
        yield required("spec", _ONE_PLACE)
    elif len(said) > 1:
        text = f"{_ONE_PLACE}, but multiple fields are set"
        yield invalid("spec", f"{{{', '.join(said)}}}", text)


def _flag(path: str, value: bool | None) -> Iterator[FieldError]:
    if value is False:
        yield invalid(path, value, _UNSET_OR_TRUE)


def _device_places(path: str, device: Object) -> Iterator[FieldError]:
    said = []
    if (name := device.get("nodeName")) is not None:
        if name:
            said.append("`nodeName`")
            yield from named(f"{path}.nodeName", name, names.subdomain_faults)
        else:
            yield invalid(f"{path}.nodeName", name, "must not be empty")
    if (selector := device.get("nodeSelector")) is not None:
        said.append("`nodeSelector`")
        yield from node_selector(f"{path}.nodeSelector", selector)
    yield from _flag(f"{path}.allNodes", device.get("allNodes"))
    if device.get("allNodes"):
        said.append("`allNodes`")
    if not said:
        yield required(path, _ONE_DEVICE_PLACE)
    elif len(said) > 1:
        yield invalid(path, f"{{{', '.join(said)}}}", _ONE_DEVICE_PLACE)


# Devices


def _device(
    path: str, device: Object, per_device: bool, is_tainted_anew: bool
) -> Iterator[FieldError]:
    yield from common.dns_label(f"{path}.name", common.name_of(device))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > ENTRIES_MAX:
        text = f"the total number of attributes and capacities must not exceed {ENTRIES_MAX}"
        yield invalid(path, count, text)
    if (count := sum(map(_value_count, attributes.values()))) > VALUES_MAX:
        text = f"the total number of attribute values must not exceed {VALUES_MAX}"
        yield invalid(path, count, text)
    yield from _entries(f"{path}.attributes", attributes, _attribute)
    is_shared = bool(device.get("allowMultipleAllocations"))
    yield from _entries(f"{path}.capacity", capacity, _shared_capacity if is_shared else _capacity)
    if is_tainted_anew:
        yield from common.check_each(
            f"{path}.taints", device.get("taints"), TAINTS_MAX, common.taint
        )
    yield from common.check_each_unique(
        f"{path}.consumesCounters",
        device.get("consumesCounters"),
        CONSUMED_SETS_MAX,
        _consumption,
        lambda given: given.get("counterSet", ""),
    )
    if per_device:
        yield from _device_places(path, device)
    elif any(device.get(name) is not None for name in ("nodeName", "nodeSelector", "allNodes")):
        yield invalid(path, None, _NO_DEVICE_PLACE)
    yield from common.binding_conditions(path, device)
    mappings = device.get("nodeAllocatableResourceMappings") or {}
    for name, mapping in mappings.items():
        at = f"{path}.nodeAllocatableResourceMappings[{name}]"
        yield from _mapping(at, name, mapping, capacity)


def _entries(path: str, given: Object, rule: common.Rule) -> Iterator[FieldError]:
    """Attributes or capacities by their qualified names."""
    for name, value in given.items():
        yield from common.qualified(path, name)
        yield from rule(f"{path}[{_shortened(name, _KEY_BYTES_MAX)}]", value)


def _shortened(key: str, limit: int) -> str:
    """A key as a path shows it: without its middle where it is longer than it may be."""
    if byte_count(key) <= limit:
        return key
    raw, rest = key.encode("utf-8", "surrogatepass"), limit - len("...")
    shown = raw[: (rest + 1) // 2] + b"..." + raw[len(raw) - rest // 2 :]
    return shown.decode("utf-8", "replace")


def _mapping(path: str, name: str, mapping: Object, capacity: Object) -> Iterator[FieldError]:
    """How much of a resource of the node itself a device takes."""
    if not is_native(name):
        yield invalid(path, name, "must be a node allocatable resource name")
    factor, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
    if factor is None and key is None:
        text = "at least one of allocationMultiplier or capacityKey must be set"
        yield invalid(path, "", text)
    if factor is not None and quantity(factor).sign <= 0:
        yield invalid(f"{path}.allocationMultiplier", factor, "must be positive")
    if key == "":
        yield invalid(f"{path}.capacityKey", "", "capacityKey must not be an empty string")
    elif key is not None and key not in capacity:
        yield missing(f"{path}.capacityKey", key)


# Attributes


def _value_count(attribute: Object) -> int:
    return sum(len(attribute.get(name) or ()) for name in LISTS) or 1


def _attribute(path: str, given: Object) -> Iterator[FieldError]:
    if (text := given.get("string")) is not None:
        yield from _text(f"{path}.string", text)
    if (text := given.get("version")) is not None:
        yield from _version(f"{path}.version", text)
    for name in LISTS:
        if given.get(name) is not None and not given[name]:
            yield invalid(f"{path}.{name}", given[name], "must not be empty if specified")
    for i, text in enumerate(given.get("strings") or ()):
        yield from _text(f"{path}.strings[{i}]", text)
    for i, text in enumerate(given.get("versions") or ()):
        yield from _version(f"{path}.versions[{i}]", text)
    known = ("bool", "int", "string", "version", *LISTS)
    values = [name for name in known if given.get(name) is not None]
    if len(values) != 1:
        shown = go_value("DeviceAttribute", given) if values else ""
        yield invalid(path, shown, "exactly one value must be specified")


def _text(path: str, text: str) -> Iterator[FieldError]:
    if byte_count(text) > VALUE_BYTES_MAX:
        yield too_long(path, VALUE_BYTES_MAX)


def _version(path: str, text: str) -> Iterator[FieldError]:
    if not _VERSION.match(text):
        yield invalid(path, text, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text(path, text)


# Counters


def _counter_set(path: str, given: Object) -> Iterator[FieldError]:
    yield from _counter_name(f"{path}.name", common.name_of(given))
    yield from _counters(f"{path}.counters", given.get("counters"))


def _consumption(path: str, given: Object) -> Iterator[FieldError]:
    yield from _counter_name(f"{path}.counterSet", given.get("counterSet", ""))
    yield from _counters(f"{path}.counters", given.get("counters"))


def _counter_name(path: str, name: str) -> Faults:
    return common.dns_label(path, name) if name else [required(path)]


def _counters(path: str, given: Object | None) -> Iterator[FieldError]:
    """Any amount will do; the names must be such."""
    if not given:
        yield required(path)
    elif len(given) > COUNTERS_MAX:
        yield too_many(path, len(given), COUNTERS_MAX)
    else:
        for name in given:
            yield from common.dns_label(path, name)


# Capacity


def _capacity(path: str, given: Object) -> Iterator[FieldError]:
    if given.get("requestPolicy") is not None:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")


def _shared_capacity(path: str, given: Object) -> Iterator[FieldError]:
    """How much of a capacity may be asked for: some amounts, or a range."""
    policy, path = given.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return
    values, bounds = policy.get("validValues") or [], policy.get("validRange")
    if values and bounds is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        yield forbidden(path, text)
        return
    if not values and bounds is None:
        return
    field = "validValues" if values else "validRange"
    if policy.get("default") is None:
        yield required(f"{path}.default", f"required when {field} is defined")
        return
    whole, default = quantity(given.get("value", "0")), quantity(policy["default"])
    if values:
        yield from _valid_values(f"{path}.{field}", [*map(quantity, values)], default, whole)
    else:
        yield from _valid_range(f"{path}.{field}", bounds, default, whole)


def _valid_values(
    path: str, values: list[Quantity], default: Quantity, whole: Quantity
) -> Iterator[FieldError]:
    for i in range(1, len(values)):
        if values[i - 1].cmp(values[i]) > 0:
            text = "values must be sorted in ascending order"
            yield invalid(f"{path}[{i}]", str(values[i]), text)

    def rule(at: str, value: Quantity) -> Iterator[FieldError]:
        if value.cmp(whole) > 0:
            yield invalid(at, str(value), f"option is larger than capacity value: {whole}")

    yield from common.check_each_unique(
        path, values, VALID_VALUES_MAX, rule, Quantity.value, lambda value: str(value.value())
    )
    if len(values) > VALID_VALUES_MAX or all(value.cmp(default) for value in values):
        text = "default value is not valid according to the requestPolicy"
        yield invalid(path, str(default), text)


def _valid_range(
    path: str, bounds: Object, default: Quantity, whole: Quantity
) -> Iterator[FieldError]:
    least, most, step = (
        None if bounds.get(name) is None else quantity(bounds[name])
        for name in ("min", "max", "step")
    )
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if least.cmp(whole) > 0:
        yield _amount(f"{path}.min", least, f"min is larger than capacity value: {whole}")
    if default.cmp(least) < 0:
        yield _amount(f"{path}.min", default, f"default is less than min: {least}")
    if most is not None:
        if least.cmp(most) > 0:
            yield _amount(f"{path}.max", least, f"min is larger than max: {most}")
        if most.cmp(whole) > 0:
            yield _amount(f"{path}.max", most, f"max is larger than capacity value: {whole}")
        if default.cmp(most) > 0:
            yield _amount(f"{path}.max", default, f"default is more than max: {most}")
    if step is None:
        return
    second = least.add(step)
    if second.cmp(whole) > 0:
        text = f"one step {second} is larger than capacity value: {whole}"
        yield _amount(f"{path}.step", step, text)
    for value in (default, most):
        if value is not None and not _is_step(value, least, step):
            text = f"value is not a multiple of a given step ({step}) from ({least})"
            yield _amount(f"{path}.step", value, text)


def _amount(path: str, value: Quantity, detail: str) -> FieldError:
    return invalid(path, str(value), detail)


def _is_step(value: Quantity, least: Quantity, step: Quantity) -> bool:
    """Whether whole steps lead from the least to the value; a step of nothing leads nowhere."""
    size: Any = step.value()
    return bool(size) and (value.value() - least.value()) % size == 0
