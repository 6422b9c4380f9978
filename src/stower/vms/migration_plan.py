"""Plans the migrations that bring nodes to their watermarks, in rounds, before any of them begins.

Each round is what the scheduler would begin at once; the next one begins when all its VMs have
moved. Everything happens in a trial of the nodes, which is rolled back. Only amounts count: the
scheduler also asks whether a pod fits on a node otherwise.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from stower.state.journal import Journal
from stower.vms.config import Config
from stower.vms.migration_rules import RULES
from stower.vms.migrations import choose
from stower.vms.nodes import VmNode
from stower.vms.notes import Notes
from stower.vms.pods import PodState
from stower.vms.targets import TargetSearch, rooms_of


class PlannedMove(msgspec.Struct, frozen=True, rename="camel"):
    """A VM that leaves `source` for `target` in a round from 1; `milli_cpu` and `bytes`: its size;
    the memory is what has to be copied."""

    round: int
    vm: str
    source: str
    target: str
    milli_cpu: int
    bytes: int


class MigrationPlan(msgspec.Struct, frozen=True, rename="camel"):
    """`above_before`, `above_after`: nodes above their watermark; `bytes`: of all moves."""

    rule: str
    moves: list[PlannedMove]
    bytes: int
    above_before: list[str]
    above_after: list[str]


def plan_migrations(known: Mapping[str, VmNode], journal: Journal, config: Config) -> MigrationPlan:
    """Returns the plan for these nodes, whose changes the journal records. No VM moves twice."""
    before = [name for name, node in known.items() if node.is_above_watermark]
    moves: list[PlannedMove] = []
    moved: set[str] = set()  # VMs
    with journal.trial():
        while True:
            made = _plan_round(known, journal, config, moved)
            if not made:
                break
            number = moves[-1].round + 1 if moves else 1
            for pod, source, target in made:
                moved.add(pod.vm)
                known[source].remove(pod.uid)
                known[target].add(pod)
                moves.append(
                    PlannedMove(
                        number, pod.vm, source, target, pod.cpu.reserved, pod.memory.reserved
                    )
                )
        after = [name for name, node in known.items() if node.is_above_watermark]
    total = sum(move.bytes for move in moves)
    return MigrationPlan(config.migration_rule, moves, total, before, after)


class _Round:
    """What leaves at once: `made` has pods, and from where to where they go."""

    def __init__(self, known: Mapping[str, VmNode], config: Config, moved: set[str]) -> None:
        self.made: list[tuple[PodState, str, str]] = []
        self._config = config
        self._moved = moved
        self._search = TargetSearch(rooms_of(known.values()), lambda uid, name: True)

    def leave(self, pod: PodState, source: str) -> bool:
        """Whether the pod may leave, which is counted then."""
        config, here = self._config, sum(one[1] == source for one in self.made)
        if 0 < config.migrations_per_node_max <= here or pod.vm in self._moved:
            return False
        if 0 < config.migrations_max <= len(self.made):
            return False
        target = self._search.find(pod, source)
        if target:
            self._search.take(pod, target)
            self.made.append((pod, source, target))
        return bool(target)


def _plan_round(
    known: Mapping[str, VmNode], journal: Journal, config: Config, moved: set[str]
) -> list[tuple[PodState, str, str]]:
    plan = _Round(known, config, moved)
    for name, node in known.items():
        choose(
            node, (), journal, lambda uid: None, Notes(),
            has_target=partial(plan.leave, source=name), rule=RULES[config.migration_rule],
        )  # fmt: skip
    return plan.made
