"""A driver's ledger in a file: what it keeps through crashes, and what it says of damage."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stower.driver import Entry
from stower.live import ledger as module
from stower.live.ledger import FileLedger, LedgerError

NAME = "fabric.example.com"


def entry(uid: str, node: str = "n1") -> Entry:
    results = [{"request": "r", "driver": NAME, "pool": node, "device": uid}]
    return Entry(uid, "default", f"claim-{uid}", node, {"devices": {"results": results}})


def opened(path: Path) -> dict[str, Entry]:
    with FileLedger(path, NAME) as ledger:
        return dict(ledger.entries)


def test_what_was_put_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([Entry("a", "default", "claim-a", "n1"), entry("b")])
        ledger.put([entry("a")])
        ledger.put([entry("c")])
        ledger.drop(["b", "unknown"])
        assert {"a": entry("a"), "c": entry("c")} == ledger.entries
    assert {"a": entry("a"), "c": entry("c")} == opened(path)
    assert 0o600 == path.stat().st_mode & 0o777
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_crash_at_any_byte_of_the_last_line_loses_that_line_at_most(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
        before = path.read_bytes()
        ledger.put([entry("b"), entry("c")])
        after = path.read_bytes()
    for size in range(len(before), len(after) + 1):
        path.write_bytes(after[:size])
        want = {"a"} if size < len(after) else {"a", "b", "c"}
        with FileLedger(path, NAME) as ledger:
            assert want == set(ledger.entries), size
            ledger.put([entry("d")])
        assert want | {"d"} == set(opened(path)), size


@pytest.mark.parametrize("kept", [0, 7])
def test_a_last_line_that_a_power_cut_has_filled_with_zeros_is_left_out(
    tmp_path: Path, kept: int
) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
    with path.open("ab") as file:
        file.write(b'{"put":[' + b"\0" * 50 + b'"]}\n'[:kept])
    assert {"a"} == set(opened(path))


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (b"{", "line 3: "),
        (b'{"put":[{"uid":7}]}', "line 3: Expected `str`"),
        (b'{"put":[],"drop":[]}', "line 3: want either put or drop"),
        (b'{"putt":[]}', "line 3: "),
        (b'"\xff"', "line 3: "),
        (b"\0\0", "line 3: the line is incomplete"),
        (b"", "line 3: "),
    ],
)
def test_a_line_that_is_damaged_is_named_and_nothing_is_lost(
    tmp_path: Path, line: bytes, want: str
) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
        ledger.put([entry("b")])
        ledger.put([entry("c")])
    lines = path.read_bytes().split(b"\n")
    damaged = b"\n".join([*lines[:2], line, *lines[3:]])
    path.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(LedgerError) as raised:
            FileLedger(path, NAME)
        text = str(raised.value)
        assert text.startswith(f"ledger {path}, {want}")
        assert "\n" not in text
        assert damaged == path.read_bytes()
    path.write_bytes(b"\n".join(lines))
    assert {"a", "b", "c"} == set(opened(path))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"racks": {"a": 2}}', "line 1: the file is not a ledger of a driver"),
        (b"hello", "line 1: the file is not a ledger of a driver"),
        (b'{"ledger":1,"driver":"fabric.example.com"}', "line 1: the file is not a ledger"),
        (b'{"ledger":2,"driver":"fabric.example.com"}\n', "line 1: got version 2, want 1"),
        (b'{"ledger":1,"driver":"other"}\n', "line 1: the ledger of driver 'other', want"),
        (
            b'{"ledger":1,"driver":"fabric.example.com"}\n' + b"x" * 1_048_577,
            "line 2: the line has more than",
        ),
    ],
)
def test_files_that_are_no_ledger_of_this_driver_stay_as_they_are(
    tmp_path: Path, text: bytes, want: str
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(text)
    with pytest.raises(LedgerError) as raised:
        FileLedger(path, NAME)
    assert want in str(raised.value)
    assert text == path.read_bytes()


def test_two_processes_cannot_have_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    code = (
        "import sys; from stower.live.ledger import FileLedger\n"
        f"ledger = FileLedger({str(path)!r}, {NAME!r}); print('mine', flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "mine\n" == process.stdout.readline()
    with pytest.raises(LedgerError, match=f"in use by process {process.pid}:"):
        FileLedger(path, NAME)
    process.kill()
    process.communicate()
    assert {} == opened(path), "a process that is gone holds nothing"


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file or directory"):
        FileLedger(tmp_path / "no" / "ledger", NAME)
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match="Is a directory"):
        FileLedger(tmp_path / "folder", NAME)


def test_an_empty_file_is_a_ledger_without_entries(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.touch()
    assert {} == opened(path)
    assert path.stat().st_size > 0


def test_a_name_that_points_elsewhere_keeps_pointing_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "ledger"
    link.symlink_to(tmp_path / "disk" / "ledger")
    with FileLedger(link, NAME) as ledger:
        ledger.put([entry("a")])
    assert link.is_symlink()
    assert {"a"} == set(opened(tmp_path / "disk" / "ledger"))


def test_what_is_no_json_or_too_long_is_not_put(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
        with pytest.raises(ValueError, match="want at most 1048576"):
            ledger.put([entry("b"), Entry("c", "default", "x" * (1 << 20))])
        with pytest.raises(TypeError):
            ledger.put([Entry("d", "default", "d", "n1", {"device": object()})])
        assert {"a"} == set(ledger.entries)
    assert {"a"} == set(opened(path))


def test_it_does_not_grow_with_what_has_gone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "COMPACT_LINES", 50)
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("kept")])
        for number in range(300):
            ledger.put([entry(f"u{number}")])
            ledger.drop([f"u{number}"])
            assert len(path.read_bytes().splitlines()) <= 52
        ledger.put([entry("last")])
    assert {"kept", "last"} == set(opened(path))
    assert ["ledger", "ledger.lock"] == sorted(p.name for p in tmp_path.iterdir())


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_keeps_what_there_was_and_is_got_over(
    tmp_path: Path, monkeypatch: Any, call: str
) -> None:
    path = tmp_path / "ledger"
    whole = getattr(os, call)

    def full(fd: int, *text: bytes) -> int:
        if text:
            whole(fd, text[0][:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
        monkeypatch.setattr(module.os, call, full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                ledger.put([entry("b")])
            with pytest.raises(OSError, match="No space left"):
                ledger.drop(["a"])
        assert {"a"} == set(ledger.entries)
        monkeypatch.setattr(module.os, call, whole)
        ledger.put([entry("c")])
    assert {"a", "c"} == set(opened(path))


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_file_that_cannot_be_made_smaller_is_used_on(
    tmp_path: Path, monkeypatch: Any, call: str
) -> None:
    monkeypatch.setattr(module, "COMPACT_LINES", 5)
    path = tmp_path / "ledger"
    whole = getattr(os, call)
    calls: list[object] = []

    def fails_later(*arguments: Any) -> Any:
        calls.append(arguments)
        if call == "rename" or len(calls) == 5:  # the first four are those of appends
            raise OSError(errno.EIO, "Input/output error")
        return whole(*arguments)

    with FileLedger(path, NAME) as ledger:
        monkeypatch.setattr(module.os, call, fails_later)
        for number in range(8):
            ledger.put([entry("a", f"n{number}")])
        assert len(calls) > 0
    monkeypatch.setattr(module.os, call, whole)
    assert {"a": entry("a", "n7")} == opened(path)
    assert ["ledger", "ledger.lock"] == sorted(p.name for p in tmp_path.iterdir())


def test_a_crash_while_it_is_made_smaller_loses_nothing(tmp_path: Path) -> None:
    """What was being written beside it is no ledger yet."""
    path = tmp_path / "ledger"
    with FileLedger(path, NAME) as ledger:
        ledger.put([entry("a")])
    (tmp_path / "ledger.new").write_bytes(b'{"ledger":1,"dri')
    assert {"a"} == set(opened(path))
