"""Known findings: a run goes on after what is listed, which is no failure; what was mended stays
so."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.cli.scripts import read_script
from stower.sim import known_findings, trial
from stower.sim.known_findings import KNOWN_FINDINGS, KnownFinding, find_known
from stower.sim.script import AddVm, Script
from stower.sim.trial import Trial, script_of
from tests.sim.planted import half_the_watermark

FOLDER = Path(__file__).parent / "known"
MENDED = Path(__file__).parent / "mended"
SEED = 5  # with which the planted bug is seen
# A row as there may be one.
ROW = KnownFinding(
    "migrations",
    (AddVm,),
    known_findings.re.compile(r"VM \S+ migrated \d+ times in \d+ s while loads stood still, .*"),
    38,
    "none.json",
)


@pytest.mark.parametrize("row", KNOWN_FINDINGS, ids=lambda row: row.script)
def test_a_known_finding_is_still_found(row: KnownFinding) -> None:
    """If this fails because the law holds now, the row and its script go."""
    script = read_script(FOLDER / row.script, None)
    found = Trial(script, known=()).run()
    assert (row.law, row) == (found.law, find_known(found.law, found.what, script, KNOWN_FINDINGS))


@pytest.mark.parametrize("path", sorted(MENDED.iterdir()), ids=lambda path: path.name)
def test_what_was_mended_breaks_no_law(path: Path) -> None:
    found = Trial(read_script(path, None), known=()).run()
    assert ("", "") == (found.law, found.what)


def test_a_run_goes_on_after_a_known_finding() -> None:
    script = script_of(SEED, parts=("devices", "vms"))
    with half_the_watermark():
        found = Trial(script, known=()).run()
        goes_on = Trial(script, known=(ROW,)).run()
    assert (ROW.law, ROW) == (found.law, find_known(found.law, found.what, script, (ROW,)))
    assert ("", ("migrations (issue 38)",)) == (goes_on.law, goes_on.known)
    assert goes_on.virtual_s >= found.virtual_s


def test_other_findings_of_the_law_are_not_known() -> None:
    script = script_of(SEED, parts=("devices", "vms"))
    empty = Script(0, (), 60_000, (), ())
    what = "VM default/a migrated 3 times in 25 s while loads stood still, each from a node above "
    assert ROW == find_known("migrations", f"at 7.1 s: {what}", script, (ROW,))
    assert find_known("migrations", what, empty, (ROW,)) is None
    assert find_known("approvals", what, script, (ROW,)) is None
    assert find_known("migrations", "VM default/a is lost", script, (ROW,)) is None


def test_a_known_finding_is_reported_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script needs a profile for VMs, and gets it without --config."""
    path = tmp_path / "vms.json"
    path.write_bytes(msgspec.json.encode(script_of(SEED, parts=("devices", "vms"))))
    monkeypatch.setattr(trial, "KNOWN_FINDINGS", (ROW,))
    with half_the_watermark():
        done = CliRunner().invoke(app, ["faults", "--script", str(path)])
    assert 0 == done.exit_code, done.output
    assert "known: migrations (issue 38)" in done.stderr


def test_each_script_has_its_row() -> None:
    assert {row.script for row in KNOWN_FINDINGS} == {path.name for path in FOLDER.glob("*")}
