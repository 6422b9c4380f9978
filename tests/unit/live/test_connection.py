"""Connections that break before they are used."""

import asyncio

import pytest

from stower.live.connection import Connection, Lost


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
