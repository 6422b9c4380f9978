"""Clusters that serve less than ours, or older definitions: what is done without, and said."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.faulty import Answering, Faults, faulty
from tests.contract.servers import Client, in_thread, until
from tests.contract.test_live import PODS, add_pods, bound

Object = dict[str, Any]
NOT_FOUND = (404, b'{"kind":"Status","code":404,"message":"not found"}')
# Groups that a server of 1.27 does not have.
LATER = ("/apis/resource.k8s.io", "/apis/scheduling.k8s.io/v1beta1",
         "/apis/scheduling.k8s.io/v1alpha", "/apis/stower.dev", "/apis/vm.neon.tech",
         "/openapi/v3/apis/stower.dev")  # fmt: skip
OPENAPI = "/openapi/v3/apis/stower.dev/v1"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True, version="1.37")) as (_, client):
        yield client


def logged(
    client: Client, folder: Path, answers: Answering, *arguments: str, places: bool = True
) -> str:
    """What a scheduler says on standard error until it has placed a pod, or said one thing."""
    node = {"metadata": {"name": "n0", "labels": {"kubernetes.io/os": "linux"}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}  # fmt: skip
    assert 201 == client.call("POST", "/api/v1/nodes", node)[0]
    proxied = folder / "proxied"
    with faulty(client.kubeconfig, proxied, Faults(answers=answers)):
        command = [sys.executable, "-m", "stower.cli.main", "run", "--no-leader-elect",
                   "--kubeconfig", str(proxied), *arguments]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = ""
        try:
            if places:
                add_pods(client, ["a"])
                until(client, PODS, lambda o: "a" in bound(o))
            else:
                said = process.stderr.readline()
        finally:
            process.send_signal(signal.SIGTERM)
            said += process.communicate(timeout=20)[1]
        assert 0 == process.returncode, said
    return said


def without_later(client: Client) -> Answering:
    """A server of 1.27, as far as it is asked here."""
    listed = json.loads(
        client.raw("GET", "/apis", headers={"Accept": "application/json;g=apidiscovery.k8s.io;"
                                            "v=v2;as=APIGroupDiscoveryList"})[2]
    )  # fmt: skip
    gone = ("resource.k8s.io", "stower.dev", "vm.neon.tech")
    listed["items"] = [i for i in listed["items"] if i["metadata"]["name"] not in gone]
    for item in listed["items"]:
        if item["metadata"]["name"] == "scheduling.k8s.io":
            item["versions"] = [v for v in item["versions"] if v["version"] == "v1"]

    def answers(method: str, path: str) -> tuple[int, bytes] | None:
        if path == "/version":
            return 200, b'{"major":"1","minor":"27"}'
        if path == "/apis":
            return 200, json.dumps(listed).encode()
        return NOT_FOUND if path.startswith(LATER) else None

    return answers


def test_an_old_cluster_is_scheduled_with_less(served: Client, tmp_path: Path) -> None:
    said = logged(served, tmp_path, without_later(served), "--v", "1")
    (line,) = [line for line in said.splitlines() if "; not served: " in line]
    off = line.partition("; not served: ")[2]
    assert {"devices (ResourceClaims)", "pod groups", "warm pools", "negotiated devices"} <= {
        *off.split(", ")
    }


def test_what_the_configuration_relies_on_is_missed_by_name(served: Client, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    enabled = {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": enabled}],
    }
    config.write_text(json.dumps(document))
    said = logged(served, tmp_path, without_later(served), "--config", str(config), places=False)
    missing = "virtualmachines.vm.neon.tech/v1, virtualmachinemigrations.vm.neon.tech/v1"
    assert f"the API server does not serve {missing}" in said
    assert "kubectl apply -k deploy/vms/crds" in said


def test_a_definition_that_is_older_is_named_with_what_it_lacks(
    served: Client, tmp_path: Path
) -> None:
    document = served.call("GET", OPENAPI)[1]
    pool = document["components"]["schemas"]["dev.stower.v1.WarmPool"]
    del pool["properties"]["spec"]["properties"]["images"]["properties"]["then"]

    def answers(method: str, path: str) -> tuple[int, bytes] | None:
        return (200, json.dumps(document).encode()) if path == OPENAPI else None

    said = logged(served, tmp_path, answers)
    assert "warmpools.stower.dev is outdated and lacks spec.images.then" in said
    assert "kubectl apply -k deploy/warm/crds" in said


def test_a_cluster_of_ours_lacks_nothing(served: Client, tmp_path: Path) -> None:
    said = logged(served, tmp_path, lambda method, path: None)
    assert "outdated" not in said
    assert "does not serve" not in said


@pytest.mark.parametrize("path", ["", "/namespaces/default/podgroups", "/workloads"])
def test_a_version_of_another_release_is_named_with_the_way_to_it(
    served: Client, path: str
) -> None:
    method = "POST" if path else "GET"
    code, told = served.call(method, f"/apis/scheduling.k8s.io/v1alpha2{path}", {})
    assert 404 == code
    assert "--kubernetes 1.36" in told["message"]
    assert (
        "--kubernetes" not in served.call("GET", "/apis/scheduling.k8s.io/v1alpha9")[1]["message"]
    )
