"""Disruption controller: counts how many pods of each PodDisruptionBudget may be evicted now.

Source: pkg/controller/disruption.
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.controllers.objects import (
    PLURAL_OF,
    Object,
    ObjectStore,
    key_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import (
    absolute,
    condition,
    is_active,
    is_finished,
    is_outdated,
    is_ready,
    selects,
)
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS, time_ns, time_text

DELETION_NS: Final = 120 * SECOND_NS  # DeletionTimeout
SCALED: Final = ("replicasets", "deployments", "statefulsets", "jobs")


class DisruptionController(BaseController):
    """One budget is one key."""

    name = "disruption-controller"
    kinds = ("poddisruptionbudgets", "pods", "replicasets", "deployments", "statefulsets",
             "jobs")  # fmt: skip

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The budgets that may count a pod."""
        if kind == "poddisruptionbudgets":
            return (key_of(obj),)
        budgets = seen.list_namespace("poddisruptionbudgets", namespace_of(obj))
        if kind != "pods":
            return tuple(key_of(budget) for budget in budgets)
        return tuple(
            key_of(budget)
            for budget in budgets
            if any(
                selects(budget["spec"].get("selector"), pod)
                for pod in (obj, old)
                if pod is not None
            )
        )

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Count, and say so."""
        budget = seen.get("poddisruptionbudgets", key)
        if budget is None:
            return
        spec, known = budget["spec"], budget.get("status") or {}
        pods = [
            pod
            for pod in seen.list_namespace("pods", namespace_of(budget))
            if not is_finished(pod) and selects(spec.get("selector"), pod)
        ]
        healthy = sum(is_ready(pod) and is_active(pod) for pod in pods)
        expected, desired = self._count_desired(seen, spec, pods)
        # A pod whose eviction was let through counts until it is seen to end.
        ending = {p["metadata"]["name"] for p in pods if not is_active(p)}
        names = {p["metadata"]["name"] for p in pods}
        disrupted = {
            name: at
            for name, at in (known.get("disruptedPods") or {}).items()
            if name in names and name not in ending and self._is_fresh(at, todo)
        }
        allowed = max(0, healthy - len(disrupted) - desired) if expected else 0
        status: Any = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        before = condition(budget, "DisruptionAllowed") or {}
        wanted = "True" if allowed else "False"
        gone = set(known.get("disruptedPods") or {}) - set(disrupted)
        if not is_outdated(known, status) and before.get("status") == wanted and not gone:
            return
        same = before.get("status") == wanted
        status["conditions"] = [
            {
                "type": "DisruptionAllowed",
                "status": wanted,
                "reason": "SufficientPods" if allowed else "InsufficientPods",
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
        self, seen: ObjectStore, spec: Object, pods: list[Object]
    ) -> tuple[int, int]:
        """Pods that there should be, and how many of them must stay healthy."""
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is None and isinstance(least, int):
            return len(pods), least
        expected = self._count_expected(seen, pods)
        if most is not None:
            return expected, max(0, expected - absolute(most, expected, True))
        return expected, absolute(least if least is not None else 1, expected, True)

    def _count_expected(self, seen: ObjectStore, pods: list[Object]) -> int:
        """The scale of their controllers; pods without one do not count."""
        scales: dict[str, int] = {}
        for pod in pods:
            top, scale = pod, 0
            while (above := _controller(seen, top)) is not None:
                kind, top = above
                scale = int(top["spec"].get("parallelism" if kind == "jobs" else "replicas", 1))
            if top is not pod:
                scales[uid_of(top)] = scale
        return sum(scales.values())


def _controller(seen: ObjectStore, obj: Object) -> tuple[str, Object] | None:
    """What owns it, where that can be scaled."""
    owner = owner_of(obj) or {}
    kind = PLURAL_OF.get((owner.get("apiVersion", ""), owner.get("kind", "")), "")
    if kind not in SCALED:
        return None
    found = seen.get(kind, f"{namespace_of(obj)}/{owner['name']}")
    return (kind, found) if found is not None and uid_of(found) == owner["uid"] else None
