"""Servers for tests: in this process, or as the command that users run."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import yaml

from stower.apiserver.server_process import Options, RunningServer, run_server
from tests.rights import new_log

Object = dict[str, Any]


def audited(*arguments: str) -> tuple[str, ...]:
    """Arguments of `stower`: what serves an API tells of each request."""
    log = new_log() if arguments[0] in ("up", "apiserver") else None
    if log is None or "--audit-log-path" in arguments:
        return arguments
    return (*arguments, "--audit-log-path", str(log))


class Client:
    """A small HTTPS client with a kubeconfig's authority and token."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        self.token: str = user["token"]
        self.kubeconfig = kubeconfig
        import base64

        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)
        self.host, self.port = self.url.removeprefix("https://").rsplit(":", 1)
        self._connection: HTTPSConnection | None = None

    def connect(self, timeout: float = 30) -> HTTPSConnection:
        """A connection of its own."""
        return HTTPSConnection(self.host, int(self.port), context=self.context, timeout=timeout)

    def close(self) -> None:
        """Close the connection that is kept open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Object | None = None
    ) -> tuple[int, Object, bytes]:
        """Status, headers (lower case) and body of one answer."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        if self._connection is None:
            self._connection = self.connect()
        try:
            self._connection.request(method, path, body, sent)
            response = self._connection.getresponse()
            data = response.read()
        except BaseException:
            self._connection.close()
            self._connection = None
            raise
        return response.status, {k.lower(): v for k, v in response.getheaders()}, data

    def call(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, Any]:
        """Status and JSON of one answer."""
        headers = {"Content-Type": kind or "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        status, _, answer = self.raw(method, path, data, headers)
        return status, json.loads(answer) if answer else None


def until(
    client: Client, path: str, good: Callable[[dict[str, Object]], bool], seconds: float = 60
) -> dict[str, Object]:
    """The objects of a list by name, as soon as a watch has made them good."""
    _, listed = client.call("GET", path)
    objects = {item["metadata"]["name"]: item for item in listed["items"]}
    if good(objects):
        return objects
    connection = client.connect(seconds)
    version = listed["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&timeoutSeconds={int(seconds)}"
    headers = {"Authorization": f"Bearer {client.token}"}
    try:
        connection.request("GET", f"{path}?{query}", headers=headers)
        response = connection.getresponse()
        while line := response.readline():
            event = json.loads(line)
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = event["object"]
            if good(objects):
                return objects
    finally:
        connection.close()
    states = {
        name: (obj.get("spec", {}).get("nodeName"), obj["metadata"]["resourceVersion"])
        for name, obj in sorted(objects.items())
    }
    raise AssertionError(f"not good after {seconds} s, watched from {version}: {states}")


@contextlib.contextmanager
def in_thread(options: Options) -> Iterator[tuple[RunningServer, Client]]:
    """A server in a thread of this process."""
    options = replace(options, audit=options.audit or new_log())
    ready = threading.Event()
    box: list[Any] = []

    async def main() -> None:
        stop = asyncio.Event()
        try:
            async with run_server(options) as server:
                box.append((server, asyncio.get_running_loop(), stop))
                ready.set()
                await stop.wait()
        except BaseException as error:
            box.append(error)  # raised again by whoever asked for the server
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30)
    if isinstance(box[0], BaseException):
        thread.join()
        raise box[0]
    server, loop, stop = box[0]
    client = Client(server.kubeconfig)
    try:
        yield server, client
    finally:
        client.close()
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def resident_mib(pid: int) -> float | None:
    """The resident memory of a process; None where it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return None


class Program:
    """A program in Python as a process, from the moment when it says how to stop it."""

    def __init__(self, *arguments: str) -> None:
        # A file and no pipe: nobody reads it meanwhile, and what is full would stop the process.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        self.errors = ""  # on standard error, once it has ended
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if "Ctrl-C" in line:
                break
        else:
            self._errors.seek(0)
            raise AssertionError(f"it did not start: {self._errors.read()}")

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._close()

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(15)
        self._close()
        return code

    def _close(self) -> None:
        """What it said is shown beside a test that fails."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.seek(0)
        self.errors = self._errors.read()
        print(self.errors, file=sys.stderr)
        self._errors.close()


class Command(Program):
    """`stower` as a process."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("-m", "stower.cli.main", *audited(*arguments))


class Process(Command):
    """`stower apiserver` as a process."""

    def __init__(self, state: Path, *arguments: str, port: int = 0) -> None:
        self.state = state
        super().__init__("apiserver", "--state", str(state), "--port", str(port), *arguments)

    @cached_property
    def client(self) -> Client:
        """A client of it, closed when it ends."""
        return Client(self.state / "kubeconfig")

    def _close(self) -> None:
        self.client.close()
        super()._close()
