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
from stower.sim.tables import BOUNDED, table_sizes
from tests.fuzz.cluster import Cluster, Laws

# Columns are swept as others come: here none may. Those of placed pods are as long as there were
# pods at once, which are hundreds where placeholders fill a node.
PLACED: Final = tuple(
    f"engine.state.pod_table.{name}" for name in ("priorities", "rows", "shapes", "starts", "ties")
)
LARGER: Final = (*BOUNDED, *PLACED, "engine.state.columns")


def check_nothing_kept(engine: Any) -> None:
    """Raises Laws that names tables which are larger than those of an engine without objects."""
    empty = _empty_sizes()
    larger = {
        path: (size, empty[path])
        for path, size in table_sizes(engine).items()
        if size > empty[path] and not path.startswith(LARGER)
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
