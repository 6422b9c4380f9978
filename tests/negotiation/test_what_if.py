"""What-if over a recording of negotiations: drivers allocate where they were seen to be able to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stower.devices.negotiation.claims import class_names
from stower.engine.engine import Engine
from stower.framework.plugin import Features
from stower.model.kinds import Pod, ResourceClass
from stower.record.recorder import EngineInputs, Recorder
from tests.contract.in_process import stower_in_process
from tests.negotiation.scenes import Scene
from tests.negotiation_cluster import Counting

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


def test_an_old_answer_is_none_about_what_is_allocated_since(make: Any) -> None:
    day = make(fabric={"n2": 2})
    for i in range(3):
        day.scene.pod(f"p{i}", own=["fabric"])
    day.scene.advance(200)
    found = day.ask("--add-nodes", "1")
    assert (2, 1) == (found["before"]["running"], found["before"]["pending"])


def test_a_claim_goes_with_its_pod_whenever_that_ends(make: Any) -> None:
    """In the recording c came after b had ended; without a node, b has it for longer."""
    day = make(fabric={"n1": 1, "n2": 1})
    for name in "ab":
        day.scene.pod(name, own=["fabric"])
        day.scene.advance(5)
    nodes = {name: day.scene.node_of(name) for name in "ab"}
    day.scene.advance(50)
    for name in "ab":
        pod = day.scene.server.get(Pod, f"default/{name}")
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        day.scene.server.put(msgspec.structs.replace(pod, status=status))
        day.scene.advance(40)
    day.scene.pod("c", own=["fabric"])
    day.scene.advance(5)
    found = day.ask("--remove-node", nodes["b"])
    assert (1, 1) == (found["after"]["running"], found["after"]["pending"])


@pytest.mark.parametrize("is_asked_back", [False, True])
def test_a_users_claim_stays_allocated_after_its_pod_until_somebody_asks(
    make: Any, is_asked_back: bool
) -> None:
    day = make(fabric={"n1": 1})
    day.scene.claim("mine")
    day.scene.pod("p", "mine")
    day.scene.advance(5)
    day.scene.delete(Pod, "p")
    day.scene.advance(5)
    day.scene.pod("q", own=["fabric"])
    day.scene.advance(60)
    assert "" == day.scene.node_of("q")
    if is_asked_back:
        day.scene.flag("mine")
        day.scene.advance(60)
    assert is_asked_back == bool(day.scene.node_of("q"))
    found = day.ask("--add-nodes", "1")
    assert int(is_asked_back) == found["before"]["running"]


class Two(Counting):
    """Devices of one class on n1, of another on n2."""

    def unsuitable_nodes(self, pod: Any, claims: Any, nodes: Any) -> list[str]:
        where = {"gpu": "n1", "nic": "n2"}
        wanted = {where[class_names(claim)[0]] for claim in claims}
        return [node for node in nodes if {node} != wanted or self.free(node) < len(claims)]


def test_devices_of_one_class_are_none_of_another(make: Any) -> None:
    day = make()
    scene = day.scene
    scene.add_driver(Two("fabric.example.com", {"n1": 2, "n2": 2}), "gpu")
    scene.put(ResourceClass, {"metadata": {"name": "nic"}, "driverName": "fabric.example.com"})
    for name, device_class in (("p", "gpu"), ("q", "nic")):
        scene.pod(name, own=[device_class])
        scene.advance(40)
    assert ["n1", "n2"] == [scene.node_of(name) for name in "pq"]
    found = day.ask("--remove-node", "n1")
    assert ["default/p"] == [each["pod"] for each in found["newlyPending"]]


def test_a_node_about_which_nothing_was_said_has_no_devices(make: Any) -> None:
    day = make(fabric={"n1": 1})
    day.scene.pod("p", own=["fabric"])
    day.scene.advance(5)
    found = day.ask("--add-nodes", "2", "--remove-node", "n1")
    assert (1, 0, 1) == (found["before"]["running"], found["after"]["running"],
                         found["after"]["pending"])  # fmt: skip
