"""Reads plugin arguments of a KubeSchedulerConfiguration strictly, and builds field errors.

A field error carries the path of its field, and kube-scheduler's text for it (apimachinery
field.Error). Must not know which plugins exist.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stower.model.errors import InvalidObject, closest, printable
from stower.model.names import qualified_name_faults
from stower.model.raw import UNKNOWN_FIELD, fault_of, without_nulls


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of argument structs. An unknown field is an error, as in kube-scheduler."""


class ResourceSpec(Args, frozen=True):
    """A resource and its weight in a score. Weight 0 stands for the default, 1."""

    name: str
    weight: int = 0


class AggregateError(InvalidObject):
    """Several field errors as one exception, with the text of upstream's aggregate."""

    def __init__(self, faults: Sequence[InvalidObject]) -> None:
        first = faults[0]
        super().__init__(first.path, first.got, first.want)
        self.faults = tuple(faults)
        self.args = (f"[{', '.join(map(str, faults))}]",)


def raise_faults(faults: Iterable[InvalidObject]) -> None:
    """Raises InvalidObject: a single fault as it is, several as an AggregateError. Returns where
    there are none."""
    found = [part for fault in faults for part in faults_of(fault)]
    if len(found) > 1:
        raise AggregateError(found)
    if found:
        raise found[0]


def faults_of(error: InvalidObject) -> tuple[InvalidObject, ...]:
    """Returns the errors of single fields that an exception consists of."""
    return error.faults if isinstance(error, AggregateError) else (error,)


class FieldFault(InvalidObject):
    """An error of one field, with the text that upstream gives it."""

    def __init__(self, path: str, got: object, text: str) -> None:
        super().__init__(path, got, text)
        self.args = (printable(f"{path}: {text}"),)


def invalid(path: str, value: object, detail: str) -> FieldFault:
    """Returns the fault of a value that is not allowed (field.Invalid)."""
    return FieldFault(path, value, f"Invalid value: {_format_value(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldFault:
    """Returns the fault of a field that has no value (field.Required)."""
    return FieldFault(path, None, f"Required value: {detail}" if detail else "Required value")


def duplicate(path: str, value: object) -> FieldFault:
    """Returns the fault of a value that must occur only once (field.Duplicate)."""
    return FieldFault(path, value, f"Duplicate value: {_format_value(value)}")


def unsupported(path: str, value: object, supported: Iterable[str]) -> FieldFault:
    """Returns the fault of a value outside a fixed set (field.NotSupported)."""
    known = ", ".join(f'"{name}"' for name in supported)
    text = f"Unsupported value: {_format_value(value)}: supported values: {known}"
    return FieldFault(path, value, text)


def forbidden(path: str, detail: str) -> FieldFault:
    """Returns the fault of a field that must not be set (field.Forbidden)."""
    return FieldFault(path, None, f"Forbidden: {detail}")


def label_name_faults(name: str, path: str) -> Iterator[FieldFault]:
    """Yields why a name is not valid as a label key or as a resource name (ValidateLabelName)."""
    for text in qualified_name_faults(name):
        yield invalid(path, name, text)


def _format_value(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "..."


def _fields_at(into: type[msgspec.Struct], path: str) -> list[str]:
    """Returns the names of the fields at a path as `.profiles[0].plugins`, as far as types say."""
    import re  # these are wanted by mistakes alone

    from msgspec import inspect

    found: inspect.Type = inspect.type_info(into)
    for part in [""] + re.findall(r"\.\w+|\[[^]]*\]", path):
        if part.startswith("."):
            fields = found.fields if isinstance(found, inspect.StructType) else ()
            named = (field.type for field in fields if field.encode_name == part[1:])
            found = next(named, inspect.AnyType())
        elif part and isinstance(found, inspect.VarTupleType | inspect.ListType):
            found = found.item_type
        if isinstance(found, inspect.UnionType):  # with null
            known = (one for one in found.types if not isinstance(one, inspect.NoneType))
            found = next(known, inspect.AnyType())
    fields = found.fields if isinstance(found, inspect.StructType) else ()
    return [field.encode_name for field in fields]


A = TypeVar("A", bound=msgspec.Struct)


def convert_args(args: Mapping[str, Any] | None, into: type[A], path: str) -> A:
    """Returns plugin arguments as a struct of type `into`, without apiVersion and kind. Raises
    InvalidObject; `path` is where the arguments lie."""
    fields = {k: v for k, v in (args or {}).items() if k not in ("apiVersion", "kind")}
    return convert(fields, into, path)


def convert(value: object, into: type[A], path: str) -> A:
    """Returns a decoded value as a struct of type `into`. A null reads as an absent field, as in
    kube-scheduler.

    Raises InvalidObject with the path of the wrong field; `path` is where the value lies.
    """
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError:
        try:
            return msgspec.convert(without_nulls(value), into)
        except msgspec.ValidationError as error:
            below, got, want = fault_of(error)
            if want == UNKNOWN_FIELD and (close := closest(got, _fields_at(into, below))):
                want = f"{want}: did you mean {close}?"
            raise InvalidObject((path + below).removeprefix(".") or "$", got, want) from None
