"""Logs one line for each scheduling decision, with the messages of kube-scheduler."""

import logging
from typing import Any, Final

from stower.framework.decisions import Decision, Outcome
from stower.framework.events import WriteFailed, WriteOk
from stower.framework.observer import Observer
from stower.framework.writes import ApiWrite, call_name

# Loggers of their own, so that their levels can be set on their own.
log = logging.getLogger("stower.decisions")
write_log = logging.getLogger("stower.writes")
TOP_SCORE_COUNT: Final = 4


class DecisionLog(Observer):
    """An observer that logs decisions, bindings and answered writes."""

    def on_decision(self, decision: Decision) -> None:
        """See Observer."""
        fields: dict[str, Any] = {
            "pod": _object_ref(decision),
            "attempt": decision.attempts,
            "took_ms": round(decision.took_ns / 1e6, 3),
        }
        if decision.outcome is Outcome.PLACED:
            scores = ", ".join(
                f"{name}={score}" for name, score in decision.scores[:TOP_SCORE_COUNT]
            )
            _log_decision(
                "Found a node for the pod", **fields, node=decision.node_name, best=scores
            )
            return
        if decision.victims:
            fields |= {"victims": ", ".join(decision.victims), "nominated": decision.nominated}
        if decision.outcome is Outcome.ERROR:
            _log_decision(
                "Scheduling attempt failed; will be retried",
                logging.WARNING,
                **fields,
                err=decision.message,
            )
        else:
            _log_decision(
                "Unable to schedule pod; no fit; waiting", **fields, reason=decision.message
            )

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        waited_s = round(decision.waited_ns / 1e9 + latency_s, 3)
        _log_decision(
            "Successfully bound pod to node",
            pod=_object_ref(decision),
            node=decision.node_name,
            waited_s=waited_s,
        )

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        _log_decision(
            "Binding rejected; pod cannot be bound to the node",
            pod=_object_ref(decision),
            node=decision.node_name,
        )

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """See Observer."""
        if write_log.isEnabledFor(logging.INFO):
            code, error = (
                (answer.code, answer.message) if isinstance(answer, WriteFailed) else (0, "")
            )
            fields = {
                "call": call_name(write),
                "about": f"{write.namespace}/{write.name}",
                "took_ms": round(duration_s * 1000, 1),
            }
            if error:
                fields |= {"code": code, "err": error}
            write_log.info("Write answered", extra={"fields": fields})


def _object_ref(decision: Decision) -> dict[str, str]:
    return {"name": decision.name, "namespace": decision.namespace}


def _log_decision(message: str, level: int = logging.INFO, **fields: Any) -> None:
    if log.isEnabledFor(level):
        log.log(level, message, extra={"fields": fields})
