"""Drivers on a whole cluster: the examples, killed and started again at every step."""

import json
import os
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.driver import Driver
from stower.live.driver import serve
from tests.contract.servers import Client, Program, until
from tests.contract.test_up import PODS, opened, stower

Object = dict[str, Any]
DRIVERS = Path(__file__).parents[2] / "examples" / "drivers"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TALKS = "/apis/stower.dev/v1/namespaces/default/podschedulings"
COLLECTIONS = {
    "ResourceClass": "/apis/stower.dev/v1/resourceclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "ReplicaSet": "/apis/apps/v1/namespaces/default/replicasets",
    "Pod": PODS,
}
FABRIC = "fabric.example.com"
SECONDS = 60.0


def eventually(good: Callable[[], bool], what: str) -> None:
    """Look until it is so; for what no watch tells."""
    gate, end_s = threading.Event(), time.monotonic() + SECONDS
    while not good():
        assert time.monotonic() < end_s, what
        gate.wait(0.01)


class Cluster:
    """`stower up`, and drivers beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        arguments = ("--state", str(self.state), "--cluster", str(DRIVERS / "cluster.yaml"))
        code, _, error = stower("up", "--port", "0", "--detach", *arguments)
        assert 0 == code, error
        self.client: Client = opened(self.state)
        self.running: dict[str, tuple[Program, tuple[str, ...]]] = {}

    def driver(self, name: str, *arguments: str) -> Program:
        """An example driver as a process of its own."""
        program = Program(
            str(DRIVERS / f"{name}.py"), *arguments,
            "--kubeconfig", str(self.state / "kubeconfig"),
            "--ledger", str(self.folder / f"{name}.ledger"),
        )  # fmt: skip
        self.running[name] = program, arguments
        return program

    def kill(self, victim: str) -> None:
        """End it at once, and start it again: the supervisor does so with the scheduler."""
        if victim == "scheduler":
            eventually(lambda: self._scheduler() > 0, "a scheduler that runs")
            os.kill(self._scheduler(), signal.SIGKILL)
            return
        program, arguments = self.running[victim]
        program.kill()
        self.driver(victim, *arguments)

    def _scheduler(self) -> int:
        """Its process; 0 while it is about to be started again."""
        pid = int(json.loads((self.state / "up.json").read_text())["processes"]["scheduler"])
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            return 0
        return pid if str(self.state / "kubeconfig") in words else 0

    def apply(self, name: str, *kinds: str) -> None:
        """The manifest of an example, or some of it."""
        for document in yaml.safe_load_all((DRIVERS / f"{name}.yaml").read_text()):
            if not kinds or document["kind"] in kinds:
                self.create(document)

    def create(self, document: Object) -> None:
        status, answer = self.client.call("POST", COLLECTIONS[document["kind"]], document)
        assert status in (201, 409), answer

    def wait(self, path: str, good: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
        return until(self.client, path, good, SECONDS)

    def entries(self, name: str) -> dict[str, Object]:
        """What the ledger has by claim uid, whoever holds it."""
        found: dict[str, Object] = {}
        for line in (self.folder / f"{name}.ledger").read_text().splitlines()[1:]:
            change = json.loads(line)
            found.update((entry["uid"], entry) for entry in change.get("put", ()))
            for uid in change.get("drop", ()):
                del found[uid]
        return found

    def attached(self) -> dict[str, list[str]]:
        """What the fabric has attached, by claim uid: one accelerator each."""
        found = json.loads((self.folder / "fabric.json").read_text())
        return {slot.removesuffix("/0"): where for slot, where in found.get("attached", {}).items()}

    def close(self) -> None:
        for program, _ in self.running.values():
            if program.process.returncode is None:
                program.kill()
        self.client.close()
        stower("down", "--state", str(self.state))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("drivers"))
    shutil.copy(DRIVERS / "fabric.json", made.folder)
    try:
        made.apply("fabric", "ResourceClass", "DeviceClass", "ResourceClaimTemplate")
        made.driver("fabric", str(made.folder / "fabric.json"), "--attach-seconds", "0.2")
        yield made
    finally:
        made.close()


def is_running(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName"))


def running(pods: dict[str, Object], prefix: str) -> list[str]:
    return sorted(name for name, pod in pods.items() if name.startswith(prefix) and is_running(pod))


def claims_of(claims: dict[str, Object], pod: str) -> list[Object]:
    return [
        claim for claim in claims.values() if claim["metadata"]["ownerReferences"][0]["name"] == pod
    ]


def devices(claim: Object) -> list[tuple[str, str]]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [(result["pool"], result["device"]) for result in results]


@pytest.mark.behaviour("S0.1", "S0.18", "S0.20", "S0.27", "S0.28", "S0.34", "S0.35")
def test_the_fabric_attaches_where_pods_go_and_takes_back_what_they_leave(
    cluster: Cluster,
) -> None:
    cluster.apply("fabric", "Pod")
    pods = cluster.wait(PODS, lambda o: len(running(o, "train-")) == 2)
    claims = cluster.wait(CLAIMS, lambda o: len(o) == 3)
    for name in ("train-one", "train-two"):
        rack = pods[name]["spec"]["nodeName"].partition("-")[0]
        own = claims_of(claims, name)
        assert {rack} == {pool for claim in own for pool, _ in devices(claim)}
        uids = [c["uid"] for claim in own for c in claim["status"]["reservedFor"]]
        assert [pods[name]["metadata"]["uid"]] * len(own) == uids
    given = {claim["metadata"]["uid"]: devices(claim) for claim in claims.values()}
    assert given == {uid: [(rack, name)] for uid, (rack, name) in cluster.attached().items()}
    assert len({one for some in given.values() for one in some}) == 3
    assert set(given) == set(cluster.entries("fabric"))
    cluster.wait(TALKS, lambda o: not o)
    for name in ("train-one", "train-two"):
        cluster.client.call("DELETE", f"{PODS}/{name}")
    cluster.wait(CLAIMS, lambda o: not o)
    assert ({}, {}) == (cluster.attached(), cluster.entries("fabric"))


STEPS = ("scheduling", "selected", "finalizer", "ledger", "allocated", "bound")


def reach(cluster: Cluster, pod: str, step: str) -> None:
    """Wait until the negotiation has come so far."""
    if step == "scheduling":
        cluster.wait(TALKS, lambda o: pod in o)
    elif step == "selected":
        cluster.wait(TALKS, lambda o: bool(o.get(pod, {}).get("spec", {}).get("selectedNode")))
    elif step == "finalizer":
        cluster.wait(
            CLAIMS,
            lambda o: any(claim["metadata"].get("finalizers") for claim in claims_of(o, pod)),
        )
    elif step == "ledger":
        eventually(lambda: bool(cluster.entries("fabric")), "an entry in the ledger")
    elif step == "allocated":
        cluster.wait(CLAIMS, lambda o: any(map(devices, claims_of(o, pod))))
    else:
        cluster.wait(PODS, lambda o: bool(o[pod]["spec"].get("nodeName")))


def kill_at(cluster: Cluster, step: str, victims: tuple[str, ...]) -> None:
    """A pod with two claims runs, with two devices, whoever is killed when; and leaves nothing."""
    name = f"p-{step}-{'-'.join(victims)}"
    claims = ("first", "second")
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [
            {"name": claim, "resourceClaimTemplateName": "accelerator"} for claim in claims
        ],
    }
    cluster.create({"kind": "Pod", "metadata": {"name": name}, "spec": spec})
    reach(cluster, name, step)
    for victim in victims:
        cluster.kill(victim)
    pods = cluster.wait(PODS, lambda o: is_running(o[name]))
    found = cluster.wait(CLAIMS, lambda o: len(claims_of(o, name)) == 2)
    given = {claim["metadata"]["uid"]: devices(claim) for claim in claims_of(found, name)}
    rack = pods[name]["spec"]["nodeName"].partition("-")[0]
    assert [(rack, "acc-0"), (rack, "acc-1")] == sorted(one for d in given.values() for one in d)
    assert given == {uid: [(where, one)] for uid, (where, one) in cluster.attached().items()}
    kept = {
        uid: [(r["pool"], r["device"]) for r in entry["allocation"]["devices"]["results"]]
        for uid, entry in cluster.entries("fabric").items()
    }
    assert given == kept
    cluster.wait(TALKS, lambda o: name not in o)
    cluster.client.call("DELETE", f"{PODS}/{name}")
    cluster.wait(CLAIMS, lambda o: not claims_of(o, name))
    assert ({}, {}) == (cluster.attached(), cluster.entries("fabric"))


@pytest.mark.behaviour("S0.19", "S0.33")
@pytest.mark.parametrize(("step", "victim"), [("ledger", "fabric"), ("selected", "scheduler")])
def test_who_is_killed_goes_on_where_it_was(cluster: Cluster, step: str, victim: str) -> None:
    kill_at(cluster, step, (victim,))


@pytest.mark.more
@pytest.mark.behaviour("S0.19", "S0.33")
@pytest.mark.parametrize("victims", [("fabric",), ("scheduler",), ("fabric", "scheduler")])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_is_killed_at_whichever_step_goes_on(
    cluster: Cluster, step: str, victims: tuple[str, ...]
) -> None:
    kill_at(cluster, step, victims)


@pytest.mark.behaviour("S0.19", "S0.34")
def test_licences_run_anywhere_and_pairs_beside_each_other(cluster: Cluster) -> None:
    licences = cluster.driver("licences", "--metrics-port", "0")
    cluster.driver("pairs", str(DRIVERS / "pairs.json"))
    cluster.apply("licences")
    cluster.apply("pairs")
    pods = cluster.wait(
        PODS, lambda o: len(running(o, "cad-")) == 2 and len(running(o, "pair-")) == 1
    )
    lucky = running(pods, "pair-")[0]
    assert "b-1" == pods[lucky]["spec"]["nodeName"]
    claims = cluster.wait(CLAIMS, lambda o: len(o) == 7)
    assert [("b-1/left", "gpu-0"), ("b-1/left", "nic-0")] == sorted(
        one for claim in claims_of(claims, lucky) for one in devices(claim)
    )
    waiting = next(name for name in pods if name.startswith("pair-") and name != lucky)
    assert [] == [one for claim in claims_of(claims, waiting) for one in devices(claim)], "neither"
    assert 2 == len(cluster.entries("pairs"))
    seats = [one for name in running(pods, "cad-") for c in claims_of(claims, name)
             for one in devices(c)]  # fmt: skip
    assert {("cad.licences.example.com", f"seat-{number}") for number in range(2)} == set(seats)
    url = licences.output.partition("metrics are on ")[2].partition(". Stop")[0]
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    assert "stower_driver_ledger_entries 2.0\n" in text
    assert "stower_driver_pending_claims 1.0\n" in text
    assert 'stower_driver_operations_total{operation="allocations"} 2.0\n' in text
    assert 'stower_driver_call_duration_seconds_count{method="allocate"}' in text
    gone = running(pods, "cad-")[0]
    cluster.client.call("DELETE", f"{PODS}/{gone}")
    cluster.wait(PODS, lambda o: gone not in o and len(running(o, "cad-")) == 2)
    for name in ("cad", "pair"):
        cluster.client.call("DELETE", f"{COLLECTIONS['ReplicaSet']}/{name}")
    cluster.wait(CLAIMS, lambda o: not o)
    assert ({}, {}) == (cluster.entries("licences"), cluster.entries("pairs"))
    assert 0 == licences.stop(), "SIGTERM ends it cleanly"


def test_what_cannot_start_says_why_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig, other = cluster.state / "kubeconfig", tmp_path / "other"
    shutil.copy(DRIVERS / "fabric.json", other)
    cases: list[tuple[Object, str]] = [
        ({"kubeconfig": tmp_path / "none"}, "no such file"),
        ({"context": "nowhere"}, "no context 'nowhere'"),
        ({"ledger": cluster.folder / "fabric.ledger"}, "only one process can use a ledger"),
        ({"ledger": other}, "the file is not a ledger"),
        ({"ledger": tmp_path}, "Is a directory"),
        (
            {"metrics_port": int(cluster.client.port)},
            f"{cluster.client.port}: Address already in use",
        ),
    ]
    driver = Driver()
    driver.name = FABRIC
    for arguments, want in cases:
        whole = {"ledger": tmp_path / "ledger", "kubeconfig": kubeconfig, **arguments}
        with pytest.raises(SystemExit) as raised:
            serve(driver, **whole)
        text = str(raised.value)
        assert (True, False) == (want in text, "\n" in text), text
        assert text.startswith(f"{FABRIC}: ")
    with pytest.raises(SystemExit, match=r"Driver: Driver.name is empty: want the driverName"):
        serve(Driver(), ledger=tmp_path / "ledger")
