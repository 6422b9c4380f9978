"""Claims that ask for more than they have."""

import json
from typing import Any

from tests.unit.controllers.cluster import Cluster, Object, pools
from tests.unit.controllers.test_volumes import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    bound,
    claim,
    events,
    storage_class,
    volume,
)

EXTERNAL = ("Normal", "ExternalExpanding", "waiting for an external controller to expand this PVC")


def started(**fields: Any) -> Cluster:
    """A cluster with a claim `c` that is bound."""
    cluster = Cluster(pools(1), scheduler=False)
    cluster.create(CLASSES, storage_class("std", allowVolumeExpansion=True), "")
    cluster.create(CLAIMS, claim("c", storageClassName="std", **fields))
    assert ["c"] == [*bound(cluster)]
    return cluster


def ask_for(cluster: Cluster, size: str) -> None:
    cluster.patch(CLAIMS, "c", {"spec": {"resources": {"requests": {"storage": size}}}})


def volume_of(cluster: Cluster) -> Object:
    return cluster.one(VOLUMES, cluster.one(CLAIMS, "c")["spec"]["volumeName"], "")


def test_a_claim_of_our_provisioner_grows() -> None:
    cluster = started()
    seen = []
    handle = cluster.actors.handle_event

    def watch(kind: str, type: Any, obj: Object) -> None:
        if kind == CLAIMS:
            seen.append(json.loads(json.dumps(obj["status"])))
        handle(kind, type, obj)

    cluster.actors.handle_event = watch  # type: ignore[method-assign]
    for size in ("3Gi", "3584Mi"):
        ask_for(cluster, size)
        status = cluster.one(CLAIMS, "c")["status"]
        assert {"storage": size} == status["capacity"] == status["allocatedResources"]
        assert not status.get("conditions")
        assert not status.get("allocatedResourceStatuses")
        assert {"storage": size} == volume_of(cluster)["spec"]["capacity"]
        cluster.advance(1)
    (between,) = [one for one in seen if one.get("conditions")][:1]
    assert ("Resizing", "True") == tuple(between["conditions"][0][k] for k in ("type", "status"))
    assert {"storage": "ControllerResizeInProgress"} == between["allocatedResourceStatuses"]
    assert {"storage": "1Gi"} == between["capacity"]
    name = volume_of(cluster)["metadata"]["name"]
    each = [
        EXTERNAL,
        ("Normal", "Resizing", f"External resizer is resizing volume {name}"),
        ("Normal", "VolumeResizeSuccessful", "Resize volume succeeded"),
    ]
    assert sorted(each * 2) == sorted(events(cluster, "c")[-6:])


def test_a_restart_amid_a_resize() -> None:
    cluster = started()
    path = f"/api/v1/persistentvolumes/{volume_of(cluster)['metadata']['name']}"
    cluster.failing.append(("PATCH", path))
    ask_for(cluster, "3Gi")
    assert {"storage": "1Gi"} == volume_of(cluster)["spec"]["capacity"]
    cluster.restart()
    cluster.advance(5)
    assert {"storage": "3Gi"} == cluster.one(CLAIMS, "c")["status"]["capacity"]


def test_a_claim_of_another_provisioner_waits_for_its_resizer() -> None:
    cluster = Cluster(pools(1), scheduler=False)
    made = {**storage_class("std", allowVolumeExpansion=True), "provisioner": "ebs.csi.aws.com"}
    cluster.create(CLASSES, made, "")
    csi = {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}
    theirs = volume("pv", "2Gi", csi=csi, storageClassName="std")
    del theirs["spec"]["hostPath"]
    cluster.create(VOLUMES, theirs, "")
    cluster.create(CLAIMS, claim("c", storageClassName="std"))
    assert {"c": "pv"} == bound(cluster)
    ask_for(cluster, "2Gi")
    cluster.advance(60)
    assert [] == events(cluster, "c"), "the volume has that"
    ask_for(cluster, "3Gi")
    cluster.advance(60)
    assert [EXTERNAL] == events(cluster, "c")
    status = cluster.one(CLAIMS, "c")["status"]
    assert {"storage": "2Gi"} == status["capacity"] == volume_of(cluster)["spec"]["capacity"]
    assert "conditions" not in status
