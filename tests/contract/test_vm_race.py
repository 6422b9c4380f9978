"""Half a minute of VMs that ask for other sizes while everything else fails (vm_race.py);
`make long ROWS=vm-race` takes three minutes."""

from pathlib import Path

import pytest

from tests.contract.vm_race import compare, run


@pytest.mark.more
@pytest.mark.behaviour("S4.1", "S4.22")
def test_never_more_is_approved_than_there_is_whoever_dies(tmp_path: Path) -> None:
    report = run(tmp_path / "killed", 30, print)
    calm = run(tmp_path / "calm", 1, print, is_calm=True)
    print("\n".join(report.lines()))
    assert [] == [*report.findings, *compare(report, calm)]
    assert report.approvals >= 40
    assert report.kills >= 4
    assert report.fullest > 0.9
