"""Leaders that end, die and stand still: another goes on at once, and nothing is decided twice."""

import contextlib
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import LEASE, PODS, add_nodes, add_pods, bound

TERMS = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s",
         "--leader-elect-retry-period=400ms", "--leader-elect=true")  # fmt: skip
LEASE_S = 3.0
# From the end of a Lease until the next one has bound a pod.
FAILOVER_S = 3.0


def bindings(audit: Path) -> list[dict[str, Any]]:
    """Those that were carried out, as the audit log has them."""
    lines = (json.loads(line) for line in audit.read_text().splitlines())
    return [
        line for line in lines
        if line.get("objectRef", {}).get("subresource") == "binding"
        and line["responseStatus"]["code"] < 300
    ]  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    audit = tmp_path / "audit.ndjson"
    with in_thread(Options(tmp_path / "state", memory=True, audit=audit)) as (_, client):
        yield client
    # A watch may show a write before the log has it: all are there once the server has ended.
    names = [line["objectRef"]["name"] for line in bindings(audit)]
    assert names
    assert len(set(names)) == len(names), "nothing is bound twice"


@contextlib.contextmanager
def candidate(client: Client, *arguments: str) -> Iterator[Command]:
    command = Command("run", "--kubeconfig", str(client.kubeconfig), *TERMS, *arguments)
    try:
        yield command
    finally:
        if command.process.returncode is None:
            command.process.send_signal(signal.SIGCONT)
            command.kill()


def spec(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.call("GET", LEASE)[1]["spec"]
    return found


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def ready(command: Command) -> None:
    """It has listed what there is."""
    url = command.output.partition("dashboard and metrics on ")[2].partition(". ")[0]
    while True:
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/readyz", timeout=10).close()
            return
        threading.Event().wait(0.05)


def test_a_leader_that_dies_is_followed_as_soon_as_its_lease_is_over(
    served: Client, tmp_path: Path
) -> None:
    add_nodes(served, 2)
    token = ("--port", "0", "--token-file", str(tmp_path / "token"))
    with candidate(served) as first:
        add_pods(served, ["a"], "10m")
        until(served, PODS, lambda o: "a" in bound(o))
        before = spec(served)
        with candidate(served, *token) as second:
            ready(second)
            first.kill()
            last = seconds(spec(served)["renewTime"])
            add_pods(served, [f"b{i}" for i in range(5)], "10m")
            until(served, PODS, lambda o: len(bound(o)) == 6)
            took_s = time.time() - (last + LEASE_S)
            after = spec(served)
    assert took_s < FAILOVER_S
    assert before["holderIdentity"] != after["holderIdentity"]
    assert after["leaseTransitions"] == before.get("leaseTransitions", 0) + 1
    assert 3 == after["leaseDurationSeconds"]
    assert seconds(after["acquireTime"]) > last


def test_a_leader_that_ends_gives_its_lease_up(served: Client) -> None:
    add_nodes(served, 2)
    with candidate(served) as first, candidate(served):
        until(served, LEASE.rpartition("/")[0], lambda o: bool(o))
        holder = spec(served)["holderIdentity"]
        began_s = time.time()
        assert 0 == first.stop()
        add_pods(served, ["a"], "10m")
        until(served, PODS, lambda o: "a" in bound(o))
        assert time.time() - began_s < LEASE_S + FAILOVER_S
        assert holder != spec(served)["holderIdentity"]


def test_a_container_that_is_restarted_in_its_pod_has_its_lease_at_once(
    served: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests give it the uid of its pod; the Lease of the one before would last a minute."""
    monkeypatch.setenv("STOWER_POD_UID", "1-2-3")
    long = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s")
    add_nodes(served, 2)
    with candidate(served, *long) as first:
        add_pods(served, ["a"], "10m")
        until(served, PODS, lambda o: "a" in bound(o))
        before = spec(served)
        first.kill()
    add_pods(served, ["b"], "10m")
    began_s = time.time()
    with candidate(served, *long):
        until(served, PODS, lambda o: "b" in bound(o))
    assert time.time() - began_s < 30
    assert before["holderIdentity"].endswith("_1-2-3")
    assert before["holderIdentity"] == spec(served)["holderIdentity"]


def test_a_leader_that_stood_still_writes_nothing_more(served: Client) -> None:
    """It wakes up with pods to place that another has placed meanwhile."""
    add_nodes(served, 2)
    with candidate(served) as first:
        add_pods(served, ["a"], "10m")
        until(served, PODS, lambda o: "a" in bound(o))
        with candidate(served):
            first.process.send_signal(signal.SIGSTOP)
            add_pods(served, [f"b{i}" for i in range(20)], "10m")
            until(served, PODS, lambda o: len(bound(o)) == 21)
            first.process.send_signal(signal.SIGCONT)
            assert 1 == first.process.wait(15), "another leads: it ends"
            add_pods(served, ["c"], "10m")
            until(served, PODS, lambda o: "c" in bound(o))


def test_two_share_a_cluster_each_with_pods_and_a_lease_of_its_own(
    served: Client, tmp_path: Path
) -> None:
    """docs/scale.md, Several schedulers: one that dies takes nobody else's pods along."""

    def add(name: str, scheduler_name: str) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
        spec = {"schedulerName": scheduler_name, "containers": [container]}
        assert 201 == served.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})[0]

    def shard(number: int) -> contextlib.AbstractContextManager[Command]:
        path = tmp_path / f"shard-{number}.yaml"
        path.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            f"leaderElection: {{resourceName: shard-{number}}}\n"
            f"profiles: [{{schedulerName: shard-{number}}}]\n"
        )
        return candidate(served, "--config", str(path), "--seed", str(number))

    add_nodes(served, 2)
    with shard(0) as first, shard(1):
        for number in range(10):
            add(f"a{number}", f"shard-{number % 2}")
        until(served, PODS, lambda o: len(bound(o)) == 10)
        leases = served.call("GET", LEASE.rpartition("/")[0])[1]["items"]
        assert {"shard-0", "shard-1"} == {lease["metadata"]["name"] for lease in leases}
        first.kill()
        add("b0", "shard-0")
        add("b1", "shard-1")
        found = until(served, PODS, lambda o: "b1" in bound(o))
        assert "b0" not in bound(found)
        with shard(0):
            until(served, PODS, lambda o: "b0" in bound(o))
