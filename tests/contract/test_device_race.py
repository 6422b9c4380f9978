"""Twenty seconds of two schedulers that share devices, and are killed in turns (device_race.py);
`make long ROWS=device-race` takes two minutes, alone on the machine."""

from pathlib import Path

import pytest

from tests.contract.device_race import run


@pytest.mark.more
def test_no_device_is_given_twice_by_two_schedulers(tmp_path: Path) -> None:
    report = run(tmp_path, 20, print, given_back_s=5.0)
    print("\n".join(report.lines()))
    assert [] == report.findings
    assert report.bound >= 200
    assert report.overcommits
