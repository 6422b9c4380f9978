"""Bounds what clients may make the server hold: connections, and the bodies of their requests.

A client is whoever the handler says: all connections of one user together, or of all service
accounts of a namespace, whose number is up to the namespace's users. A connection whose client is
not known yet is a stranger's. Clients that hold a lot, however many, leave a reserve for others.
"""

import resource
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

MIB: Final = 1024 * 1024
BODIES_BYTES_MAX: Final = 128 * MIB  # of all requests that are not answered yet
CLIENT_BYTES_MAX: Final = 32 * MIB  # of those of one client
RESERVED_BYTES: Final = 32 * MIB  # beyond BODIES_BYTES_MAX, for clients that hold little
MODEST_BYTES: Final = MIB  # which is little
CONNECTIONS_MAX: Final = 4096
CLIENT_CONNECTIONS_MAX: Final = 1024
MODEST_CONNECTIONS: Final = 8  # so few may be a quarter more than CONNECTIONS_MAX in all
STRANGERS_MAX: Final = 256  # the oldest gives way: a client says who it is within milliseconds
HANDSHAKE_SECONDS: Final = 10
FILES_RESERVED: Final = 64  # descriptors for the database, logs and the listener
HANDSHAKES_MAX: Final = 2048  # of TLS, at once: 50 KiB each, and 10 s at most


class Stranger(Protocol):
    """A connection whose client is not known yet."""

    def abort(self) -> None:
        """Closes the connection at once."""


class BodyBudget:
    """Counts the bytes of request bodies that are held."""

    def __init__(self) -> None:
        self.held = 0
        self._by_client: dict[str, int] = {}

    def take(self, client: str, size: int) -> bool:
        """Counts bytes of a client if there is room for them; returns whether there is."""
        held, own = self.held + size, self._by_client.get(client, 0) + size
        most = BODIES_BYTES_MAX + (RESERVED_BYTES if own <= MODEST_BYTES else 0)
        if held > most or own > CLIENT_BYTES_MAX:
            return False
        self.held, self._by_client[client] = held, own
        return True

    def give_back(self, client: str, size: int) -> None:
        """Forgets bytes that were taken."""
        self.held -= size
        own = self._by_client.pop(client) - size
        if own:
            self._by_client[client] = own


class ConnectionLimits:
    """Counts connections, those of each client and those of strangers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds. The limits leave room for other files of the process."""
        self._clock = clock
        self._accepted: dict[int, float] = {}  # ids of those without TLS by now: since when
        self._files = max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_RESERVED)
        self._strangers: dict[Stranger, None] = {}  # oldest first
        self._clients: dict[Stranger, str] = {}
        self._by_client: Counter[str] = Counter()

    def accept(self, connection: Stranger) -> None:
        """Counts a connection before its TLS handshake. Raises ConnectionRefusedError."""
        now_s = self._clock()
        while self._accepted:  # what failed is told to nobody
            oldest, since_s = next(iter(self._accepted.items()))
            if now_s - since_s < HANDSHAKE_SECONDS + 1:
                break
            del self._accepted[oldest]
        most = min(HANDSHAKES_MAX, self._files // 4)
        if len(self._accepted) >= most:
            raise ConnectionRefusedError(f"{most} TLS handshakes are under way")
        self._accepted.pop(id(connection), None)
        self._accepted[id(connection)] = now_s

    def add(self, connection: Stranger) -> None:
        """Counts a new connection, in exchange for the oldest stranger's if there are too many."""
        self._accepted.pop(id(connection), None)
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def identify(self, connection: Stranger, client: str) -> str:
        """Counts the connection as a client's; returns why it may not be, empty if it may."""
        if self._clients.get(connection) == client:
            return ""
        most = min(CONNECTIONS_MAX, self._files // 2)
        own, own_most = self._by_client[client], min(CLIENT_CONNECTIONS_MAX, most * 3 // 4)
        reserve = most // 4 if own < MODEST_CONNECTIONS else 0
        if len(self._clients) >= most + reserve and connection not in self._clients:
            return f"too many connections: limit is {most}"
        if own >= own_most:
            return f"too many connections of one user: limit is {own_most}"
        self.remove(connection)
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
