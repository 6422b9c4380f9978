"""What documents list is what there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from stower.framework.explanation import (
    REASON_TEXTS,
    ChangeCode,
    ExplanationClass,
    ReasonCode,
    code_of,
)
from stower.framework.reconcile_queue import ReconcileQueue
from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS
from stower.state.cluster import ClusterState
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
    figures = warm.Figures().metrics(ClusterState(), (), {}, lambda pool: (pool,))
    companions = [*figures, *vms.Figures({}).metrics(ReconcileQueue())]
    more = [
        (one.name + "_total" * (one.kind == "counter"), one.kind, one.help.rstrip("."))
        for one in companions
    ]
    assert want == listed[: len(want)]
    assert more == [(name, kind, what) for name, kind, _, what in listed[len(want) :]]


# Texts of these folders that are no reasons; the second is a kubelet's.
OTHERS = (
    "pod affinity and anti-affinity terms",
    "node(s) had taints that the pod didn't tolerate",
)


def test_all_reasons_are_listed() -> None:
    """Of each, what comes before the names in it, or is longest between them."""
    text = " ".join((DOCS / "explanation.md").read_text().split())
    found = _all_reasons()
    assert len(found) > 60
    assert sorted(one for one in found if one not in text and one not in OTHERS) == []


# Codes of texts that the scan above does not find: too few words, or in a call.
WITHOUT_LITERAL = (
    ReasonCode.CLAIM_NOT_REFERENCED,
    ReasonCode.GROUP_DOMAIN_UNKNOWN,
    ReasonCode.GROUP_INVALID,
    ReasonCode.GROUP_NOT_FOUND,
    ReasonCode.NEGOTIATION_TURN_PENDING,
)


def test_every_reason_has_a_code_and_every_code_a_reason() -> None:
    """Every text that a plugin or the engine refuses with; OTHER is for plugins of users."""
    reasons = _all_reasons() - {*OTHERS}
    codes = {reason: code_of(reason) for reason in reasons}
    other = {reason for reason, code in codes.items() if code is ReasonCode.OTHER}
    assert {"node(s) were refused for other reasons"} == other
    assert {*ReasonCode} - {*WITHOUT_LITERAL} == {*codes.values()}
    source = "\n".join(p.read_text() for p in (SOURCE / "groups").rglob("*.py"))
    source += "\n".join(p.read_text() for p in (SOURCE / "engine").rglob("*.py"))
    source += "\n".join(p.read_text() for p in (SOURCE / "plugins").rglob("*.py"))
    source += "\n".join(p.read_text() for p in (SOURCE / "devices").rglob("*.py"))
    for code in WITHOUT_LITERAL:
        assert [t for t, of in REASON_TEXTS if of is code and t in " ".join(source.split())]


def test_each_text_of_a_code_is_found_by_a_reason() -> None:
    """A text that an earlier one hides would never give its code."""
    assert [] == [text for text, code in REASON_TEXTS if code_of(text) is not code]


def test_classes_and_codes_are_listed() -> None:
    page = (DOCS / "explanation.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\|$", page, re.MULTILINE))
    wanted = [*ExplanationClass, *ReasonCode, *ChangeCode]
    assert [one.value for one in wanted] == [*listed]
    for code in {*ReasonCode} - {ReasonCode.OTHER}:
        assert ", ".join(text for text, of in REASON_TEXTS if of is code) == listed[code]


SOURCE = DOCS.parent / "src" / "stower"


def _all_reasons() -> set[str]:
    source = DOCS.parent / "src" / "stower"
    found = {
        reason.partition("{")[0].partition("[")[0].strip()
        for path in source.rglob("*.py")
        if path != source / "framework" / "explanation.py" and path.parent.name != "controllers"
        for reason in re.findall(
            r'"((?:node\(s\)|Insufficient |Too many |waiting for )[^"]*)"', path.read_text()
        )
    }
    for folder in ("engine", "framework", "groups", "plugins", "devices/negotiation"):
        for path in sorted((source / folder).rglob("*.py")):
            if path.name != "explanation.py" or folder != "framework":  # it has no reasons
                found.update(_reasons(ast.parse(path.read_text())))
    return found


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
