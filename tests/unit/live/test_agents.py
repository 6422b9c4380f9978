"""Agents of VMs over HTTP: each request is answered by the engine, or in time by the shell."""

import asyncio
from typing import Any

import aiohttp
import pytest

from stower.framework.events import AgentAsked
from stower.framework.writes import AgentAnswer
from stower.live import agent_requests as module
from stower.live.agent_requests import AgentRequests
from stower.live.agents import serve_agents
from stower.pki.server_certificate import Serving
from stower.vms.agent import BODY_BYTES_MAX
from tests.unit.live.fake_api import port_in_use, until


def asked(body: bytes, answer: Any, count: int = 1) -> tuple[list[AgentAsked], list[Any]]:
    """What the engine gets, and status, body and type of the responses. `answer`: of the engine."""

    async def story() -> tuple[list[AgentAsked], list[Any]]:
        requests: list[AgentAsked] = []

        def submit(request: AgentAsked) -> None:
            requests.append(request)
            if answer is not None:
                handler.complete(AgentAnswer(request.id, *answer))

        async def post(session: aiohttp.ClientSession) -> Any:
            async with session.post(f"http://127.0.0.1:{port}/any/path", data=body) as response:
                return response.status, await response.text(), response.headers.get("Content-Type")

        handler = AgentRequests(submit)
        async with (
            serve_agents(handler, "127.0.0.1", 0) as port,
            aiohttp.ClientSession() as session,
        ):
            return requests, list(await asyncio.gather(*(post(session) for _ in range(count))))

    return asyncio.run(story())


def test_a_request_goes_to_the_engine_and_its_answer_back() -> None:
    requests, responses = asked(b'{"vm": 1}', (200, '{"ok": true}', "application/json"), 2)
    assert [("POST", b'{"vm": 1}')] * 2 == [(r.method, r.body) for r in requests]
    assert {1, 2} == {request.id for request in requests}
    assert [(200, '{"ok": true}', "application/json")] * 2 == responses


def test_an_answer_may_have_no_type() -> None:
    _, ((status, body, type),) = asked(b"", (405, "want POST", ""))
    assert (405, "want POST", "application/octet-stream") == (status, body, type)


def test_no_more_of_a_body_is_read_than_a_request_can_have() -> None:
    """The engine refuses what is cut."""
    ((request,), _) = asked(b"x" * (BODY_BYTES_MAX + 9), (400, "too long", "text/plain"))
    assert BODY_BYTES_MAX == len(request.body)


def test_an_engine_that_does_not_answer_costs_the_agent_no_more_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.01)
    _, ((status, body, _),) = asked(b"", None)
    assert (503, "no answer within 0.01 s") == (status, body)


def test_a_late_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has got another answer already."""
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.01)

    async def story() -> list[int]:
        requests: list[AgentAsked] = []
        handler = AgentRequests(requests.append)
        statuses = []
        async with (
            serve_agents(handler, "127.0.0.1", 0) as port,
            aiohttp.ClientSession() as session,
        ):
            for _ in range(2):
                async with session.post(f"http://127.0.0.1:{port}/") as response:
                    statuses.append(response.status)
                handler.complete(AgentAnswer(requests[-1].id, 200, "", ""))
        return statuses

    assert [503, 503] == asyncio.run(story())


def test_requests_that_are_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 1)

    async def story() -> list[int]:
        requests: list[AgentAsked] = []
        handler = AgentRequests(requests.append)
        async with (
            serve_agents(handler, "127.0.0.1", 0) as port,
            aiohttp.ClientSession() as session,
        ):
            url = f"http://127.0.0.1:{port}/"
            first = asyncio.create_task(session.post(url))
            await until(lambda: requests)
            async with session.post(url) as second:
                assert "1 requests are pending already" == await second.text()
            handler.complete(AgentAnswer(requests[0].id, 200, "", ""))
            return [(await first).status, second.status]

    assert [200, 503] == asyncio.run(story())


def test_a_port_that_is_taken_is_an_error() -> None:
    async def story(port: int) -> None:
        async with serve_agents(AgentRequests(lambda request: None), "127.0.0.1", port):
            pass

    with port_in_use() as port, pytest.raises(OSError, match="in use"):
        asyncio.run(story(port))


def answered(headers: dict[str, str], token: str = "", method: str = "POST") -> tuple[int, int]:
    """Returns the status of a request with these headers, and how many reached the engine."""

    async def story() -> tuple[int, int]:
        requests: list[AgentAsked] = []

        def submit(request: AgentAsked) -> None:
            requests.append(request)
            handler.complete(AgentAnswer(request.id, 200, "", ""))

        handler = AgentRequests(submit)
        async with (
            serve_agents(handler, "127.0.0.1", 0, token) as port,
            aiohttp.ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{port}/", headers=headers) as response,
        ):
            return response.status, len(requests)

    return asyncio.run(story())


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null", "http://127.0.0.1"])
def test_a_request_of_a_browser_is_refused(origin: str) -> None:
    assert (403, 0) == answered({"Origin": origin})
    assert (403, 0) == answered({"Origin": origin, "Authorization": "Bearer t"}, "t")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic t", "Bearer \u00e9", "t"])
def test_a_request_without_the_token_is_refused(header: str) -> None:
    assert (401, 0) == answered({"Authorization": header} if header else {}, "t")


def test_a_request_with_the_token_is_served() -> None:
    assert (200, 1) == answered({"Authorization": "bearer t "}, "t")
    assert (200, 1) == answered({"Authorization": "Bearer whatever"}), "no token is required"


def test_trace_is_refused() -> None:
    assert (405, 0) == answered({}, method="TRACE")


def test_agents_are_served_over_tls() -> None:
    async def story() -> int:
        handler = AgentRequests(
            lambda request: handler.complete(AgentAnswer(request.id, 200, "", ""))
        )
        tls = Serving(None, None, ("127.0.0.1",)).context
        async with (
            serve_agents(handler, "127.0.0.1", 0, tls=tls) as port,
            aiohttp.ClientSession() as session,
            session.post(f"https://127.0.0.1:{port}/", ssl=False) as response,
        ):
            return response.status

    assert 200 == asyncio.run(story())
