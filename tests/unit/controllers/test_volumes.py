"""Claims and volumes find each other as a cluster's binder has it."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, pools

Object = dict[str, Any]
CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses"
BETA = "volume.beta.kubernetes.io/storage-class"
NODE = "volume.kubernetes.io/selected-node"
DEFAULT = "storageclass.kubernetes.io/is-default-class"


def claim(name: str, size: str = "1Gi", **spec: Any) -> Object:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": {**wanted, **spec}}


def volume(name: str, size: str = "1Gi", **spec: Any) -> Object:
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
             "hostPath": {"path": f"/{name}"}}  # fmt: skip
    return {"metadata": {"name": name}, "spec": {**given, **spec}}


def storage_class(name: str, mode: str = "Immediate", **more: Any) -> Object:
    meta: Object = {"name": name, **more.pop("meta", {})}
    given = {"provisioner": "stower.dev/volumes", "volumeBindingMode": mode, **more}
    return {"metadata": meta, **given}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(pools(1), scheduler=False)


def bound(cluster: Cluster) -> dict[str, str | None]:
    """The volume of each claim that is bound."""
    cluster.advance(5)
    found = cluster.all(CLAIMS)
    return {
        name: one["spec"]["volumeName"]
        for name, one in found.items()
        if one["status"].get("phase") == "Bound"
    }


def events(cluster: Cluster, name: str) -> list[tuple[str, str, str]]:
    """Type, reason and message of the Events about a claim, oldest first."""
    items = cluster.get("/api/v1/namespaces/default/events")["items"]
    own = [one for one in items if one["involvedObject"]["name"] == name]
    return [(one["type"], one["reason"], one["message"]) for one in own]


def test_claims_and_volumes_that_name_each_other(cluster: Cluster) -> None:
    """A claim that names its volume, a volume that names its claim, and classes by annotation."""
    cluster.create(VOLUMES, volume("pv-a"), "")
    reserved = {"namespace": "default", "name": "b"}
    cluster.create(VOLUMES, volume("pv-b", "3Gi", claimRef=reserved), "")
    beta = volume("pv-c")
    beta["metadata"]["annotations"] = {BETA: "fast"}
    cluster.create(VOLUMES, beta, "")
    cluster.create(CLAIMS, claim("a", volumeName="pv-a", storageClassName=""))
    cluster.create(CLAIMS, claim("b", storageClassName=""))
    fast = claim("c")
    fast["metadata"]["annotations"] = {BETA: "fast"}
    cluster.create(CLAIMS, fast)
    assert {"a": "pv-a", "b": "pv-b", "c": "pv-c"} == bound(cluster)
    marks = [one["metadata"].get("annotations") or {} for one in cluster.all(CLAIMS).values()]
    assert all("pv.kubernetes.io/bind-completed" in mark for mark in marks)
    assert "pv.kubernetes.io/bound-by-controller" not in marks[0], "its user chose"
    assert {"Bound"} == {one["status"]["phase"] for one in cluster.all(VOLUMES, "").values()}


def test_one_volume_is_not_given_to_two_claims(cluster: Cluster) -> None:
    """Even where both have come before the volume; the other waits, and gets the next."""
    for name in ("a", "b"):
        cluster.create(CLAIMS, claim(name, storageClassName=""))
    cluster.create(VOLUMES, volume("first"), "")
    assert 1 == len(bound(cluster))
    cluster.create(VOLUMES, volume("second"), "")
    assert {"first", "second"} == set(bound(cluster).values())


def test_the_smallest_volume_that_is_large_enough(cluster: Cluster) -> None:
    for name, size in (("large", "9Gi"), ("small", "1Gi"), ("right", "3Gi"), ("more", "5Gi")):
        cluster.create(VOLUMES, volume(name, size), "")
    wide = volume("wide", "2Gi")
    wide["spec"]["accessModes"] = ["ReadWriteOnce", "ReadOnlyMany"]
    cluster.create(VOLUMES, wide, "")
    cluster.create(CLAIMS, claim("c", "2Gi", storageClassName=""))
    assert {"c": "right"} == bound(cluster), "of those with its access mode alone"


@pytest.mark.parametrize(
    ("given", "wanted", "fault"),
    [
        ({"capacity": {"storage": "1Gi"}}, {}, "requested PV is too small"),
        ({"storageClassName": "x"}, {}, "storageClassName does not match"),
        ({"volumeMode": "Block"}, {}, "incompatible volumeMode"),
        ({}, {"accessModes": ["ReadWriteMany"]}, "incompatible accessMode"),
    ],
)
def test_a_volume_that_does_not_suit_is_told(
    cluster: Cluster, given: Object, wanted: Object, fault: str
) -> None:
    cluster.create(VOLUMES, volume("pv", "2Gi", **given), "")
    made = claim("c", "2Gi", **{"volumeName": "pv", "storageClassName": "", **wanted})
    cluster.create(CLAIMS, made)
    assert {} == bound(cluster)
    text = f'Cannot bind to requested volume "pv": {fault}'
    assert [("Warning", "VolumeMismatch", text)] == events(cluster, "c")
    assert "Pending" == cluster.one(CLAIMS, "c")["status"]["phase"]


def test_a_volume_of_another_claim_is_told_once(cluster: Cluster) -> None:
    cluster.create(VOLUMES, volume("pv", claimRef={"namespace": "default", "name": "b"}), "")
    cluster.create(CLAIMS, claim("a", volumeName="pv", storageClassName=""))
    assert {} == bound(cluster)
    cluster.create(VOLUMES, volume("other"), "")
    cluster.advance(60)
    text = 'volume "pv" already bound to a different claim.'
    assert [("Warning", "FailedBinding", text)] == events(cluster, "a")


def test_a_claim_without_a_class_gets_the_default_one_later(cluster: Cluster) -> None:
    """And one that wants none does not."""
    cluster.create(CLAIMS, claim("old"))
    cluster.create(CLAIMS, claim("none", storageClassName=""))
    text = "no persistent volumes available for this claim and no storage class is set"
    assert [("Normal", "FailedBinding", text)] == events(cluster, "old")
    cluster.create(CLASSES, storage_class("std", meta={"annotations": {DEFAULT: "true"}}), "")
    assert ["old"] == [*bound(cluster)]
    assert "std" == cluster.one(CLAIMS, "old")["spec"]["storageClassName"]
    assert ("Normal", "ProvisioningSucceeded") == events(cluster, "old")[-1][:2]


@pytest.mark.parametrize(
    ("policy", "phase"), [("Retain", "Released"), ("Recycle", "Available"), ("Delete", None)]
)
def test_what_becomes_of_a_volume_without_its_claim(
    cluster: Cluster, policy: str, phase: str | None
) -> None:
    cluster.create(VOLUMES, volume("pv", persistentVolumeReclaimPolicy=policy), "")
    cluster.create(CLAIMS, claim("c", storageClassName=""))
    assert {"c": "pv"} == bound(cluster)
    cluster.delete(CLAIMS, "c")
    cluster.advance(5)
    left = cluster.all(VOLUMES, "")
    assert phase == (left["pv"]["status"]["phase"] if left else None)
    cluster.create(CLAIMS, claim("c", storageClassName=""))
    assert ({"c": "pv"} if policy == "Recycle" else {}) == bound(cluster), "another claim by name"


def test_a_claim_whose_volume_is_gone_is_lost(cluster: Cluster) -> None:
    cluster.create(VOLUMES, volume("pv"), "")
    cluster.create(CLAIMS, claim("c", storageClassName=""))
    assert {"c": "pv"} == bound(cluster)
    cluster.ask("DELETE", f"/api/v1/{VOLUMES}/pv")
    made = cluster.get(f"/api/v1/{VOLUMES}/pv")
    made["metadata"]["finalizers"] = []
    cluster.ask("PUT", f"/api/v1/{VOLUMES}/pv", made)
    cluster.settle()
    cluster.advance(5)
    assert "Lost" == cluster.one(CLAIMS, "c")["status"]["phase"]
    assert ("Warning", "ClaimLost") == events(cluster, "c")[-1][:2]


def test_a_class_that_does_not_exist_or_is_anothers_is_told(cluster: Cluster) -> None:
    cluster.create(CLAIMS, claim("a", storageClassName="nowhere"))
    cluster.create(CLASSES, {**storage_class("theirs"), "provisioner": "example.com/p"}, "")
    cluster.create(CLAIMS, claim("b", storageClassName="theirs"))
    cluster.advance(60)
    assert ("Warning", "ProvisioningFailed") == events(cluster, "a")[-1][:2]
    (told,) = events(cluster, "b")
    assert ("Normal", "ExternalProvisioning") == told[:2]
    assert "'example.com/p'" in told[2]


@pytest.mark.parametrize(
    ("provisioner", "told"),
    [
        ("ebs.csi.aws.com", "ebs.csi.aws.com"),
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("stower.dev/volumes", "stower.dev/volumes"),
    ],
)
def test_claims_name_their_provisioner(cluster: Cluster, provisioner: str, told: str) -> None:
    """External provisioners ignore claims that do not name them."""
    for mode in ("Immediate", "WaitForFirstConsumer"):
        made = {**storage_class(mode.lower(), mode), "provisioner": provisioner}
        cluster.create(CLASSES, made, "")
        cluster.create(CLAIMS, claim(mode.lower(), storageClassName=mode.lower()))
    cluster.advance(5)
    marks = cluster.one(CLAIMS, "immediate")["metadata"]["annotations"]
    for name in ("volume.kubernetes.io", "volume.beta.kubernetes.io"):
        assert told == marks[f"{name}/storage-provisioner"]
    waits = cluster.one(CLAIMS, "waitforfirstconsumer")["metadata"]
    assert "annotations" not in waits, "no pod uses it yet"
    cluster.patch(CLAIMS, waits["name"], {"metadata": {"annotations": {NODE: "node-1"}}})
    cluster.advance(5)
    marks = cluster.one(CLAIMS, waits["name"])["metadata"]["annotations"]
    assert told == marks["volume.kubernetes.io/storage-provisioner"]


def test_a_class_without_a_provisioner_provisions_nothing(cluster: Cluster) -> None:
    made = {**storage_class("local"), "provisioner": "kubernetes.io/no-provisioner"}
    cluster.create(CLASSES, made, "")
    cluster.create(CLAIMS, claim("c", storageClassName="local"))
    cluster.advance(5)
    text = "no volume plugin matched name: kubernetes.io/no-provisioner"
    assert [("Warning", "ProvisioningFailed", text)] == events(cluster, "c")
    assert "annotations" not in cluster.one(CLAIMS, "c")["metadata"]
    assert "Pending" == cluster.one(CLAIMS, "c")["status"]["phase"]


def test_many_claims_do_not_ask_for_the_same_volume(cluster: Cluster) -> None:
    """All chose the smallest one, and those that lost waited longer each time."""
    for i in range(20):
        status, _ = cluster.ask("POST", f"/api/v1/{VOLUMES}", volume(f"v{i:02}"))
        assert 201 == status
    for i in range(20):
        path = f"/api/v1/namespaces/default/{CLAIMS}"
        assert 201 == cluster.ask("POST", path, claim(f"c{i:02}", storageClassName=""))[0]
    cluster.settle()
    assert 20 == len(set(bound(cluster).values()))
    assert [] == [one for one in cluster.requests if one[2] == 409]
