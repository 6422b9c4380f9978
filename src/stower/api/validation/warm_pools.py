"""Validates WarmPools beyond their schema."""

from collections.abc import Iterator

import msgspec

from stower.api.errors import FieldError
from stower.api.validation.rules import Object, invalid
from stower.model.kinds.warm_pool import WarmPoolSpec, pool_faults


def warm_pool(item: Object) -> Iterator[FieldError]:
    """What the scheduler could not use. What its schema refuses is left to that."""
    try:
        spec = msgspec.convert(item.get("spec") or {}, WarmPoolSpec)
    except msgspec.ValidationError:
        return
    name = (item.get("metadata") or {}).get("name") or ""
    for path, value, text in pool_faults(spec, name):
        at = path if path.startswith("metadata.") else f"spec.{path}"
        yield invalid(at, value, text)


def warm_pool_update(new: Object, old: Object) -> Iterator[FieldError]:
    """As a new one."""
    yield from warm_pool(new)
