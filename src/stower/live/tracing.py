"""Sends traces of pods, from arrival to binding, to OpenTelemetry (the extra `otel`).

A pod's trace is sent when the pod is bound: one span for the whole time, and within it one span per
attempt and one for the binding. Samplers and exporters read their own environment variables.
"""

from collections import OrderedDict
from typing import Any, Final

from stower.framework.decisions import Decision, Outcome
from stower.framework.observer import Observer

SERVICE: Final = "stower-scheduler"
# Pods whose attempts are kept until they are bound; the one tried least recently is dropped first.
PODS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 100
SECOND_NS: Final = 1_000_000_000


class TracingError(Exception):
    """Traces cannot be sent; the text names the missing package."""


class Tracing(Observer):
    """An observer that sends a trace of each pod that is bound."""

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
        attempts = self._attempts.setdefault(decision.uid, [])
        attempts.append(decision)
        del attempts[:-ATTEMPTS_MAX]
        self._attempts.move_to_end(decision.uid)
        if len(self._attempts) > PODS_MAX:
            self._attempts.popitem(last=False)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        from opentelemetry import trace

        attempts = self._attempts.pop(decision.uid, [decision])
        end_ns = decision.at_ns + int(latency_s * SECOND_NS)
        pod_attributes = {
            "k8s.namespace.name": decision.namespace,
            "k8s.pod.name": decision.name,
            "k8s.pod.uid": decision.uid,
            "k8s.node.name": decision.node_name,
            "stower.profile": decision.profile,
            "stower.attempts": decision.attempts,
        }
        pod_span = self._tracer.start_span(
            "pod", start_time=decision.at_ns - decision.waited_ns, attributes=pod_attributes
        )
        pod_context = trace.set_span_in_context(pod_span)
        for attempt in attempts:
            span_attributes = {
                "stower.outcome": attempt.outcome.value,
                "stower.message": attempt.message,
            }
            if attempt.victims:
                span_attributes["stower.victims"] = ", ".join(attempt.victims)
            start_ns = attempt.at_ns - attempt.took_ns
            span = self._tracer.start_span(
                "attempt", context=pod_context, start_time=start_ns, attributes=span_attributes
            )
            if attempt.outcome is Outcome.ERROR:
                span.set_status(trace.Status(trace.StatusCode.ERROR, attempt.message))
            span.end(end_time=attempt.at_ns)
        bind_span = self._tracer.start_span("bind", context=pod_context, start_time=decision.at_ns)
        bind_span.end(end_time=end_ns)
        pod_span.end(end_time=end_ns)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """See Observer. Nothing is sent, as the pod is tried again."""

    def close(self) -> None:
        """Sends the remaining spans; takes some seconds at most."""
        self._provider.shutdown()
