"""The table of known findings: each row's script still breaks its law in the listed way."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.cli.scripts import read_script
from stower.sim.known_findings import KNOWN_FINDINGS, KnownFinding, find_known
from stower.sim.script import Script
from stower.sim.trial import Trial

FOLDER = Path(__file__).parent / "known"


@pytest.mark.parametrize("row", KNOWN_FINDINGS, ids=lambda row: row.script)
def test_a_known_finding_is_still_found(row: KnownFinding) -> None:
    """If this fails because the law holds now, the row and its script go."""
    script = read_script(FOLDER / row.script, None)
    found = Trial(script, known=()).run()
    assert (row.law, row) == (found.law, find_known(found.law, found.what, script, KNOWN_FINDINGS))
    goes_on = Trial(script).run()
    assert ("", (f"{row.law} (issue {row.issue})",)) == (goes_on.law, goes_on.known)
    assert goes_on.virtual_s >= found.virtual_s


def test_other_findings_of_the_law_are_not_known() -> None:
    (row, *_) = KNOWN_FINDINGS
    script = read_script(FOLDER / row.script, None)
    empty = Script(0, (), 60_000, (), ())
    what = "VM default/a migrated 3 times in 25 s while loads stood still, each from a node above "
    what += "its watermark, want at most 2"
    unfounded = what.replace("each", "0 of them")
    assert find_known("migrations", unfounded, script, KNOWN_FINDINGS) is None
    assert row == find_known("migrations", f"at 7.1 s: {what}", script, KNOWN_FINDINGS)
    assert find_known("migrations", what, empty, KNOWN_FINDINGS) is None
    assert find_known("approvals", what, script, KNOWN_FINDINGS) is None
    assert find_known("migrations", "VM default/a is lost", script, KNOWN_FINDINGS) is None


def test_a_known_finding_is_reported_and_is_no_failure() -> None:
    """The script needs a profile for VMs, and gets it without --config."""
    (row, *_) = KNOWN_FINDINGS
    done = CliRunner().invoke(app, ["faults", "--script", str(FOLDER / row.script)])
    assert 0 == done.exit_code, done.output
    assert "known: migrations (issue 38)" in done.stderr


def test_each_script_has_its_row() -> None:
    assert {row.script for row in KNOWN_FINDINGS} == {path.name for path in FOLDER.iterdir()}
