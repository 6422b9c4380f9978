"""Running: a live scheduler as a source of the dashboard."""

import asyncio
import time
from typing import Any

import pytest

from stower.assembly import build_engine
from stower.dashboard.source import RunningSource
from stower.framework.events import Listed
from stower.framework.plugin import Features
from stower.live.client import Response
from stower.live.scheduler import Options, Scheduler
from stower.record.lines import FORMAT
from stower.record.lines import Engine as Built
from tests.builders import make_node

NOTHING = Response(404, b"{}")
LINE = Built("e", FORMAT, 0, 64, Features(), None)


class Client:
    """A client that returns one response, and records requests."""

    access: Any = None

    def __init__(self, answer: Response = NOTHING) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        self.asked.append((method, path))
        return self.answer


def scheduler_of(client: Any) -> Scheduler:
    """Returns a scheduler that has not started."""
    return Scheduler(client, lambda: build_engine(None), Options("me"))


def test_a_scheduler_that_has_not_started_has_no_engine_and_no_objects() -> None:
    async def main() -> None:
        scheduler = scheduler_of(Client())
        source = RunningSource(scheduler, LINE)
        assert (None, False, 0, []) == (
            source.engine, source.is_ready, source.in_flight, [*source.objects()]
        )  # fmt: skip
        assert source.is_leader is scheduler.is_leader
        assert ({}, LINE) == (source.get_position(), source.get_built())
        await source.wait_for_arrival()

    asyncio.run(main())


def test_a_source_has_the_current_engine_of_its_scheduler() -> None:
    async def main() -> None:
        scheduler = scheduler_of(Client())
        source = RunningSource(scheduler, LINE)
        scheduler.engine = build_engine(None)
        scheduler.engine.step(Listed((make_node(),)), 0)
        assert scheduler.engine is source.engine
        assert scheduler.decisions is source.decisions
        before_ns = time.time_ns()
        assert before_ns <= source.now_ns <= time.time_ns()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (Response(200, b'{"metadata": {"name": "p"}}'), {"metadata": {"name": "p"}}),
        (Response(404, b'{"message": "not found"}'), {}),
        (Response(0, b"connection refused"), {}),
        (Response(200, b"no JSON"), {}),
        (Response(200, b'"\xff"'), {}),
        (Response(200, b"[]"), {}),
        (Response(200, b'{"a":' * 100_000), {}),
    ],
)
def test_a_pod_object_is_requested_from_the_api_server(
    answer: Response, want: dict[str, Any]
) -> None:
    async def main() -> tuple[dict[str, Any], list[tuple[str, str]]]:
        client = Client(answer)
        found = await RunningSource(scheduler_of(client), LINE).pod_object("default/a b?")
        return found, client.asked

    found, asked = asyncio.run(main())
    assert want == found
    assert [("GET", "/api/v1/namespaces/default/pods/a%20b%3F")] == asked
