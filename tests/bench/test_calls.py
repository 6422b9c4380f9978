"""What a decision may cost, in calls: no load of the machine changes the figure."""

import pytest

from stower.bench.calls import WORKLOADS, budgets, count
from stower.bench.workloads import workloads

# A budget that is higher than this share of what is counted would let a decision grow unseen.
SLACK = 1.02


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_decision_keeps_to_its_budget_of_calls(name: str) -> None:
    """A budget rises only with a reason in changes/, and falls with the figure."""
    if not budgets():
        pytest.skip("call_budgets.yaml has no budgets for this version of Python")
    found = count(workloads()[name])
    assert found.calls <= found.budget
    assert found.budget <= found.calls * SLACK
