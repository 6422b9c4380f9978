"""Claims that become overcommitted, or ours to give back, after they were first looked at."""

from typing import Any

import msgspec
import pytest

from stower.devices.overcommits import GIVEN_BACK, mark_of
from stower.framework.events import Observed, WatchType
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import PodCondition
from tests.builders import make_node
from tests.device_builders import GPU, claiming, device, device_class, device_slice, resource_claim
from tests.unit.engine.test_overcommitted_claims import NAMES, OTHER, Rivals
from tests.unit.engine.test_vanished_devices import named, published, tagged

GPUS = device_slice("n1", *(device(f"gpu-{i}") for i in range(6)))


def allocated(name: str, index: int, *users: Pod) -> ResourceClaim:
    """A claim that has the GPU of that index."""
    results = [{"request": "r", "driver": GPU, "pool": "n1", "device": f"gpu-{index}"}]
    reserved = [
        {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in users
    ]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return resource_claim(name, status=status)


def of_version(pod: Pod, version: str = "50") -> Pod:
    """The pod, as a server has it."""
    meta = msgspec.structs.replace(pod.metadata, resource_version=version)
    return msgspec.structs.replace(pod, metadata=meta)


def touched(pod: Pod, claim: ResourceClaim) -> Pod:
    """The pod, as a scheduler leaves it that ended before it gave the claim back."""
    condition = PodCondition(GIVEN_BACK, "True", "DeviceOvercommitted", mark_of(claim))
    status = msgspec.structs.replace(pod.status, conditions=(condition,))
    return msgspec.structs.replace(pod, status=status)


def test_a_claim_is_given_back_that_was_seen_before_its_pod() -> None:
    first, pod = claiming("f", "c0", schedulerName="third", node="n1"), claiming("p1", "c1")
    pod = of_version(pod)
    api = Rivals(make_node("n1"), device_class(), GPUS, allocated("c0", 0, first), first)
    api.put(allocated("c1", 0, pod))
    api.settle()
    api.put(pod)
    for _ in range(10):
        api.settle(3)
    assert ["n1"] == api.nodes(pod)
    assert {"gpu-1"} == devices_of(api, "c1")


def test_a_claim_is_given_back_once_the_pod_of_another_scheduler_has_left_it() -> None:
    first = claiming("f", "c0", schedulerName="third", node="n1")
    foreign, pod = claiming("x", "c1", schedulerName="third"), of_version(claiming("p1", "c1"))
    api = Rivals(
        make_node("n1"), device_class(), GPUS, allocated("c0", 0, first), first, foreign, pod
    )
    api.put(allocated("c1", 0, foreign, pod))
    api.settle(3)
    assert ["", {"gpu-0"}] == [*api.nodes(pod), devices_of(api, "c1")]
    api.put(
        msgspec.structs.replace(
            api.get(resource_claim("c1")), status=allocated("c1", 0, pod).status
        )
    )
    gone = api.objects.pop(foreign.metadata.uid)
    for behind in api._behind.values():
        behind.append(Observed(WatchType.DELETED, gone))
    for _ in range(10):
        api.settle(3)
    assert ["n1"] == api.nodes(pod)
    assert {"gpu-1"} == devices_of(api, "c1")


@pytest.mark.parametrize("pod_index", [0, 1])
@pytest.mark.parametrize("claim_index", [0, 1])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_two_claims_of_two_pods_are_given_back_after_a_restart(
    pod_index: int, claim_index: int, is_reversed: bool
) -> None:
    """One pod was touched, for one of the claims: neither claim waits for the other for ever."""
    holder = claiming("f", "f1", "f2", schedulerName="third", node="n1")
    pods = [of_version(claiming(f"p{i}", "c1", "c2")) for i in range(2)]
    claims = [allocated(f"c{i + 1}", i, *pods) for i in range(2)]
    pods[pod_index] = touched(pods[pod_index], claims[claim_index])
    held = [allocated(f"f{i + 1}", i, holder) for i in range(2)]
    api = Rivals(
        make_node("n1"), device_class(), GPUS, holder, *held,
        *(reversed(claims) if is_reversed else claims), *pods,
    )  # fmt: skip
    for _ in range(10):
        api.settle(3)
    assert ["n1", "n1"] == api.nodes(*pods)
    assert {"gpu-0", "gpu-1"}.isdisjoint(devices_of(api, "c1") | devices_of(api, "c2"))


@pytest.mark.parametrize("kept", [["six"], ["three", "six"]])
def test_a_new_generation_hides_no_overcommitted_counters(kept: list[str]) -> None:
    """Of two partitions that do not fit together one has gone, or the pool is incomplete, before
    anybody has seen both."""
    units = {"three": 3, "six": 6}
    claims = [resource_claim(f"c{i}", named(name)) for i, name in enumerate(units)]
    pods = [claiming("p0", "c0"), claiming("p1", "c1", **OTHER)]
    slices = published(*(tagged(*item) for item in units.items()))
    api = Rivals(make_node("n1"), device_class(), *slices, *claims, *pods)
    for name in NAMES:
        api.serve(name)
        if name == NAMES[-1]:
            break
        api.look(name)
    new = published(*(tagged(name, units[name]) for name in kept), generation=2)
    for each in new if len(kept) == 1 else new[1:]:
        api.put(each)
    for _ in range(5):
        api.settle(3)
    assert [True, False] == api.allocated(*claims)
    assert ["n1", ""] == api.nodes(*pods)


def devices_of(api: Rivals, claim: str) -> set[str]:
    found: Any = api.get(resource_claim(claim)).status.allocation
    return {result.device for result in found.devices.results} if found is not None else set()
