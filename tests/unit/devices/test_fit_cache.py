"""Fits: what is searched for a column, and what is remembered."""

from typing import Any

import msgspec
import pytest

from stower.devices import fit_cache
from stower.devices.fit_cache import FITS, NO_DEVICES, FitCache, Rules
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import ResourceClaim, ResourceSlice
from stower.state.cluster import ClusterState
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
    taint_rule,
)

RULES = Rules(DeviceGates(), 10_000, None)
NODES = tuple(f"n{i}" for i in range(10))


class Searches(FitCache):
    """Remembers which nodes were searched."""

    def allocate(self, plans: Any, state: ClusterState, row: int, rules: Rules) -> Any:
        """The same."""
        self.searched.append(state.node_names[row])
        return super().allocate(plans, state, row, rules)

    def asked(self, claim: ResourceClaim, state: ClusterState) -> tuple[dict[str, int], list[str]]:
        """Codes by node, and which nodes were searched for them."""
        self.searched: list[str] = []
        codes = self.column([claim], state, RULES).codes
        return {
            state.node_names[row]: int(codes[row]) for row in state.present_rows()
        }, self.searched


def cluster(*slices: Any) -> ClusterState:
    """Ten nodes of two shared devices each, and more slices."""
    state = ClusterState()
    state.devices.put(device_class())
    for name in NODES:
        state.set_node(make_node(name))
        devices = [device(f"{name}-{i}", "40Gi", shared=True) for i in range(2)]
        state.devices.put(device_slice(name, *devices))
    for slice_ in slices:
        state.devices.put(slice_)
    return state


def held(name: str, node: str, memory: str, device_name: str = "") -> ResourceClaim:
    """A claim that has a part of a node's first device."""
    result = {
        "request": "r", "driver": GPU, "pool": node, "device": device_name or f"{node}-0",
        "shareID": name, "consumedCapacity": {"memory": memory},
    }  # fmt: skip
    return resource_claim(name, status={"allocation": {"devices": {"results": [result]}}})


def wants(memory: str) -> ResourceClaim:
    """A claim for so much of a device."""
    return resource_claim(f"wants-{memory}", request(memory=memory))


def test_of_nodes_that_are_alike_one_is_searched() -> None:
    """Whatever their pools and devices are called."""
    state = cluster()
    state.devices.put(held("a", "n3", "30Gi"))
    state.devices.put(held("b", "n7", "30Gi"))
    codes, searched = Searches(state.devices).asked(wants("20Gi"), state)
    assert dict.fromkeys(NODES, FITS) == codes
    assert ["n0", "n3"] == searched


def test_nodes_that_share_a_pool_beside_their_own_are_alike() -> None:
    state = cluster(device_slice("", device("nic", "10Gi", shared=True), pool="network"))
    fits = Searches(state.devices)
    codes, searched = fits.asked(wants("50Gi"), state)
    assert (dict.fromkeys(NODES, NO_DEVICES), ["n0"]) == (codes, searched)
    state.devices.put(held("a", "network", "5Gi", "nic"))
    codes, searched = fits.asked(wants("50Gi"), state)
    assert (dict.fromkeys(NODES, NO_DEVICES), ["n0"]) == (codes, searched)


def test_a_node_that_becomes_like_another_is_not_searched() -> None:
    """Filling one node after the other, each as the first was filled."""
    state = cluster()
    fits = Searches(state.devices)
    fits.asked(wants("20Gi"), state)
    for number, (node, expected) in enumerate([("n1", ["n1"]), ("n2", []), ("n3", [])]):
        state.devices.put(held(f"h{number}", node, "30Gi"))
        assert expected == fits.asked(wants("20Gi"), state)[1]


def test_what_others_draw_from_the_counters_of_a_pool_is_looked_at() -> None:
    """Each of two nodes reaches one device of a pool whose counters are enough for one of them."""
    state = ClusterState()
    state.devices.put(device_class())
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 3}
    units = {"units": {"value": "1"}}
    takes = {"consumesCounters": [{"counterSet": "set", "counters": units}]}
    for name in ("n0", "n1"):
        state.set_node(make_node(name))
        put_part(state, name, devices=[device(f"d-{name}", **takes)], pool=pool, nodeName=name)
    counters = [{"name": "set", "counters": units}]
    put_part(state, "counters", sharedCounters=counters, pool=pool, allNodes=True)
    fits = Searches(state.devices)
    assert {"n0": FITS, "n1": FITS} == fits.asked(resource_claim(), state)[0]
    result = {"request": "r", "driver": GPU, "pool": "p", "device": "d-n0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    state.devices.put(resource_claim("other", status=status))
    assert {"n0": NO_DEVICES, "n1": NO_DEVICES} == fits.asked(resource_claim(), state)[0]


def test_what_others_have_drawn_tells_nodes_apart_whose_own_devices_are_free() -> None:
    state = ClusterState()
    state.devices.put(device_class())
    for name, others in (("n0", "n1"), ("n2", "n3")):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 3}
        counters = [{"name": "set", "counters": {"units": {"value": "2"}}}]
        put_part(state, f"c-{name}", sharedCounters=counters, pool=pool, allNodes=True)
        for of, units in ((name, "1"), (others, "2" if name == "n0" else "1")):
            state.set_node(make_node(of))
            takes = [{"counterSet": "set", "counters": {"units": {"value": units}}}]
            own = [device(of, consumesCounters=takes)]
            put_part(state, of, devices=own, pool=pool, nodeName=of)
        result = {"request": "r", "driver": GPU, "pool": name, "device": others}
        status = {"allocation": {"devices": {"results": [result]}}}
        state.devices.put(resource_claim(f"of-{others}", status=status))
    codes = Searches(state.devices).asked(resource_claim(), state)[0]
    assert {"n0": NO_DEVICES, "n1": NO_DEVICES, "n2": FITS, "n3": NO_DEVICES} == codes


def test_counters_and_taints_tell_nodes_apart() -> None:
    """Each of three nodes has a device for all its counters; one has fewer, one is tainted."""
    state = ClusterState()
    state.devices.put(device_class())
    for name, units in (("n0", "2"), ("n1", "1"), ("n2", "2")):
        state.set_node(make_node(name))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        counters = [{"name": "set", "counters": {"units": {"value": units}}}]
        put_part(state, f"c-{name}", sharedCounters=counters, pool=pool, nodeName=name)
        takes = [{"counterSet": "set", "counters": {"units": {"value": "2"}}}]
        own = [device("d", consumesCounters=takes)]
        put_part(state, name, devices=own, pool=pool, nodeName=name)
    state.devices.put(taint_rule("ill", "NoSchedule", pool="n2"))
    codes, searched = Searches(state.devices).asked(resource_claim(), state)
    assert {"n0": FITS, "n1": NO_DEVICES, "n2": NO_DEVICES} == codes
    assert ["n0", "n1", "n2"] == searched


def put_part(state: ClusterState, name: str, **spec: Any) -> None:
    """A slice of a pool."""
    data = {"metadata": {"name": name}, "spec": {"driver": GPU, **spec}}
    state.devices.put(msgspec.convert(data, ResourceSlice))


def test_the_least_recently_used_column_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_cache, "COLUMNS_MAX", 3)
    monkeypatch.setattr(fit_cache, "PLANS_MAX", 3)
    state = cluster()
    fits = Searches(state.devices)
    for memory in ("1Gi", "2Gi", "3Gi", "1Gi", "4Gi"):
        fits.asked(wants(memory), state)
    searched = {memory: fits.asked(wants(memory), state)[1] for memory in ("1Gi", "3Gi", "4Gi")}
    assert {"1Gi": [], "3Gi": [], "4Gi": []} == searched
    assert ["n0"] == fits.asked(wants("2Gi"), state)[1]
