"""Processes of `stower up` that exist only on paper: what each prints, and how each ends."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

READY = "Ready. Stop it with Ctrl-C.\n"
LAUNCH = "create_subprocess_exec"


class Process:
    """One process. Ends at SIGTERM unless `is_stubborn`."""

    def __init__(self, pid: int, output: str, is_stubborn: bool) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.signals: list[int] = []
        self.is_stubborn = is_stubborn
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self._output = output
        self._ended = asyncio.Event()

    def write(self, data: bytes) -> None:
        """Standard input: the line on which a process begins."""
        assert data == b"\n"
        self.stdout.feed_data(self._output.encode())
        if self.returncode is None and READY not in self._output and not self.is_stubborn:
            self.end(1)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if not self.is_stubborn:
            self.end(0)

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.end(-signal.SIGKILL)

    def end(self, code: int) -> None:
        """Ends the process with an exit code, or with a signal where it is negative."""
        if self.returncode is None:
            self.returncode = code
            self.stdout.feed_eof()
            self._ended.set()


class Machine:
    """Launches processes in place of asyncio. `outputs`: what the next processes of a verb print,
    the last one over and over; `errors`: what a process of the verb writes to its log."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[str]] = {}
        self.errors: dict[str, str] = {}
        self.stubborn: set[str] = set()
        self.started: list[tuple[str, Process]] = []
        self.commands: dict[str, list[str]] = {}
        self.on_start: Callable[[str], None] = lambda verb: None

    async def launch(self, *command: str, stderr: Any, **more: Any) -> Process:
        """See asyncio.create_subprocess_exec."""
        verb = command[3]
        self.on_start(verb)
        self.commands[verb] = [*command[4:]]
        outputs = self.outputs.get(verb, [READY])
        output = outputs.pop(0) if len(outputs) > 1 else outputs[0]
        stderr.write(self.errors.get(verb, "").encode())
        stderr.flush()
        process = Process(1000 + len(self.started), output, verb in self.stubborn)
        self.started.append((verb, process))
        return process

    def of(self, verb: str) -> list[Process]:
        """The processes of a verb, the first one first."""
        return [process for name, process in self.started if name == verb]


def value_of(command: list[str], option: str) -> str:
    """The argument behind an option."""
    return command[command.index(option) + 1]
