"""Runs with faults: no law is broken, one seed gives one run, and each law can be broken."""

import json

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.model.times import SECOND_NS
from stower.sim.checkers import CHECKERS
from stower.sim.checkers.checker import Checker
from stower.sim.faults import FAULTS
from stower.sim.faults.fault import Fault
from stower.sim.faults.two_schedulers import TwoSchedulers
from stower.sim.shrink import shrunk
from stower.sim.trial import ACTIVE_NS, Trial
from tests.sim.planted import PLANTED, Plant

SEEDS = 300
CHUNK = 25
# A planted bug is caught within so many seeds.
SEEDS_MAX = 40


def said(seed: int) -> str:
    found = Trial(seed).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("X4")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, 4 * SEEDS, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)


@pytest.mark.behaviour("X3")
def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (Trial(5).run() for _ in range(2))
    assert first == again
    assert first.digest != Trial(6).run().digest


@pytest.mark.behaviour("X4")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(fault: type[Fault]) -> None:
    """It changes what happens, and breaks nothing."""
    # Who only waits for leadership changes nothing until it is needed.
    others = ("crashes",) if fault is TwoSchedulers else ()
    calm = [Trial(seed, others).run() for seed in range(4)]
    found = [Trial(seed, (*others, fault.name)).run() for seed in range(4)]
    assert [""] * 4 == [finding.law for finding in found]
    assert [f.digest for f in calm] != [f.digest for f in found]


@pytest.mark.parametrize(
    ("law", "plant"), [(law, plant) for law, plants in PLANTED.items() for plant in plants]
)
def test_each_law_is_seen_to_be_broken(law: str, plant: Plant) -> None:
    (checker,) = [c for c in CHECKERS if c.law == law]
    with plant():
        for seed in range(SEEDS_MAX):
            found = Trial(seed, checkers=(checker,)).run()
            if found.law:
                break
    assert law == found.law
    assert found.last_steps


def test_every_law_has_bugs_that_break_it() -> None:
    assert {checker.law for checker in CHECKERS} == set(PLANTED)
    assert all(len(plants) >= 2 for plants in PLANTED.values())


def test_a_failure_is_made_smaller() -> None:
    """Faults that have nothing to do with it are left out."""

    class Unlucky(Checker):
        law = "luck"

        def finished(self) -> None:
            if any(process.lives > 2 for process in self.court.schedulers):
                raise self.broken("a scheduler has died")

    names = ("crashes", "duplicates", "reorders")
    found = Trial(1, names, checkers=(Unlucky,)).run()
    assert "luck" == found.law
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "stower.sim.shrink.Trial",
            lambda *args, **more: Trial(*args, (None), (Unlucky,), **more),
        )
        small = shrunk(found, ACTIVE_NS)
    assert ("crashes",) == small.faults


def test_the_command_runs_seeds_and_says_what_came_of_them() -> None:
    run = CliRunner().invoke(
        app, ["simulate", "--faults", "all", "--seeds", "3", "--jobs", "1", "--output", "json"]
    )
    assert 0 == run.exit_code
    told = json.loads(run.stdout)
    assert (3, []) == (told["seeds"], told["broken"])
    assert Trial(2).run().digest == told["digests"]["2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--faults", "storms"], "--faults: got 'storms', want all or some of clock-jumps"),
        (["--faults", "all", "--until", "soon"], "--until: got 'soon'"),
        (["--faults", "all", "--seed", str(2**63 - 1), "--seeds", "2"], "want a 64-bit number"),
        (["--faults", "all", "x.yaml"], "want no INPUT"),
        ([], "want INPUT or --faults"),
    ],
)
def test_wrong_use_is_one_line(options: list[str], said: str) -> None:
    run = CliRunner().invoke(app, ["simulate", *options])
    assert 2 == run.exit_code
    assert said in run.stderr


def test_a_day_is_run_in_no_time() -> None:
    found = Trial(3, active_ns=86_400 * SECOND_NS).run()
    assert "" == found.law
    assert found.virtual_s > 86_400
