"""Pods leave devices with NoExecute taints, and rules say what they do."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster
from tests.unit.controllers.test_resource_claims import CLAIM, with_gpus

Object = dict[str, Any]
SICK = {"key": "example.com/sick", "effect": "NoExecute"}


def user(cluster: Cluster, name: str, *tolerations: Object) -> None:
    """A pod with a claim of its own for a GPU."""
    exactly = {**CLAIM["devices"]["requests"][0]["exactly"], "tolerations": list(tolerations)}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    cluster.create("resourceclaims", {"metadata": {"name": name}, "spec": spec})
    container = {"name": "c", "image": "i"}
    claims = [{"name": "gpu", "resourceClaimName": name}]
    pod = {"containers": [container], "resourceClaims": claims, "terminationGracePeriodSeconds": 1}
    cluster.create("pods", {"metadata": {"name": name}, "spec": pod})


def taint(cluster: Cluster, *taints: Object) -> None:
    """The first GPU gets these taints, and no others."""
    cluster.patch("resourceslices", "s", {"spec": {"devices": [
        {"name": "gpu-0", "taints": list(taints)}, {"name": "gpu-1"}]}}, "")  # fmt: skip


def rule(cluster: Cluster, effect: str, **selector: str) -> None:
    spec = {"deviceSelector": selector, "taint": {**SICK, "effect": effect}}
    cluster.create("devicetaintrules", {"metadata": {"name": "rule"}, "spec": spec}, "")


def told(cluster: Cluster) -> tuple[str, str, str]:
    """What the rule says."""
    (condition,) = cluster.all("devicetaintrules")["rule"]["status"]["conditions"]
    assert "EvictionInProgress" == condition["type"]
    return condition["status"], condition["reason"], condition["message"]


@pytest.fixture
def cluster() -> Cluster:
    """Two GPUs, each in use."""
    made = with_gpus(2)
    for name in ("a", "b"):
        user(made, name)
        made.advance(5)
    assert {"a": "Running", "b": "Running"} == made.phases()
    return made


@pytest.mark.behaviour("S2.35")
def test_a_pod_is_evicted_from_a_device_that_gets_a_taint(cluster: Cluster) -> None:
    taint(cluster, SICK)
    cluster.advance(10)
    assert {"b": "Running"} == cluster.phases()
    assert ("DELETE", 200) in [(method, status) for method, path, status in cluster.requests
                               if path.endswith("/pods/a")]  # fmt: skip


@pytest.mark.parametrize("effect", ["None", "NoSchedule"])
def test_other_effects_evict_nobody(cluster: Cluster, effect: str) -> None:
    taint(cluster, {**SICK, "effect": effect})
    cluster.advance(10)
    assert {"a": "Running", "b": "Running"} == cluster.phases()


@pytest.mark.behaviour("S2.35")
def test_a_toleration_bears_a_taint_for_so_long_since_it_was_added() -> None:
    cluster = with_gpus(2)
    bears = {"key": "example.com/sick", "operator": "Exists", "effect": "NoExecute"}
    user(cluster, "long", {**bears, "tolerationSeconds": 60})
    cluster.advance(5)
    user(cluster, "ever", bears)
    cluster.advance(5)
    taint(cluster, SICK)
    cluster.advance(50)
    assert {"long": "Running", "ever": "Running"} == cluster.phases()
    cluster.advance(15)
    assert {"ever": "Running"} == cluster.phases()


def test_a_taint_that_goes_in_time_evicts_nobody() -> None:
    cluster = with_gpus(2)
    bears = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    user(cluster, "a", bears)
    cluster.advance(5)
    taint(cluster, SICK)
    cluster.advance(30)
    taint(cluster)
    cluster.advance(60)
    assert {"a": "Running"} == cluster.phases()


@pytest.mark.behaviour("S2.35")
def test_a_rule_evicts_and_says_how_many(cluster: Cluster) -> None:
    cluster.failing = [("DELETE", "/api/v1/namespaces/default/pods/b")]
    rule(cluster, "NoExecute", device="gpu-1")
    cluster.advance(60)
    assert [] == cluster.failing, "what was tried again is not counted again"
    assert {"a": "Running"} == cluster.phases()
    said = "1 pod evicted since starting the controller."
    assert ("False", "Completed", said) == told(cluster)


@pytest.mark.behaviour("S2.35")
def test_a_rule_without_effect_tells_what_it_would_do(cluster: Cluster) -> None:
    rule(cluster, "None", driver="gpu.example.com")
    cluster.advance(5)
    status, reason, message = told(cluster)
    assert ("False", "NoEffect") == (status, reason)
    want = (
        "2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 "
        "namespace if the effect was NoExecute."
    )
    assert message.startswith(want)
    assert {"a": "Running", "b": "Running"} == cluster.phases()


def test_a_rule_that_only_keeps_others_away_evicts_nobody(cluster: Cluster) -> None:
    rule(cluster, "NoSchedule", driver="gpu.example.com")
    cluster.advance(5)
    assert "OtherEffect" == told(cluster)[1]
