"""What documents list is what there is."""

import re
from pathlib import Path

from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS

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
