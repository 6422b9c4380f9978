"""deploy/: what tools write is as their tables say; monitoring asks for what there is."""

import json
import re

import promql_parser
import pytest

from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS
from tools import make_monitoring, make_roles
from tools.make_crds import FOLDER as DEPLOY
from tools.make_monitoring import ALERTS, PANELS

PROCESS = {"process_resident_memory_bytes"}
NAMES = (
    {f"{name}{part}" for name in HISTOGRAMS for part in ("_bucket", "_sum", "_count")}
    | {f"{name}_total" for name in COUNTERS} | {*GAUGES} | PROCESS
)  # fmt: skip
LABELS = {
    **{f"{name}_bucket": {*row.labels, "le"} for name, row in HISTOGRAMS.items()},
    **{f"{name}_sum": {*row.labels} for name, row in HISTOGRAMS.items()},
    **{f"{name}_total": {*row.labels} for name, row in COUNTERS.items()},
    **{name: {*row.labels} for name, row in GAUGES.items()},
    **{name: set[str]() for name in PROCESS},
}
EXPRESSIONS = [
    *(alert.expression for alert in ALERTS),
    *(expression for panel in PANELS for _, expression in panel.lines),
]


@pytest.mark.parametrize("tool", [make_roles, make_monitoring], ids=lambda tool: tool.__name__)
def test_files_are_as_the_tables_say(tool: object) -> None:
    for path, text in tool.files().items():  # type: ignore[attr-defined]
        assert text == (DEPLOY / path).read_text(), f"{path}: write it anew with the tool"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    plain = expression.replace("$__rate_interval", "5m").replace("$job", "stower")
    promql_parser.parse(plain)
    metrics = re.findall(r"\b(?:scheduler|stower|process|rest_client|leader)_\w+", plain)
    assert metrics
    assert set(metrics) <= NAMES
    known = {"job", "instance"}.union(*(LABELS[name] for name in metrics))
    for labels in re.findall(r"(?:by|on) \(([^)]*)\)", plain):
        assert set(labels.replace(" ", "").split(",")) <= known
    for labels in re.findall(r"\{([^}]*)\}", plain):
        assert {one.partition("=")[0] for one in labels.split(",")} <= known


def test_a_legend_names_labels_of_its_expression() -> None:
    for panel in PANELS:
        for legend, expression in panel.lines:
            grouped = re.findall(r"by \(([^)]*)\)", expression)
            (metric,) = re.findall(
                r"\b(?:scheduler|stower|process|rest_client|leader)_\w+", expression
            )
            left = grouped[-1].split(", ") if grouped else {*LABELS[metric], "instance"}
            assert {*re.findall(r"\{\{(\w+)\}\}", legend)} <= {*left}, panel.title


def test_the_dashboard_is_one() -> None:
    board = json.loads(make_monitoring.dashboard())
    assert len(PANELS) == len({panel["id"] for panel in board["panels"]})
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(places) == len(set(places))
