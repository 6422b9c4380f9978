"""Which requirements of a tree contradict each other, where the exact model has proved that there
is no placement: a smallest set of them, without any one of which the rest could be met.

Must not know how messages are worded.
"""

from typing import Any, Final

import msgspec

from stower.groups.placement import Conflict, InfeasibleProblem, place
from stower.groups.problem import Problem

# So many problems are solved at most, each one smaller than the last.
REQUIREMENTS_MAX: Final = 40


def find_conflict(problem: Problem) -> Conflict | None:
    """Returns a conflict of a problem that has no placement; None where there are too many
    requirements, or where nothing can be left out."""
    groups = range(len(problem.groups))
    # Minimums that have to be met in any case: of pods, or of groups that stand for each other.
    leaves = [
        g
        for g in groups
        if problem.groups[g].minimum > 0
        and (problem.groups[g].parts or not _needs_all(problem, g))
        and _is_needed(problem, g)
    ]
    keyed = [g for g in groups if _has_own_scope(problem, g)]
    rules = [rule.what for rule in problem.rules]
    if len(leaves) + len(keyed) + len(rules) > REQUIREMENTS_MAX:
        return None
    found = Conflict([], [], [])
    for name in rules:
        problem = _tried(problem, _without_rule(problem, name), found.rules, name)
    for g in keyed:
        problem = _tried(problem, _without_topology(problem, g), found.topologies, g)
    for g in leaves:
        problem = _tried(problem, _without_minimum(problem, g), found.minimums, g)
    return found if found.minimums else None


def _tried(problem: Problem, relaxed: Problem, needed: list[Any], what: object) -> Problem:
    """Returns the relaxed problem if that has no placement either; else what was left out is part
    of the conflict."""
    if isinstance(place(relaxed), InfeasibleProblem):
        return relaxed
    needed.append(what)
    return problem


def _needs_all(problem: Problem, g: int) -> bool:
    group = problem.groups[g]
    return group.minimum >= len(group.children)


def _is_needed(problem: Problem, g: int) -> bool:
    """Returns whether all groups above need all of theirs."""
    while (g := problem.groups[g].parent) >= 0:
        if not _needs_all(problem, g):
            return False
    return True


def _has_own_scope(problem: Problem, g: int) -> bool:
    group = problem.groups[g]
    outer = problem.groups[group.parent].scope if group.parent >= 0 else 0
    return group.scope != outer and group.domains is None


def _without_rule(problem: Problem, name: str) -> Problem:
    rules = tuple(rule for rule in problem.rules if rule.what != name)
    return msgspec.structs.replace(problem, rules=rules)


def _without_topology(problem: Problem, g: int) -> Problem:
    groups = list(problem.groups)
    group = groups[g]
    scope = groups[group.parent].scope if group.parent >= 0 else 0
    for other in range(g, len(groups)):
        # Groups below without a key of their own share the domain of this one.
        if groups[other].scope == group.scope and _is_below(problem, other, g):
            groups[other] = msgspec.structs.replace(groups[other], scope=scope)
    return msgspec.structs.replace(problem, groups=tuple(groups))


def _is_below(problem: Problem, g: int, top: int) -> bool:
    while g >= 0 and g != top:
        g = problem.groups[g].parent
    return g == top


def _without_minimum(problem: Problem, g: int) -> Problem:
    groups = list(problem.groups)
    groups[g] = msgspec.structs.replace(groups[g], minimum=0)
    return msgspec.structs.replace(problem, groups=tuple(groups))
