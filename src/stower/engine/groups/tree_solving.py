"""Asks for the searches of trees that take longer than a step may (`Solve`), and has a tree tried
again when its answer is there. Must not know what is searched.
"""

import msgspec

from stower.engine.context import Context
from stower.engine.outbox import Answer
from stower.engine.queue.entities import QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import ClusterEvent
from stower.framework.writes import Solve
from stower.groups.placement import Answer as FoundAnswer
from stower.groups.placement import ExhaustedSearch
from stower.groups.solving import decode_answer, solve
from stower.groups.tree import Tree


class TreeSolving:
    """The searches that are asked for now."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._context = context
        self._queue = queue
        # By the id of the write; the one that a tree asked last is the one that counts.
        self._asked: dict[int, QueuedTree] = {}
        self._last: dict[str, int] = {}  # by the uid of the tree

    def ask(self, queued: QueuedTree, tree: Tree, message: bytes) -> None:
        """Parks the tree until the answer to this message is there: nothing else helps it."""
        self._context.is_applying = True
        outbox, meta = self._context.outbox, tree.groups[0].obj.metadata
        id = outbox.next_id()
        self._asked[id] = queued
        self._last[queued.uid] = id
        outbox.send(Solve(id, meta.namespace, meta.name, meta.uid, message), self)
        queued.pairs_searched = 0  # the search is still on: what follows is no repetition
        self._queue.wait(queued, frozenset(), self._context.state.now_ns, None)
        queued.awaits_more = _nothing_helps

    def handle_answer(self, answer: Answer) -> None:
        """Hands the answer to the tree that has asked for it, and has that tried at once."""
        queued = self._asked.pop(answer.id, None)
        if queued is None or self._last.get(queued.uid) != answer.id:
            return  # it has asked for something else since
        del self._last[queued.uid]
        queued.awaits_more = None
        queued.searches.answer(self._read(answer))
        self._queue.activate(queued, self._context.state.now_ns)

    def _read(self, answer: Answer) -> FoundAnswer:
        write = self._context.outbox.answered
        if answer.body is None and not answer.code and isinstance(write, Solve):
            return decode_answer(solve(write.message))  # nobody else does it
        if answer.body is None or answer.error:
            return ExhaustedSearch(f"solver: {answer.error or answer.reason}")
        try:
            return decode_answer(answer.body)
        except msgspec.DecodeError as error:
            return ExhaustedSearch(f"solver: {error}")


def _nothing_helps(event: ClusterEvent) -> bool:
    return True
