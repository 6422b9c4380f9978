"""Negotiated claims of pods that also need volumes, or devices that the scheduler allocates."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stower.framework.writes import Bind, PatchObject
from stower.model.kinds import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ResourceClaim,
    StorageClass,
)
from tests.builders import make_node, make_pod
from tests.device_builders import device, device_class, device_slice, request, resource_claim
from tests.negotiation.scenes import Scene, at_each_step

FABRIC = "fabric.example.com"
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"


def volumes(scene: Scene, *names: str) -> None:
    """A class whose volumes are made for a node once it is chosen, and a claim of it."""
    for name in names:
        scene.server.put(make_node(name, labels={HOST: name}))
        scene.put(CSINode, {"metadata": {"name": name, "uid": f"csi-{name}"}, "spec": {}})
    late = {"metadata": {"name": "late", "uid": "late"}, "provisioner": "p",
            "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    scene.put(StorageClass, late)
    wanted = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"],
              "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
    meta = {"name": "data", "namespace": "default", "uid": "data"}
    scene.put(PersistentVolumeClaim, {"metadata": meta, "spec": wanted})


def volume(scene: Scene, name: str, node: str, bound: bool = False) -> None:
    """A volume on one node, that the claim has or may have."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec: dict[str, Any] = {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }  # fmt: skip
    if bound:
        spec["claimRef"] = {"namespace": "default", "name": "data", "uid": "data"}
    phase = {"phase": "Bound" if bound else "Available"}
    meta = {"name": name, "uid": name}
    scene.put(PersistentVolume, {"metadata": meta, "spec": spec, "status": phase})


def provisioned(scene: Scene) -> bool:
    """The provisioner: makes what is asked for. Whether it had something to do."""
    claim = scene.server.get(PersistentVolumeClaim, "default/data")
    node = (claim.metadata.annotations or {}).get(SELECTED, "")
    if not node or claim.spec.volume_name:
        return False
    volume(scene, "made", node, bound=True)
    notes = {**claim.metadata.annotations, "pv.kubernetes.io/bind-completed": "yes"}
    meta = msgspec.structs.replace(claim.metadata, annotations=notes)
    spec = msgspec.structs.replace(claim.spec, volume_name="made")
    scene.server.put(msgspec.structs.replace(claim, metadata=meta, spec=spec))
    return True


def storage() -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def turn(scene: Scene, find: Callable[[Any], bool]) -> int:
    """When such a version of an object was first there."""
    return next(i for i, obj in enumerate(scene.seen) if find(obj))


def is_negotiated(obj: Any) -> bool:
    return isinstance(obj, ResourceClaim) and obj.metadata.name == "p-own0"


@pytest.mark.behaviour("S0.41")
def test_candidates_are_narrowed_by_the_pod_by_volumes_and_by_claims() -> None:
    scene = Scene(laws=False)
    names = [f"n{i}" for i in range(6)]
    volumes(scene, *names)
    volume(scene, "v1", "n1")
    volume(scene, "v2", "n2")
    volume(scene, "v3", "n3")
    late = scene.server.get(StorageClass, "late")
    scene.server.put(msgspec.structs.replace(late, provisioner="kubernetes.io/no-provisioner"))
    scene.server.put(make_node("n1", unschedulable=True, labels={HOST: "n1"}))
    scene.class_of("fabric")
    scene.claim("pinned")
    scene.allocate("pinned", "n2")
    scene.claim("c")
    scene.pod("a", "c", **storage())
    scene.pod("b", "c", "pinned")
    scene.pod("d", "c", "pinned", **storage())
    scene.settle()
    asked = {}
    for pod in "abd":
        said = scene.said(pod)
        assert said is not None
        asked[pod] = {*(said.spec.potential_nodes or ())}
    assert {"a": {"n2", "n3"}, "b": {"n2"}, "d": {"n2"}} == asked


@pytest.mark.behaviour("S0.41", "S0.27")
def test_volumes_are_provisioned_after_drivers_have_allocated_and_before_the_pod_is_bound() -> None:
    scene = Scene(laws=False, fabric={"n2": 1})
    volumes(scene, "n1", "n2")
    scene.others.append(lambda: provisioned(scene))
    scene.drivers[FABRIC].stop()
    scene.pod("p", own=["fabric"], **storage())
    scene.advance(20)
    claim = scene.server.get(PersistentVolumeClaim, "default/data")
    assert None is claim.metadata.annotations, "nothing is provisioned meanwhile"
    scene.drivers[FABRIC].start()
    scene.advance(5)
    assert "n2" == scene.node_of("p")
    allocated = turn(scene, lambda o: is_negotiated(o) and o.status.allocation is not None)
    asked = turn(
        scene,
        lambda o: (
            isinstance(o, PersistentVolumeClaim) and SELECTED in (o.metadata.annotations or {})
        ),
    )
    made = turn(scene, lambda o: isinstance(o, PersistentVolumeClaim) and bool(o.spec.volume_name))
    bound = turn(scene, lambda o: isinstance(o, Pod) and bool(o.spec.node_name))
    assert allocated < asked < made < bound


@pytest.mark.behaviour("S0.41")
def test_a_pod_waits_where_its_volume_is_and_its_device_is_not() -> None:
    scene = Scene(laws=False, fabric={"n2": 1})
    volumes(scene, "n1", "n2")
    volume(scene, "v1", "n1")
    late = scene.server.get(StorageClass, "late")
    scene.server.put(msgspec.structs.replace(late, provisioner="kubernetes.io/no-provisioner"))
    scene.pod("p", own=["fabric"], **storage())
    scene.advance(100)
    assert "" == scene.node_of("p")
    assert ([], [], ["p"]) == scene.rest()
    assert "on which fabric.example.com cannot allocate default/p-own0" in scene.message("p")
    assert "volume node affinity" in scene.message("p") or "didn't find" in scene.message("p")


def with_devices(nodes: str = "n1 n2", on: str = "n2") -> Scene:
    """One device that the scheduler allocates, and one of a driver on each node."""
    scene = Scene(*nodes.split(), laws=False, fabric={"n1": 1, "n2": 1})
    scene.server.put(device_class())
    scene.server.put(device_slice(on, device("g")))
    scene.server.put(resource_claim("listed", request()))
    scene.pod("p", "listed", own=["fabric"])
    return scene


@pytest.mark.behaviour("S0.1", "S0.27")
def test_the_scheduler_allocates_its_devices_after_the_drivers_have() -> None:
    scene = with_devices()
    scene.settle()
    assert "n2" == scene.node_of("p")
    theirs = turn(scene, lambda o: is_negotiated(o) and o.status.allocation is not None)
    ours = turn(
        scene,
        lambda o: (
            isinstance(o, ResourceClaim)
            and o.metadata.name == "listed"
            and o.status.allocation is not None
        ),
    )
    bound = turn(scene, lambda o: isinstance(o, Pod) and bool(o.spec.node_name))
    assert theirs < ours < bound


@pytest.mark.behaviour("S0.23", "S0.27")
def test_devices_that_others_took_meanwhile_send_the_claim_back() -> None:
    """The driver has allocated on n2; then the only listed device there is taken."""
    for step, scene in at_each_step(with_devices):
        if scene.node_of("p"):
            break
        scene.server.put(resource_claim("taken", request()))
        scene.pod("thief", "taken")
        scene.advance(100)
        placed = [pod for pod in ("p", "thief") if scene.node_of(pod)]
        assert 1 == len(placed), step
        want = ["listed", "p-own0"] if placed == ["p"] else ["taken"]
        assert want == scene.allocated(), step
        scene.delete(Pod, placed[0])
        scene.advance(400)
        other = ({"p", "thief"} - {placed[0]}).pop()
        assert "n2" == scene.node_of(other), step


def test_all_is_there_when_the_pod_is_bound_after_each_restart() -> None:
    for step, scene in at_each_step(with_devices):
        for process in scene.processes:
            process.stop()
            process.start()
        scene.advance(60)
        assert "n2" == scene.node_of("p"), step
        assert ["listed", "p-own0"] == scene.allocated(), step
        assert (["p"], ["p"]) == (scene.users("listed"), scene.users("p-own0")), step
        binds = [w for w in scene.writes if isinstance(w, Bind)]
        patches = [w for w in scene.writes if isinstance(w, PatchObject)]
        assert len(binds) <= 4, step
        assert len(patches) <= 12, step


def test_two_volumes_of_one_claim_are_one_to_wait_for() -> None:
    scene = Scene(laws=False)
    volumes(scene, "n1")
    scene.others.append(lambda: provisioned(scene))
    twice = [{"name": n, "persistentVolumeClaim": {"claimName": "data"}} for n in ("a", "b")]
    scene.server.put(make_pod("p", volumes=twice))
    scene.advance(60)
    assert "n1" == scene.node_of("p")
