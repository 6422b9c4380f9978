"""Runs the load, the kills and the watcher together, and reports what was found."""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from tests.contract.kills import final_laws
from tests.contract.kills.client import Ledger, Writer
from tests.contract.kills.processes import CAMPUS, Processes
from tests.contract.kills.watcher import Findings, Watcher
from tests.contract.kills.workload import Load, setting

WRITERS: Final = 3
ITEMS_PER_SECOND: Final = 0.4  # of each writer; an item is one to five pods
KILL_SECONDS: Final = 5.0  # from one kill to the next, on average
START_KILL_SECONDS: Final = 12.0  # the same while `stower up` starts, which a kill may end
# Of the kills, how many come within so long after a write.
AIMED_SHARE: Final = 0.6
AIMED_SECONDS_MAX: Final = 0.12
AIMED_WAIT_SECONDS: Final = 2.0
SETTLE_SECONDS_MAX: Final = 150.0  # after the last kill
SETTLED_SECONDS: Final = 3.0  # nothing is missing for so long
START_SECONDS_MAX: Final = 180.0
# Below the ports that the system gives to clients: a server that starts again finds its own.
PORTS: Final = range(20_000, 30_000)
Tell = Callable[[str], None]


@dataclass
class Report:
    """What happened."""

    seconds: float = 0.0
    settled_s: float = 0.0
    pods: int = 0
    bound: int = 0
    writes: int = 0
    events: int = 0
    lists: int = 0
    longest_wait_s: float = 0.0
    failed_starts: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)  # objects of each resource
    findings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yields the summary."""
        kills = ", ".join(f"{role} {count}" for role, count in sorted(self.kills.items()))
        yield f"{sum(self.kills.values())} processes killed in {self.seconds:.0f} s: {kills}"
        yield f"`stower up` started {self.starts['up']} times, {self.failed_starts} failed by kills"
        made = ", ".join(f"{count} {name}" for name, count in sorted(self.made.items()))
        yield f"{self.pods} pods made, {self.bound} bound; {made}"
        yield (
            f"{self.writes} writes acknowledged, the longest after {self.longest_wait_s:.1f} s; "
            f"{self.events} events, {self.lists} lists"
        )
        yield f"settled {self.settled_s:.0f} s after the last kill"
        yield f"{len(self.findings)} findings"
        yield from (f"  {text}" for text in self.findings)


def free_port(seed: int) -> int:
    """Returns a port that nobody listens on."""
    rng = random.Random(f"{seed} {time.time_ns()}")
    while True:
        port = rng.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def campus_objects() -> Iterator[dict[str, object]]:
    """Yields the objects of examples/campus; those without a namespace are in `default`."""
    yield from yaml.safe_load_all((CAMPUS / "campus.yaml").read_text())


class Run:
    """One cluster, its load and its kills."""

    def __init__(self, folder: Path, seed: int, tell: Tell) -> None:
        self.findings = Findings()
        self.ledger = Ledger()
        self.processes = Processes(
            folder, free_port(seed), self.findings.add, random.Random(f"kills {seed}")
        )
        self.watcher = Watcher(self.processes.kubeconfig, self.ledger, self.findings)
        self._seed = seed
        self._tell = tell
        self._began = time.monotonic()
        self._stop_load = threading.Event()
        self._abandon = threading.Event()
        self._applied = threading.Event()
        self._threads: list[threading.Thread] = []

    def whole(self, seconds: float) -> Report:
        """Runs all of it; kills for so long, from the first start on."""
        report = Report(seconds=seconds)
        try:
            self._start_load()
            self.watcher.start()
            self._kill(time.monotonic() + seconds)
            self._stop_load.set()
            report.settled_s = self._settle()
            self._judge()
        finally:
            self._stop_load.set()
            self._abandon.set()
            self.processes.stop()
            self.watcher.stop()
            for thread in self._threads:
                thread.join(30)
        return self._fill(report)

    def _start_load(self) -> None:
        for number in range(WRITERS):
            thread = threading.Thread(target=self._write, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _write(self, number: int) -> None:
        writer = Writer(
            self.processes.kubeconfig, self.ledger, self.findings.add, self._abandon
        )  # fmt: skip
        try:
            if number == 0:
                for obj in (*campus_objects(), *setting()):
                    writer.create(obj)
                self._applied.set()
            self._applied.wait()
            load = Load(writer, self.ledger, f"w{number}", self._seed, ITEMS_PER_SECOND)
            load.run(self._stop_load)
        except Exception as error:
            self.findings.add("watcher", f"writer {number}: {error!r}")
            self._applied.set()

    def _kill(self, until: float) -> None:
        """Kills until then; the first kill may come while the cluster starts for the first time."""
        rng = random.Random(f"times {self._seed}")
        due = time.monotonic() + rng.uniform(0.5, 2 * KILL_SECONDS)
        sampled = 0.0
        while (now := time.monotonic()) < until:
            self.processes.poll()
            if now >= due:
                if rng.random() < AIMED_SHARE:
                    self._await_write(rng.uniform(0.0, AIMED_SECONDS_MAX))
                what = self.processes.kill_some()
                mean = KILL_SECONDS if self.processes.is_up else START_KILL_SECONDS
                mean = mean if what else mean / 8
                due = now + min(rng.expovariate(1 / mean), 3 * mean)
                if what:
                    at = now - self._began
                    self.findings.last_kill = f"{what} at {at:.1f} s"
                    self._tell(f"{at:6.1f} s: killed {what}")
            if now >= sampled + 1.0:
                self.watcher.sample()
                sampled = now
            time.sleep(0.05)

    def _await_write(self, pause: float) -> None:
        """Returns shortly after the next acknowledged write: what follows a write is under way."""
        writes, until = self.ledger.writes, time.monotonic() + AIMED_WAIT_SECONDS
        while self.ledger.writes == writes and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(pause)

    def _settle(self) -> float:
        """Waits until nothing is missing; reports what is still missing then."""
        began = time.monotonic()
        good_since: float | None = None
        while (now := time.monotonic()) < began + SETTLE_SECONDS_MAX:
            self.processes.poll()
            self.watcher.sample()
            writing = any(thread.is_alive() for thread in self._threads)
            missing = writing or next(final_laws.unsettled(self.watcher), None)
            if missing or not self.processes.is_up:
                good_since = None
            elif good_since is None:
                good_since = now
            elif now > good_since + SETTLED_SECONDS:
                return good_since - began
            time.sleep(0.2)
        for law, text in final_laws.unsettled(self.watcher):
            self.findings.add(law, text)
        if not self.processes.is_up:
            self.findings.add("up", "`stower up` has not announced the cluster")
        return now - began

    def _judge(self) -> None:
        file = self.processes.folder / "fabric.json"
        for law, text in final_laws.fabric(self.watcher, file):
            self.findings.add(law, text)
        for law, text in final_laws.past(self.watcher):
            self.findings.add(law, text)

    def _fill(self, report: Report) -> Report:
        lives = list(self.watcher.lives.values())
        report.made = Counter(life.resource for life in lives)
        report.pods = report.made.pop("pods", 0)
        report.bound = sum(
            bool(life.last["spec"].get("nodeName")) for life in lives if life.resource == "pods"
        )
        report.writes = self.ledger.writes
        report.longest_wait_s = self.ledger.longest_wait_s
        report.events = self.watcher.events
        report.lists = self.watcher.lists.total()
        report.kills, report.starts = self.processes.kills, self.processes.starts
        report.failed_starts = self.processes.failed_starts
        report.findings = [f"{at:.1f} s: {text}" for text, at in self.findings.texts.items()]
        return report


def run(folder: Path, seconds: float, seed: int, tell: Tell = lambda text: None) -> Report:
    """Returns the report of a run in a folder, which keeps the logs."""
    return Run(folder, seed, tell).whole(seconds)
