"""Starts `stower up` and the driver as a user does, and kills processes of the cluster."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from tests.contract.kills.client import Report

ROOT: Final = Path(__file__).parents[3]
CAMPUS: Final = ROOT / "examples" / "campus"
DRIVER: Final = ROOT / "examples" / "drivers" / "fabric.py"
STOWER: Final = ("-m", "stower.cli.main")
ROLES: Final = {"up": "up", "apiserver": "server", "run": "scheduler", "actors": "actors"}
CHILDREN: Final = ("server", "scheduler", "actors")
# What is killed how often. `all`: every process at once, as if the machine lost power.
WEIGHTS: Final = {
    "server": 25, "scheduler": 25, "actors": 20, "driver": 10, "up": 10, "two": 6, "all": 4,
}  # fmt: skip
READY: Final = "Stop it with"  # in what `stower up` says
# A process whose supervisor was killed ends within this time.
ORPHAN_SECONDS_MAX: Final = 20.0
# The same when the next `stower up` has announced its cluster: two schedulers would write.
ORPHAN_BESIDE_SECONDS_MAX: Final = 1.0
# A killed process runs again within this time, on a machine that other work keeps busy.
RESTART_SECONDS_MAX: Final = 45.0


@dataclass(frozen=True)
class Running:
    """A process of the cluster."""

    pid: int
    role: str
    parent: int


@dataclass
class Processes:
    """Owns `stower up` and the driver; finds the children of `stower up`."""

    folder: Path
    port: int
    report: Report
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    failed_starts: int = 0  # of `stower up`, each after a kill
    _up: "subprocess.Popen[str] | None" = None
    _driver: "subprocess.Popen[str] | None" = None
    _logs: list[TextIO] = field(default_factory=list)
    _ups_killed: set[int] = field(default_factory=set)
    _killed_since_start: bool = False
    _start_at: float = 0.0
    _choice: str = ""  # what is to be killed as soon as it runs
    _seen_at: dict[str, float] = field(default_factory=dict)
    _orphans: dict[int, float] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The folder of the cluster."""
        return self.folder / "state"

    @property
    def kubeconfig(self) -> Path:
        """Where `stower up` writes it."""
        return self.state / "kubeconfig"

    @property
    def is_up(self) -> bool:
        """Whether the present `stower up` has announced the cluster."""
        return self._up is not None and self._up.poll() is None and READY in self._said()

    def _said(self) -> str:
        path = self.folder / f"up-{self.starts['up']}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _popen(self, role: str, *arguments: str) -> "subprocess.Popen[str]":
        self.starts[role] += 1
        log = (self.folder / f"{role}-{self.starts[role]}.log").open("w")
        self._logs.append(log)
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    def poll(self) -> None:
        """Starts again what is to run, and looks for processes that are there too long."""
        now = time.monotonic()
        if now >= self._start_at:
            self._poll_up()
            self._poll_driver()
        found = self.find()
        present = {one.role for one in found}
        for role in ROLES.values():
            if role in present or not self.is_up:
                self._seen_at[role] = now
            elif now > self._seen_at.get(role, now) + RESTART_SECONDS_MAX:
                self.report("restarted", f"no {role} for {RESTART_SECONDS_MAX:.0f} s")
                self._seen_at[role] = now
        self._check_orphans(found, now)

    def _check_orphans(self, found: list[Running], now: float) -> None:
        """Children of a killed `stower up` end, and do not run beside those of the next."""
        ours = self._up.pid if self._up is not None else 0
        orphans = {p.pid: p.role for p in found if p.role in CHILDREN and p.parent != ours}
        self._orphans = {pid: self._orphans.get(pid, now) for pid in orphans}
        seconds = ORPHAN_BESIDE_SECONDS_MAX if self.is_up else ORPHAN_SECONDS_MAX
        for pid, since in self._orphans.items():
            if now > since + seconds:
                text = f"{orphans[pid]} outlives its `stower up` by more than {seconds:.0f} s"
                self.report("orphan", text)
                self._orphans[pid] = now

    def _poll_up(self) -> None:
        if self._up is not None and (code := self._up.poll()) is None:
            return
        if self._up is not None and self._up.pid not in self._ups_killed:
            if READY in self._said() or not self._killed_since_start:
                last = self._said().strip().splitlines()[-3:]
                self.report("up", f"`stower up` ended by itself, exit code {code}: {last}")
            else:
                self.failed_starts += 1
        self._killed_since_start = False
        files = ("--cluster", str(CAMPUS / "cluster.yaml"), "--config",
                 str(CAMPUS / "scheduler.yaml"))  # fmt: skip
        at = ("--state", str(self.state), "--port", str(self.port))
        self._up = self._popen("up", *STOWER, "up", *at, *files)

    def _poll_driver(self) -> None:
        """The driver waits for the kubeconfig; a driver that ends is started again."""
        if not self.kubeconfig.exists() or not self.is_up:
            return
        if self._driver is None or self._driver.poll() is not None:
            fabric = self.folder / "fabric.json"
            if not fabric.exists():
                fabric.write_text('{"racks": {"a2": 4, "b1": 4}}\n')
            self._driver = self._popen(
                "driver", str(DRIVER), str(fabric), "--attach-seconds", "0.1",
                "--kubeconfig", str(self.kubeconfig), "--ledger", str(self.folder / "ledger"),
            )  # fmt: skip

    def find(self) -> list[Running]:
        """Returns the processes whose command line has this cluster's folder."""
        mark, found = str(self.folder), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, LookupError, ValueError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if not any(word.startswith(mark) for word in words):
                    continue
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                role = "driver" if words[1].endswith("fabric.py") else ROLES[words[3]]
                if fields[0] not in "ZX":
                    found.append(Running(int(entry.name), role, int(fields[1])))
        return sorted(found, key=lambda one: (one.role, one.pid))

    def kill_some(self) -> str:
        """Kills what the generator chooses, if it runs; returns the roles in words."""
        if not self._choice:
            self._choice = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        choice = self._choice
        ranks = {role: self.rng.random() for role in (*ROLES.values(), "driver")}
        pause = self.rng.choice((0.0, 0.0, 0.3, 1.0))
        found = self.find()
        if choice == "all":
            victims = found
        elif choice == "two":
            victims = sorted(found, key=lambda one: ranks[one.role])[:2]
        else:
            victims = [one for one in found if one.role == choice]
        if victims:
            self._choice = ""
        for one in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
                self.kills[one.role] += 1
                self._killed_since_start = True
                if one.role == "up":
                    self._ups_killed.add(one.pid)
                    self._start_at = time.monotonic() + pause
        return " ".join(one.role for one in victims)

    def stop(self) -> None:
        """Ends everything; reports what does not end."""
        if self._driver is not None and self._driver.poll() is None:
            self._driver.send_signal(signal.SIGTERM)
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._up.wait(40)
                if code:
                    self.report("stop", f"`stower up` ended with exit code {code} at Ctrl-C")
        until = time.monotonic() + ORPHAN_SECONDS_MAX
        while (left := self.find()) and time.monotonic() < until:
            time.sleep(0.1)
        for one in left:
            self.report("stop", f"{one.role} runs {ORPHAN_SECONDS_MAX:.0f} s after the stop")
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        for log in self._logs:
            log.close()
