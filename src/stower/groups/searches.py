"""The searches of one tree: short ones are done at once, others are asked for (`Solve`), while
other pods are tried.

An attempt ends where it needs an answer that has not come, or has taken its share of a step. Then
it is made again, on the state as it is then, and finds the answers to all its searches up to there.
Where the state has changed meanwhile, a placement counts that still has no fault. Must not know
writes or the queue.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from stower.groups.placement import (
    Answer,
    ExhaustedSearch,
    FoundPlacement,
    InfeasibleProblem,
    improve_at_once,
    place_at_once,
)
from stower.groups.placement_check import faults_of
from stower.groups.problem import Placement, Problem, collect_placement
from stower.groups.problem_builder import IndexedProblem
from stower.groups.search import NO_PROGRESS, Progress
from stower.groups.solving import Request, answer_to, encode_request

# What the attempts of one step may spend at once, in packings: 50 to 100 ms.
SPENT_MAX: Final = 2_500
# An attempt takes as long as so many packings, beside its search.
ATTEMPT_COST: Final = 150
# Answers to one question that were of no use, as the state had changed: then it is asked no more.
MISSED_MAX: Final = 1
# For one placement: searches for more pods, and all searches.
IMPROVEMENTS_MAX: Final = 3
ASKED_MAX: Final = 200
# Placements that are kept for another state.
KEPT_MAX: Final = 8
NOBODY: Final[frozenset[str]] = frozenset()
LOST: Final = "solver: "  # the stage of an answer that did not come, or could not be used
# Uids of the pods that are left out, and which search of the attempt it is.
Key = tuple[frozenset[str], Hashable]
T = TypeVar("T")


class Asked(NamedTuple):
    """A question: what is asked for, and the problem as it was."""

    digest: bytes
    key: Key
    built: IndexedProblem
    problem: Problem


class Unsolved(Exception):
    """An attempt ends here until this message has an answer; without one, until others have been
    served."""

    def __init__(self, message: bytes = b"", asked: Asked | None = None) -> None:
        super().__init__("the answer to a search has not come")
        self.message = message
        self.asked = asked


class _Kept(NamedTuple):
    """A placement by rows (indexes of nodes in the state's arrays), of groups of this form."""

    form: object
    pieces: list[tuple[int, int, int, int]]


class Searches:
    """What the attempts for one tree have asked and been answered, up to a result."""

    def __init__(self) -> None:
        # By what was asked, where the last attempt was given up.
        self._progress: dict[Key, Progress] = {}
        self._given_up: dict[Key, Progress] = {}
        self.spent = 0  # in this step, in packings
        self._has_tried = False  # any search without others, in this step
        # Whether this step relies on answers to another state, or on none as they were lost.
        self._is_stale = False
        self._leaving = NOBODY  # uids of the pods that are left out now
        self._begin()

    def _begin(self) -> None:
        self._answers: dict[bytes, Answer | None] = {}  # None: that takes too long to do at once
        self._last: dict[Key, Answer] = {}  # in whatever state
        self._missed: dict[Key, int] = {}
        self._kept: list[_Kept] = []
        self._is_again = False
        self._improvements = self._asked_count = self._restarts = 0
        # By uids of pods: there is no placement without them. Whether that was given up.
        self.refused: dict[frozenset[str], bool] = {}
        self._has_changed = False  # anything, while the tree waited
        # What was computed for a placement, until anything changes.
        self._computed: dict[Hashable, Any] = {}

    def finish(self, goes_on: bool) -> None:
        """Forgets all answers, after a result. `goes_on`: the next attempt does, where this one was
        given up."""
        self._progress = self._given_up if goes_on else {}
        self._given_up = {}
        self._begin()

    def answer(self, asked: Asked, answer: Answer) -> None:
        """Takes the answer to a question."""
        answer = _checked(asked.problem, answer)
        self._answers[asked.digest] = self._last[asked.key] = answer
        if isinstance(answer, FoundPlacement):
            self._kept = [_keep(asked.built, answer.placement), *self._kept][:KEPT_MAX]

    def on_change(self) -> None:
        """Notes that something has changed while the tree waits."""
        self._has_changed = True
        self._computed.clear()

    @property
    def is_stale(self) -> bool:
        """Returns whether the last attempt may have another result on the state as it is now."""
        return self._is_stale or (bool(self.refused) and self._has_changed)

    def computed(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Returns what was computed before for this key, unless something has changed since."""
        if key not in self._computed:
            self._computed[key] = compute()
        found: T = self._computed[key]
        return found

    def is_outdated(self) -> bool:
        """Returns whether no set of pods was enough, while something has changed; then all sets are
        to be tried again, once."""
        if not self._has_changed or self._restarts or not self.refused:
            return False
        self._restarts += 1
        self.refused.clear()
        self._last = {key: answer for key, answer in self._last.items() if not key[0]}
        self._missed = {key: count for key, count in self._missed.items() if not key[0]}
        self._has_changed = False
        return True

    # For an attempt

    def begin_attempt(self) -> None:
        """Begins an attempt in a new step."""
        self.spent = 0
        self._has_tried = self._is_stale = False

    @contextmanager
    def without(self, leaving: frozenset[str]) -> Iterator[None]:
        """Searches without these pods. Raises Unsolved where the step's share is spent, but for the
        first one of a step."""
        if self.spent > SPENT_MAX and self._has_tried:
            self._is_again = True
            raise Unsolved
        self._has_tried = True
        self.spent += ATTEMPT_COST
        self._leaving = leaving
        try:
            yield
        finally:
            self._leaving = NOBODY

    def place(
        self, built: IndexedProblem, problem: Problem, effort: int, explains: bool, pass_: Hashable
    ) -> Answer:
        """Returns the answer for a problem with the rows and groups of `built`. `pass_`: which
        search of the attempt it is. Raises Unsolved."""
        key = (self._leaving, pass_)
        begun = self._progress.get(key, NO_PROGRESS)
        found = self._find(built, Request(problem, effort, begun, None, explains), key)
        if found is None:
            return ExhaustedSearch("changes")
        if isinstance(found, ExhaustedSearch):
            is_lost = found.stage.startswith(LOST)
            self._is_stale |= is_lost
            self._given_up[key] = begun if is_lost else found.progress
        return found

    def improve(
        self,
        built: IndexedProblem,
        problem: Problem,
        first: FoundPlacement,
        effort: int,
        pass_: Hashable,
    ) -> FoundPlacement:
        """Returns a placement with more pods, the same where none was found. Raises Unsolved."""
        key = (self._leaving, (pass_, "more"))
        found = self._find(built, Request(problem, effort, first=first), key)
        return found if isinstance(found, FoundPlacement) else first

    def _find(self, built: IndexedProblem, request: Request, key: Key) -> Answer | None:
        """Returns the answer, None where it is asked for no more. Raises Unsolved."""
        digest = message = b""
        if self._is_again:
            message, digest = _message_of(request)
            if (answer := self._answers.get(digest)) is not None:
                return answer
        if self.spent <= SPENT_MAX and digest not in self._answers:
            answer = self._at_once(request)
            if self._is_again:
                self._answers[digest] = answer
            if answer is not None:
                return answer
        if (kept := self._still_valid(built, request)) is not None:
            return kept
        if key in self._last:
            self._missed[key] = self._missed.get(key, 0) + 1
            if self._leaving and isinstance(self._last[key], InfeasibleProblem):
                self._is_stale = True
                return self._last[key]  # tried again where something has changed: is_outdated
        self._improvements += request.first is not None
        self._asked_count += 1
        if (
            self._missed.get(key, 0) > MISSED_MAX
            or self._improvements > IMPROVEMENTS_MAX
            or self._asked_count > ASKED_MAX
        ):
            self._is_stale |= request.first is None
            return None
        self._is_again = True
        if not message:
            message, digest = _message_of(request)
        raise Unsolved(message, Asked(digest, key, built, request.problem))

    def _at_once(self, request: Request) -> Answer | None:
        """Returns the answer where a little work is enough for one."""
        problem = request.problem
        if request.first is not None:
            return improve_at_once(problem, request.first)
        answer, cost = place_at_once(problem)
        self.spent += cost
        if isinstance(answer, InfeasibleProblem) and answer.counted < 0 and request.explains:
            return None  # it takes longer to find out why
        return answer

    def _still_valid(self, built: IndexedProblem, request: Request) -> FoundPlacement | None:
        """Returns a placement that was found in another state, and has no fault in this one."""
        if not self._kept:
            return None
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

    @contextmanager
    def without(self, leaving: frozenset[str]) -> Iterator[None]:
        """As Searches; raises nothing."""
        yield

    def _find(self, built: IndexedProblem, request: Request, key: Key) -> Answer | None:
        return answer_to(msgspec.structs.replace(request, begun=NO_PROGRESS))


def _message_of(request: Request) -> tuple[bytes, bytes]:
    """Returns the message for a search, and its digest."""
    message = encode_request(request)
    return message, blake2b(message, digest_size=16).digest()


def _checked(problem: Problem, answer: Answer) -> Answer:
    """Returns the answer, where that is one to the problem: what else comes proves nothing."""
    try:
        pieces = answer.placement.pieces if isinstance(answer, FoundPlacement) else ()
        if any(min(p.group, p.part, p.node, p.count - 1) < 0 for p in pieces):
            return ExhaustedSearch(f"{LOST}a placement of something else")
        if isinstance(answer, FoundPlacement) and faults_of(problem, answer.placement):
            return ExhaustedSearch(f"{LOST}a placement with faults")
        if isinstance(answer, InfeasibleProblem):
            named = [answer.counted] if answer.counted >= 0 else []
            if isinstance(answer.conflict, tuple):
                named += [*answer.conflict.minimums, *answer.conflict.topologies]
            if any(not 0 <= g < len(problem.groups) for g in named):
                return ExhaustedSearch(f"{LOST}a group that there is not")
    except (IndexError, ValueError, OverflowError):
        return ExhaustedSearch(f"{LOST}a placement of something else")
    return answer


def _keep(built: IndexedProblem, placement: Placement) -> _Kept:
    pieces = [(p.group, p.part, int(built.rows[p.node]), p.count) for p in placement.pieces]
    return _Kept(_form(built), pieces)


def _form(built: IndexedProblem) -> object:
    """Returns what the indices of groups and parts mean."""
    return [[[entry.uid for entry in part] for part in parts] for parts in built.pods]
