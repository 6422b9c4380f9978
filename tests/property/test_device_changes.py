"""What is known of devices, kept up to date change by change, is what one would find anew."""

from typing import Any

import pytest

from stower.devices.best_fit import best_fit
from stower.devices.fit_cache import FITS, INVALID_POOLS, NO_DEVICES, FitCache, Rules
from stower.devices.inventory import Inventory, Part
from stower.devices.requests import AllocationError
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import Node, ResourceClaim
from stower.plugins.device_use import DeviceUse
from stower.state.cluster import ClusterState
from tests.device_builders import request, resource_claim
from tests.property.device_changes import ChangingDevices, fresh

RULES = Rules(DeviceGates(), 10_000, best_fit)
TOLERATION = {"key": "ill", "operator": "Exists"}
CLAIMS = (
    resource_claim("one"),
    resource_claim("two", request(count=2)),
    resource_claim("part", request(class_name="any", memory="4Gi")),
    resource_claim("every", request(allocationMode="All", count=0)),
    resource_claim("both", request("a"), request("b", "any", tolerations=[TOLERATION])),
    resource_claim("four", request(class_name="any", count=4, tolerations=[TOLERATION])),
)
ERROR = -1


def asked(state: ClusterState, claim: ResourceClaim) -> dict[str, int] | int:
    """By node: whether it has devices, as the column says. ERROR where that has one."""
    fits = state.devices.extension(FitCache)
    try:
        column = fits.column([claim], state, RULES)
    except AllocationError:
        return ERROR
    return {state.node_names[row]: int(column.codes[row]) for row in state.present_rows()}


def searched(state: ClusterState, claim: ResourceClaim) -> dict[str, int]:
    """The same, each node by itself."""
    fits = state.devices.extension(FitCache)
    plans = fits.plans([claim], RULES)
    found = {}
    for row in state.present_rows():
        try:
            found[state.node_names[row]] = fits.code(plans, state, row, RULES)
        except AllocationError:
            found[state.node_names[row]] = ERROR
    return found


def reached(state: ClusterState) -> dict[str, Any]:
    """By node: the pools that it reaches, and their devices."""
    inventory = state.devices.extension(Inventory)
    inventory.refresh()
    return {
        state.node_names[row]: [
            (
                view.pool.key, view.pool.generation, view.is_incomplete, view.fault,
                [(record.name, record.taints) for record in view.records],
            )
            for gates in (True, False)
            for view in inventory.views(state.node_at(row), gates)
        ]
        for row in state.present_rows()
    }  # fmt: skip


def obvious(node: Node, state: ClusterState) -> list[Any]:
    """The pools that a node reaches, by asking each slice there is: the counters of all pools, and
    what is for the node."""
    inventory = Inventory(state.devices)
    inventory.refresh()
    parts: dict[tuple[str, str], list[Part]] = {}
    for published in inventory._published.values():
        for part in (part for pool in published.pools for part in pool.parts):
            if part.has_counters or part.reaches(node):
                parts.setdefault(published.newest.id, []).append(part)
    found = []
    for id, members in parts.items():
        pools = {pool.generation: pool for pool in inventory._published[id].pools}
        generation = max(part.slice.spec.pool.generation for part in members)
        members = [p for p in members if p.slice.spec.pool.generation == generation]
        pool = pools[generation]
        is_late = generation != max(pools) and len(members) != pool.count
        if not is_late and not (pool.is_sound and all(part.has_counters for part in members)):
            members.sort(key=lambda part: part.slice.metadata.name)
            known = pool.is_complete or len(members) == pool.count
            names = [record.name for part in members for record in part.records]
            found.append((pool.key, generation, names if known else []))
    return sorted(found)


def totals(state: ClusterState) -> dict[str, tuple[int, int]]:
    """By node: devices of the class, and those of them that are in use."""
    found = state.devices.extension(DeviceUse).column(state.column("example.com/gpu"), "gpu", state)
    return {
        state.node_names[row]: (int(found.allocatable_cells[row]), int(found.requested_cells[row]))
        for row in state.present_rows()
    }


def check(seed: int, changes: int) -> dict[int, int]:
    """One cluster, all its changes. Returns how often each code was seen."""
    world = ChangingDevices(seed)
    state = world.state
    seen: dict[int, int] = {}
    for number in range(changes):
        world.change()
        new = fresh(state)
        assert reached(new) == reached(state), (seed, number)
        assert totals(new) == totals(state), (seed, number)
        # Those that are not asked each time have more to catch up with.
        for claim in world.chance.sample(CLAIMS, 3):
            expected = searched(new, claim)
            actual = asked(state, claim)
            if actual == ERROR:
                assert ERROR in expected.values(), (seed, number, claim.metadata.name)
            else:
                # Where another node will do, what is wrong with one is not told.
                plain = {n: NO_DEVICES if c == ERROR else c for n, c in expected.items()}
                assert plain == actual, (seed, number, claim.metadata.name)
                assert FITS in actual.values() or ERROR not in expected.values()
            for code in expected.values():
                seen[code] = seen.get(code, 0) + 1
    return seen


def test_a_column_that_follows_changes_says_what_a_search_of_each_node_finds() -> None:
    seen: dict[int, int] = {}
    for seed in range(20):
        for code, count in check(seed, 40).items():
            seen[code] = seen.get(code, 0) + count
    assert {ERROR, FITS, NO_DEVICES, INVALID_POOLS} <= {c for c, n in seen.items() if n > 100}


@pytest.mark.more
def test_a_column_that_follows_changes_is_right_in_200_clusters() -> None:
    for seed in range(20, 220):
        check(seed, 80)


def test_a_node_reaches_what_each_slice_says() -> None:
    """The counters of a pool come with its devices, and by themselves where they are at fault."""
    for seed in range(20):
        world = ChangingDevices(seed)
        for _ in range(20):
            world.change()
            state = world.state
            inventory = state.devices.extension(Inventory)
            inventory.refresh()
            for row in state.present_rows():
                node = state.node_at(row)
                actual = sorted(
                    (view.pool.key, view.pool.generation, [r.name for r in view.records])
                    for view in inventory.views(node)
                )
                assert obvious(node, state) == actual, seed
