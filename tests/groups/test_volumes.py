"""Groups whose pods have volumes of their own."""

from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.framework.writes import PatchObject
from stower.model.kinds import PersistentVolumeClaim, Pod, StorageClass
from tests.builders import make_node
from tests.device_builders import (
    Agreeing,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.group_builders import RACK, make_group, members

PODS = 24


def storage_class(name: str = "fast", zone: str = "") -> StorageClass:
    """A class of volumes that are made where the pod goes, or in a zone only."""
    only = [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}] if zone else None
    data = {
        "metadata": {"name": name},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": only,
    }
    return msgspec.convert(data, StorageClass)


def ephemeral_claim(pod: Pod, **annotations: str) -> PersistentVolumeClaim:
    """The claim that a controller made for the pod's ephemeral volume."""
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
    made: dict[str, Any] = {
        "name": f"{meta.name}-data", "namespace": meta.namespace, "uid": f"v-{meta.name}",
        "resourceVersion": "1", "ownerReferences": [{**owner, "controller": True}],
        "annotations": annotations,
    }  # fmt: skip
    spec = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return msgspec.convert({"metadata": made, "spec": spec}, PersistentVolumeClaim)


def test_pods_that_differ_in_the_names_of_their_own_volumes_are_alike_in_the_search() -> None:
    """Two pods share the device of a node, which only the plugin of devices knows: what one pod
    taught is known of all, else each three of them are tried in the rack of one node."""
    pods = [
        pod
        for i in range(PODS)
        for pod in members(
            "g", 1, first=i, cpu="1", volumes=[{"name": "data", "ephemeral": {}}],
            resourceClaims=[{"name": "d", "resourceClaimName": f"c{i}"}],
        )
    ]  # fmt: skip
    api = Agreeing(
        build_engine(),
        make_node("n1", cpu="3", labels={RACK: "a"}),
        make_node("n2", cpu="2", labels={RACK: "b"}),
        make_node("n3", cpu="1", labels={RACK: "b"}),
        *(device_slice(f"n{i}", device("a", "2Gi", shared=True)) for i in (1, 2, 3)),
        device_class(),
        storage_class(),
        *(resource_claim(f"c{i}", request(memory="1Gi")) for i in range(PODS)),
        *(ephemeral_claim(pod) for pod in pods),
        *pods,
        make_group("g", 3, key=RACK),
    )
    chosen = {write.name for write in api.writes if isinstance(write, PatchObject)}
    assert 3 == len({name for name in chosen if name.endswith("-data")}), api.messages


def test_pods_whose_volumes_are_of_other_classes_are_not_alike() -> None:
    """The old annotation goes before the field, and says where the volume can be made."""
    pods = members("g", 3, cpu="1", volumes=[{"name": "data", "ephemeral": {}}])
    beta = "volume.beta.kubernetes.io/storage-class"
    claims = [ephemeral_claim(p, **{beta: n}) for p, n in zip(pods, "baa", strict=True)]
    api = Agreeing(
        build_engine(),
        *(
            make_node(f"{zone}{rack}", cpu=cpu, labels={RACK: rack, "zone": zone})
            for rack in ("r1", "r2")
            for zone, cpu in (("a", "2"), ("b", "1"))
        ),
        storage_class("a", "a"), storage_class("b", "b"), *claims, *pods,
        make_group("g", 3, key=RACK),
    )  # fmt: skip
    chosen = {write.name for write in api.writes if isinstance(write, PatchObject)}
    assert 3 == len({name for name in chosen if name.endswith("-data")}), api.messages
