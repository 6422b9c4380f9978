"""What an engine keeps once there is nothing any more: caches and logs, each with a bound of its
own.

Everything else has the size that it has in an engine that never saw an object (tables.py counts).
"""

import functools
from collections import Counter
from typing import Any, Final

import msgspec

from stower.engine.limits import SECOND_NS
from stower.framework.events import Hold, Listed, Tick
from stower.model.kinds import ApiObject
from tests.fuzz.cluster import Cluster, Laws
from tests.fuzz.tables import table_sizes

# By where it is: why it may be larger, and the constant that bounds it.
BOUNDED: Final = {
    "engine.state.shapes.": "SHAPES_MAX, TEXTS_MAX",
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
    "engine.state._touched": "rows",
    "engine.state.columns": "swept as columns come",
    "engine.state.tallies": "TALLIES_MAX, TEXTS_MAX",
    "engine.state.carried_terms": "UNUSED_TERMS_MAX, CACHE_ENTRIES_MAX",
    "engine.state.labels.listeners": "tallies and terms",
    "engine.state.taints": "codes of taints of rows, free for others",
    "engine.state.declared_features": "codes of features of rows, free for others",
    "engine.state.non_zero_": "rows",
    "engine.state.devices.slice_log": "LENGTH_MAX",
    "engine.state.devices.pool_log": "LENGTH_MAX",
    "engine.state.devices._extensions": "COLUMNS_MAX of FitCache; Inventory",
    "engine.state.devices._class_by_resource": "the last classes",
    "engine.state.negotiations._extensions": "TREES_MAX of trees",
    "engine.state.budgets._namespaces": "the last step's",
    "engine.state.volumes._counts": "drivers of nodes",
    "engine._objects._pre_bind._deadlines": "dropped as they are due",
    "engine._pending._deadlines": "dropped as they are due",
    "engine.state.companions[].enforcer.figures": "COUNTERS_MAX",
    "engine.state.companions[].queue.backoff_entries": "kinds",
    "engine.state.companions[].keeping._refused_ns": "pools refused within a minute",
    "engine.state.companions[].told._refused_ns": "objects refused within a minute",
}  # fmt: skip


def check_nothing_kept(engine: Any) -> None:
    """Raises Laws that names tables which are larger than those of an engine without objects."""
    empty = _empty_sizes()
    larger = {
        path: (size, empty[path])
        for path, size in table_sizes(engine).items()
        if size > empty[path] and not path.startswith(tuple(BOUNDED))
    }
    if larger:
        raise Laws(f"tables that are larger than at the start: {larger}")


@functools.cache
def _empty_sizes() -> Counter[str]:
    """Returns the sizes of an engine that never saw an object."""
    fresh = Cluster()
    fresh.step(Listed(()))
    return table_sizes(fresh.engine)


def check_like_new(cluster: Cluster, objects: tuple[ApiObject, ...]) -> None:
    """Raises Laws where the cluster's engine, shown these objects, decides otherwise than an engine
    that was built anew. Both have been shown an empty list before."""
    fresh = Cluster()
    fresh.now_ns = cluster.now_ns
    fresh.step(Listed(()))
    said = []
    for one in (cluster, fresh):
        # An engine that begins to decide moves no placeholders for a minute: both begin here.
        one.step(Hold(True))
        writes = one.step(Listed(objects)) + one.step(Hold(False))
        one.now_ns += SECOND_NS
        writes += one.step(Tick())
        # VMs that a list shows are looked at in another order by an engine that starts with it.
        said.append(sorted((msgspec.structs.replace(write, id=0) for write in writes), key=repr))
    if said[0] != said[1]:
        ours = [write for write in said[0] if write not in said[1]]
        theirs = [write for write in said[1] if write not in said[0]]
        raise Laws(f"decides otherwise than a new engine: {ours}, want {theirs}")
