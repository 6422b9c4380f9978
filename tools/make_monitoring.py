"""Write the alert rules of Prometheus and the dashboard of Grafana: `make_monitoring.py [FOLDER]`.

A table of alerts becomes a PrometheusRule, a table of panels a dashboard. kube-scheduler's
metrics have the same names as Stower's: OURS selects the metrics of targets that are Stower.
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
    """One alert. `held`: for how long the expression must be true."""

    name: str
    severity: str
    held: str
    expression: str
    summary: str
    description: str


class Panel(NamedTuple):
    """One graph. `lines`: legend and expression of each line; `unit`: its name in Grafana."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    about: str = ""


ALERTS: Final = (
    Alert(
        "StowerAbsent", "critical", "5m", "absent(stower_inbox_events)",
        "Prometheus scrapes no replica of Stower.",
        "Pods with this schedulerName may stay pending. Check the Deployment, and the role of the "
        "ServiceMonitor.",
    ),
    Alert(
        "StowerLeaderless", "critical", "1m",
        f"max by (job, name) (leader_election_master_status {OURS}) < 1",
        "No replica holds the Lease {{ $labels.name }}.",
        "Pods stay pending. Check the Lease, and that the role permits to get and update Leases.",
    ),
    Alert(
        "StowerLeaders", "critical", "1m",
        f"sum by (job, name) (leader_election_master_status {OURS}) > 1",
        "{{ $value }} replicas report that they hold the Lease {{ $labels.name }}.",
        "A replica stops writing when its Lease expires. Check the clocks of the replicas, and the "
        "API server.",
    ),
    Alert(
        "StowerAttemptsFail", "warning", "10m",
        "sum by (job) (rate(scheduler_schedule_attempts_total{result=\"error\"}[5m]) "
        f"{OURS}) / sum by (job) (rate(scheduler_schedule_attempts_total[5m]) {OURS}) > 0.05",
        "{{ $value | humanizePercentage }} of the scheduling attempts end in an error.",
        "The Events of the pods and the log (--v=2) state the error. Unschedulable pods are not "
        "counted as errors.",
    ),
    Alert(
        "StowerWritesFail", "warning", "10m",
        "sum by (job, call_type) (rate(scheduler_async_api_call_execution_total"
        f"{{result=\"error\"}}[5m]) {OURS}) / sum by (job, call_type) "
        f"(rate(scheduler_async_api_call_execution_total[5m]) {OURS}) > 0.1",
        "{{ $value | humanizePercentage }} of the {{ $labels.call_type }} writes fail.",
        "Possible causes: a role that lacks a verb, an admission webhook, or another scheduler for "
        "the same pods.",
    ),
    Alert(
        "StowerSlow", "warning", "15m",
        "histogram_quantile(0.99, sum by (job, le) "
        f"(rate(scheduler_pod_scheduling_sli_duration_seconds_bucket[5m]) {OURS})) > 60",
        "1% of the pods take {{ $value | humanizeDuration }} or longer from arrival to binding.",
        "The cluster has too little room, or the scheduler has too much load. Check the panels "
        "Pending pods and Scheduling attempts.",
    ),
    Alert(
        "StowerBehind", "warning", "10m", "stower_inbox_events > 10000",
        "{{ $labels.instance }} has {{ $value }} unprocessed watch events.",
        "The cluster changes faster than one replica processes events: see docs/scale.md.",
    ),
    Alert(
        "StowerStalls", "warning", "10m", "stower_loop_stall_seconds_max > 2",
        "The event loop of {{ $labels.instance }} was blocked for {{ $value | humanizeDuration }}.",
        "The replica can lose its Lease. Possible causes: too little CPU, or a slow decision (see "
        "stower_step_duration_seconds).",
    ),
    Alert(
        "StowerCutOff", "warning", "10m", "rate(stower_watch_cuts_total[5m]) > 0.5",
        "Watches of {{ $labels.instance }} are interrupted {{ $value }} times a second.",
        "Check the network and proxies between the replica and the API server, and the limits of "
        "the API server.",
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
        "Pending pods", "short",
        (("{{queue}}", f"max by (queue) (scheduler_pending_pods{JOB})"),),
        "By queue. active: tried next; backoff: tried after a delay; unschedulable: tried after a "
        "cluster event that may help; gated: not tried while the pod has scheduling gates; "
        "inflight: being scheduled or bound.",
    ),
    Panel(
        "Scheduling attempts", "ops",
        (
            (
                "{{result}} {{profile}}",
                _rate("scheduler_schedule_attempts_total", "result, profile"),
            ),
        ),
    ),
    Panel(
        "Duration from arrival to binding", "s",
        _quantiles("scheduler_pod_scheduling_sli_duration_seconds"),
    ),
    Panel(
        "Duration of scheduling attempts, binding included", "s",
        _quantiles("scheduler_scheduling_attempt_duration_seconds", "result"),
    ),
    Panel(
        "Unschedulable pods by rejecting plugin", "short",
        (
            (
                "{{plugin}} {{profile}}",
                f"max by (plugin, profile) (scheduler_unschedulable_pods{JOB})",
            ),
        ),
    ),
    Panel(
        "Plugin time per second", "s",
        (
            (
                "{{plugin}} {{extension_point}}",
                "topk(10, 10 * "
                + _rate(f"{PLUGINS}_sum", "plugin, extension_point")
                + ")",
            ),
        ),
        "One attempt in ten is measured; the panel shows ten times the measured sum.",
    ),
    Panel(
        "Preemption", "short",
        (
            ("attempts/s", _rate("scheduler_preemption_attempts_total", "job")),
            ("victims/s", _rate("scheduler_preemption_victims_sum", "job")),
        ),
    ),
    Panel(
        "Writes to the API server", "ops",
        (
            (
                "{{call_type}} {{result}}",
                _rate("scheduler_async_api_call_execution_total", "call_type, result"),
            ),
        ),
    ),
    Panel(
        "Writes in flight, and the limit", "short",
        (
            ("{{call_type}}", f"sum by (call_type) (scheduler_pending_async_api_calls{JOB})"),
            ("limit", f"max(stower_writes_in_flight_max{JOB})"),
        ),
    ),
    Panel(
        "Requests to the API server", "ops",
        (("{{method}} {{code}}", _rate("rest_client_requests_total", "method, code")),),
    ),
    Panel(
        "Lag behind the API server", "short",
        (
            ("unprocessed events, {{instance}}", f"stower_inbox_events{JOB}"),
            ("interrupted watches/s, {{instance}}", f"rate(stower_watch_cuts_total{OVER})"),
            ("repeated lists/s, {{instance}}", f"rate(stower_relists_total{OVER})"),
        ),
    ),
    Panel(
        "Longest block of the event loop", "s",
        (("{{instance}}", f"stower_loop_stall_seconds_max{JOB}"),),
    ),
    Panel(
        "Duration of processing one event, p99", "s",
        (
            (
                "{{event}}",
                "histogram_quantile(0.99, "
                + _rate("stower_step_duration_seconds_bucket", "le, event") + ")",
            ),
        ),
    ),
    Panel(
        "Objects in the cache", "short",
        (("{{type}}", f"max by (type) (scheduler_cache_size{JOB})"),),
    ),
    Panel(
        "Memory", "bytes",
        (("{{instance}}", f"process_resident_memory_bytes{JOB}"),),
    ),
    Panel(
        "Leader", "short",
        (("{{instance}} {{name}}", f"leader_election_master_status{JOB}"),),
    ),
)  # fmt: skip


def rules() -> str:
    """Returns the alerts as a PrometheusRule of the Prometheus operator, in YAML."""
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
    """Returns the panels, two per row, as a dashboard that Grafana imports, in JSON."""
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
    """Returns the text of each file by its path in the folder; the chart has copies."""
    texts = {"rules.yaml": rules(), "dashboard.json": dashboard()}
    return {
        f"{folder}/{name}": text
        for folder in ("monitoring", "chart/stower/files/monitoring")
        for name, text in texts.items()
    }


def main() -> None:
    """Writes all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help="folder to write to (default: deploy)"
    )
    folder: Path = parser.parse_args().folder
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
