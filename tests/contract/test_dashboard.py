"""The dashboard over HTTP: who is let in, what pages are told, and what that costs."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from stower.apiserver.server_process import Options
from stower.dashboard.app import STATIC
from tests.contract.campus import FOLDER, PLACED, WAITING, campus
from tests.contract.in_process import stower_in_process
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import PODS, add_nodes, add_pods, bound
from tests.contract.test_status_reports import get, url_of
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
            if message.get("begin"):
                self.rows.clear()
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


def test_an_open_page_keeps_nobody_from_stopping(
    served: tuple[Client, str, str], tmp_path: Path
) -> None:
    client, _, _ = served
    path = tmp_path / "other"
    command = Command("run", "--kubeconfig", str(client.kubeconfig), "--no-leader-elect",
                      "--port", "0", "--token-file", str(path))  # fmt: skip
    stream = Stream(url_of(command.output), path.read_text().strip())
    stream.until(lambda s: "standing" in s.last)
    began_s = time.monotonic()
    command.process.send_signal(signal.SIGTERM)
    assert 0 == command.process.wait(30)
    assert time.monotonic() - began_s < 8
    stream.close()
    command.kill()


def test_a_page_that_opens_whenever_the_last_one_closed_is_told_of_changes(
    served: tuple[Client, str, str],
) -> None:
    client, url, token = served
    add_nodes(client, 1)
    for number in range(12):  # the moment at which nobody looks any more is among these
        stream = Stream(url, token)
        stream.until(lambda s, count=number + 1: len(s.rows) == count)
        stream.close()
        node = {"metadata": {"name": f"late-{number}"}, "status": {"allocatable": {"cpu": "1"}}}
        assert 201 == client.call("POST", "/api/v1/nodes", node)[0]
        threading.Event().wait(0.17 * number)


def test_files_hold_no_secrets_and_everything_else_is_guarded(
    served: tuple[Client, str, str],
) -> None:
    _, url, token = served
    assert 401 == get(f"{url}/dashboard/stream")[0]
    assert 401 == get(f"{url}/dashboard/stream", "wrong")[0]
    assert 401 == get(f"{url}/debug/pod?pod=default/a")[0]
    for name in ("", *(file.name for file in STATIC.iterdir())):
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


def asked(url: str, token: str, view: str, **query: str) -> Any:
    """What a page would show."""
    status, text = get(f"{url}/dashboard/view/{view}?{urlencode(query)}", token)
    assert 200 == status, text
    return json.loads(text)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The campus; address and token of its dashboard, and its recording."""
    folder = tmp_path_factory.mktemp("campus")
    with campus(folder / "state", "--record", str(folder / "recording")) as (_, link):
        url, _, token = link.partition("/dashboard/#token=")
        yield url, token, folder / "recording"


def test_each_part_of_a_cluster_has_a_page(everything: tuple[str, str, Path]) -> None:
    url, token, _ = everything
    groups = {row["name"]: row for row in asked(url, token, "groups")["rows"]}
    assert ("placed", 2) == (groups["default/train"]["state"], groups["default/train"]["have"])
    assert groups["default/train-workers"]["domain"].startswith("rack=")
    assert "impossible" == groups["default/wide"]["state"]
    devices = {row["pool"]: row for row in asked(url, token, "devices")["rows"]}
    assert {"gpu-1", "gpu-2"} == devices.keys()
    claims = [holder["claim"] for row in devices.values() for holder in row["holders"]]
    assert [f"default/share-{n}" for n in range(1, 6)] == sorted(claims)
    (talk,) = asked(url, token, "negotiations")["rows"]
    assert ("default/attach", 10) == (talk["pod"], talk["candidates"])
    vms = asked(url, token, "vms")["rows"]
    assert ["default/pg-1", "default/pg-2", "default/pg-3"] == [row["vm"] for row in vms]
    assert all(row["approved"] for row in vms)
    stream = Stream(url, token)
    stream.until(lambda s: len(s.rows) == 23)
    slices = [pod for node in stream.rows.values() if node for pod in node["pods"]]
    stream.close()
    drawn_vms = [pod for pod in slices if pod[1] == "vm"]
    assert 3 == len(drawn_vms)
    assert all(cpu >= 250 and memory >= 1024 for _, _, cpu, memory, _ in drawn_vms)
    kinds = {pod[1] for pod in slices}
    assert {"pod", "user", "gang", "devices", "vm", "placeholder"} == kinds
    (pool,) = asked(url, token, "warm")["rows"]
    assert (9, 6) == (pool["users"], pool["placed"])
    drawn = "".join(node["drawn"] for node in pool["nodes"])
    assert (9, 6) == (drawn.count("U"), drawn.count("P"))


def test_a_pod_is_explained_with_what_would_help_and_how_it_came_there(
    everything: tuple[str, str, Path],
) -> None:
    url, token, _ = everything
    huge = asked(url, token, "pod", pod="default/huge")
    assert "refused" == huge["explanation"]["verdict"]
    (best, *_) = huge["explanation"]["changes"]
    assert best["node"].startswith("gpu-")
    assert ["created", "attempt 1: unschedulable"] == [one["what"] for one in huge["timeline"]][:2]
    user = asked(url, token, "pod", pod="jhub/jupyter-1")
    assert "placed" == user["explanation"]["verdict"]
    order = ["created", "attempt 1: placed", "PodScheduled", "accepted by the kubelet", "Ready"]
    told = [one["what"] for one in user["timeline"]]
    assert order == [what for what in told if what in order]
    assert (["default/attach"], "no such pod") == (
        [one["pod"] for one in asked(url, token, "pod", pod="default/attach")["negotiation"]],
        asked(url, token, "pod", pod="default/none").get("explanation", "no such pod"),
    )


def test_what_would_change_is_seen_before_anything_does(
    everything: tuple[str, str, Path],
) -> None:
    url, token, _ = everything
    (pool,) = asked(url, token, "warm")["rows"]
    drained = max(pool["nodes"], key=lambda node: int(node["users"]))["node"]
    found = asked(url, token, "what-if", add="2", like="gpu-1", remove=drained)
    assert (23, 24) == (found["before"]["nodes"], found["after"]["nodes"])
    moved = [row for row in found["moved"]["rows"] if row["before"] == drained]
    assert moved, "whoever was on the drained node is elsewhere"
    anew = asked(url, token, "what-if", weight="NodeResourcesFit=1000", anew="")
    assert anew["moved"]["count"] > 0
    for query in ({"add": "many"}, {"add": "99999999"}, {"remove": "nobody"}, {"weight": "X=1"},
                  {"add": "1", "like": "nobody"}, {"weight": "ImageLocality"}):  # fmt: skip
        status, text = get(f"{url}/dashboard/view/what-if?{urlencode(query)}", token)
        assert 422 == status
        assert [*query.values()][-1].partition("=")[0] in text
    assert 23 == asked(url, token, "what-if", add="1")["before"]["nodes"], "still as it was"


def test_the_page_and_the_command_say_the_same(everything: tuple[str, str, Path]) -> None:
    url, token, recording = everything
    config = str(FOLDER / "scheduler.yaml")
    state = str(recording.parent / "state")
    for query, arguments in (
        ({"remove": "user-1"}, ("--remove-node", "user-1")),
        ({"add": "3", "anew": ""}, ("--add-nodes", "3", "--anew")),
        ({"weight": "NodeResourcesFit=1000", "anew": ""},
         ("--weight", "NodeResourcesFit=1000", "--anew")),
    ):  # fmt: skip
        for turn in range(5):  # until nothing has moved in the cluster meanwhile
            page = asked(url, token, "what-if", **query, turn=f"{turn} before")
            code, said, error = stower("what-if", "--state", state, *arguments, "--config", config,
                                       "--config-now", config, "-o", "json")  # fmt: skip
            if page == asked(url, token, "what-if", **query, turn=f"{turn} after"):
                break
        assert 0 == code, error
        command = json.loads(said)
        assert page["after"]["running"] == command["after"]["running"]
        for name in ("moved", "newlyPending", "newlyPlaced"):
            assert page[name]["rows"] == command[name], f"{name} of {query}"


def test_views_are_for_whom_the_door_lets_in_and_leave_nothing_behind(
    everything: tuple[str, str, Path],
) -> None:
    url, token, _ = everything
    assert 401 == get(f"{url}/dashboard/view/groups")[0]
    assert 404 == get(f"{url}/dashboard/view/other", token)[0]
    assert 414 == get(f"{url}/dashboard/view/groups?x={'y' * 8000}", token)[0]
    _, text = get(f"{url}/metrics", token)
    (line,) = (line for line in text.splitlines() if line.startswith("process_open_fds"))
    before = float(line.split()[1])
    for number in range(20):
        asked(url, token, "groups", number=str(number))
    _, text = get(f"{url}/metrics", token)
    (line,) = (line for line in text.splitlines() if line.startswith("process_open_fds"))
    assert float(line.split()[1]) <= before + 2
    assert 404 == post(f"{url}/dashboard/moment?seconds=1", token), "a scheduler is at one moment"


def post(url: str, token: str) -> int:
    request = urllib.request.Request(url, method="POST")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_recording_is_seen_at_any_moment(
    everything: tuple[str, str, Path], tmp_path: Path
) -> None:
    _, _, recording = everything
    copied = tmp_path / "recording"
    copied.write_bytes(recording.read_bytes())
    command = Command("replay", str(copied), "--port", "0")
    try:
        url, _, token = (
            command.output.partition("Dashboard: ")[2].split()[0].partition("/dashboard/#token=")
        )
        stream = Stream(url, token)

        def at(seconds: float) -> dict[str, Any]:
            assert 204 == post(f"{url}/dashboard/moment?seconds={seconds}", token)
            stream.until(
                lambda s: (
                    abs(s.last["standing"]["recording"]["at"] - seconds) < 1e-6
                    and "waiting" in s.last
                )
            )
            return stream.last["standing"]["recording"]

        stream.until(lambda s: "standing" in s.last and s.last["standing"]["recording"]["at"] > 0)
        whole = stream.last["standing"]["recording"]["seconds"]
        assert at(whole)["seconds"] == whole
        assert len(stream.pods()) == PLACED
        assert {one["pod"] for one in stream.last["waiting"]} == WAITING
        at(0)
        assert {} == stream.pods()
        assert 404 != get(f"{url}/dashboard/view/pod?pod=default/huge", token)[0]
        assert [] == asked(url, token, "pod", pod="default/huge")["timeline"]
        at(whole)
        assert "refused" == asked(url, token, "pod", pod="default/huge")["explanation"]["verdict"]
        assert 24 == asked(url, token, "what-if", add="1")["after"]["nodes"]
        assert 401 == post(f"{url}/dashboard/moment?seconds=1", "wrong")
        for seconds in ("soon", "", "nan", "inf", "-1", "1_0"):
            assert 400 == post(f"{url}/dashboard/moment?seconds={seconds}", token)
        stream.close()
    finally:
        command.kill()


def test_a_simulation_is_seen_too_though_its_time_begins_at_zero(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "groups" / "two-blocks.yaml"
    path = tmp_path / "recording.ndjson"
    assert 0 == stower("simulate", str(example), "--record", str(path))[0]
    command = Command("replay", str(path), "--port", "0")
    try:
        link = command.output.partition("Dashboard: ")[2].split()[0]
        url, _, token = link.partition("/dashboard/#token=")
        stream = Stream(url, token)
        stream.until(lambda s: len(s.pods()) == 10)
        stream.close()
        states = {row["state"] for row in asked(url, token, "groups")["rows"]}
        assert {"placed"} == states
        taken = url.rpartition(":")[2]
        said = f"127.0.0.1:{taken}: Address already in use; give another --port"
        for verb in (("replay", str(path)), ("apiserver", "--memory")):
            code, _, error = stower_in_process(*verb, "--port", taken)
            assert (1, True) == (code, said in error), error
    finally:
        command.kill()


def test_no_recording_no_dashboard(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path / "empty", "recording")):
        code, _, said = stower_in_process("replay", str(path), "--port", "0")
        assert (2, True) == (code, why in said), said
    code, _, said = stower_in_process("replay", str(tmp_path / "none"), "--token-file", "t")
    assert (2, True) == (code, "--port" in said)


def test_top_in_a_terminal(served: tuple[Client, str, str], tmp_path: Path) -> None:
    client, url, token = served
    add_nodes(client, 3)
    add_pods(client, ["a"])
    until(client, PODS, lambda o: "a" in bound(o))
    (tmp_path / "own").write_text(token)
    where = "--port", url.rpartition(":")[2], "--token-file", str(tmp_path / "own")
    code, shown, _ = stower("top", "--once", *where)
    assert (0, True) == (code, "3 nodes   1 pods placed" in shown)
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "stower.cli.main", "top", *where]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        _read_until(leader, "by cpu")
        os.write(leader, b"m")
        _read_until(leader, "by memory")
        os.write(leader, b"q")
        _read_until(leader, "\x1b[?1049l")  # the screen is as it was
        assert 0 == process.wait(20)
    os.close(leader)
    leader, follower = pty.openpty()
    dumb = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=dumb) as p:
        os.close(follower)
        assert "\x1b" not in _read_until(leader, "by cpu")
        os.write(leader, b"q")
        assert 0 == p.wait(20)
    os.close(leader)
    (tmp_path / "own").write_text("wrong")
    code, _, said = stower("top", "--once", *where)
    assert (1, True) == (code, "401" in said)


def _read_until(descriptor: int, wanted: str) -> str:
    found = ""
    while wanted not in found:
        found += os.read(descriptor, 65536).decode(errors="replace")
    return found


def test_watch_shows_it_again_until_it_is_told_to_stop(served: tuple[Client, str, str]) -> None:
    client, _, _ = served
    command = [sys.executable, "-m", "stower.cli.main", "get", "pending", "--watch", "--every",
               "0.1", "--kubeconfig", str(client.kubeconfig)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "No pod waits for a node.\n" == process.stdout.readline()
        client.call("POST", PODS, {"metadata": {"name": "waits"}, "spec": {"containers": [
            {"name": "c", "image": "i"}]}})  # fmt: skip
        for line in process.stdout:
            if "default/waits" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert 0 == process.wait(20)
    code, _, said = stower_in_process("groups", "all", "-", "--watch")
    assert (2, True) == (code, "once" in said)
    code, _, said = stower_in_process("groups", "--watch", "--kubeconfig", "/nowhere")
    assert (1, True) == (code, "no such file" in said)
