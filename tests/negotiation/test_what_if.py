"""What-if over a recording of negotiations: drivers allocate where they were seen to be able to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stower.engine.engine import Engine
from stower.framework.plugin import Features
from stower.model.kinds import Pod
from stower.record.recorder import EngineInputs, Recorder
from tests.contract.in_process import stower_in_process
from tests.negotiation.scenes import Scene

NODES = ("n1", "n2", "n3")


class Recorded:
    """A scene whose scheduler is recorded."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, **devices: Any) -> None:
        self.path = path
        self._recorder = Recorder(path, EngineInputs(None, 0, 1000, Features()))
        self._recorder.record_engine("e")
        step = Engine.step

        def recorded(engine: Engine, event: Any, now_ns: int) -> Any:
            writes = step(engine, event, now_ns)
            self._recorder.record_step("e", now_ns, event, writes)
            return writes

        monkeypatch.setattr(Engine, "step", recorded)
        self.scene = Scene(*NODES, **devices)
        self._end = monkeypatch

    def ask(self, *edit: str) -> Any:
        """What would be with this change, once all that has happened is recorded."""
        self._end.undo()
        self._recorder.close()
        code, out, error = stower_in_process("what-if", str(self.path), *edit, "-o", "json")
        assert 0 == code, error
        return json.loads(out)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def recorded(**devices: Mapping[str, int]) -> Recorded:
        return Recorded(tmp_path / "day.ndjson", monkeypatch, **devices)

    return recorded


def test_a_pod_goes_where_its_drivers_could_allocate(make: Any) -> None:
    day = make(fabric={"n1": 1, "n3": 1}, nic=dict.fromkeys(NODES, 2))
    day.scene.pod("p", own=["fabric", "nic"])
    day.scene.advance(5)
    here = day.scene.node_of("p")
    assert here in ("n1", "n3")
    found = day.ask("--remove-node", here)
    assert (1, 1) == (found["before"]["running"], found["after"]["running"])
    (moved,) = found["moved"]
    other = {"n1": "n3", "n3": "n1"}[here]
    assert ("default/p", here, other) == (moved["pod"], moved["before"], moved["after"])


def test_no_more_is_allocated_than_was_seen(make: Any) -> None:
    """Two pods with two devices; a third one waits, and gets what one of them leaves."""
    day = make(fabric={"n1": 1, "n2": 1}, nic=dict.fromkeys(NODES, 9))
    for name in ("a", "b", "c"):
        day.scene.pod(name, own=["fabric", "nic"])
        day.scene.advance(5)
    assert ["", "n1", "n2"] == sorted(day.scene.node_of(name) for name in "abc")
    day.scene.delete(Pod, "a")
    day.scene.advance(60)
    assert ["n1", "n2"] == sorted(day.scene.node_of(name) for name in "bc")
    found = day.ask("--remove-node", "n2")
    assert (2, 1) == (found["before"]["running"], found["after"]["running"])
    (waits,) = found["newlyPending"]
    assert "fabric.example.com cannot allocate" in waits["why"]


def test_a_node_about_which_nothing_was_said_has_no_devices(make: Any) -> None:
    day = make(fabric={"n1": 1})
    day.scene.pod("p", own=["fabric"])
    day.scene.advance(5)
    found = day.ask("--add-nodes", "2", "--remove-node", "n1")
    assert (1, 0, 1) == (found["before"]["running"], found["after"]["running"],
                         found["after"]["pending"])  # fmt: skip
