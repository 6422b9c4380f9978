"""In place of kube-scheduler: its command line, and the rights that others have given it."""

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from stower.cli.kube_scheduler import arguments
from tests.contract.servers import Client, Program, in_thread, until
from tests.contract.test_live import add_nodes

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HUB = "hub"
READ = ["get", "list", "watch"]
# What zero-to-jupyterhub's chart gives its user-scheduler, by group, resources and verbs.
CHART: list[tuple[str, str, list[str]]] = [
    ("", "events", ["create", "patch", "update"]),
    ("events.k8s.io", "events", ["create", "patch", "update"]),
    ("coordination.k8s.io", "leases", ["create"]),
    ("", "nodes namespaces replicationcontrollers services", READ),
    ("", "pods", ["delete", *READ]),
    ("", "bindings pods/binding", ["create"]),
    ("", "pods/status", ["patch", "update"]),
    ("apps", "replicasets statefulsets", READ),
    ("policy", "poddisruptionbudgets", READ),
    ("", "persistentvolumeclaims persistentvolumes", [*READ, "patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", ["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", ["create"]),
    ("storage.k8s.io", "csinodes csidrivers csistoragecapacities storageclasses", READ),
]


def kubeconfig_of(client: Client, folder: Path, token: str) -> Path:
    """A kubeconfig for whoever has the token, and nothing else."""
    config = yaml.safe_load(client.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "account.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        yield client


@pytest.mark.behaviour("S1.1", "S1.30", "S1.32")
def test_the_charts_user_scheduler_with_another_image(served: Client, tmp_path: Path) -> None:
    """Its configuration, rights and command line, unchanged: users go to the busiest node."""
    config = yaml.safe_load((ROOT / "examples" / "warm" / "scheduler.yaml").read_text())
    lock = config["leaderElection"]["resourceName"]
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": HUB}}),
        (f"/api/v1/namespaces/{HUB}/serviceaccounts", {"metadata": {"name": "user-scheduler"}}),
        (f"{RBAC}/clusterroles", {
            "metadata": {"name": "user-scheduler"},
            "rules": [
                *({"apiGroups": [group], "resources": names.split(), "verbs": verbs}
                  for group, names, verbs in CHART),
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                 "resourceNames": [lock], "verbs": ["get", "update"]},
            ],
        }),
        (f"{RBAC}/clusterrolebindings", {
            "metadata": {"name": "user-scheduler"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "user-scheduler"},
            "subjects": [{"kind": "ServiceAccount", "name": "user-scheduler", "namespace": HUB}],
        }),
    ):  # fmt: skip
        code, told = served.call("POST", path, body)
        assert code in (201, 409), told
    config["leaderElection"]["resourceNamespace"] = HUB
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    path = f"/api/v1/namespaces/{HUB}/serviceaccounts/user-scheduler/token"
    token = served.call("POST", path, {"spec": {}})[1]["status"]["token"]
    add_nodes(served, 2)
    program = Program(
        "-m", "stower.cli.kube_scheduler", f"--config={tmp_path / 'config.yaml'}",
        "--authentication-skip-lookup=true", "--v=4", "--secure-port=0",
        f"--kubeconfig={kubeconfig_of(served, tmp_path, token)}",
    )  # fmt: skip
    try:
        url = program.output.partition("dashboard and metrics on ")[2].partition(". ")[0]
        assert url.startswith("https://0.0.0.0:")
        own = ssl.create_default_context()
        own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
        health = url.replace("0.0.0.0", "127.0.0.1") + "/healthz"
        with urllib.request.urlopen(health, timeout=10, context=own) as answer:
            assert 200 == answer.status
        pods = f"/api/v1/namespaces/{HUB}/pods"
        for name in ("a", "b", "c"):
            resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
            containers = [{"name": "c", "image": "i", "resources": resources}]
            profile = config["profiles"][0]["schedulerName"]
            spec = {"schedulerName": profile, "containers": containers}
            assert 201 == served.call("POST", pods, {"metadata": {"name": name}, "spec": spec})[0]
        found = until(served, pods, lambda o: sum("nodeName" in p["spec"] for p in o.values()) == 3)
        assert 1 == len({pod["spec"]["nodeName"] for pod in found.values()}), "packed, not spread"
        assert 0 == program.stop()
    finally:
        if program.process.returncode is None:
            program.kill()


def test_a_static_pods_command_line() -> None:
    given = [
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf", "--authorization-kubeconfig",
        "/etc/kubernetes/scheduler.conf", "--bind-address=127.0.0.1",
        "--kubeconfig=/etc/kubernetes/scheduler.conf", "--leader-elect=true", "--profiling=false",
    ]  # fmt: skip
    assert [
        "run", "--bind-address=127.0.0.1", "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=true", "--secure-port", "10259",
    ] == arguments(given)  # fmt: skip
    assert ["run", "--secure-port=0", "--bind-address", "0.0.0.0"] == arguments(
        ["--secure-port=0", "--authentication-skip-lookup"]
    )
