"""Passes the requests of VMs' autoscaler-agents to the engine, and holds each until it is answered.

Each request is an AgentAsked event, so that a recording contains it too. Does not interpret
requests (stower.vms.agent has the protocol), and does not know HTTP (agents.py).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from stower.framework.events import AgentAsked
from stower.framework.writes import AgentAnswer

PENDING_MAX: Final = 10_000
# The engine answers within a second; a process that was suspended may take longer.
TIMEOUT_SECONDS: Final = 10
UNAVAILABLE: Final = 503


class AgentRequests:
    """All requests without an answer. `submit` is called with each."""

    def __init__(self, submit: Callable[[AgentAsked], None]) -> None:
        self._submit = submit
        self._pending: dict[int, asyncio.Future[AgentAnswer]] = {}
        self._next_id = 1

    def complete(self, answer: AgentAnswer) -> None:
        """Answers the request with the answer's id; does nothing if it is no longer pending."""
        future = self._pending.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def ask(self, method: str, body: bytes) -> AgentAnswer:
        """Returns the engine's answer. The status is 503 if PENDING_MAX requests are pending, or if
        the engine does not answer within TIMEOUT_SECONDS."""
        id, self._next_id = self._next_id, self._next_id + 1
        if len(self._pending) >= PENDING_MAX:
            text = f"{PENDING_MAX} requests are pending already"
            return AgentAnswer(id, UNAVAILABLE, text, "text/plain; charset=utf-8")
        future = self._pending[id] = asyncio.get_running_loop().create_future()
        self._submit(AgentAsked(id, method, body))
        try:
            return await asyncio.wait_for(future, TIMEOUT_SECONDS)
        except TimeoutError:
            text = f"no answer within {TIMEOUT_SECONDS} s"
            return AgentAnswer(id, UNAVAILABLE, text, "text/plain; charset=utf-8")
        finally:
            self._pending.pop(id, None)
