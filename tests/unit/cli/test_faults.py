"""stower faults: its arguments, and one clear error for each that is wrong."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stower.cli.fault_arguments import FaultArguments
from stower.cli.fault_runs import read_order
from stower.cli.main import app
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.load import PARTS
from stower.sim.trial import script_of

SHORT = ("--until", "60s", "--jobs", "1")


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["faults", *arguments])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["storms"], "FAULTS: got 'storms', want all, none or some of actor-crashes"),
        (["crashs,cuts"], "; did you mean crashes?"),
        (["all,cuts"], "FAULTS: got 'all,cuts', want all without other names"),
        (["cuts,none"], "FAULTS: got 'cuts,none', want none without other names"),
        (["--only", "nonsense"], "--only: got 'nonsense', want all or some of plain, devices, "),
        (["--only", "grops,vms"], "; did you mean groups?"),
        (["--only", ""], "--only: got '', want all or some of plain, "),
        (["--only", "all,vms"], "--only: got 'all,vms', want all without other names"),
        (["--until", "soon"], "--until: got 'soon', want 60s to 8784h"),
        (["--until", "100000000h"], "--until: got '100000000h'"),
        (["--nodes", "3"], "--nodes: got 3 without --pods"),
        (["--pods", "7"], "--pods: got 7 without --nodes"),
        (["--seed", str(2**63 - 1), "--seeds", "2"], "--seed: got 9223372036854775807, want a 64"),
        (["--failures", "no/where"], "--failures no/where: want a folder"),
        (["--config", "nowhere"], "nowhere: cannot"),
        (["--config", "a", "--config", "b"], "--config: got 2 files, want one"),
        (["--script", "nowhere"], "nowhere: cannot"),
        (["crashes", "--script", "x"], "FAULTS: cannot be used with --script"),
        (["--script", "x", "--seeds", "3"], "--seeds: cannot be used with --script"),
        (["--script", "x", "--only", "vms"], "--only: cannot be used with --script"),
        (["--script", "x", "--nodes", "3"], "--nodes: cannot be used with --script"),
    ],
)
def test_wrong_use_is_one_line(options: list[str], said: str) -> None:
    run = CliRunner().invoke(app, ["faults", *options])
    assert (2, "") == (run.exit_code, run.stdout)
    assert said in run.stderr
    assert 1 == run.stderr.count("\n")


@pytest.mark.parametrize(
    ("only", "parts"),
    [
        ("all", PARTS),
        ("plain", ()),
        ("vms, groups", ("groups", "vms")),
        ("plain,warm,warm", ("warm",)),
    ],
)
def test_parts_are_in_one_order_whatever_the_order_of_their_names(
    only: str, parts: tuple[str, ...]
) -> None:
    assert parts == read_order(FaultArguments(only=only), None).parts


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (None, None), ("all", None), ("none", ()), ("", ()), ("cuts", ("cuts",)),
        (" cuts, crashes,cuts", ("cuts", "crashes")),
    ],
)  # fmt: skip
def test_faults_are_all_none_or_names(text: str | None, faults: tuple[str, ...] | None) -> None:
    assert faults == read_order(FaultArguments(faults=text), None).faults


def test_by_default_all_parts_run_with_faults_drawn_by_seed() -> None:
    order = read_order(FaultArguments(), None)
    assert (0, 1, None, PARTS) == (order.first_seed, order.seeds, order.faults, order.parts)
    assert (None, 180 * 10**9) == (order.size, order.active_ns)


def test_help_names_each_fault_and_each_part() -> None:
    text = " ".join(ran("--help").stdout.split()).replace("- ", "-")  # wrapped at hyphens
    assert [name for name in (*FAULT_BY_NAME, *PARTS, "plain", "none") if name not in text] == []


def test_parts_and_faults_that_are_named_are_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A law that breaks always leaves the script of the run, before it is made smaller."""
    seen = []

    def script(*arguments: object) -> object:
        seen.append(arguments)
        return script_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("stower.cli.fault_runs.script_of", script)
    run = ran("cuts", "--only", "groups", "--seed", "5", *SHORT, "-o", "json")
    assert 0 == run.exit_code, run.stderr
    assert [(5, ("cuts",), 60 * 10**9, None, ("groups",))] == seen
    assert (1, []) == tuple(json.loads(run.stdout)[key] for key in ("seeds", "broken"))
