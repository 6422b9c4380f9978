"""Connections in memory: a client's bytes go to a Listener and back without a socket.

Must not know what the Listener serves.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from stower.apiserver.http import Admit, Connection, Listener, admit_all
from tests.virtual_loop import VirtualLoop
from tests.wire import Wire

HIGH_WATER_BYTES = 64 * 1024  # as asyncio's transports have it


class Transport(asyncio.Transport):
    """The server's end of a connection. Buffers written bytes while the client reads none."""

    def __init__(self, loop: VirtualLoop, protocol: Connection, certificate: Any) -> None:
        super().__init__({"peercert": certificate})
        self.sent = bytearray()  # sent to the client, which has not read it yet
        self.is_reading = True
        self.is_taken = True  # whether the client reads; False: written bytes stay in the buffer
        self.is_lost = False
        self._loop = loop
        self._protocol = protocol
        self._is_closing = self._is_full = False
        self._kept = bytearray()
        self._unread: list[bytes] = []

    def write(self, data: Any) -> None:
        """See asyncio."""
        if self._is_closing:
            return
        if self.is_taken:
            self.sent += data
            return
        self._kept += data
        if len(self._kept) > HIGH_WATER_BYTES and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def take(self) -> None:
        """Lets the client read everything from now on."""
        self.is_taken = True
        self.sent += self._kept
        self._kept.clear()
        if self._is_full:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_closing:
            self._lose()

    def receive(self, data: bytes) -> None:
        """Delivers bytes from the client."""
        self._unread.append(data)
        while self._unread and self.is_reading and not self._is_closing:
            self._protocol.data_received(self._unread.pop(0))

    def pause_reading(self) -> None:
        """See asyncio."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        self.is_reading = True
        self._loop.call_soon(self.receive, b"")

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return len(self._kept)

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._is_closing

    def close(self) -> None:
        """See asyncio."""
        self._is_closing = True
        if not self._kept:
            self._lose()

    def abort(self) -> None:
        """See asyncio."""
        self._kept.clear()
        self.close()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)


class MemoryClient:
    """The client's end of a connection; see tests.wire.Connection."""

    def __init__(self, loop: VirtualLoop, transport: Transport) -> None:
        self._loop = loop
        self.transport = transport

    def sendall(self, data: bytes) -> None:
        """Sends all bytes and runs the server until it has handled them."""
        self._loop.do(self.transport.receive, data)

    def recv(self, size: int) -> bytes:
        """Returns bytes that the server has sent, empty if it has closed the connection. Raises
        AssertionError if there are no bytes and the connection is open."""
        sent = self.transport.sent
        if not sent and not self.transport.is_lost:
            raise AssertionError("the server has sent nothing more")
        found = bytes(sent[:size])
        del sent[:size]
        return found

    def take(self) -> None:
        """Reads everything that the server has written or writes from now on."""
        self._loop.do(self.transport.take)

    def leave(self) -> None:
        """Closes the connection."""
        self._loop.do(self.transport.abort)


def client_of(wire: Wire) -> MemoryClient:
    """Returns the client's end of a Wire in memory."""
    assert isinstance(wire.connection, MemoryClient)
    return wire.connection


class MemoryServer:
    """A Listener on a virtual clock, to which tests open connections in memory."""

    def __init__(
        self,
        answer: Callable[[Connection, Any], None],
        token: str = "",
        admit: Admit = admit_all,
    ) -> None:
        self.loop = VirtualLoop()
        self.listener = self.loop.run(self._listen(answer, admit))
        self._token = token

    async def _listen(self, answer: Callable[[Connection, Any], None], admit: Admit) -> Listener:
        return Listener(answer, admit)

    def connect(self, certificate: Any = None) -> Wire:
        """Returns a new connection. `certificate`: the client's, as ssl describes it."""
        protocol = self.listener()
        transport = Transport(self.loop, protocol, certificate)
        self.loop.do(protocol.connection_made, transport)
        return Wire(MemoryClient(self.loop, transport), self._token)

    def end(self) -> None:
        """Closes all connections and the loop."""
        self.loop.run(self.listener.shutdown(0))
        self.loop.end()
