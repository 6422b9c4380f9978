"""What the API takes and refuses of nodes and of other kinds of the cluster."""

import pytest

from stower.api.requests import MERGE_PATCH
from tests.unit.api.one_client import Client, Object

NODES = "/api/v1/nodes"


def new(**item: Object) -> set[tuple[str, str]]:
    return Client().faults("POST", NODES, {"metadata": {"name": "n"}, **item})


@pytest.mark.parametrize(
    ("cidrs", "found"),
    [
        (["10.0.0.0/16"], set()),
        (["10.0.0.0/16", "2001:db8::/64"], set()),
        (["10.0.0.1/16"], {("spec.podCIDRs[0]", "Invalid")}),
        (["10.0.0.0/016"], {("spec.podCIDRs[0]", "Invalid")}),
        (["10.0.0.0/16", "10.1.0.0/16"], {("spec.podCIDRs", "Invalid")}),
    ],
)
def test_networks_of_pods(cidrs: list[str], found: set[tuple[str, str]]) -> None:
    assert found == new(spec={"podCIDRs": cidrs})


def test_features_are_names_in_order() -> None:
    def features(*names: str) -> set[tuple[str, str]]:
        return new(status={"declaredFeatures": [*names]})

    assert set() == features("A/b", "Ab")
    at = "status.declaredFeatures"
    assert {(f"{at}[1]", "Duplicate")} == features("A", "A")
    assert {(f"{at}[1]", "Invalid")} == features("B", "A")
    assert {(f"{at}[0]", "Invalid")} == features("a") == features("F" * 254)


def test_swap_and_annotations_of_old_are_checked() -> None:
    swap = {"nodeInfo": {"swap": {"capacity": 0}}}
    assert {("metadata.nodeSwapStatus.capacity", "Invalid")} == new(status=swap)
    key = "scheduler.alpha.kubernetes.io/preferAvoidPods"
    found = new(metadata={"name": "n", "annotations": {key: "x"}})
    assert {("metadata.annotations.AvoidPods", "Invalid")} == found
    found = new(metadata={"name": "n", "annotations": {key: '{"preferAvoidPods": [{}]}'}})
    assert {(f"metadata.annotations.{key}[0].PodSignature", "Required")} == found


def test_a_fault_of_a_budget_is_told_before_those_of_its_metadata() -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}
    body = {"metadata": {"name": "b", "labels": {"-": ""}}, "spec": spec}
    client = Client()
    assert {("spec", "Invalid")} == client.faults("POST", path, body)
    del spec["maxUnavailable"]
    assert {("metadata.labels", "Invalid")} == client.faults("POST", path, body)


def test_a_condition_of_a_budget_has_a_time() -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    client = Client()
    client.send("POST", path, {"metadata": {"name": "b"}, "spec": {"selector": {}}})
    condition = {"type": "A", "status": "True", "reason": "a-b"}
    assert {
        ("status.conditions[0].reason", "Invalid"),
        ("status.conditions[0].lastTransitionTime", "Required"),
    } == client.faults(
        "PATCH", f"{path}/b/status", {"status": {"conditions": [condition]}}, MERGE_PATCH
    )
