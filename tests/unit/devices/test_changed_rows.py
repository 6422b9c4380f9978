"""ChangedRows: which rows a change of slices, nodes or claims is about."""

from typing import Any

import msgspec

from stower.devices.changed_rows import ChangedRows
from stower.model.kinds import ResourceSlice
from stower.state.change_log import LENGTH_MAX, ChangeLog
from stower.state.cluster import ClusterState
from tests.builders import make_node
from tests.device_builders import GPU, resource_claim


def cluster() -> tuple[ClusterState, ChangedRows]:
    """Four nodes: two with a pool of their own, two that share one; and who has seen all that."""
    state = ClusterState()
    for name in ("n0", "n1", "n2", "n3"):
        state.set_node(make_node(name))
    put(state, "a", "a", nodeName="n0")
    put(state, "b", "b", nodeName="n1")
    put(state, "c2", "c", nodeName="n2")
    put(state, "c3", "c", nodeName="n3")
    changed = ChangedRows(state.devices)
    assert changed.take_rows(state) is None
    return state, changed


def put(state: ClusterState, name: str, in_pool: str, size: int = 1, **spec: Any) -> ResourceSlice:
    """A slice of a pool."""
    own = {"name": in_pool, "generation": 1, "resourceSliceCount": size}
    devices = [] if "sharedCounters" in spec else [{"name": name}]
    full = {"driver": GPU, "pool": own, "devices": devices, **spec}
    found = msgspec.convert({"metadata": {"name": name}, "spec": full}, ResourceSlice)
    state.devices.put(found)
    return found


def names(state: ClusterState, changed: ChangedRows) -> list[str] | None:
    """Of the rows to look at."""
    rows = changed.take_rows(state)
    return None if rows is None else sorted(state.node_names[row] for row in rows)


def test_a_slice_is_about_the_nodes_that_reach_its_pool() -> None:
    state, changed = cluster()
    put(state, "a", "a", nodeName="n0")
    assert ["n0"] == names(state, changed)
    put(state, "c2", "c", nodeName="n2")
    assert ["n2", "n3"] == names(state, changed)
    assert [] == names(state, changed)


def test_a_slice_that_moves_is_about_those_who_had_it_and_those_who_have_it() -> None:
    state, changed = cluster()
    moved = put(state, "a", "a", nodeName="n1")
    assert ["n0", "n1"] == names(state, changed)
    moved = put(state, "a", "b", nodeName="n2")
    assert ["n1", "n2"] == names(state, changed)
    state.devices.drop(moved)
    assert ["n1", "n2"] == names(state, changed)


def test_a_slice_for_all_nodes_is_about_all_rows() -> None:
    state, changed = cluster()
    wide = put(state, "w", "w", allNodes=True)
    assert names(state, changed) is None
    state.devices.drop(wide)
    assert names(state, changed) is None


def test_counters_are_about_the_nodes_of_their_pool_unless_it_is_at_fault() -> None:
    state, changed = cluster()
    counters = [{"name": "set", "counters": {"units": {"value": "1"}}}]
    put(state, "a", "a", 2, nodeName="n0")
    put(state, "a-counters", "a", 2, nodeName="n0", sharedCounters=counters)
    assert ["n0"] == names(state, changed)
    put(state, "a-counters", "a", 2, nodeName="n0", sharedCounters=counters * 2)
    assert names(state, changed) is None
    put(state, "a-counters", "a", 2, nodeName="n0", sharedCounters=counters)
    assert names(state, changed) is None


def test_what_a_claim_takes_of_an_older_generation_is_about_its_nodes() -> None:
    """While a newer one arrives elsewhere, they still have that."""
    state, changed = cluster()
    newer = {"name": "a", "generation": 2, "resourceSliceCount": 1}
    put(state, "a1", "a", nodeName="n1", pool=newer)
    assert ["n0", "n1"] == names(state, changed)
    result = {"request": "r", "driver": GPU, "pool": "a", "device": "a"}
    status = {"allocation": {"devices": {"results": [result]}}}
    state.devices.put(resource_claim(status=status))
    assert ["n0", "n1"] == names(state, changed)


def test_a_change_that_is_only_tried_is_about_the_same_rows_twice() -> None:
    state, changed = cluster()
    with state.trial():
        put(state, "a", "a", nodeName="n1")
        assert ["n0", "n1"] == names(state, changed)
    assert ["n0", "n1"] == names(state, changed)


def test_who_is_too_far_behind_looks_at_all() -> None:
    log: ChangeLog[int] = ChangeLog()
    log.add(-1)
    for number in range(LENGTH_MAX):
        log.add(number)
    assert log.entries_since(0) is None
    assert [LENGTH_MAX - 1] == log.entries_since(log.position - 1)
    assert LENGTH_MAX + 1 == log.position
