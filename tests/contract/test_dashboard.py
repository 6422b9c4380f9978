"""The dashboard over HTTP: who is let in, what pages are told, and what that costs."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.serve import Options
from stower.dashboard.app import TYPES
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import PODS, add_nodes, add_pods, bound
from tests.contract.test_telling import get, url_of
from tests.contract.test_up import stower

Object = dict[str, Any]


class Stream:
    """What a page is told, message by message."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{url}/dashboard/stream", headers=headers)
        self._answer = urllib.request.urlopen(request, timeout=20)
        self.rows: dict[str, Object | None] = {}
        self.last: Object = {}

    def until(self, good: Any) -> None:
        """Read on until it is."""
        for line in self._answer:
            if not line.startswith(b"data: "):
                continue
            message = json.loads(line[6:])
            self.rows.update(message.get("rows", {}))
            self.last.update(message)
            if good(self):
                return
        raise AssertionError("the stream has ended")

    def pods(self) -> dict[str, str]:
        """On which node each is."""
        nodes = [node for node in self.rows.values() if node is not None]
        return {pod[0]: node["name"] for node in nodes for pod in node["pods"]}

    def close(self) -> None:
        self._answer.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Client, str, str]]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        path = tmp_path / "token"
        command = Command("run", "--kubeconfig", str(client.kubeconfig), "--no-leader-elect",
                          "--port", "0", "--token-file", str(path))  # fmt: skip
        try:
            yield client, url_of(command.output), path.read_text().strip()
        finally:
            command.kill()


def test_a_page_is_told_of_all_there_is_and_then_of_changes(
    served: tuple[Client, str, str],
) -> None:
    client, url, token = served
    add_nodes(client, 3)
    add_pods(client, ["a"])
    until(client, PODS, lambda o: "a" in bound(o))
    stream = Stream(url, token)
    stream.until(lambda s: len(s.rows) == 3 and "default/a" in s.pods())
    add_pods(client, ["b", "huge"], "1")
    huge = {"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "900"}}}
    ]}, "metadata": {"name": "waits"}}  # fmt: skip
    client.call("POST", PODS, huge)
    stream.until(lambda s: "default/b" in s.pods())
    stream.until(lambda s: "default/waits" in [w["pod"] for w in s.last.get("waiting", ())])
    (waits,) = stream.last["waiting"]
    assert ["NodeResourcesFit"] == waits["refusedBy"]
    node = next(n for n in stream.rows.values() if n and n["name"] == stream.pods()["default/b"])
    assert node["amounts"]["cpu"][1] == 4000
    client.call("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0})
    stream.until(lambda s: "default/b" not in s.pods())
    empty = next(name for name in ("n0", "n1", "n2") if name != stream.pods()["default/a"])
    client.call("DELETE", f"/api/v1/nodes/{empty}")
    stream.until(lambda s: None in s.rows.values())
    late = Stream(url, token)
    late.until(lambda s: len(s.rows) == 2 and "default/a" in s.pods())
    for one in (stream, late):
        one.close()


def test_files_hold_no_secrets_and_everything_else_is_guarded(
    served: tuple[Client, str, str],
) -> None:
    _, url, token = served
    assert 401 == get(f"{url}/dashboard/stream")[0]
    assert 401 == get(f"{url}/dashboard/stream", "wrong")[0]
    assert 401 == get(f"{url}/debug/pod?pod=default/a")[0]
    for name in ("", *(name for name in TYPES if name != "index.html")):
        with urllib.request.urlopen(f"{url}/dashboard/{name}", timeout=10) as answer:
            body, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert token not in body
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "nosniff" == answer.headers["X-Content-Type-Options"]
        assert "http" not in body or name == "preact.js", "nothing is loaded from elsewhere"
    assert 404 == get(f"{url}/dashboard/other")[0]


def test_up_says_where_it_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    try:
        code, said, _ = stower(
            "up", "--state", str(state), "--port", "0", "--nodes", "2", "--detach"
        )
        assert 0 == code
        url, _, token = said.partition("Dashboard: ")[2].split()[0].partition("/dashboard/#token=")
        stream = Stream(url, token)
        stream.until(lambda s: {"node-1", "node-2"} <= {n["name"] for n in s.rows.values() if n})
        stream.close()
        _, shown, _ = stower("status", "--state", str(state), "-o", "json")
        assert f"{url}/dashboard/#token={token}" == json.loads(shown)["dashboard"]
        for path in (path for path in state.rglob("*") if path.is_file()):
            if token.encode() in path.read_bytes():
                assert 0o600 == path.stat().st_mode & 0o777, f"others can read {path.name}"
    finally:
        stower("down", "--state", str(state))


def test_a_hundred_pages_cost_the_scheduler_next_to_nothing(
    served: tuple[Client, str, str],
) -> None:
    """Of its CPU, for the same pods with and without them; and it never stands still for them."""
    client, url, token = served
    add_nodes(client, 50)

    def metric(name: str) -> float:
        _, text = get(f"{url}/metrics", token)
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
        return float(line.split()[1])

    def placed(kind: str) -> float:
        """CPU seconds of the scheduler for 200 pods."""
        before = metric("process_cpu_seconds_total")
        add_pods(client, [f"{kind}{number}" for number in range(200)], "1m")
        until(client, PODS, lambda o: sum(name.startswith(kind) for name in bound(o)) == 200)
        return metric("process_cpu_seconds_total") - before

    alone = placed("alone")
    pages = [Stream(url, token) for _ in range(100)]
    pages[-1].until(lambda s: len(s.rows) == 50)
    metric("stower_loop_stall_seconds_max")  # since last asked
    watched = placed("watched")
    assert metric("stower_loop_stall_seconds_max") < 0.5
    assert watched < 2 * alone + 0.5, f"{alone:.2f} s alone, {watched:.2f} s with 100 pages"
    print(f"CPU of the scheduler for 200 pods: {alone:.2f} s alone, {watched:.2f} s with 100 pages")
    for page in pages:
        page.close()
