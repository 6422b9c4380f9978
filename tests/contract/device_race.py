"""Two schedulers that know nothing of each other share devices, and are killed in turns:
`python -m tests.contract.device_race SECONDS`.

Each has a profile and a Lease of its own. Four creators fill the devices with pods of both, each
with a claim for a part of a shared device; then each pod that comes takes the place of another, so
that each part that becomes free is wanted by both at the same time. Every three seconds one of the
schedulers is killed, and started again. Watches of all claims and pods are kept, and read
afterwards in the order of revisions: no device may ever be bound beyond its capacity; what unbound
claims have beyond it is given back within a second, while the scheduler of the pod lives; and at
the end all is bound that fits. The second holds where nothing else uses the machine: beside other
tests, of which nobody knows how long they keep the cores, `run` is given more.
"""

import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.contract.kills.client import AWAY, Api
from tests.contract.servers import Command, Process

Object = dict[str, Any]
NODES: Final = 5
DEVICES: Final = 10  # of each node
PARTS: Final = 4  # of a device
PODS: Final = 1_000  # in two minutes, of all creators
CREATORS: Final = 4
WAITING: Final = 40  # pods that are there beyond what fits
KILL_SECONDS: Final = 3.0
GIVEN_BACK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 25.0
DRIVER: Final = "race.example.com"
NAMESPACE: Final = "default"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
DRA: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{DRA}/namespaces/{NAMESPACE}/resourceclaims"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass
class Report:
    """What was seen."""

    created: int = 0
    bound: int = 0
    overcommits: int = 0
    longest_s: float = 0.0
    kills: int = 0
    findings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.created} pods made, {self.bound} bound; {self.kills} schedulers killed; "
            f"{self.overcommits} overcommits of unbound claims, the longest {self.longest_s:.2f} s"
        )
        yield from self.findings


class Watch:
    """All changes of a kind, from the first on, with the times at which they were seen."""

    def __init__(self, kubeconfig: Path, path: str, ended: threading.Event) -> None:
        self.changes: list[tuple[int, float, str, Object]] = []
        self._api = Api(kubeconfig)
        self._path = path
        self._ended = ended
        _, listed = self._api.call("GET", path)
        self._version = listed["metadata"]["resourceVersion"]
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            query = f"watch=1&resourceVersion={self._version}&timeoutSeconds=5"
            try:
                response = self._api.send("GET", f"{self._path}?{query}")
                while line := response.readline():
                    event = json.loads(line)
                    obj = event["object"]
                    self._version = obj["metadata"]["resourceVersion"]
                    self.changes.append((int(self._version), time.monotonic(), event["type"], obj))
            except AWAY:
                self._api.close()
        self._api.close()


class Shard:
    """One of the schedulers. `dead`: from when to when it did not lead."""

    def __init__(self, kubeconfig: Path, folder: Path, number: int) -> None:
        self.name = f"shard-{number}"
        path = folder / f"{self.name}.yaml"
        path.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            f"leaderElection: {{resourceName: {self.name}, leaseDuration: 2s, "
            "renewDeadline: 1500ms, retryPeriod: 400ms}\n"
            f"profiles: [{{schedulerName: {self.name}}}]\n"
        )
        self._arguments = (
            "run", "--kubeconfig", str(kubeconfig), "--config", str(path), "--seed", str(number),
        )  # fmt: skip
        self._api = Api(kubeconfig)
        self.dead: list[tuple[float, float]] = []
        self._command: Command | None = None
        self.start(time.monotonic())

    def start(self, dead_since: float) -> None:
        """Starts it, and waits until it leads."""
        before = self._holder()
        self._command = Command(*self._arguments)
        while self._holder() in ("", before):
            time.sleep(0.02)
        self.dead.append((dead_since, time.monotonic() + 0.5))  # until it has read its lists

    def _holder(self) -> str:
        status, lease = self._api.call("GET", f"{LEASES}/{self.name}")
        return str(lease["spec"].get("holderIdentity") or "") if status == 200 else ""

    def restart(self) -> None:
        """Kills it, and starts it again."""
        assert self._command is not None
        at = time.monotonic()
        self._command.kill()
        self.start(at)

    def stop(self) -> None:
        """Ends it."""
        assert self._command is not None
        self._command.stop()
        self._api.close()


def _prepare(api: Api) -> None:
    def create(path: str, body: Object) -> None:
        status, answer = api.call("POST", path, body)
        assert status == 201, answer

    expression = f'device.driver == "{DRIVER}"'
    create(f"{DRA}/deviceclasses", {
        "metadata": {"name": "race"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}
    })  # fmt: skip
    for number in range(NODES):
        name = f"n{number}"
        room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
        status = {"capacity": room, "allocatable": room,
                  "conditions": [{"type": "Ready", "status": "True"}]}  # fmt: skip
        create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        devices = [
            {"name": f"d{i}", "allowMultipleAllocations": True,
             "capacity": {"parts": {"value": str(PARTS)}}}
            for i in range(DEVICES)
        ]  # fmt: skip
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        create(f"{DRA}/resourceslices", {
            "metadata": {"name": f"slice-{name}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
        })  # fmt: skip


class Creators:
    """Makes pods, and deletes bound ones while more are there than fit."""

    def __init__(self, kubeconfig: Path, rate: float, report: Report) -> None:
        self._kubeconfig = kubeconfig
        self._pause_s = CREATORS / rate
        self._report = report
        self._lock = threading.Lock()
        self._there: list[str] = []
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(CREATORS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """No more are made."""
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, creator: int) -> None:
        chance, api, number = random.Random(creator), Api(self._kubeconfig), 0
        while not self.ended.is_set():
            name = f"p{creator}-{number}"
            number += 1
            self._create(api, name, f"shard-{chance.randrange(2)}", chance.choice("112"))
            with self._lock:
                self._there.append(name)
                self._report.created += 1
                is_full = len(self._there) > NODES * DEVICES * PARTS * 3 // 4 + WAITING
                at = chance.randrange(len(self._there))
                oldest = self._there.pop(at) if is_full else ""
            if oldest:
                api.call("DELETE", f"{CORE}/pods/{oldest}?gracePeriodSeconds=0")
                self.ended.wait(self._pause_s * chance.uniform(0.5, 1.5))
        api.close()

    def _create(self, api: Api, name: str, scheduler: str, parts: str) -> None:
        exactly = {"deviceClassName": "race", "capacity": {"requests": {"parts": parts}}}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
        pod = {
            "metadata": {"name": name},
            "spec": {"schedulerName": scheduler, "containers": [container],
                     "resourceClaims": [{"name": "d", "resourceClaimName": name}]},
        }  # fmt: skip
        status, made = api.call("POST", f"{CORE}/pods", pod)
        if status != 201:
            self._report.findings.append(f"pod {name} is refused: {made}")
            return
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"],
                 "controller": True}  # fmt: skip
        asked = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        claim = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": asked}
        api.call("POST", CLAIMS, claim)


class Judge:
    """Reads all changes in the order of their revisions."""

    def __init__(self, report: Report, shards: list[Shard], given_back_s: float) -> None:
        self._report = report
        self._given_back_s = given_back_s
        self._shards = {shard.name: shard for shard in shards}
        self._claims: dict[str, list[Object]] = {}  # results, by name
        self._nodes: dict[str, str] = {}  # of pods
        self._scheduler: dict[str, str] = {}  # of pods
        self._asked: dict[str, int] = {}
        self._since: dict[str, float] = {}  # by device: overcommitted since
        self._guilty: dict[str, set[str]] = {}  # by device: schedulers of its unbound users

    def run(self, *watches: Watch) -> None:
        """Checks everything."""
        changes = sorted(change for watch in watches for change in self._plain(watch))
        for _, at, kind, is_pod, text in changes:
            obj = json.loads(text)
            if is_pod:
                self._on_pod(kind, obj)
            else:
                self._on_claim(kind, obj)
            self._look(at)
        self._at_the_end()

    @staticmethod
    def _plain(watch: Watch) -> Iterator[tuple[int, float, str, bool, str]]:
        for revision, at, kind, obj in watch.changes:
            yield revision, at, kind, "containers" in obj["spec"], json.dumps(obj)

    def _on_pod(self, kind: str, pod: Object) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        self._scheduler[name] = pod["spec"]["schedulerName"]
        if kind == "DELETED":
            self._nodes.pop(name, None)
            return
        if node and not self._nodes.get(name):
            self._report.bound += 1
            if not self._claims.get(name):
                self._report.findings.append(f"pod {name} is bound without a device")
        self._nodes[name] = node

    def _on_claim(self, kind: str, claim: Object) -> None:
        name = claim["metadata"]["name"]
        requests = claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]
        self._asked[name] = int(requests["parts"])
        allocation = (claim.get("status") or {}).get("allocation")
        if kind == "DELETED" or allocation is None:
            if self._nodes.get(name):
                self._report.findings.append(f"bound pod {name} has lost its device")
            self._claims.pop(name, None)
        else:
            self._claims[name] = allocation["devices"]["results"]

    def _taken(self, bound_only: bool) -> Counter[str]:
        taken: Counter[str] = Counter()
        for name, results in self._claims.items():
            if not bound_only or self._nodes.get(name):
                for result in results:
                    key = f"{result['pool']}/{result['device']}"
                    taken[key] += int(result["consumedCapacity"]["parts"])
        return taken

    def _look(self, at: float) -> None:
        for device, parts in self._taken(bound_only=True).items():
            if parts > PARTS:
                self._report.findings.append(f"{device} is bound {parts} times, has {PARTS}")
        over = {device for device, parts in self._taken(bound_only=False).items() if parts > PARTS}
        for device in over:
            self._since.setdefault(device, at)
            self._guilty.setdefault(device, set()).update(
                self._scheduler.get(name, "")
                for name, results in self._claims.items()
                if not self._nodes.get(name)
                and any(f"{r['pool']}/{r['device']}" == device for r in results)
            )
        for device in [device for device in self._since if device not in over]:
            self._end(device, at)

    def _end(self, device: str, at: float) -> None:
        since, names = self._since.pop(device), self._guilty.pop(device)
        dead = [span for name in names if name for span in self._shards[name].dead]
        lasted = at - since
        alive = lasted - sum(max(0.0, min(at, b) - max(since, a)) for a, b in dead)
        self._report.overcommits += 1
        self._report.longest_s = max(self._report.longest_s, alive)
        if alive > self._given_back_s:
            self._report.findings.append(f"{device} was overcommitted for {alive:.2f} s")

    def _at_the_end(self) -> None:
        for device in self._since:
            self._report.findings.append(f"{device} stays overcommitted")
        taken = self._taken(bound_only=False)
        devices = [f"n{n}/d{i}" for n in range(NODES) for i in range(DEVICES)]
        most = max(PARTS - taken[device] for device in devices)
        for name, node in self._nodes.items():
            if not node and self._asked.get(name, PARTS) <= most:
                self._report.findings.append(f"pod {name} waits, though a device has {most} parts")


def run(
    folder: Path, seconds: float, tell: Callable[[str], None],
    given_back_s: float = GIVEN_BACK_SECONDS,
) -> Report:  # fmt: skip
    """Runs it for so long; returns what was seen."""
    report, state = Report(), folder / "state"
    kubeconfig, ended = state / "kubeconfig", threading.Event()
    with ExitStack() as stack:
        server = Process(state)
        stack.callback(server.stop)
        api = Api(kubeconfig)
        stack.callback(api.close)
        _prepare(api)
        actors = Command("actors", "--kubeconfig", str(kubeconfig))
        stack.callback(actors.stop)
        shards = [Shard(kubeconfig, folder, number) for number in range(2)]
        for shard in shards:
            stack.callback(shard.stop)
        watches = [Watch(kubeconfig, path, ended) for path in (f"{CORE}/pods", CLAIMS)]
        creators = Creators(kubeconfig, PODS / 120, report)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(KILL_SECONDS)
            shards[report.kills % 2].restart()
            report.kills += 1
            tell(f"{report.created} pods made, {report.kills} schedulers killed")
        creators.end()
        time.sleep(QUIET_SECONDS)
        ended.set()
        for watch in watches:
            watch.thread.join()
        Judge(report, shards, given_back_s).run(*watches)
    return report


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="stower-race-") as folder:
        seconds = float(arguments[0])
        report = run(Path(folder), seconds, lambda text: print(text, file=sys.stderr))
    print("\n".join(report.lines()))
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
