"""The endpoints of a scheduler over HTTP: health, metrics and dumps, and who may read them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from stower.assembly import build_engine
from stower.framework.decisions import Decision
from stower.framework.events import Event
from stower.framework.observer import Observer
from stower.live import debug, reflector
from stower.live.authorization import Authorizer, StaticTokenAuthorizer
from stower.live.client import Response
from stower.live.endpoint import endpoint, serve_routes, with_authorization
from stower.live.samples import collect_samples
from stower.live.scheduler import Options, Scheduler
from stower.vms.controller import VmScheduling
from tests.unit.live.fake_api import PODS, FakeApi, until

VMS = {"profiles": [{
    "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
    "pluginConfig": [{"name": "AutoscaleEnforcer", "args": {"schedulerName": "default-scheduler"}}],
}]}  # fmt: skip
TOKEN = {"Authorization": "Bearer secret"}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(debug, "RECHECK_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def scheduling(fake: FakeApi) -> AsyncIterator[Scheduler]:
    """A scheduler with an engine."""
    client: Any = fake
    # As when it is served: with observers, decisions keep the examples of rejected nodes.
    scheduler = Scheduler(client, build_engine, Options("me"), [Observer()])
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    try:
        await until(lambda: scheduler.engine)
        yield scheduler
    finally:
        stop.set()
        await running


class Failing(Observer):
    """Raises whatever it is called with."""

    def on_step(self, event: Event, duration_s: float) -> None:
        raise IndexError("planted")

    def on_decision(self, decision: Decision) -> None:
        raise IndexError("planted")

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        raise IndexError("planted")


@pytest.mark.internal_errors
def test_what_only_observes_does_not_end_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observers, dumps, metrics and companions' metrics raise: they are answered with 500, or
    counted, and the pods that come are bound all the same."""

    def fail(*_: Any) -> Any:
        raise IndexError("planted")

    monkeypatch.setattr(VmScheduling, "metrics", fail)
    monkeypatch.setattr(debug, "HANDLERS", {**debug.HANDLERS, "/debug/queue": fail})
    statuses: list[int] = []

    async def story() -> None:
        fake = FakeApi()
        fake.add_node()
        client: Any = fake
        scheduler = Scheduler(client, lambda: build_engine(VMS), Options("me"), [Failing()])
        stop = asyncio.Event()
        running = asyncio.create_task(scheduler.run(stop))
        await until(lambda: scheduler.engine)
        assert scheduler.companion_metrics() == []
        serving = endpoint(scheduler, fail, StaticTokenAuthorizer("secret"))
        async with serving as port, aiohttp.ClientSession(headers=TOKEN) as session:
            for path in ("/metrics", "/debug/queue", "/debug/cache"):
                statuses.append((await get(session, f"http://127.0.0.1:{port}{path}"))[0])
        fake.add_pod("late")
        await until(lambda: fake.node_of("late"))
        engine = scheduler.engine
        assert engine is not None
        assert {"observer", "companion status"} <= set(engine.errors.counts)
        stop.set()
        await running

    asyncio.run(story())
    assert statuses == [500, 500, 200]


async def get(session: aiohttp.ClientSession, url: str, **more: Any) -> tuple[int, Any]:
    """Status, and the decoded body or its text."""
    async with session.get(url, **more) as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


def served(*paths: str, fake: FakeApi | None = None, **headers: str) -> list[tuple[int, Any]]:
    """The answers of a scheduler that has bound one pod and cannot place another."""

    async def story() -> list[tuple[int, Any]]:
        api = fake or FakeApi()
        api.add_node()
        async with scheduling(api) as scheduler:
            api.add_pod("bound")
            api.add_pod("waiting", cpu="100")
            await until(lambda: api.node_of("bound") and "FailedScheduling" in api.events())
            await until(lambda: not scheduler.in_flight)

            def extra(_: Scheduler, authorizer: Authorizer) -> Sequence[web.RouteDef]:
                async def page(request: web.Request) -> web.Response:
                    return web.Response(text="a page")

                return [web.get("/page", with_authorization(authorizer, page))]

            door = StaticTokenAuthorizer("secret")
            serving = endpoint(scheduler, lambda: b"metric 1\n", door, extra_routes=extra)
            async with serving as port, aiohttp.ClientSession(headers=headers or TOKEN) as session:
                return [await get(session, f"http://127.0.0.1:{port}{path}") for path in paths]

    return asyncio.run(story())


def test_dumps_show_the_queue_the_cache_and_decisions() -> None:
    index, queue, cache, none, decisions, about, unknown, metrics, page = served(
        "/debug/", "/debug/queue", "/debug/cache", "/debug/cache?node=n2",
        "/debug/decisions?pod=default/bound", "/debug/pod?pod=default/waiting", "/debug/pod",
        "/metrics", "/page",
    )  # fmt: skip
    paths = ["/debug/cache", "/debug/comparison", "/debug/decisions", "/debug/pod", "/debug/queue"]
    assert (200, {"paths": ["/metrics", *paths]}) == index
    (waiting,) = queue[1]["pods"]
    assert (True, 0) == (queue[1]["leads"], queue[1]["more"])
    assert ("default/waiting", ["NodeResourcesFit"]) == (waiting["pod"], waiting["refusedBy"])
    (node,) = cache[1]["nodes"]
    assert ("n1", 4000, 1000) == (
        node["node"], node["allocatable"]["cpuMilli"], node["requested"]["cpuMilli"],
    )  # fmt: skip
    assert ["default/bound"] == node["pods"]
    assert {"nodes": [], "more": 0} == none[1]
    (decision,) = decisions[1]
    assert ("placed", "n1", []) == (decision["outcome"], decision["node"], decision["refused"])
    (refused,) = about[1]["decisions"][-1]["refused"]
    assert ("NodeResourcesFit", 1) == (refused["plugin"], refused["nodes"])
    assert about[1]["place"].startswith(("unschedulable", "backoff"))
    assert {"pod": "", "decisions": [], "place": "not in the queue"} == unknown[1]
    assert (200, "metric 1\n") == metrics
    assert (200, "a page") == page


def test_only_health_needs_no_authorization() -> None:
    paths = ("/healthz", "/livez", "/readyz", "/debug/", "/debug/queue", "/debug/comparison",
             "/metrics", "/page")  # fmt: skip
    *healthy, index, queue, comparison, metrics, page = served(*paths, Authorization="Bearer no")
    assert [(200, "ok")] * 3 == healthy
    assert {(401, "wrong bearer token\n")} == {index, queue, comparison, metrics, page}


def test_a_cache_that_is_as_the_api_has_no_differences() -> None:
    ((status, found),) = served("/debug/comparison")
    assert (200, True) == (status, found["equal"])
    assert [[]] * 5 == [value for key, value in found.items() if key != "equal"]


def test_differences_between_cache_and_api_are_shown() -> None:
    """What only one of two looks has found is none: the watch may be late."""

    async def story() -> tuple[Any, Any]:
        fake = FakeApi()
        for name in ("n1", "n2"):
            fake.add_node(name)
        async with scheduling(fake) as scheduler:
            for name in ("here", "moved", "gone"):
                fake.add_pod(name)
                await until(lambda: fake.node_of(name))  # noqa: B023
            await until(lambda: not scheduler.in_flight and not scheduler.inbox_size)
            assert scheduler.engine is not None
            stranger = fake.add_pod("stranger", schedulerName="other")
            await until(lambda: stranger["metadata"]["uid"] in scheduler.reflectors.pods.objects)

            def answer(method: str, path: str) -> Response | None:
                nonlocal is_first
                if not path.startswith("/api/v1/pods?") or (is_late and not is_first):
                    return None
                is_first = False
                listed = fake.call("GET", "/api/v1/pods")
                items = {item["metadata"]["name"]: item for item in listed["items"]}
                items["moved"]["spec"]["nodeName"] = "n9"
                items["new"] = {"metadata": {"name": "new", "namespace": "x", "uid": "u"}}
                del items["gone"]
                return encoded({"metadata": {}, "items": [*items.values()]})

            is_late, is_first = False, True
            fake.fault = answer
            different = await debug.compare_cache(scheduler)
            is_late, is_first = True, True
            late = await debug.compare_cache(scheduler)
            return different, late

    different, late = asyncio.run(story())
    assert not different["equal"]
    assert ["x/new on no node"] == different["podsOnlyInApi"]
    assert ["default/gone"] == different["podsOnlyInCache"]
    (moved,) = different["podsElsewhere"]
    assert moved.startswith("default/moved on n9, in the cache on n")
    assert late["equal"]


def encoded(value: Any) -> Response:
    return Response(200, msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("answer", "why"),
    [(Response(403, b'{"message": "not you"}'), "/api/v1/nodes: 403 not you"),
     (Response(200, b"no list"), "/api/v1/nodes: ")],
)  # fmt: skip
def test_an_api_that_cannot_be_listed_cannot_be_compared(answer: Response, why: str) -> None:
    async def story() -> tuple[int, Any]:
        fake = FakeApi()
        async with scheduling(fake) as scheduler:
            fake.fault = lambda method, path: answer if path.startswith("/api/v1/nodes?") else None
            serving = endpoint(scheduler, lambda: b"", StaticTokenAuthorizer("secret"))
            async with serving as port, aiohttp.ClientSession(headers=TOKEN) as session:
                return await get(session, f"http://127.0.0.1:{port}/debug/comparison")

    status, text = asyncio.run(story())
    assert 502 == status
    assert text.startswith(why)


def test_a_standby_has_nothing_to_dump() -> None:
    """Its engine is built when all has been listed."""
    client: Any = FakeApi()
    scheduler = Scheduler(client, build_engine, Options("me"))
    assert {"leads": True, "counts": {}, "pods": [], "more": 0} == debug.dump_queue(scheduler, {})
    assert {"nodes": [], "more": 0} == debug.dump_cache(scheduler, {})
    assert "not in the queue" == debug.dump_pod(scheduler, {"pod": "default/p"})["place"]
    with pytest.raises(debug.ComparisonFailed, match="the cache is empty: the objects"):
        asyncio.run(debug.compare_cache(scheduler))
    samples = {name for name, _, _ in collect_samples(scheduler)}
    assert "scheduler_unschedulable_pods" not in samples


def test_samples_count_pods_by_queue_and_by_plugin() -> None:
    async def story() -> dict[tuple[str, tuple[str, ...]], float]:
        fake = FakeApi()
        fake.add_node()
        async with scheduling(fake) as scheduler:
            fake.add_pod("bound")
            fake.add_pod("waiting", cpu="100")
            await until(lambda: fake.node_of("bound") and "FailedScheduling" in fake.events())
            await until(lambda: not scheduler.in_flight and not scheduler.inbox_size)
            scheduler.max_stall_s = 9.0
            found = {(name, labels): value for name, labels, value in collect_samples(scheduler)}
            assert scheduler.max_stall_s < 9.0
            assert ("leader_election_master_status", ("kube-scheduler",)) not in found
            assert 2 == len(fake.call("GET", PODS)["items"])
            return found

    found = asyncio.run(story())
    assert 1 == found["scheduler_pending_pods", ("unschedulable",)]
    assert 0 == found["scheduler_pending_pods", ("active",)]
    assert 1 == found["scheduler_unschedulable_pods", ("NodeResourcesFit", "default-scheduler")]
    assert (1, 2) == (
        found["scheduler_cache_size", ("nodes",)], found["scheduler_cache_size", ("pods",)],
    )  # fmt: skip
    assert found["stower_writes_sent", ()] >= 3
    assert 9.0 == found["stower_loop_stall_seconds_max", ()]
    assert any(name == "scheduler_queue_incoming_pods" for name, _ in found)


@pytest.mark.parametrize("is_ready", [False, True])
def test_readiness_is_that_of_all_checks(is_ready: bool) -> None:
    async def story() -> list[tuple[int, Any]]:
        health = {"lists": lambda: True, "other": lambda: is_ready}
        async with serve_routes([], health, 0) as port, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/readyz"
            return [await get(session, url), await get(session, url, params={"verbose": ""})]

    short, verbose = asyncio.run(story())
    if is_ready:
        assert (200, "ok") == short
        assert (200, "[+]lists ok\n[+]other ok\nreadyz check passed\n") == verbose
    else:
        assert short == verbose
        assert (503, "[+]lists ok\n[-]other failed\nreadyz check failed\n") == verbose


@pytest.mark.parametrize(
    "head",
    [
        b"Authorization: Bearer SECRET" + b"s" * 20_000,
        b"Authorization: Bearer SECRET\x00",
        b"SECRET",
        b"X: y\r\nAuthorization\x00: Bearer SECRET",
    ],
)
def test_no_part_of_a_header_is_logged(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> bytes:
        async with serve_routes([], {}, 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
            answer = await reader.read(12)
            writer.close()
            await writer.wait_closed()
            return answer

    with caplog.at_level(logging.DEBUG):
        assert b" 400" == asyncio.run(story())[8:]
    assert "SECRET" not in caplog.text
    assert "status 400" in caplog.text
