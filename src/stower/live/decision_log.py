"""One line in the log for each decision, in the words of kube-scheduler's."""

import logging
from typing import Any, Final

from stower.framework.decisions import Decision, Outcome
from stower.framework.events import WriteFailed, WriteOk
from stower.framework.observer import Observer
from stower.framework.writes import ApiWrite, call_of

# A logger of its own, so that its level is its own too.
log = logging.getLogger("stower.decisions")
writes = logging.getLogger("stower.writes")
BEST_SHOWN: Final = 4


class DecisionLog(Observer):
    """See the module."""

    def decided(self, decision: Decision) -> None:
        """See Observer."""
        fields: dict[str, Any] = {
            "pod": _ref(decision),
            "attempt": decision.attempts,
            "took_ms": round(decision.took_ns / 1e6, 3),
        }
        if decision.outcome is Outcome.PLACED:
            scores = ", ".join(f"{name}={score}" for name, score in decision.scores[:BEST_SHOWN])
            _tell("Found a node for the pod", **fields, node=decision.node_name, best=scores)
            return
        if decision.victims:
            fields |= {"victims": ", ".join(decision.victims), "nominated": decision.nominated}
        if decision.outcome is Outcome.ERROR:
            _tell("The attempt failed; it is repeated", logging.WARNING, **fields,
                  err=decision.message)  # fmt: skip
        else:
            _tell("Unable to schedule pod; no fit; waiting", **fields, reason=decision.message)

    def bound(self, decision: Decision, after_s: float) -> None:
        """See Observer."""
        waited_s = round(decision.waited_ns / 1e9 + after_s, 3)
        _tell("Successfully bound pod to node", pod=_ref(decision), node=decision.node_name,
              waited_s=waited_s)  # fmt: skip

    def unbound(self, decision: Decision, after_s: float) -> None:
        """See Observer."""
        _tell("The pod cannot be bound there any more", pod=_ref(decision), node=decision.node_name)

    def wrote(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        """See Observer."""
        if writes.isEnabledFor(logging.INFO):
            code, why = (
                (answer.code, answer.message) if isinstance(answer, WriteFailed) else (0, "")
            )
            fields = {"call": call_of(write), "about": f"{write.namespace}/{write.name}",
                      "took_ms": round(took_s * 1000, 1)}  # fmt: skip
            if why:
                fields |= {"code": code, "err": why}
            writes.info("Write answered", extra={"fields": fields})


def _ref(decision: Decision) -> dict[str, str]:
    return {"name": decision.name, "namespace": decision.namespace}


def _tell(message: str, level: int = logging.INFO, **fields: Any) -> None:
    if log.isEnabledFor(level):
        log.log(level, message, extra={"fields": fields})
