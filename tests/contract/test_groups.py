"""Groups of pods on `stower up`: a gang waits for all of its pods, and comes as a whole."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract.servers import until
from tests.contract.test_up import PODS, running, state, up

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"

__all__ = ["state"]  # a fixture


def pod(name: str, group: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    spec: dict[str, Any] = {"containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.behaviour("S3.7")
def test_a_gang_waits_for_its_last_pod(state: Path) -> None:
    client = up(state, "--nodes", "2")
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = {"metadata": {"name": "gang"}, "spec": spec}
    assert 201 == client.call("POST", GROUPS, group)[0]
    for one in (pod("a", "gang"), pod("b", "gang"), pod("alone")):
        assert 201 == client.call("POST", PODS, one)[0]
    assert ["alone"] == list(running(until(client, PODS, lambda o: len(running(o)) == 1)))
    assert 201 == client.call("POST", PODS, pod("c", "gang"))[0]
    until(client, PODS, lambda o: len(running(o)) == 4)
    said = until(client, GROUPS, lambda o: bool(o["gang"].get("status", {}).get("conditions")))
    (condition,) = said["gang"]["status"]["conditions"]
    assert ("PodGroupScheduled", "True", "Scheduled") == (
        condition["type"], condition["status"], condition["reason"]
    )  # fmt: skip
