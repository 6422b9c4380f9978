"""A scheduler on an API server in this process: what it writes, and what it gives up."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.explain.agreement import Judgement
from stower.framework.decisions import Decision, Outcome
from stower.framework.election import LeaderElectionConfig
from stower.framework.events import AgentAsked, Event, Hold, Listed, WriteFailed, WriteOk
from stower.framework.extenders import Extender
from stower.framework.observer import Observer
from stower.framework.writes import AgentAnswer, ApiWrite, Write
from stower.live import reflector, scheduler, shadow
from stower.live.client import Response
from stower.live.rights import REVIEW
from stower.live.scheduler import Options, Scheduler, has_reached_version
from stower.live.shadow import ShadowComparer
from stower.live.shell import ShellError
from tests.unit.live.fake_api import PODS, FakeApi, serving, until

MS = 1_000_000
NOT_FOUND = Response(404, b'{"message": "no such path"}')
ELECTION = LeaderElectionConfig(lease_ns=9_000 * MS, renew_deadline_ns=6_000 * MS, retry_ns=20 * MS)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(scheduler, "CATCH_UP_SECONDS", 0.01)


class Watching(Observer):
    """Keeps what an observer is called with."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.bound: list[str] = []
        self.failed: list[str] = []
        self.steps: list[Event] = []
        self.writes: list[ApiWrite] = []
        self.requests: list[tuple[str, int]] = []

    def on_decision(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        assert latency_s >= 0
        self.bound.append(decision.name)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        self.failed.append(decision.name)

    def on_step(self, event: Event, duration_s: float) -> None:
        self.steps.append(event)

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        self.writes.append(write)

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        self.requests.append((method, status))


class Tape:
    """A recording in a list; a new part begins with each engine."""

    def __init__(self) -> None:
        self.is_full = False
        self.engines: list[str] = []
        self.steps: list[Event] = []
        self.flushes = 0

    def record_engine(self, engine: str) -> None:
        self.engines.append(engine)
        self.is_full = False

    def record_step(self, engine: str, now_ns: int, event: Event, writes: Sequence[Write]) -> None:
        self.steps.append(event)

    def flush(self) -> None:
        self.flushes += 1


@contextlib.asynccontextmanager
async def running(
    fake: FakeApi,
    options: Options = Options("me"),  # noqa: B008
    observers: Sequence[Observer] = (),
    recording: Any = None,
    build: Callable[[], Engine] = build_engine,
) -> AsyncIterator[Scheduler]:
    """A scheduler that runs until the block ends."""
    client: Any = fake
    made = Scheduler(client, build, options, observers, recording)
    stop = asyncio.Event()
    task = asyncio.create_task(made.run(stop))
    try:
        yield made
        if task.done():
            await task
    finally:
        stop.set()
        await task


def test_a_pod_is_bound_and_observers_are_called_at_each_step() -> None:
    async def story() -> tuple[FakeApi, Watching]:
        fake, watching = FakeApi(), Watching()
        fake.add_node()
        async with running(fake, observers=[watching]) as made:
            assert not made.is_ready
            await until(lambda: made.engine)
            fake.add_pod("p")
            await until(lambda: watching.bound and "Scheduled" in fake.events())
            assert made.is_ready
            assert made.is_leader
            await until(lambda: made.inbox_size == 0)
            assert "" == made.lease_name
            assert "p" == made.decisions[-1].name
            assert ["n1", "p"] == [o.metadata.name for o in made.objects()][-2:]
            assert [] == made.companion_metrics()
        return fake, watching

    fake, watching = asyncio.run(story())
    assert "n1" == fake.node_of("p")
    assert "Successfully assigned default/p to n1" == fake.events()["Scheduled"]
    assert [("p", Outcome.PLACED)] == [(d.name, d.outcome) for d in watching.decisions]
    assert ["p"] == watching.bound
    assert [] == watching.failed
    assert isinstance(watching.steps[0], Listed)
    assert {"Bind", "CreateEvent"} == {type(write).__name__ for write in watching.writes}
    assert ("POST", 201) in watching.requests


def test_an_unschedulable_pod_gets_a_condition_and_is_bound_when_there_is_room() -> None:
    async def story() -> FakeApi:
        fake = FakeApi()
        fake.add_node(cpu="1")
        fake.add_pod("big", cpu="2")
        async with running(fake):
            await until(lambda: "FailedScheduling" in fake.events())
            pod = fake.call("GET", f"{PODS}/big")
            found = {c["type"]: c["reason"] for c in pod["status"]["conditions"]}
            assert "Unschedulable" == found["PodScheduled"]
            fake.add_node("n2", cpu="4")
            await until(lambda: fake.node_of("big"))
        return fake

    assert "n2" == asyncio.run(story()).node_of("big")


def test_a_refused_binding_is_reported_and_a_lost_one_is_not() -> None:
    """404 says that the binding was not made; without an answer it may have been."""
    statuses = {"gone": 404, "lost": 0}

    def fault(method: str, path: str) -> Response | None:
        name = path.removesuffix("/binding").rpartition("/")[2]
        if not path.endswith("/binding") or name not in statuses:
            return None
        return Response(statuses[name], b'{"message": "no"}')

    async def story() -> Watching:
        fake, watching = FakeApi(fault), Watching()
        fake.add_node()
        fake.add_pod("gone")
        fake.add_pod("lost")
        async with running(fake, observers=[watching]) as made:
            await until(lambda: len(watching.writes) >= 2)
            await until(lambda: not made.in_flight)
            fake.call("DELETE", f"{PODS}/lost?gracePeriodSeconds=0")
            fake.add_pod("next")
            await until(lambda: "next" in watching.bound)
        return watching

    watching = asyncio.run(story())
    assert ["gone"] == watching.failed
    assert "lost" not in watching.bound


def test_the_maker_of_an_unreadable_pod_gets_an_event() -> None:
    """Only for pods of this scheduler without a node: others report the rest."""

    def pod(name: str, **spec: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "99999"}
        return {"type": "ADDED", "object": {"metadata": meta, "spec": {"containers": 7, **spec}}}

    async def story() -> list[str]:
        fake = FakeApi()
        fake.inject("/api/v1/pods", pod("early"))
        async with running(fake) as made:
            await until(lambda: made.engine)
            fake.inject("/api/v1/pods", pod("placed", nodeName="n1"))
            fake.inject("/api/v1/pods", pod("strange", schedulerName="other"))
            fake.inject("/api/v1/pods", pod("bad"))
            await until(fake.events)
            items = fake.call("GET", "/apis/events.k8s.io/v1/events")["items"]
        return [f"{item['regarding']['name']}: {item['note']}" for item in items]

    (note,) = asyncio.run(story())
    assert note.startswith("bad: Cannot decode the pod: ")


def test_all_pods_are_bound_though_the_inbox_is_full_at_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "INBOX_MAX", 0)

    async def story() -> list[str]:
        fake = FakeApi()
        fake.add_node()
        names = [f"p{number}" for number in range(8)]
        async with running(fake) as made:
            await until(lambda: made.engine)
            for name in names:
                fake.add_pod(name, cpu="100m")
                await asyncio.sleep(0)
            await until(lambda: all(map(fake.node_of, names)))
        return [fake.node_of(name) for name in names]

    assert ["n1"] * 8 == asyncio.run(story())


def test_a_forgotten_history_is_made_good_by_a_new_list() -> None:
    """The pod was deleted while there was no watch: its room is free again."""
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}

    async def story() -> int:
        fake, watching = FakeApi(), Watching()
        fake.add_node(cpu="1")
        async with running(fake, observers=[watching]) as made:
            await until(lambda: made.engine)
            fake.add_pod("first")
            await until(lambda: fake.node_of("first"))
            fake.inject("/api/v1/pods", gone)
            await until(lambda: made.reflectors.pods.relist_count)
            fake.call("DELETE", f"{PODS}/first?gracePeriodSeconds=0")
            fake.add_pod("second")
            await until(lambda: fake.node_of("second"))
        return sum(isinstance(event, Listed) for event in watching.steps)

    assert 2 == asyncio.run(story())


def test_a_standby_takes_over_when_the_leader_stops() -> None:
    """The leader gives its Lease up; the standby has kept its engine up to date, and held."""

    async def story() -> tuple[list[str], list[Event]]:
        fake, watching = FakeApi(), Watching()
        fake.add_node()
        async with contextlib.AsyncExitStack() as stack:
            first = contextlib.AsyncExitStack()
            await first.enter_async_context(running(fake, Options("a", leader_election=ELECTION)))
            fake.add_pod("early")
            await until(lambda: fake.node_of("early"))
            other = await stack.enter_async_context(
                running(fake, Options("b", leader_election=ELECTION), [watching])
            )
            await until(lambda: len(watching.steps) >= 2)
            assert (False, "kube-scheduler") == (other.is_leader, other.lease_name)
            await first.aclose()
            fake.add_pod("late")
            await until(lambda: fake.node_of("late"))
            assert other.is_leader
        return [fake.node_of("early"), fake.node_of("late")], watching.steps

    nodes, steps = asyncio.run(story())
    assert ["n1", "n1"] == nodes
    holds = [step.is_on for step in steps if isinstance(step, Hold)]
    assert [True, False] == holds


def test_a_scheduler_that_cannot_renew_its_lease_ends() -> None:
    short = LeaderElectionConfig(lease_ns=900 * MS, renew_deadline_ns=300 * MS, retry_ns=5 * MS)

    async def story() -> None:
        fake = FakeApi()
        async with running(fake, Options("a", leader_election=short)) as made:
            await until(lambda: made.is_leader and made.is_ready)
            fake.fault = lambda method, path: Response(500, b"{}") if "leases" in path else None
            await until(lambda: not made.is_leader)
            await asyncio.sleep(0.01)

    with pytest.raises(
        ShellError, match="lost leadership: stopping, as another scheduler may lead"
    ):
        asyncio.run(story())


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [("5", "5", True), ("4", "5", False), ("10", "9", True), ("", "5", True), ("a", "b", True)],
)
def test_versions_that_are_no_numbers_are_never_waited_for(
    version: str, wanted: str, expected: bool
) -> None:
    assert expected == has_reached_version(version, wanted)


def test_a_recording_has_every_event_and_a_new_engine_when_it_is_full() -> None:
    async def story() -> Tape:
        fake, tape = FakeApi(), Tape()
        fake.add_node()
        async with running(fake, Options("me"), recording=tape) as made:
            await until(lambda: made.engine)
            fake.add_pod("first")
            await until(lambda: fake.node_of("first"))
            tape.is_full = True
            fake.add_pod("second")
            await until(lambda: fake.node_of("second"))
            assert not tape.is_full
        return tape

    tape = asyncio.run(story())
    assert ["me", "me"] == tape.engines
    assert isinstance(tape.steps[0], Listed)
    (hold,) = (index for index, step in enumerate(tape.steps) if isinstance(step, Hold))
    rest = tape.steps[hold + 1 :]
    assert 1 == sum(isinstance(step, Listed) for step in rest)


def test_an_event_on_which_the_engine_fails_is_recorded() -> None:
    class Broken(RuntimeError):
        pass

    def build() -> Engine:
        engine = build_engine()

        def step(event: Event, now_ns: int) -> list[Write]:
            raise Broken

        engine.step = step  # type: ignore[method-assign]
        return engine

    tape = Tape()

    async def story() -> None:
        async with running(FakeApi(), Options("me"), recording=tape, build=build):
            await until(lambda: tape.steps)
            await asyncio.sleep(0)

    with pytest.raises(Broken):
        asyncio.run(story())
    assert [Listed] == [type(step) for step in tape.steps]


def test_a_recording_is_flushed_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "FLUSH_SECONDS", 0.001)

    async def story() -> None:
        tape = Tape()
        async with running(FakeApi(), recording=tape):
            await until(lambda: tape.flushes >= 2)

    asyncio.run(story())


def test_a_shadow_judges_another_schedulers_decisions_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadow, "REORDER_DELAY_NS", MS)
    judged: list[Judgement] = []

    async def story() -> FakeApi:
        fake = FakeApi()
        fake.add_node()
        fake.add_pod("waiting", cpu="1")
        options = Options("shadow", shadow=ShadowComparer(judged.append))
        async with running(fake, options) as made:
            await until(lambda: made.engine)
            fake.add_pod("p")
            target = {"target": {"kind": "Node", "apiVersion": "v1", "name": "n1"}}
            fake.call("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, **target})
            await until(lambda: judged)
            fake.inject("/api/v1/pods", {"type": "ERROR", "object": {"code": 410}})
            await until(lambda: made.reflectors.pods.relist_count)
        return fake

    fake = asyncio.run(story())
    assert [("default/p", "n1", "agrees")] == [(j.pod, j.node, j.verdict) for j in judged]
    assert {REVIEW} == {path for method, path in fake.sent if method != "GET"}, (
        "which stores nothing"
    )


def test_an_extender_takes_part_in_decisions(caplog: pytest.LogCaptureFixture) -> None:
    """Its first answer is an error, which is logged; the pod is tried again."""
    config = {"urlPrefix": "", "filterVerb": "filter", "nodeCacheCapable": True}

    async def story() -> None:
        fake, asked = FakeApi(), []
        fake.add_node("n1")
        fake.add_node("n2")

        async def handle(request: web.Request) -> web.Response:
            asked.append(await request.json())
            if asked[-1]["Pod"]["metadata"]["name"] == "bad":
                return web.Response(status=500)
            return web.json_response({"NodeNames": ["n2"]})

        async with serving(handle) as url:
            extender = Extender(url, filter_verb="filter", node_cache_capable=True)
            document = {"extenders": [{**config, "urlPrefix": url}]}
            async with running(
                fake, Options("me", extenders=(extender,)), build=lambda: build_engine(document)
            ):
                fake.add_pod("p")
                await until(lambda: fake.node_of("p"))
                fake.add_pod("bad")
                await until(lambda: f"extender {url} failed for pod default/bad" in caplog.text)
        assert "n2" == fake.node_of("p")
        assert {"n1", "n2"} == set(asked[0]["NodeNames"])

    with caplog.at_level(logging.INFO, "stower.live.extenders"):
        asyncio.run(story())
    assert "status 500, want 200" in caplog.text


def test_an_agent_is_refused_until_there_is_an_engine() -> None:
    """And by the engine, if no plugin serves agents."""

    async def story() -> list[AgentAnswer]:
        fake = FakeApi()
        client: Any = fake
        made = Scheduler(client, build_engine, Options("me"))
        answers: list[AgentAnswer] = []
        made.agents.complete = answers.append  # type: ignore[method-assign]
        made._on_agent_request(AgentAsked(1, "POST", b"{}"))
        stop = asyncio.Event()
        task = asyncio.create_task(made.run(stop))
        await until(lambda: made.engine)
        made._on_agent_request(AgentAsked(2, "POST", b"{}"))
        await until(lambda: len(answers) == 2)
        stop.set()
        await task
        return answers

    first, second = asyncio.run(story())
    assert (1, 503, "this scheduler is not the leader, or is not ready yet") == (
        first.id,
        first.status,
        first.body,
    )
    assert (2, 404) == (second.id, second.status)


def test_a_stalled_loop_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "STALL_CHECK_SECONDS", 0.001)

    async def story() -> None:
        async with running(FakeApi()) as made:
            await until(lambda: made.max_stall_s > 0)

    asyncio.run(story())


def test_a_resource_that_is_not_served_counts_as_empty() -> None:
    async def story() -> None:
        fake = FakeApi(lambda _, path: NOT_FOUND if "/resource.k8s.io/" in path else None)
        fake.add_node()
        async with running(fake) as made:
            await until(lambda: made.engine)
            fake.add_pod("p")
            await until(lambda: fake.node_of("p"))

    asyncio.run(story())


def test_a_scheduler_ends_if_nodes_are_not_served() -> None:
    client: Any = FakeApi(lambda _, path: NOT_FOUND if "/nodes" in path else None)
    made = Scheduler(client, build_engine, Options("me"))
    with pytest.raises(
        ShellError, match=r"https://api.test refuses the list of /api/v1/nodes: 404 no such"
    ):
        asyncio.run(made.run(asyncio.Event()))
