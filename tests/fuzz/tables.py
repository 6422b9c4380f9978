"""Sizes of what an engine keeps, counted: entries of containers and elements of arrays by where
they are, from the engine's attributes on. Nothing is timed or asked of the allocator, so that the
same history gives the same sizes."""

import types
from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np

ATOMS: Final = (
    str, bytes, int, float, bool, type(None), type, types.FunctionType, types.BuiltinFunctionType,
    types.ModuleType, msgspec.Struct, Enum, np.generic, np.dtype,
)  # fmt: skip


def table_sizes(engine: Any) -> Counter[str]:
    """By path, the number of entries of all containers there."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    todo: deque[tuple[str, Any]] = deque([("engine", engine)])  # breadth first: the shortest path
    while todo:
        path, value = todo.popleft()
        if isinstance(value, ATOMS) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            sizes[path] += value.size
        elif isinstance(value, dict | list | tuple | set | frozenset | deque):
            sizes[path] += len(value)
            inner = value.values() if isinstance(value, dict) else value
            todo += [(f"{path}[]", one) for one in inner]
            if isinstance(value, dict):
                todo += [(f"{path}{{}}", one) for one in value]
        else:
            todo += [(f"{path}.{name}", one) for name, one in _attributes(value)]
    return sizes


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield "self", value.__self__
        return
    for name in sorted(getattr(value, "__dict__", {})):
        yield name, value.__dict__[name]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
