"""Serves the kinds of stower.dev and vm.neon.tech without CustomResourceDefinition objects.

They are custom resources in all other respects: clients need not define them and cannot redefine
or remove them, and rules in Python take the place of the rules in CEL for other servers.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from stower.api.custom_resources import CustomVersion, resources_of
from stower.api.custom_schema import keep_types
from stower.api.custom_values import value_faults
from stower.api.definitions import DEFINITIONS
from stower.api.errors import FieldError
from stower.api.hooks import Hooks
from stower.api.registry import Registry
from stower.api.validation import negotiation, virtual_machines, warm_pools
from stower.api.vm_definitions import VM_DEFINITIONS
from stower.api.warm_definitions import WARM_DEFINITIONS

Object = dict[str, Any]
Faults = Iterable[FieldError]


def _none(*_: Object) -> Faults:
    return ()


class Rules(NamedTuple):
    """What is wrong with an object whose types are right: a new one; a changed one and what it was;
    the same where the status was changed."""

    new: Callable[[Object], Faults] = _none
    changed: Callable[[Object, Object], Faults] = _none
    status: Callable[[Object, Object], Faults] = _none


# By kind; one that has no row is checked by its schema alone.
RULES: Final = {
    "ResourceClass": Rules(negotiation.resource_class, negotiation.resource_class_update),
    "PodScheduling": Rules(
        negotiation.pod_scheduling,
        negotiation.pod_scheduling_update,
        negotiation.pod_scheduling_status,
    ),
    "VirtualMachine": Rules(
        virtual_machines.virtual_machine, virtual_machines.virtual_machine_update
    ),
    "WarmPool": Rules(warm_pools.warm_pool, warm_pools.warm_pool_update),
    "VirtualMachineMigration": Rules(virtual_machines.migration, virtual_machines.migration_update),
}
NATIVE: Final = (*DEFINITIONS, *VM_DEFINITIONS, *WARM_DEFINITIONS)


class NativeVersion(CustomVersion):
    """One version of a kind with rules of its own."""

    def __init__(self, definition: Object, version: Object, registry: Registry) -> None:
        super().__init__(definition, version, registry)
        self._types = keep_types(self.schema)
        self._rules = rules = RULES.get(self.kind, Rules())
        self.hooks = Hooks(
            validate_create=lambda call, item: self._checked(item, lambda: rules.new(item)),
            validate_update=lambda call, new, old: self._checked(
                new, lambda: rules.changed(new, old)
            ),
            validate_status=lambda call, new, old: self._checked(
                new, lambda: rules.status(new, old)
            ),
        )

    def all_faults(self, item: Object) -> list[FieldError]:
        """What is wrong with an object that comes with its status."""
        rules = self._rules
        return self._checked(item, lambda: [*rules.new(item), *rules.status(item, item)])

    def _checked(self, item: Object, rules: Callable[[], Faults]) -> list[FieldError]:
        """Types first; then the rules, which say it better than the schema; then the schema."""
        body = {k: v for k, v in item.items() if k != "metadata"}
        wrong = value_faults(self._types, body, "")
        return wrong or list(rules()) or self.faults(item)


def serve_native(registry: Registry) -> None:
    """Serve all of them."""
    for definition in NATIVE:
        for resource in resources_of(definition, registry, NativeVersion):
            registry.add(resource)
            registry.native.add(resource.key)
