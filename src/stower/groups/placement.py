"""Finds the placement of a tree: runs the stages counting (bounds), heuristic search, repair and
exact model. Another function looks for one with more pods: to be asked once the first is accepted.

Only counting and the exact model may prove that there is no placement. Every placement is validated
(placement_check) before it is returned. Limits count work, never time.
"""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from stower.groups.bounds import Bounds, bounds_of
from stower.groups.exact_model import Model
from stower.groups.matrix import Outcome
from stower.groups.placement_check import faults_of
from stower.groups.problem import Placement, Problem
from stower.groups.repair import RepairSearch
from stower.groups.search import ENOUGH, NO_PROGRESS, ROUNDS_MAX, Progress, Search

# For the exact model of the whole tree; twice as many once an attempt was given up. Larger ones do
# not get through their root in 10 s.
VARIABLES_MAX: Final = 20_000
# Smaller problems are solved before all rounds of the search are made, which takes longer.
SMALL: Final = 1_000
# Rounds of the search before that.
FIRST_ROUNDS: Final = 2
# The solver's calls back times the variables of its model; 2 to 10 µs each, 2 s in all.
WORK_MAX: Final = 200_000
# The solver cannot be interrupted: nobody else is served while it works.
SOLVER_EFFORT_MAX: Final = 4
IMPROVING_EFFORT_MAX: Final = 2
# What is done at once, in some 50 ms: packings, and so many variables, which are solved in 2 ms
# mostly. The solver does a lot of work between two calls back, so that no other limit holds.
PACKINGS_AT_ONCE: Final = 2_000
VARIABLES_AT_ONCE: Final = 80
WORK_AT_ONCE: Final = 5_000
# What the solver takes for a variable at each call back, in packings.
COST_OF_VARIABLE: Final = 1
# For one subtree, in calls back.
REPAIR_STEPS: Final = 40
GAP: Final = 0.01


class Conflict(NamedTuple):
    """Groups whose minimums, groups whose shared domains (by index), and rules between pods (by
    name) cannot all be met."""

    minimums: list[int]
    topologies: list[int]
    rules: list[str]


class FoundPlacement(msgspec.Struct, frozen=True, tag=True):
    """A placement was found, by this stage. `is_most`: no placement has more pods, up to 1 %."""

    placement: Placement
    stage: str
    is_most: bool


class InfeasibleProblem(msgspec.Struct, frozen=True, tag=True):
    """It is proved that there is no placement. `counted`: the lowest group that fits in no domain
    or lacks children; -1 where only the exact model proves it. `conflict`: why, UNSET where that
    was not looked for."""

    counted: int
    stage: str
    conflict: Conflict | msgspec.UnsetType | None = msgspec.UNSET


class ExhaustedSearch(msgspec.Struct, frozen=True, tag=True):
    """No placement was found within the limits, and none was ruled out. `searched`: how many
    packings were made, and steps of the solver; `progress`: where the next search goes on."""

    stage: str
    searched: int = 0
    progress: Progress = NO_PROGRESS


Answer = FoundPlacement | InfeasibleProblem | ExhaustedSearch


def place_at_once(problem: Problem) -> tuple[Answer | None, int]:
    """Returns the answer for a tree where a little work is enough for one, None where it is not;
    and what that has cost, in packings."""
    bounds = bounds_of(problem)
    if bounds.lacking >= 0:
        return InfeasibleProblem(bounds.lacking, "counting"), 0
    size = _size_of(problem)
    is_solved = size <= VARIABLES_AT_ONCE
    search = Search(problem, bounds, packings_max=PACKINGS_AT_ONCE)
    best = search.run(FIRST_ROUNDS if is_solved else ROUNDS_MAX)
    cost = search.board.packings
    if best is None and is_solved:
        model = Model(problem, bounds)
        outcome, _ = model.solve(steps(WORK_AT_ONCE, model.size), without_gain=True)
        cost += (1 + model.matrix.calls) * model.size * COST_OF_VARIABLE
        if outcome is Outcome.INFEASIBLE:
            return InfeasibleProblem(-1, "exact model"), cost
    best = search.run()
    if best is None:
        return None, cost
    is_most = best.count >= ENOUGH * bounds.pods_max
    return FoundPlacement(_check(problem, best), "search", is_most), cost


def improve_at_once(problem: Problem, first: FoundPlacement) -> FoundPlacement | None:
    """Returns what `improve` does where a little work is enough; None where it is not."""
    if _size_of(problem) > VARIABLES_AT_ONCE:
        return None
    found = improve(problem, first, WORK_AT_ONCE)
    return found if found.is_most else None


def place(
    problem: Problem,
    work: int = WORK_MAX,
    effort: int = 1,
    begun: Progress = NO_PROGRESS,
) -> Answer:
    """Returns the answer for a tree. `work`: the solver's budget, 0 for no solver; `effort`: the
    factor for all budgets, for trees whose last search was exhausted; `begun`: where that one
    ended."""
    work *= min(effort, SOLVER_EFFORT_MAX)
    bounds = bounds_of(problem)
    if bounds.lacking >= 0:
        return InfeasibleProblem(bounds.lacking, "counting")
    search = Search(problem, bounds, effort, begun)
    most, solved = VARIABLES_MAX * min(effort, 2), None
    if work and _size_of(problem) <= SMALL and search.run(last=FIRST_ROUNDS) is None:
        solved = _solve_exactly(problem, bounds, work, search.board.packings, most)
        if isinstance(solved, InfeasibleProblem):
            return solved
    best, stage, searched = search.run(), "search", search.board.packings
    if best is None and isinstance(solved, FoundPlacement):
        return solved
    if best is None and work and not problem.rules:  # which reach beyond a subtree
        repair = RepairSearch(problem, bounds, effort)
        best, stage = repair.repair(REPAIR_STEPS), "repair"
        searched += repair.board.packings + repair.calls * REPAIR_STEPS
    if best is None:
        answer = solved or _solve_exactly(problem, bounds, work, searched, most)
        if isinstance(answer, ExhaustedSearch):
            return msgspec.structs.replace(answer, progress=search.progress)
        return answer
    return FoundPlacement(_check(problem, best), stage, best.count >= ENOUGH * bounds.pods_max)


def _size_of(problem: Problem) -> int:
    """Returns about how many variables the exact model has, without building it."""
    return problem.node_count * sum(len(group.parts) for group in problem.groups)


def _solve_exactly(
    problem: Problem, bounds: Bounds, work: int, searched: int, variables_max: int
) -> Answer:
    """Returns the answer of the exact model, for any number of pods beyond the minimums."""
    model = Model(problem, bounds) if work else None
    if model is None or model.size > variables_max:
        return ExhaustedSearch("search", searched)
    most = steps(work, model.size)
    outcome, placement = model.solve(most, without_gain=True)
    if outcome is Outcome.INFEASIBLE:
        return InfeasibleProblem(-1, "exact model")
    if placement is None or faults_of(problem, placement):
        return ExhaustedSearch("exact model", searched + most)
    is_most = placement.count >= ENOUGH * bounds.pods_max
    return FoundPlacement(_check(problem, placement), "exact model", is_most)


def improve(
    problem: Problem, first: FoundPlacement, work: int = WORK_MAX, effort: int = 1
) -> FoundPlacement:
    """Returns a placement with more pods than this one: first in the domains that were chosen, then
    in any; the same where none was found. `work`, `effort`: see `place`."""
    bounds, work = bounds_of(problem), work * min(effort, IMPROVING_EFFORT_MAX)
    model = Model(problem, bounds)
    if model.size > VARIABLES_MAX:
        return first
    most = model.matrix.solve_relaxed()
    pods_max = bounds.pods_max if most is None else min(bounds.pods_max, int(most + 1e-6))
    best = first
    if best.placement.count < ENOUGH * pods_max:
        frozen = Model(problem, bounds, _freeze_domains(problem, bounds, first.placement))
        _, found = frozen.solve(steps(work // 4, frozen.size), GAP)
        best = _better(problem, best, found, "frozen domains")
    if best.placement.count < ENOUGH * pods_max:
        outcome, found = model.solve(steps(work, model.size), GAP)
        best = _better(problem, best, found, "exact model")
        # A better one that was not valid proves nothing.
        is_most = outcome is Outcome.SOLVED and (
            found is None or found.count <= best.placement.count
        )
    else:
        is_most = True
    return msgspec.structs.replace(best, is_most=True) if is_most else best


def _better(
    problem: Problem, best: FoundPlacement, found: Placement | None, stage: str
) -> FoundPlacement:
    """Returns what the stage has found where that is valid and has more pods."""
    if found is None or found.count <= best.placement.count or faults_of(problem, found):
        return best
    return FoundPlacement(found, stage, False)


def steps(work: int, size: int) -> int:
    """Returns the number of solver callbacks for a model of this size."""
    return max(work // max(size, 1), 8)


def _freeze_domains(problem: Problem, bounds: Bounds, placement: Placement) -> list[np.ndarray]:
    """Returns as `alive` for the model: placed groups only in their current domains."""
    alive = [a.copy() for a in bounds.alive]
    seen: set[int] = set()
    for piece in placement.pieces:
        g = piece.group
        while g >= 0 and g not in seen:
            seen.add(g)
            domain = problem.scopes[problem.groups[g].scope].codes[piece.node]
            alive[g][:] = False
            alive[g][domain] = True
            g = problem.groups[g].parent
    return alive


def _check(problem: Problem, placement: Placement) -> Placement:
    faults = faults_of(problem, placement)
    assert not faults, faults[0]
    return placement
