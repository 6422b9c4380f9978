"""The outbox: gives writes their ids, collects those of a step, and dispatches answers to owners.

Every write leaves the engine through `send`, which registers its owner. Its answer is dispatched to
that owner by id, once, whatever the number of owners. Must not know what a write is for.
"""

from typing import Final, NamedTuple, Protocol

from stower.framework.events import ExtenderAnswered, WriteFailed, WriteOk
from stower.framework.retries import UNKNOWN
from stower.framework.writes import AgentAnswer, Write


class Answer(NamedTuple):
    """The answer to a write. `code` is 0 where it was carried out, else the HTTP status, UNKNOWN
    where no answer came; `message`: what the server said; `reason`: why the write failed, never
    empty then; `version`: the object's resourceVersion since, "" where unknown; `body` and `error`:
    of an extender."""

    id: int
    code: int = 0
    message: str = ""
    reason: str = ""
    version: str = ""
    body: bytes | None = None
    error: str = ""


class WriteOwner(Protocol):
    """A part of the engine that sends writes."""

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to one of its writes."""


class _Untracked:
    """Owns writes whose answers change nothing: what they lost is written again by itself."""

    def handle_answer(self, answer: Answer) -> None:
        """Ignores the answer."""


UNTRACKED: Final = _Untracked()


class Outbox:
    """Write ids, the writes of the current step, and the owners of unanswered writes. The engine
    replaces `writes` at the start of each step."""

    __slots__ = ("_next_id", "_owners", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self._next_id = 1
        self._owners: dict[int, WriteOwner] = {}

    def next_id(self) -> int:
        """Returns an id that no other write of this engine has."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def send(self, write: Write, owner: WriteOwner) -> None:
        """Appends a write to the step's writes; `owner` takes its answer."""
        self._owners[write.id] = owner
        self.writes.append(write)

    def reply(self, answer: AgentAnswer) -> None:
        """Appends the answer to an agent's request. No event follows the answer."""
        self.writes.append(answer)

    def dispatch(self, event: WriteOk | WriteFailed | ExtenderAnswered) -> None:
        """Hands an answer to the owner of its write; drops one that was dispatched before."""
        owner = self._owners.pop(event.id, None)
        if owner is None:
            return
        if isinstance(event, WriteOk):
            owner.handle_answer(Answer(event.id, version=event.resource_version))
        elif isinstance(event, WriteFailed):
            reason = event.message or f"HTTP status {event.code}"
            owner.handle_answer(Answer(event.id, event.code or UNKNOWN, event.message, reason))
        else:
            owner.handle_answer(Answer(event.id, body=event.body, error=event.error))
