"""Connections that break before they are used."""

import asyncio

import pytest

from stower.live.connection import Connection, Lost, Pool

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Transport:
    """One that takes nothing more."""

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written to what is closed")

    def abort(self) -> None:
        pass


def test_a_connection_that_was_lost_right_after_its_handshake_keeps_nobody_waiting() -> None:
    async def ask() -> None:
        connection = Connection()
        connection.connection_made(Transport())
        connection.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(Lost, match="closed"):
            connection.ask(b"GET / HTTP/1.1\r\n\r\n")

    asyncio.run(ask())


def test_those_without_an_answer_are_lost_in_time_and_no_others() -> None:
    """One is answered at once, two never, one after the first two were given up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"never" in head:
                continue
            if b"late" in head:
                await given_up.wait()
            writer.write(ANSWER)

    async def story() -> list[object]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = Pool(f"http://{host}:{port}", None, timeout_s=0.2)

        async def ask(path: str) -> bytes:
            reply = await pool.ask(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return b"".join(reply.body)

        found: list[object] = [await ask("now")]
        lost = [asyncio.create_task(ask(f"never-{i}")) for i in range(2)]
        await asyncio.wait(lost, return_when=asyncio.FIRST_EXCEPTION)
        late = asyncio.create_task(ask("late"))
        given_up.set()
        found += await asyncio.gather(*lost, late, return_exceptions=True)
        found.append(await ask("again"))
        pool.close()
        server.close()
        return found

    given_up = asyncio.Event()
    now, first, second, late, again = asyncio.run(story())
    assert (b"ok", b"ok", b"ok") == (now, late, again)
    for one in (first, second):
        assert isinstance(one, Lost)
        with pytest.raises(Lost, match="no answer in time"):
            raise one
