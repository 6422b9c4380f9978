"""Generates the script of a seed: one changing cluster with pods of all kinds.

Plain pods are always there (plain_load.py); the other parts (PARTS) share their nodes. Each part
draws from a generator of its own, so that leaving out a part changes nothing for the others.
"""

from collections.abc import Collection
from functools import partial
from typing import Final

from stower.sim.device_load import with_devices
from stower.sim.group_load import with_groups
from stower.sim.large_load import Size, draw_large
from stower.sim.made_up_load import draw_made_up
from stower.sim.negotiated_load import with_negotiation
from stower.sim.plain_load import draw_plain
from stower.sim.rival_load import draw_rivals
from stower.sim.script import MILLI_NS, AddDevices, AnyHappening, Script, Template
from stower.sim.vm_load import SHARE_OF_PROFILE, with_vms
from stower.sim.warm_load import with_warmth

# Devices of half of the seeds, drivers that negotiate theirs, trees of pod groups, VMs with agents
# and migrations, a warm pool with users and an autoscaler, a user who makes up names, and a second
# scheduler for the same devices.
PARTS: Final = ("devices", "negotiation", "groups", "vms", "warm", "made-up", "rivals")


def draw_script(
    seed: int,
    faults: tuple[str, ...],
    active_ns: int,
    size: Size | None = None,
    parts: Collection[str] = PARTS,
) -> Script:
    """Returns the script of a seed, of the size that the seed draws unless one is given, with plain
    pods and these parts."""
    active_ms = active_ns // MILLI_NS
    draw = _draw_small if size is None else partial(draw_large, size)
    templates, happenings = draw(seed, active_ms, parts)
    happenings.sort(key=lambda happening: happening.at_ms)
    return Script(seed, faults, active_ms, tuple(templates), tuple(happenings))


def _draw_small(
    seed: int, active_ms: int, parts: Collection[str]
) -> tuple[list[Template], list[AnyHappening]]:
    nodes, templates, happenings, changes = draw_plain(seed, active_ms)
    if "devices" in parts:
        templates, more = with_devices(seed, nodes, templates, active_ms)
        happenings += more
    if "negotiation" in parts:
        templates, more = with_negotiation(seed, nodes, templates, active_ms)
        happenings += more
    if "groups" in parts:
        templates, happenings = with_groups(seed, templates, happenings, active_ms)
    happenings += changes
    if "vms" in parts:
        share = SHARE_OF_PROFILE if "warm" in parts else 1.0
        templates, happenings = with_vms(seed, templates, happenings, active_ms, share)
    if "warm" in parts:
        happenings = with_warmth(seed, happenings, active_ms)
    if "made-up" in parts:
        happenings += draw_made_up(seed, active_ms)
    if "rivals" in parts:
        has_devices = any(isinstance(happening, AddDevices) for happening in happenings)
        more_templates, more = draw_rivals(seed, has_devices, active_ms)
        templates, happenings = [*templates, *more_templates], [*happenings, *more]
    return templates, happenings
