"""`stower run` against an API server: what it writes, what it survives, what it refuses."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from tests.contract.in_process import stower_in_process
from tests.contract.proxy import cutting
from tests.contract.servers import Client, Command, Process, in_thread, until

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


def add_nodes(client: Client, count: int, cpu: str = "4") -> None:
    for number in range(count):
        add_node(client, f"n{number}", cpu)


def add_node(client: Client, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    node = {"metadata": {"name": name}, "status": {"allocatable": amounts}}
    assert 201 == client.call("POST", "/api/v1/nodes", node)[0]


def add_pods(client: Client, names: list[str], cpu: str = "100m") -> None:
    for name in names:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        assert 201 == client.call("POST", PODS, pod)[0]


def bound(objects: dict[str, Object]) -> dict[str, str]:
    return {n: o["spec"]["nodeName"] for n, o in objects.items() if o["spec"].get("nodeName")}


def condition(pod: Object) -> Object:
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0] if found else {}


@contextlib.contextmanager
def scheduler(kubeconfig: Path, *arguments: str) -> Iterator[Command]:
    command = Command("run", "--kubeconfig", str(kubeconfig), *arguments)
    try:
        yield command
    finally:
        if command.process.returncode is None:
            command.kill()


def refusal(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a run that must not start."""
    code, _, error = stower_in_process("run", *arguments)
    return code, error


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        yield client


@pytest.mark.behaviour("X1")
def test_pods_are_placed_and_those_that_cannot_be_are_told_why(served: Client) -> None:
    add_nodes(served, 2)
    with scheduler(served.kubeconfig, "--no-leader-elect") as command:
        add_pods(served, ["a", "b", "c"], "3")
        pods = until(
            served, PODS, lambda o: len(bound(o)) == 2 and any(map(condition_false, o.values()))
        )
        assert {"n0", "n1"} == set(bound(pods).values())
        waiting = next(o for o in pods.values() if not o["spec"].get("nodeName"))
        assert condition(waiting)["message"].startswith(
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption:"
        )
        assert condition(waiting)["reason"] == "Unschedulable"
        placed = next(iter(bound(pods)))
        served.call("DELETE", f"{PODS}/{placed}?gracePeriodSeconds=0")
        name = waiting["metadata"]["name"]
        until(served, PODS, lambda o: name in bound(o))
        events = until(
            served,
            "/apis/events.k8s.io/v1/namespaces/default/events",
            lambda o: sum(e["reason"] == "Scheduled" for e in o.values()) == 3,
        )
        notes = {e["note"] for e in events.values() if e["regarding"]["name"] == name}
        assert any(n.startswith("0/2 nodes are available: 2 Insufficient cpu. ") for n in notes)
        assert 0 == command.stop()


def condition_false(pod: Object) -> bool:
    return condition(pod).get("status") == "False"


def cut_while_loading(served: Client, folder: Path, every_s: float, batches: int) -> None:
    """Pods come in batches, with a cut of all connections after each; all are placed."""
    add_nodes(served, 4)
    wait = threading.Event()
    with (
        cutting(served.kubeconfig, folder / "proxied", every_s) as cuts,
        scheduler(folder / "proxied", "--no-leader-elect"),
    ):
        for batch in range(batches):
            add_pods(served, [f"p{batch}-{i}" for i in range(6)], "10m")
            before = cuts()
            while cuts() == before:
                wait.wait(0.02)
        pods = until(served, PODS, lambda o: len(bound(o)) == 6 * batches, 120)
        assert 6 * batches == len(bound(pods))


@pytest.mark.behaviour("X4")
def test_watches_that_are_cut_again_and_again_lose_nothing(served: Client, tmp_path: Path) -> None:
    cut_while_loading(served, tmp_path, every_s=0.6, batches=5)


@pytest.mark.more
@pytest.mark.behaviour("X4")
def test_watches_that_are_cut_every_second_for_a_minute_lose_nothing(
    served: Client, tmp_path: Path
) -> None:
    cut_while_loading(served, tmp_path, every_s=1.0, batches=60)


@pytest.mark.behaviour("X4")
def test_a_scheduler_and_a_server_that_are_killed_go_on_where_they_were(tmp_path: Path) -> None:
    server = Process(tmp_path / "state")
    port = int(server.client.port)
    kubeconfig = tmp_path / "state" / "kubeconfig"
    try:
        add_nodes(server.client, 4)
        with scheduler(kubeconfig, "--no-leader-elect") as first:
            add_pods(server.client, [f"a{i}" for i in range(40)], "10m")
            until(server.client, PODS, lambda o: len(bound(o)) >= 5)
            first.kill()
        with scheduler(kubeconfig, "--no-leader-elect") as second:
            until(server.client, PODS, lambda o: len(bound(o)) == 40)
            server.kill()
            server = Process(tmp_path / "state", port=port)
            before = bound(until(server.client, PODS, lambda o: len(o) == 40))
            assert 40 == len(before)
            add_pods(server.client, [f"b{i}" for i in range(40)], "10m")
            after = bound(until(server.client, PODS, lambda o: len(bound(o)) == 80, 120))
            assert before == {name: after[name] for name in before}, "nothing moved"
            assert 0 == second.stop()
    finally:
        server.kill()


def test_one_of_two_leads_and_the_other_takes_over(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 2)
    config = tmp_path / "config.yaml"
    election = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "200ms"}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration", "leaderElection": election}  # fmt: skip
    config.write_text(yaml.safe_dump(document))
    with scheduler(served.kubeconfig, "--config", str(config)) as first:
        add_pods(served, ["a"])
        until(served, PODS, lambda o: "a" in bound(o))
        holder = served.call("GET", LEASE)[1]["spec"]["holderIdentity"]
        with scheduler(served.kubeconfig, "--config", str(config)):
            assert 0 == first.stop(), "it gives the Lease up"
            add_pods(served, ["b"])
            until(served, PODS, lambda o: "b" in bound(o))
            spec = served.call("GET", LEASE)[1]["spec"]
            assert holder != spec["holderIdentity"]
            assert 0 < spec["leaseTransitions"]


def test_what_it_tells_of_itself_wants_the_token(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 1)
    add_pods(served, ["a"])
    token = tmp_path / "token"
    with scheduler(
        served.kubeconfig, "--no-leader-elect", "--port", "0", "--token-file", str(token)
    ) as command:
        until(served, PODS, lambda o: "a" in bound(o))
        url = command.output.partition("dashboard and metrics on ")[2].partition(". ")[0]
        assert 0o600 == token.stat().st_mode & 0o777

        def get(path: str, shown: str = "") -> tuple[int, str]:
            request = urllib.request.Request(url + path)
            if shown:
                request.add_header("Authorization", f"Bearer {shown}")
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return response.status, response.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, ""

        assert (200, "ok") == get("/healthz")
        assert (200, "ok") == get("/readyz")
        assert 401 == get("/metrics")[0]
        assert 401 == get("/debug/decisions", "wrong")[0]
        placed = 'schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0'
        metrics, due_s = "", time.monotonic() + 10
        while placed not in metrics:  # it counts once the binding has been answered
            assert time.monotonic() < due_s
            metrics = get("/metrics", token.read_text().strip())[1]
        decisions = json.loads(get("/debug/decisions?pod=default/a", token.read_text().strip())[1])
        assert [("placed", "n0")] == [(d["outcome"], d["node"]) for d in decisions]
        assert ["n0"] == list(decisions[0]["scores"])
        assert 401 == get("/debug/pod?pod=default/a")[0]
        add_pods(served, ["big"], "9")
        until(served, PODS, lambda o: condition_false(o["big"]))
        path = "/debug/pod?pod=default/big"
        known = json.loads(get(path, token.read_text().strip())[1])
        assert [{"plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"], "nodes": 1,
                 "examples": ["n0"]}] == known["decisions"][0]["refused"]  # fmt: skip
        asked = ["explain", "pod", "big", "--kubeconfig", str(served.kubeconfig)]
        asked += ["--port", url.rpartition(":")[2], "--token-file", str(token)]
        ran = subprocess.run(
            [sys.executable, "-m", "stower.cli.main", *asked],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (0, "") == (ran.returncode, ran.stderr)
        assert "  the pod requests 9 cpu (n0 has 4, 3900m free)\n" in ran.stdout
        assert "Queue of the running scheduler: unschedulable; attempts: 1." in ran.stdout
        asked = ["what-if", str(served.kubeconfig), "--delete", "pod/default/a", "-o", "json"]
        ran = subprocess.run(
            [sys.executable, "-m", "stower.cli.main", *asked],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (0, "") == (ran.returncode, ran.stderr)
        assert (2, 1) == tuple(json.loads(ran.stdout)[k]["pods"] for k in ("before", "after"))


def test_no_way_to_the_server_is_one_clear_line(served: Client, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    ran = subprocess.run(
        [sys.executable, "-m", "stower.cli.main", "run", "--kubeconfig", str(missing)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (1, 1) == (ran.returncode, ran.stderr.count("\n"))
    assert "no such file" in ran.stderr
    config = yaml.safe_load(served.kubeconfig.read_text())
    cases: list[tuple[str, str, Any, str]] = [
        ("clusters", "server", "https://127.0.0.1:9", "cannot reach https://127.0.0.1:9"),
        ("users", "token", "wrong", "401"),
    ]
    for section, field, value, want in cases:
        changed = json.loads(json.dumps(config))
        entry = changed[section][0][section.removesuffix("s")]
        entry[field] = value
        if section == "users":
            del entry["client-certificate-data"], entry["client-key-data"]
        path = tmp_path / field
        path.write_text(yaml.safe_dump(changed))
        code, text = refusal("--kubeconfig", str(path))
        assert (1, 1) == (code, text.count("\n")), text
        assert want in text
    (tmp_path / "broken").write_text("{")
    code, text = refusal("--kubeconfig", str(tmp_path / "broken"))
    assert (1, 1) == (code, text.count("\n")), text
    code, text = refusal("--kubeconfig", str(served.kubeconfig), "--context", "nowhere")
    assert (1, 1) == (code, text.count("\n")), text
    assert "nowhere" in text


@pytest.mark.parametrize(
    "answer", [b'{"major":"1","minor":"12"}', b"<html>", b'{"major":"x"}', b"[]"]
)
def test_a_server_that_is_not_known_is_one_clear_line(answer: bytes, tmp_path: Path) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": url}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        code, text = refusal("--kubeconfig", str(path))
        server.shutdown()
    assert (1, 1) == (code, text.count("\n")), text
    assert "version" in text


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--token-file", "t"), "--port"),
        (("--bind-address", "0.0.0.0"), "--port"),
        (("--port", "0", "--tls-cert-file", "t"), "--tls-private-key-file"),
        (("--config", "no-such.yaml"), "no-such.yaml"),
        (("--in-flight", "0"), "--in-flight"),
    ],
)
def test_options_that_cannot_be(arguments: tuple[str, ...], want: str) -> None:
    code, text = refusal(*arguments)
    assert 2 == code
    assert want in text


@pytest.mark.behaviour("X5")
def test_what_was_recorded_over_http_replays_to_the_same_writes(
    served: Client, tmp_path: Path
) -> None:
    """Through cuts, a pod that fits nowhere, and a preemption."""
    recording = tmp_path / "r.ndjson.zst"
    add_nodes(served, 3)
    arguments = ("--no-leader-elect", "--record", str(recording))
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert 201 == served.call("POST", classes, {"metadata": {"name": "urgent"}, "value": 9})[0]
    with (
        cutting(served.kubeconfig, tmp_path / "proxied", 0.7) as cuts,
        scheduler(tmp_path / "proxied", *arguments) as command,
    ):
        add_pods(served, [f"p{number}" for number in range(40)], "200m")
        until(served, PODS, lambda o: len(bound(o)) == 40)
        wait = threading.Event()
        while not cuts():
            wait.wait(0.02)
        add_pods(served, ["big"], "64")
        until(served, PODS, lambda o: condition_false(o["big"]))
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
        spec = {"priorityClassName": "urgent", "containers": [container]}
        assert 201 == served.call("POST", PODS, {"metadata": {"name": "first"}, "spec": spec})[0]
        until(served, PODS, lambda o: o["first"]["status"].get("nominatedNodeName"))
        assert 0 == command.stop()
    ran = subprocess.run(
        [sys.executable, "-m", "stower.cli.main", "replay", str(recording), "--output", "json"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (0, "") == (ran.returncode, ran.stderr)
    told = json.loads(ran.stdout)
    assert None is told["difference"]
    assert told["writes"] > 40, "a Bind for each pod; a cut may lose an answer, and so an Event"
