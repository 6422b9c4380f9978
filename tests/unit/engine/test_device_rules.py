"""The rules by which devices are shared and chosen, through the engine's one entry."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, DeletePod, PatchObject, PatchPodStatus
from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import DeviceResult
from stower.model.times import SECOND_NS
from stower.sim.changes import merged
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
)
from tests.device_builders import resource_claim as claim
from tests.unit.engine.test_devices import cluster, given


def results(api: Agreeing, of: ResourceClaim) -> tuple[DeviceResult, ...]:
    """What a claim was given."""
    allocation = api.get(of).status.allocation
    return allocation.devices.results if allocation is not None else ()


def taking(count: int, **fields: Any) -> list[Any]:
    """So many pods, each with a claim of its own."""
    claims = [claim(f"c{i}", request(**fields)) for i in range(count)]
    return [*claims, *(claiming(f"p{i}", f"c{i}") for i in range(count))]


@pytest.mark.behaviour("S2.6")
def test_without_capacity_there_is_no_limit_to_shares() -> None:
    api = cluster(device_slice("n1", device("gpu-0", shared=True)), *taking(40))
    assert 40 == len(api.bound)


@pytest.mark.behaviour("S2.7")
def test_whoever_wants_all_asks_for_all() -> None:
    shared = device_slice("n1", device("gpu-0", "10Gi", shared=True))
    api = cluster(shared, *taking(2, memory="10Gi"))
    assert {"p0": "n1"} == api.bound


@pytest.mark.behaviour("S2.13")
def test_a_device_without_the_capacity_that_is_asked_for_is_left_out() -> None:
    bare = device("a-bare", shared=True, capacity={"cores": {"value": "4"}})
    wanted = claim("c1", request(memory="1Gi"))
    devices = device_slice("n1", bare, device("gpu-0", "10Gi", shared=True))
    api = cluster(devices, wanted, claiming())
    assert ["n1/gpu-0"] == given(api.get(wanted))


@pytest.mark.behaviour("S2.16")
def test_the_amount_is_taken_on_each_device() -> None:
    shared = [device(f"gpu-{i}", "10Gi", shared=True) for i in range(2)]
    first = claim("c1", request(count=2, memory="6Gi"), constraints=[
        {"requests": ["r"], "distinctAttribute": f"{GPU}/slot"}])  # fmt: skip
    for i, each in enumerate(shared):
        each["attributes"] = {"slot": {"int": i}}
    api = cluster(device_slice("n1", *shared), first, claiming())
    assert [{"memory": "6Gi"}] * 2 == [r.consumed_capacity for r in results(api, first)]
    second = claim("c2", request(memory="5Gi"))
    api.put(second)
    api.put(claiming("p2", "c2"))
    assert {"p1": "n1"} == api.bound


@pytest.mark.behaviour("S2.21")
@pytest.mark.parametrize("was_shared", [False, True])
def test_a_device_that_becomes_another_kind_keeps_who_has_it(was_shared: bool) -> None:
    before = device_slice("n1", device("gpu-0", "10Gi", shared=was_shared))
    api = cluster(before, *taking(1, memory="1Gi"))
    assert {"p0": "n1"} == api.bound
    spec = msgspec.structs.replace(
        before.spec,
        devices=device_slice("n1", device("gpu-0", "10Gi", not was_shared)).spec.devices,
    )
    api.put(msgspec.structs.replace(before, spec=spec))
    later = claim("later", request(memory="1Gi"))
    api.put(later)
    api.put(claiming("p9", "later"))
    api.wait(30)
    assert {"p0": "n1"} == api.bound
    # Once it is given back, it is what it has become.
    api.remove(api.objects["uid-of-default-p0"])
    held = api.objects["u-c0"]
    api.put(msgspec.structs.replace(held, status=type(held.status)()))
    api.wait(30)
    assert "p9" in api.bound


@pytest.mark.behaviour("S2.24")
def test_shares_of_a_network_device_are_used_on_several_nodes() -> None:
    network = device_slice("", device("link", "10Gi", shared=True), pool="net")
    claims = [claim(f"c{i}", request(memory="4Gi")) for i in range(2)]
    pods = [claiming(f"p{i}", f"c{i}", nodeSelector={"kubernetes.io/hostname": f"n{i + 1}"})
            for i in range(2)]  # fmt: skip
    api = cluster(network, *claims)
    for node in ("n1", "n2"):
        found = next(o for o in api.objects.values() if o.metadata.name == node)
        labels = {"kubernetes.io/hostname": node}
        meta = msgspec.structs.replace(found.metadata, labels=labels)
        api.put(msgspec.structs.replace(found, metadata=meta))
    for pod in pods:
        api.put(pod)
    assert {"p0": "n1", "p1": "n2"} == api.bound
    assert [["net/link"]] * 2 == [given(api.get(each)) for each in claims]


@pytest.mark.behaviour("S2.30")
def test_amounts_below_one_are_exact() -> None:
    policy = {"default": "100m", "validRange": {"min": "100m", "step": "50m"}}
    cores = {"cores": {"value": "1.5", "requestPolicy": policy}}
    shared = device("gpu-0", shared=True, capacity=cores)
    claims = [
        claim(f"c{i}", request(capacity={"requests": {"cores": asked}}))
        for i, asked in enumerate(("120m", "1.35", "50m"))
    ]
    pods = [claiming(f"p{i}", f"c{i}") for i in range(3)]
    api = cluster(device_slice("n1", shared), *claims, *pods)
    assert ["150m", "1350m"] == [results(api, c)[0].consumed_capacity["cores"] for c in claims[:2]]  # type: ignore[index]
    assert {"p0": "n1", "p1": "n1"} == api.bound


@pytest.mark.behaviour("S2.34")
def test_the_first_alternative_that_there_is_is_taken() -> None:
    alternatives = [
        {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
         "selectors": [{"cel": {"expression": f'"{kind}" in device.attributes["{GPU}"]'}}]}
        for name, kind in (("best", "new"), ("good", "old"))
    ]  # fmt: skip
    wanted = claim("c1", {"name": "r", "firstAvailable": alternatives})
    old = device("gpu-0", attributes={"old": {"bool": True}})
    api = cluster(device_slice("n1", old), wanted, claiming())
    assert ["r/good"] == [result.request for result in results(api, wanted)]


@pytest.mark.behaviour("S2.38")
def test_a_pool_is_not_used_before_all_its_slices_are_there() -> None:
    half = device_slice("n1", device("gpu-0"))
    pool = msgspec.structs.replace(half.spec.pool, resource_slice_count=2)
    half = msgspec.structs.replace(half, spec=msgspec.structs.replace(half.spec, pool=pool))
    api = cluster(half, claim(), claiming())
    assert {} == api.bound
    meta = msgspec.structs.replace(half.metadata, name="more", uid="s-more")
    spec = msgspec.structs.replace(
        half.spec, devices=device_slice("n1", device("gpu-1")).spec.devices
    )
    api.put(msgspec.structs.replace(half, metadata=meta, spec=spec))
    api.wait(30)
    assert {"p1": "n1"} == api.bound


@pytest.mark.behaviour("S2.41")
def test_cores_and_a_gpu_are_claimed_alike() -> None:
    cores = device_slice(
        "n1", device("socket-0", shared=True, capacity={"cores": {"value": "8"}}),
        driver="cpu.example.com", pool="n1-cpu",
    )  # fmt: skip
    driver = 'device.driver == "{}"'
    asked = [
        request(name, selectors=[{"cel": {"expression": driver.format(which)}}], **more)
        for name, which, more in (
            ("gpu", GPU, {}),
            ("cpu", "cpu.example.com", {"capacity": {"requests": {"cores": "6"}}}),
        )
    ]
    both = device_class("any", "true")
    for each in asked:
        each["exactly"]["deviceClassName"] = "any"
    first = claim("c1", *asked)
    second = claim("c2", asked[1])
    gpu = device_slice("n1", device("gpu-0"))
    api = cluster(both, gpu, cores, first, second, claiming("p1", "c1"), claiming("p2", "c2"))
    assert ({"p1": "n1"}, ["n1/gpu-0", "n1-cpu/socket-0"]) == (api.bound, given(api.get(first)))


def writes_of(engine: Engine, event: Any, now_ns: int) -> list[Any]:
    """Patches and bindings that the engine answers with, as the statuses of pods are written at
    once."""
    writes = engine.step(event, now_ns)
    for write in [write for write in writes if isinstance(write, PatchPodStatus)]:
        writes = [*writes, *engine.step(WriteOk(write.id), now_ns)]
    return [write for write in writes if isinstance(write, PatchObject | Bind)]


def test_a_conflict_with_nothing_is_tried_again() -> None:
    """A server may say conflict though nothing newer ever comes."""
    api = cluster(device_slice("n1", device("gpu-0")), claim())
    refused: list[PatchObject] = []

    def refuses(write: Any) -> int:
        if isinstance(write, PatchObject) and not refused:
            refused.append(write)
            return 409
        return 0

    api.refuses = refuses
    api.put(claiming())
    assert {} == api.bound
    api.wait(4)
    assert {"p1": "n1"} == api.bound


def test_a_reservation_that_is_being_taken_back_is_not_counted_on() -> None:
    """The pod is bound again only when its claim is seen to be reserved anew."""
    engine, seen, now_ns = build_engine(), claim(), 1
    objects = make_node("n1"), device_class(), device_slice("n1", device("gpu-0")), seen
    engine.step(Listed(objects), 0)
    (write,) = writes_of(engine, Observed(WatchType.ADDED, claiming()), now_ns)

    def carried_out(write: Any, version: int, is_told: bool = True) -> list[Any]:
        """The API does it; the engine is answered, and told of the change or not yet."""
        nonlocal seen
        changed: Any = merged(seen, write)
        meta = msgspec.structs.replace(changed.metadata, resource_version=str(version))
        changed = msgspec.structs.replace(changed, metadata=meta)
        told = []
        if is_told:
            seen = changed
            told = writes_of(engine, Observed(WatchType.MODIFIED, seen), now_ns)
        return told + writes_of(engine, WriteOk(write.id, str(version)), now_ns)

    (write,) = carried_out(write, 2)
    (bind,) = carried_out(write, 3)
    assert isinstance(bind, Bind)
    (taken_back,) = writes_of(engine, WriteFailed(bind.id, 403, "forbidden"), now_ns)
    assert {"status": {"reservedFor": None}} == taken_back.patch
    gone: Any = merged(seen, taken_back)
    assert [] == carried_out(taken_back, 4, is_told=False)
    now_ns = 20 * SECOND_NS
    # The claim still looks reserved: that is reserved once more, which meets a conflict.
    (write,) = writes_of(engine, Tick(), now_ns)
    assert ("3", True) == (write.resource_version, isinstance(write, PatchObject))
    assert [] == writes_of(engine, WriteFailed(write.id, 409, "conflict"), now_ns)
    meta = msgspec.structs.replace(gone.metadata, resource_version="4")
    seen = msgspec.structs.replace(gone, metadata=meta)
    (write,) = writes_of(engine, Observed(WatchType.MODIFIED, seen), now_ns)
    assert "4" == write.resource_version
    (bind,) = carried_out(write, 5)
    assert isinstance(bind, Bind)


class Forgetful(Agreeing):
    """An API server that does not know of shares, and drops what it does not know."""

    def _put_quietly(self, obj: Any) -> None:
        if isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
            fields = msgspec.to_builtins(obj)
            for result in fields["status"]["allocation"]["devices"]["results"]:
                result.pop("shareID", None)
                result.pop("consumedCapacity", None)
            obj = msgspec.convert(fields, ResourceClaim)
        super()._put_quietly(obj)


@pytest.mark.behaviour("S2.28")
def test_an_api_server_that_drops_shares_is_found_out() -> None:
    shared = device_slice("n1", device("gpu-0", "10Gi", shared=True))
    alone = device_slice("n2", device("gpu-1", "10Gi"))
    nodes = (make_node("n1"), make_node("n2"))
    api = Forgetful(build_engine(), *nodes, device_class(), shared, alone, *taking(2, memory="4Gi"))
    assert ["n2"] == [*api.bound.values()], "a device of one's own needs no share"
    (waits,) = (name for name in ("p0", "p1") if name not in api.bound)
    assert "enable its feature gate DRAConsumableCapacity" in api.messages[waits]
    assert () == results(api, claim(f"c{waits[1]}")), "it keeps nobody from the device"


def test_an_amount_below_zero_gives_nobody_more() -> None:
    """The API lets it through; five claims must not have ten times what there is."""
    shared = device_slice("n1", device("gpu-0", "10Gi", shared=True))
    less = [claim("less", request(memory="-90Gi")), claiming("p-less", "less")]
    api = cluster(shared, *less, *taking(3, memory="10Gi"))
    assert {"p0": "n1"} == api.bound


def matched(requests: list[Any], *devices: list[int]) -> Agreeing:
    """A claim whose devices are of one x, where these nodes have devices of these."""
    slices = [
        device_slice(
            f"n{i}", *(device(f"d{j}", attributes={"x": {"int": x}}) for j, x in enumerate(values))
        )
        for i, values in enumerate(devices, 1)
    ]
    alike = [{"matchAttribute": f"{GPU}/x"}]
    return cluster(*slices, claim("c1", *requests, constraints=alike), claiming())


ALL = {"deviceClassName": "gpu", "allocationMode": "All"}


def test_what_all_devices_of_one_node_cannot_be_those_of_another_may() -> None:
    api = matched([{"name": "r", "exactly": ALL}], [1, 2], [1, 1])
    assert {"p1": "n2"} == api.bound


def test_where_all_do_not_fit_together_another_alternative_may_do() -> None:
    one = {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    choice = {"name": "r", "firstAvailable": [{"name": "all", **ALL}, one]}
    assert {"p1": "n1"} == matched([choice], [1, 2]).bound


def test_that_all_do_not_fit_together_is_told_where_nothing_will_do() -> None:
    api = matched([{"name": "r", "exactly": ALL}], [1, 2])
    assert "because a claim constraint would not be satisfied" in api.messages["p1"]


def test_a_node_whose_pool_is_not_all_there_keeps_nobody_from_another() -> None:
    half = device_slice("n1", device("d0"))
    two = msgspec.structs.replace(half.spec.pool, resource_slice_count=2)
    half = msgspec.structs.replace(half, spec=msgspec.structs.replace(half.spec, pool=two))
    wanted = claim("c1", {"name": "r", "exactly": ALL})
    api = cluster(half, device_slice("n2", device("d0")), wanted, claiming())
    assert {"p1": "n2"} == api.bound


@pytest.mark.behaviour("S2.37")
def test_nobody_is_evicted_for_one_who_only_looks() -> None:
    shared = device_slice("n1", device("gpu-0", "10Gi", shared=True))
    look = claim("look", request(adminAccess=True, memory="1Gi"))
    api = cluster(shared, *taking(1, memory="10Gi"), nodes=("n1",))
    api.put(look)
    api.put(claiming("admin", "look", priority=1000))
    assert ["p0"] == [*api.bound]
    assert not [write for write in api.writes if isinstance(write, DeletePod)]
