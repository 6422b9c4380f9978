"""Generates the script of a seed for a cluster of a given size, with all parts.

Pods arrive at a rate that swings with the time of day, and end, so that FILL of the CPU is in use
on average. Each part has a share of the pods; most are plain. The parts meet in small clusters
(load.py); what size costs shows here.
"""

import math
import random
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from stower.model.kinds import Node
from stower.sim.arrivals import daily
from stower.sim.device_load import with_devices
from stower.sim.group_load import draw_jobs
from stower.sim.negotiated_load import with_negotiation
from stower.sim.plain_load import CORES, draw_node, draw_node_changes, draw_template
from stower.sim.script import AddNode, AddPod, AnyHappening, Template
from stower.sim.vm_load import SHARE_OF_PROFILE, with_vms
from stower.sim.warm_load import with_warmth

TEMPLATES: Final = 40
FILL: Final = 0.4  # on average; at the peak of a day, nearly twice that
SHARE_OF_GROUPS: Final = 0.03  # of the pods
SHARE_OF_USERS: Final = 0.1
NODES_PER_VM: Final = 100
SHARE_OF_NEGOTIATED: Final = 0.05  # of the templates without other claims
# Some pods and groups ask for more than any node has. Users do not wait for these for days.
GIVES_UP_MS: Final = 10 * 60 * 1000


class Size(msgspec.Struct, frozen=True):
    """The number of nodes at the start, and of pods that arrive during the run, VMs and
    placeholders not counted."""

    nodes: int
    pods: int


def draw_large(
    size: Size, seed: int, active_ms: int, parts: Collection[str]
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns the templates and all happenings, in no order."""
    chance = random.Random(f"{seed}:load")
    nodes = [draw_node(i, chance) for i in range(size.nodes)]
    happenings: list[AnyHappening] = [AddNode(0, node) for node in nodes]
    templates = []
    for i in range(TEMPLATES):
        template, _, budgets = draw_template(i, chance, active_ms)
        templates.append(msgspec.structs.replace(template, is_replaced=False))
        happenings += budgets
    mean_ms = _mean_lifetime_ms(size, nodes, active_ms)
    grouped = math.ceil(size.pods * SHARE_OF_GROUPS) if "groups" in parts else 0
    users = math.ceil(size.pods * SHARE_OF_USERS) if "warm" in parts else 0
    plain = max(size.pods - grouped - users, 0)
    happenings += _draw_pods(plain, templates, chance, mean_ms, active_ms)
    happenings += draw_node_changes(nodes, chance, active_ms)
    if "devices" in parts:
        templates, more = with_devices(seed, nodes, templates, active_ms, is_large=True)
        happenings += more
    if "negotiation" in parts:
        share = SHARE_OF_NEGOTIATED
        templates, more = with_negotiation(seed, nodes, templates, active_ms, share, False)
        happenings += more
    if grouped:
        jobs, more = draw_jobs(seed, templates, grouped, mean_ms, active_ms)
        templates += jobs
        happenings += more
    if "vms" in parts:
        share = SHARE_OF_PROFILE if "warm" in parts else 1.0
        count = max(2, size.nodes // NODES_PER_VM)
        templates, happenings = with_vms(seed, templates, happenings, active_ms, share, count)
    if "warm" in parts:
        happenings = with_warmth(seed, happenings, active_ms, users, mean_ms)
    return [msgspec.structs.replace(t, gives_up_ms=GIVES_UP_MS) for t in templates], happenings


def _mean_lifetime_ms(size: Size, nodes: list[Node], active_ms: int) -> float:
    """Returns the lifetime with which FILL of the CPU is in use (Little's law)."""
    have = sum(int(str((node.status.allocatable or {})["cpu"])) for node in nodes)
    want = sum(CORES) / len(CORES)
    return active_ms * FILL * have / (want * max(1, size.pods))


def _draw_pods(
    count: int, templates: list[Template], chance: random.Random, mean_ms: float, active_ms: int
) -> Iterator[AnyHappening]:
    for at_s in daily(count, active_ms / 1000, chance):
        lasts_ms = 1 + int(chance.expovariate(1 / mean_ms))
        template = chance.choice(templates).name
        yield AddPod(int(at_s * 1000), template, chance.choice((0, 0, 0, 10)), lasts_ms)
