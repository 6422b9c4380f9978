"""A plain client that watches pods, with as little work per event as possible."""

import asyncio
import json
from typing import Any, TypeVar

import msgspec

from stower.bench.server import NAMESPACE, Target


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class WatchedPod(msgspec.Struct):
    """What is looked at of a pod."""

    metadata: _Meta
    spec: _Spec
    status: _Status


class _Event(msgspec.Struct):
    type: str
    object: WatchedPod


class PodWatch(asyncio.Protocol):
    """All pods of the namespace, from a version on."""

    def __init__(self) -> None:
        self.request = b""  # what it asks for
        self.ended = False
        self._rest = b""
        self._decode = msgspec.json.Decoder(_Event).decode

    def on_pod(self, kind: str, pod: WatchedPod) -> None:
        """ADDED, MODIFIED or DELETED."""
        raise NotImplementedError

    def connection_made(self, transport: Any) -> None:
        """Ask."""
        transport.write(self.request)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.ended = True

    def data_received(self, data: bytes) -> None:
        """Some events, perhaps the last one in part."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b'{"type"'):  # all else are headers and sizes of chunks
                event = self._decode(line)
                self.on_pod(event.type, event.object)


W = TypeVar("W", bound=PodWatch)


async def watch_pods(target: Target, watch: W, seconds: int) -> W:
    """From now on, for so long at most."""
    asker = await target.connect()
    _, body = await asker.ask(target.request("GET", f"{NAMESPACE}/pods?limit=1"))
    asker.close()
    version = json.loads(body)["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&timeoutSeconds={seconds}"
    watch.request = target.request("GET", f"{NAMESPACE}/pods?{query}")
    await asyncio.get_running_loop().create_connection(
        lambda: watch, target.host, target.port, ssl=target.context
    )
    return watch
