"""Defines Hooks: the functions that prepare and validate the objects of one kind on a write.

Contains the type only; api/kinds.py holds the hooks of each built-in kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stower.api.calls import Call
from stower.api.errors import FieldError

Object = dict[str, Any]
Prepare = Callable[[Call, Object], None]
Change = Callable[[Call, Object, Object], None]


@dataclass(frozen=True)
class Hooks:
    """What a kind does on a write besides what every kind does.

    Functions of an update receive the call, the new object and the old object.
    """

    prepare_create: Prepare | None = None
    prepare_update: Change | None = None
    prepare_status: Change | None = None
    validate_create: Callable[[Call, Object], list[FieldError]] | None = None
    validate_update: Callable[[Call, Object, Object], list[FieldError]] | None = None
    validate_status: Callable[[Call, Object, Object], list[FieldError]] | None = None
    warnings: Callable[[Call, Object], list[str]] | None = None
    # Of a change, where these are not those of the new object by itself.
    change_warnings: Callable[[Call, Object, Object], list[str]] | None = None
    counted: Callable[[Object], Any] | None = None  # the part whose changes a generation counts
    after: Callable[[Call, Object | None], None] | None = None  # once stored; None: once removed
