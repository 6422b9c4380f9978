"""Compares the rules that say which VM leaves a node first, on the same drawn clusters:
`python -m tests.vms.rules_compared` prints what docs/vms.md has.

Nodes of 32 CPUs and 256 GiB are full of VMs of random sizes up to shares that are drawn: with room
elsewhere for all that is above the watermark of 90 %, and with hardly any. A migration takes 6 s,
and 1 s for each GiB.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

from stower.vms.migration_rules import RULES
from tests.builders import make_node
from tests.vms.migrating_rig import Moving

WATERMARK_MILLI = 28_800
RUNS_S = 600
SHARES = ((0.75, 0.97), (0.85, 0.95))


class Outcome(NamedTuple):
    """Of all clusters of a rule. `node_seconds_above`: how long nodes were above their watermark,
    together; `nodes_left_above`: which have nowhere to send a VM."""

    rule: str
    moves: int
    gib: int
    node_seconds_above: int
    nodes_left_above: int


def compare(
    nodes: int = 50, seeds: Iterable[int] = range(10), shares: tuple[float, float] = SHARES[0]
) -> list[Outcome]:
    """Returns what came of each rule. `shares`: the least and the largest of a node."""
    return [_measure(rule, nodes, [*seeds], shares) for rule in RULES]


def _measure(rule: str, count: int, seeds: list[int], shares: tuple[float, float]) -> Outcome:
    moves = gib = seconds = left = 0
    for seed in seeds:
        chance = random.Random(seed)
        names = [f"n{i}" for i in range(count)]
        nodes = (make_node(name, cpu="32", memory="256Gi") for name in names)
        rig = Moving(*nodes, migrationRule=rule)
        rig.sizes_gib = (1, 2, 4, 8, 16)
        used = {name: 32 * chance.uniform(*shares) for name in names}
        rig.start(*(p for name in names for p in rig.fill(chance, name, used[name])))
        for _ in range(RUNS_S):
            rig.run(1)
            above = sum(
                sum(cpu for cpu, _ in loads) > WATERMARK_MILLI for loads in rig.loads().values()
            )
            seconds += above
        moves += len(rig.moves)
        gib += sum(rig.sizes[vm][1] for _, vm in rig.moves)
        left += above
    return Outcome(rule, moves, gib, seconds, left)


if __name__ == "__main__":
    for least, most in SHARES:
        print(f"Nodes {least:.0%} to {most:.0%} full:")
        for one in compare(shares=(least, most)):
            print(
                f"  {one.rule}: {one.moves} moves, {one.gib} GiB, {one.node_seconds_above} "
                f"node-seconds above the watermark, {one.nodes_left_above} nodes left above"
            )
