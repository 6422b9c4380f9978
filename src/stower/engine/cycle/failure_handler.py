"""Handles attempts that end in an error: the pod is retried after a delay, and the error reported.

Source: kube-scheduler schedule_one.go handleSchedulingFailure.
"""

from stower.engine.context import Context
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import SCHEDULER_ERROR
from stower.framework.decisions import Outcome


class FailureHandler:
    """Ends attempts in errors."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._state = context.state
        self._reporter = context.reporter
        self._queue = queue

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Retries the pod, or the tree of its pod group, after a delay; reports the error."""
        self._queue.retry_pod(queued, self._state.now_ns)
        self._reporter.decide(queued, Outcome.ERROR, message=message)
        self._reporter.report(queued, SCHEDULER_ERROR, message)
