"""Validates the defaults in the schemas of CustomResourceDefinitions: each is a value that its
schema allows, without fields that would be pruned.

Source: apiextensions-apiserver pkg/apiserver/schema/defaulting/validation.go, Kubernetes 1.36.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from stower.api.custom_rules import Checker, Ratchet, rules_of
from stower.api.custom_schema import EMBEDDED, TOP, unknown
from stower.api.custom_values import value_faults
from stower.api.embedded_resources import BadResourceError, clean_resources, resource_faults
from stower.api.errors import INVALID, FieldError
from stower.api.schema import Type
from stower.api.validation.structural_schemas import FAULTS_MAX, parts

Object = dict[str, Any]
Surround = Callable[[Any], Object]
_HEAD: Final = {"kind": "Validation", "apiVersion": "validation/v1"}
_METADATA: Final = "must result in valid metadata: "


def _as_resource(value: Any) -> Object:
    return {**_HEAD, **value}


def default_faults(schema: Object, path: str, meta: Type, allows_unknown: bool) -> list[FieldError]:
    """Returns what is wrong with the defaults in the schema of a resource, its rules aside.

    `meta`: the type of metadata; `allows_unknown`: whether defaults may have unknown fields, as
    those of an earlier version of the definition have.
    """
    root = {**schema, EMBEDDED: True}
    every = _Defaults(meta, allows_unknown).visit(root, path, root, _as_resource, False)
    return list(islice(every, FAULTS_MAX))


class _Defaults:
    """Walks over a schema."""

    def __init__(self, meta: Type, allows_unknown: bool) -> None:
        self.meta = meta
        self.allows_unknown = allows_unknown

    def visit(
        self, schema: Object, path: str, resource: Object, surround: Surround, in_metadata: bool
    ) -> Iterator[FieldError]:
        """`resource`: the schema of the resource around it; `surround`: makes that resource of a
        value of the schema; `in_metadata`: whether in its metadata, kind or apiVersion."""
        if schema.get(EMBEDDED):
            resource, surround, in_metadata = schema, _as_resource, False
        value = schema.get("default")
        if value is not None:
            at = f"{path}.default"
            found = None
            if in_metadata:
                found = self._metadata_fault(value, at, resource, surround)
            else:
                if not self.allows_unknown and any(unknown(schema, value, "default")):
                    yield FieldError(INVALID, at, value, "must not have unknown fields")
                found = self._resource_faults(schema, value, at)
            yield from found or _value_faults(schema, value, at)
        for name, inner in parts(schema):
            if name == ".items":
                yield from self.visit(inner, path + name, resource, _in_list(surround), in_metadata)
            elif name != ".additionalProperties":  # where upstream does not look
                field = name.removeprefix(".properties[")[:-1]
                within = in_metadata or bool(schema.get(EMBEDDED) and field in TOP)
                yield from self.visit(
                    inner, path + name, resource, _in_field(surround, field), within
                )

    def _resource_faults(self, schema: Object, value: Any, at: str) -> list[FieldError]:
        """Returns what is wrong with the resources in a default."""
        try:
            clean_resources(schema, copied := copy.deepcopy(value), at, self.meta)
        except BadResourceError as error:
            return [error.fault]
        return list(resource_faults(schema, copied, at))

    def _metadata_fault(
        self, value: Any, at: str, resource: Object, surround: Surround
    ) -> list[FieldError]:
        """Returns what is wrong with the metadata of a resource that has the default."""
        whole = surround(copy.deepcopy(value))
        try:
            clean_resources(resource, whole, "", self.meta)
        except BadResourceError as error:
            return [FieldError(INVALID, at, value, f"{_METADATA}{error}")]
        texts = [
            f"{fault.field}: {fault.message}" for fault in resource_faults(resource, whole, "")
        ]
        if not texts:
            return []
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return [FieldError(INVALID, at, value, f"{_METADATA}{text}")]


def _in_list(surround: Surround) -> Surround:
    return lambda value: surround([value])


def _in_field(surround: Surround, name: str) -> Surround:
    return lambda value: surround({name: value})


def _value_faults(schema: Object, value: Any, at: str) -> Iterator[FieldError]:
    for fault in value_faults(schema, value, ""):
        field = at if fault.field == "<nil>" else f"{at}.{fault.field}"
        yield fault._replace(field=field)


def has_unknown_fields(schema: Object) -> bool:
    """Whether some default in a schema has unknown fields."""
    value = schema.get("default")
    if value is not None and any(unknown(schema, value, "default")):
        return True
    return any(has_unknown_fields(inner) for _, inner in parts(schema))


def default_rule_faults(schema: Object, path: str) -> list[FieldError]:
    """Returns what the rules in the schema of a resource have against its defaults, as values that
    are new and as such that were there before."""
    checker = Checker()
    waiting = [(schema, path, True)]
    while waiting:
        at, where, is_root = waiting.pop()
        value = at.get("default")
        part = rules_of(at, is_root or bool(at.get(EMBEDDED))) if value is not None else None
        if part is not None:
            count = len(checker.found)
            for old in (value, None):
                if len(checker.found) == count:
                    checker.check(part, f"{where}.default", value, old, Ratchet())
        for name, inner in parts(at):
            if name != ".additionalProperties":
                waiting.append((inner, where + name, False))
    return checker.found
