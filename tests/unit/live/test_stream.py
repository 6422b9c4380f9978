"""A response that is read while it comes, from servers that say too much, too little or nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from stower.live.connection import ConnectionLost
from stower.live.stream import READ_BYTES_MAX, ResponseStream

Serving = Callable[[asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IDLE_S = 0.05


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextlib.asynccontextmanager
async def streaming(serve: Serving, idle_s: float = 8) -> AsyncIterator[ResponseStream]:
    """A stream from a server that answers so."""

    handling: list[asyncio.Task[None] | None] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await serve(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: ResponseStream(idle_s), "127.0.0.1", port)
    try:
        yield stream
    finally:
        stream.close()
        for task in filter(None, handling):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


def read(serve: Serving, idle_s: float = 8) -> tuple[int, bytes]:
    """Status and body."""

    async def story() -> tuple[int, bytes]:
        async with streaming(serve, idle_s) as stream:
            status = await stream.request(b"GET / HTTP/1.1\r\n\r\n")
            return status, await stream.read_all(1 << 30)

    return asyncio.run(story())


def test_a_body_comes_in_chunks_and_ends() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunk(b"one"))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(chunk(b"two") + chunk(b""))
        await writer.drain()
        await asyncio.sleep(IDLE_S)

    assert (200, b"onetwo") == read(serve)


def test_the_end_of_the_connection_is_the_end_of_a_body_without_length() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\nnot you")
        await writer.drain()

    assert (403, b"not you") == read(serve)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (HEAD + chunk(b"one"), "the server closed the connection"),
        (b"", "the server closed the connection"),
        (b"hello\r\n\r\n", "the answer is not HTTP"),
    ],
)
def test_a_body_that_has_no_end_is_lost(said: bytes, why: str) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    with pytest.raises(ConnectionLost, match=why):
        read(serve)


@pytest.mark.parametrize("said", [b"", HEAD + chunk(b"one")])
def test_a_server_that_falls_silent_is_given_up(said: bytes) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        await asyncio.sleep(3)

    with pytest.raises(ConnectionLost, match=f"nothing came for {IDLE_S} s"):
        read(serve, IDLE_S)


def test_what_nobody_reads_is_not_buffered_without_end() -> None:
    part, count = chunk(b"x" * 65_536), 800  # more than both sockets take
    sent = 0

    async def serve(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD)
        for _ in range(count):
            writer.write(part)
            await writer.drain()
            sent += 1
        writer.write(chunk(b""))
        await writer.drain()

    async def story() -> int:
        async with streaming(serve) as stream:
            await stream.request(b"GET / HTTP/1.1\r\n\r\n")
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < count
            first = await stream.read()
            assert READ_BYTES_MAX < len(first) < 2 * READ_BYTES_MAX
            return len(first) + len(await stream.read_all(1 << 30))

    assert count * 65_536 == asyncio.run(story())
