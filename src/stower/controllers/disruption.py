"""Disruption controller: counts how many pods of each PodDisruptionBudget may be evicted now.

Source: pkg/controller/disruption.
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.controllers.custom_kinds import DEFINITIONS
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, namespace_of
from stower.controllers.pod_scales import SCALED, ScaleError, find_scales
from stower.controllers.pods import (
    absolute,
    condition,
    is_finished,
    is_outdated,
    is_ready,
    selects,
)
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS, time_ns, time_text

DELETION_NS: Final = 120 * SECOND_NS  # DeletionTimeout
STALE_NS: Final = 120 * SECOND_NS  # stalePodDisruptionTimeout
TARGET: Final = "DisruptionTarget"
BY_KUBELET: Final = "TerminationByKubelet"  # which may take longer
ALLOWED: Final = "DisruptionAllowed"
COMPONENT: Final = "controllermanager"
UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a "
    "result, the status of the PDB cannot be calculated correctly, which may result in undefined "
    'behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an '
    "integer value."
)
POD: Final = "pod:"  # begins the key of a pod that is said to be disrupted


class DisruptionController(BaseController):
    """One budget is one key; so is a pod with the condition DisruptionTarget."""

    name = "disruption-controller"
    kinds = ("poddisruptionbudgets", "pods", *SCALED, DEFINITIONS)
    has_custom_kinds = True

    def __init__(self) -> None:
        self._events = EventRecorder(COMPONENT)

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The budgets that may count a pod."""
        if kind == "poddisruptionbudgets":
            return (key_of(obj),)
        if kind == DEFINITIONS:
            return ()
        budgets = seen.list_namespace("poddisruptionbudgets", namespace_of(obj))
        if kind != "pods":
            return tuple(key_of(budget) for budget in budgets)
        found = [
            key_of(budget)
            for budget in budgets
            if any(
                selects(budget["spec"].get("selector"), pod)
                for pod in (obj, old)
                if pod is not None
            )
        ]
        if _is_target(obj):
            found.append(f"{POD}{key_of(obj)}")
        return found

    def custom_kind_keys(self, seen: ObjectStore, kind: str) -> Iterable[str]:
        """All budgets: their pods may be controlled by objects of the kind."""
        return tuple(key_of(budget) for budget in seen.all("poddisruptionbudgets"))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Count, and say so."""
        if key.startswith(POD):
            _clear_stale_target(seen.get("pods", key.removeprefix(POD)), todo)
            return
        budget = seen.get("poddisruptionbudgets", key)
        if budget is None:
            return
        pods = [
            pod
            for pod in seen.list_namespace("pods", namespace_of(budget))
            if selects(budget["spec"].get("selector"), pod)
        ]
        if not pods:
            self._tell(budget, "Normal", "NoPods", "No matching pods found", todo)
        try:
            expected, desired, unmanaged = _count_desired(seen, budget["spec"], pods)
        except ScaleError as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._tell(budget, "Warning", "CalculateExpectedPodCountFailed", text, todo)
            _allow_none(budget, str(error), todo)
            return
        if unmanaged:
            shown = _selector_text(budget["spec"].get("selector"))
            self._tell(budget, "Warning", "UnmanagedPods", UNMANAGED.format(shown), todo)
        elif pods:
            self._events.clear_state(budget)
        self._report(budget, pods, expected, desired, todo)

    def _tell(
        self, budget: Object, type: str, reason: str, message: str, todo: ReconcileResult
    ) -> None:
        self._events.record_state(todo, "poddisruptionbudgets", budget, type, reason, message)

    def _report(
        self,
        budget: Object,
        pods: list[Object],
        expected: int,
        desired: int,
        todo: ReconcileResult,
    ) -> None:
        """Writes the status. A pod whose eviction was let through is healthy no longer."""
        known = budget.get("status") or {}
        ending = {p["metadata"]["name"] for p in pods if is_ending(p)}
        names = {p["metadata"]["name"] for p in pods}
        disrupted = {
            name: at
            for name, at in (known.get("disruptedPods") or {}).items()
            if name in names and name not in ending and self._is_fresh(at, todo)
        }
        healthy = sum(
            is_ready(pod) and not is_ending(pod) and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        allowed = max(0, healthy - desired) if expected else 0
        status: Any = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        before = condition(budget, ALLOWED) or {}
        wanted = "True" if allowed else "False"
        reason = "SufficientPods" if allowed else "InsufficientPods"
        gone = set(known.get("disruptedPods") or {}) - set(disrupted)
        is_told = before.get("status") == wanted and before.get("reason") == reason
        if not is_outdated(known, status) and is_told and not gone:
            return
        same = before.get("status") == wanted
        status["conditions"] = [
            {
                "type": ALLOWED,
                "status": wanted,
                "reason": reason,
                "message": "",
                "observedGeneration": status["observedGeneration"],
                "lastTransitionTime": before.get("lastTransitionTime")
                if same
                else time_text(todo.now_ns),
            }
        ]
        if disrupted or gone:
            status["disruptedPods"] = {**dict.fromkeys(sorted(gone)), **disrupted}
        meta = {"resourceVersion": budget["metadata"]["resourceVersion"]}
        todo.patch("poddisruptionbudgets", budget, {"metadata": meta, "status": status}, "status")

    def _is_fresh(self, at: Any, todo: ReconcileResult) -> bool:
        """Whether it may yet be seen to end; after two minutes it was not deleted after all."""
        until_ns = (time_ns(at if isinstance(at, str) else None) or 0) + DELETION_NS
        if until_ns > todo.now_ns:
            todo.requeue_at(until_ns)
        return until_ns > todo.now_ns


def _count_desired(
    seen: ObjectStore, spec: Object, pods: list[Object]
) -> tuple[int, int, list[str]]:
    """Pods that there should be, how many of them must stay healthy, and the names of those that
    nobody controls, where that matters. Raises ScaleError."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and isinstance(least, int):
        return len(pods), least, []
    expected, unmanaged = find_scales(seen, pods)
    if most is not None:
        return expected, max(0, expected - absolute(most, expected, True)), unmanaged
    return expected, absolute(least if least is not None else 1, expected, True), unmanaged


def _allow_none(budget: Object, message: str, todo: ReconcileResult) -> None:
    """Nobody may be evicted while it is not known how many pods there should be."""
    known, before = budget.get("status") or {}, condition(budget, ALLOWED) or {}
    if (
        known.get("disruptionsAllowed") == 0
        and before.get("reason") == "SyncFailed"
        and before.get("message") == message
    ):
        return
    is_same = before.get("status") == "False"
    told = {
        "type": ALLOWED,
        "status": "False",
        "reason": "SyncFailed",
        "message": message,
        "observedGeneration": known.get("observedGeneration", 0),
        "lastTransitionTime": before.get("lastTransitionTime")
        if is_same
        else time_text(todo.now_ns),
    }
    meta = {"resourceVersion": budget["metadata"]["resourceVersion"]}
    # What is counted must be there, even if it never was.
    counts = ("currentHealthy", "desiredHealthy", "expectedPods")
    status = {name: known.get(name, 0) for name in counts}
    status |= {"disruptionsAllowed": 0, "conditions": [told]}
    todo.patch("poddisruptionbudgets", budget, {"metadata": meta, "status": status}, "status")


def _is_target(pod: Object) -> bool:
    """Whether it is said that the pod is about to be disrupted, but it is not being deleted."""
    found = condition(pod, TARGET)
    return (
        found is not None
        and found.get("status") == "True"
        and found.get("reason") != BY_KUBELET
        and not is_ending(pod)
        and not is_finished(pod)
    )


def _clear_stale_target(pod: Object | None, todo: ReconcileResult) -> None:
    """Takes back that a pod is about to be disrupted, where it was not within two minutes."""
    if pod is None or not _is_target(pod):
        return
    found = condition(pod, TARGET) or {}
    due_ns = (time_ns(found.get("lastTransitionTime")) or 0) + STALE_NS
    if due_ns > todo.now_ns:
        todo.requeue_at(due_ns)
        return
    told = {
        "type": TARGET,
        "status": "False",
        "reason": None,
        "message": None,
        "lastTransitionTime": time_text(todo.now_ns),
    }
    todo.patch("pods", pod, {"status": {"conditions": [told]}}, "status")


def _selector_text(selector: Object | None) -> str:
    """A label selector as Go prints it."""
    if selector is None:
        return "nil"
    labels = sorted((selector.get("matchLabels") or {}).items())
    shown = "".join(f"{name}: {value}," for name, value in labels)
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{term['key']},Operator:{term['operator']},"
        f"Values:[{' '.join(term.get('values') or ())}],}},"
        for term in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{shown}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )
