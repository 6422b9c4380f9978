"""What clients may hold open, and what is said about requests that are none."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stower.framework.writes import AgentAnswer
from stower.live import agents, http_runner
from stower.live.agent_requests import AgentRequests
from stower.live.agents import serve_agents
from stower.pki.server_certificate import Serving

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[bytes], Awaitable[Streams]]


def told(story: Callable[[Connect], Awaitable[Any]]) -> Any:
    """What a story returns that connects to the port of the agents and sends bytes."""

    async def whole() -> Any:
        handler = AgentRequests(lambda asked: handler.complete(AgentAnswer(asked.id, 200, "", "")))
        writers = []
        async with serve_agents(handler, "127.0.0.1", 0) as port:

            async def connect(data: bytes) -> Streams:
                streams = await asyncio.open_connection("127.0.0.1", port)
                writers.append(streams[1])
                streams[1].write(data)
                await streams[1].drain()
                return streams

            found = await story(connect)
            for writer in writers:
                writer.close()
            return found

    return asyncio.run(whole())


async def read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def read_status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


@pytest.mark.parametrize("data", [b"", b"POST / HTTP/1.1\r\nHo", b"\r\n"])
def test_who_does_not_say_what_is_wanted_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(http_runner, "HEADERS_SECONDS_MAX", 0.02)

    async def story(connect: Connect) -> bytes:
        reader, _ = await connect(data)
        return await read_all(reader)

    assert b"" == told(story)


def test_who_begins_a_second_request_and_does_not_end_it_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_runner, "HEADERS_SECONDS_MAX", 0.02)

    async def story(connect: Connect) -> int:
        reader, writer = await connect(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REQUEST[:9])
        return len(await read_all(reader))

    assert 0 == told(story)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "BODY_SECONDS", 0.02)

    async def story(connect: Connect) -> int:
        reader, _ = await connect(REQUEST[:-1])
        return await read_status(reader)

    assert 408 == told(story)


@pytest.mark.parametrize("data", [b"P", REQUEST])
def test_who_asks_for_nothing_gives_way_where_connections_are_too_many(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Whether or not they have asked for something before."""
    monkeypatch.setattr(http_runner, "CONNECTIONS_MAX", 3)

    async def story(connect: Connect) -> int:
        others = [await connect(data) for _ in range(4)]
        await read_all(others[0][0])  # to its end
        reader, _ = await connect(REQUEST)
        return await read_status(reader)

    assert 200 == told(story)


def test_who_is_refused_is_cut_off() -> None:
    async def story(connect: Connect) -> bytes:
        reader, _ = await connect(REQUEST.replace(b"Host", b"Origin: http://x\r\nHost"))
        return await read_all(reader)

    assert told(story).startswith(b"HTTP/1.1 403 ")


def test_tls_handshakes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_runner, "CONNECTIONS_MAX", 3)
    tls = Serving(None, None, ("127.0.0.1",)).context

    async def story() -> bytes:
        handler = AgentRequests(lambda asked: None)
        async with serve_agents(handler, "127.0.0.1", 0, tls=tls) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            refused = await read_all(silent[3][0])
            for _, writer in silent:
                writer.close()
            return refused

    assert b"" == asyncio.run(story())


def test_compressed_bodies_are_refused() -> None:
    async def story(connect: Connect) -> int:
        reader, _ = await connect(REQUEST.replace(b"Host", b"Content-Encoding: gzip\r\nHost"))
        return await read_status(reader)

    assert 415 == told(story)


@pytest.mark.parametrize("second", [b"secret-token\r\n", b"", b"0\r\nsecret-token\r\n\r\n"])
def test_a_body_that_breaks_off_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture, second: bytes
) -> None:
    async def story(connect: Connect) -> None:
        head = REQUEST.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]
        reader, writer = await connect(head + b"1\r\na\r\n")
        writer.write(second)
        writer.write_eof()
        await read_all(reader)

    with caplog.at_level(logging.INFO):
        told(story)
    assert [] == [record for record in caplog.records if record.levelno > logging.INFO]
    assert "secret-token" not in caplog.text
