"""Arguments of plugins in a KubeSchedulerConfiguration: read strictly, with field paths.

Faults are said as kube-scheduler says them (apimachinery field.Error).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stower.model.errors import InvalidObject, printable
from stower.model.names import qualified_name_faults
from stower.model.raw import fault_of, without_nulls


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of argument structs. A misspelt field is an error, as in kube-scheduler."""


class ResourceSpec(Args, frozen=True):
    """A resource and how much it counts; weight 0 stands for the default, 1."""

    name: str
    weight: int = 0


class AggregateError(InvalidObject):
    """Several at once, as upstream puts them together."""

    def __init__(self, faults: Sequence[InvalidObject]) -> None:
        first = faults[0]
        super().__init__(first.path, first.got, first.want)
        self.faults = tuple(faults)
        self.args = (f"[{', '.join(map(str, faults))}]",)


def raise_faults(faults: Iterable[InvalidObject]) -> None:
    """Raise InvalidObject for all of them, if there are any."""
    found = [one for fault in faults for one in faults_of(fault)]
    if len(found) > 1:
        raise AggregateError(found)
    if found:
        raise found[0]


def faults_of(error: InvalidObject) -> tuple[InvalidObject, ...]:
    """Them one by one."""
    return error.faults if isinstance(error, AggregateError) else (error,)


class FieldFault(InvalidObject):
    """A field at fault, in upstream's words."""

    def __init__(self, path: str, got: object, text: str) -> None:
        super().__init__(path, got, text)
        self.args = (printable(f"{path}: {text}"),)


def invalid(path: str, value: object, detail: str) -> FieldFault:
    """A value that will not do."""
    return FieldFault(path, value, f"Invalid value: {_format_value(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldFault:
    """A value that is missing."""
    return FieldFault(path, None, f"Required value: {detail}" if detail else "Required value")


def duplicate(path: str, value: object) -> FieldFault:
    """A value that is there already."""
    return FieldFault(path, value, f"Duplicate value: {_format_value(value)}")


def unsupported(path: str, value: object, supported: Iterable[str]) -> FieldFault:
    """A value that is none of some."""
    known = ", ".join(f'"{name}"' for name in supported)
    text = f"Unsupported value: {_format_value(value)}: supported values: {known}"
    return FieldFault(path, value, text)


def forbidden(path: str, detail: str) -> FieldFault:
    """A field that must not be set."""
    return FieldFault(path, None, f"Forbidden: {detail}")


def label_name_faults(name: str, path: str) -> Iterator[FieldFault]:
    """What keeps it from being the key of a label, or a resource's name (ValidateLabelName)."""
    for text in qualified_name_faults(name):
        yield invalid(path, name, text)


def _format_value(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "..."


A = TypeVar("A", bound=msgspec.Struct)


def convert_args(args: Mapping[str, Any] | None, into: type[A], path: str) -> A:
    """The arguments as their struct, apiVersion and kind left out. Raises InvalidObject."""
    fields = {k: v for k, v in (args or {}).items() if k not in ("apiVersion", "kind")}
    return convert(fields, into, path)


def convert(value: object, into: type[A], path: str) -> A:
    """A decoded value as a struct. Raises InvalidObject with the path of the field at fault.

    A null reads as an absent field, as kube-scheduler reads it.
    """
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError:
        try:
            return msgspec.convert(without_nulls(value), into)
        except msgspec.ValidationError as error:
            below, got, want = fault_of(error)
            raise InvalidObject((path + below).removeprefix(".") or "$", got, want) from None
