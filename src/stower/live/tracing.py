"""Traces of pods from their arrival to their binding, for OpenTelemetry (the extra `otel`).

A pod's trace is told when it is bound: a span for the whole time, one for each attempt in it, and
one for the binding. What samplers and exporters may be told by environment variables is theirs.
"""

from collections import OrderedDict
from typing import Any, Final

from stower.framework.decisions import Decision, Outcome
from stower.framework.observer import Observer

SERVICE: Final = "stower-scheduler"
# Pods of which attempts are remembered until they are bound, those tried last first out of memory.
PODS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 100
SECOND_NS: Final = 1_000_000_000


class TracingError(Exception):
    """Traces cannot be sent; the text says what is missing."""


class Tracing(Observer):
    """See the module."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. Raises
        TracingError."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise TracingError(f"{error}: install stower[otel]") from None
        self._provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer: Any = self._provider.get_tracer(SERVICE)
        self._attempts: OrderedDict[str, list[Decision]] = OrderedDict()

    def on_decision(self, decision: Decision) -> None:
        """See Observer."""
        known = self._attempts.setdefault(decision.uid, [])
        known.append(decision)
        del known[:-ATTEMPTS_MAX]
        self._attempts.move_to_end(decision.uid)
        if len(self._attempts) > PODS_MAX:
            self._attempts.popitem(last=False)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        from opentelemetry import trace

        attempts = self._attempts.pop(decision.uid, [decision])
        end_ns = decision.at_ns + int(latency_s * SECOND_NS)
        about = {
            "k8s.namespace.name": decision.namespace,
            "k8s.pod.name": decision.name,
            "k8s.pod.uid": decision.uid,
            "k8s.node.name": decision.node_name,
            "stower.profile": decision.profile,
            "stower.attempts": decision.attempts,
        }
        whole = self._tracer.start_span(
            "pod", start_time=decision.at_ns - decision.waited_ns, attributes=about
        )
        within = trace.set_span_in_context(whole)
        for one in attempts:
            told = {"stower.outcome": one.outcome.value, "stower.message": one.message}
            if one.victims:
                told["stower.victims"] = ", ".join(one.victims)
            began_ns = one.at_ns - one.took_ns
            span = self._tracer.start_span(
                "attempt", context=within, start_time=began_ns, attributes=told
            )
            if one.outcome is Outcome.ERROR:
                span.set_status(trace.Status(trace.StatusCode.ERROR, one.message))
            span.end(end_time=one.at_ns)
        binding = self._tracer.start_span("bind", context=within, start_time=decision.at_ns)
        binding.end(end_time=end_ns)
        whole.end(end_time=end_ns)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """See Observer. It is tried again."""

    def close(self) -> None:
        """Send what is left, for some seconds at most."""
        self._provider.shutdown()
