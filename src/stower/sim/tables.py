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

# Caches and logs, by the beginning of the path: the constant that bounds each, or what it counts.
BOUNDED: Final = {
    "engine.state.shapes.": "SHAPES_MAX, TEXTS_MAX",
    "engine.stopwatch": "TIMINGS_MAX; the clock of a simulation",
    "engine.profiles[]._by_shape": "SHAPES_MAX of profiles",
    "engine.profiles[].filters[]._rejection_codes": "REJECTIONS_MAX",
    "engine.state.added_pods": "ADDED_PODS_MAX",
    "engine._pods.deleted_uids": "gone_pods_max",
    "engine.queue.incoming": "counts by place and kind of event",
    "engine.queue._groups._changes": "sets of plugins",
    "engine.cycle._evaluations": "ENTRIES_MAX of evaluations",
    "engine.cycle._failures": "ENTRIES_MAX of evaluations",
    "engine.cycle._last": "rows",
    "engine.cycle._verdicts": "KEPT_MAX of verdicts",
    "engine.cycle._evaluator": "KEPT_MAX of the evaluator",
    "engine.cycle._nominated_room": "ENTRIES_MAX of nominated room",
    "engine._nodes.groups._by_root[].outlasts": "the last search of each tree",
    "engine.state._touched": "rows",
    "engine.state.columns[]": "rows",
    "engine.state.pods[].rank": "one of four numbers for each pod",
    "engine.state.pod_table.entries": "as many as there were pods at once",
    "engine.state.pod_table._free_slots": "as many as there were pods at once",
    "engine.state._idle_columns": "SHAPES_MAX: columns that only shapes have",
    "engine.state.placement_listeners[]._notes": "NOTES_MAX of notes",
    "engine.state.tallies": "TALLIES_MAX, TEXTS_MAX",
    "engine.state.carried_terms": "UNUSED_TERMS_MAX, CACHE_ENTRIES_MAX",
    "engine.state.labels.listeners": "tallies and terms",
    "engine.state.taints": "codes of taints of rows, free for others",
    "engine.state.declared_features": "codes of features of rows, free for others",
    "engine.state.non_zero_": "rows",
    "engine.state.devices.slice_log": "LENGTH_MAX",
    "engine.state.devices._usage.log": "LENGTH_MAX",
    "engine.state.devices._extensions": "COLUMNS_MAX of FitCache; Inventory",
    "engine.state.devices._class_by_resource": "the last classes",
    "engine.state.negotiations._extensions": "TREES_MAX of trees",
    "engine.state.budgets._namespaces": "the last step's",
    "engine.state.volumes._counts": "drivers of nodes",
    "engine._objects._pre_bind._deadlines": "dropped as they are due",
    "engine._pending._deadlines": "dropped as they are due",
    "engine.state.companions[].enforcer.figures": "COUNTERS_MAX",
    "engine.state.companions[]._nodes[]._order": "rows",
    "engine.state.companions[].pools[].draining": "nodes",
    "engine.state.companions[].queue.backoff_entries": "kinds",
    "engine.state.companions[].figures._pulls_ns": "PULLS_MAX",
    "engine.state.companions[].keeping._refused_ns": "pools refused within a minute",
    "engine.state.companions[].told._refused_ns": "objects refused within a minute",
}  # fmt: skip
# Inside those, what is bounded by nothing: sums by topology key, of tallies and terms.
UNBOUNDED: Final = (".sums",)


def table_sizes(engine: Any, with_arrays: bool = True) -> Counter[str]:
    """By path, the number of entries of all containers there. A tuple that is an entry is one."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    todo: deque[tuple[str, Any]] = deque([("engine", engine)])  # breadth first: the shortest path
    while todo:
        path, value = todo.popleft()
        if isinstance(value, ATOMS) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            sizes[path] += value.size if with_arrays else 0
        elif isinstance(value, dict | list | tuple | set | frozenset | deque):
            if not (isinstance(value, tuple) and path.endswith(("[]", "{}"))):
                sizes[path] += len(value)
            inner = value.values() if isinstance(value, dict) else value
            todo += [(f"{path}[]", one) for one in inner]
            if isinstance(value, dict):
                todo += [(f"{path}{{}}", one) for one in value]
        else:
            todo += [(f"{path}.{name}", one) for name, one in _attributes(value)]
    return sizes


def text_bytes(engine: Any) -> int:
    """Returns the length of all texts that are kept, each counted once, also inside objects."""
    total, seen, todo = 0, set[int](), [engine]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, str | bytes):
            total += len(value)
        elif isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, list | tuple | set | frozenset | deque):
            todo += value
        elif isinstance(value, msgspec.Struct):
            todo += [getattr(value, name) for name in value.__struct_fields__]
        elif not isinstance(value, (*ATOMS, np.ndarray)):
            todo += [one for _, one in _attributes(value)]
    return total


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
