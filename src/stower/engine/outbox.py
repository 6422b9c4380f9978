"""The outbox: gives writes their ids, collects those of a step, and dispatches answers to owners.

Every write leaves the engine through `send`, which registers its owner. Its answer is dispatched to
that owner by id, once, whatever the number of owners. Must not know what a write is for.
"""

from typing import Final, NamedTuple, Protocol

from stower.framework.events import ExtenderAnswered, Solved, WriteFailed, WriteOk
from stower.framework.retries import UNKNOWN
from stower.framework.writes import AgentAnswer, CallExtender, Solve, Write


class Answer(NamedTuple):
    """The answer to a write. `code` is 0 where it was carried out, else the HTTP status, UNKNOWN
    where no answer came; `message`: what the server said; `reason`: why the write failed, never
    empty then; `version`: the object's resourceVersion since, "" where unknown; `body` and `error`:
    of an extender or a solver."""

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
# What these events are the answers to; others answer any write.
_ANSWERED_BY: Final[dict[type, type]] = {ExtenderAnswered: CallExtender, Solved: Solve}
NO_OWNER: Final = (UNTRACKED, None)


class Outbox:
    """Write ids, the writes of the current step, and the owners of unanswered writes. The engine
    replaces `writes` at the start of each step."""

    __slots__ = ("_owners", "answered", "free_id", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.free_id = 1  # the id that the next write gets
        self.answered: Write | None = None  # the write whose answer came last
        self._owners: dict[int, tuple[WriteOwner, Write]] = {}

    def next_id(self) -> int:
        """Returns an id that no other write of this engine has."""
        id = self.free_id
        self.free_id = id + 1
        return id

    def send(self, write: Write, owner: WriteOwner) -> None:
        """Appends a write to the step's writes; `owner` takes its answer."""
        self._owners[write.id] = owner, write
        self.writes.append(write)

    def reply(self, answer: AgentAnswer) -> None:
        """Appends the answer to an agent's request. No event follows the answer."""
        self.writes.append(answer)

    def dispatch(self, event: WriteOk | WriteFailed | ExtenderAnswered | Solved) -> None:
        """Hands an answer to the owner of its write; drops one that was dispatched before."""
        owner, self.answered = self._owners.pop(event.id, NO_OWNER)
        if not isinstance(self.answered, _ANSWERED_BY.get(type(event), object)):
            # Not to this engine, but to one before it.
            if self.answered is not None:
                self._owners[event.id] = owner, self.answered
            return
        if isinstance(event, WriteOk):
            owner.handle_answer(Answer(event.id, version=event.resource_version))
        elif isinstance(event, WriteFailed):
            reason = event.message or f"HTTP status {event.code}"
            owner.handle_answer(Answer(event.id, event.code or UNKNOWN, event.message, reason))
        else:
            owner.handle_answer(Answer(event.id, body=event.body, error=event.error))

    # After an internal error

    def discard_since(self, id: int) -> list[tuple[int, WriteOwner]]:
        """Discards the writes of this step that have this id or a later one. Returns their ids
        and owners, which get no answer."""
        kept: list[Write] = []
        discarded: list[tuple[int, WriteOwner]] = []
        for write in self.writes:
            if isinstance(write, AgentAnswer) or write.id < id:
                kept.append(write)
            else:
                owner, _ = self._owners.pop(write.id, NO_OWNER)
                discarded.append((write.id, owner))
        self.writes[:] = kept
        return discarded

    def disown(self, kind: type) -> None:
        """Makes the writes of owners of this type untracked: their answers change nothing."""
        for id in [id for id, (owner, _) in self._owners.items() if isinstance(owner, kind)]:
            del self._owners[id]
