"""When things go wrong: nothing that was acknowledged is lost, nothing is damaged."""

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest

from stower.apiserver.database import FILE, Batch, Database, StateError
from stower.apiserver.server_process import Options
from tests.contract.servers import Client, Process, in_thread

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def make_map(name: str, text: str = "v") -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"k": text}}


def names(client: Client) -> set[str]:
    _, listed = client.call("GET", CONFIG_MAPS)
    return {item["metadata"]["name"] for item in listed["items"]}


def test_kill_loses_no_acknowledged_write(tmp_path: Path) -> None:
    """Writers are busy when the process is killed; what was answered is there afterwards."""
    server = Process(tmp_path)
    acknowledged: list[str] = []
    enough = threading.Event()

    def write(worker: int) -> None:
        client = Client(server.state / "kubeconfig")
        for i in range(10_000):
            try:
                status, _ = client.call("POST", CONFIG_MAPS, make_map(f"w{worker}-{i}"))
            except Exception:
                return
            if status == 201:
                acknowledged.append(f"w{worker}-{i}")
                if len(acknowledged) > 200:
                    enough.set()

    workers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    assert enough.wait(60)
    server.kill()
    for worker in workers:
        worker.join()
    again = Process(tmp_path)
    try:
        assert set(acknowledged) <= names(again.client)
    finally:
        assert 0 == again.stop()


def test_objects_and_revisions_outlive_a_restart(tmp_path: Path) -> None:
    """Objects keep their bytes; new revisions go on from the old; older watches are told 410."""
    with in_thread(Options(tmp_path)) as (_, client):
        _, made = client.call("POST", CONFIG_MAPS, make_map("a"))
        _, changed = client.call("PUT", f"{CONFIG_MAPS}/a", make_map("a", "w"))
        client.call("POST", CONFIG_MAPS, make_map("b"))
        client.call("DELETE", f"{CONFIG_MAPS}/b")
    with in_thread(Options(tmp_path)) as (_, client):
        assert (200, changed) == client.call("GET", f"{CONFIG_MAPS}/a")
        assert {"a"} == names(client)
        _, later = client.call("POST", CONFIG_MAPS, make_map("c"))
        old = int(changed["metadata"]["resourceVersion"])
        assert int(later["metadata"]["resourceVersion"]) > old + 1
        since = made["metadata"]["resourceVersion"]
        path = f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={since}"
        _, event = client.call("GET", path)
        assert ("ERROR", 410) == (event["type"], event["object"]["code"])


def test_second_server_refuses_the_directory(tmp_path: Path) -> None:
    second = in_thread(Options(tmp_path))
    with in_thread(Options(tmp_path)), pytest.raises(StateError, match="another stower apiserver"):
        second.__enter__()


def test_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A clear message, exit code 1, and not one byte changed."""
    file = tmp_path / FILE
    file.write_bytes(b"this is no database" * 1000)
    before = file.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "stower.cli.main", "apiserver", "--state", str(tmp_path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert 1 == done.returncode
    assert "not a database" in done.stderr
    assert "Traceback" not in done.stderr
    assert before == file.read_bytes()


def test_torn_page_is_found(tmp_path: Path) -> None:
    """Damage inside the file is found at the start, before anything is served."""
    with in_thread(Options(tmp_path)) as (_, client):
        for i in range(200):
            client.call("POST", CONFIG_MAPS, make_map(f"c{i}", "x" * 200))
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    data[8192 * 2 : 8192 * 3] = b"\xff" * 8192
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(StateError, match="nothing was changed"), in_thread(Options(tmp_path)):
        pass


def test_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    """A write that cannot be kept is a 500 and did not happen; the next one works again."""
    with in_thread(Options(tmp_path)) as (server, client):
        client.call("POST", CONFIG_MAPS, make_map("before"))
        database = server.handler.committer.database  # type: ignore[union-attr]
        pages = database.connection.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[union-attr]
        database.connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[union-attr]
        status, body = client.call("POST", CONFIG_MAPS, make_map("big", "x" * 500_000))
        assert 500 == status
        assert "full" in body["message"]
        assert {"before"} == names(client)
        database.connection.execute("PRAGMA max_page_count = 1073741823")  # type: ignore[union-attr]
        assert 201 == client.call("POST", CONFIG_MAPS, make_map("big", "x" * 500_000))[0]
    with in_thread(Options(tmp_path)) as (_, client):
        assert {"before", "big"} == names(client)


def test_stalled_watcher_holds_nobody_up_and_misses_nothing(tmp_path: Path) -> None:
    """A client that stops reading is served from its position when it reads again."""
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        watcher = client.connect()
        headers = {"Authorization": f"Bearer {client.token}"}
        watcher.request("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=30", headers=headers)
        response = watcher.getresponse()
        count = 400
        for i in range(count):
            assert 201 == client.call("POST", CONFIG_MAPS, make_map(f"m{i}", "x" * 20_000))[0]
        seen = []
        while len(seen) < count:
            seen.append(json.loads(response.readline())["object"]["metadata"]["name"])
        assert [f"m{i}" for i in range(count)] == seen
        watcher.close()


class Gate:
    """Commits that wait, or fail, when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        self.open.set()
        self.failing = self.fails_every_other = False
        self.turn = 0
        commit = Database.commit

        def gated(database: Database, batch: Batch) -> None:
            self.entered.set()
            assert self.open.wait(30)
            self.turn += 1
            if self.failing or (self.fails_every_other and self.turn % 2):
                raise sqlite3.OperationalError("database or disk is full")
            commit(database, batch)

        monkeypatch.setattr(Database, "commit", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def watched(client: Client, since: str = "") -> list[tuple[str, str]]:
    """What a watch of a second shows."""
    path = f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={since}"
    lines = client.raw("GET", path)[2].splitlines()
    events = [json.loads(line) for line in lines]
    return [(e["type"], e["object"]["metadata"]["name"]) for e in events]


def test_watch_shows_nothing_that_is_not_on_disk(tmp_path: Path, gate: Gate) -> None:
    """Not even where it is the first object of its kind; and then once."""
    with in_thread(Options(tmp_path)) as (_, client):
        gate.open.clear()
        gate.entered.clear()
        other = Client(client.kubeconfig)
        writer = threading.Thread(target=other.call, args=("POST", CONFIG_MAPS, make_map("a")))
        writer.start()
        assert gate.entered.wait(30)
        assert [] == watched(client)
        gate.open.set()
        writer.join()
        other.close()
        assert [("ADDED", "a")] == watched(client)


def test_writes_in_a_row_are_answered_by_their_own_commit(tmp_path: Path, gate: Gate) -> None:
    """A connection whose write failed has its next one carried out while others are told."""
    with in_thread(Options(tmp_path)) as (_, client):
        gate.fails_every_other = True
        raw = create_connection((client.host, int(client.port)), timeout=20)
        with client.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            sent = b""
            for i in range(40):
                body = json.dumps(make_map(f"m{i}")).encode()
                head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                head += f"{client.token}\r\nContent-Length: {len(body)}\r\n\r\n"
                sent += head.encode() + body
            connection.sendall(sent)
            answers = HTTPAnswers(connection)
            statuses = [answers.next() for _ in range(40)]
        gate.fails_every_other = False
        _, listed = client.call("GET", CONFIG_MAPS)
        there = {item["metadata"]["name"] for item in listed["items"]}
        assert {201, 500} == set(statuses)
        assert {f"m{i}" for i, status in enumerate(statuses) if status == 201} == there


class HTTPAnswers:
    """The statuses of answers that come one after the other."""

    def __init__(self, connection: Any) -> None:
        self._file = connection.makefile("rb")

    def next(self) -> int:
        status, size = int(self._file.readline().split()[1]), 0
        while (line := self._file.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        self._file.read(size)
        return status


def test_revisions_of_failed_writes_hide_no_later_event(tmp_path: Path, gate: Gate) -> None:
    """Whoever listed after failed writes sees all that is written from then on, restart or not."""
    with in_thread(Options(tmp_path)) as (_, client):
        gate.failing = True
        assert {500} == {client.call("POST", CONFIG_MAPS, make_map(f"x{i}"))[0] for i in range(4)}
        listed = client.call("GET", CONFIG_MAPS)[1]
        assert [] == listed["items"]
        gate.failing = False
    with in_thread(Options(tmp_path)) as (_, client):
        assert 201 == client.call("POST", CONFIG_MAPS, make_map("a"))[0]
        assert [("ADDED", "a")] == watched(client, listed["metadata"]["resourceVersion"])


def test_server_that_cannot_write_does_not_start(tmp_path: Path, gate: Gate) -> None:
    gate.failing = True
    with pytest.raises(StateError, match="disk is full"), in_thread(Options(tmp_path)):
        pass
