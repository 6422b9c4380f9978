"""Validates a placement against all rules of its problem: capacities, minimums and topology
domains.

Must not use code of the stages that find placements, so that their bugs are detected.
"""

import numpy as np

from stower.groups.problem import Placement, Problem


def faults_of(problem: Problem, placement: Placement) -> list[str]:
    """Returns the violations of a placement; an empty list if it is valid."""
    faults: list[str] = []
    left = problem.free.copy()
    placed = [0] * len(problem.groups)
    domains: list[set[int]] = [set() for _ in problem.groups]
    of_part: dict[tuple[int, int], int] = {}
    of_kind: dict[tuple[int, int], int] = {}
    for piece in placement.pieces:
        part = problem.groups[piece.group].parts[piece.part]
        left[:, piece.node] -= problem.kinds[part.kind].demand * piece.count
        key = (piece.group, piece.part)
        of_part[key] = of_part.get(key, 0) + piece.count
        on = (part.kind, piece.node)
        of_kind[on] = of_kind.get(on, 0) + piece.count
        g = piece.group
        while g >= 0:
            placed[g] += piece.count
            domains[g].add(int(problem.scopes[problem.groups[g].scope].codes[piece.node]))
            g = problem.groups[g].parent
    for (g, p), count in of_part.items():
        if count > problem.groups[g].parts[p].count:
            faults.append(
                f"{problem.groups[g].name}: placed {count} pods of part {p}, more than the part has"
            )
    for (kind, node), count in of_kind.items():
        if count > problem.kinds[kind].cap[node]:
            faults.append(
                f"node {node}: placed {count} pods of kind {kind}, more than allowed there"
            )
    if (left < 0).any():
        faults.append(
            f"node {int((left < 0).any(axis=0).argmax())}: demands exceed the free amounts"
        )
    admitted = [False] * len(problem.groups)
    for g in range(len(problem.groups) - 1, -1, -1):
        group = problem.groups[g]
        have = sum(admitted[c] for c in group.children) if group.children else placed[g]
        admitted[g] = have >= group.minimum
        if placed[g] and not admitted[g]:
            faults.append(f"{group.name}: placed {have}, want at least {group.minimum}")
        if placed[g] and (len(domains[g]) > 1 or -1 in domains[g]):
            faults.append(f"{group.name}: placed in {len(domains[g])} domains, want 1")
        if placed[g] and group.domains is not None and not domains[g] <= group.domains:
            faults.append(f"{group.name}: placed outside its allowed domains")
    for rule in problem.rules:
        counts = np.zeros((len(problem.kinds), rule.domain_count), np.int64)
        for (kind, node), count in of_kind.items():
            counts[kind, rule.codes[node]] += count
        if rule.is_broken(counts):
            faults.append(f"a rule between pods is broken: {type(rule).__name__}")
    if not admitted[0]:
        faults.append(f"{problem.groups[0].name}: the minimum is not placed")
    return faults
