"""A long run against a cluster of its own where everything fails that may: `make long ROWS=soak`.

Pods come and go all the time; the leading scheduler is killed again and again while another stands
by; both see the API through a way that cuts their watches and fails requests. Whoever makes the
pods watches them on a way without faults, and knows of each: when it was bound, whether that ever
changed, and whether a node ever held more than it has.
"""

import asyncio
import contextlib
import json
import logging
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stower.bench.server import NAMESPACE, Reply, Target
from stower.bench.watch_client import PodWatch, WatchedPod, watch_pods
from tests.contract.faulty import REFUSAL, Faults, faulty
from tests.contract.servers import Command, audited, resident_mib
from tests.contract.test_status_reports import get, url_of

NODES: Final = 200
NODE_CPU: Final = 8
PODS_PER_NODE: Final = 32  # of 250m each
LEASE: Final = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s",
                "--leader-elect-retry-period=500ms", "--leader-elect=true")  # fmt: skip
CONNECTIONS: Final = 8
SAMPLE_SECONDS: Final = 5.0
SETTLE_SECONDS_MAX: Final = 90.0
# From when on the server has all the history that it keeps.
FILLED_SECONDS: Final = 600.0
GROWTH_MAX: Final = 1.15  # from the second third of a run to the last


@dataclass(frozen=True)
class Plan:
    """What is done for how long."""

    seconds: float
    pods_per_s: int = 200
    life_s: float = 15.0
    kill_every_s: float = 60.0
    cut_s: float = 10.0
    fault_share: float = 0.05


@dataclass
class Report:
    """What came of it. Sizes in MiB, times in seconds; `rss`: (seconds since the start, MiB)."""

    made: int = 0
    bound: int = 0
    deleted: int = 0
    kills: int = 0
    ended: int = 0  # schedulers that ended by themselves: they lost their Lease
    bindings: int = 0  # pods whose binding the server carried out
    moved: list[str] = field(default_factory=list)  # bound twice
    lost: list[str] = field(default_factory=list)  # never bound
    over: list[str] = field(default_factory=list)  # nodes that held too many
    waits_s: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    rss: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def wait_s(self, share: float) -> float:
        """How long a pod waited for its node, at this share of all."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing twice, no node overfull, memory flat."""
        wrong = [*self.lost, *self.moved, *self.over]
        all_bound = self.made == self.bound == self.bindings
        flat = all(
            self.growth(name) < GROWTH_MAX
            for name, sizes in self.rss.items()
            if name != "server" or sizes[-1][0] > FILLED_SECONDS
        )
        return not wrong and all_bound and flat

    def growth(self, name: str) -> float:
        """Most memory in the last third of the run against that in the second."""
        sizes = [size for _, size in self.rss[name]]
        third = len(sizes) // 3
        return max(sizes[2 * third :]) / max(sizes[third : 2 * third])

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.made:,} pods made, {self.bound:,} bound, {self.deleted:,} deleted"
        yield f"{self.kills} leaders killed, {self.ended} schedulers ended by themselves"
        yield f"faults: {dict(sorted(self.faults.items()))}"
        yield f"lost {len(self.lost)}, bound twice {len(self.moved)}, overfull {len(self.over)}"
        waits = " ".join(f"p{int(s * 100)} {self.wait_s(s):.2f} s" for s in (0.5, 0.9, 0.99, 1))
        yield f"from creation to binding: {waits}"
        for name, sizes in sorted(self.rss.items()):
            first, last = sizes[len(sizes) // 3][1], sizes[-1][1]
            yield f"memory of {name}: {first:.0f} MiB after a third, {last:.0f} MiB at the end"


class _Pods(PodWatch):
    """What a watch of all pods says of each."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.made_at: dict[str, float] = {}
        self.node_of: dict[str, str] = {}
        self.held: Counter[str] = Counter()
        self._report = report

    def on_pod(self, kind: str, pod: WatchedPod) -> None:
        """See PodWatch."""
        name, node = pod.metadata.name, pod.spec.nodeName
        known = self.node_of.get(name)
        if kind == "DELETED":
            self._report.deleted += 1
            self.made_at.pop(name, None)
            if known:
                self.held[self.node_of.pop(name)] -= 1
        elif node and not known:
            self.node_of[name] = node
            self.held[node] += 1
            self._report.bound += 1
            self._report.waits_s.append(time.monotonic() - self.made_at[name])
            if self.held[node] > PODS_PER_NODE:
                self._report.over.append(f"{node}: {self.held[node]} pods, the last {name}")
        elif node and node != known:
            self._report.moved.append(f"{name}: {known}, then {node}")


def _body(name: str) -> bytes:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}
    metadata = {"name": name, "labels": {"app": f"app-{name[-1]}"}}
    return json.dumps({"metadata": metadata, "spec": {"containers": [container]}}).encode()


def _way(kubeconfig: Path, proxied: Path, share: float, cut_s: float, pipe: Any) -> None:
    """In a process of its own: a way with faults, until the pipe says enough."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that are killed
    faults = Faults(share=share, cut_s=cut_s, seed=1)
    with faulty(kubeconfig, proxied, faults):
        pipe.send("ready")
        pipe.recv()
        twice = sorted(path for path, count in faults.bound.items() if count > 1)
        pipe.send((faults.met, twice, len(faults.bound)))


class _Replicas:
    """Two schedulers, one of which leads; who ends is followed by a new one."""

    def __init__(self, kubeconfig: Path, report: Report) -> None:
        self._kubeconfig = kubeconfig
        self._report = report
        self.running: list[Command] = []

    def fill(self) -> None:
        for command in list(self.running):
            if command.process.poll() is not None:
                self._report.ended += 1
                self.running.remove(command)
                command.stop()
        while len(self.running) < 2:
            arguments = ("--kubeconfig", str(self._kubeconfig), "--token-file", self._token)
            try:
                self.running.append(Command("run", *arguments, "--port", "0", *LEASE))
            except AssertionError as error:
                if REFUSAL not in str(error):
                    raise
                self._report.ended += 1  # its first request was refused: it is started again
                return

    @property
    def _token(self) -> str:
        return str(self._kubeconfig.with_name("token"))

    def _shown(self) -> str:
        return Path(self._token).read_text().strip()

    def kill_leader(self) -> bool:
        for command in self.running:
            if self._leads(command):
                command.kill()
                self.running.remove(command)
                self._report.kills += 1
                return True
        return False

    def _leads(self, command: Command) -> bool:
        with contextlib.suppress(OSError):
            _, text = get(f"{url_of(command.output)}/metrics", self._shown())
            lines = text.splitlines()
            return any(_is_status(line) and float(line.split()[-1]) for line in lines)
        return False

    def stop(self) -> None:
        while self.running:
            self.running.pop().kill()


def _is_status(line: str) -> bool:
    return line.startswith("leader_election_master_status{")


@contextlib.asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[tuple[Path, dict[str, int]]]:
    """`stower up` as users run it, but for the scheduler: its state, and its processes."""
    state = folder / "state"
    command = [sys.executable, "-m", "stower.cli.main"]
    shape = ("--nodes", str(NODES), "--node-cpu", str(NODE_CPU), "--zones", "a,b,c")
    up = ("up", "--state", str(state), "--port", "0", "--detach", "--no-scheduler", *shape)
    up += ("--event-ttl", "1m")  # else an hour of them is kept
    make = audited(*up)
    await asyncio.to_thread(subprocess.run, [*command, *make], check=True, capture_output=True)
    try:
        yield state, json.loads((state / "up.json").read_bytes())["processes"]
    finally:
        stop = [*command, "down", "--state", str(state)]
        await asyncio.to_thread(subprocess.run, stop, check=True, capture_output=True)


async def soak(folder: Path, plan: Plan, tell: Any = lambda text: None) -> Report:
    """The whole run. What it finds is in the report; raises where the cluster itself fails."""
    report = Report()
    async with _cluster(folder) as (state, processes):
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        proxied = folder / "kubeconfig"
        arguments = (state / "kubeconfig", proxied, plan.fault_share, plan.cut_s, theirs)
        context = multiprocessing.get_context("spawn")
        way = context.Process(target=_way, args=arguments, daemon=True)
        way.start()
        replicas = _Replicas(proxied, report)
        try:
            assert "ready" == await asyncio.to_thread(ours.recv)
            await asyncio.to_thread(replicas.fill)
            await _churn(Target(state / "kubeconfig"), plan, report, replicas, processes, tell)
        finally:
            await asyncio.to_thread(replicas.stop)
            if way.is_alive():
                ours.send("enough")
                report.faults, twice, report.bindings = await asyncio.to_thread(ours.recv)
                report.moved += twice
                way.join(30)
    return report


async def _churn(
    target: Target,
    plan: Plan,
    report: Report,
    replicas: _Replicas,
    processes: dict[str, int],
    tell: Any,
) -> None:
    pods = await watch_pods(target, _Pods(report), 7_200)
    began = time.monotonic()
    stop = asyncio.Event()
    work: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    connections = [await target.connect() for _ in range(CONNECTIONS)]
    tasks = [asyncio.create_task(_write(target, c, work, pods)) for c in connections]
    tasks.append(asyncio.create_task(_upset(plan, replicas, stop)))
    tasks.append(asyncio.create_task(_sample(began, report, replicas, processes, tell)))
    living: list[tuple[float, str]] = []
    try:
        while (now := time.monotonic()) < began + plan.seconds:
            due = min(int((now - began) * plan.pods_per_s), report.made + 2 * plan.pods_per_s)
            while report.made < due:
                name = f"pod-{report.made}"
                report.made += 1
                work.put_nowait(("POST", name))
                living.append((now + plan.life_s, name))
            aged = [name for at, name in living if at <= now and name in pods.node_of]
            gone = set(aged)
            living = [(at, name) for at, name in living if name not in gone]
            for name in aged:
                work.put_nowait(("DELETE", name))
            _check(tasks, pods)
            await asyncio.sleep(0.05)
        end = time.monotonic() + SETTLE_SECONDS_MAX
        stop.set()
        while (report.bound < report.made or work.qsize()) and time.monotonic() < end:
            _check(tasks, pods)
            await asyncio.sleep(0.2)
        report.lost = sorted(set(pods.made_at) - set(pods.node_of))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            connection.close()


def _check(tasks: list["asyncio.Task[None]"], pods: _Pods) -> None:
    for task in tasks:
        if task.done():
            task.result()
    if pods.ended:
        raise RuntimeError("the server cut the watch that has no faults")


async def _write(
    target: Target, connection: Reply, work: "asyncio.Queue[tuple[str, str]]", pods: _Pods
) -> None:
    now_please = json.dumps({"gracePeriodSeconds": 0}).encode()
    while True:
        method, name = await work.get()
        if method == "POST":
            pods.made_at[name] = time.monotonic()
            request, want = target.request("POST", f"{NAMESPACE}/pods", _body(name)), 201
        else:
            request = target.request("DELETE", f"{NAMESPACE}/pods/{name}", now_please)
            want = 200
        status, answer = await connection.ask(request)
        if status != want:
            raise RuntimeError(f"{method} {name}: status {status}: {answer[:300]!r}")


async def _upset(plan: Plan, replicas: _Replicas, stop: asyncio.Event) -> None:
    """Kill the leader each time; start schedulers again."""
    due = time.monotonic() + plan.kill_every_s
    while not stop.is_set():
        if time.monotonic() >= due and await asyncio.to_thread(replicas.kill_leader):
            due += plan.kill_every_s
        await asyncio.to_thread(replicas.fill)
        await asyncio.sleep(0.5)


async def _sample(
    began: float, report: Report, replicas: _Replicas, processes: dict[str, int], tell: Any
) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        at = time.monotonic() - began
        for name, pid in processes.items():
            if (size := resident_mib(pid)) is not None:
                report.rss.setdefault(name, []).append((at, size))
        sizes = [
            size for c in replicas.running if (size := resident_mib(c.process.pid)) is not None
        ]
        if sizes:
            report.rss.setdefault("the larger scheduler", []).append((at, max(sizes)))
        memory = ", ".join(f"{name} {sizes[-1][1]:.0f}" for name, sizes in report.rss.items())
        tell(
            f"{at:5.0f} s: {report.made:,} made, {report.made - report.bound:,} wait, "
            f"{report.kills} killed; MiB: {memory}"
        )


def main(arguments: list[str]) -> int:
    """`python -m tests.contract.soak MINUTES [SECONDS between kills]`."""
    import tempfile

    plan = Plan(float(arguments[0]) * 60, kill_every_s=float((*arguments, 60)[1]))
    with tempfile.TemporaryDirectory(prefix="stower-soak-") as folder:
        report = asyncio.run(soak(Path(folder), plan, lambda text: print(text, file=sys.stderr)))
    for line in report.lines():
        print(line)
    print("\n".join([*report.lost[:5], *report.moved[:5], *report.over[:5]]))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
