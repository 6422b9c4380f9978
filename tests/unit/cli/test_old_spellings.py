"""Runs that are verbs of their own go on under their old spellings, which name the new ones."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stower.cli.main import app
from stower.cli.simulate_arguments import OldOptions
from tests.sim.test_trial import WRITTEN
from tests.unit.cli.test_hub import days
from tests.unit.cli.test_packing import folder

__all__ = ["days", "folder"]  # fixtures
ROOT = Path(__file__).parents[3]


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def unmeasured(text: str) -> str:
    """The output without the report of CPU time and memory, which differs from run to run."""
    head, _, rest = text.partition("report")
    return head + rest.partition("digests")[2]


def unhurried(text: str) -> str:
    """What was said without the lines of how far it is, which come after ten seconds."""
    return re.sub(r"^stower: .*, \d+ s\n", "", text, flags=re.MULTILINE)


def check_same(old: tuple[str, ...], new: str) -> None:
    """The old spelling prints what the new one prints, and a note with a command that does so."""
    was, now = ran("simulate", *old), ran(*shlex.split(new))
    assert (now.exit_code, unmeasured(now.stdout)) == (was.exit_code, unmeasured(was.stdout))
    note, _, rest = was.stderr.partition("\n")
    head, _, named = note.partition(" is now: ")
    assert (f"stower: simulate {old[0]}", f"stower {new}") == (head, named)
    assert unhurried(now.stderr) == unhurried(rest)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("all",), "all --only devices"),
        (("",), "none --only devices"),
        (("cuts,crashes", "--groups"), "cuts,crashes --only devices,groups"),
        (("all", "--negotiate"), "all --only devices,negotiation"),
        (("all", "--vms"), "all --only devices,vms"),
        (("all", "--warm"), "all --only devices,warm"),
        (("all", "--vms", "--warm", "--negotiate"), "all --only devices,negotiation,vms,warm"),
        (
            ("all", "--groups", "--nodes", "9", "--pods", "5"),
            "all --only groups --nodes 9 --pods 5",
        ),
        (("storms",), "storms --only devices"),
        (("all", "--nodes", "9"), "all --only plain --nodes 9"),
        (("all", "--until", "1h", "--jobs", "2"), "all --only devices --jobs 2 --until 1h"),
        (("all", "--failures", "nowhere"), "all --only devices --failures nowhere"),
    ],
)
def test_both_spellings_ask_for_the_same_runs(
    old: tuple[str, ...], new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[object] = []
    monkeypatch.setattr(
        "stower.cli.verbs.faults.run_order", lambda *given: bool(orders.append(given)) or True
    )
    check_same(("--faults", *old), f"faults {new}")
    assert orders[:1] == orders[1:]


def test_faults() -> None:
    runs = ("--seeds", "2", "--until", "60s", "--jobs", "1", "-o", "json")
    new = "faults all --only devices --seeds 2 --jobs 1 --until 60s --output json"
    check_same(("--faults", "all", *runs), new)


def test_faults_on_a_cluster_of_a_given_size_have_no_devices_as_before() -> None:
    size = ("--nodes", "4", "--pods", "20", "--seed", "3", "-o", "json")
    new = "faults all --only plain --seed 3 --nodes 4 --pods 20 --output json"
    check_same(("--faults", "all", *size), new)


def test_a_script(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(WRITTEN)
    check_same(("--script", str(path), "-o", "yaml"), f"faults --script {path} --output yaml")
    check_same(("--script", "nowhere"), "faults --script nowhere")


def test_a_broken_law_ends_with_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stower.cli.verbs.faults.run_order", lambda *_: False)
    check_same(("--faults", "all"), "faults all --only devices")
    assert 1 == ran("simulate", "--faults", "all").exit_code


def test_a_trace(folder: Path) -> None:
    own = ("--policy", "best-fit", "--policy", "random", "--seeds", "2", "--jobs", "1")
    check_same(
        ("--trace", "openb", str(folder), *own, "-o", "json"),
        f"pack {folder} --policy best-fit --policy random --seeds 2 --jobs 1 --output json",
    )
    check_same(("--trace", "openb", str(folder), "--policy", "x"), f"pack {folder} --policy x")
    check_same(("--trace", "openb"), "pack")


def test_days_of_a_hub(days: Path) -> None:
    own = ("--seeds", "1", "--jobs", "1", "--policy", "default", "--slots", "5")
    check_same(
        ("--scenario", "hub", str(days), *own),
        f"hub {days} --policy default --seeds 1 --slots 5 --jobs 1",
    )
    check_same(("--scenario", "hub", str(days), "--seeds", "2"), f"hub {days} --seeds 2")
    check_same(("--scenario", "hub", "--node-groups", "no.yaml"), "hub --node-groups no.yaml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--faults", "all", "--record", "x"), "--record: cannot be used with --faults"),
        (("--faults", "all", "x.yaml"), "want no INPUT"),
        (("--faults", "all", "--policy", "fgd"), "--policy: is an option of stower pack"),
        (("--script", "x", "--seeds", "3"), "--seeds: needs --faults"),
        (("--script", "x", "--seed", "3"), "--seed: needs --faults"),
        (("--trace", "azure", "x"), "--trace: got 'azure', want openb"),
        (("--trace", "openb", "x", "--config", "a"), "--config: cannot be used with --trace"),
        (("--trace", "openb", "x", "--faults", "all"), "--faults: cannot be used with --trace"),
        (("--scenario", "spoke"), "--scenario: got 'spoke', want hub"),
        (("--scenario", "hub", "--timed"), "--timed: cannot be used with --scenario"),
        (("--scenario", "hub", "--faults", "all"), "--faults: cannot be used with --scenario"),
        (("x.yaml", "--until", "3h"), "--until: is an option of stower faults"),
        (("x.yaml", "--nodes", "3"), "--nodes: is an option of stower faults"),
        (("x.yaml", "--policy", "random"), "--policy: is an option of stower pack and stower hub"),
        (("x.yaml", "--node-groups", "n"), "--node-groups: is an option of stower hub"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], said: str) -> None:
    run = ran("simulate", *options)
    assert (2, "") == (run.exit_code, run.stdout)
    assert said in run.stderr
    assert 1 == run.stderr.count("\n")


def test_without_anything_all_verbs_are_named() -> None:
    said = " ".join(ran("simulate").stderr.split())
    assert "for INPUT: want files or folders; clusters with faults: stower faults; GPU " in said
    assert "traces: stower pack; days of a hub: stower hub" in said


def test_help_does_not_list_old_options() -> None:
    text = ran("simulate", "--help").stdout
    old = {f"--{name.replace('_', '-')}" for name in OldOptions.__dataclass_fields__}
    assert {"--faults", "--trace", "--scenario", "--script"} < old
    assert [option for option in sorted(old) if f"{option} " in text] == []
    assert [f"stower {verb}" in text for verb in ("faults", "pack", "hub")] == [True] * 3


def test_no_document_uses_an_old_spelling() -> None:
    names = "|".join(name.replace("_", "-") for name in OldOptions.__dataclass_fields__)
    old = re.compile(rf"stower simulate\b[^`\n]*\s--({names})\b")
    pages = [
        ROOT / "README.md",
        *(path for part in ("docs", "examples", "deploy") for path in (ROOT / part).rglob("*")),
    ]
    texts = {path: path.read_text() for path in pages if path.suffix in (".md", ".yaml")}
    assert len(texts) > 30
    found = [f"{path}: {old.search(text)}" for path, text in texts.items() if old.search(text)]
    assert [] == found
