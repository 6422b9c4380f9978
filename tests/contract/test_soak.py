"""One minute of the long run (soak.py); `make long ROWS=soak` takes half an hour."""

import asyncio
from pathlib import Path

import pytest

from tests.contract.soak import Plan, soak


@pytest.mark.more
def test_nothing_is_lost_and_nothing_done_twice_where_everything_fails(tmp_path: Path) -> None:
    plan = Plan(seconds=60, kill_every_s=15)
    report = asyncio.run(soak(tmp_path, plan))
    print("\n".join(report.lines()))
    assert ([], [], []) == (report.lost, report.moved, report.over)
    assert report.made == report.bound == report.bindings
    assert report.made > 0.9 * plan.seconds * plan.pods_per_s, "the churn was kept up"
    assert report.kills >= 3
    assert sum(report.faults.values()) > 100
    assert report.growth("actors") < 1.3
    assert report.growth("the larger scheduler") < 1.3
