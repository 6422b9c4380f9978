"""Claims that are in other hands, are of no use, or take too long: through the engine's entry."""

from typing import Any

import pytest

from stower.assembly import build_engine
from stower.framework.configuration import API_VERSION, KIND
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.writes import DeleteObject, DeletePod, PatchObject, PatchPodStatus
from stower.model.kinds.resource_claim import EXTENDED_RESOURCE_CLAIM, FINALIZER
from tests.builders import make_node, make_pod
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.device_search import in_slot
from tests.unit.engine.test_devices import cluster, given
from tests.unit.engine.test_extended_resource_claims import asking
from tests.unit.engine.test_extended_resource_claims import cluster as extended_cluster


def allocated(device: str, node: str, **fields: Any) -> Any:
    """The status of a claim that has a device of a node, and that nobody uses."""
    only = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": GPU, "pool": node, "device": device, **fields}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            "allocationTimestamp": "1970-01-01T00:00:00Z",
        }
    }


def evicted(api: Agreeing) -> list[str]:
    """Pods that have to go."""
    return [write.name for write in api.writes if isinstance(write, DeletePod)]


def test_an_allocation_that_is_good_for_a_full_node_alone_is_given_back() -> None:
    slices = [device_slice(node, device("gpu-0")) for node in ("n1", "n2")]
    full = make_pod("full", node="n1", cpu="4")
    claim = resource_claim("c1", status=allocated("gpu-0", "n1"))
    api = cluster(*slices, full, claim, claiming("p1", "c1"))
    assert "1 Insufficient cpu, 1 resourceclaim not available on the node" in api.messages["p1"]
    api.wait(30)
    assert ({"p1": "n2"}, ["n2/gpu-0"]) == (api.bound, given(api.get(claim)))


def test_nodes_on_which_the_search_gave_up_may_be_helped_by_evictions() -> None:
    """The device of `low` would have been the first to be tried."""
    args = {"deviceOrder": "FirstFit", "filterTimeout": "10us"}  # one step
    profile = {"pluginConfig": [{"name": "DynamicResources", "args": args}]}
    engine = build_engine({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]})
    slots = {"a": 1, "b": 2, "c": 2}
    pool = [device(name, attributes={"slot": {"int": slot}}) for name, slot in slots.items()]
    claims = [resource_claim(f"c{i}", request(**in_slot(1))) for i in range(2)]
    api = Agreeing(engine, make_node("n1"), device_class(), device_slice("n1", *pool), *claims)
    api.put(claiming("low", "c0", priority=1))
    assert {"low": "n1"} == api.bound
    api.put(claiming("same", "c1", priority=1))
    assert "1 gave up allocating devices: search budget exhausted" in api.messages["same"]
    api.remove(api.objects["uid-of-default-same"])
    api.put(claiming("high", "c1", priority=9))
    assert ["low"] == evicted(api)


@pytest.mark.parametrize("has_stale", [True, False])
def test_nobody_is_evicted_for_a_pod_whose_old_claim_has_to_go_first(has_stale: bool) -> None:
    high = asking("high", cpu="3", priority=9)
    meta = {"annotations": {EXTENDED_RESOURCE_CLAIM: "true"}, "finalizers": [FINALIZER]}
    stale = resource_claim("high-extended-resources-old", owner=high, meta=meta)
    low = make_pod("low", node="n1", cpu="3", priority=1)
    api = extended_cluster(
        device_slice("n1", device("a")), low, *([stale] if has_stale else ()),
        nodes=(make_node("n1"),),
    )  # fmt: skip
    api.refuses = lambda write: 400 if isinstance(write, DeleteObject) else 0
    api.put(high)
    assert ([] if has_stale else ["low"]) == evicted(api)


def test_a_claim_that_is_being_allocated_is_not_allocated_for_another_pod_too() -> None:
    engine = build_engine()
    two = device_slice("n1", device("gpu-0"), device("gpu-1"))
    claim = resource_claim("c1")
    objects = make_node("n1"), device_class(), two, claim, claiming("p1", "c1")
    first = engine.step(Listed(objects), 0)
    assert ["c1"] == [write.name for write in first if isinstance(write, PatchObject)]
    second = engine.step(Observed(WatchType.ADDED, claiming("p2", "c1")), 1)
    assert [] == [write.name for write in second if isinstance(write, PatchObject)]
    (told,) = [w.condition for w in second if isinstance(w, PatchPodStatus) and w.condition]
    said = "resource claim default/c1 is in the process of being allocated"
    assert told.message.startswith(f"0/1 nodes are available: {said}.")


@pytest.mark.behaviour("S2.36")
@pytest.mark.parametrize("is_late", [True, False])
def test_a_claim_whose_device_was_not_bound_in_time_is_of_no_use(is_late: bool) -> None:
    """It has 600 s from its allocation, whoever waits for it."""
    engine = build_engine()
    needs: Any = {"bindingConditions": ["a.b/ready"], "bindingFailureConditions": ["a.b/failed"]}
    claim = resource_claim("c1", status=allocated("gpu-0", "n1", **needs))
    api = Agreeing(engine)
    api.now_ns = (601 if is_late else 599) * 10**9
    for obj in (make_node("n1"), device_class(), device_slice("n1", device("gpu-0", **needs)),
                claim, claiming("p1", "c1")):  # fmt: skip
        api.put(obj)
    said = "0/1 nodes are available: 1 resourceclaim not available on the node."
    told = [w.condition for w in api.writes if isinstance(w, PatchPodStatus) and w.condition]
    assert is_late == any(condition.message.startswith(said) for condition in told)
    # It was given back, and is allocated anew after a minute, as there is no other device.
    assert is_late == (api.get(claim).status.allocation is None)
    api.wait(61)
    found = api.get(claim).status.allocation
    assert is_late == (found.allocation_timestamp == "1970-01-01T00:11:02Z")
