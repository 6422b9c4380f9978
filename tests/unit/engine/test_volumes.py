"""Volumes through the engine's one entry: what is written, what is waited for, what wakes."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.decisions import Outcome
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, CreateEvent, PatchObject, PatchPodStatus, Write
from stower.model.kinds import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from tests.builders import make_node, make_pod

ADDED, MODIFIED, DELETED = WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED
HOST = "kubernetes.io/hostname"


def storage_class(name: str = "late", mode: str = "WaitForFirstConsumer", **fields: Any) -> Any:
    meta = {"name": name, "uid": f"class-{name}"}
    data = {"metadata": meta, "provisioner": "p", "volumeBindingMode": mode, **fields}
    return msgspec.convert(data, StorageClass)


def claim(
    name: str = "data", *, bound: str = "", selected: str = "", version: str = "1", **spec: Any
) -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    if selected:
        annotations["volume.kubernetes.io/selected-node"] = selected
    meta = {"name": name, "namespace": "default", "uid": f"claim-{name}",
            "resourceVersion": version, "annotations": annotations}  # fmt: skip
    wanted = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "volumeName": bound,
              "resources": {"requests": {"storage": "5Gi"}}, **spec}  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": wanted}, PersistentVolumeClaim)


def volume(name: str, size: str = "10Gi", node: str = "", **spec: Any) -> PersistentVolume:
    own = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"],
           "capacity": {"storage": size}, **spec}  # fmt: skip
    if node:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        own["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    meta = {"name": name, "uid": f"volume-{name}", "resourceVersion": "1"}
    return msgspec.convert(
        {"metadata": meta, "spec": own, "status": {"phase": "Available"}}, PersistentVolume
    )


def pod(name: str = "p1", *claims: str, **fields: Any) -> Pod:
    sources = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims or ("data",)]
    return make_pod(name, volumes=sources, **fields)


def engine_with(*objects: Any) -> Engine:
    engine = build_engine()
    nodes = [make_node(n, labels={HOST: n}) for n in ("n1", "n2")]
    engine.step(Listed((*nodes, *objects)), 0)
    return engine


def see(engine: Engine, obj: Any, type: WatchType = ADDED) -> list[Write]:
    return engine.step(Observed(type, obj), engine.now_ns)


def patches(writes: list[Write]) -> list[tuple[str, dict[str, Any]]]:
    return [(w.name, w.patch) for w in writes if isinstance(w, PatchObject)]


def bound(writes: list[Write]) -> list[tuple[str, str]]:
    return [(w.name, w.node_name) for w in writes if isinstance(w, Bind)]


def told(engine: Engine) -> list[str]:
    return [d.message for d in engine.drain()]


def ok(engine: Engine, writes: list[Write]) -> list[Write]:
    return [w for write in writes for w in engine.step(WriteOk(write.id), engine.now_ns)]


def test_a_volume_is_made_for_the_chosen_node_before_the_pod_is_bound() -> None:
    engine = engine_with(storage_class(), claim())
    writes = see(engine, pod())
    (promise,) = [w for w in writes if isinstance(w, PatchPodStatus)]
    node = promise.nominated_node_name
    assert node in ("n1", "n2")
    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}}
    assert [("data", selected)] == patches(writes)
    assert [] == bound(writes)
    assert [] == ok(engine, writes)  # accepted, but not bound yet
    assert [] == see(engine, claim(selected=str(node), version="2"), MODIFIED)
    done = claim(selected=str(node), bound="pv", version="3")
    see(engine, volume("pv"))
    assert [("p1", node)] == bound(see(engine, done, MODIFIED))


def test_the_smallest_volume_in_reach_is_bound_to_the_claim() -> None:
    engine = engine_with(
        storage_class(), claim(), volume("large", "20Gi", "n1"), volume("small", "6Gi", "n1"),
        volume("tiny", "1Gi", "n1"), make_pod("busy", cpu="4", node="n2"),
    )  # fmt: skip
    ((name, patch),) = patches(see(engine, pod()))
    assert ("small", "claim-data") == (name, patch["spec"]["claimRef"]["uid"])
    assert {"pv.kubernetes.io/bound-by-controller": "yes"} == patch["metadata"]["annotations"]


def test_two_pods_do_not_count_on_the_same_volume() -> None:
    none = storage_class(provisioner="kubernetes.io/no-provisioner")
    engine = engine_with(none, claim("a"), claim("b"), volume("v", node="n1"))
    assert ["v"] == [name for name, _ in patches(see(engine, pod("p1", "a")))]
    assert [] == patches(see(engine, pod("p2", "b")))
    assert "node(s) didn't find available persistent volumes to bind" in told(engine)[-1]


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        ("refused", "conflict"),
        ("reset", 'binding volumes: provisioning failed for PVC "data"'),
        ("claim gone", "binding volumes: failed to check provisioning pvc: persistentvolumeclaim"),
        ("late", "binding volumes: context deadline exceeded"),
    ],
)
def test_what_keeps_volumes_from_being_bound_sends_the_pod_back(happens: str, why: str) -> None:
    engine = engine_with(storage_class(), claim())
    writes = see(engine, pod())
    (asked,) = [w for w in writes if isinstance(w, PatchObject)]
    if happens == "refused":
        after = engine.step(WriteFailed(asked.id, 409, "conflict"), 1)
    else:
        ok(engine, writes)
        if happens == "reset":
            after = see(engine, claim(version="3"), MODIFIED)
        elif happens == "claim gone":
            after = see(engine, claim(), DELETED)
        else:
            assert 600 * SECOND_NS == engine.next_wake_ns
            after = engine.step(Tick(), 600 * SECOND_NS)
    (patch,) = [w for w in after if isinstance(w, PatchPodStatus)]
    assert patch.condition is not None
    assert "SchedulerError" == patch.condition.reason
    assert patch.condition.message.startswith(f'running PreBind plugin "VolumeBinding": {why}')
    assert "" == patch.nominated_node_name
    assert [Outcome.PLACED, Outcome.ERROR] == [d.outcome for d in engine.drain()]
    assert (
        0
        == engine.state.columns["pods"].requested_cells[0]
        + engine.state.columns["pods"].requested_cells[1]
    )


def test_a_pod_that_is_preempted_before_it_is_bound_gives_its_node_up() -> None:
    engine = engine_with(storage_class(), claim(), make_pod("full", cpu="4", node="n2", priority=9))
    see(engine, pod("low", cpu="4"))
    writes = see(engine, make_pod("high", cpu="4", priority=5))
    notes = [w.note for w in writes if isinstance(w, CreateEvent) and w.name == "low"]
    assert any(note.endswith("(in kube-scheduler memory).") for note in notes)
    assert [("high", "n1")] == bound(writes)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim(storageClassName="now"), storage_class("now", "Immediate")],
         "pod has unbound immediate PersistentVolumeClaims"),
        ([claim(bound="gone"), storage_class()], 'persistentvolume "gone" not found'),
        ([claim(bound="far"), storage_class(), volume("far", node="n3")],
         "2 node(s) didn't match PersistentVolume's node affinity"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(objects: list[Any], why: str) -> None:
    engine = engine_with(*objects)
    see(engine, pod())
    assert f"0/2 nodes are available: {why}." in told(engine)[-1]


def test_a_claim_for_one_pod_alone_keeps_others_off_until_its_pod_is_gone() -> None:
    alone = claim(bound="v", accessModes=["ReadWriteOncePod"])
    first = pod("first", node="n1")
    engine = engine_with(storage_class(), alone, volume("v"), first)
    assert [] == bound(see(engine, pod("second")))
    assert "ReadWriteOncePod access mode already in-use by another pod" in told(engine)[-1]
    assert ["second"] == [name for name, _ in bound(see(engine, first, DELETED))]


def test_a_pod_of_higher_priority_evicts_the_user_of_a_claim_for_one_pod_alone() -> None:
    alone = claim(bound="v", accessModes=["ReadWriteOncePod"])
    engine = engine_with(storage_class(), alone, volume("v"), pod("first", node="n1"))
    writes = see(engine, pod("second", priority=5))
    assert ["second", "first"] == [w.name for w in writes if isinstance(w, PatchPodStatus)]


def limits(count: int) -> CSINode:
    drivers = [{"name": "d", "allocatable": {"count": count}}]
    return msgspec.convert(
        {"metadata": {"name": "n1", "uid": "csi"}, "spec": {"drivers": drivers}}, CSINode
    )


def test_no_more_volumes_than_the_driver_takes() -> None:
    csi = {"csi": {"driver": "d", "volumeHandle": "a"}}
    other = {"csi": {"driver": "d", "volumeHandle": "b"}}
    engine = build_engine()
    engine.step(Listed((
        make_node("n1"), storage_class(), limits(1), volume("a", **csi), volume("b", **other),
        claim("a", bound="a"), claim("b", bound="b"), pod("there", "a", node="n1"),
    )), 0)  # fmt: skip
    assert ["again"] == [name for name, _ in bound(see(engine, pod("again", "a")))]  # the same one
    assert [] == bound(see(engine, pod("new", "b")))
    assert "1 node(s) exceed max volume count" in told(engine)[-1]
    assert ["new"] == [name for name, _ in bound(see(engine, limits(2), MODIFIED))]


def test_a_list_tells_what_has_changed_of_volumes() -> None:
    engine = engine_with(storage_class())
    see(engine, pod())
    nodes = [make_node(n, labels={HOST: n}) for n in ("n1", "n2")]
    writes = engine.step(Listed((*nodes, pod(), storage_class(), claim(bound="v"), volume("v"))), 1)
    assert ["p1"] == [name for name, _ in bound(writes)]
    engine.step(Listed((*nodes,)), 2)
    assert [] == [*engine.state.volumes.api_objects()]


CAPACITY = {"metadata": {"name": "c", "namespace": "x", "uid": "c"}, "storageClassName": "late",
            "nodeTopology": {}}  # fmt: skip


def capacity(size: str) -> CSIStorageCapacity:
    return msgspec.convert({**CAPACITY, "capacity": size}, CSIStorageCapacity)


DRIVER = {"metadata": {"name": "p", "uid": "driver"}, "spec": {"storageCapacity": True}}


def test_space_that_a_driver_has_left_counts_and_more_of_it_wakes() -> None:
    from stower.model.kinds import CSIDriver

    engine = engine_with(
        storage_class(), claim(), msgspec.convert(DRIVER, CSIDriver), capacity("1Gi")
    )
    assert [] == patches(see(engine, pod()))
    assert "2 node(s) did not have enough free storage" in told(engine)[-1]
    assert [] == see(engine, capacity("500Mi"), MODIFIED)  # less does not help
    assert [] == told(engine)
    assert ["data"] == [name for name, _ in patches(see(engine, capacity("9Gi"), MODIFIED))]


def test_what_refuses_one_pod_for_its_volume_does_not_keep_another_from_evicting() -> None:
    """Both have one shape and priority, and somebody is promised room on the node."""
    claims = [claim("there", bound="v2"), claim("here", bound="v1")]
    volumes = [
        volume(f"v{i}", node=f"n{i}", claimRef={"namespace": "default", "name": name, "uid": ""})
        for i, name in ((1, "here"), (2, "there"))
    ]
    promised = make_pod(
        "promised", cpu="100m", priority=20, nominated="n1", schedulingGates=[{"name": "later"}]
    )
    full = [make_pod("low", cpu="3", node="n1"), make_pod("top", cpu="4", node="n2", priority=99)]
    engine = engine_with(storage_class(), *claims, *volumes, promised, *full)
    first = see(engine, pod("first", "there", cpu="2", priority=10))
    assert [""] == [w.nominated_node_name or "" for w in first if isinstance(w, PatchPodStatus)]
    second = see(engine, pod("second", "here", cpu="2", priority=10))
    assert "n1" in [w.nominated_node_name for w in second if isinstance(w, PatchPodStatus)]
