"""How a pod came where it is."""

from typing import Any

import pytest

from stower.dashboard.timeline import timeline
from stower.model.times import SECOND_NS, time_ns


def test_what_is_told_in_whole_seconds_comes_in_the_order_in_which_it_happens() -> None:
    at = "2026-01-01T10:00:00Z"
    begun_ns = time_ns(at)
    assert begun_ns is not None
    conditions = [
        {"type": name, "status": "True", "lastTransitionTime": at}
        for name in ("Ready", "PodScheduled", "Initialized", "OfMyOwn")
    ] + [{"type": "ContainersReady", "status": "False", "lastTransitionTime": at}]
    running = {"name": "c", "state": {"running": {"startedAt": "2026-01-01T10:00:02Z"}}}
    pod = {
        "metadata": {"creationTimestamp": at, "deletionTimestamp": "2026-01-01T10:00:09Z"},
        "status": {"conditions": conditions, "startTime": at, "containerStatuses": [running]},
    }
    attempt = {"atNs": begun_ns + SECOND_NS // 2, "attempts": 1, "outcome": "placed", "node": "n1",
               "message": ""}  # fmt: skip
    told = timeline(pod, [attempt])
    assert [
        "created", "attempt 1: placed", "PodScheduled", "accepted by the kubelet", "Initialized",
        "Ready", "OfMyOwn", "container c running", "deletion requested",
    ] == [one["what"] for one in told]  # fmt: skip
    assert "on n1" == told[1]["text"]


@pytest.mark.parametrize(
    "pod", [{}, {"metadata": None, "status": []}, {"status": {"conditions": {"a": 1}}},
            {"metadata": {"creationTimestamp": 5.5}, "status": {"containerStatuses": [None, 1]}},
            {"metadata": {"creationTimestamp": "yesterday"}}],
)  # fmt: skip
def test_an_object_that_says_nothing_of_use_has_no_timeline(pod: Any) -> None:
    assert [] == timeline(pod, [])
