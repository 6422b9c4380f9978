"""Who may have YAML read or written next. That takes a hundred times the time and memory that JSON
takes: it is done in threads, for each client one text after another, and for few clients at once.

Must not know what the YAML is about.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from stower.api.errors import ApiError

Work = Callable[[bytes], bytes]

RUNNING_MAX: Final = 4  # some 50 MiB and 2 s each, at most
CLIENT_WAITING_MAX: Final = 16
BUSY: Final = (
    f"{CLIENT_WAITING_MAX} texts in YAML are being read or written for this client already; retry, "
    "or use JSON"
)

T = TypeVar("T")


class _Lane:
    """The work of one client."""

    def __init__(self) -> None:
        self.count = 0
        self.turn = asyncio.Lock()


class YamlTurns:
    """Runs work on YAML in threads."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._running = asyncio.Semaphore(RUNNING_MAX)
        self._threads = ThreadPoolExecutor(RUNNING_MAX, "yaml")

    async def run(
        self,
        client: str,
        is_wanted: Callable[[], bool],
        work: Callable[[bytes], T],
        text: bytes,
    ) -> T:
        """Returns what the work makes of the text, once it is the client's turn. Raises ApiError
        429 where too much of the client waits, ConnectionResetError where it is not wanted any
        more."""
        lane = self._lanes.setdefault(client, _Lane())
        if lane.count >= CLIENT_WAITING_MAX:
            raise ApiError(429, "TooManyRequests", BUSY, headers={"Retry-After": "1"})
        lane.count += 1
        try:
            async with lane.turn, self._running:
                if not is_wanted():
                    raise ConnectionResetError("the client is gone")
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, work, text)
        finally:
            lane.count -= 1
            if not lane.count:
                del self._lanes[client]

    def close(self) -> None:
        """Ends the threads once they have no work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
