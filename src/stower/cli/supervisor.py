"""Runs the processes of `stower up` (API server, scheduler, actors) and restarts each that ends.

One supervisor at a time holds a state directory (state_folder.py); a record file there holds the
addresses and process ids of the cluster.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from stower.cli.state_folder import UpError, read_holder
from stower.pki.files import open_log, write_file

READY: Final = b"Stop it with Ctrl-C."
TELLS: Final = "dashboard and metrics on "
GO: Final = b"\n"
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 15.0
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
RECORD: Final = "up.json"
CLUSTER: Final = "cluster.json"
LOGS: Final = "logs"
TOKEN: Final = "dashboard-token"
Tell = Callable[[str], None]


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """Where a running cluster is."""

    pid: int
    server: str
    kubeconfig: str
    dashboard: str = ""
    processes: dict[str, int] = msgspec.field(default_factory=dict)


def read_record(state: Path) -> Record | None:
    """Returns where the running cluster is; None where none runs.

    Raises UpError if the folder cannot be trusted.
    """
    pid = read_holder(state)
    if pid is None:
        return None
    try:
        record = msgspec.json.decode((state / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return msgspec.structs.replace(record, pid=pid)


@dataclass
class Child:
    """One process. Its standard input ends with us, which tells it to stop."""

    name: str
    arguments: list[str]
    log: Path
    process: asyncio.subprocess.Process | None = None
    said: str = ""  # until it was ready
    log_at: int = 0
    drain: asyncio.Task[None] | None = None

    async def launch(self) -> None:
        """Start it; it reads in its code and waits for `ready`."""
        self.log.parent.mkdir(mode=0o700, exist_ok=True)
        with open_log(self.log) as log:
            self.log_at = log.tell()
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "stower.cli.main",
                *self.arguments,
                "--with-parent",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for us
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    async def ready(self) -> None:
        """Let it begin, and wait until it is ready. Raises UpError."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(GO)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                self.said = ""
                async for line in self.process.stdout:
                    self.said += line.decode("utf-8", "replace")
                    if READY in line:
                        self.drain = asyncio.create_task(_drain(self.process.stdout))
                        return
                await self.process.wait()
        except TimeoutError:
            await self.stop()
            raise UpError(f"{self.name} did not start within {START_SECONDS_MAX:.0f} s") from None
        raise UpError(self._read_last_line(self.log_at))

    async def start(self) -> None:
        """Both. Raises UpError."""
        await self.launch()
        await self.ready()

    def _read_last_line(self, at: int) -> str:
        """The last line that it said."""
        with self.log.open("rb") as log:
            log.seek(at)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        line = lines[-1] if lines else f"{self.name} ended with exit code {self._code}"
        return line.removeprefix("stower: error: ")

    @property
    def _code(self) -> int | None:
        return self.process.returncode if self.process is not None else None

    async def stop(self) -> None:
        """Ask it to end, then end it."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass


@dataclass
class Supervisor:
    """All processes of one cluster."""

    state: Path
    server: Child
    others: list[Child]
    kubeconfig: Path
    url: str = ""
    dashboard: str = ""
    tell: Tell = print
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Start everything. Raises UpError, with nothing left running."""
        try:
            # The others read in their code while the server starts.
            await asyncio.gather(*(child.launch() for child in self.others))
            await self._start_server()
            await asyncio.gather(*(child.ready() for child in self.others))
        except BaseException:
            await self.stop()
            raise
        self.record()

    async def _start_server(self) -> None:
        """A server of a supervisor that was killed takes a moment to see it."""
        until = time.monotonic() + (5.0 if (self.state / RECORD).exists() else 0.0)
        while True:
            try:
                await self.server.start()
                return
            except UpError:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)

    async def keep(self, stop: asyncio.Event) -> None:
        """Start again what dies, until `stop`."""
        self._tasks = [
            asyncio.create_task(self._keep(child)) for child in (self.server, *self.others)
        ]
        try:
            await stop.wait()
        finally:
            await self.stop()

    async def _keep(self, child: Child) -> None:
        pause = PAUSE_SECONDS
        while True:
            assert child.process is not None
            began = time.monotonic()
            code = await child.process.wait()
            if time.monotonic() - began > PAUSE_SECONDS_MAX:
                pause = PAUSE_SECONDS
            self.tell(f"{child.name} ended ({_describe_exit(code)}); restarting")
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_SECONDS_MAX)
                try:
                    await child.start()
                    break
                except (UpError, OSError) as error:
                    self.tell(f"{child.name}: {error}")
            try:
                self.record()
            except OSError as error:
                self.tell(f"{self.state / RECORD}: {error}")

    async def stop(self) -> None:
        """Stop everything, the server last."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in self.others))
        await self.server.stop()
        (self.state / RECORD).unlink(missing_ok=True)

    def is_at(self, url: str) -> None:
        """All have told their addresses, and keep them when they are started again."""
        self.url = url
        _keep_port(self.server, url)
        for child in self.others:
            _, found, rest = child.said.partition(TELLS)
            if found:
                self.dashboard = rest.partition(". ")[0]
                _keep_port(child, self.dashboard)

    def record(self) -> None:
        """Write down where everything is."""
        children = {
            child.name: child.process.pid
            for child in (self.server, *self.others)
            if child.process is not None
        }
        record = Record(os.getpid(), self.url, str(self.kubeconfig), self.dashboard, children)
        write_file(self.state / RECORD, msgspec.json.encode(record))


def dashboard_link(state: Path, address: str) -> str:
    """Where a browser finds it, with the token that lets in: for the eyes of the owner alone."""
    with contextlib.suppress(OSError):
        return f"{address}/dashboard/#token={(state / TOKEN).read_text().strip()}"
    return f"{address}/dashboard/"


def _keep_port(child: Child, url: str) -> None:
    at = child.arguments.index("--port") + 1
    child.arguments[at] = str(urlsplit(url).port)


def _describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def read_cluster_document(state: Path) -> dict[str, Any] | None:
    """The cluster that the directory was made for; None where it is new. Raises UpError."""
    path = state / CLUSTER
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UpError(
            f"{path} cannot be read ({error}): give --nodes or --cluster to replace it"
        ) from None
