"""Write what Prometheus and Grafana read: `make_monitoring.py [FOLDER]`.

Two tables, of alerts and of panels, become a PrometheusRule and a dashboard. kube-scheduler's
metrics have the same names as ours: OURS picks those of a target that is Stower.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

if not __package__:  # run as a file, from any folder: `tools` is found above it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.make_crds import FOLDER

Object = dict[str, Any]
OURS: Final = "and on (job, instance) stower_inbox_events"
JOB: Final = '{job=~"$job"}'
OVER: Final = f"{JOB}[$__rate_interval]"
PLUGINS: Final = "scheduler_plugin_execution_duration_seconds"


class Alert(NamedTuple):
    """`held`: for how long the expression must be true."""

    name: str
    severity: str
    held: str
    expression: str
    summary: str
    description: str


class Panel(NamedTuple):
    """A graph. `lines`: legend and expression of each; `unit`: Grafana's name for it."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    about: str = ""


ALERTS: Final = (
    Alert(
        "StowerAbsent", "critical", "5m", "absent(stower_inbox_events)",
        "No replica of Stower is scraped.",
        "Pods that name it stay pending. Look at the Deployment and at the ServiceMonitor's role.",
    ),
    Alert(
        "StowerLeaderless", "critical", "1m",
        f"max by (job, name) (leader_election_master_status {OURS}) < 1",
        "No replica holds the Lease {{ $labels.name }}.",
        "Pods stay pending. Look at the Lease, and whether the role allows to get and update it.",
    ),
    Alert(
        "StowerLeaders", "critical", "1m",
        f"sum by (job, name) (leader_election_master_status {OURS}) > 1",
        "{{ $value }} replicas say that they hold the Lease {{ $labels.name }}.",
        "Each stops writing when its lease runs out: look at their clocks, and at the API server.",
    ),
    Alert(
        "StowerAttemptsFail", "warning", "10m",
        "sum by (job) (rate(scheduler_schedule_attempts_total{result=\"error\"}[5m]) "
        f"{OURS}) / sum by (job) (rate(scheduler_schedule_attempts_total[5m]) {OURS}) > 0.05",
        "{{ $value | humanizePercentage }} of the attempts end in an error.",
        "The pods' events and the log (--v=2) name it. It is no lack of room: that is no error.",
    ),
    Alert(
        "StowerWritesFail", "warning", "10m",
        "sum by (job, call_type) (rate(scheduler_async_api_call_execution_total"
        f"{{result=\"error\"}}[5m]) {OURS}) / sum by (job, call_type) "
        f"(rate(scheduler_async_api_call_execution_total[5m]) {OURS}) > 0.1",
        "{{ $value | humanizePercentage }} of the writes {{ $labels.call_type }} are refused.",
        "A role that lacks a verb, an admission webhook, or another scheduler for the same pods.",
    ),
    Alert(
        "StowerSlow", "warning", "15m",
        "histogram_quantile(0.99, sum by (job, le) "
        f"(rate(scheduler_pod_scheduling_sli_duration_seconds_bucket[5m]) {OURS})) > 60",
        "One pod in a hundred waits for {{ $value | humanizeDuration }} or longer.",
        "Too little room, or too much to do: see the queue's parts and the rate of binding.",
    ),
    Alert(
        "StowerBehind", "warning", "10m", "stower_inbox_events > 10000",
        "{{ $labels.instance }} has {{ $value }} events to take in.",
        "More changes than one replica keeps up with: docs/scale.md.",
    ),
    Alert(
        "StowerStalls", "warning", "10m", "stower_loop_stall_seconds_max > 2",
        "{{ $labels.instance }} stood still for {{ $value | humanizeDuration }}.",
        "A lease can be lost this way. Too little CPU, or one decision that takes long: "
        "stower_step_duration_seconds.",
    ),
    Alert(
        "StowerCutOff", "warning", "10m", "rate(stower_watch_cuts_total[5m]) > 0.5",
        "Watches of {{ $labels.instance }} are cut {{ $value }} times a second.",
        "Look at what lies between it and the API server, and at the server's limits.",
    ),
)  # fmt: skip


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{OVER}))"


def _quantiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    buckets = _rate(f"{metric}_bucket", f"le{', ' if by else ''}{by}")
    label = f"{{{{{by}}}}} " if by else ""
    return tuple(
        (f"{label}p{int(q * 100)}", f"histogram_quantile({q}, {buckets})") for q in (0.5, 0.99)
    )


PANELS: Final = (
    Panel(
        "Pods that wait", "short",
        (("{{queue}}", f"max by (queue) (scheduler_pending_pods{JOB})"),),
        "active: to be tried; backoff: soon; unschedulable: until something changes; gated: held "
        "back by the pod itself; inflight: being decided or bound",
    ),
    Panel(
        "Attempts", "ops",
        (
            (
                "{{result}} {{profile}}",
                _rate("scheduler_schedule_attempts_total", "result, profile"),
            ),
        ),
    ),
    Panel(
        "From arrival until bound", "s",
        _quantiles("scheduler_pod_scheduling_sli_duration_seconds"),
    ),
    Panel(
        "Attempts, binding and all", "s",
        _quantiles("scheduler_scheduling_attempt_duration_seconds", "result"),
    ),
    Panel(
        "Pods that no node will do for, by what refuses them", "short",
        (
            (
                "{{plugin}} {{profile}}",
                f"max by (plugin, profile) (scheduler_unschedulable_pods{JOB})",
            ),
        ),
    ),
    Panel(
        "What plugins take of a second", "s",
        (
            (
                "{{plugin}} {{extension_point}}",
                "topk(10, 10 * "
                + _rate(f"{PLUGINS}_sum", "plugin, extension_point")
                + ")",
            ),
        ),
        "One attempt in ten is measured: shown is ten times its sum.",
    ),
    Panel(
        "Preemption", "short",
        (
            ("attempts/s", _rate("scheduler_preemption_attempts_total", "job")),
            ("victims/s", _rate("scheduler_preemption_victims_sum", "job")),
        ),
    ),
    Panel(
        "Writes", "ops",
        (
            (
                "{{call_type}} {{result}}",
                _rate("scheduler_async_api_call_execution_total", "call_type, result"),
            ),
        ),
    ),
    Panel(
        "Writes that are not answered, and how many may be", "short",
        (
            ("{{call_type}}", f"sum by (call_type) (scheduler_pending_async_api_calls{JOB})"),
            ("at once, at most", f"max(stower_writes_in_flight_max{JOB})"),
        ),
    ),
    Panel(
        "Requests to the API server", "ops",
        (("{{method}} {{code}}", _rate("rest_client_requests_total", "method, code")),),
    ),
    Panel(
        "Behind the API server", "short",
        (
            ("events to take in, {{instance}}", f"stower_inbox_events{JOB}"),
            ("watches cut/s, {{instance}}", f"rate(stower_watch_cuts_total{OVER})"),
            ("lists anew/s, {{instance}}", f"rate(stower_relists_total{OVER})"),
        ),
    ),
    Panel(
        "The loop stood still for", "s",
        (("{{instance}}", f"stower_loop_stall_seconds_max{JOB}"),),
    ),
    Panel(
        "What one event takes, p99", "s",
        (
            (
                "{{event}}",
                "histogram_quantile(0.99, "
                + _rate("stower_step_duration_seconds_bucket", "le, event") + ")",
            ),
        ),
    ),
    Panel(
        "Known objects", "short",
        (("{{type}}", f"max by (type) (scheduler_cache_size{JOB})"),),
    ),
    Panel(
        "Memory", "bytes",
        (("{{instance}}", f"process_resident_memory_bytes{JOB}"),),
    ),
    Panel(
        "Who leads", "short",
        (("{{instance}} {{name}}", f"leader_election_master_status{JOB}"),),
    ),
)  # fmt: skip


def rules() -> str:
    """The alerts, for the Prometheus operator."""
    found = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.held,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        }
        for alert in ALERTS
    ]
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "stower", "labels": {"app.kubernetes.io/name": "stower"}},
        "spec": {"groups": [{"name": "stower", "rules": found}]},
    }
    text = yaml.safe_dump(document, sort_keys=False, width=100)
    return f"# Written by tools/make_monitoring.py.\n{text}"


def dashboard() -> str:
    """The panels, two in a row, as Grafana imports them."""
    panels = [
        {
            "id": i + 1,
            "type": "timeseries",
            "title": panel.title,
            "description": panel.about,
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"h": 8, "w": 12, "x": i % 2 * 12, "y": i // 2 * 8},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + k), "expr": expression, "legendFormat": legend}
                for k, (legend, expression) in enumerate(panel.lines)
            ],
        }
        for i, panel in enumerate(PANELS)
    ]
    variables = [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "query": "label_values(stower_inbox_events, job)",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
        },
    ]
    document = {
        "title": "Stower",
        "uid": "stower",
        "tags": ["kubernetes", "scheduler"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(document, indent=1) + "\n"


def files() -> dict[str, str]:
    """The text of each file by its path in the folder; the chart has copies."""
    texts = {"rules.yaml": rules(), "dashboard.json": dashboard()}
    return {
        f"{folder}/{name}": text
        for folder in ("monitoring", "chart/stower/files/monitoring")
        for name, text in texts.items()
    }


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="(deploy)")
    folder: Path = parser.parse_args().folder
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
