"""What documents list is what there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from stower.framework.reconcile_queue import ReconcileQueue
from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS
from stower.vms import figures as vms
from stower.warm import figures as warm
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
    companions = [*warm.Figures().metrics(()), *vms.Figures({}).metrics(ReconcileQueue())]
    more = [
        (one.name + "_total" * (one.kind == "counter"), one.kind, one.help.rstrip("."))
        for one in companions
    ]
    assert want == listed[: len(want)]
    assert more == [(name, kind, what) for name, kind, _, what in listed[len(want) :]]


# Texts of these folders that are no reasons.
OTHERS = ("pod affinity and anti-affinity terms",)


def test_all_reasons_are_listed() -> None:
    """Of each, what comes before the names in it, or is longest between them."""
    text = " ".join((DOCS / "explanation.md").read_text().split())
    source = DOCS.parent / "src" / "stower"
    found = {
        reason.partition("{")[0].partition("[")[0].strip()
        for path in source.rglob("*.py")
        for reason in re.findall(
            r'"((?:node\(s\)|Insufficient |Too many |waiting for )[^"]*)"', path.read_text()
        )
    }
    for folder in ("engine", "framework", "groups", "plugins", "devices/negotiation"):
        for path in sorted((source / folder).rglob("*.py")):
            found.update(_reasons(ast.parse(path.read_text())))
    assert len(found) > 60
    assert sorted(one for one in found if one not in text and one not in OTHERS) == []


def _reasons(module: ast.Module) -> Iterator[str]:
    """What rejections say, what a table of reasons holds, and constants of several words."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Rejection":
            yield from filter(None, (_said(part, 2) for part in ast.walk(node)))
    for line in module.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if isinstance(line.value, ast.Dict) and line.target.id == "REASONS":
                yield from filter(None, (_said(part, 1) for part in line.value.values))
            elif line.value is not None and (text := _said(line.value, 4)):
                yield text


def _said(node: ast.AST, words: int) -> str:
    """A text of so many words at least, without what is filled in; "" for none."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [str(p.value) for p in parts if isinstance(p, ast.Constant)]
    longest = max(texts, key=len, default="").strip(' :"[')
    is_said = len(longest.split()) >= words and "\n" not in longest
    return longest if is_said else ""


def test_all_pages_with_sessions_are_run() -> None:
    pages = [*DOCS.glob("*.md"), *(DOCS.parent / "examples").rglob("README.md")]
    with_sessions = {
        str(page.relative_to(DOCS.parent)) for page in pages if "```console" in page.read_text()
    }
    assert with_sessions == {*DOCUMENTS}
