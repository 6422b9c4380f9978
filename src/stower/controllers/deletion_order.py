"""Orders the pods of a ReplicaSet that has too many: the first are deleted.

Source: controller_utils.go ActivePodsWithRanks of pkg/controller.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Final

from stower.controllers.objects import Object, created_ns, uid_of
from stower.controllers.pods import condition, is_active, is_ready, phase, sidecar_statuses
from stower.model.times import time_ns

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
COST_MAX: Final = 2**31 - 1
PHASES: Final = {"Pending": 0, "Unknown": 1}  # all others after these


def order_for_deletion(
    pods: Iterable[Object], related: Iterable[Object], now_ns: int
) -> list[Object]:
    """Pods in the order in which they go: those that do least work, and of ready ones the youngest,
    by powers of two. `related`: pods of the same workload; where many are together, one goes."""
    beside = Counter(pod["spec"].get("nodeName") or "" for pod in related if is_active(pod))

    def first(pod: Object) -> tuple[bool, int, bool, int, int]:
        node = pod["spec"].get("nodeName") or ""
        return bool(node), PHASES.get(phase(pod), 2), is_ready(pod), _cost(pod), -beside[node]

    def compare(one: Object, other: Object) -> int:
        mine, others = first(one), first(other)
        if mine != others:
            return -1 if mine < others else 1
        if mine[2]:
            verdict = _younger(one, other, _ready_ns(one), _ready_ns(other), now_ns)
            if verdict:
                return verdict
        restarts = _restarts(one), _restarts(other)
        if restarts[0] != restarts[1]:
            return -1 if restarts[0] > restarts[1] else 1
        return _younger(one, other, created_ns(one), created_ns(other), now_ns)

    return sorted(pods, key=cmp_to_key(compare))


def _younger(one: Object, other: Object, one_ns: int, other_ns: int, now_ns: int) -> int:
    """Which goes by its age; 0 where both are as old."""
    if one_ns == other_ns:
        return 0
    if not one_ns or not other_ns:
        return -1 if not one_ns else 1
    mine, others = _rank(now_ns - one_ns), _rank(now_ns - other_ns)
    if mine == others:
        return -1 if uid_of(one) < uid_of(other) else 1
    return -1 if mine < others else 1


def _rank(age_ns: int) -> int:
    return age_ns.bit_length() - 1 if age_ns > 0 else -1


def _cost(pod: Object) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(COST) or "0")
    digits = text[1:] if text[0] in "+-" else text
    if not digits.isdecimal() or len(digits) > 10 or (digits[0] == "0" and len(digits) > 1):
        return 0
    value = int(text)
    return value if -COST_MAX - 1 <= value <= COST_MAX else 0


def _ready_ns(pod: Object) -> int:
    return time_ns((condition(pod, "Ready") or {}).get("lastTransitionTime")) or 0


def _restarts(pod: Object) -> tuple[int, int]:
    """The most of its containers, and of its init containers that stay."""
    status = pod.get("status") or {}
    return _most(status.get("containerStatuses") or ()), _most(sidecar_statuses(pod))


def _most(statuses: Sequence[Object]) -> int:
    return max((int(c.get("restartCount") or 0) for c in statuses), default=0)
