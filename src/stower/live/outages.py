"""Logs an outage once, however often it is met: one line for each kind of request that gets no
answer, one for each resource and status where the server answers with an error.

What repeats is logged for debugging alone. The end of an outage is a line as well.
"""

import asyncio
import logging
import os
import ssl
from typing import Final

log = logging.getLogger(__name__)

OPEN_MAX: Final = 1_000  # of those that are known at once; the oldest is forgotten


class Outages:
    """All outages that are not over, each with what it concerns."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, int], tuple[float, set[str]]] = {}

    def meet(
        self, what: str, about: str, reason: str, status: int = 0, level: int = logging.WARNING
    ) -> None:
        """Takes a request that failed. `what`: such as "cannot list"; `about`: a path; `status`: of
        the answer, 0 if none came."""
        key = (what, about if status > 0 else "", max(status, 0))
        if key not in self._open:
            if len(self._open) >= OPEN_MAX:
                del self._open[next(iter(self._open))]
            self._open[key] = asyncio.get_running_loop().time(), set()
        else:
            level = logging.DEBUG
        self._open[key][1].add(about)
        code = f"{status} " if status > 0 else ""
        log.log(level, "%s %s: %s%s", what, about, code, reason)

    def end(self, about: str, *what: str) -> None:
        """Takes requests of these kinds for over: one has succeeded, or there will be no more."""
        if not self._open:
            return
        for key, (since_s, concerned) in list(self._open.items()):
            if key[0] in what and about in concerned:
                concerned.discard(about)
                if not concerned:
                    del self._open[key]
                    took_s = asyncio.get_running_loop().time() - since_s
                    log.info("%s %s: over after %.1f s", key[0], about, took_s)


def error_text(error: BaseException) -> str:
    """Returns what went wrong with a connection, in words for people: the system's where it has
    any. Texts of libraries may show Python objects."""
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {(cause.reason or 'unknown reason').replace('_', ' ').lower()}"
    number = getattr(cause, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    name = type(cause).__name__
    return _BY_NAME.get(name) or _without_objects(str(cause)) or name


# Of aiohttp, which calls extenders.
_BY_NAME: Final = {
    "ClientPayloadError": "the answer ended in its middle",
    "ServerDisconnectedError": "the server closed the connection",
    "ClientConnectionResetError": "the connection was reset",
    "ClientConnectionError": "the connection was closed",
    "ServerTimeoutError": "no answer in time",
    "SocketTimeoutError": "no answer in time",
    "ConnectionTimeoutError": "no answer in time",
    "InvalidURL": "the server's URL is not valid",
}


def _without_objects(text: str) -> str:
    """Returns a text on one line, up to where it would show a Python object."""
    return " ".join(text.partition("<")[0].split()).rstrip(" :,(")
