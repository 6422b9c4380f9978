"""Half a minute of a user's worst objects beside another's plain pods (hostile_users.py);
`make long ROWS=hostile` takes ten minutes."""

from pathlib import Path

import pytest

from tests.contract.hostile_users import KINDS, run


@pytest.mark.more
def test_plain_pods_are_bound_beside_the_worst_objects(tmp_path: Path) -> None:
    report = run(tmp_path, 30, print)
    print("\n".join(report.lines()))
    assert [] == report.findings
    assert len(report.waits) >= 10
    assert report.created >= 5 * len(KINDS)
