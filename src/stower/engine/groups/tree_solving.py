"""Asks for the searches of trees that take longer than a step may (`Solve`), and has a tree tried
again when its answer is there. Must not know what is searched.
"""

from typing import NamedTuple

import msgspec

from stower.engine.context import Context
from stower.engine.outbox import Answer
from stower.engine.queue.entities import QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import ClusterEvent
from stower.framework.writes import Solve
from stower.groups.placement import Answer as FoundAnswer
from stower.groups.placement import ExhaustedSearch
from stower.groups.searches import LOST, Asked, Unsolved
from stower.groups.solving import decode_answer, solve
from stower.groups.tree import Tree


class _Question(NamedTuple):
    queued: QueuedTree
    asked: Asked | None
    message: bytes


class TreeSolving:
    """The searches that are asked for now."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._context = context
        self._queue = queue
        self._questions: dict[int, _Question] = {}  # by the id of the write
        self._last: dict[str, int] = {}  # what a tree waits for, by its uid

    def ask(self, queued: QueuedTree, tree: Tree, unsolved: Unsolved) -> None:
        """Parks the tree until the answer to the message is there: nothing else helps it. Without a
        message, the answer comes as soon as others have been served."""
        self._context.is_applying = True
        outbox, meta = self._context.outbox, tree.groups[0].obj.metadata
        before = self._questions.get(self._last.get(queued.uid, 0))
        if before is None or before.queued is not queued or before.message != unsolved.message:
            id = outbox.next_id()
            self._questions[id] = _Question(queued, unsolved.asked, unsolved.message)
            self._last[queued.uid] = id
            write = Solve(id, meta.namespace, meta.name, meta.uid, unsolved.message)
            outbox.send(write, self)
        queued.pairs_searched = 0  # the search is still on: what follows is no repetition
        self._queue.wait(queued, frozenset(), self._context.state.now_ns, None)

        def nothing_helps(event: ClusterEvent) -> bool:
            queued.searches.on_change()
            return True

        queued.awaits_more = nothing_helps

    def handle_answer(self, answer: Answer) -> None:
        """Hands the answer to the tree that has asked for it, and has that tried at once, where it
        has not asked for something else since."""
        question = self._questions.pop(answer.id, None)
        if question is None:
            return
        queued = question.queued
        if question.asked is not None:
            queued.searches.answer(question.asked, self._read(answer, question.message))
        if self._last.get(queued.uid) == answer.id:
            del self._last[queued.uid]
            queued.awaits_more = None
            self._queue.activate(queued, self._context.state.now_ns)

    def _read(self, answer: Answer, message: bytes) -> FoundAnswer:
        if answer.body is None and not answer.code:
            return decode_answer(solve(message))  # nobody else does it
        if answer.body is None or answer.error:
            return ExhaustedSearch(f"{LOST}{answer.error or answer.reason}")
        try:
            return decode_answer(answer.body)
        except msgspec.DecodeError as error:
            return ExhaustedSearch(f"{LOST}{error}")
