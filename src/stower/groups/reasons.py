"""Words the reason why a tree has no placement, for conditions and Events: the lowest group that
cannot be placed, and the resource or nodes that it lacks.

If counting (bounds) proves it, the message names the group and what runs out in each domain; if
only the exact model does, it names the scarcest resource. Must not know how messages are reported.
"""

from typing import Final

import msgspec
import numpy as np

from stower.groups.bounds import (
    bounds_of,
    count_fitting,
    count_together,
    least_amount,
    scope_sums,
)
from stower.groups.conflicts import find_conflict
from stower.groups.placement import Answer, Conflict, ExhaustedSearch, InfeasibleProblem
from stower.groups.problem import Group, Problem
from stower.groups.tree import Tree

# How messages about trees begin that have no placement.
IMPOSSIBLE: Final = "impossible (proven)"
NOT_FOUND: Final = "not found yet"
NO_NODE: Final = "no node is feasible for one of its pods"


def failure_message(problem: Problem, answer: Answer, tree: Tree, goes_on: bool) -> str:
    """Returns one sentence on why the tree has no placement, for conditions and Events. goes_on:
    whether the search goes on, where it was given up, before anything changes."""
    if isinstance(answer, ExhaustedSearch):
        then = "goes on" if goes_on else "waits for a change"
        return (
            f"{NOT_FOUND} (searched {answer.searched:,}, {then}): the whole group was neither "
            f"placed nor proved impossible (stage: {answer.stage})"
        )
    return f"{IMPOSSIBLE}: {_why_impossible(problem, answer, tree)}"


def _why_impossible(problem: Problem, answer: Answer, tree: Tree) -> str:
    g = answer.counted if isinstance(answer, InfeasibleProblem) else 0
    if g < 0:
        found = answer.conflict if isinstance(answer, InfeasibleProblem) else None
        if isinstance(found, msgspec.UnsetType):
            found = find_conflict(problem)
        return _of_conflict(problem, tree, found)
    group = problem.groups[g]
    if group.children:
        return _of_groups(problem, tree, g)
    return _of_pods(problem, tree, g)


def _of_conflict(problem: Problem, tree: Tree, found: Conflict | None) -> str:
    """Words what only the exact model proves."""
    scarce = _scarcest_resource(problem)
    if found is None:
        return (
            f"{_name(tree, 0)} cannot be placed as a whole: each of its groups fits alone, "
            f"but not all of them fit together; {scarce}"
        )
    parts = [
        f"{_minimum_text(problem, tree, g)}"
        f"{_topology_text(tree, g) if g in found.topologies else ''}"
        for g in found.minimums
    ]
    parts += [
        f"all of {_name(tree, g)}{_topology_text(tree, g)}"
        for g in found.topologies
        if g not in found.minimums
    ]
    start = "these do not fit together" if len(parts) > 1 else "this does not fit"
    end = f", with {' and '.join(dict.fromkeys(found.rules))}" if found.rules else f"; {scarce}"
    return f"{start}: {', '.join(parts)}{end}"


def _minimum_text(problem: Problem, tree: Tree, g: int) -> str:
    group = problem.groups[g]
    if group.children:
        return f"{group.minimum} of the {len(group.children)} groups of {_name(tree, g)}"
    return f"{group.minimum} pods of {_name(tree, g)}"


def _name(tree: Tree, g: int) -> str:
    which = tree.groups[g].which
    return f"{'CompositePodGroup' if which.is_composite else 'PodGroup'} {which.key}"


def _topology_text(tree: Tree, g: int) -> str:
    """Returns " in one <key>" for the finest topology key that applies to the group, "" for
    none."""
    keys = []
    while g >= 0:
        if key := tree.groups[g].topology:
            keys.append(key)
        g = tree.groups[g].parent
    return f" in one {keys[0]}" if keys else ""


def _of_pods(problem: Problem, tree: Tree, g: int) -> str:
    group = problem.groups[g]
    scope = problem.scopes[group.scope]
    need = f"{_name(tree, g)} needs {group.minimum} pods{_topology_text(tree, g)}"
    if group.count < group.minimum:
        return f"{need}, but has {group.count} pending pods"
    if not scope.count:
        return f"{need}, but there is no such domain"
    fits = _max_pods(problem, g)
    best = int(fits.argmax())
    rooms = scope_sums(problem.free, scope)
    together = count_together(problem, group, rooms) if len(group.parts) > 1 else fits
    if int(fits[best]) < group.minimum or int(np.minimum(fits, together).max()) >= group.minimum:
        return f"{need}, {int(fits[best])} fit: {_lacking_resources(problem, g, best)}"
    # Of each size as many fit as are needed, but not of all sizes together.
    best = int(np.minimum(fits, together).argmax())
    if int(fits[best]) <= int(together[best]):
        return f"{need}, {int(fits[best])} fit: {_lacking_resources(problem, g, best)}"
    short = [
        f"Insufficient {problem.resources[r]}"
        for r in range(len(problem.resources))
        if int(_fitting_by(problem, group, r, rooms)[best]) < group.minimum
    ]
    return f"{need}, {int(together[best])} of different sizes fit together: {', '.join(short)}"


def _fitting_by(problem: Problem, group: Group, r: int, rooms: np.ndarray) -> np.ndarray:
    """Returns int64[domain]: how many pods of a group one resource is enough for."""
    demands = np.array([problem.kinds[part.kind].demand[r] for part in group.parts])
    counts = np.array([part.count for part in group.parts])
    return count_fitting(demands, counts, rooms[r])


def _max_pods(problem: Problem, g: int) -> np.ndarray:
    """Returns int64[domain]: how many pods of the group fit in each domain."""
    group = problem.groups[g]
    scope = problem.scopes[group.scope]
    rows = slice(0, problem.node_count)
    most = np.zeros(scope.count, np.int64)
    for part in group.parts:
        sums = scope.sums(problem.slots(part.kind, problem.free, rows))
        most += np.minimum(sums, part.count)
    return most


def _lacking_resources(problem: Problem, g: int, domain: int) -> str:
    """Returns the resources that run out first on the domain's feasible nodes; if no node is
    feasible, those of which its nodes have too little for one pod."""
    group = problem.groups[g]
    nodes = problem.scopes[group.scope].members(domain)
    if not problem.free[:, nodes].size:
        return NO_NODE
    first: dict[int, None] = {}
    at_once: dict[int, None] = {}
    refused = 0
    for part in group.parts:
        kind = problem.kinds[part.kind]
        free = problem.free[:, nodes]
        open_ = kind.cap[nodes] > 0
        lacks = (free < kind.demand[:, None]) & (kind.demand > 0)[:, None]
        refused += int((~open_ & ~lacks.any(axis=0)).sum())
        fit = int(_slots(problem, part.kind, nodes).sum())
        for r in np.flatnonzero(kind.demand).tolist():
            slots = int((free[r] // kind.demand[r])[open_].sum())
            if open_.any() and (slots < min(group.minimum, part.count) or slots <= fit):
                first[r] = None
            if (lacks[r] & ~open_).any():
                at_once[r] = None
    short = first or at_once
    if not short:
        return f"{refused} node(s) are rejected by other plugins" if refused else "too few nodes"
    return ", ".join(f"Insufficient {problem.resources[r]}" for r in short)


def _slots(problem: Problem, kind: int, nodes: object) -> np.ndarray:
    return problem.slots(kind, problem.free[:, nodes], nodes)  # type: ignore[index, arg-type]


def _of_groups(problem: Problem, tree: Tree, g: int) -> str:
    group = problem.groups[g]
    bounds = bounds_of(problem)
    need = (
        f"{_name(tree, g)} needs {group.minimum} of its {len(group.children)} groups"
        f"{_topology_text(tree, g)}"
    )
    if len(group.children) < group.minimum:
        return need
    nowhere = [c for c in group.children if not bounds.alone[c].any() and not bounds.met[c]]
    if len(group.children) - len(nowhere) < group.minimum:
        return f"{need}, but these do not fit: {', '.join(_name(tree, c) for c in nowhere)}"
    scope = problem.scopes[group.scope]
    able = np.zeros(scope.count, np.int64)
    for c in group.children:
        own = bounds.alone[c]
        child = problem.groups[c].scope
        if child == group.scope:
            able += own | bounds.met[c]
        else:
            inside = np.full(scope.count, bounds.met[c])
            inside[problem.outer_domains(child, group.scope)[own]] = True
            able += inside
    if not len(able):
        return f"{need}, but there is no such domain"
    if int(able.max()) < group.minimum:
        return f"{need}, but at most {int(able.max())} of them fit"
    room, least = scope_sums(problem.free, scope), bounds.least[g]
    short = [
        f"Insufficient {name}"
        for r, name in enumerate(problem.resources)
        if (least[r] > room[r][able >= group.minimum]).all()
    ]
    return f"{need}, but not all of them fit together: {', '.join(short) or 'too little room'}"


def _scarcest_resource(problem: Problem) -> str:
    """Returns the resource of which the minimums take the largest share."""
    total = np.maximum(problem.free.sum(axis=1), 1)
    least = np.zeros(len(total), np.int64)
    for group in problem.groups:
        if group.parts and group.minimum > 0:
            demands = np.stack([problem.kinds[part.kind].demand for part in group.parts])
            counts = np.array([part.count for part in group.parts])
            least += [least_amount(demands[:, r], counts, group.minimum) for r in range(len(total))]
    if not len(total):
        return "too few nodes"
    r = int((least / total).argmax())
    return f"the scarcest resource is {problem.resources[r]}"
