"""The actors on an API server: watches feed them, their requests are sent, until told to stop."""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from stower.controllers.objects import RESOURCES
from stower.controllers.runtime import Actors, Call, path_to
from stower.live.access import AccessError, read_access
from stower.live.client import JSON, Client
from stower.live.reflector import Changes, Documents, Reflector
from stower.live.shell import (
    Clock,
    ShellError,
    Stopped,
    ask_within,
    run_until,
    sleep_until,
    unless,
)
from stower.live.window import Window
from stower.live.workers import Workers

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 64
KEYS_PER_STEP: Final = 64
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 2.0
USER_AGENT: Final = "stower-actors"
DELETABLE: Final = "deletecollection"


class ActorShell:
    """Actors and their API server."""

    def __init__(self, client: Client, actors: Actors, seed: int = 0) -> None:
        self.actors = actors
        self.window = Window(IN_FLIGHT)
        self._client = client
        self._clock = Clock()
        self._awake = asyncio.Event()
        self._calls: deque[Call] = deque()
        self._workers = Workers[Call](self._take, self._do, lambda: self.window.size)
        chance = random.Random(seed)
        self.reflectors = {kind: self._reflect(kind, chance) for kind in actors.kinds}

    def _reflect(self, kind: str, chance: random.Random) -> Reflector:
        resource = RESOURCES[kind]
        version = self.actors.versions.get(kind, resource.api_version)

        def on_list() -> None:
            reflector = self.reflectors[kind]
            self.actors.listed(kind, reflector.objects.values(), reflector.version)
            self._awake.set()

        def on_changes(changes: Changes) -> None:
            for type, obj in changes:
                self.actors.changed(kind, type, obj)
            self._awake.set()

        return Reflector(
            self._client,
            path_to(kind, version=version),
            Documents(version, resource.kind),
            chance,
            on_list=on_list,
            on_changes=on_changes,
            optional=resource.optional,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises ShellError."""
        reflecting = [reflector.run() for reflector in self.reflectors.values()]
        try:
            await run_until(stop, self._client.access.server, (*reflecting, self._drive()))
        finally:
            await self._workers.close(CLOSE_SECONDS)

    async def _drive(self) -> None:
        while True:
            until = time.perf_counter() + SLICE_SECONDS
            while True:
                self._awake.clear()
                calls = self.actors.step(self._clock.now_ns(), KEYS_PER_STEP)
                while self.actors.faults:
                    log.error("%s", self.actors.faults.popleft())
                if calls:
                    self._calls.extend(calls)
                    self._workers.wanted(len(self._calls))
                due_ns = self.actors.next_wake_ns
                if due_ns is None or due_ns > self._clock.now_ns():
                    await sleep_until(self._awake, due_ns, self._clock)
                    break
                if time.perf_counter() >= until:
                    await asyncio.sleep(0)
                    break

    # Calls

    def _take(self) -> Call | None:
        return self._calls.popleft() if self._calls else None

    async def _do(self, call: Call) -> None:
        path = quote(call.path, safe="/:@!$&'()*+,;=")
        if call.query:
            path = f"{path}?{urlencode(call.query)}"
        answer = await ask_within(
            self.window, self._client, call.method, path, call.body or None,
            call.content_type or JSON,
        )  # fmt: skip
        if answer.status >= 400 or not answer.status:
            # What is refused for good would be asked for again and again in silence.
            level = logging.WARNING if answer.status in (400, 422) else logging.INFO
            log.log(level, "%s %s: %s %s", call.method, path, answer.status, answer.message)
        self.actors.answered(call.id, answer.status, answer.body)
        self._awake.set()


async def discover(client: Client) -> list[tuple[str, str]]:
    """Kinds in namespaces that can be emptied: apiVersion and plural, in all versions, preferred
    ones first. Raises ShellError."""
    found: list[tuple[str, str]] = []
    groups = (await _ask(client, "/apis"))["groups"]
    versions = ["v1"]
    for group in groups:
        preferred = group["preferredVersion"]["groupVersion"]
        versions += dict.fromkeys((preferred, *(v["groupVersion"] for v in group["versions"])))
    for version in versions:
        prefix = "/apis/" if "/" in version else "/api/"
        for resource in (await _ask(client, prefix + version))["resources"]:
            if resource["namespaced"] and DELETABLE in resource["verbs"]:
                found.append((version, resource["name"]))
    return found


async def _ask(client: Client, path: str) -> Any:
    try:
        answer = await client.get(path)
    except AccessError as error:
        raise ShellError(str(error)) from None
    if answer.status != 200:
        what = f"{answer.status} {answer.message}" if answer.status else answer.message
        raise ShellError(f"cannot ask {client.access.server} for {path}: {what}")
    return msgspec.json.decode(answer.body)


async def run_actors(
    kubeconfig: Path | None,
    context: str,
    build: Callable[[list[tuple[str, str]]], Actors],
    ready: Callable[[str], None],
    stop: Callable[[], asyncio.Event],
    seed: int = 0,
) -> None:
    """Actors, until the event is set that `stop` makes. `build` is told what the server has in
    namespaces: apiVersion and plural. Raises ShellError."""
    stopped = stop()
    try:
        access = await unless(stopped, read_access(kubeconfig, context))
    except AccessError as error:
        raise ShellError(str(error)) from None
    except Stopped:
        return
    async with Client(access, USER_AGENT) as client:
        try:
            served = await unless(stopped, discover(client))
        except Stopped:
            return
        shell = ActorShell(client, build(served), seed)
        ready(access.server)
        await shell.run(stopped)
