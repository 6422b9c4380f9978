"""Compiles and evaluates selectors of devices: the CEL environment that Kubernetes gives to
ResourceClaims and DeviceClasses, with the variable `device`.

Source: dynamic-resource-allocation cel/compile.go; KEP-4381 (attributes and capacity), KEP-5075
(allowMultipleAllocations), KEP-5491 (attributes that are lists).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from stower.cel.checker import Checker, Environment
from stower.cel.cost import MOST, Path, estimate
from stower.cel.literals import check_literals
from stower.cel.macros import MACROS
from stower.cel.program import Instantiation, Run, build
from stower.cel.syntax import CompileError, Parser, explain
from stower.cel.types import ANY, BOOL, DEVICE, DYN, QUANTITY, STRING, map_of
from stower.cel.values import (
    CelError,
    CostExceededError,
    Overlay,
    begin_work,
    read_semver,
    type_name,
)
from stower.model.kinds.resource_slice import DeviceAttribute
from stower.model.quantity import Quantity

COST_MAX: Final = 1_000_000  # CELSelectorExpressionMaxCost
COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
LENGTH_MAX: Final = 10_240  # CELSelectorExpressionMaxLength, in bytes

# ResourceSlice limits, which bound the sizes of what a selector sees.
_DRIVER_MAX: Final = 63
_DOMAIN_MAX: Final = 63
_ID_MAX: Final = 32
_VALUE_MAX: Final = 64
_ENTRIES_MAX: Final = 32


class Gates(NamedTuple):
    """The parts of the language that depend on feature gates of Kubernetes."""

    list_attributes: bool = False  # DRAListTypeAttributes: an attribute may be a list
    new: bool = False  # the expression is written now, and may not use what is not on yet
    consumable: bool = True  # DRAConsumableCapacity: device.allowMultipleAllocations


class Selector(NamedTuple):
    """A compiled expression. `matches` evaluates it for a device; `error` says why it does not
    compile."""

    expression: str
    matches: Callable[["Device"], bool]
    error: str | None
    cost: int  # at worst, MOST where that is not known
    is_internal: bool = False  # the error is not about what is written


class Device:
    """The value of the variable `device`."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Any],
        capacity: Mapping[str, Quantity],
        allow_multiple_allocations: bool = False,
    ) -> None:
        """`attributes`: by qualified name, already converted by `attribute_value`."""
        self.driver = driver
        self.allow_multiple_allocations = allow_multiple_allocations
        self.attributes = _domains(driver, attributes)
        self.capacity = _domains(driver, capacity)

    def field(self, name: str) -> Any:
        """Returns the value of device.<name>."""
        match name:
            case "driver":
                return self.driver
            case "attributes":
                return self.attributes
            case "capacity":
                return self.capacity
            case "allowMultipleAllocations":
                return self.allow_multiple_allocations
        raise CelError(f"no such key: {name}")


def _domains(driver: str, entries: Mapping[str, Any]) -> Overlay:
    """Returns the attributes by domain, then by id; a name without a domain is in the driver's
    domain."""
    domains = Overlay()
    for name, value in entries.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    return domains


def attribute_value(attribute: DeviceAttribute, list_attributes: bool) -> Any:
    """Returns the value of an attribute as a CEL value. Raises CelError if it has no supported
    value."""
    if list_attributes:
        for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
            if values is not None:
                return list(values)
        if attribute.version_values is not None:
            return [_version(text) for text in attribute.version_values]
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise CelError("unsupported attribute value")


def _version(text: str) -> Any:
    try:
        return read_semver(text)
    except CelError as error:
        raise CelError(f"parse semantic version: {error}") from None


@lru_cache(maxsize=16)
def environment(gates: Gates) -> Environment:
    """Returns the names that an expression may use."""
    value = DYN if gates.list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, value)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if gates.consumable or not gates.new:
        fields["allowMultipleAllocations"] = BOOL
    without = frozenset(["includes"]) if gates.new and not gates.list_attributes else frozenset()
    return Environment({"device": DEVICE}, {DEVICE.name: fields}, without)


def size_of(path: Path) -> int | None:
    """Returns the largest size of the value at a path from `device`; None if it is not known."""
    match path:
        case ("device",):
            return 0
        case ("device", "driver"):
            return _DRIVER_MAX
        case ("device", "allowMultipleAllocations"):
            return 1
        case ("device", "attributes" | "capacity") | (
            "device",
            "attributes" | "capacity",
            "@values",
        ):
            return _ENTRIES_MAX
        case ("device", "attributes" | "capacity", "@keys"):
            return _DOMAIN_MAX
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return _ID_MAX
        case ("device", "attributes", "@values", part) if part not in ("@items", "@indices"):
            return _VALUE_MAX
        case ("device", "capacity", "@values", "@values"):
            return 0
    return None


@lru_cache(maxsize=4096)
def compile_selector(expression: str, gates: Gates = Gates()) -> Selector:  # noqa: B008
    """Returns the compiled selector; never raises. Results are cached by text."""
    begin_work()
    try:
        tree = Parser(expression, MACROS).parse()
        checked = Checker(environment(gates)).check(tree)
        check_literals(checked)
    except CompileError as error:
        return _invalid_selector(
            expression, f"compilation failed: {explain(expression, error.issues)}"
        )
    except CostExceededError:
        return _invalid_selector(expression, f"compilation failed: {COST_EXCEEDED}")
    result = checked.types[tree]
    if result not in (BOOL, ANY) and not (gates.list_attributes and result == DYN):
        return _invalid_selector(
            expression, f"must evaluate to bool or the unknown type, not {result.declared_name}"
        )
    try:
        cost = estimate(checked, size_of)
        run = build(checked, ("device",), COST_MAX if cost > COST_MAX else None)
    except Instantiation as error:
        said = f"program instantiation failed: {error}"
        return Selector(expression, _fail_match, said, MOST, is_internal=True)
    return Selector(expression, _matcher(run), None, cost)


def _invalid_selector(expression: str, message: str) -> Selector:
    return Selector(expression, _fail_match, message, MOST)


def _fail_match(device: Device) -> bool:
    raise AssertionError("a selector with an error is not evaluated")


def _matcher(run: Run) -> Callable[[Device], bool]:
    def matches(device: Device) -> bool:
        """Returns whether the device is selected. Raises CelError if the evaluation fails."""
        try:
            value = run([device])
        except CostExceededError:
            raise CelError(COST_EXCEEDED) from None
        if type(value) is bool:
            return value
        raise CelError(_NOT_BOOL.format(type_name(value), _not_bool_text(value)))

    return matches


_NOT_BOOL: Final = "CEL result of type {} could not be converted to bool: {}"


def _not_bool_text(value: Any) -> str:
    kind = type_name(value)
    match kind:
        case "int" | "uint":
            return f"unsupported type conversion from '{kind}' to bool"
        case "string":
            return "unsupported native conversion from string to 'bool'"
        case "double":
            return "type conversion error from Double to 'bool'"
        case "bytes":
            return "type conversion error from Bytes to 'bool'"
        case "null_type":
            return "type conversion error from 'null_type' to 'bool'"
        case "kubernetes.Semver" | "kubernetes.Quantity":
            return f"type conversion error from '{kind.partition('.')[2]}' to 'bool'"
    return f"type conversion error from {kind} to 'bool'"
