"""Benchmarks over HTTP, with server and scheduler in this process in place of processes."""

import asyncio
import contextlib
import gc
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver import server_process
from stower.assembly import build_engine
from stower.bench import ceiling, up
from stower.live.scheduler import Options
from stower.live.shell_runner import KubeconfigFlags, RunOptions
from stower.live.shell_runner import run as run_scheduler


class Output:
    """Standard output of a process: one line."""

    def __init__(self, line: bytes) -> None:
        self._line = line

    def readline(self) -> bytes:
        return self._line

    def close(self) -> None:
        pass


class Process:
    """A process of a benchmark, as a task of the loop that runs the benchmark."""

    line = b"Scheduling\n"
    is_dead = False

    def __init__(self, command: list[str], **more: Any) -> None:
        self.pid = os.getpid()
        self.stdout = Output(self.line)
        if "run" in command:
            work = schedule(Path(command[command.index("--kubeconfig") + 1]))
        else:
            work = ceiling._serve(Path(command[-1]), command[-2] == "slowed")
        self._task = None if self.is_dead else asyncio.get_running_loop().create_task(work)
        if self.is_dead:
            work.close()

    def poll(self) -> int | None:
        return 1 if self.is_dead else None

    def terminate(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def send_signal(self, number: int) -> None:
        self.terminate()

    def wait(self, seconds: float) -> int:
        return 0


async def schedule(kubeconfig: Path) -> None:
    """Runs a scheduler until it is cancelled."""
    await run_scheduler(
        KubeconfigFlags(kubeconfig), build_engine, Options("bench"), RunOptions(),
        lambda server, addresses: None, asyncio.Event,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[Path, int]]:
    """A server in memory: its kubeconfig and the process that it runs in."""
    with tempfile.TemporaryDirectory() as folder:
        options = server_process.Options(Path(folder), memory=True)
        async with server_process.run_server(options) as server:
            yield server.kubeconfig, os.getpid()


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler = server_process.Handler
    monkeypatch.setattr(up, "run_server", served)
    monkeypatch.setattr(up.subprocess, "Popen", Process)
    yield
    vars(server_process)["Handler"] = handler
    gc.unfreeze()
    gc.enable()


def test_a_whole_cluster_is_measured_until_all_pods_run() -> None:
    found = asyncio.run(up.measure(6, 2))
    assert ("up", 6, 2) == (found.name, found.pods, found.nodes)
    assert found.created_per_s >= found.running_per_s >= found.events_per_s > 0
    assert 0 < found.bound_p50_ms <= found.bound_p99_ms


def test_a_scheduler_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "line", b"")
    with pytest.raises(RuntimeError, match="the scheduler did not start"):
        asyncio.run(up.measure(1, 1))


def test_an_object_that_is_refused_is_an_error() -> None:
    async def create() -> None:
        async with served() as (kubeconfig, _):
            target = up.Target(kubeconfig)
            await up.create(target, [target.request("POST", "/api/v1/nodes", b"{}")], 1)

    with pytest.raises(RuntimeError, match="status 422"):
        asyncio.run(create())


def test_binds_are_compared_with_those_of_a_plain_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ceiling, "PODS", 6)
    monkeypatch.setattr(ceiling, "NODES", 2)
    monkeypatch.setattr(ceiling, "SLOWED_BINDS_PER_S", 200)
    found = asyncio.run(ceiling.measure())
    assert ("ceiling", 6, 2) == (found.name, found.pods, found.nodes)
    assert found.share == found.stower_per_s / found.plain_per_s
    assert found.slowed_plain_per_s < found.plain_per_s


def test_a_server_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "is_dead", True)
    with pytest.raises(RuntimeError, match="the server did not start"):
        asyncio.run(ceiling.measure())
