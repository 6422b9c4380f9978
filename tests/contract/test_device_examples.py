"""The examples of shared devices on a whole cluster, applied and looked at with kubectl."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.kubectl import Kubectl
from tests.contract.servers import Client, until
from tests.contract.test_up import PODS, state, stower, up

EXAMPLES = Path(__file__).parents[2] / "examples" / "devices"
LARGE = {"name": "large"}
TAINT = """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: ill}
spec:
  deviceSelector: {driver: nic.example.com, device: eth2}
  taint: {key: example.com/ill, effect: NoSchedule}
"""

__all__ = ["state"]  # the fixture


class Cluster:
    """kubectl, and what it is asked most often."""

    def __init__(self, state: Path, client: Client) -> None:
        self._client = client
        self.kubectl = Kubectl(client, state)

    def running(self, prefix: str) -> list[str]:
        """The running pods whose names begin so."""
        pods = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["name"].startswith(prefix)
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def devices(self, which: str) -> dict[str, Any]:
        """What `stower devices` tells of each device, by name."""
        kubeconfig = ("--kubeconfig", str(self._client.kubeconfig))
        code, said, error = stower("devices", which, *kubeconfig, "--output", "json")
        assert 0 == code, error
        return {device["device"]: device for device in json.loads(said)["devices"]}

    def until(self, running: dict[str, int]) -> None:
        """Wait until so many pods whose names begin so run."""

        def good(pods: dict[str, Any]) -> bool:
            run = [name for name, pod in pods.items() if pod["status"].get("phase") == "Running"]
            return all(
                count == sum(name.startswith(prefix) for name in run)
                for prefix, count in running.items()
            )

        until(self._client, PODS, good)

    def results(self, claim: str) -> list[dict[str, Any]]:
        """What a claim was given."""
        found = json.loads(self.kubectl("get", "resourceclaim", claim, "-o", "json"))
        results: list[dict[str, Any]] = found["status"]["allocation"]["devices"]["results"]
        return results


@pytest.mark.behaviour("S2.5", "S2.10", "S2.19", "S2.23", "S2.31", "S2.35")
def test_the_examples_run_as_they_say(state: Path) -> None:
    cluster = Cluster(state, up(state, "--nodes", "3"))
    for path in sorted(EXAMPLES.glob("*.yaml")):
        # Who comes first, the parts or the whole, is a matter of luck: here the parts.
        documents = [d for d in yaml.safe_load_all(path.read_text()) if d["metadata"] != LARGE]
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    # Bandwidth: two of three get 4Gi of 10Gi; the third when one of them is gone.
    cluster.until({"three-shares": 1, "small-": 2, "router": 1, "streamer-": 2})
    waits = cluster.kubectl("get", "resourceclaims").splitlines()
    assert "pending" in next(line for line in waits if line.startswith("too-much"))
    gone = cluster.running("streamer-")[0]
    cluster.kubectl("delete", "pod", gone)
    cluster.until({"streamer-": 2})
    assert gone not in cluster.running("streamer-")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "partition.yaml"))
    # vGPU memory in steps; the default where nothing is asked.
    amounts = [cluster.results(name)[0]["consumedCapacity"]["memory"]
               for name in ("least", "rounded", "usual")]  # fmt: skip
    assert ["4Gi", "6Gi", "8Gi"] == amounts
    # Two requests, two masters.
    assert {"eth1", "eth2"} == {result["device"] for result in cluster.results("two-nets")}
    # A part is in use: the whole waits until it is not.
    assert [] == cluster.running("large")
    assert (
        "2 of 8 cores is free in counter set gpu-0" == cluster.devices("node-1")["whole"]["blocked"]
    )
    cluster.kubectl("delete", "replicaset", "small")
    cluster.until({"large": 1})
    # An administrator's taint is for those who come.
    cluster.kubectl("apply", "-f", "-", stdin=TAINT)
    assert ["example.com/ill", "NoSchedule"] == [
        cluster.kubectl("get", "devicetaintrules").split()[i] for i in (7, 8)
    ]
    tainted = {name: device["taints"] for name, device in cluster.devices("node-3").items()}
    assert {"eth1": [], "eth2": ["example.com/ill:NoSchedule"]} == tainted
    assert ["router"] == cluster.running("router")
