"""How far it is: a bar on a terminal, lines elsewhere, nothing where it takes a moment."""

import io
import os
import pty
import sys
import threading
import time

import pytest

from stower.cli import output


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0.0)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with output.progress("packing") as update:
            assert update is not None
            update(3, 7)
            shown = ""
            while "packing" not in shown or "3/7" not in shown:
                shown += os.read(ours, 65_536).decode()
    os.close(ours)


class Told(io.StringIO):
    """Says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def flush(self) -> None:
        self.came.set()


def test_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "AGAIN_SECONDS", 0.01)
    told = Told()
    monkeypatch.setattr(sys, "stderr", told)
    with output.progress("packing") as update:
        assert update is not None
        update(3, 7)
        assert told.came.wait(30)
    assert told.getvalue().startswith("stower: packing:")


def test_nothing_where_it_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(sys, "stderr", told)
    began_s = time.monotonic()
    with output.progress("packing") as update:
        assert update is not None
    assert time.monotonic() - began_s < 1, "whoever is done does not wait"
    assert "" == told.getvalue()
