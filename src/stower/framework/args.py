"""Arguments of plugins in a KubeSchedulerConfiguration: read strictly, with field paths."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from stower.model.errors import InvalidObject
from stower.model.raw import fault_of, without_nulls


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of argument structs. A misspelt field is an error, as in kube-scheduler."""


class ResourceSpec(Args, frozen=True):
    """A resource and how much it counts; weight 0 stands for the default, 1."""

    name: str
    weight: int = 0


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
