"""Runs with faults: no law is broken, one seed gives one run, and each law can be broken."""

import json
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.cli.recordings import rebuild_engine
from stower.engine.limits import Limits
from stower.framework.plugin import Features
from stower.model.times import SECOND_NS
from stower.record.reader import read_recording
from stower.record.recorder import EngineInputs, Recorder
from stower.record.replay import replay
from stower.sim.checkers import CHECKERS
from stower.sim.checkers.checker import Checker
from stower.sim.faults import FAULTS
from stower.sim.faults.driver_crashes import DriverCrashes
from stower.sim.faults.fault import Fault
from stower.sim.faults.two_schedulers import TwoSchedulers
from stower.sim.rival_load import has_rivals
from stower.sim.script import Script
from stower.sim.shrinker import shrink
from stower.sim.trial import Finding, Trial, script_of
from tests.sim.planted import PLANTED, Planted, unheard

SEEDS = 2
SEEDS_MORE = 24
CHUNK = 2
# A planted bug is caught within so many seeds.
SEEDS_MAX = 40


DEVICES = ("faults", "--only", "devices")


def said(seed: int) -> str:
    found = Trial(script_of(seed)).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("X4")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_MORE, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)


RIVALS = [seed for seed in range(400) if has_rivals(script_of(seed, parts=("devices", "rivals")))]


@pytest.mark.parametrize("seed", RIVALS[:4])
def test_two_schedulers_do_not_give_a_device_twice(seed: int) -> None:
    script = script_of(seed, parts=("devices", "rivals"))
    found = Trial(script).run()
    assert (found.law, found.what) == ("", "")


@pytest.mark.more
@pytest.mark.parametrize("seed", RIVALS[4:])
def test_two_schedulers_do_not_give_a_device_twice_more(seed: int) -> None:
    test_two_schedulers_do_not_give_a_device_twice(seed)


@pytest.mark.behaviour("X3")
def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (Trial(script_of(5, parts=("devices",))).run() for _ in range(2))
    assert first == again
    assert first.digest != Trial(script_of(6, parts=("devices",))).run().digest


@cache
def digests(faults: tuple[str, ...], *more: str) -> list[str]:
    """Of two seeds with these faults alone, with devices and more parts, which break no law."""
    found = [Trial(script_of(n, faults, parts=("devices", *more))).run() for n in range(2)]
    assert [""] * 2 == [finding.law for finding in found]
    return [finding.digest for finding in found]


@pytest.mark.behaviour("X4")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone(fault: type[Fault]) -> None:
    """It changes what happens, and breaks nothing."""
    # Who only waits for leadership changes nothing until it is needed.
    others = ("crashes",) if fault is TwoSchedulers else ()
    more = ("negotiation",) if fault is DriverCrashes else ()
    assert digests(others, *more) != digests((*others, fault.name), *more)


ALL_PLANTED = [
    pytest.param(law, planted, id=f"{law}-{planted.bug.__name__}")
    for law, bugs in PLANTED.items()
    for planted in bugs
]


# The part of the load that a law is about, beside devices.
PART_OF_LAW = {
    "hold-and-wait": ("negotiation",), "futile-allocations": ("negotiation", "groups"),
    "negotiations": ("negotiation",), "gangs": ("groups",), "approvals": ("vms",),
    "machines": ("vms",), "leaks": ("made-up",), "migrations": ("vms",), "warmth": ("warm",),
}  # fmt: skip


def is_seen(law: str, planted: Planted, seed: int) -> bool:
    """Whether the law's checker sees that the planted bug breaks it."""
    (checker,) = [c for c in CHECKERS if c.law == law]
    script = script_of(seed, parts=("devices", *PART_OF_LAW.get(law, ()), *planted.parts))
    with planted.bug():
        found = Trial(script, checkers=(checker,), known=()).run()
    assert found.law in ("", law)
    assert not found.law or found.last_steps
    return bool(found.law)


@pytest.mark.parametrize(("law", "planted"), ALL_PLANTED)
def test_each_law_is_seen_to_be_broken(law: str, planted: Planted) -> None:
    assert is_seen(law, planted, planted.seed), "test-more says which seed is the first now"


@pytest.mark.more
@pytest.mark.parametrize(("law", "planted"), ALL_PLANTED)
def test_the_first_seed_that_shows_it_is_known(law: str, planted: Planted) -> None:
    seen = (seed for seed in range(SEEDS_MAX) if is_seen(law, planted, seed))
    assert planted.seed == next(seen)


def test_every_law_has_bugs_that_break_it() -> None:
    assert {checker.law for checker in CHECKERS} == set(PLANTED)
    assert all(len(plants) >= 2 for plants in PLANTED.values())


def test_a_failure_is_made_smaller() -> None:
    """Faults that have nothing to do with it are left out."""

    class Unlucky(Checker):
        law = "luck"

        def check_end(self) -> None:
            if any(process.lives > 2 for process in self.court.schedulers):
                raise self.violation("a scheduler has died")

    def run(script: Script) -> Finding:
        return Trial(script, checkers=(Unlucky,)).run()

    whole = script_of(1, ("crashes", "duplicates", "reorders"), parts=("devices",))
    assert "luck" == run(whole).law
    small = shrink(whole, "luck", run)
    assert (("crashes",), (), ()) == (small.faults, small.happenings, small.templates)
    assert "luck" == run(small).law


@pytest.mark.behaviour("X3")
def test_each_life_of_each_scheduler_is_recorded_and_replays(tmp_path: Path) -> None:
    for seed in range(6):
        path = tmp_path / f"{seed}.ndjson.zst"
        recorder = Recorder(
            path, EngineInputs(None, seed, Limits().cycles_per_step_max, Features())
        )
        script = script_of(seed, [f.name for f in FAULTS], parts=("devices",))
        found = Trial(script, recording=recorder).run()
        recorder.close()
        again = replay(read_recording(path), rebuild_engine)
        assert ("", None) == (found.law, again.difference)
        assert (found.steps, True) == (again.steps, again.engines > 1)


def test_a_failure_is_kept_as_a_small_script_and_a_recording(tmp_path: Path) -> None:
    arguments = [*DEVICES, "--seed", "1", "--until", "60s"]
    with unheard():
        run = CliRunner().invoke(app, [*arguments, "--failures", str(tmp_path)])
        assert 1 == run.exit_code
        (script,) = sorted(tmp_path.glob("*.script.json"))[:1]
        assert str(script) in run.stderr
        assert "the law of" in run.stderr
        again = CliRunner().invoke(app, ["faults", "--script", str(script), "-o", "json"])
        law = json.loads(again.stdout)["law"]
        assert (1, True) == (again.exit_code, law in script.name)
        assert "the last steps" in again.stderr
        recording = script.with_name(script.name.replace(".script.json", ".ndjson.zst"))
        replayed = CliRunner().invoke(app, ["replay", str(recording)])
        assert 0 == replayed.exit_code
    whole = script_of(int(script.name.split("-")[1]), parts=("devices",))
    assert len(json.loads(script.read_text())["happenings"]) < len(whole.happenings) / 2
    assert 0 == CliRunner().invoke(app, ["faults", "--script", str(script)]).exit_code


WRITTEN = """
apiVersion: stower.dev/v1
kind: Script
seed: 1
faults: []
activeMs: 120000
templates:
- {name: web, isReplaced: true, spec: {containers: [{name: c, image: web}]}}
- name: gpu
  spec: {containers: [{name: c}], resourceClaims: [{name: d, resourceClaimTemplateName: one}]}
  claim: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
- name: together
  spec: {containers: [{name: c}], resourceClaims: [{name: d, resourceClaimName: shared}]}
happenings:
- {do: add-node, atMs: 0, node: {metadata: {name: n1}, status: {capacity: {cpu: 4, pods: 10}}}}
- {do: add-node, atMs: 0, node: {metadata: {name: n2}, status: {capacity: {cpu: 4, pods: 10}}}}
- {do: add-pod, atMs: 1000, template: web}
- {do: add-pod, atMs: 1000, template: web, priority: 7, lastsMs: 9000}
- {do: crash, atMs: 1001, forMs: 3000}
- {do: stop-node, atMs: 5000, node: n1, forMs: 20000}
- {do: freeze, atMs: 6000, forMs: 3000}
- {do: taint-node, atMs: 30000, node: n2}
- {do: cordon-node, atMs: 31000, node: n1}
- {do: label-node, atMs: 32000, node: n1, labels: {a: b}}
- {do: delete-pod, atMs: 33000, pod: web-1}
- {do: remove-node, atMs: 34000, node: n2}
- {do: remove-node, atMs: 34000, node: nowhere}
- {do: add-device-class, atMs: 0, deviceClass: {metadata: {name: gpus}}}
- do: add-devices
  atMs: 0
  slice:
    metadata: {name: n1}
    spec: {driver: d, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1},
           devices: [{name: a}, {name: b}]}
- do: add-claim
  atMs: 0
  claim:
    metadata: {name: shared}
    spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
- {do: add-pod, atMs: 500, template: gpu}
- {do: add-pod, atMs: 500, template: together}
- {do: add-pod, atMs: 600, template: together}
"""


def test_a_script_of_ones_own_is_run(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(WRITTEN)
    run = CliRunner().invoke(app, ["faults", "--script", str(path), "-o", "json"])
    found = json.loads(run.stdout)
    assert (0, "") == (run.exit_code, found["law"])
    assert found["steps"] > 20
    run = CliRunner().invoke(app, ["faults", "--script", str(path)])
    assert "No law was broken" in run.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("seed: 1", "seed: 1.5"), "seed: got float, want int"),
        (("faults: []", "faults: [storms]"), 'faults[0]: got "storms", want one of'),
        (("activeMs: 120000", "activeMs: 0"), "activeMs: got 0"),
        (("do: crash", "do: dance"), "happenings[4].do"),
        (("template: web}", "template: api}"), 'happenings[2].template: got "api"'),
        (("lastsMs: 9000", "lastMs: 9000"), "lastMs"),
        (("isReplaced: true", "isReplacd: true"), "isReplacd"),
        (
            ("atMs: 1001, forMs: 3000", "atMs: 1001, forMs: 3000, scheduler: -1"),
            "scheduler: got -1",
        ),
        (
            ("atMs: 1001, forMs: 3000", "atMs: 1001, forMs: 300000"),
            "happenings[4].forMs: got 300000",
        ),
        (("lastsMs: 9000", "lastsMs: -5"), "happenings[3].lastsMs: got -5"),
        (("capacity: {cpu: 4", "capacity: {cpu: lots"), "happenings[0].node.status.capacity.cpu"),
        (("metadata: {name: n1}", "metadata: {}"), "happenings[0].node.metadata.name"),
        (("spec: {containers", "spec: {schedulerName: x, containers"), "spec.schedulerName: got"),
        (("faults: []", "faults: [cuts, cuts]"), 'faults[1]: got "cuts"'),
        (("atMs: 34000", "atMs: 340000"), "happenings[11].atMs: got 340000"),
        (("image: web}", "resources: {requests: {cpu: x}}}"), "templates[0].spec.containers[0]"),
        (("containers: [{name: c", "containers: [{nam: [c]"), ""),
        (("spec: {containers", "spec: {pots"), "templates[0].spec.containers"),
        (("atMs: 34000", "atMs: -1"), "happenings[11].atMs: got -1"),
        (("node: n1, forMs: 20000", "node: n1"), "happenings[5].forMs: got"),
        (("templates:", "template:"), "template"),
        (("kind: Script", "kind: Play"), "kind: got"),
        (
            ("claim: {devices: {requests: [", "claim: {devices: {requests: [7, "),
            "templates[1].claim.devices.requests[0]: got int",
        ),
        (
            ("slice:\n    metadata: {name: n1}", "slice:\n    metadata: {}"),
            "happenings[14].slice.metadata.name",
        ),
    ],
)
def test_a_script_that_is_none_is_refused(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(WRITTEN.replace(*change))
    run = CliRunner().invoke(app, ["faults", "--script", str(path)])
    assert (2 if said else 0) == run.exit_code
    assert said in run.stderr


def test_the_command_runs_seeds_and_says_what_came_of_them() -> None:
    run = CliRunner().invoke(app, [*DEVICES, "--seeds", "3", "--jobs", "1", "--output", "json"])
    assert 0 == run.exit_code
    told = json.loads(run.stdout)
    assert (3, []) == (told["seeds"], told["broken"])
    assert Trial(script_of(2, parts=("devices",))).run().digest == told["digests"]["2"]


def test_a_day_is_run_in_no_time() -> None:
    found = Trial(script_of(3, active_ns=86_400 * SECOND_NS, parts=("devices",))).run()
    assert "" == found.law
    assert found.virtual_s > 86_400


def test_a_cluster_of_a_given_size_is_run_by_day_and_night() -> None:
    arguments = [*DEVICES, "--nodes", "40", "--pods", "400", "--until", "6h"]
    run = CliRunner().invoke(app, [*arguments, "--output", "json"])
    told = json.loads(run.stdout)
    assert (0, []) == (run.exit_code, told["broken"])
    assert told["steps"] > 2 * 400


def test_a_configuration_of_ones_own_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {score: {disabled: [{name: '*'}]}}\n"
    )
    arguments = [*DEVICES, "--seeds", "4", "--jobs", "1", "--output", "json"]
    plain = json.loads(CliRunner().invoke(app, arguments).stdout)
    own = json.loads(CliRunner().invoke(app, [*arguments, "--config", str(path)]).stdout)
    assert [] == own["broken"]
    assert plain["digests"] != own["digests"]
