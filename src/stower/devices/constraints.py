"""Evaluates the constraints matchAttribute and distinctAttribute, device by device.

The state of a constraint is an immutable value that each added device extends, so that backtracking
returns to the older value.

Source: KEP-4381 (matchAttribute), KEP-5075 (distinctAttribute), KEP-5491 (lists: an intersection
must be left, or must be empty).
"""

from typing import Any, Final

from stower.devices.inventory import Content
from stower.devices.requests import Constraint
from stower.model.kinds.resource_slice import DeviceAttribute

# Before any device: nothing is fixed yet.
EMPTY: Final = ()
# Kind of values ("int", ...), and the values.
Values = tuple[str, frozenset[Any]]
# The values that all devices share, or those of each device.
State = tuple[Values, ...]


def values_of(attribute: DeviceAttribute, list_attributes: bool) -> Values | None:
    """The attribute as a set; None where it is of no known type."""
    if list_attributes:
        for kind, values in (
            ("int", attribute.int_values),
            ("bool", attribute.bool_values),
            ("string", attribute.string_values),
            ("version", attribute.version_values),
        ):
            if values:
                return kind, frozenset(values)
    # As upstream looks at them where they are no lists, and where they are.
    order: tuple[tuple[str, Any], ...] = (
        ("string", attribute.string_value),
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("version", attribute.version_value),
    )
    if list_attributes:
        order = (order[1], order[2], order[0], order[3])
    for kind, value in order:
        if value is not None:
            return kind, frozenset([value])
    return None


def extended(
    constraint: Constraint, state: State, content: Content, list_attributes: bool
) -> State | None:
    """The state with one more device; None where the constraint does not allow it."""
    attribute = content.attribute(constraint.attribute)
    values = None if attribute is None else values_of(attribute, list_attributes)
    if values is None:
        return None
    if constraint.distinct:
        for kind, others in state:
            if kind == values[0] and others & values[1]:
                return None
        return (*state, values)
    if not state:
        return (values,)
    kind, common = state[0]
    left = common & values[1]
    return ((kind, left),) if kind == values[0] and left else None
