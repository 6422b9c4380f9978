"""Generic ephemeral volumes: their claims come and go with their pods."""

from typing import Any

from tests.unit.controllers.cluster import Cluster, Object

EVENTS = "/api/v1/namespaces/default/events"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def pod(name: str, *volumes: str, **spec: Any) -> Object:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
             "storageClassName": "made"}  # fmt: skip
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": claim}
    listed = [{"name": v, "ephemeral": {"volumeClaimTemplate": template}} for v in volumes]
    return {"metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": listed,
                     **spec}}  # fmt: skip


def with_class() -> Cluster:
    cluster = Cluster()
    cluster.create("storageclasses", {"metadata": {"name": "made"},
                                      "provisioner": "stower.dev/volumes",
                                      "volumeBindingMode": "WaitForFirstConsumer"})  # fmt: skip
    return cluster


def told(cluster: Cluster) -> list[str]:
    events = cluster.get(EVENTS)["items"]
    return [e["message"] for e in events if e["reason"] == "FailedBinding"
            and e["involvedObject"]["kind"] == "Pod"]  # fmt: skip


def test_a_pod_runs_with_claims_of_its_own() -> None:
    cluster = with_class()
    cluster.create("pods", pod("p", "x", "y"))
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()
    claims = cluster.all("persistentvolumeclaims")
    assert ["p-x", "p-y"] == sorted(claims)
    meta = claims["p-x"]["metadata"]
    assert ("b", "d") == (meta["labels"]["a"], meta["annotations"]["c"])
    (owner,) = meta["ownerReferences"]
    assert ("Pod", "p", True, True) == tuple(
        owner[k] for k in ("kind", "name", "controller", "blockOwnerDeletion")
    )
    assert [] == told(cluster)
    cluster.delete("pods", "p")
    cluster.advance(40)
    assert {} == cluster.all("persistentvolumeclaims")


def test_a_claim_of_somebody_else_is_not_used() -> None:
    cluster = with_class()
    spec = pod("p", "x")["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]
    cluster.create("persistentvolumeclaims", {"metadata": {"name": "p-x"}, "spec": spec})
    cluster.create("pods", pod("p", "x"))
    cluster.advance(30)
    assert {"p": "Pending"} == cluster.phases()
    text = "PVC default/p-x was not created for pod default/p (pod is not owner)"
    assert [f"ephemeral volume x: {text}"] == told(cluster)
    cluster.delete("persistentvolumeclaims", "p-x")
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()


def test_a_claim_that_may_not_be_made_is_told_of_and_made_later() -> None:
    cluster = with_class()
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"persistentvolumeclaims": "0"}}}
    assert 201 == cluster.ask("POST", QUOTAS, quota)[0]
    cluster.settle()
    cluster.create("pods", pod("p", "x"))
    cluster.advance(5)
    assert [
        'ephemeral volume x: create PVC p-x: persistentvolumeclaims "p-x" is forbidden: exceeded '
        "quota: q, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=0, limited: "
        "persistentvolumeclaims=0"
    ] == told(cluster)
    cluster.delete("resourcequotas", "q")
    cluster.advance(60)
    assert {"p": "Running"} == cluster.phases()


def test_a_claim_that_was_deleted_is_made_again() -> None:
    cluster = Cluster(scheduler=False)
    cluster.create("pods", pod("p", "x"))
    first = cluster.one("persistentvolumeclaims", "p-x")["metadata"]["uid"]
    patch = {"metadata": {"finalizers": None}}
    cluster.patch("persistentvolumeclaims", "p-x", patch)
    cluster.delete("persistentvolumeclaims", "p-x")
    cluster.advance(1)
    assert first != cluster.one("persistentvolumeclaims", "p-x")["metadata"]["uid"]
