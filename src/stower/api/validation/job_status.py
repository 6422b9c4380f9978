"""Validates changes of a Job's status: what has ended stays so, and counts are coherent.

A rule is applied only where a field that it looks at has changed: a change of the spec may break it
until the controller has caught up. Source: pkg/apis/batch/validation (validateJobStatus),
pkg/registry/batch/job/strategy.go (getStatusValidationOptions), Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import OMITTED, FieldError
from stower.api.validation.job_indexes import IndexFault, count_indexes, find_overlap
from stower.api.validation.rules import Faults, Object, duplicate, invalid, not_negative, required
from stower.model.times import time_ns

TERMINAL: Final = ("Failed", "Complete", "FailureTarget")
CONDITIONS: Final = "status.conditions"


class _Change:
    """The status of a Job before and after."""

    def __init__(self, new: Object, old: Object) -> None:
        self.spec: Object = new["spec"]
        self.now: Object = new.get("status") or {}
        self.before: Object = old.get("status") or {}
        self.is_indexed = self.spec.get("completionMode") == "Indexed"

    def holds(self, *types: str) -> bool:
        """One of these conditions is true now."""
        return _holds(self.now, types)

    def held(self, *types: str) -> bool:
        """One of these conditions was true before."""
        return _holds(self.before, types)

    def has_turned(self, *types: str) -> bool:
        """One of these conditions is true now and none was, or the other way round."""
        return self.holds(*types) != self.held(*types)

    def differs(self, field: str, zero: Any = None) -> bool:
        """The field has another value than before. `zero`: the value of one that is absent."""
        return bool(self.now.get(field, zero) != self.before.get(field, zero))


def _holds(status: Object, types: tuple[str, ...], value: str = "True") -> bool:
    found = status.get("conditions") or ()
    return any(c.get("type") in types and c.get("status") == value for c in found)


def job_status(new: Object, old: Object) -> Faults:
    """A change of a Job's status."""
    change = _Change(new, old)
    return [*_counts(change), *_ends(change), *_indexes(change), *_criteria(change),
            *_transitions(change)]  # fmt: skip


def _counts(change: _Change) -> Iterator[FieldError]:
    now = change.now
    for field in ("active", "succeeded", "failed", "ready", "terminating"):
        yield from not_negative(f"status.{field}", now.get(field))
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        uids = (now.get("uncountedTerminatedPods") or {}).get(field) or ()
        for i, uid in enumerate(uids):
            at = f"status.uncountedTerminatedPods.{field}[{i}]"
            if not uid:
                yield invalid(at, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(at, uid)
            seen.add(uid)


def _conditions(text: str) -> FieldError:
    return invalid(CONDITIONS, OMITTED, text)


def _ends(change: _Change) -> Iterator[FieldError]:
    """What a Job that has ended must have, and what only such a Job may have."""
    now, holds, turned = change.now, change.holds, change.has_turned
    completed, started = now.get("completionTime"), now.get("startTime")
    is_complete, at = holds("Complete"), "status.completionTime"
    if turned("Complete") or turned("Failed"):
        if is_complete and holds("Failed"):
            yield _conditions("cannot set Complete=True and Failed=true conditions")
    if turned("Complete") or turned("FailureTarget"):
        if is_complete and holds("FailureTarget"):
            yield _conditions("cannot set Complete=True and FailureTarget=true conditions")
    if turned("Complete") or change.differs("completionTime"):
        if completed and not is_complete:
            text = "cannot set completionTime when there is no Complete=True condition"
            yield invalid(at, completed, text)
        if not completed and is_complete:
            yield required(at, "completionTime is required for Complete jobs")
    if change.differs("startTime") or change.differs("completionTime"):
        if completed and started and (time_ns(completed) or 0) < (time_ns(started) or 0):
            yield invalid(at, completed, "must be equal to or after `startTime`")
    if turned("Failed") or change.differs("failedIndexes"):
        if holds("Failed") and not holds("FailureTarget"):
            text = "cannot set Failed=True condition without the FailureTarget=true condition"
            yield _conditions(text)
    if turned("Complete") or turned("SuccessCriteriaMet"):
        if is_complete and not holds("SuccessCriteriaMet"):
            text = (
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            )
            yield _conditions(text)
    if holds("Complete", "Failed"):
        yield from _finished(change)


def _finished(change: _Change) -> Iterator[FieldError]:
    now, spec = change.now, change.spec
    turned = change.has_turned("Complete", "Failed")
    active = now.get("active") or 0
    if (turned or change.differs("active", 0)) and active > 0:
        yield invalid("status.active", active, "active>0 is invalid for finished job")
    is_empty = bool(spec.get("suspend")) and spec.get("completions") == 0
    if (turned or change.differs("startTime")) and not is_empty and not now.get("startTime"):
        yield required("status.startTime", "startTime is required for finished job")
    uncounted = now.get("uncountedTerminatedPods") or {}
    if turned or uncounted != (change.before.get("uncountedTerminatedPods") or {}):
        if uncounted.get("succeeded") or uncounted.get("failed"):
            shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
            text = "must be empty for finished job"
            yield invalid("status.uncountedTerminatedPods", shown, text)


def _indexes(change: _Change) -> Iterator[FieldError]:
    now, spec, completions = change.now, change.spec, change.spec.get("completions")
    completed, failed = now.get("completedIndexes") or "", now.get("failedIndexes")
    is_new = change.differs("completedIndexes", "")
    is_failed_new = change.differs("failedIndexes")
    at, at_failed = "status.completedIndexes", "status.failedIndexes"
    if is_new and completions is not None:
        yield from _read(at, completed, completions)
    is_limited = spec.get("backoffLimitPerIndex") is not None
    if is_failed_new and completions is not None and is_limited and failed is not None:
        yield from _read(at_failed, failed, completions)
    if is_new and completed and not change.is_indexed:
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid(at, completed, text)
    if is_failed_new and failed is not None and not is_limited:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid(at_failed, failed, text)
    if (is_new or is_failed_new) and completions is not None and failed is not None:
        both = find_overlap(completed, failed, completions)
        if both is not None:
            text = f"failedIndexes and completedIndexes overlap at index: {both}"
            yield invalid(at_failed, failed, text)


def _read(path: str, text: str, completions: int) -> Iterator[FieldError]:
    try:
        count_indexes(text, completions)
    except IndexFault as fault:
        yield invalid(path, text, f"error parsing {path.removeprefix('status.')}: {fault}")


def _criteria(change: _Change) -> Iterator[FieldError]:
    now, holds = change.now, change.holds
    terminating, ready, active = now.get("terminating"), now.get("ready"), now.get("active") or 0
    if change.has_turned("Complete", "Failed") or change.differs("terminating"):
        if terminating and terminating > 0 and holds("Complete", "Failed"):
            text = "terminating>0 is invalid for finished job"
            yield invalid("status.terminating", terminating, text)
    if change.differs("ready") or change.differs("active", 0):
        if ready is not None and ready > active:
            yield invalid("status.ready", ready, "cannot set more ready pods than active")
    is_met = holds("SuccessCriteriaMet")
    if is_met and holds("Failed"):
        yield _conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if is_met and holds("FailureTarget"):
        yield _conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if change.spec.get("successPolicy") is not None and not is_met and holds("Complete"):
        yield _conditions(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )


def _transitions(change: _Change) -> Iterator[FieldError]:
    now, before, spec = change.now, change.before, change.spec
    for type in TERMINAL:
        if change.held(type) and not change.holds(type):
            yield _conditions(f"cannot disable the terminal {type}=True condition")
    is_elastic = change.is_indexed and spec.get("completions") == spec.get("parallelism")
    for field in ("failed", "succeeded"):
        value = now.get(field) or 0
        if value < (before.get(field) or 0) and not (field == "succeeded" and is_elastic):
            yield invalid(f"status.{field}", value, f"cannot decrease the {field} counter")
    completed, started = now.get("completionTime"), before.get("startTime")
    if completed and before.get("completionTime") and change.differs("completionTime"):
        yield invalid("status.completionTime", completed, "field is immutable")
    is_resuming = change.held("Suspended") and _holds(now, ("Suspended",), "False")
    if started and change.differs("startTime") and not (is_resuming or spec.get("suspend")):
        text = "field is immutable for unsuspended job once set"
        yield invalid("status.startTime", now.get("startTime"), text)
    if change.held("SuccessCriteriaMet") and not change.holds("SuccessCriteriaMet"):
        yield _conditions("cannot disable the SuccessCriteriaMet=True condition")
    if change.held("Complete") and not change.held("SuccessCriteriaMet"):
        if change.holds("SuccessCriteriaMet"):
            yield _conditions(
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            )
