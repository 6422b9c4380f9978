"""Explanations of pods that are kept from their nodes by causes that are known: the class is right,
the smallest change works and has no more parts than there are causes."""

import pytest

from stower.framework.explanation import ExplanationClass
from tests.change_steps import apply_steps
from tests.unit.engine.explain.planted import explain_documents, plant

NEVER, BLOCKED, WAITING, READY = ExplanationClass
SEEDS = 200
# Of these, what has to change is a claim, whose spec nobody but its owner knows.
UNCHANGED = {"more devices than there are", "missing claim", "missing claim template"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_class_is_right_and_the_smallest_change_works(count: int) -> None:
    larger = 0
    for seed in range(count, SEEDS, 3):
        planted = plant(seed, count)
        told = f"seed {seed}: {planted.causes}"
        found = explain_documents(planted.cluster.documents)
        assert (planted.class_, told) == (found.class_, told), found.because
        total = sum(refusal.nodes for refusal in found.refused) + found.feasible
        assert total == found.nodes or found.verdict == "unknown", told
        if found.verdict in ("unknown", "grouped", "settling") or not found.changes:
            others = {name for found in planted.causes.values() for name in found} - UNCHANGED
            assert found.verdict != "refused" or planted.class_ is WAITING or not others, told
            continue
        change = found.changes[0]
        after = explain_documents(apply_steps(planted.cluster.documents, change.steps))
        assert ("fits", told) == (after.verdict, told), (change.what, after.message)
        assert change.node == after.node or change.alike, told
        larger += len(change.what) > planted.size
    assert larger <= SEEDS / 3 / 20
