"""VMs under all faults: their controller, their agents and the scheduler die at any moment."""

from pathlib import Path

import pytest

from stower.cli.recordings import rebuild_engine
from stower.engine.limits import Limits
from stower.framework.plugin import Features
from stower.model.times import SECOND_NS
from stower.record.reader import read_recording
from stower.record.recorder import EngineInputs, Recorder
from stower.record.replay import replay
from stower.sim.configurations import configuration_for
from stower.sim.trial import Trial, script_of

ACTIVE_NS = 150 * SECOND_NS
PARTS = ("devices", "vms")
SEEDS = 5
SEEDS_MORE = 36
CHUNK = 5


def said(seed: int) -> str:
    found = Trial(script_of(seed, active_ns=ACTIVE_NS, parts=PARTS)).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("S4.1", "S4.3", "S4.32", "S4.36")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_MORE, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)


@pytest.mark.behaviour("S4.1")
def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (Trial(script_of(3, active_ns=ACTIVE_NS, parts=PARTS)).run() for _ in range(2))
    assert first == again


@pytest.mark.behaviour("S4.1")
def test_a_run_with_vms_is_recorded_and_replays(tmp_path: Path) -> None:
    for seed in (2, 5):
        script = script_of(seed, active_ns=ACTIVE_NS, parts=PARTS)
        ruled = configuration_for(script, None)
        path = tmp_path / f"{seed}.ndjson.zst"
        limit = Limits().cycles_per_step_max
        recorder = Recorder(path, EngineInputs(ruled, seed, limit, Features()))
        found = Trial(script, recording=recorder).run()
        recorder.close()
        again = replay(read_recording(path), rebuild_engine)
        assert "" == found.law
        assert (None, found.steps) == (again.difference, again.steps)
