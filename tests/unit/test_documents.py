"""What documents list is what there is."""

import re
from pathlib import Path

from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS
from tests.tutorial.test_documents import DOCUMENTS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_metrics_are_listed_with_their_labels_and_meanings() -> None:
    text = (DOCS / "metrics.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    kinds = {"counter": COUNTERS, "gauge": GAUGES, "histogram": HISTOGRAMS}
    want = [
        (name + "_total" * (kind == "counter"), kind, ", ".join(row.labels) or "-", row.help)
        for kind, rows in kinds.items()
        for name, row in rows.items()
    ]
    assert want == listed


def test_all_reasons_are_listed() -> None:
    """Of each, what comes before the names in it."""
    text = " ".join((DOCS / "explanation.md").read_text().split())
    sources = [path.read_text() for path in (DOCS.parent / "src" / "stower").rglob("*.py")]
    found = {
        reason.partition("{")[0].partition("[")[0].strip()
        for source in sources
        for reason in re.findall(r'"((?:node\(s\)|Insufficient |Too many )[^"]*)"', source)
    }
    assert len(found) > 20
    assert sorted(reason for reason in found if reason not in text) == []


def test_all_pages_with_sessions_are_run() -> None:
    pages = [*DOCS.glob("*.md"), *(DOCS.parent / "examples").rglob("README.md")]
    with_sessions = {
        str(page.relative_to(DOCS.parent)) for page in pages if "```console" in page.read_text()
    }
    assert with_sessions == {*DOCUMENTS}
