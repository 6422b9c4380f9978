"""A scheduler with the roles of the manifests alone, on a server that stands still for a while: it
asks for nothing that is forbidden, tells of the outage once, and hands over when it is stopped."""

import json
import signal
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.kubectl import Kubectl
from tests.contract.servers import Command, Process, until
from tests.contract.test_live import PODS, add_nodes, add_pods, bound

pytestmark = pytest.mark.more
ROOT = Path(__file__).parents[2]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/stower-system/leases"
STALL_S = 8
RETRY_S = 2.0  # a standby leads within one retry period
SLACK_S = 3.0  # where other tests run beside it


def candidate(kubeconfig: Path) -> Command:
    return Command(
        "run", "--kubeconfig", str(kubeconfig), "--leader-elect-resource-name", "stower",
        "--leader-elect-resource-namespace", "stower-system",
    )  # fmt: skip


def lease_of(server: Process) -> dict[str, Any]:
    found: dict[str, Any] = server.client.call("GET", f"{LEASES}/stower")[1]["spec"]
    return found


def account_of(server: Process, folder: Path) -> Path:
    """A kubeconfig of the account that the manifests make."""
    kubectl = Kubectl(server.client, folder)
    kubectl("apply", "-k", str(ROOT / "deploy/scheduler"))
    token = kubectl("create", "token", "stower", "-n", "stower-system").strip()
    config = yaml.safe_load(server.client.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "account.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def refused(audit: Path) -> list[str]:
    """What was forbidden to schedulers."""
    lines = (json.loads(line) for line in audit.read_text().splitlines())
    return [
        f"{line['verb']} {line['requestURI']}" for line in lines
        if line["userAgent"].startswith("stower-scheduler")
        and line.get("responseStatus", {}).get("code") in (401, 403)
    ]  # fmt: skip


def lead(server: Process, other_than: str = "") -> dict[str, Any]:
    """Waits until the Lease has a holder, and another than this one."""
    leases = until(
        server.client, LEASES,
        lambda o: (o.get("stower", {}).get("spec", {}).get("holderIdentity") or other_than)
        != other_than,
    )  # fmt: skip
    spec: dict[str, Any] = leases["stower"]["spec"]
    return spec


def test_a_server_that_stood_still_costs_neither_the_lease_nor_many_words(tmp_path: Path) -> None:
    audit = tmp_path / "audit.ndjson"
    server = Process(
        tmp_path / "state", "--memory", "--authorization-mode", "RBAC",
        "--audit-log-path", str(audit),
    )  # fmt: skip
    commands: list[Command] = []
    try:
        kubeconfig = account_of(server, tmp_path)
        add_nodes(server.client, 2)
        commands.append(candidate(kubeconfig))
        first = lead(server)["holderIdentity"]
        commands.append(candidate(kubeconfig))
        add_pods(server.client, ["a"], "10m")
        until(server.client, PODS, lambda o: "a" in bound(o))
        server.process.send_signal(signal.SIGSTOP)
        threading.Event().wait(STALL_S)
        server.process.send_signal(signal.SIGCONT)
        add_pods(server.client, ["b"], "10m")
        until(server.client, PODS, lambda o: "b" in bound(o))
        assert first == lease_of(server)["holderIdentity"]
        stopped_s = time.time()
        assert 0 == commands[0].stop()
        after = lead(server, first)
        took_s = datetime.fromisoformat(after["acquireTime"]).timestamp() - stopped_s
        assert took_s < RETRY_S + SLACK_S
        add_pods(server.client, ["c"], "10m")
        until(server.client, PODS, lambda o: "c" in bound(o))
        assert 0 == commands[1].stop()
    finally:
        for command in commands:
            if command.process.returncode is None:
                command.kill()
        if server.process.returncode is None:
            server.process.send_signal(signal.SIGCONT)
            assert 0 == server.stop()
    assert [] == refused(audit)
    for command in commands:
        lines = command.errors.splitlines()
        assert len(lines) <= 2, "one for each kind of trouble"
        assert not [line for line in lines if any(s in line for s in ("<", "Errno", "object at"))]
