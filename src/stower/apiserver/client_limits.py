"""Bounds what clients may make the server hold: connections, and the bodies of their requests.

A client is whoever the handler says: all connections of one user together. A connection whose
client is not known yet is a stranger's.
"""

import weakref
from collections import Counter
from typing import Final, Protocol

MIB: Final = 1024 * 1024
BODIES_BYTES_MAX: Final = 128 * MIB  # of all requests that are not answered yet
CLIENT_BYTES_MAX: Final = 32 * MIB  # of those of one client
CONNECTIONS_MAX: Final = 4096
CLIENT_CONNECTIONS_MAX: Final = 1024
STRANGERS_MAX: Final = 256  # the oldest gives way: a client says who it is within milliseconds
HANDSHAKES_MAX: Final = 2048  # of TLS, at once: 50 KiB each, and 10 s at most


class Stranger(Protocol):
    """A connection whose client is not known yet."""

    def abort(self) -> None:
        """Closes the connection at once."""


class BodyBudget:
    """Counts the bytes of request bodies that are held."""

    def __init__(self) -> None:
        self.held = 0
        self._by_client: Counter[str] = Counter()

    def take(self, client: str, size: int) -> bool:
        """Counts bytes of a client; returns whether there is room for them."""
        self.held += size
        self._by_client[client] += size
        return self.held <= BODIES_BYTES_MAX and self._by_client[client] <= CLIENT_BYTES_MAX

    def give_back(self, client: str, size: int) -> None:
        """Forgets bytes that were taken."""
        self.held -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]


class ConnectionLimits:
    """Counts connections, those of each client and those of strangers."""

    def __init__(self) -> None:
        self._accepted: weakref.WeakSet[Stranger] = weakref.WeakSet()  # without TLS by now
        self._strangers: dict[Stranger, None] = {}  # oldest first
        self._clients: dict[Stranger, str] = {}
        self._by_client: Counter[str] = Counter()

    def accept(self, connection: Stranger) -> None:
        """Counts a connection before its TLS handshake. Raises ConnectionRefusedError."""
        if len(self._accepted) >= HANDSHAKES_MAX:
            raise ConnectionRefusedError(f"more than {HANDSHAKES_MAX} TLS handshakes at once")
        self._accepted.add(connection)

    def add(self, connection: Stranger) -> None:
        """Counts a new connection, in exchange for the oldest stranger's if there are too many."""
        self._accepted.discard(connection)
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def identify(self, connection: Stranger, client: str) -> str:
        """Counts the connection as a client's; returns why it may not be, empty if it may."""
        if self._clients.get(connection) == client:
            return ""
        self.remove(connection)
        if len(self._clients) >= CONNECTIONS_MAX:
            return f"too many connections: limit is {CONNECTIONS_MAX}"
        if self._by_client[client] >= CLIENT_CONNECTIONS_MAX:
            return f"too many connections of one user: limit is {CLIENT_CONNECTIONS_MAX}"
        self._clients[connection] = client
        self._by_client[client] += 1
        return ""

    def remove(self, connection: Stranger) -> None:
        """Forgets a connection."""
        self._strangers.pop(connection, None)
        client = self._clients.pop(connection, None)
        if client is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]
