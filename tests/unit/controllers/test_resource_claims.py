"""Claims for devices in a whole cluster: made, met, given back; the examples as they stand."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.controllers.objects import PLURAL_OF, RESOURCES
from stower.controllers.resource_claims import claim_name_prefix
from tests.unit.controllers.cluster import Cluster, pools

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples" / "devices"


def applied(name: str) -> Cluster:
    """A cluster with an example in it."""
    cluster = Cluster(pools())
    for obj in yaml.safe_load_all((EXAMPLES / name).read_text()):
        kind = PLURAL_OF[obj["apiVersion"], obj["kind"]]
        cluster.create(kind, obj, "default" if RESOURCES[kind].namespaced else "")
    cluster.advance(10)
    return cluster


def results(claim: Object) -> list[Object]:
    """The devices of a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return found


def devices(cluster: Cluster) -> dict[str, list[str]]:
    """The devices of each claim."""
    claims = cluster.all("resourceclaims")
    return {name: [r["device"] for r in results(claim)] for name, claim in claims.items()}


def running(cluster: Cluster) -> list[str]:
    return sorted(name for name, phase in cluster.phases().items() if phase == "Running")


@pytest.mark.behaviour("S2.1", "S2.2", "S2.5", "S2.8", "S2.31")
def test_macvlan_bandwidth_is_shared_until_it_runs_out() -> None:
    cluster = applied("macvlan.yaml")
    assert 2 == len(running(cluster))
    claims = [c for c in cluster.all("resourceclaims").values() if results(c)]
    assert 2 == len(claims)
    for claim in claims:
        (result,) = results(claim)
        assert ("eth1", {"bandwidth": "4Gi", "vlans": "1"}) == (
            result["device"], result["consumedCapacity"],
        )  # fmt: skip
        (config,) = claim["status"]["allocation"]["devices"]["config"]
        assert {"type": "macvlan", "mode": "bridge", "vlan": 1000} == config["opaque"]["parameters"]
        assert "FromClaim" == config["source"]
    assert 2 == len({results(claim)[0]["shareID"] for claim in claims})
    # Two more make room for each other: who goes leaves its part to the third.
    gone = running(cluster)[0]
    cluster.patch("replicasets", "streamer", {"spec": {"replicas": 2}})
    cluster.advance(40)
    assert 2 == len(running(cluster)), gone


@pytest.mark.behaviour("S2.4", "S2.9", "S2.10")
def test_vgpu_memory_comes_in_steps() -> None:
    cluster = applied("vgpu.yaml")
    assert ["three-shares"] == running(cluster)
    claims = cluster.all("resourceclaims")
    amounts = {n: [r["consumedCapacity"]["memory"] for r in results(c)] for n, c in claims.items()}
    assert {"rounded": ["6Gi"], "least": ["4Gi"], "usual": ["8Gi"], "too-much": []} == amounts


@pytest.mark.behaviour("S2.19", "S2.25")
def test_two_requests_get_different_masters() -> None:
    cluster = applied("two-masters.yaml")
    assert ["router"] == running(cluster)
    assert {"two-nets": ["eth1", "eth2"]} == devices(cluster)


@pytest.mark.behaviour("S2.22", "S2.23")
def test_a_partition_is_shared_and_withdraws_the_whole() -> None:
    cluster = applied("partition.yaml")
    assert 2 == len(running(cluster))
    assert "Pending" == cluster.phases()["large"]
    # When the shares are gone, the whole is to be had, and the parts are not.
    cluster.patch("replicasets", "small", {"spec": {"replicas": 0}})
    cluster.advance(60)
    assert ["large"] == running(cluster)
    cluster.patch("replicasets", "small", {"spec": {"replicas": 1}})
    cluster.advance(30)
    assert ["large"] == running(cluster)


def pod(name: str, **spec: Any) -> Object:
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def with_gpus(count: int = 1) -> Cluster:
    cluster = Cluster(pools(1))
    cluster.create("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}}, "")
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "node-1", "pool": pool,
            "devices": [{"name": f"gpu-{i}"} for i in range(count)]}  # fmt: skip
    cluster.create("resourceslices", {"metadata": {"name": "s"}, "spec": spec}, "")
    return cluster


CLAIM: Object = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
FROM_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
BY_NAME = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}


def template(cluster: Cluster) -> None:
    meta = {"labels": {"made": "here"}, "annotations": {"a": "b"}}
    own = {"metadata": {"name": "t"}, "spec": {"metadata": meta, "spec": CLAIM}}
    cluster.create("resourceclaimtemplates", own)


def test_a_claim_is_made_from_a_template_and_goes_with_its_pod() -> None:
    cluster = with_gpus()
    cluster.create("pods", pod("p", **FROM_TEMPLATE))
    cluster.advance(5)
    assert {} == cluster.all("resourceclaims")  # there is no template yet
    template(cluster)
    cluster.advance(5)
    ((name, claim),) = cluster.all("resourceclaims").items()
    assert name.startswith("p-gpu-")
    assert {"made": "here"} == claim["metadata"]["labels"]
    assert {"a": "b", "resource.kubernetes.io/pod-claim-name": "gpu"} == (
        claim["metadata"]["annotations"]
    )
    assert ["p"] == running(cluster)
    assert [{"name": "gpu", "resourceClaimName": name}] == (
        cluster.one("pods", "p")["status"]["resourceClaimStatuses"]
    )
    assert ["p"] == [consumer["name"] for consumer in claim["status"]["reservedFor"]]
    cluster.delete("pods", "p")
    cluster.advance(60)
    assert {} == cluster.all("resourceclaims")


def test_a_claim_of_a_user_is_given_back_when_the_last_pod_has_ended() -> None:
    cluster = with_gpus()
    cluster.create("resourceclaims", {"metadata": {"name": "mine"}, "spec": CLAIM})
    cluster.create("pods", pod("a", **BY_NAME))
    cluster.create("pods", pod("b", **BY_NAME))
    cluster.advance(10)
    assert ["a", "b"] == running(cluster)
    cluster.delete("pods", "a")
    cluster.advance(60)
    assert {"mine": ["gpu-0"]} == devices(cluster)
    cluster.delete("pods", "b")
    cluster.advance(60)
    claim = cluster.one("resourceclaims", "mine")
    assert {} == (claim.get("status") or {})
    assert "finalizers" not in claim["metadata"]


def test_a_claim_that_is_deleted_stays_until_its_pods_have_ended() -> None:
    cluster = with_gpus()
    cluster.create("resourceclaims", {"metadata": {"name": "mine"}, "spec": CLAIM})
    cluster.create("pods", pod("a", **BY_NAME))
    cluster.advance(10)
    cluster.delete("resourceclaims", "mine")
    cluster.create("pods", pod("late", **BY_NAME))
    cluster.advance(10)
    assert ["a"] == running(cluster)
    cluster.delete("pods", "a")
    cluster.advance(60)
    assert {} == cluster.all("resourceclaims")


def test_a_device_goes_from_pod_to_pod() -> None:
    cluster = with_gpus()
    template(cluster)
    job = {"metadata": {"name": "j"}, "spec": {
        "completions": 4, "parallelism": 4,
        "template": {
            "metadata": {"annotations": {"stower.dev/run-seconds": "5"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
                     **FROM_TEMPLATE},
        },
    }}  # fmt: skip
    cluster.create("jobs", job)
    cluster.advance(300)
    assert {"Succeeded"} == set(cluster.phases().values())
    assert {} == cluster.all("resourceclaims")


def test_a_pod_that_was_placed_by_hand_reserves_what_is_allocated() -> None:
    cluster = with_gpus()
    cluster.create("resourceclaims", {"metadata": {"name": "mine"}, "spec": CLAIM})
    cluster.create("pods", pod("a", **BY_NAME))
    cluster.create("pods", pod("b", nodeName="node-1", **BY_NAME))
    cluster.advance(10)
    claim = cluster.one("resourceclaims", "mine")
    assert ["a", "b"] == sorted(c["name"] for c in claim["status"]["reservedFor"])


@pytest.mark.parametrize(
    ("pod_name", "claim", "start"),
    [
        ("p", "gpu", "p-gpu-"),
        ("p" * 40, "c" * 40, f"{'p' * 27}-{'c' * 27}"),
    ],
)
def test_names_of_claims_are_cut_evenly(pod_name: str, claim: str, start: str) -> None:
    assert start == claim_name_prefix(pod_name, claim)


EXTENDED: Object = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}


def extended_pod(name: str, **meta: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": EXTENDED}
    return {"metadata": {"name": name, **meta}, "spec": {"containers": [container]}}


def test_devices_stand_in_for_an_extended_resource_and_go_with_the_pod() -> None:
    cluster = with_gpus()
    spec = {"extendedResourceName": "example.com/gpu"}
    cluster.create("deviceclasses", {"metadata": {"name": "as-gpu"}, "spec": spec}, "")
    cluster.create("pods", extended_pod("a"))
    cluster.create("pods", extended_pod("b"))
    cluster.advance(10)
    assert ["a"] == running(cluster)
    ((name, claim),) = cluster.all("resourceclaims").items()
    assert ["gpu-0"] == [result["device"] for result in results(claim)]
    assert ["a"] == [consumer["name"] for consumer in claim["status"]["reservedFor"]]
    told = cluster.one("pods", "a")["status"]["extendedResourceClaimStatus"]
    assert name == told["resourceClaimName"]
    assert ["c"] == [mapping["containerName"] for mapping in told["requestMappings"]]
    cluster.delete("pods", "a")
    cluster.advance(120)
    assert ["b"] == running(cluster)
    (after,) = cluster.all("resourceclaims")
    assert name != after
    assert after.startswith("b-extended-resources-")


def test_devices_are_taken_from_a_pod_of_lower_priority() -> None:
    cluster = with_gpus()
    spec = {"extendedResourceName": "example.com/gpu"}
    cluster.create("deviceclasses", {"metadata": {"name": "as-gpu"}, "spec": spec}, "")
    status, _ = cluster.ask(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "high"}, "value": 100},
    )
    assert 201 == status
    cluster.create("pods", extended_pod("low"))
    cluster.advance(10)
    assert ["low"] == running(cluster)
    high = extended_pod("high")
    high["spec"]["priorityClassName"] = "high"
    cluster.create("pods", high)
    cluster.advance(120)
    assert ["high"] == running(cluster)
    assert 1 == len(cluster.all("resourceclaims"))
