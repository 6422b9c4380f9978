"""`stower doctor`: what it finds on clusters that have all, and on those that lack something."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from stower.model.times import micro_time_text
from tests.contract.faulty import Faults, faulty
from tests.contract.in_process import stower_in_process
from tests.contract.kubectl import Kubectl
from tests.contract.servers import Client, in_thread
from tests.contract.test_live import add_nodes
from tests.contract.test_status_reports import account
from tests.contract.test_up import stower

ROOT = Path(__file__).parents[2]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def findings(*arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and by what it is about: state and text."""
    code, said, _ = stower("doctor", "-o", "json", *arguments)
    found: list[dict[str, Any]] = json.loads(said)
    return code, {one["about"]: (one["state"], one["text"]) for one in found}


def as_account(client: Client, token: str, folder: Path) -> Path:
    config = yaml.safe_load(client.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def test_on_a_cluster_it_says_what_is_served_and_what_may_be_done(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        code, found = findings("--kubeconfig", str(client.kubeconfig))
        assert 0 == code
        assert ("note", "the cluster has no nodes") == found["nodes"]
        assert "1.36" in found["cluster"][1]
        assert "ok" == found["devices (ResourceClaims)"][0]
        assert "note" == found["composite groups"][0], "1.36 has none"
        assert ("ok", "granted") == found["right to create pods/binding"]
        assert ("ok", "admin") == found["account"]
        add_nodes(client, 2)
        rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
        path = as_account(client, account(client, "reader", rules), tmp_path)
        code, found = findings("--kubeconfig", str(path))
        assert 1 == code
        reader = "system:serviceaccount:default:reader"
        assert ("ok", reader) == found["account"]
        state, text = found["right to read"]
        assert "missing" == state
        assert "namespaces (list, watch)" in text
        assert " nodes (" not in text
        state, text = found["right to create pods/binding"]
        assert ("missing", True) == (state, f"the roles of {reader} do not have it" in text)
        path = as_account(client, account(client, "nobody", []), tmp_path)
        _, text = findings("--kubeconfig", str(path))[1]["right to create pods/binding"]
        assert "deploy/scheduler makes the account and its roles" in text


def test_with_the_manifests_applied_nothing_is_advised(tmp_path: Path) -> None:
    """The rights of the scheduler's own account are asked for with the admin's kubeconfig, or with
    its own; its configuration names its Lease."""
    config = tmp_path / "scheduler.yaml"
    config.write_text(yaml.safe_dump({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"resourceName": "stower", "resourceNamespace": "stower-system"},
    }))  # fmt: skip
    own = "system:serviceaccount:stower-system:stower"
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        add_nodes(client, 1)
        kubectl = Kubectl(client, tmp_path)
        asked = ("--kubeconfig", str(client.kubeconfig), "--account", own)
        code, found = findings(*asked)
        assert (1, ("missing", "not granted: kubectl apply -k deploy/scheduler")) == (
            code, found["right to patch pods/status"]
        )  # fmt: skip
        kubectl("apply", "-k", str(ROOT / "deploy/scheduler"))
        code, found = findings(*asked, "--config", str(config))
        assert (0, []) == (code, [one for one in found.values() if one[0] == "missing"])
        assert ("ok", "no holder: who starts now leads") == found["Lease stower-system/stower"]
        assert ("ok", "granted") == found["right to update leases stower in stower-system"]
        assert "note" == found["right to negotiated devices"][0]
        assert "kubectl apply -k deploy/negotiation" in found["right to negotiated devices"][1]
        kubectl("apply", "-k", str(ROOT / "deploy/negotiation"))
        assert "right to negotiated devices" not in findings(*asked, "--config", str(config))[1]
        # By default a scheduler has kube-scheduler's Lease, which this account may not have.
        code, found = findings(*asked)
        state, text = found["right to update leases kube-scheduler in kube-system"]
        assert (1, "missing") == (code, state)
        assert "another version" not in text, "applying the same again would change nothing"
        token = kubectl("create", "token", "stower", "-n", "stower-system").strip()
        path = as_account(client, token, tmp_path)
        code, found = findings("--kubeconfig", str(path), "--config", str(config))
        assert (0, ("ok", own)) == (code, found["account"])


@pytest.mark.parametrize(
    ("ago_s", "state", "text"),
    [
        (1, "note", "who starts now stands by until it ends"),
        (100_000, "ok", "expired, who starts now leads"),
    ],
)
def test_a_lease_that_is_held(tmp_path: Path, ago_s: int, state: str, text: str) -> None:
    config = tmp_path / "scheduler.json"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        renewed = micro_time_text(time.time_ns() - ago_s * 1_000_000_000)
        spec = {"holderIdentity": "other", "renewTime": renewed, "leaseDurationSeconds": 3_600}
        for name in ("kube-scheduler", "mine"):
            lease = {"metadata": {"name": name}, "spec": spec}
            assert 201 == client.call("POST", LEASES, lease)[0]
        said = findings("--kubeconfig", str(client.kubeconfig))[1][
            "Lease kube-system/kube-scheduler"
        ]
        assert (state, True) == (said[0], text in said[1])
        assert ("leaderElection.resourceName" in said[1]) == (state == "note")
        config.write_text(json.dumps({**document, "leaderElection": {"resourceName": "mine"}}))
        asked = ("--kubeconfig", str(client.kubeconfig), "--config", str(config))
        said = findings(*asked)[1]["Lease kube-system/mine"]
        assert (state, True, False) == (said[0], text in said[1], "resourceName" in said[1])
        config.write_text(json.dumps({**document, "leaderElection": {"leaderElect": False}}))
        assert "note" == findings(*asked)[1]["leader election"][0]


def test_a_configuration_that_is_wrong_is_told_of(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("apiVersion: apps/v1\nkind: Deployment\n")
    code, _, said = stower("doctor", "--config", str(config))
    assert (2, True) == (code, "KubeSchedulerConfiguration" in said)


def test_a_cluster_that_is_not_there_is_missing_only_where_one_was_named(tmp_path: Path) -> None:
    code, found = findings("--kubeconfig", str(tmp_path / "none"))
    assert (1, "missing") == (code, found["cluster"][0])
    assert "ok" == found["Python"][0]
    code, text, _ = stower_in_process("doctor", "--kubeconfig", str(tmp_path / "none"))
    assert (1, True) == (code, "no such file" in text)


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b'{"status": null}', b'{"items": [null]}'])
def test_a_server_that_talks_nonsense_is_told_of_and_no_traceback(
    tmp_path: Path, body: bytes
) -> None:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        proxied = tmp_path / "config"

        def answers(method: str, path: str) -> tuple[int, bytes] | None:
            return None if path == "/version" else (201 if method == "POST" else 200, body)

        with faulty(client.kubeconfig, proxied, Faults(answers=answers)):
            code, found = findings("--kubeconfig", str(proxied))
    assert code in (0, 1)
    assert "ok" == found["cluster"][0]
    assert "cannot be checked" in found["rights"][1]
    assert "ok" != found["nodes"][0]
