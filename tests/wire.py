"""Wire: a client for HTTP that sends and reads bytes, for requests that no library would send.

Must not know how the bytes reach the server.
"""

import ssl
from typing import Protocol


class Connection(Protocol):
    """The two methods of a socket that a Wire needs."""

    def sendall(self, data: bytes) -> None:
        """Sends all bytes."""

    def recv(self, size: int) -> bytes:
        """Returns some received bytes, empty if the server has closed the connection."""


class Wire:
    """A connection to a server, whose requests have a Host header and a bearer token."""

    def __init__(self, connection: Connection, token: str) -> None:
        self.connection = connection
        self.authority = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        self._rest = b""

    def send(self, head: str, body: bytes = b"") -> None:
        """Sends the request that `request` returns."""
        self.connection.sendall(self.request(head, body))

    def request(self, head: str, body: bytes = b"") -> bytes:
        """Returns the bytes of a request. `head`: its first line and headers, without Host and
        Authorization."""
        first, _, more = head.partition("\r\n")
        return f"{first}\r\n{self.authority}{more}\r\n".encode() + body

    def answer(self, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers (lower case) and body of the next answer. `body`: False for an
        answer whose Content-Length belongs to no body (HEAD)."""
        while b"\r\n\r\n" not in self._rest:
            self.more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        size = int(headers.get("content-length", 0)) if body else 0
        while len(self._rest) < size:
            self.more()
        found, self._rest = self._rest[:size], self._rest[size:]
        return int(first.split()[1]), headers, found

    def chunk(self) -> bytes:
        """Returns the next chunk of a chunked answer, empty for the last."""
        while b"\r\n" not in self._rest:
            self.more()
        size, _, self._rest = self._rest.partition(b"\r\n")
        while len(self._rest) < int(size, 16) + 2:
            self.more()
        found, end = self._rest[: int(size, 16)], self._rest[int(size, 16) :]
        assert end.startswith(b"\r\n")
        self._rest = end[2:]
        return found

    def ended(self) -> bool:
        """Returns whether the server has closed the connection."""
        try:
            return self.connection.recv(100) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True

    def more(self) -> None:
        """Reads more bytes. Raises AssertionError if the server has closed the connection."""
        data = self.connection.recv(65536)
        assert data, f"closed after {self._rest!r}"
        self._rest += data
