"""Answers to what pages ask, each worked out once for all who ask, one at a time, and kept a while:
the more it took, the longer."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from stower.dashboard.aside import Unanswered, aside

KEPT_SECONDS: Final = 1.0
KEPT_TIMES: Final = 4  # as long as it took to find
KEPT_MAX: Final = 100
WAITING_MAX: Final = 50


class Answers:
    """By what was asked."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, bytes]] = {}  # until when
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def of(self, question: str, work: Callable[[], bytes]) -> bytes:
        """The answer. Raises Unanswered."""
        if (answer := self._known(question)) is not None:
            return answer
        if self._waiting >= WAITING_MAX:
            raise Unanswered(f"{WAITING_MAX} other questions wait already")
        self._waiting += 1
        try:
            async with self._turn:
                if (answer := self._known(question)) is not None:
                    return answer
                began_s = time.monotonic()
                answer = await aside(work)
                took_s = time.monotonic() - began_s
                until_s = began_s + took_s + max(KEPT_SECONDS, KEPT_TIMES * took_s)
                while len(self._kept) >= KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[question] = until_s, answer
                return answer
        finally:
            self._waiting -= 1

    def forget(self) -> None:
        """It is another moment now."""
        self._kept.clear()

    def _known(self, question: str) -> bytes | None:
        until_s, answer = self._kept.get(question, (0.0, b""))
        if time.monotonic() < until_s:
            return answer
        self._kept.pop(question, None)
        return None
