"""Rules that say which VM leaves a node above its watermark next; `migrationRule` names one.

OldestFirst is neon's. LeastMemory moves the VMs that together have the least memory to copy and
bring the node to its watermark. Only arithmetic: whether a VM has somewhere to go is found out for
the VM that is chosen, and the rule is asked again without it.
Source: seed 004; neondatabase/autoscaling pkg/plugin/migration.go (OldestFirst).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from stower.vms.amounts import CPU_MASK, MEMORY_MASK
from stower.vms.nodes import VmNode, discounted_amount
from stower.vms.pods import PodState

# A node, and those that may leave it, the oldest first: which of them is next.
Rule = Callable[[VmNode, Sequence[PodState]], PodState]
STATES_MAX: Final = 500  # of a search; what it has found until then is used


class Leaving(NamedTuple):
    """What it takes to move a VM, and what that frees: milli-CPU and bytes."""

    cost: int
    cpu: int
    memory: int


def oldest_first(node: VmNode, candidates: Sequence[PodState]) -> PodState:
    """So the same VMs are not moved again and again. Candidates are sorted by age."""
    return candidates[0]


def least_memory(node: VmNode, candidates: Sequence[PodState]) -> PodState:
    """The VM with the most CPU of the smallest set that is enough: it is the hardest to place.
    Where all of them are not enough, the one that frees the most for its memory."""
    needs = node.cpu.excess_over_watermark, node.memory.excess_over_watermark
    found = [
        Leaving(
            # Bytes; of sets with as many, the one with the least CPU, which others may need.
            pod.memory.reserved + pod.cpu.reserved,
            discounted_amount(pod.cpu, CPU_MASK),
            discounted_amount(pod.memory, MEMORY_MASK),
        )
        for pod in candidates
    ]
    chosen = smallest_set(found, *needs)
    if chosen:
        return candidates[max(chosen, key=lambda i: (found[i].cpu, found[i].memory, -i))]
    return candidates[max(range(len(found)), key=lambda i: (_worth(found[i], *needs), -i))]


RULES: Final[Mapping[str, Rule]] = {"OldestFirst": oldest_first, "LeastMemory": least_memory}


class _Open(NamedTuple):
    """A set that a search has begun: from which place on it may grow, and what it still lacks."""

    at: int
    chosen: tuple[int, ...]
    cost: int
    cpu: int
    memory: int


class _Rest(NamedTuple):
    """What all from a place on free together, and at least at what cost each unit of it."""

    cpu: int = 0
    memory: int = 0
    per_cpu: float = math.inf
    per_memory: float = math.inf

    def lower_bound(self, one: _Open) -> float:
        """Of the cost of what the set still lacks; infinite where it cannot be had."""
        if self.cpu < one.cpu or self.memory < one.memory:
            return math.inf
        return max(
            one.cpu * self.per_cpu if one.cpu > 0 else 0.0,
            one.memory * self.per_memory if one.memory > 0 else 0.0,
        )


def smallest_set(found: Sequence[Leaving], cpu: int, memory: int) -> list[int]:
    """Returns the indexes of the set with the least cost that frees so much: the best that a search
    of so many states finds, which begins with those that free the most at their cost. Empty where
    all together do not free that much."""
    order = sorted(range(len(found)), key=lambda i: (-_worth(found[i], cpu, memory), i))
    rests = [_Rest()]
    for one in (found[i] for i in reversed(order)):
        last = rests[-1]
        rests.append(
            _Rest(
                last.cpu + one.cpu,
                last.memory + one.memory,
                min(last.per_cpu, one.cost / one.cpu if one.cpu else math.inf),
                min(last.per_memory, one.cost / one.memory if one.memory else math.inf),
            )
        )
    rests.reverse()
    best: tuple[int, ...] = ()
    best_cost, states = math.inf, 0
    open_sets = [_Open(0, (), 0, cpu, memory)]
    while open_sets and (states < STATES_MAX or not best):
        states += 1
        now = open_sets.pop()
        if now.cost + rests[now.at].lower_bound(now) >= best_cost:
            continue
        if now.cpu <= 0 and now.memory <= 0:
            best, best_cost = now.chosen, now.cost
            continue
        i = order[now.at]
        one = found[i]
        open_sets.append(now._replace(at=now.at + 1))
        taken = (*now.chosen, i), now.cost + one.cost, now.cpu - one.cpu, now.memory - one.memory
        open_sets.append(_Open(now.at + 1, *taken))
    return [*best]


def _worth(one: Leaving, cpu: int, memory: int) -> float:
    """The share of what is to be freed, by its cost."""
    freed = (min(one.cpu, cpu) / cpu if cpu > 0 else 0.0) + (
        min(one.memory, memory) / memory if memory > 0 else 0.0
    )
    return freed / max(one.cost, 1)
