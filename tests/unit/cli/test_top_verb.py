"""stower top: the stream of a scheduler, read again where it breaks, and keys on a terminal."""

import http.client
import io
import json
import os
import pty
import select
import sys
import threading
import urllib.error
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from aiohttp import web

from stower.cli import state_folder
from stower.cli.main import app
from stower.cli.scheduler_client import open_url, read_token, token_for
from stower.cli.state_folder import hold_state
from stower.cli.supervisor import (
    RECORD,
    TOKEN,
    Record,
)
from stower.cli.verbs import top
from tests.unit.cli.served import in_thread, invoke
from tests.unit.cli.test_top import node

# The thread that reads the stream is ended by an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

STREAM = [
    {"begin": True},
    {"rows": {"0": node("node-1", 500, 100, 2)}},
    {"standing": {"leads": True}, "queue": {"active": 4}, "waiting": []},
]


class Stream(io.BytesIO):
    """One answer of the scheduler: a line for each message."""

    def __init__(self, messages: list[Any]) -> None:
        lines = [": keep-alive\n", *(f"data: {json.dumps(one)}\n\n" for one in messages)]
        super().__init__("".join(lines).encode())


class Scheduler:
    """Answers in place of a scheduler; ends the thread that reads once there is no answer left."""

    def __init__(self) -> None:
        self.answers: list[Any] = [Stream(STREAM)]
        self.asked: list[tuple[str, str]] = []
        self.ended = threading.Event()

    def opened(self, url: str, token: str, seconds: float) -> Any:
        self.asked.append((url, token))
        if not self.answers:
            self.ended.set()
            raise SystemExit
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler()
    monkeypatch.setattr(top, "open_url", made.opened)
    monkeypatch.setattr(top, "FRESH_SECONDS", 0.001)
    return made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def test_the_state_is_shown_once_where_there_is_no_terminal(
    scheduler: Scheduler, token: Path
) -> None:
    told = invoke("top", "--port", "7", "--token-file", token)
    assert (0, True) == (told.exit_code, told.stdout.startswith("Stower leads   1 nodes"))
    assert ("http://127.0.0.1:7/dashboard/stream", "secret") == scheduler.asked[0]
    assert scheduler.ended.wait(5)


def test_the_scheduler_of_a_folder_is_found_by_its_record(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)
    told = invoke("top", "--state", tmp_path)
    assert (1, True) == (told.exit_code, f"no scheduler runs from {tmp_path}: " in told.stderr)
    with hold_state(tmp_path):
        record = Record(1, "https://x", "k", "http://127.0.0.1:8")
        (tmp_path / RECORD).write_bytes(msgspec.json.encode(record))
        assert 1 == invoke("top", "--state", tmp_path, "--once").exit_code
        (tmp_path / TOKEN).write_text("of-up\n")
        assert 0 == invoke("top", "--state", tmp_path, "--once").exit_code
    assert ("http://127.0.0.1:8/dashboard/stream", "of-up") == scheduler.asked[0]
    assert scheduler.ended.wait(5)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (urllib.error.HTTPError("u", 401, "Unauthorized", http.client.HTTPMessage(), None),
         "401 Unauthorized"),
        (urllib.error.URLError("connection refused"), "connection refused"),
        (http.client.BadStatusLine("SSH-2.0"), "SSH-2.0"),
        (io.BytesIO(b"data: {\n"), "Expecting property name"),
        (io.BytesIO(b"data: 3\n"), "'int' object has no attribute"),
    ],
)  # fmt: skip
def test_a_scheduler_that_does_not_answer_as_one_is_an_error(
    scheduler: Scheduler, token: Path, answer: Any, said: str
) -> None:
    scheduler.answers = [answer]
    told = invoke("top", "--port", "7", "--token-file", token)
    assert (1, 1) == (told.exit_code, len(scheduler.asked))
    assert told.stderr.startswith("stower: error: http://127.0.0.1:7: ")
    assert said in told.stderr


def test_a_stream_without_a_state_is_an_error(
    scheduler: Scheduler, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "PATIENCE_SECONDS", 0.05)
    scheduler.answers = [Stream([{"begin": True}])]
    told = invoke("top", "--port", "7", "--token-file", token)
    assert (1, True) == (told.exit_code, "no data of a scheduler within 0 s" in told.stderr)
    assert scheduler.ended.wait(5)


class Terminal:
    """A terminal on which keys are pressed while the verb waits for one."""

    def __init__(self, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ours, theirs = pty.openpty()
        self.shown = b""
        self._keys = iter(keys.encode())
        self._files = (os.fdopen(theirs, "r"), os.fdopen(os.dup(theirs), "w"))
        self._select = select.select
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        monkeypatch.setattr(sys, "stdin", self._files[0])
        monkeypatch.setattr(sys, "stdout", self._files[1])
        monkeypatch.setattr(top.select, "select", self.select)

    def select(self, *arguments: Any) -> Any:
        """Presses the next key, then waits for it. The verb is in cbreak mode by now."""
        os.write(self.ours, bytes([next(self._keys)]))
        return self._select(*arguments)

    def _read(self) -> None:
        try:
            while data := os.read(self.ours, 65_536):
                self.shown += data
        except OSError:
            pass

    def close(self) -> str:
        """Returns all that was shown."""
        for file in self._files:
            file.close()
        self._reader.join(5)
        os.close(self.ours)
        return self.shown.decode()


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_keys_sort_nodes_and_end_it(
    scheduler: Scheduler, token: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that cannot redraw gets pictures below each other, less often."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(top, "SLOW_SECONDS", 0.0)
    terminal = Terminal("mxpq", monkeypatch)
    try:
        app(["top", "--port", "7", "--token-file", str(token)], standalone_mode=False)
    finally:
        shown = terminal.close()
    for text in ("Nodes, by memory (1)", "Nodes, by pods (1)", "node-1"):
        assert text in shown
    assert ("\x1b[?1049h" in shown) == (kind == "xterm")


# The client of a scheduler on this machine


def test_requests_carry_the_token_and_pass_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(text="hello")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with in_thread(handle) as url, open_url(f"{url}/x", "secret", 5) as answer:
        assert b"hello" == answer.read()
    assert ["Bearer secret"] == seen


def test_port_and_token_come_together(token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ("", "secret") == (token_for(None, None), token_for(7, token))
    for port, path in ((7, None), (None, token)):
        with pytest.raises(typer.Exit):
            token_for(port, path)
        assert "--port and --token-file: want both or none" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines\n", b"\xff\xfe"])
def test_a_token_is_one_word(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(typer.Exit):
        read_token(path)
    assert "want one line with a token" in capsys.readouterr().err


def test_a_token_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        read_token(tmp_path)
    assert f"--token-file {tmp_path}: Is a directory" in capsys.readouterr().err
