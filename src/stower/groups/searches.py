"""The searches of one tree: small ones are done at once, others are asked for (`Solve`), while
other pods are tried.

An attempt ends where it needs an answer that has not come. Once it is there, the attempt is made
again, on the state as it is then, and finds the answers to all its searches up to there. Where the
state has changed meanwhile, a placement counts that still has no fault. Must not know writes or the
queue.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from stower.groups.placement import (
    Answer,
    ExhaustedSearch,
    FoundPlacement,
    improve_at_once,
    place_at_once,
)
from stower.groups.placement_check import faults_of
from stower.groups.problem import Placement, Problem, collect_placement
from stower.groups.problem_builder import IndexedProblem
from stower.groups.search import NO_PROGRESS
from stower.groups.solving import Request, answer_to, encode_request

# Answers in a row that were of no use, as the state had changed: then nothing more is asked.
MISSED_MAX: Final = 3
# For one placement: searches for more pods, and all searches.
IMPROVEMENTS_MAX: Final = 3
ASKED_MAX: Final = 100
# Placements that are kept for another state.
KEPT_MAX: Final = 8


class Unsolved(Exception):
    """An attempt ends here until this message has an answer."""

    def __init__(self, message: bytes) -> None:
        super().__init__("the answer to a search has not come")
        self.message = message


class _Kept(NamedTuple):
    """A placement by rows (indexes of nodes in the state's arrays), of groups of this form."""

    form: object
    pieces: list[tuple[int, int, int, int]]


class _Asked(NamedTuple):
    digest: bytes
    built: IndexedProblem


class Searches:
    """What the attempts for one tree have asked and been answered, up to a result."""

    def __init__(self) -> None:
        self.progress = NO_PROGRESS  # of the attempt before, which was given up
        self._given_up = NO_PROGRESS
        self._begin()

    def _begin(self) -> None:
        self._asked: _Asked | None = None
        self._answers: dict[bytes, Answer] = {}
        self._kept: list[_Kept] = []
        self._is_unused = False  # whether the last answer is
        self._missed = self._improvements = self._asked_count = 0

    def finish(self, goes_on: bool) -> None:
        """Forgets all answers, after a result. `goes_on`: the next attempt does, where this one was
        given up."""
        self.progress = self._given_up if goes_on else NO_PROGRESS
        self._given_up = NO_PROGRESS
        self._begin()

    def answer(self, answer: Answer) -> None:
        """Takes the answer to the message that was asked last."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        self._answers[asked.digest] = answer
        self._is_unused = True
        if isinstance(answer, FoundPlacement):
            self._kept = [_keep(asked.built, answer.placement), *self._kept][:KEPT_MAX]

    # For an attempt

    def place(self, built: IndexedProblem, problem: Problem, effort: int, explains: bool) -> Answer:
        """Returns the answer for a problem with the rows and groups of `built`. Raises Unsolved."""
        found = place_at_once(problem) or self._look_up(
            built, Request(problem, effort, self.progress, None, explains)
        )
        if isinstance(found, ExhaustedSearch):
            self._given_up = found.progress
        return found or ExhaustedSearch("changes")

    def improve(
        self, built: IndexedProblem, problem: Problem, first: FoundPlacement, effort: int
    ) -> FoundPlacement:
        """Returns a placement with more pods, the same where none was found. Raises Unsolved."""
        found: Answer | None = improve_at_once(problem, first)
        if found is None:
            found = self._look_up(built, Request(problem, effort, first=first))
        return found if isinstance(found, FoundPlacement) else first

    def _look_up(self, built: IndexedProblem, request: Request) -> Answer | None:
        """Returns what was answered, None where nothing more is asked. Raises Unsolved."""
        message = encode_request(request)
        digest = blake2b(message, digest_size=16).digest()
        answer = self._answers.get(digest)
        if answer is not None:
            self._is_unused, self._missed = False, 0
            return answer
        if (kept := self._still_valid(built, request)) is not None:
            self._is_unused = False
            return kept
        self._missed += self._is_unused
        self._improvements += request.first is not None
        self._asked_count += 1
        if (
            self._missed > MISSED_MAX
            or self._improvements > IMPROVEMENTS_MAX
            or self._asked_count > ASKED_MAX
        ):
            return None
        self._asked = _Asked(digest, built)
        raise Unsolved(message)

    def _still_valid(self, built: IndexedProblem, request: Request) -> FoundPlacement | None:
        """Returns a placement that was found in another state, and has no fault in this one."""
        form = _form(built)
        least = request.first.placement.count if request.first is not None else 0
        nodes = dict(zip(built.rows.tolist(), range(len(built.rows)), strict=True))
        for kept in self._kept:
            if kept.form == form and all(row in nodes for _, _, row, _ in kept.pieces):
                pieces = ((g, p, nodes[row], count) for g, p, row, count in kept.pieces)
                placement = collect_placement(pieces)
                if placement.count > least and not faults_of(request.problem, placement):
                    is_most = placement.count >= sum(g.count for g in request.problem.groups)
                    return FoundPlacement(placement, "kept", is_most)
        return None


class SearchesAtOnce(Searches):
    """Does each search at once, however long it takes: for those who only look."""

    def place(self, built: IndexedProblem, problem: Problem, effort: int, explains: bool) -> Answer:
        """As Searches; raises nothing."""
        return answer_to(Request(problem, effort, explains=explains))

    def improve(
        self, built: IndexedProblem, problem: Problem, first: FoundPlacement, effort: int
    ) -> FoundPlacement:
        """As Searches; raises nothing."""
        found = answer_to(Request(problem, effort, first=first))
        return found if isinstance(found, FoundPlacement) else first


def _keep(built: IndexedProblem, placement: Placement) -> _Kept:
    pieces = [(p.group, p.part, int(built.rows[p.node]), p.count) for p in placement.pieces]
    return _Kept(_form(built), pieces)


def _form(built: IndexedProblem) -> object:
    """Returns what the indices of groups and parts mean."""
    return [[[entry.uid for entry in part] for part in parts] for parts in built.pods]
