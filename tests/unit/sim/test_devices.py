"""Simulations place pods with the devices that they claim, and give these back."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from stower.assembly import build_engine
from stower.cli.main import app
from stower.framework.events import WatchType
from stower.model.kinds import ResourceClaim
from stower.sim.trial import Trial, script_of
from stower.sim.world import World
from tests.builders import make_node
from tests.device_builders import claiming, device, device_class, device_slice, resource_claim

WORLD = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: 4, pods: 10}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpus}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""

JOB = """
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: claim-{i}}}
spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpus}}}}]}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: job-{i}
  annotations: {annotations}
spec:
  resourceClaims: [{{name: gpu, resourceClaimName: claim-{i}}}]
  containers: [{{name: main, image: job}}]
"""


def simulated(tmp_path: Path, annotations: tuple[str, str], *options: str) -> dict[str, Any]:
    """The report on the two jobs."""
    path = tmp_path / "world.yaml"
    jobs = (JOB.format(i=i, annotations=each) for i, each in enumerate(annotations))
    path.write_text(WORLD + "".join(jobs))
    run = CliRunner().invoke(app, ["simulate", str(path), *options, "--output", "json"])
    report: dict[str, Any] = json.loads(run.stdout)["reports"][0]
    return report


def test_a_device_is_given_once(tmp_path: Path) -> None:
    report = simulated(tmp_path, ("{}", "{}"))
    assert ({"default/job-0": "n1"}, 1) == (report["assignments"], report["pending"])


def test_a_device_is_given_to_the_next_when_a_job_ends(tmp_path: Path) -> None:
    times = tuple(
        f'{{"stower.dev/arrives-seconds": "{at_s}", "stower.dev/run-seconds": "5"}}'
        for at_s in (1, 2)
    )
    report = simulated(tmp_path, (times[0], times[1]), "--timed")
    assert (2, 4.0) == (report["ended"], report["waitedSeconds"])


def test_runs_with_faults_give_devices_and_take_them_back() -> None:
    """Else the laws about devices would hold for want of anything to look at."""
    given = taken_back = 0
    for seed in range(16):
        trial = Trial(script_of(seed, parts=("devices",)))
        had: set[str] = set()
        for_now: set[str] = set()

        def seen(change: object, had: set[str] = had, for_now: set[str] = for_now) -> None:
            claim = change[2]  # type: ignore[index]
            if isinstance(claim, ResourceClaim):
                key = claim.metadata.uid
                if claim.status.allocation is not None:
                    had.add(key)
                    for_now.add(key)
                else:
                    for_now.discard(key)

        trial.server.tell.append(seen)
        assert "" == trial.run().law
        given += len(had)
        taken_back += len(had - for_now)
    assert (True, True) == (given > 20, taken_back > 10)


def test_what_schedulers_wrote_into_a_claim_before_does_not_undo_what_they_write_now() -> None:
    """A recording has the claim as it was in between: not yet allocated, or for another node."""
    world = World(build_engine())
    first, second = (claiming(name, f"c-{name}") for name in ("first", "second"))
    claims = [resource_claim(f"c-{name}", owner=pod) for name, pod in
              (("first", first), ("second", second))]  # fmt: skip
    devices = device_class(), device_slice("n1", device("only"))
    world.start((make_node("n1"),), (), (*devices, *claims))
    world.add_pod(first)
    assert "n1" == world.pods[first.metadata.uid].spec.node_name
    recorded = resource_claim(
        "c-first", owner=first, meta={"finalizers": ["f"], "labels": {"a": "b"}}
    )
    world.apply_change(WatchType.MODIFIED, recorded)
    (known, _) = world.claims
    assert {"a": "b"} == known.metadata.labels
    assert known.status.allocation is not None
    assert known.is_reserved_for(first.metadata.uid)
    world.add_pod(second)
    assert "" == world.pods[second.metadata.uid].spec.node_name
    world.apply_change(WatchType.MODIFIED, resource_claim("gone"))
    assert 2 == len(world.claims)
