"""Rules for WarmPools, beyond their schema."""

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
    for path, value, text in pool_faults(spec):
        yield invalid(f"spec.{path}", value, text)


def warm_pool_update(new: Object, old: Object) -> Iterator[FieldError]:
    """As a new one."""
    yield from warm_pool(new)
