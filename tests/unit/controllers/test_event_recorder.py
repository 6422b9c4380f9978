"""Events of controllers about their objects, and the answers to writes that they are made of."""

import json
from typing import Any

import pytest

from stower.controllers import runtime
from stower.controllers.event_recorder import ALIKE_MAX, BURST, COMBINED, EventRecorder
from stower.controllers.objects import Object, ObjectStore
from stower.controllers.runtime import BaseController, ControllerManager, ReconcileResult
from stower.controllers.write_answers import WriteAnswer

S = 1_000_000_000
TERMINATING = {"message": "it ends", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}


def pod(name: str) -> Object:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name,
            "resourceVersion": "1"}, "spec": {}}  # fmt: skip


def texts(todo: ReconcileResult) -> list[tuple[str, str]]:
    """Reasons and messages of the Events that were recorded."""
    events = [json.loads(call.body) for call in todo.calls]
    return [(event["reason"], event["message"]) for event in events]


def test_events_about_one_object_are_limited() -> None:
    """So many at once and one more each five minutes; those about another object are not."""
    recorder = EventRecorder("x")

    def sent(name: str, now_s: int, count: int) -> int:
        todo = ReconcileResult(now_s * S)
        for turn in range(count):
            recorder.record(todo, "pods", pod(name), "Normal", f"Reason{turn}", "")
        return len(todo.calls)

    assert BURST == sent("a", 0, 100)
    assert 1 == sent("b", 0, 1)
    assert [0, 1, 3] == [sent("a", 299, 5), sent("a", 300, 5), sent("a", 1200, 5)]


def test_alike_events_are_combined() -> None:
    """Of one type and reason there are so many in ten minutes, and the last says so."""
    recorder = EventRecorder("x")

    def sent(now_s: int, type: str, count: int) -> list[str]:
        todo = ReconcileResult(now_s * S)
        for turn in range(count):
            recorder.record(todo, "pods", pod("a"), type, "Reason", str(turn))
        return [message for _, message in texts(todo)]

    first = sent(0, "Normal", 15)
    assert ALIKE_MAX == len(first)
    assert ["8", f"{COMBINED}9"] == first[-2:]
    assert ["0"] == sent(1, "Warning", 1)
    assert [] == sent(600, "Normal", 1)
    assert ["0", "1"] == sent(601, "Normal", 2)


def test_a_state_is_told_once_until_it_changes() -> None:
    recorder, todo = EventRecorder("x"), ReconcileResult(0)
    for reason, message in (("A", "1"), ("A", "1"), ("A", "2"), ("B", "2"), ("A", "1")):
        recorder.record_state(todo, "pods", pod("a"), "Normal", reason, message)
    recorder.record_state(todo, "pods", pod("b"), "Normal", "A", "1")
    assert [("A", "1"), ("A", "2"), ("B", "2"), ("A", "1"), ("A", "1")] == texts(todo)
    recorder.clear_state(pod("a"))
    recorder.record_state(todo, "pods", pod("a"), "Normal", "A", "1")
    assert 6 == len(todo.calls)


@pytest.mark.parametrize(
    ("method", "status", "body", "expected"),
    [
        ("POST", 201, pod("p"), [("SuccessfulCreate", "Created pod: p")]),
        ("POST", 403, {"message": "no"}, [("FailedCreate", "Error creating: no")]),
        ("POST", 500, {}, [("FailedCreate", "Error creating: status 500")]),
        ("POST", 404, {"message": "no d"}, [("FailedCreate", "Error creating: no d")]),
        ("POST", 403, TERMINATING, []),
        ("POST", 0, {}, []),
        ("DELETE", 200, {"status": "Success"}, [("SuccessfulDelete", "Deleted pod: p")]),
        ("DELETE", 409, {"message": "no"}, [("FailedDelete", "Error deleting: no")]),
        ("DELETE", 404, {"message": "gone"}, []),
        ("PATCH", 200, pod("p"), []),
        ("PATCH", 409, {"message": "no"}, []),
    ],
)
def test_writes_of_pods_are_told(
    method: str, status: int, body: Object, expected: list[tuple[str, str]]
) -> None:
    """Creations and deletions, unless nothing is known or users need not know of it."""
    todo = ReconcileResult(0)
    target = None if method == "POST" else pod("p")
    answer = WriteAnswer("pods", method, target, status, body)
    EventRecorder("x").record_pod_write(todo, "pods", pod("owner"), answer)
    assert expected == texts(todo)


class Writer(BaseController):
    """Creates and deletes, each once, and keeps the answers that are reported to it."""

    name = "writer"
    kinds = ("pods", "nodes")

    def __init__(self, *reported: str) -> None:
        self.reported_kinds = reported
        self.answers: list[WriteAnswer] = []

    def first_keys(self) -> list[str]:
        return ["key"]

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> list[str]:
        return []

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        if not self.answers:
            todo.create("pods", pod("p"))
            todo.delete("pods", pod("q"))
            todo.create("nodes", {"metadata": {"name": "n"}, "spec": {}})

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        self.answers.append(answer)
        todo.event("pods", pod("p"), "Normal", "Reason", "", self.name, awaited=False)


@pytest.mark.parametrize(("reported", "count"), [((), 1), (("pods",), 2), (("pods", "nodes"), 3)])
def test_no_answer_is_decoded_twice_or_for_nobody(
    monkeypatch: pytest.MonkeyPatch, reported: tuple[str, ...], count: int
) -> None:
    """A refusal is decoded for those alone that report it, an object once for all."""
    decoded: list[bytes] = []
    before = runtime.decode

    def counting(body: bytes) -> Any:
        decoded.append(body)
        return before(body)

    monkeypatch.setattr(runtime, "decode", counting)
    writer = Writer(*reported)
    manager = ControllerManager([writer])
    for kind in writer.kinds:
        manager.handle_list(kind, ())
    calls = manager.step(S)
    for call, status, body in zip(calls, (201, 409, 403), (pod("p"), {}, {}), strict=True):
        manager.handle_answer(call.id, status, json.dumps(body).encode())
    assert count == len(decoded)
    assert [k for k in ("pods", "pods", "nodes") if k in reported] == [
        answer.kind for answer in writer.answers
    ]
    assert len(writer.answers) == len([c for c in manager.step(S) if c.path.endswith("/events")])
