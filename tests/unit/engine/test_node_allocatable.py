"""Devices that take of their node's own CPU, memory and huge pages, through the engine's one entry
(KEP-5517)."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed
from stower.framework.plugin import read_features
from stower.framework.writes import Bind, DeletePod, PatchPodStatus
from stower.model.kinds import Pod
from tests.builders import make_node, make_pod
from tests.device_builders import (
    Agreeing,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)

GATE = "DRANodeAllocatableResources=true"
CPUS = "example.com/cpus"
REFUSED = 400


def mapped(name: str = "cpus", **mappings: Any) -> dict[str, Any]:
    """A device that takes of its node, so much of each resource (`_` is for `-`): (capacity or "",
    multiplier or "")."""
    found = {
        resource.replace("_", "-"): {
            field: value
            for field, value in zip(("capacityKey", "allocationMultiplier"), each, strict=True)
            if value
        }
        for resource, each in mappings.items()
    }
    return device(name, nodeAllocatableResourceMappings=found)


def shared(whole: str = "10", **mappings: Any) -> dict[str, Any]:
    """One that many may have CPUs of."""
    capacity = {CPUS: {"value": whole}}
    return {**mapped(**mappings), "capacity": capacity, "allowMultipleAllocations": True}


def part(cpus: str) -> Any:
    """A request for so many CPUs."""
    return request(capacity={"requests": {CPUS: cpus}})


def using(name: str = "p1", *claims: str, cpu: str | None = None, **fields: Any) -> Pod:
    """A pod whose one container uses all its claims."""
    names = claims or ("c1",)
    asked: dict[str, Any] = {"claims": [{"name": c} for c in names]}
    if cpu is not None:
        asked["requests"] = {"cpu": cpu}
    entries = [{"name": c, "resourceClaimName": c} for c in names]
    spec = {"containers": [{"name": "main", "resources": asked}], "resourceClaims": entries}
    return make_pod(name, **(spec | fields))


def engine(gates: str = GATE) -> Any:
    """With the gate on."""
    return build_engine(features=read_features(gates)[0])


def cluster(*objects: Any, gates: str = GATE, node: Any = None) -> Agreeing:
    """A node with 10 CPUs and 10 Gi, a class, and these objects."""
    node = node or make_node("n1", cpu="10", memory="10Gi")
    return Agreeing(engine(gates), node, device_class(), *objects)


def told(api: Agreeing, pod: Pod) -> list[Any]:
    """What the pod's status says that its claims take."""
    statuses = api.get(pod).status.node_allocatable_resource_claim_statuses or ()
    return [(s.resource_claim_name, s.containers, s.resources) for s in statuses]


def in_use(api: Agreeing, resource: str = "cpu") -> int:
    """Of the node (milli-CPU, bytes)."""
    state = api.engine.state
    return int(state.column(resource).requested_cells[state.row_of("n1")])


def restarted(api: Agreeing) -> Agreeing:
    """The same objects, and an engine that knows nothing else."""
    again = Agreeing(engine())
    again.objects = dict(api.objects)
    again.bound = dict(api.bound)
    again._version = api._version
    again.tell(Listed(tuple(again.objects.values())))
    return again


# How much


@pytest.mark.behaviour("S2.41")
@pytest.mark.parametrize(
    ("mappings", "asked", "taken"),
    [
        ({"cpu": (CPUS, "")}, "1", {"cpu": "1"}),
        ({"cpu": (CPUS, ""), "memory": ("", "1Gi")}, "1", {"cpu": "1", "memory": "1Gi"}),
        ({"cpu": (CPUS, "2")}, "4", {"cpu": "8"}),
        ({"cpu": (CPUS, "0.5")}, "3", {"cpu": "1500m"}),
        ({"memory": (CPUS, "512Mi")}, "3", {"memory": "1610612736"}),
    ],
)
def test_what_is_consumed_of_a_capacity_is_taken_of_the_node(
    mappings: Any, asked: str, taken: dict[str, str]
) -> None:
    """Source: node-allocatable-resource-capacitykey, -capacitykey-and-multiplier."""
    pod = using()
    api = cluster(device_slice("n1", shared(**mappings)), resource_claim("c1", part(asked)), pod)
    assert {"p1": "n1"} == api.bound
    assert [("c1", ("main",), taken)] == told(api, pod)


def test_a_device_takes_so_much_by_itself() -> None:
    """Source: node-allocatable-resource-multiplier."""
    pod = using()
    cpus = mapped(cpu=("", "1"), memory=("", "1Gi"))
    api = cluster(device_slice("n1", cpus), resource_claim(), pod)
    assert {"p1": "n1"} == api.bound
    assert [("c1", ("main",), {"cpu": "1", "memory": "1Gi"})] == told(api, pod)
    assert (1000, 2**30) == (in_use(api), in_use(api, "memory"))


def test_all_devices_of_a_claim_count_beside_what_containers_ask_for() -> None:
    pod = using(cpu="500m")
    cpus = [mapped(f"cpu-{i}", cpu=("", "1500m")) for i in range(2)]
    api = cluster(device_slice("n1", *cpus), resource_claim("c1", request(count=2)), pod)
    assert [("c1", ("main",), {"cpu": "3"})] == told(api, pod)
    assert 3500 == in_use(api)


def test_each_claim_is_told_of_with_its_containers_and_counts_once() -> None:
    def container(name: str, *claims: str) -> dict[str, Any]:
        return {"name": name, "resources": {"claims": [{"name": c} for c in claims]}}

    pod = using(
        "p1", "b", "a", "plain",
        initContainers=[container("init", "a")],
        containers=[container("one", "a", "b"), container("two", "a"), container("three")],
    )  # fmt: skip
    gpu = device_class("plain", 'device.driver == "plain.example.com"')
    api = cluster(
        device_slice("n1", *(mapped(name, cpu=("", "2")) for name in "xy")),
        device_slice("n1", device("z"), driver="plain.example.com"), gpu,
        resource_claim("a"), resource_claim("b"),
        resource_claim("plain", request(class_name="plain")), pod,
    )  # fmt: skip
    assert [
        ("a", ("init", "one", "two"), {"cpu": "2"}), ("b", ("one",), {"cpu": "2"}),
    ] == told(api, pod)  # fmt: skip
    assert 4000 == in_use(api)


def test_a_capacity_of_which_nothing_is_consumed_takes_nothing() -> None:
    other = {"example.com/other": {"value": "5"}}
    cpus = {**shared(cpu=(CPUS, "")), "capacity": other}
    pod = using()
    api = cluster(device_slice("n1", cpus), resource_claim(), pod)
    assert {"p1": "n1"} == api.bound
    assert ([], 0) == (told(api, pod), in_use(api))


def test_a_capacity_of_a_device_that_is_not_shared_is_an_error() -> None:
    cpus = {**shared(cpu=(CPUS, "")), "allowMultipleAllocations": False}
    api = cluster(device_slice("n1", cpus), resource_claim(), using())
    assert {} == api.bound
    assert (
        'running "DynamicResources" filter plugin: claim default/c1, device cpus: '
        f"ConsumedCapacity is nil, but Capacity key '{CPUS}' is set in "
        "NodeAllocatableResourceMappings for resource cpu"
    ) == api.messages["p1"]


# Whether it fits


def test_a_node_that_could_never_have_room_is_refused_for_good() -> None:
    """Source: node-allocatable-resource-insufficient-resources-with-multiplier."""
    cpus = mapped(cpu=("", "11"), memory=("", "11Gi"))
    low = make_pod("low", node="n1", priority=-1)
    api = cluster(device_slice("n1", cpus), resource_claim(), low, using(priority=5))
    assert {} == api.bound
    text = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    assert api.messages["p1"].startswith(text)
    assert "Preemption is not helpful" in api.messages["p1"]
    assert [] == [w for w in api.writes if isinstance(w, DeletePod)]


def test_a_device_with_too_little_of_a_capacity_is_no_device() -> None:
    """Source: node-allocatable-resource-insufficient-with-capacityKey."""
    cpus = shared(cpu=(CPUS, ""))
    api = cluster(device_slice("n1", cpus), resource_claim("c1", part("11")), using())
    assert "cannot allocate all claims" in api.messages["p1"]


def test_huge_pages_are_looked_at_too() -> None:
    pages = "hugepages-2Mi"
    cpus = mapped(hugepages_2Mi=("", "8Mi"))
    node = make_node("n1", cpu="10")
    status = msgspec.structs.replace(
        node.status, allocatable={**(node.status.allocatable or {}), pages: "4Mi"}
    )
    node = msgspec.structs.replace(node, status=status)
    api = cluster(device_slice("n1", cpus), resource_claim(), using(), node=node)
    assert f"1 Insufficient {pages}" in api.messages["p1"]


def test_the_next_pods_see_what_is_taken_whether_they_have_claims_or_not() -> None:
    cpus = [mapped(f"cpu-{i}", cpu=("", "6")) for i in range(2)]
    first, second = using("p1", "c1"), using("p2", "c2")
    api = cluster(
        device_slice("n1", *cpus), resource_claim("c1"), resource_claim("c2"), first, second,
        make_pod("p3", cpu="5"),
    )  # fmt: skip
    assert {"p1": "n1"} == api.bound
    assert "1 Insufficient cpu" in api.messages["p2"]
    assert "1 Insufficient cpu" in api.messages["p3"]
    api.remove(first)
    api.wait(30)
    assert "n1" == api.bound.get("p2")


def test_it_counts_from_the_decision_on_before_anything_is_written() -> None:
    cpus = [mapped(f"cpu-{i}", cpu=("", "6")) for i in range(2)]
    one = engine()
    objects = (
        make_node("n1", cpu="10"), device_class(), device_slice("n1", *cpus), resource_claim("c1"),
        resource_claim("c2"), using("p1", "c1"), using("p2", "c2"), make_pod("p3", cpu="5"),
    )  # fmt: skip
    one.step(Listed(objects), 0)
    assert ["p1"] == [e.pod.metadata.name for e in one.state.pods.values() if e.is_assumed]
    assert 6000 == one.state.column("cpu").requested_cells[one.state.row_of("n1")]


def test_after_a_restart_it_is_in_use_still_and_free_again_with_the_pod() -> None:
    cpus = [mapped(f"cpu-{i}", cpu=("", "6")) for i in range(2)]
    first = using("p1", "c1")
    claims = resource_claim("c1"), resource_claim("c2")
    api = restarted(cluster(device_slice("n1", *cpus), *claims, first))
    assert 6000 == in_use(api)
    api.put(using("p2", "c2"))
    assert "1 Insufficient cpu" in api.messages["p2"]
    api.remove(first)
    api.wait(30)
    assert "n1" == api.bound["p2"]
    assert 6000 == in_use(api)
    api.remove(api.objects["uid-of-default-p2"])
    assert 0 == in_use(api)


def test_a_claim_that_was_allocated_before_counts_as_well() -> None:
    """A scheduler that ended between the claim and the binding left it so."""
    cpus = [mapped("cpu-0", cpu=("", "6"))]
    api = cluster(device_slice("n1", *cpus), resource_claim("c1"))
    api.refuses = lambda write: 500 if isinstance(write, Bind) else 0
    pod = using("p1", "c1")
    api.put(pod)
    again = Agreeing(engine())
    for obj in api.objects.values():
        again.objects[obj.metadata.uid] = obj
    again._version = api._version
    again.put(make_pod("full", node="n1", cpu="5"))
    again.tell(Listed(tuple(again.objects.values())))
    assert {} == again.bound
    assert "1 Insufficient cpu" in again.messages["p1"]
    again.remove(again.objects["uid-of-default-full"])
    again.wait(30)
    assert {"p1": "n1"} == again.bound
    assert 6000 == in_use(again)


def test_a_binding_that_fails_gives_all_of_it_back() -> None:
    pod = using()
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim())
    api.refuses = lambda write: REFUSED if isinstance(write, Bind) else 0
    api.put(pod)
    assert ([], 0) == (told(api, pod), in_use(api))
    api.refuses = lambda write: 0
    api.wait(30)
    assert {"p1": "n1"} == api.bound
    assert ([("c1", ("main",), {"cpu": "6"})], 6000) == (told(api, pod), in_use(api))


def test_a_status_that_is_refused_ends_the_attempt() -> None:
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim())
    api.refuses = lambda write: (
        REFUSED if isinstance(write, PatchPodStatus) and write.claimed is not msgspec.UNSET else 0
    )
    api.put(using())
    assert {} == api.bound
    assert 0 == in_use(api)


def test_the_status_is_told_before_the_pod_is_bound() -> None:
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim(), using())
    order = [
        type(w).__name__
        for w in api.writes
        if isinstance(w, Bind) or (isinstance(w, PatchPodStatus) and w.claimed is not msgspec.UNSET)
    ]
    assert ["PatchPodStatus", "Bind"] == order


def test_what_is_left_over_from_another_attempt_goes() -> None:
    """The pod's status says something that its devices do not take."""
    left = [{"resourceClaimName": "c1", "containers": ["main"], "resources": {"cpu": "9"}}]
    pod = using()
    status = msgspec.convert({"nodeAllocatableResourceClaimStatuses": left}, type(pod.status))
    pod = msgspec.structs.replace(pod, status=status)
    api = cluster(device_slice("n1", mapped(memory=("", "1Gi"))), resource_claim(), pod)
    assert {"p1": "n1"} == api.bound
    assert [("c1", ("main",), {"memory": "1Gi"})] == told(api, pod)
    assert 0 == in_use(api)
    other = using("p2", "c2")
    other = msgspec.structs.replace(other, status=status)
    gpu = device_class("gpu2", 'device.driver == "plain.example.com"')
    api.put(gpu)
    api.put(device_slice("n1", device("z"), driver="plain.example.com"))
    api.put(resource_claim("c2", request(class_name="gpu2")))
    api.put(other)
    assert "n1" == api.bound["p2"]
    assert ([], 0) == (told(api, other), in_use(api))


# Pod-level requests


@pytest.mark.parametrize(("budget", "fits"), [("10", True), ("6", True), ("5", False)])
def test_requests_of_the_whole_pod_must_cover_what_claims_take(budget: str, fits: bool) -> None:
    """And are all that is in use then."""
    pod = using(cpu="2", resources={"requests": {"cpu": budget}})
    api = cluster(device_slice("n1", mapped(cpu=("", "4"))), resource_claim(), pod)
    assert ({"p1": "n1"} if fits else {}) == api.bound
    if fits:
        assert int(budget) * 1000 == in_use(api)
        return
    assert (
        "pod level request for cpu is insufficient to cover the aggregated container and "
        "node-allocatable DRA requests"
    ) in api.messages["p1"]


def test_the_overhead_of_a_pod_is_no_part_of_its_budget() -> None:
    pod = using(cpu="2", resources={"requests": {"cpu": "6"}}, overhead={"cpu": "500m"})
    api = cluster(device_slice("n1", mapped(cpu=("", "4"))), resource_claim(), pod)
    assert {"p1": "n1"} == api.bound
    assert 6500 == in_use(api)


# Whose it is


def test_a_claim_that_no_container_uses_is_refused() -> None:
    pod = using(containers=[{"name": "main"}])
    api = cluster(device_slice("n1", mapped(cpu=("", "4"))), resource_claim(), pod)
    assert (
        "claim c1: node-allocatable resource claim not referenced by any container within the pod"
    ) in api.messages["p1"]


def test_no_other_pod_may_use_the_claim_on_the_node() -> None:
    first = using("p1")
    api = cluster(device_slice("n1", mapped(cpu=("", "1"))), resource_claim(), first, using("p2"))
    assert {"p1": "n1"} == api.bound
    text = "1 node allocatable resource claim c1 is already used by another pod"
    assert text in api.messages["p2"]
    api = restarted(api)
    assert {"p1": "n1"} == api.bound
    api.put(using("p3"))
    assert text in api.messages["p3"]


def test_pods_share_a_claim_that_takes_nothing_of_the_node() -> None:
    api = cluster(device_slice("n1", device("gpu")), resource_claim(), using("p1"), using("p2"))
    assert {"p1": "n1", "p2": "n1"} == api.bound


def test_devices_that_stand_in_for_extended_resources_may_not_take_of_the_node() -> None:
    resource = "example.com/gpu"
    gpu = device_class(extendedResourceName=resource)
    api = cluster(
        device_slice("n1", mapped(cpu=("", "1"))), gpu, make_pod(requests={resource: "1"})
    )
    assert (
        "claim <extended-resources>: node-allocatable resource claim not referenced by any "
        "container within the pod"
    ) in api.messages["p1"]


# Evictions


def test_a_pod_is_evicted_for_what_claims_take() -> None:
    low = make_pod("low", node="n1", cpu="5", priority=1)
    pod = using(priority=5)
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim(), low, pod)
    assert ["low"] == [w.name for w in api.writes if isinstance(w, DeletePod)]
    api.remove(low)
    api.wait(30)
    assert {"p1": "n1"} == api.bound


def test_a_pod_is_evicted_with_what_its_claims_take() -> None:
    low = using("low", priority=1)
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim(), low)
    assert {"low": "n1"} == api.bound
    api.put(make_pod("high", cpu="5", priority=5))
    assert ["low"] == [w.name for w in api.writes if isinstance(w, DeletePod)]


# The gate


def test_with_the_gate_off_devices_take_nothing_of_their_node() -> None:
    pod = using()
    api = cluster(
        device_slice("n1", mapped(cpu=("", "11"))), resource_claim(), pod, gates="AllAlpha=false"
    )
    assert {"p1": "n1"} == api.bound
    assert ([], 0) == (told(api, pod), in_use(api))
    assert all(w.claimed is msgspec.UNSET for w in api.writes if isinstance(w, PatchPodStatus))


def test_with_the_gate_off_statuses_count_for_nothing() -> None:
    api = cluster(device_slice("n1", mapped(cpu=("", "6"))), resource_claim(), using())
    off = build_engine()
    off.step(Listed(tuple(api.objects.values())), 0)
    assert 0 == off.state.column("cpu").requested_cells[off.state.row_of("n1")]
