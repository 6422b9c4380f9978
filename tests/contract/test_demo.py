"""`stower demo` shows the whole, and cleans up after itself."""

import tempfile
from pathlib import Path

import pytest

from tests.contract.test_up import stower


@pytest.mark.more
@pytest.mark.behaviour("X8")
def test_the_demo_runs_through_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # the reasons of pending pods are not folded
    before = set(Path(tempfile.gettempdir()).glob("stower-demo-*"))
    code, said, error = stower("demo", "--nodes", "12", seconds=120)
    assert (0, "") == (code, error)
    for scene in (
        "A cluster of 12 nodes is up",
        "30 pods run",
        "db-0 on node-",
        "Insufficient nvidia.com/gpu",
        "pods evicted from node-",
        "all 144 run",
        "0 moved",
        "12 of 12 completions",
    ):
        assert scene in said
    assert before == set(Path(tempfile.gettempdir()).glob("stower-demo-*"))
