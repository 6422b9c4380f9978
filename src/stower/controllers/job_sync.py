"""What the pods of one Job amount to: counts, indexes, and whether the Job has succeeded or failed.

Only looks; the controller acts. Source: pkg/controller/job/job_controller.go (syncJob).
"""

from typing import Any, Final, NamedTuple

from stower.controllers.job_failures import backoff_ns, finished_ns, match_failure
from stower.controllers.job_indexes import (
    INT32_MAX,
    IndexSet,
    failures_of,
    has_index,
    index_of,
    indexes_of,
    match_success_policy,
)
from stower.controllers.objects import Object, is_ending, uid_of
from stower.controllers.pods import condition, is_active, is_finished, is_ready, is_true, phase
from stower.model.times import SECOND_NS, time_ns, time_text

TRACKING: Final = "batch.kubernetes.io/job-tracking"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"
FAILURE_TARGET: Final = "FailureTarget"


class Verdict(NamedTuple):
    """How a Job ends."""

    is_good: bool
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition that is set before the pods are cleaned up."""
        return SUCCESS_CRITERIA_MET if self.is_good else FAILURE_TARGET

    @property
    def final(self) -> str:
        """The condition of a Job that has ended."""
        return COMPLETE if self.is_good else FAILED


def is_over(job: Object) -> bool:
    """The Job is complete or has failed."""
    return any(is_true(job, type) for type in (COMPLETE, FAILED))


def is_tracked(pod: Object) -> bool:
    """The pod is kept until it is counted."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def is_terminating(pod: Object) -> bool:
    """The pod is deleted and may still run: its grace period is not over."""
    return (
        is_ending(pod)
        and not is_finished(pod)
        and pod["metadata"].get("deletionGracePeriodSeconds") != 0
    )


class JobSync:
    """One look at a Job that has not ended.

    Pods that are kept by the finalizer and that the status does not name are new: they are counted
    on top of the status.
    """

    def __init__(self, job: Object, pods: list[Object], now_ns: int) -> None:
        """`pods`: those that the Job controls."""
        self.job = job
        self.spec: Object = job["spec"]
        self.status: Object = job.get("status") or {}
        self.now_ns = now_ns
        self.is_indexed = self.spec.get("completionMode") == "Indexed"
        self.is_suspended = bool(self.spec.get("suspend"))
        self.completions: int | None = self.spec.get("completions")
        self.policy: Any = self.spec.get("podFailurePolicy")
        self.limit_per_index: int | None = self.spec.get("backoffLimitPerIndex")
        self.replaces_failed_only = (
            self.spec.get("podReplacementPolicy") == "Failed" or self.policy is not None
        )
        self.pods = sorted(pods, key=index_of) if self.is_indexed else pods
        self.active = [p for p in self.pods if is_active(p)]
        self.ready = sum(map(is_ready, self.active))
        self.terminating = sum(map(is_terminating, self.pods))
        self.start_time: str | None = self.status.get("startTime")
        if self.start_time is None and not self.is_suspended:
            self.start_time = time_text(now_ns)
        self._count()

    def _count(self) -> None:
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        self.named_succeeded = dict.fromkeys(uncounted.get("succeeded") or ())
        self.named_failed = dict.fromkeys(uncounted.get("failed") or ())
        tracked = [p for p in self.pods if is_tracked(p) and self.is_valid(p)]
        self.new_succeeded = [
            p for p in tracked if phase(p) == "Succeeded" and uid_of(p) not in self.named_succeeded
        ]
        self.new_failed = [
            p for p in tracked if self.has_failed(p) and uid_of(p) not in self.named_failed
        ]
        good = len(self.new_succeeded) + len(self.named_succeeded)
        self.succeeded = (self.status.get("succeeded") or 0) + good
        counted = sum(match_failure(self.policy, p).is_counted for p in self.new_failed)
        self.failed = (self.status.get("failed") or 0) + counted + len(self.named_failed)
        self.known_indexes = self.succeeded_indexes = IndexSet()
        self.failed_indexes: IndexSet | None = None
        self.kept_of_index: dict[int, Object] = {}
        if not self.is_indexed:
            return
        completions = self.completions or 0
        self.known_indexes = IndexSet.parse(self.status.get("completedIndexes") or "", completions)
        ended = [p for p in tracked if phase(p) == "Succeeded"]
        self.succeeded_indexes = self.known_indexes | indexes_of(ended)
        self.succeeded = len(self.succeeded_indexes)
        if self.limit_per_index is not None:
            known = IndexSet.parse(self.status.get("failedIndexes") or "", completions)
            self.failed_indexes = known | indexes_of(filter(self._has_failed_index, tracked))
            self.kept_of_index = self._select_kept(tracked, self.failed_indexes)

    def is_valid(self, pod: Object) -> bool:
        """The pod counts: in an Indexed Job, one with an index that there is."""
        return not self.is_indexed or has_index(pod, self.completions or 0)

    def has_failed(self, pod: Object) -> bool:
        """The pod counts as failed. A pod that is deleted does so at once where pods are replaced
        at once, else when it has ended."""
        if phase(pod) == "Failed":
            return True
        if not is_ending(pod) or phase(pod) == "Succeeded":
            return False
        return not self.replaces_failed_only or not is_terminating(pod)

    def _has_failed_index(self, pod: Object) -> bool:
        if not self.has_failed(pod):
            return False
        match = match_failure(self.policy, pod)
        if match.action == "FailIndex":
            return True
        return match.is_counted and failures_of(pod)[0] >= (self.limit_per_index or 0)

    def _select_kept(self, tracked: list[Object], failed: IndexSet) -> dict[int, Object]:
        """The last failed pod of each index that waits for its next pod. The finalizer keeps it, as
        the next pod takes over its number of failures."""
        active = indexes_of(self.active)
        kept: dict[int, Object] = {}
        for pod in filter(self.has_failed, tracked):
            index = index_of(pod)
            if index in self.succeeded_indexes or index in failed or index in active:
                continue
            last = kept.get(index)
            if last is None or (
                sum(failures_of(last)) <= sum(failures_of(pod))
                and finished_ns(last) <= finished_ns(pod)
            ):
                kept[index] = pod
        return kept

    def next_failures(self, index: int) -> tuple[int, int]:
        """Counted and ignored failures before the next pod of an index."""
        last = self.kept_of_index.get(index)
        if last is None:
            return 0, 0
        counted, ignored = failures_of(last)
        if match_failure(self.policy, last).is_counted:
            return counted + 1, ignored
        return counted, ignored + 1

    def index_due_ns(self, index: int) -> int:
        """When the next pod of an index may be created."""
        last = self.kept_of_index.get(index)
        if last is None:
            return 0
        return finished_ns(last) + backoff_ns(sum(failures_of(last)) + 1)

    # How it ends

    @property
    def deadline_ns(self) -> int | None:
        """When the Job has been active for too long; None where it may be for ever."""
        seconds = self.spec.get("activeDeadlineSeconds")
        if seconds is None or self.is_suspended or self.start_time is None:
            return None
        return (time_ns(self.start_time) or self.now_ns) + int(seconds) * SECOND_NS

    def find_verdict(self) -> Verdict | None:
        """How the Job ends, before its pods are managed; the first rule that holds. An end that the
        status tells already stays."""
        for type in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
            if is_true(self.job, type):
                known = condition(self.job, type) or {}
                good = type == SUCCESS_CRITERIA_MET
                return Verdict(good, known.get("reason", ""), known.get("message", ""))
        for pod in self.pods if self.policy is not None else ():
            if self.has_failed(pod):
                message = match_failure(self.policy, pod).message
                if message:
                    return Verdict(False, "PodFailurePolicy", message)
        return self._find_limit() or self._find_index_verdict()

    def _find_limit(self) -> Verdict | None:
        limit = self.spec.get("backoffLimit")
        if limit is None:
            limit = 6 if self.limit_per_index is None else INT32_MAX
        is_past = self.failed > limit
        if self.spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            is_past = is_past or self._count_restarts() >= max(1, limit)
        if is_past:
            text = "Job has reached the specified backoff limit"
            return Verdict(False, "BackoffLimitExceeded", text)
        due_ns = self.deadline_ns
        if due_ns is not None and due_ns <= self.now_ns:
            text = "Job was active longer than specified deadline"
            return Verdict(False, "DeadlineExceeded", text)
        return None

    def _count_restarts(self) -> int:
        return sum(
            c.get("restartCount", 0)
            for p in self.pods
            if phase(p) in ("Running", "Pending")
            for field in ("initContainerStatuses", "containerStatuses")
            for c in (p.get("status") or {}).get(field) or ()
        )

    def _find_index_verdict(self) -> Verdict | None:
        if not self.is_indexed:
            return None
        completions, failed = self.completions or 0, self.failed_indexes
        if failed is not None:
            most = self.spec.get("maxFailedIndexes")
            if most is not None and len(failed) > most:
                text = "Job has exceeded the specified maximal number of failed indexes"
                return Verdict(False, "MaxFailedIndexesExceeded", text)
            if failed and len(failed) + len(self.succeeded_indexes) >= completions:
                return Verdict(False, "FailedIndexes", "Job has failed indexes")
        policy = self.spec.get("successPolicy")
        message = match_success_policy(policy, completions, self.succeeded_indexes)
        return None if message is None else Verdict(True, "SuccessPolicy", message)

    def has_enough(self, active: int) -> bool:
        """Enough pods have succeeded, and no other runs. `active`: once the pods are managed."""
        wanted = self.completions
        good = self.succeeded > 0 if wanted is None else self.succeeded >= wanted
        return good and not active
