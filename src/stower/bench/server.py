"""Benchmark of the API server: `python -m stower.bench.server server` prints JSON.

The server has its own process and state directory, and is durable. Writers, watchers and listers
are processes too, so that reading a list of 40 MB does not delay the timing of a bind. Rates are
wall time and depend on the machine; the server's CPU time per request hardly does.
"""

import asyncio
import base64
import itertools
import json
import multiprocessing
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from stower.bench.family import Family, run_once, tell

PODS: Final = 10_000
IN_FLIGHT: Final = 32
NAMESPACE: Final = "/api/v1/namespaces/default"
TICKS: Final = os.sysconf("SC_CLK_TCK")
FAN_OUTS: Final = (50, 200)
START_SECONDS_MAX: Final = 30
PROCESS_SECONDS_MAX: Final = 120
LIST_PAUSE_SECONDS: Final = 0.2


class ServerResult(msgspec.Struct, frozen=True):
    """What a run measured; CPU is the server's.

    Events are those of binds; their CPU has the binds' own in it. validation: reading, defaulting
    and validating a pod and recording its managedFields.
    """

    name: str
    pods: int
    pod_bytes: int
    creates_per_s: float
    create_cpu_us: float
    create_p99_ms: float
    binds_per_s: float
    bind_cpu_us: float
    bind_p99_ms: float
    list_s: float
    list_bytes: int
    list_bind_p99_ms: float
    validation_us: float
    events_per_s_50: float
    event_cpu_us_50: float
    events_per_s_200: float
    event_cpu_us_200: float


FAMILY: Final = Family(
    result=ServerResult,
    best="creates_per_s",
    unit="creates/s",
    ratios={
        "ratio_creates_per_s": "creates_per_s",
        "ratio_create_cpu": "create_cpu_us",
        "ratio_binds_per_s": "binds_per_s",
        "ratio_bind_cpu": "bind_cpu_us",
        "ratio_list": "list_s",
        "ratio_validation": "validation_us",
        "ratio_event_cpu_50": "event_cpu_us_50",
        "ratio_event_cpu_200": "event_cpu_us_200",
    },
    about="API server, durable: creates, binds, lists, watches of 10,000 pods",
)


class Reply(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = bytes(self._data[:head]).lower()
        at = lower.find(b"content-length:")
        if at < 0:  # chunked: whoever asks waits for the last chunk
            if not self._data.endswith(b"0\r\n\r\n"):
                return
            end = len(self._data)
        else:
            end = head + 4 + int(lower[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._data) < end:
                return
        answer, self._answer = self._answer, None
        body = bytes(self._data[head + 4 : end])
        status = int(self._data[9:12])
        del self._data[:end]
        if answer is not None and not answer.done():
            answer.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; its status and body."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class Target:
    """Where the server is, and how to ask it."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        url = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
        self.host, _, port = url.rpartition(":")
        self.port = int(port)
        self.token: str = config["users"][0]["user"]["token"]
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self.context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())

    async def connect(self) -> Reply:
        """A new connection."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(Reply, self.host, self.port, ssl=self.context)
        return protocol

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> bytes:
        """The bytes of a request."""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}"
            f"\r\nContent-Type: {kind}\r\nAccept: application/json\r\n"
            f"User-Agent: bench/1\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


def pod_body(name: str) -> bytes:
    """A pod as a Deployment's are: some 3.5 kB once it is stored."""
    container = {
        "name": "app",
        "image": "registry.example/team/app:1.2.3",
        "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}"} for i in range(6)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    }
    labels = {"app": "web", "pod-template-hash": "5d8f9c7b6", "tier": "front"}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-5d8f9c7b6",
        "uid": "00000000-0000-4000-8000-000000000000",
        "controller": True,
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return json.dumps(
        {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "topologySpreadConstraints": [spread],
            },
        }
    ).encode()


def binding_body(name: str, node: str) -> bytes:
    """The Binding of a pod."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    return json.dumps(body).encode()


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, in user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Load(msgspec.Struct):
    """How a series of requests went."""

    seconds: float
    cpu_s: float
    latencies_s: list[float]

    def p99_ms(self) -> float:
        """The latency that one in a hundred exceeds."""
        ordered = sorted(self.latencies_s)
        return ordered[int(len(ordered) * 0.99)] * 1000


async def series(target: Target, pid: int, requests: list[bytes], want: int = 201) -> Load:
    """Send all requests, IN_FLIGHT at a time."""
    connections = [await target.connect() for _ in range(IN_FLIGHT)]
    waiting = iter(requests)
    latencies: list[float] = []

    async def work(connection: Reply) -> None:
        for request in waiting:
            began = time.perf_counter()
            status, body = await connection.ask(request)
            latencies.append(time.perf_counter() - began)
            if status != want:
                raise RuntimeError(f"status {status}, want {want}: {body[:300]!r}")

    used, began = cpu_s(pid), time.perf_counter()
    await asyncio.gather(*(work(c) for c in connections))
    load = Load(time.perf_counter() - began, cpu_s(pid) - used, latencies)
    for connection in connections:
        connection.close()
    return load


def watch_all(kubeconfig: str, count: int, events: int, box: Any) -> None:
    """In a process of its own: watchers of all pods, until each has seen all events."""
    asyncio.run(_watch_all(Target(Path(kubeconfig)), count, events, box))


async def _watch_all(target: Target, count: int, events: int, box: Any) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    left = count

    class Watcher(asyncio.Protocol):
        seen = 0

        def connection_made(self, transport: Any) -> None:
            path = f"{NAMESPACE}/pods?watch=1&resourceVersion={version}&timeoutSeconds=600"
            transport.write(target.request("GET", path))

        def data_received(self, data: bytes) -> None:
            nonlocal left
            # One line an event; chunk headers end in \r\n, events in \n alone.
            self.seen += data.count(b"}\n")
            if self.seen >= events and self.seen < 1 << 60:
                self.seen = 1 << 60
                left -= 1
                if not left:
                    done.set()

    asker = await target.connect()
    _, body = await asker.ask(target.request("GET", f"{NAMESPACE}/pods?limit=1"))
    version = json.loads(body)["metadata"]["resourceVersion"]
    asker.close()
    for _ in range(count):
        await loop.create_connection(Watcher, target.host, target.port, ssl=target.context)
    await asyncio.sleep(0.5)  # until all of them are waiting
    box.put("ready")
    await done.wait()
    box.put(time.time())


def list_all(kubeconfig: str, box: Any) -> None:
    """In a process of its own: list all pods again and again."""
    asyncio.run(_list_all(Target(Path(kubeconfig)), box))


async def _list_all(target: Target, box: Any) -> None:
    asker = await target.connect()
    while True:
        await asker.ask(target.request("GET", "/api/v1/pods"))
        box.put("listed")
        await asyncio.sleep(LIST_PAUSE_SECONDS)


@asynccontextmanager
async def process(run: Callable[..., None], *arguments: Any) -> AsyncIterator[Any]:
    """A client process for as long as the block lasts; the queue that it reports to."""
    context = multiprocessing.get_context("spawn")
    box = context.Queue()
    made = context.Process(target=run, args=(*arguments, box), daemon=True)
    made.start()
    try:
        yield box
    finally:
        made.kill()
        made.join()


async def fan_out(
    target: Target, pid: int, kubeconfig: Path, watchers: int, requests: list[bytes]
) -> tuple[float, float]:
    """Events a second delivered to all watchers, and server CPU in µs for each."""
    async with process(watch_all, str(kubeconfig), watchers, len(requests)) as box:
        await asyncio.to_thread(box.get, True, PROCESS_SECONDS_MAX)
        used, began = cpu_s(pid), time.time()
        await series(target, pid, requests)
        ended = await asyncio.to_thread(box.get, True, PROCESS_SECONDS_MAX)
        delivered = watchers * len(requests)
        return delivered / (ended - began), (cpu_s(pid) - used) / delivered * 1e6


@asynccontextmanager
async def run_server() -> AsyncIterator[tuple[Path, int]]:
    """A durable server of its own: kubeconfig and process id."""
    with tempfile.TemporaryDirectory(prefix="stower-bench-") as folder:
        command = [sys.executable, "-m", "stower.cli.main", "apiserver", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--state", folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        kubeconfig = Path(folder) / "kubeconfig"
        end = time.monotonic() + START_SECONDS_MAX
        while not kubeconfig.exists() and time.monotonic() < end and process.poll() is None:
            await asyncio.sleep(0.05)
        try:
            if process.poll() is not None:
                assert process.stderr is not None
                raise RuntimeError(process.stderr.read().decode(errors="replace"))
            await asyncio.sleep(0.2)
            yield kubeconfig, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            if process.stderr is not None:
                process.stderr.close()


async def measure(pods: int) -> ServerResult:
    """The whole benchmark."""
    async with run_server() as (kubeconfig, pid):
        target = Target(kubeconfig)

        def creates(prefix: str, count: int) -> list[bytes]:
            return [
                target.request("POST", f"{NAMESPACE}/pods", pod_body(f"{prefix}-{i}"))
                for i in range(count)
            ]

        def binds(prefix: str, count: int) -> list[bytes]:
            made = []
            for i in range(count):
                name = f"{prefix}-{i}"
                body = binding_body(name, f"node-{i % 500}")
                made.append(target.request("POST", f"{NAMESPACE}/pods/{name}/binding", body))
            return made

        tell("server", f"{pods:,} creates")
        await series(target, pid, creates("warm", 500))
        created = await series(target, pid, creates("pod", pods))
        tell("server", f"{pods // 2:,} binds")
        bound = await series(target, pid, binds("pod", pods // 2))
        tell("server", "lists")
        asker = await target.connect()
        list_s, size = await _lists(target, asker)
        count = pods // 4
        await series(target, pid, creates("other", count))
        async with process(list_all, str(kubeconfig)) as box:
            await asyncio.to_thread(box.get, True, PROCESS_SECONDS_MAX)
            beside = await series(target, pid, binds("other", count))
        asker.close()
        fans = []
        for watchers in FAN_OUTS:
            events = max(1, pods // (4 if watchers <= 50 else 16))
            prefix = f"fan-{watchers}"
            tell("server", f"{events:,} events to {watchers} watchers")
            await series(target, pid, creates(prefix, events))
            fans.append(await fan_out(target, pid, kubeconfig, watchers, binds(prefix, events)))
    return ServerResult(
        name="server",
        pods=pods,
        pod_bytes=size // (pods + 500),
        creates_per_s=pods / created.seconds,
        create_cpu_us=created.cpu_s / pods * 1e6,
        create_p99_ms=created.p99_ms(),
        binds_per_s=(pods // 2) / bound.seconds,
        bind_cpu_us=bound.cpu_s / (pods // 2) * 1e6,
        bind_p99_ms=bound.p99_ms(),
        list_s=list_s,
        list_bytes=size,
        list_bind_p99_ms=beside.p99_ms(),
        validation_us=validation_us(),
        events_per_s_50=fans[0][0],
        event_cpu_us_50=fans[0][1],
        events_per_s_200=fans[1][0],
        event_cpu_us_200=fans[1][1],
    )


async def _lists(target: Target, asker: Reply) -> tuple[float, int]:
    """The quickest of three lists of all pods, and its size."""
    best, size = 1e9, 0
    for _ in range(3):
        began = time.perf_counter()
        _, body = await asker.ask(target.request("GET", "/api/v1/pods"))
        best, size = min(best, time.perf_counter() - began), len(body)
    return best, size


def validation_us(count: int = 2000) -> float:
    """CPU for reading, defaulting, validating a pod and recording its fields, in this process."""
    from stower.api import fields_v1, kinds, managed_fields
    from stower.api.calls import Call
    from stower.api.requests import Request
    from stower.api.schema import Reading, skeleton
    from stower.api.server import Api
    from stower.apiserver.tables import load_registry

    api = Api(load_registry())
    resource = api.registry.find("", "v1", "pods")
    assert resource is not None
    kind = resource.type
    assert kind is not None
    hooks = kinds.hooks_of(resource)
    call = Call(api.context, Request("POST", "", 0), resource, "default")
    manager = fields_v1.Manager("bench", "Update", "v1")
    bones = skeleton(kind)
    item = json.loads(pod_body("pod-0"))

    variable = item["spec"]["containers"][0]["env"][0]
    turns = itertools.count()

    def validate_once() -> None:
        variable["value"] = f"value-{next(turns)}"  # no two are alike: nothing is known of it
        made = kind.clean(item, Reading())
        managed_fields.create_managers(kind, bones, made, manager, call.now, ("f:status",))
        if hooks.prepare_create is not None and hooks.validate_create is not None:
            hooks.prepare_create(call, made)
            if hooks.validate_create(call, made):
                raise RuntimeError("the benchmark's pod is not valid")

    return _timed(validate_once, count)


def _timed(once: Callable[[], Any], count: int) -> float:
    for _ in range(100):
        once()
    began = time.process_time()
    for _ in range(count):
        once()
    return (time.process_time() - began) / count * 1e6


if __name__ == "__main__":
    run_once("server", lambda: asyncio.run(measure(PODS)), sys.argv[1:])
