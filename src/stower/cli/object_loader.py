"""Creates the objects of files on an API server, in order, at a rate or at a trace's times.

Pods are created concurrently; a request that can succeed later is retried.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from stower.cli.inputs import RawObject, seconds_of
from stower.cli.kube import Kube, KubeError
from stower.live.client import Response
from stower.model.raw import TypeMeta, edit
from stower.sim.workload import RUN

IN_FLIGHT: Final = 32
MESSAGES_MAX: Final = 5
PATIENCE_SECONDS: Final = 30.0  # with a server that does not answer, or not now
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
OWN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
SIMULATED: Final = "stower://"


class LoadResult(msgspec.Struct, rename="camel"):
    """What came of it."""

    created: int = 0
    already_there: int = 0
    failed: int = 0
    seconds: float = 0.0
    messages: list[str] = msgspec.field(default_factory=list)

    @property
    def done_count(self) -> int:
        """How many were dealt with."""
        return self.created + self.already_there + self.failed


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _NamedObject(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


async def discover(kube: Kube) -> dict[tuple[str, str], tuple[str, bool]]:
    """Path (`{}` for the namespace) and whether it has one, by apiVersion and kind."""
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    groups = await kube.get("/apis")
    versions = [v["groupVersion"] for g in groups["groups"] for v in g["versions"]]
    for version in ("v1", *versions):
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in (await kube.get(prefix))["resources"]:
            if "/" not in resource["name"] and "create" in resource["verbs"]:
                within = "/namespaces/{}" if resource["namespaced"] else ""
                path = f"{prefix}{within}/{resource['name']}"
                found.setdefault((version, resource["kind"]), (path, resource["namespaced"]))
    return found


class Loader:
    """Makes objects; pods many at a time, everything else in its order."""

    def __init__(
        self, kube: Kube, namespace: str, kinds: dict[tuple[str, str], tuple[str, bool]]
    ) -> None:
        self.result = LoadResult()
        self._kube = kube
        self._namespace = namespace
        self._kinds = kinds
        self._tasks: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(IN_FLIGHT)
        self._defined = False  # kinds that we do not know yet

    async def run(
        self,
        objects: Iterable[RawObject],
        rate: float,
        speed: float,
        progress: Callable[[int], None],
    ) -> None:
        """All of them. `rate`: pods a second (0: as fast as it goes); `speed`: how much faster than
        a trace's own times, 0 for regardless of them.
        """
        began = time.monotonic()
        first_s: float | None = None
        pods = 0
        for found in objects:
            try:
                kind = msgspec.json.decode(found.data, type=TypeMeta)
                meta = msgspec.json.decode(found.data, type=_NamedObject).metadata
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._fail(f"{found.where}: {error}")
                continue
            if kind.kind != "Pod":
                await self._create(found, kind, meta, found.data)
            else:
                if speed and found.created_s is not None:
                    first_s = found.created_s if first_s is None else first_s
                    await _sleep_until(began + (found.created_s - first_s) / speed)
                elif rate:
                    await _sleep_until(began + pods / rate)
                pods += 1
                data = prepare_pod(found, speed) if found.created_s is not None else found.data
                await self._free.acquire()
                task = asyncio.create_task(self._pod(found, kind, meta, data))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            progress(self.result.done_count)
        await asyncio.gather(*self._tasks)
        progress(self.result.done_count)
        self.result.seconds = time.monotonic() - began

    async def _pod(self, found: RawObject, kind: TypeMeta, meta: _Meta, data: bytes) -> None:
        try:
            await self._create(found, kind, meta, data)
        finally:
            self._free.release()

    async def _create(self, found: RawObject, kind: TypeMeta, meta: _Meta, data: bytes) -> None:
        known = self._kinds.get((kind.api_version, kind.kind))
        if known is None and self._defined:  # of one that we just made, perhaps
            self._defined = False
            self._kinds = await discover(self._kube)
            known = self._kinds.get((kind.api_version, kind.kind))
        if known is None:
            self._fail(f"{found.where}: the server has no {kind.kind} of {kind.api_version}")
            return
        path, namespaced = known
        namespace = quote(meta.namespace or self._namespace, safe="")
        if kind.kind == "Node" and found.data is data:
            data = _node(data)
        path = path.format(namespace) if namespaced else path
        path = f"{path}?fieldManager=stower-load"
        try:
            status, why = await self._post(path, data, namespace if namespaced else "")
        except KubeError as error:
            status, why = 0, str(error)
        if status == 201:
            self._defined |= kind.kind == "CustomResourceDefinition"
            self.result.created += 1
        elif status == 409:
            self.result.already_there += 1
        else:
            self._fail(f"{found.where}: {status or ''} {why}".replace(":  ", ": "))

    async def _post(self, path: str, data: bytes, namespace: str) -> tuple[int, str]:
        """Status and text of the last answer; what may pass is asked again. Raises KubeError."""
        end = time.monotonic() + PATIENCE_SECONDS
        pause = PAUSE_SECONDS
        unsure = False  # whether one that was not answered has made it
        while True:
            try:
                answer = await self._kube.ask("POST", path, data)
            except KubeError:
                if time.monotonic() >= end:
                    raise
                unsure = True
            else:
                if answer.status == 409 and unsure:
                    return 201, ""
                if answer.status == 404 and namespace:
                    wanted, namespace = namespace, ""
                    body = msgspec.json.encode({"metadata": {"name": wanted}})
                    made = await self._kube.ask("POST", "/api/v1/namespaces", body)
                    if made.status not in (201, 409):
                        return made.status, made.message
                elif not _is_temporary(answer) or time.monotonic() >= end:
                    return answer.status, answer.message
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _fail(self, message: str) -> None:
        self.result.failed += 1
        if len(self.result.messages) < MESSAGES_MAX:
            self.result.messages.append(message)


def _is_temporary(answer: Response) -> bool:
    """Whether it may be taken a moment later; a new namespace has no service account at first."""
    no_account = answer.status == 403 and "serviceaccount" in answer.message
    return no_account or answer.status == 429 or answer.status >= 500


async def _sleep_until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0:
        await asyncio.sleep(wait)


def _node(data: bytes) -> bytes:
    """A node of a file is simulated, unless it says whose it is."""
    obj: Any = msgspec.json.decode(data)
    if (obj.get("spec") or {}).get("providerID"):
        return data
    return edit(data, {"spec": {"providerID": SIMULATED + str(obj["metadata"].get("name"))}})


def prepare_pod(found: RawObject, speed: float) -> bytes:
    """A trace's pod as an API server takes it: devices have limits; it ends as it did."""
    obj: Any = msgspec.json.decode(found.data)
    for container in obj["spec"]["containers"]:
        resources = container.get("resources") or {}
        devices = {
            k: v for k, v in (resources.get("requests") or {}).items() if k not in OWN_RESOURCES
        }
        if devices:
            resources["limits"] = {**(resources.get("limits") or {}), **devices}
    obj["spec"].setdefault("restartPolicy", "Never")
    if found.deleted_s is not None and found.created_s is not None and speed:
        lasts = (found.deleted_s - found.created_s) / speed
        notes = obj["metadata"].setdefault("annotations", {})
        notes.setdefault(RUN, f"{max(0.0, lasts):.3f}")
    elif speed and (runs_s := seconds_of(obj["metadata"].get("annotations"), RUN)) is not None:
        obj["metadata"]["annotations"][RUN] = f"{runs_s / speed:.3f}"
    return msgspec.json.encode(obj)
