"""VMs ask for other sizes all the time, while the scheduler is killed every five seconds, one
request in ten fails, watches are late and the VM controller stands still at each kill, and for
20 s now and then:
`python -m tests.contract.vm_race SECONDS`.

30 VMs are on 5 nodes, each of which has too little for all that its VMs may ask for. A watch of its
own, without faults, sees every revision, and is read afterwards:

- never is more approved on a node than it has;
- approved are whole units;
- an amount that a VM gives back is granted (written, whether or not that fails) within
  GRANTED_SECONDS of when the scheduler has seen it, while the scheduler lives.

Then the scheduler lives on and all requests fit: what is approved is the same as after a run
without kills and faults.
"""

import asyncio
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from stower.controllers.assembly import build_vm_agents
from stower.controllers.vm_agents import LOAD
from stower.live.controllers import run_controllers
from stower.model.kinds import Pod, VirtualMachine
from stower.sim.vm_holdings import reserved_amounts
from stower.vms.amounts import read_resources
from stower.vms.pods import APPROVED, AUTOSCALING, REQUESTED
from tests.contract.device_race import Watch
from tests.contract.faulty import Faults, faulty
from tests.contract.kills.client import AWAY, Api
from tests.contract.servers import Command, Process

Object = dict[str, Any]
NODES: Final = 5
VMS: Final = 30
NODE_CPU, NODE_GIB = 16, 16
UNIT_CPU, SLOT_MIB = 250, 512
KILL_SECONDS: Final = 5.0
STANDSTILL_SECONDS: Final = 20.0
LAG_SECONDS: Final = 10.0
FAILING: Final = 0.1
CODES: Final = (409, 422, 500)
GRANTED_SECONDS: Final = 1.0
STARTED_SECONDS: Final = 2.0  # of a scheduler, on a machine with two cores for six processes
QUIET_SECONDS: Final = 90.0
NAMESPACE: Final = "default"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
OF_VMS: Final = f"/apis/vm.neon.tech/v1/namespaces/{NAMESPACE}/virtualmachines"
CONFIGURATION: Final = Path(__file__).parents[2] / "examples" / "vms" / "scheduler.yaml"
_decode_pod = msgspec.json.Decoder(Pod).decode
_decode_vm = msgspec.json.Decoder(VirtualMachine).decode


@dataclass
class Report:
    """What was seen. `late_s`: the longest that an amount waited that was given back."""

    approvals: int = 0
    given_back: int = 0
    late_s: float = 0.0
    kills: int = 0
    standstills: int = 0
    failed: int = 0
    fullest: float = 0.0  # the largest share of a node's CPU that was ever approved
    final: dict[str, str] = field(default_factory=dict)  # approved, by VM
    findings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.approvals} approvals, {self.given_back} amounts given back, the latest granted "
            f"after {self.late_s:.2f} s; {self.kills} schedulers killed, {self.standstills} times "
            f"the VM controller stood still, {self.failed} requests failed; at most "
            f"{self.fullest:.0%} of a node's CPU approved"
        )
        yield from self.findings


class Scheduler:
    """The scheduler behind faults. `lives`: from when to when each lives."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._command: Command | None = None
        self.lives: list[tuple[float, float]] = []
        self._began = 0.0

    def start(self) -> None:
        """Starts it, and waits until it says so. It ends where its very first request is refused
        for good, and is started again, as a kubelet does."""
        self._command = None
        while self._command is None:
            with suppress(AssertionError):
                self._command = Command(
                    "run", "--kubeconfig", str(self._kubeconfig), "--config", str(CONFIGURATION),
                    "--no-leader-elect",
                )  # fmt: skip
        self._began = time.monotonic()

    def kill(self) -> None:
        """Kills it, if it lives."""
        if self._command is not None:
            self.lives.append((self._began, time.monotonic()))
            self._command.kill()
            self._command = None


class Shown(NamedTuple):
    """What the scheduler was shown of a VM or its pod."""

    at: float
    vm: str
    is_pod: bool
    requested: str
    approved: str


class Seen:
    """What the scheduler was shown and wrote, by time."""

    def __init__(self) -> None:
        self._rest: dict[str, bytes] = {}
        self.shown: list[Shown] = []
        self.patched: list[tuple[float, str]] = []  # VM

    def delivered(self, path: str, data: bytes) -> None:
        """A watch has delivered some bytes."""
        if not path.endswith(("/pods", "/virtualmachines")):
            return
        *lines, self._rest[path] = (self._rest.get(path, b"") + data).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                meta = json.loads(line)["object"]["metadata"]
                notes = meta.get("annotations") or {}
                vm = (meta.get("labels") or {}).get("vm.neon.tech/name", "")
                if REQUESTED in notes and APPROVED in notes:
                    texts = notes[REQUESTED], notes[APPROVED]
                    shown = Shown(time.monotonic(), vm or meta["name"], bool(vm), *texts)
                    self.shown.append(shown)

    def asked(self, method: str, path: str) -> tuple[int, bytes] | None:
        """The scheduler sends a request."""
        if method == "PATCH" and "/virtualmachines/" in path:
            self.patched.append((time.monotonic(), path.rpartition("/")[2]))
        return None


def _load(share: float) -> str:
    return json.dumps({"low": share, "high": share, "periodSeconds": 600})


def _prepare(api: Api) -> None:
    for i in range(VMS):
        guest = {
            "cpus": {"min": "250m", "max": 5, "use": "500m"},
            "memorySlotSize": f"{SLOT_MIB}Mi",
            "memorySlots": {"min": 1, "max": 10, "use": 1},
        }
        meta = {"name": f"vm-{i}", "labels": {AUTOSCALING: "true"},
                "annotations": {LOAD: _load(0.1)}}  # fmt: skip
        selector = {"kubernetes.io/hostname": f"node-{i % NODES + 1}"}
        spec = {"schedulerName": "autoscale-scheduler", "guest": guest, "restartPolicy": "Always",
                "nodeSelector": selector}  # fmt: skip
        status, answer = api.call("POST", OF_VMS, {"metadata": meta, "spec": spec})
        assert status == 201, answer


class Loads:
    """Changes the load of VMs at random, from a thread of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Each VM has what it asks for at the end, which all nodes have room for."""
        self.stop()
        api, chance = Api(self._kubeconfig), random.Random(7)
        for i in range(VMS):
            set_load(api, f"vm-{i}", chance.uniform(0.05, 0.5))
        api.close()

    def stop(self) -> None:
        """Loads stay as they are."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        api, chance = Api(self._kubeconfig), random.Random(1)
        while not self._ended.wait(chance.uniform(0.05, 0.25)):
            name, share = f"vm-{chance.randrange(VMS)}", chance.choice((0.05, 0.2, 0.5, 1.0, 1.0))
            set_load(api, name, share)
        api.close()


def set_load(api: Api, name: str, share: float) -> None:
    """Writes the load of a VM."""
    body = {"metadata": {"annotations": {LOAD: _load(share)}}}
    status, answer = api.call("PATCH", f"{OF_VMS}/{name}", body, "application/merge-patch+json")
    assert status == 200, answer


class Agents:
    """The VMs' agents, which go on when the VM controller stands still."""

    def __init__(self, kubeconfig: Path) -> None:
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(kubeconfig)))
        self._thread.start()

    async def _run(self, kubeconfig: Path) -> None:
        event = asyncio.Event()
        self._stop = asyncio.get_running_loop(), event
        await run_controllers(
            kubeconfig, "", lambda *_: build_vm_agents(), lambda _: None, lambda: event
        )

    def end(self) -> None:
        """They are gone."""
        assert self._stop is not None
        self._stop[0].call_soon_threadsafe(self._stop[1].set)
        self._thread.join()


class _State:
    """What the API shows at a revision, as the laws of the simulator read it."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.vms: dict[str, VirtualMachine] = {}

    def pods_on(self, node_name: str) -> dict[str, Pod]:
        """The pods of a node, by name."""
        return {k: pod for k, pod in self.pods.items() if pod.spec.node_name == node_name}

    def all(self, view: type[Any]) -> dict[str, Any]:
        """All objects of a kind."""
        return self.vms if view is VirtualMachine else self.pods

    def get(self, view: type[Any], key: str) -> Any:
        """An object, None where there is none."""
        return self.all(view).get(key)


class Judge:
    """Reads all changes in the order of their revisions."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._state = _State()

    def run(self, *watches: Watch) -> None:
        """Checks every revision."""
        changes = sorted(
            (revision, kind, json.dumps(obj))
            for watch in watches
            for revision, _, kind, obj in watch.changes
        )
        for revision, kind, text in changes:
            self._on_change(revision, kind, text)
        self._report.final = {
            vm.metadata.name: str((vm.metadata.annotations or {}).get(APPROVED))
            for vm in self._state.vms.values()
        }

    def _on_change(self, revision: int, kind: str, text: str) -> None:
        obj: Pod | VirtualMachine
        if json.loads(text)["kind"] == "Pod":
            obj = _decode_pod(text)
            store: dict[str, Any] = self._state.pods
        else:
            obj = _decode_vm(text)
            store = self._state.vms
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        before = store.pop(key, None)
        if kind != "DELETED":
            store[key] = obj
        if isinstance(obj, VirtualMachine) and kind != "DELETED":
            self._on_vm(revision, before, obj)

    def _on_vm(self, revision: int, before: VirtualMachine | None, vm: VirtualMachine) -> None:
        text = (vm.metadata.annotations or {}).get(APPROVED)
        was = (before.metadata.annotations or {}).get(APPROVED) if before is not None else None
        if text is None or text == was:
            return
        self._report.approvals += 1
        now = read_resources(text)
        if now.cpu % UNIT_CPU or now.memory % (SLOT_MIB << 20):
            self._report.findings.append(f"{vm.metadata.name}: {text} is not in whole units")
        for number in range(NODES):
            name = f"node-{number + 1}"
            cpu, memory = reserved_amounts(self._state, name)  # type: ignore[arg-type]
            self._report.fullest = max(self._report.fullest, cpu / (NODE_CPU * 1000))
            if cpu > NODE_CPU * 1000 or memory > NODE_GIB << 30:
                self._report.findings.append(
                    f"at revision {revision}, {cpu}m CPU and {memory} bytes are approved on {name}"
                )


def judge_given_back(report: Report, seen: Seen, lives: list[tuple[float, float]]) -> None:
    """Looks at how long each amount waited that was given back: VM and pod request the same, less
    than is approved on the VM, as far as the scheduler was shown that."""
    for began, died in lives:
        waits: dict[str, float] = {}  # since when a VM waits
        of_pods: dict[str, str] = {}  # what they request
        of_vms: dict[str, Shown] = {}
        events: list[tuple[float, int, str, Shown | None]] = [
            (one.at, 1, one.vm, one) for one in seen.shown if began <= one.at <= died
        ]
        events += [(at, 0, name, None) for at, name in seen.patched if began <= at <= died]
        for at, _, name, shown in sorted(events, key=lambda event: event[:3]):
            if shown is None:
                _end_wait(report, waits, name, at, began)
                continue
            if shown.is_pod:
                of_pods[name] = shown.requested
            else:
                of_vms[name] = shown
            vm = of_vms.get(name)
            is_same = vm is not None and of_pods.get(name) == vm.requested
            if vm is not None and is_same and _gives_back(vm):
                waits.setdefault(name, at)
            else:
                waits.pop(name, None)
        for name in [*waits]:
            _end_wait(report, waits, name, died, began)


def _gives_back(vm: Shown) -> bool:
    return read_resources(vm.approved).exceeds(read_resources(vm.requested))


def _end_wait(report: Report, waits: dict[str, float], name: str, at: float, began: float) -> None:
    since = waits.pop(name, None)
    if since is None:
        return
    report.given_back += 1
    took = at - max(since, began + STARTED_SECONDS)
    report.late_s = max(report.late_s, took)
    if took > GRANTED_SECONDS:
        text = f"{name} waited {took:.2f} s until what it gave back was granted"
        report.findings.append(f"{text}, from {since - began:.2f} s on of a scheduler's life")


class _Standstill:
    """The process with the VM controller stands still around each kill, so that pods do not show
    what was approved last; and for STANDSTILL_SECONDS now and then."""

    def __init__(self, actors: Command, chance: random.Random, report: Report) -> None:
        self._actors = actors
        self._chance = chance
        self._report = report
        self._until = 0.0  # of the long one
        self._next = time.monotonic() + chance.uniform(8, 15)

    def begin(self) -> None:
        """It stands still."""
        self._actors.process.send_signal(signal.SIGSTOP)
        now = time.monotonic()
        if now >= max(self._next, self._until):
            self._report.standstills += 1
            self._until = now + STANDSTILL_SECONDS
            self._next = self._until + self._chance.uniform(5, 30)

    def end(self, for_good: bool = False) -> None:
        """It goes on, unless the long one lasts."""
        if for_good or time.monotonic() >= self._until:
            self._actors.process.send_signal(signal.SIGCONT)


def run(folder: Path, seconds: float, tell: Callable[[str], None], is_calm: bool = False) -> Report:
    """Runs it for so long, without any fault where it `is_calm`; returns what was seen."""
    report, seen, state = Report(), Seen(), folder / "state"
    kubeconfig, proxied, ended = state / "kubeconfig", folder / "proxied", threading.Event()
    chance = random.Random(3)
    faults = Faults(delivered=seen.delivered, answers=seen.asked)
    with ExitStack() as stack:
        server = Process(state)
        stack.callback(server.stop)
        stack.enter_context(faulty(kubeconfig, proxied, faults))
        api = Api(kubeconfig)
        stack.callback(api.close)
        actors = Command(
            "actors", "--kubeconfig", str(kubeconfig), "--nodes", str(NODES),
            "--node-cpu", str(NODE_CPU), "--node-memory", f"{NODE_GIB}Gi",
        )  # fmt: skip
        stack.callback(actors.stop)
        agents = Agents(kubeconfig)
        stack.callback(agents.end)
        watches = [Watch(kubeconfig, path, ended) for path in (PODS, OF_VMS)]
        stack.callback(ended.set)
        _prepare(api)
        scheduler = Scheduler(proxied)
        stack.callback(scheduler.kill)
        scheduler.start()
        _await_running(api)
        loads = Loads(kubeconfig)
        stack.callback(loads.stop)
        if not is_calm:
            faults.share, faults.codes, faults.lag_s = FAILING, CODES, LAG_SECONDS
        standstill = _Standstill(actors, chance, report)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pause_s = chance.uniform(0.1, 1.0)
            time.sleep(KILL_SECONDS - pause_s)
            if is_calm:
                continue
            standstill.begin()
            time.sleep(pause_s)
            scheduler.kill()
            report.kills += 1
            scheduler.start()
            time.sleep(2 * pause_s)
            standstill.end()
            tell(f"{report.kills} schedulers killed, {report.standstills} standstills")
        standstill.end(for_good=True)
        loads.end()
        faults.share = faults.lag_s = 0.0
        _await_granted(api, report)
        scheduler.kill()
        ended.set()
        for watch in watches:
            watch.thread.join()
    report.failed = sum(faults.met.values())
    Judge(report).run(*watches)
    judge_given_back(report, seen, scheduler.lives)
    return report


def _list_vms(api: Api) -> list[Object]:
    try:
        answer = api.call("GET", OF_VMS)[1]
    except AWAY:  # the connection was not used for minutes
        answer = api.call("GET", OF_VMS)[1]
    items: list[Object] = answer["items"]
    return items


def _await_running(api: Api) -> None:
    until = time.monotonic() + 60
    while any((vm.get("status") or {}).get("phase") != "Running" for vm in _list_vms(api)):
        assert time.monotonic() < until, "the VMs do not run"
        time.sleep(0.2)


def _await_granted(api: Api, report: Report) -> None:
    """Waits until all VMs have what they ask for, and ask for what their load is."""
    until, same, before = time.monotonic() + QUIET_SECONDS, 0, None
    while same < 8:  # the agents look every 5 s
        notes = [vm["metadata"]["annotations"] for vm in _list_vms(api)]
        waiting = [n for n in notes if n.get(APPROVED) != n.get(REQUESTED)]
        same = same + 1 if not waiting and notes == before else 0
        before = notes
        if time.monotonic() > until:
            report.findings.append(f"{len(waiting)} VMs have not what they ask for")
            return
        time.sleep(1)


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="stower-vms-") as folder:
        seconds = float(arguments[0])

        def tell(text: str) -> None:
            print(text, file=sys.stderr)

        report = run(Path(folder) / "killed", seconds, tell)
        calm = run(Path(folder) / "calm", 1, tell, is_calm=True)
    findings = compare(report, calm)
    print("\n".join((*report.lines(), *findings)))
    return int(bool(findings or report.findings))


def compare(report: Report, calm: Report) -> list[str]:
    """Returns what is approved otherwise than after a run without kills and faults."""
    return [
        f"{name}: {approved} is approved, {calm.final.get(name)} without kills and faults"
        for name, approved in sorted(report.final.items())
        if approved != calm.final.get(name)
    ] + [f"without kills: {text}" for text in calm.findings]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
