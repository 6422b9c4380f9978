"""Traces of pods, as a collector receives them over HTTP."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread, until
from tests.contract.test_live import PODS, add_nodes, add_pods, bound, condition_false, scheduler

# Of what an attempt takes, which begins in the step in which the pod came.
SLACK_NS = 100_000_000


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps the spans that it is sent."""

    spans: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        """A batch of them."""
        data = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(data)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        yield client


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.spans.clear()
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    server.shutdown()


def test_a_pods_trace_has_its_attempts_and_its_binding(served: Client, collector: str) -> None:
    add_nodes(served, 1)
    with scheduler(served.kubeconfig, "--no-leader-elect", "--otlp-endpoint", collector) as command:
        add_pods(served, ["first"], "3")
        add_pods(served, ["second"], "3")
        until(served, PODS, lambda o: "first" in bound(o) and condition_false(o["second"]))
        served.call("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
        until(served, PODS, lambda o: "second" in bound(o))
        assert 0 == command.stop(), "what is left is sent"
    by_pod: dict[str, Any] = {}
    for span in Collector.spans:
        notes = {one.key: one.value.string_value for one in span.attributes}
        if span.name == "pod":
            by_pod[notes["k8s.pod.name"]] = (span, notes)
    root, notes = by_pod["second"]
    assert ("default", "n0") == (notes["k8s.namespace.name"], notes["k8s.node.name"])
    inner = [one for one in Collector.spans if one.parent_span_id == root.span_id]
    assert ["attempt", "attempt", "bind"] == sorted(one.name for one in inner)
    outcomes = [one.attributes[0].value.string_value for one in inner if one.name == "attempt"]
    assert ["unschedulable", "placed"] == outcomes
    for one in inner:
        assert root.start_time_unix_nano <= one.start_time_unix_nano + SLACK_NS
        assert one.end_time_unix_nano <= root.end_time_unix_nano
        assert one.start_time_unix_nano <= one.end_time_unix_nano
