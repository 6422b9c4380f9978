"""Extended resources that devices stand in for, through the engine's one entry (KEP-5004)."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.configuration import API_VERSION, KIND
from stower.framework.plugin import read_features
from stower.framework.writes import (
    Bind,
    CreateObject,
    DeleteObject,
    PatchObject,
    PatchPodStatus,
)
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import EXTENDED_RESOURCE_CLAIM, FINALIZER
from tests.builders import make_node, make_pod
from tests.device_builders import (
    Agreeing,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)

NAME = "example.com/gpu"


def asking(name: str = "p1", count: int = 1, resource: str = NAME, **fields: Any) -> Pod:
    """A pod that asks for so many of a resource."""
    return make_pod(name, requests={resource: str(count)}, **fields)


def cluster(*objects: Any, gates: str = "", nodes: tuple[Any, ...] = ()) -> Agreeing:
    """Nodes, a class that stands for the resource, and these objects."""
    engine = build_engine(features=read_features(gates)[0])
    gpu = device_class(extendedResourceName=NAME)
    return Agreeing(engine, *(nodes or (make_node("n1"), make_node("n2"))), gpu, *objects)


def made(api: Agreeing) -> list[ResourceClaim]:
    """The claims that the scheduler has made."""
    claims = [obj for obj in api.objects.values() if isinstance(obj, ResourceClaim)]
    return [c for c in claims if EXTENDED_RESOURCE_CLAIM in (c.metadata.annotations or {})]


def devices(claim: ResourceClaim) -> list[str]:
    """Where a claim has which."""
    allocation = claim.status.allocation
    results = allocation.devices.results or () if allocation is not None else ()
    return [f"{result.request}={result.pool}/{result.device}" for result in results]


def test_devices_stand_in_for_what_no_node_has() -> None:
    api = cluster(device_slice("n2", device("a"), device("b")), asking(count=2))
    assert {"p1": "n2"} == api.bound
    (claim,) = made(api)
    assert claim.metadata.name.startswith("p1-extended-resources-")
    assert ["container-0-request-1=n2/a", "container-0-request-1=n2/b"] == devices(claim)
    assert claim.is_reserved_for("uid-of-default-p1")
    (owner,) = claim.metadata.owner_references or ()
    assert ("Pod", "p1", "uid-of-default-p1", True) == (
        owner.kind, owner.name, owner.uid, owner.controller,
    )  # fmt: skip
    told = api.told["p1"]
    assert claim.metadata.name == told.resource_claim_name
    (mapping,) = told.request_mappings
    assert ("main", NAME, "container-0-request-1") == (
        mapping.container_name, mapping.resource_name, mapping.request_name,
    )  # fmt: skip


def test_the_claim_is_made_then_allocated_then_told_of_then_the_pod_is_bound() -> None:
    api = cluster(device_slice("n1", device("a")), asking())
    order = [
        type(w).__name__
        for w in api.writes
        if isinstance(w, CreateObject | PatchObject | Bind)
        or (isinstance(w, PatchPodStatus) and w.extended_resource_claim is not None)
    ]
    assert ["CreateObject", "PatchObject", "PatchPodStatus", "Bind"] == order
    create = next(w for w in api.writes if isinstance(w, CreateObject))
    assert (FINALIZER,) == create.body["metadata"]["finalizers"]


def test_a_node_that_has_the_resource_itself_gets_no_claim() -> None:
    nodes = (make_node("n1", example_com__gpu="1"),)
    api = cluster(device_slice("n1", device("a")), asking("p1"), asking("p2"), nodes=nodes)
    assert {"p1": "n1"} == api.bound
    assert [] == made(api)
    assert "Insufficient example.com/gpu" in api.messages["p2"]


def test_nodes_of_both_kinds_serve_side_by_side() -> None:
    nodes = (make_node("n1", example_com__gpu="1"), make_node("n2"))
    api = cluster(
        device_slice("n2", device("a")), *(asking(f"p{i}") for i in range(3)), nodes=nodes
    )
    assert {"n1", "n2"} == set(api.bound.values())
    assert 1 == len(made(api))
    (left,) = {"p0", "p1", "p2"} - set(api.bound)
    assert (
        "0/2 nodes are available: 1 Insufficient example.com/gpu, 1 cannot allocate all claims."
    ) in api.messages[left]


def test_every_class_stands_for_a_name_of_its_own() -> None:
    resource = "deviceclass.resource.kubernetes.io/gpu"
    api = cluster(device_slice("n1", device("a")), asking(resource=resource))
    assert {"p1": "n1"} == api.bound
    assert resource == api.told["p1"].request_mappings[0].resource_name


def test_with_the_gate_off_nothing_stands_in() -> None:
    gates = "DRAExtendedResource=false"
    api = cluster(device_slice("n1", device("a")), asking(), gates=gates)
    assert {} == api.bound
    assert "2 Insufficient example.com/gpu" in api.messages["p1"]


def test_a_device_is_given_once() -> None:
    own = [resource_claim("c1"), make_pod("q1", resourceClaims=[
        {"name": "d", "resourceClaimName": "c1"}])]  # fmt: skip
    api = cluster(device_slice("n1", device("a"), device("b")), asking("p1"), *own, asking("p2"))
    assert {"p1", "q1"} == set(api.bound)
    claims = [c for c in api.objects.values() if isinstance(c, ResourceClaim)]
    given = [d.partition("=")[2] for c in claims for d in devices(c)]
    assert ["n1/a", "n1/b"] == sorted(given)


def test_claims_of_both_kinds_are_met_on_one_node() -> None:
    pod = asking(resourceClaims=[{"name": "d", "resourceClaimName": "c1"}])
    slices = [device_slice("n1", device("a")), device_slice("n2", device("b"), device("c"))]
    api = cluster(*slices, resource_claim("c1", request()), pod)
    assert {"p1": "n2"} == api.bound


def test_a_claim_beside_a_resource_that_the_node_has_itself() -> None:
    pod = asking(resourceClaims=[{"name": "d", "resourceClaimName": "c1"}])
    nodes = (make_node("n1", example_com__gpu="1"),)
    api = cluster(device_slice("n1", device("a")), resource_claim("c1"), pod, nodes=nodes)
    assert {"p1": "n1"} == api.bound
    assert [] == made(api)


def test_a_class_that_comes_later_is_noticed() -> None:
    engine = build_engine()
    api = Agreeing(engine, make_node("n1"), device_slice("n1", device("a")), asking())
    assert "Insufficient example.com/gpu" in api.messages["p1"]
    api.put(device_class("other"))
    api.put(device_class(extendedResourceName=NAME))
    api.wait(30)
    assert {"p1": "n1"} == api.bound


@pytest.mark.parametrize(
    ("times", "class_name"),
    [(("", ""), "gpu"), (("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), "gpu-2")],
)
def test_the_newest_of_two_classes_has_the_name_or_the_first(
    times: tuple[str, str], class_name: str
) -> None:
    classes = []
    for name, time in zip(("gpu", "gpu-2"), times, strict=True):
        found = device_class(name, extendedResourceName=NAME)
        meta = msgspec.structs.replace(found.metadata, creation_timestamp=time or None)
        classes.append(msgspec.structs.replace(found, metadata=meta))
    api = cluster(*classes, device_slice("n1", device("a")), asking())
    (claim,) = made(api)
    (asked,) = claim.spec.devices.requests or ()
    assert asked.exactly is not None
    assert class_name == asked.exactly.device_class_name


def refusing(kind: type, code: int, times: int = 1) -> Any:
    """Refuses the first writes of a kind."""
    left = [times]

    def refuses(write: Any) -> int:
        if isinstance(write, kind) and left[0]:
            left[0] -= 1
            return code
        return 0

    return refuses


def test_a_claim_that_is_refused_leaves_its_devices_to_others() -> None:
    api = cluster(device_slice("n1", device("a")))
    api.refuses = refusing(CreateObject, 400, times=1)
    api.put(asking("p1"))
    assert {} == api.bound
    assert 'running PreBind plugin "DynamicResources": refused' == api.messages["p1"]
    api.put(asking("p2"))
    assert {"p2": "n1"} == api.bound


def test_a_pod_that_is_not_bound_after_all_gives_its_claim_back() -> None:
    api = cluster(device_slice("n1", device("a")))
    api.refuses = refusing(Bind, 400)
    api.put(asking("p1"))
    assert [] == made(api)
    kinds = [type(w) for w in api.writes]
    assert DeleteObject in kinds
    api.wait(30)
    assert {"p1": "n1"} == api.bound
    assert 1 == len(made(api))


def test_what_is_left_of_another_attempt_goes_first() -> None:
    pod = asking()
    meta = {"annotations": {EXTENDED_RESOURCE_CLAIM: "true"}, "finalizers": [FINALIZER]}
    stale = resource_claim("p1-extended-resources-old", owner=pod, meta=meta)
    api = cluster(device_slice("n1", device("a")), stale)
    api.refuses = refusing(DeleteObject, 400)
    api.put(pod)
    assert "2 cannot schedule extended resource claim" in api.messages["p1"]
    assert {} == api.bound
    api.refuses = lambda write: 0
    api.wait(400)
    assert {"p1": "n1"} == api.bound
    assert [stale.metadata.name] != [c.metadata.name for c in made(api)]


@pytest.mark.parametrize("told_as", [504, 409, 500])
def test_the_pod_is_bound_only_when_it_says_which_claim_it_has(told_as: int) -> None:
    api = cluster(device_slice("n1", device("a")))
    left = [told_as]

    def refuses(write: Any) -> int:
        is_told = isinstance(write, PatchPodStatus) and write.extended_resource_claim is not None
        return left.pop() if is_told and left else 0

    api.refuses = refuses
    api.put(asking())
    api.wait(30)
    assert {"p1": "n1"} == api.bound
    (claim,) = made(api)
    assert claim.metadata.name == api.told["p1"].resource_claim_name


def test_a_claim_whose_making_was_lost_is_made_again() -> None:
    api = cluster(device_slice("n1", device("a")))
    api.refuses = refusing(CreateObject, 504)
    api.put(asking())
    assert {"p1": "n1"} == api.bound
    assert 1 == len(made(api))


def test_containers_that_end_first_use_what_the_others_will_have() -> None:
    def container(name: str, count: int, **fields: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {NAME: str(count)}}, **fields}

    pod = make_pod(
        initContainers=[
            container("first", 3),
            container("sidecar", 1, restartPolicy="Always"),
            container("second", 4),
        ],
        containers=[container("main", 2)],
    )
    api = cluster(device_slice("n1", *(device(f"g{i}") for i in range(6))), pod)
    (claim,) = made(api)
    counts = {
        r.name: r.exactly.count for r in claim.spec.devices.requests or () if r.exactly is not None
    }
    # "second" runs beside the sidecar, and can use only what "main" will have.
    assert {
        "container-1-request-0": 1,
        "container-2-request-0": 2,
        "container-3-request-0": 2,
    } == counts
    told = [(m.container_name, m.request_name) for m in api.told["p1"].request_mappings]
    assert [
        ("sidecar", "container-1-request-0"),
        ("main", "container-3-request-0"),
        ("first", "container-1-request-0"),
        ("first", "container-3-request-0"),
        ("second", "container-3-request-0"),
        ("second", "container-2-request-0"),
    ] == told


def test_pods_are_evicted_for_their_devices() -> None:
    api = cluster(device_slice("n1", device("a")), nodes=(make_node("n1"),))
    low = asking("low")
    api.put(low)
    assert {"low": "n1"} == api.bound
    api.put(asking("high", priority=10))
    assert "low" in [w.name for w in api.writes if type(w).__name__ == "DeletePod"]
    (claim,) = made(api)
    api.remove(low)
    api.remove(claim)
    api.wait(30)
    assert "n1" == api.bound["high"]


def scored_by(plugin: str, args: dict[str, Any], *objects: Any) -> Agreeing:
    """Two nodes and these objects, where only this plugin scores."""
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": plugin}]}
    config = [{"name": plugin, "args": args}]
    profile = {"plugins": {"score": score}, "pluginConfig": config}
    engine = build_engine({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]})
    nodes = (make_node("n1", cpu="2"), make_node("n2", cpu="2"))
    return Agreeing(engine, *nodes, device_class(extendedResourceName=NAME), *objects)


@pytest.mark.parametrize(
    ("strategy", "go_to"), [("MostAllocated", ["n2", "n2", "n2"]), ("LeastAllocated", ["n1"])]
)
def test_scores_by_use_count_the_devices_that_stand_in(strategy: str, go_to: list[str]) -> None:
    args = {"scoringStrategy": {"type": strategy, "resources": [{"name": NAME, "weight": 1}]}}
    slices = [device_slice(node, *(device(f"d{i}") for i in range(4))) for node in ("n1", "n2")]
    first = asking("first", nodeSelector={"kubernetes.io/hostname": "n2"})
    api = scored_by("NodeResourcesFit", args, *slices)
    api.put(make_node("n2", cpu="2", labels={"kubernetes.io/hostname": "n2"}))
    api.put(first)
    assert {"first": "n2"} == api.bound
    more = [f"more-{i}" for i in range(len(go_to))]
    for name in more:
        api.put(asking(name))
    assert go_to == [api.bound[name] for name in more], "what is taken counts for the next"


def test_balance_counts_the_devices_that_stand_in() -> None:
    """On n1 the pod uses half of the CPU and half of the devices, on n2 all devices."""
    slices = [device_slice("n1", device("a"), device("b")), device_slice("n2", device("c"))]
    args = {"resources": [{"name": "cpu"}, {"name": NAME}]}
    pods = [make_pod(f"p{i}", requests={NAME: "1", "cpu": "1"}) for i in range(1)]
    api = scored_by("NodeResourcesBalancedAllocation", args, *slices, *pods)
    assert {"p0": "n1"} == api.bound
