"""Validates DeviceClasses and DeviceTaintRules.

Source: pkg/apis/resource/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.equality import same_at
from stower.api.errors import FieldError
from stower.api.schema import Type
from stower.api.validation import amounts
from stower.api.validation import devices_common as common
from stower.api.validation.rules import Faults, Object, invalid, too_many

CONDITIONS_MAX: Final = 8


def device_class(item: Object) -> Faults:
    """A new class."""
    return list(_class(item["spec"], False, False))


def device_class_update(kind: Type, new: Object, old: Object) -> Faults:
    """A changed class: lists that stay as they are may be what would not be taken now."""
    spec, before = new["spec"], old["spec"]
    kept = [
        same_at(kind, spec.get(field), before.get(field), "spec", field)
        for field in ("selectors", "config")
    ]
    return list(_class(spec, *kept))


def _class(spec: Object, old_selectors: bool, old_config: bool) -> Iterator[FieldError]:
    yield from common.selectors("spec.selectors", spec.get("selectors"), old_selectors)
    yield from common.check_each(
        "spec.config",
        spec.get("config"),
        common.CONFIGS_MAX,
        lambda at, item: common.configuration(at, item, old_config),
    )
    name = spec.get("extendedResourceName")
    if name is not None and not amounts.is_extended(name):
        yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def taint_rule(item: Object) -> Faults:
    """A new rule that taints devices."""
    return list(_rule(item["spec"], None))


def taint_rule_update(new: Object, old: Object) -> Faults:
    """A changed rule; its effect may be one that only an older server knew."""
    return list(_rule(new["spec"], old["spec"]["taint"].get("effect", "")))


def _rule(spec: Object, effect_before: str | None) -> Iterator[FieldError]:
    selector = spec.get("deviceSelector") or {}
    for field, rule in (
        ("driver", common.driver),
        ("pool", common.pool),
        ("device", common.dns_label),
    ):
        if selector.get(field) is not None:
            yield from rule(f"spec.deviceSelector.{field}", selector[field])
    yield from common.taint("spec.taint", spec["taint"], effect_before)


def taint_rule_status(new: Object, old: Object) -> Faults:
    """The conditions of a rule."""
    path = "status.conditions"
    conditions = (new.get("status") or {}).get("conditions") or ()
    faults = list(common.conditions(path, conditions))
    if len(conditions) > CONDITIONS_MAX:
        faults.append(too_many(path, len(conditions), CONDITIONS_MAX))
    return faults
