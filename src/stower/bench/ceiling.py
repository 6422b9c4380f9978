"""Compares Stower with a client that only binds: `python -m stower.bench.ceiling ceiling`.

10,000 pods are pending on 1,000 nodes. First a plain client binds them, with as many requests in
flight as Stower has; then Stower does, on a new server, with everything else that it writes and
reads. Both run twice: with `stower apiserver` as it is, and slowed to the binds per second of a
real cluster's server. The server counts binds and Events itself, because a watcher would use a part
of the CPU. Prints JSON.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.apiserver import server_process
from stower.apiserver.handler import Handler
from stower.bench.family import Family, run_once, tell
from stower.bench.server import NAMESPACE, Target, binding_body, pod_body
from stower.bench.up import SECONDS_MAX, create, node_body

PODS: Final = 10_000
NODES: Final = 1_000
IN_FLIGHT: Final = 64  # as `stower run --in-flight` has it
SECONDS: Final = "seconds"
SECONDS_OF_EVENTS: Final = "seconds-of-events"
CREATED: Final = 201
SLOWED_BINDS_PER_S: Final = 1_200  # upstream's scheduler_perf sees 800 to 1,400


class CeilingResult(msgspec.Struct, frozen=True):
    """What a run measured: binds a second, and Stower's share of the plain client's.

    Rates are from the first bind that was carried out to the last; `told`: to the last Event.
    """

    name: str
    pods: int
    nodes: int
    plain_per_s: float
    stower_per_s: float
    stower_told_per_s: float
    share: float
    slowed_plain_per_s: float
    slowed_stower_per_s: float
    slowed_stower_told_per_s: float
    slowed_share: float


FAMILY: Final = Family(
    result=CeilingResult,
    best="stower_per_s",
    unit="binds/s",
    ratios={"ratio_share": "share", "ratio_slowed_share": "slowed_share"},
    about="binds per second over HTTP, compared with a plain client on the same server",
)


class BindCounter(Handler):
    """Writes down how long it took until all binds, and all Events, were carried out."""

    folder: Path
    _binds = 0
    _events = 0
    _began_s = 0.0

    def _send(self, connection: Any, message: Any, response: Any) -> None:
        super()._send(connection, message, response)
        if response.status != CREATED:
            return
        if _is_bind(message):
            self._binds += 1
            if self._binds == 1:
                self._began_s = time.perf_counter()
            elif self._binds == PODS:
                self._write(SECONDS)
        elif message.target.endswith(b"/events"):
            self._events += 1
            if self._events == PODS:
                self._write(SECONDS_OF_EVENTS)

    def _write(self, name: str) -> None:
        path = self.folder / name
        whole = path.with_suffix(".new")
        whole.write_text(str(time.perf_counter() - self._began_s))
        whole.replace(path)


class SlowBinder(BindCounter):
    """Binds one after the other, so many a second; everything else as it comes."""

    _free_at_s = 0.0

    def __call__(self, connection: Any, message: Any) -> None:
        if not _is_bind(message):
            super().__call__(connection, message)
            return
        loop = asyncio.get_running_loop()
        self._free_at_s = max(self._free_at_s, loop.time()) + 1 / SLOWED_BINDS_PER_S
        loop.call_at(self._free_at_s, super().__call__, connection, message)


def _is_bind(message: Any) -> bool:
    return bool(message.target.endswith(b"/binding"))


async def _serve(folder: Path, slowed: bool) -> None:
    """In a process of its own: a durable server, until it is ended."""
    made: type[BindCounter] = SlowBinder if slowed else BindCounter
    made.folder = folder
    vars(server_process)["Handler"] = made
    async with server_process.run_server(server_process.Options(folder)):
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _serve_pending_pods(slowed: bool) -> AsyncIterator[tuple[Path, Target]]:
    """A server with nodes and pods that wait: its folder."""
    with tempfile.TemporaryDirectory(prefix="stower-bench-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "stower.bench.ceiling", "slowed" if slowed else "full"]
        process = subprocess.Popen([*command, name])
        try:
            while not (folder / "kubeconfig").exists():
                if process.poll() is not None:
                    raise RuntimeError("the server did not start")
                await asyncio.sleep(0.05)
            target = Target(folder / "kubeconfig")
            nodes = (node_body(i) for i in range(NODES))
            await create(target, [target.request("POST", "/api/v1/nodes", b) for b in nodes], 16)
            path = f"{NAMESPACE}/pods"
            bodies = (pod_body(f"pod-{i}") for i in range(PODS))
            await create(target, [target.request("POST", path, body) for body in bodies], 32)
            yield folder, target
        finally:
            process.terminate()
            process.wait(30)


async def _rate(path: Path) -> float:
    """Pods a second, by the file that says how long all took."""
    async with asyncio.timeout(SECONDS_MAX):
        while not path.exists():
            await asyncio.sleep(0.05)
    return (PODS - 1) / float(path.read_text())


async def _plain(slowed: bool) -> float:
    async with _serve_pending_pods(slowed) as (folder, target):
        requests = []
        for i in range(PODS):
            path = f"{NAMESPACE}/pods/pod-{i}/binding"
            body = binding_body(f"pod-{i}", f"node-{i % NODES}")
            requests.append(target.request("POST", path, body))
        await create(target, requests, IN_FLIGHT)
        return await _rate(folder / SECONDS)


async def _stower(slowed: bool) -> tuple[float, float]:
    """Pods a second until the last bind, and until the last Event."""
    async with _serve_pending_pods(slowed) as (folder, _):
        command = [sys.executable, "-m", "stower.cli.main", "run", "--no-leader-elect"]
        command += ["--kubeconfig", str(folder / "kubeconfig")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            return await _rate(folder / SECONDS), await _rate(folder / SECONDS_OF_EVENTS)
        finally:
            process.terminate()
            process.wait(30)


async def measure() -> CeilingResult:
    """The whole benchmark."""
    found: dict[bool, tuple[float, float, float]] = {}
    for slowed in (False, True):
        server = f"a server of {SLOWED_BINDS_PER_S:,} binds/s" if slowed else "the server"
        tell("ceiling", f"a plain client on {server}")
        plain = await _plain(slowed)
        tell("ceiling", f"Stower on {server}")
        found[slowed] = (plain, *await _stower(slowed))
    plain, bound, told = found[False]
    slowed_plain, slowed_bound, slowed_told = found[True]
    return CeilingResult(
        "ceiling", PODS, NODES, plain, bound, told, bound / plain,
        slowed_plain, slowed_bound, slowed_told, slowed_bound / slowed_plain,
    )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) == 3:  # one of the servers
        asyncio.run(_serve(Path(sys.argv[2]), sys.argv[1] == "slowed"))
    else:
        run_once("ceiling", lambda: asyncio.run(measure()), sys.argv[1:])
