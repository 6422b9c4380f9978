"""Runs controllers on an API server: reflectors feed them, workers send their requests.

What the controllers do is decided in stower.controllers alone.
"""

import asyncio
import logging
import random
import ssl
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from stower.controllers.objects import RESOURCES, Resource
from stower.controllers.runtime import Call, ControllerManager, resource_path
from stower.garbage import swept_by_the_clock
from stower.live.access import Access, AccessError, read_access
from stower.live.client import JSON, Client, Response
from stower.live.outages import Outages
from stower.live.reflector import (
    Changes,
    ListError,
    Reflector,
    TriedEveryMinute,
    UnstructuredDecoder,
)
from stower.live.shell import (
    Clock,
    ShellError,
    StopRequested,
    request_in_window,
    run_unless_stopped,
    run_until_stopped,
    sleep_until,
)
from stower.live.window import Window
from stower.live.workers import WorkerPool

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 64
KEYS_PER_STEP: Final = 64
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 2.0
USER_AGENT: Final = "stower-actors"
DELETE_COLLECTION: Final = "deletecollection"


class ControllerShell:
    """Runs a ControllerManager. Owns a reflector for each of its kinds, and the workers."""

    def __init__(self, client: Client, manager: ControllerManager, seed: int = 0) -> None:
        self.manager = manager
        self.window = Window(IN_FLIGHT)
        self._client = client
        self._outages = Outages()
        self._clock = Clock()
        self._wake_event = asyncio.Event()
        self._calls: deque[Call] = deque()
        self._workers = WorkerPool[Call](
            self._next_call,
            self._send_call,
            lambda: self.window.size,
            lambda call: f"{call.method} {call.path}",
        )
        self._chance = random.Random(seed)
        self.reflectors = {
            kind: self._make_reflector(kind, RESOURCES[kind]) for kind in manager.kinds
        }
        # Of custom kinds, by the name of the definition.
        self._custom: dict[str, tuple[Resource, asyncio.Task[None]]] = {}

    def _make_reflector(self, kind: str, resource: Resource) -> Reflector:
        version = self.manager.versions.get(kind, resource.api_version)

        def on_list() -> None:
            reflector = self.reflectors[kind]
            self.manager.handle_list(kind, reflector.objects.values(), reflector.resource_version)
            self._wake_event.set()

        def on_changes(changes: Changes) -> None:
            for type, obj in changes:
                self.manager.handle_event(kind, type, obj)
            self._wake_event.set()

        path = resource_path(resource, version=version)
        return Reflector(
            self._client,
            path,
            UnstructuredDecoder(version, resource.kind),
            self._chance,
            on_list=on_list,
            on_changes=on_changes,
            outages=self._outages,
            available=TriedEveryMinute(path) if resource.optional else None,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Raises ShellError."""
        reflecting = [reflector.run() for reflector in self.reflectors.values()]
        try:
            await run_until_stopped(
                stop, self._client.access.server, (*reflecting, self._run_steps())
            )
        finally:
            for _, task in self._custom.values():
                task.cancel()
            await asyncio.gather(*(t for _, t in self._custom.values()), return_exceptions=True)
            await self._workers.close(CLOSE_SECONDS)

    def _follow_custom_kinds(self) -> None:
        """Starts and stops the reflectors of custom kinds, as definitions come and go."""
        wanted = self.manager.seen.custom
        for kind, (resource, task) in list(self._custom.items()):
            if wanted.get(kind) is not resource:
                task.cancel()
                del self._custom[kind], self.reflectors[kind]
        for kind, resource in wanted.items():
            if kind not in self._custom:
                reflector = self.reflectors[kind] = self._make_reflector(kind, resource)
                task = asyncio.create_task(self._reflect_custom_kind(kind, reflector))
                self._custom[kind] = resource, task

    async def _reflect_custom_kind(self, kind: str, reflector: Reflector) -> None:
        try:
            await reflector.run()
        except ListError as error:  # the other kinds go on
            log.warning("cannot follow %s: the server refuses the list of %s", kind, error)

    async def _run_steps(self) -> None:
        while True:
            slice_end_s = time.perf_counter() + SLICE_SECONDS
            while True:
                self._wake_event.clear()
                calls = self.manager.step(self._clock.now_ns(), KEYS_PER_STEP)
                while self.manager.faults:
                    log.error("%s", self.manager.faults.popleft())
                self._follow_custom_kinds()
                if calls:
                    self._calls.extend(calls)
                    self._workers.start_workers(len(self._calls))
                due_ns = self.manager.next_wake_ns
                if due_ns is None or due_ns > self._clock.now_ns():
                    await sleep_until(self._wake_event, due_ns, self._clock)
                    break
                if time.perf_counter() >= slice_end_s:
                    await asyncio.sleep(0)
                    break

    # Calls

    def _next_call(self) -> Call | None:
        return self._calls.popleft() if self._calls else None

    async def _send_call(self, call: Call) -> None:
        path = quote(call.path, safe="/:@!$&'()*+,;=")
        if call.query:
            path = f"{path}?{urlencode(call.query)}"
        answer = await request_in_window(
            self.window, self._client, call.method, path, call.body or None,
            call.content_type or JSON,
        )  # fmt: skip
        if answer.status >= 400 or not answer.status:
            # The controller repeats the request: the log must show that it can never succeed.
            level = logging.WARNING if answer.status in (400, 422) else logging.INFO
            log.log(level, "%s %s: %s %s", call.method, path, answer.status, answer.message)
        self.manager.handle_answer(call.id, answer.status, answer.body)
        self._wake_event.set()


class ServerFacts(NamedTuple):
    """What controllers want to know of a server before they begin.

    resources: see `discover_deletable_resources`; authorities: certificates by which the server is
    verified, in PEM; version: such as v1.36.0, "" where the server tells none.
    """

    resources: list[tuple[str, str]]
    authorities: str
    version: str


async def _find_facts(client: Client) -> ServerFacts:
    resources = await discover_deletable_resources(client)
    answer = await _get(client, "/version")
    told = msgspec.json.decode(answer.body, type=_Version) if answer.status == 200 else _Version()
    return ServerFacts(resources, _authorities(client.access), told.git_version)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


async def discover_deletable_resources(client: Client) -> list[tuple[str, str]]:
    """Returns the namespaced resources that serve deletecollection, as apiVersion and plural.

    They are in all versions, the preferred version of each group first. Raises ShellError.
    """
    resources: list[tuple[str, str]] = []
    groups = (await _get_json(client, "/apis"))["groups"]
    versions = ["v1"]
    for group in groups:
        preferred = group["preferredVersion"]["groupVersion"]
        versions += dict.fromkeys((preferred, *(v["groupVersion"] for v in group["versions"])))
    for version in versions:
        prefix = "/apis/" if "/" in version else "/api/"
        for resource in (await _get_json(client, prefix + version))["resources"]:
            if resource["namespaced"] and DELETE_COLLECTION in resource["verbs"]:
                resources.append((version, resource["name"]))
    return resources


async def _get(client: Client, path: str) -> Response:
    try:
        return await client.get_with_retry(path)
    except AccessError as error:
        raise ShellError(str(error)) from None


async def _get_json(client: Client, path: str) -> Any:
    answer = await _get(client, path)
    if answer.status != 200:
        reason = f"{answer.status} {answer.message}" if answer.status else answer.message
        raise ShellError(f"cannot get {path} from {client.access.server}: {reason}")
    return msgspec.json.decode(answer.body)


def check_has_groups(served: list[tuple[str, str]]) -> None:
    """Raises ShellError where the server has no pod groups."""
    if not any(plural == "podgroups" for _, plural in served):
        raise ShellError("the server has no podgroups: run `kubectl apply -k deploy/groups/crds`")


async def run_controllers(
    kubeconfig: Path | None,
    context: str,
    build: Callable[[ServerFacts], ControllerManager],
    on_ready: Callable[[str], None],
    make_stop_event: Callable[[], asyncio.Event],
    seed: int = 0,
) -> None:
    """Runs controllers until the event that `make_stop_event` returns is set.

    `on_ready` gets the server's address once the manager is built. Raises ShellError.
    """
    stop = make_stop_event()
    try:
        access = await run_unless_stopped(stop, read_access(kubeconfig, context))
    except AccessError as error:
        raise ShellError(str(error)) from None
    except StopRequested:
        return
    async with Client(access, USER_AGENT) as client:
        try:
            facts = await run_unless_stopped(stop, _find_facts(client))
        except StopRequested:
            return
        shell = ControllerShell(client, build(facts), seed)
        on_ready(access.server)
        async with swept_by_the_clock():
            await shell.run(stop)


def _authorities(access: Access) -> str:
    """Returns the certificates that the server is verified by, in PEM; "" over plain HTTP."""
    found = access.tls.get_ca_certs(binary_form=True) if access.tls is not None else []
    return "".join(map(ssl.DER_cert_to_PEM_cert, found))
