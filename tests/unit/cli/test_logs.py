"""Logging of servers: which lines each verbosity shows, as text and as JSON."""

import json
import logging
from collections.abc import Iterator

import pytest

from stower.cli.logs import Format, set_up
from tests.unit.cli.served import logging_restored

POD = {"name": "web", "namespace": "team"}
NODE = {"name": "n1", "namespace": ""}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with logging_restored():
        yield


def write_all() -> None:
    """Writes a line to each logger at each level that is used."""
    logging.getLogger("stower.live").debug("retried")
    logging.getLogger("stower.live").info("leads")
    logging.getLogger("stower.decisions").info("bound", extra={"fields": {"pod": POD}})
    logging.getLogger("stower.writes").info("sent")
    logging.getLogger("stower.live").warning("lost")


@pytest.mark.parametrize(
    ("v", "shown"),
    [
        (0, ["lost"]),
        (1, ["leads", "lost"]),
        (2, ["leads", "bound", "lost"]),
        (4, ["leads", "bound", "sent", "lost"]),
        (6, ["retried", "leads", "bound", "sent", "lost"]),
    ],
)
def test_verbosity_selects_lines(
    v: int, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(v, Format.JSON)
    write_all()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert shown == [line["msg"] for line in lines]


def test_json_has_the_fields_of_klog(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(6, Format.JSON)
    write_all()
    lines = {}
    for text in capsys.readouterr().err.splitlines():
        line = json.loads(text)
        lines[line["msg"]] = line
    assert {"retried": 6, "leads": 1, "bound": 2, "sent": 4} == {
        message: line["v"] for message, line in lines.items() if "v" in line
    }
    assert ("warning", POD) == (lines["lost"]["level"], lines["bound"]["pod"])
    assert lines["lost"]["caller"].startswith("test_logs.py:")


def test_text_has_fields_behind_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(2, Format.TEXT)
    fields = {"pod": POD, "node": NODE, "score": 3, "why": "none\x1b[2J"}
    logging.getLogger("stower.decisions").info("bound", extra={"fields": fields})
    line = capsys.readouterr().err
    assert 'Z INFO bound pod="team/web" node="n1" score=3 why="none' in line
    assert "\x1b" not in line


@pytest.mark.parametrize("form", Format)
def test_an_exception_comes_with_its_traceback(
    form: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(0, form)
    try:
        raise KeyError("missing")
    except KeyError:
        logging.getLogger("stower.live").exception("failed")
    said = capsys.readouterr().err
    trace = json.loads(said)["stacktrace"] if form is Format.JSON else said
    assert "KeyError: 'missing'" in trace
    assert len(trace.splitlines()) > 2
