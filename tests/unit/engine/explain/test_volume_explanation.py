"""What the volume claims of a pod lack, volume by volume."""

from typing import Any

import msgspec
import pytest

from stower.engine.explain.explanation import Explanation
from stower.model.kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from stower.model.kinds.storage import CSIDriver
from tests.builders import make_node, make_pod
from tests.unit.engine.explain.test_explanation import ask

HOST = "kubernetes.io/hostname"
N1, N2 = (make_node(name, labels={HOST: name}) for name in ("n1", "n2"))
POD = make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
LATE = {"volumeBindingMode": "WaitForFirstConsumer"}


def claim(name: str = "c", **spec: Any) -> PersistentVolumeClaim:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
              "storageClassName": "gold", **spec}  # fmt: skip
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": wanted},
        PersistentVolumeClaim,
    )


def volume(name: str, node: str = "", labels: Any = None, **spec: Any) -> PersistentVolume:
    full = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gold", **spec}  # fmt: skip
    if node:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
        full["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return msgspec.convert(
        {"metadata": {"name": name, "uid": name, "labels": labels or {}}, "spec": full,
         "status": {"phase": "Available"}},
        PersistentVolume,
    )  # fmt: skip


def storage_class(provisioner: str = "", **fields: Any) -> StorageClass:
    return msgspec.convert(
        {"metadata": {"name": "gold"}, "provisioner": provisioner or "kubernetes.io/no-provisioner",
         "volumeBindingMode": "Immediate", **fields},
        StorageClass,
    )  # fmt: skip


def details(found: Explanation) -> list[str]:
    (refusal,) = (r for r in found.refused if r.plugin.startswith("Volume"))
    return list(refusal.details)


def test_a_missing_claim_is_named() -> None:
    found = ask(POD, N1)
    assert ["claim default/c does not exist"] == details(found)
    assert 'persistentvolumeclaim "c" not found' in found.message, "as kube-scheduler says it"


@pytest.mark.parametrize(
    ("other", "wanted", "fault"),
    [
        ({"capacity": {"storage": "1Gi"}}, {}, "only 1Gi"),
        ({"storageClassName": "silver"}, {}, "class silver instead of gold"),
        ({}, {"accessModes": ["ReadWriteMany"]}, "no access mode ReadWriteMany"),
        ({"volumeMode": "Block"}, {}, "volume mode Block instead of Filesystem"),
        ({}, {"volumeAttributesClassName": "x"}, "attributes class none instead of x"),
        (
            {},
            {"selector": {"matchLabels": {"a": "b"}}},
            "its labels do not match the claim's selector",
        ),
        (
            {"claimRef": {"namespace": "default", "name": "other", "uid": "u"}},
            {},
            "it is for claim default/other",
        ),
    ],
)
def test_what_is_in_the_way_of_a_volume_is_named(other: Any, wanted: Any, fault: str) -> None:
    found = ask(POD, N1, claim(**wanted), storage_class(), volume("pv", **other))
    first, second = details(found)
    assert first.endswith(f"is not bound: no volume fits (pv: {fault})")
    assert "  StorageClass gold has no provisioner: somebody has to create a volume" == second
    assert "pod has unbound immediate PersistentVolumeClaims" in found.message


def test_the_volumes_that_come_closest_are_shown() -> None:
    small = [volume(f"a{number}", capacity={"storage": "1Gi"}) for number in range(4)]
    far = volume("z", capacity={"storage": "1Gi"}, volumeMode="Block")
    first, _ = details(ask(POD, N1, claim(), storage_class(), far, *small))
    assert first.endswith("(a0: only 1Gi; a1: only 1Gi; a2: only 1Gi; 2 more)")


def test_a_missing_class_is_named() -> None:
    first, second = details(ask(POD, N1, claim()))
    assert (
        "claim default/c (5Gi, ReadWriteOnce, class gold) is not bound: there are no volumes"
        == first
    )
    assert "  StorageClass gold does not exist" == second


def test_without_a_class_nobody_makes_a_volume() -> None:
    found = details(ask(POD, N1, claim(storageClassName=None)))
    assert "  it has no StorageClass, so nobody makes a volume for it" == found[1]


def test_a_provisioner_that_nobody_knows_is_named() -> None:
    _, second, third = details(ask(POD, N1, claim(), storage_class("disk.example.com")))
    assert "  provisioner disk.example.com of StorageClass gold has to make a volume" == second
    assert "  no CSIDriver and no CSINode names disk.example.com: it may not be installed" == third
    driver = msgspec.convert({"metadata": {"name": "disk.example.com"}}, CSIDriver)
    assert 2 == len(details(ask(POD, N1, claim(), storage_class("disk.example.com"), driver)))
    assert 2 == len(details(ask(POD, N1, claim(), storage_class("stower.dev/volumes"))))


def test_a_claim_that_waits_for_a_node_names_the_volumes_of_that_node() -> None:
    found = ask(POD, N2, claim(), storage_class(**LATE), volume("pv", "n1"))
    first, _ = details(found)
    assert first.endswith("(pv: not reached from n2, only from no node)")
    other = make_node("n1", labels={HOST: "n1"}, unschedulable=True)
    first, _ = details(ask(POD, N2, other, claim(), storage_class(**LATE), volume("pv", "n1")))
    assert first.endswith("(pv: not reached from n2, only from n1)")


def test_topologies_of_a_class_exclude_nodes() -> None:
    term = {"matchLabelExpressions": [{"key": HOST, "values": ["n1"]}]}
    made = storage_class("disk.example.com", **LATE, allowedTopologies=[term])
    found = details(ask(POD, N2, claim(), made))
    assert "  StorageClass gold makes no volumes on n2: its allowedTopologies" == found[1]


def test_two_claims_cannot_have_one_volume() -> None:
    names = ("c", "d")
    pod = make_pod(volumes=[{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names])
    found = ask(pod, N1, claim("c"), claim("d"), storage_class(**LATE), volume("pv"))
    assert ["its claims fit the same volumes: there are not enough of them for all"] == (
        details(found)
    )


def test_a_claim_that_names_its_volume_says_what_is_wrong_with_it() -> None:
    named = claim(volumeName="pv")
    assert ["claim default/c names volume pv, which does not exist"] == (
        details(ask(POD, N1, named, storage_class()))
    )
    small = volume("pv", capacity={"storage": "1Gi"})
    assert ["claim default/c names volume pv: only 1Gi"] == (
        details(ask(POD, N1, named, storage_class(), small))
    )


def test_a_bound_volume_out_of_reach_names_the_nodes_that_reach_it() -> None:
    bound = claim(volumeName="pv")
    meta = msgspec.structs.replace(
        bound.metadata, annotations={"pv.kubernetes.io/bind-completed": "yes"}
    )
    bound = msgspec.structs.replace(bound, metadata=meta)
    reference = {"namespace": "default", "name": "c", "uid": "c"}
    other = make_node("n1", labels={HOST: "n1"}, unschedulable=True)
    found = ask(POD, N2, other, bound, volume("pv", "n1", claimRef=reference))
    assert ["claim default/c is bound to volume pv, reached from n1"] == details(found)
