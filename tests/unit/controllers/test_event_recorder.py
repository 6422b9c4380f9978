"""Events of controllers about their objects."""

from stower.controllers.event_recorder import BURST, EventRecorder
from stower.controllers.runtime import ReconcileResult

S = 1_000_000_000


def test_events_about_one_object_are_limited() -> None:
    """So many at once and one more each five minutes; those about another object are not."""
    recorder = EventRecorder("x")
    pods = [{"metadata": {"name": n, "namespace": "d", "uid": n}, "spec": {}} for n in ("a", "b")]

    def sent(pod: int, now_s: int, count: int) -> int:
        todo = ReconcileResult(now_s * S)
        for turn in range(count):
            recorder.record(todo, "pods", pods[pod], "Normal", "Reason", str(turn))
        return len(todo.calls)

    assert BURST == sent(0, 0, 100)
    assert 1 == sent(1, 0, 1)
    assert [0, 1, 3] == [sent(0, 299, 5), sent(0, 300, 5), sent(0, 1200, 5)]
