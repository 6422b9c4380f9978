"""Draws the plots of `stower what-if`, `devices` and `warm`, with units on the axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stower.cli.plot import COLOURS, draw_empty, from_zero, pyplot, save
from stower.model.quantity import parse_quantity

if TYPE_CHECKING:  # their modules import the engine, which `stower devices` does not need
    from stower.devices.overview import DeviceState, Overview
    from stower.sim.what_if import Comparison, Outcome
    from stower.warm.overview import PoolState

ROWS_MAX: Final = 60  # devices or nodes that are drawn: more cannot be read
HATCHES: Final = ("", "//", "..", "xx")
LABEL_MAX: Final = 40
LABEL_BOX: Final = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over any hatching


def plot_compared(found: "Comparison", path: Path) -> None:
    """Use of each resource, and how the pods fare, before and after."""
    figure, (use, pods) = pyplot().subplots(1, 2, figsize=(10, 4))
    resources = [one.resource for one in found.before.use if one.allocatable]
    percents = [[_percent(run, name) for name in resources] for run in (found.before, found.after)]
    _pairs(use, [name[:LABEL_MAX] for name in resources], percents)
    use.set(title="Use of the nodes", ylabel="% of allocatable")
    fates = ("running", "pending", "lost", "evictions")
    counts = [[getattr(run, name) for name in fates] for run in (found.before, found.after)]
    _pairs(pods, fates, counts)
    pods.set(title="Pods", ylabel="pods")
    save(figure, path)


def _percent(run: "Outcome", resource: str) -> float:
    return next((use.percent for use in run.use if use.resource == resource), 0.0)


def _pairs(axis: Any, names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    for i, (title, some) in enumerate(zip(("before", "after"), values, strict=True)):
        at = [place + (i - 0.5) * 0.4 for place in range(len(names))]
        bars = axis.bar(at, some, width=0.4, label=title, color=COLOURS[i], hatch=HATCHES[i])
        axis.bar_label(bars, fmt="%.4g", fontsize="x-small")
    axis.set_xticks(range(len(names)), names, rotation=15, fontsize="small")
    from_zero(axis)
    axis.legend(fontsize="small")


def plot_devices(found: "Overview", path: Path) -> None:
    """Each device as a bar: the share that each claim holds, and what is left."""
    devices = found.devices[:ROWS_MAX]
    figure, axis = pyplot().subplots(figsize=(9, 1.6 + 0.32 * len(devices)))
    for row, device in enumerate(devices):
        start = 0.0
        for i, (name, share) in enumerate(_shares(device)):
            colour = COLOURS[i % (len(COLOURS) - 1)]
            axis.barh(row, share, left=start, color=colour, hatch=HATCHES[i % 4], edgecolor="white")
            if share >= 10:
                axis.text(start + share / 2, row, name[:LABEL_MAX], ha="center", va="center",
                          fontsize="x-small", bbox=LABEL_BOX)  # fmt: skip
            start += share
    labels = [f"{d.pool}/{d.device}"[-LABEL_MAX:] for d in devices]
    axis.set_yticks(range(len(devices)), labels, fontsize="small")
    more = f" (the first {ROWS_MAX} of {len(found.devices):,})"
    axis.set(title="Devices" + (more if len(found.devices) > ROWS_MAX else ""), xlim=(0, 100),
             xlabel="% of the device's first capacity, or of the device, by claim")  # fmt: skip
    axis.invert_yaxis()
    if not devices:
        draw_empty(axis, "No devices.")
    save(figure, path)


def _shares(device: "DeviceState") -> list[tuple[str, float]]:
    """Claims, and how much each holds, in percent."""
    names = list(device.capacity)
    if not names:
        return [(one.claim, 100 / len(device.holders)) for one in device.holders]
    try:
        total = parse_quantity(device.capacity[names[0]].total).value()
        return [
            (one.claim, 100 * parse_quantity(one.amounts[names[0]]).value() / total)
            for one in device.holders
            if total and names[0] in one.amounts
        ]
    except ValueError:
        return []  # an amount that nobody can read


def plot_warm(pools: Sequence["PoolState"], path: Path) -> None:
    """Nodes of each pool as bars of slots: users, placeholders, free."""
    count = max(1, len(pools))
    figure, axes = pyplot().subplots(count, 1, figsize=(9, 3.2 * count), squeeze=False)
    for pool, axis in zip(pools, axes[:, 0], strict=False):
        nodes = pool.nodes[:ROWS_MAX]
        base = [0] * len(nodes)
        for i, name in enumerate(("users", "placeholders", "free")):
            values = [getattr(node, name) for node in nodes]
            axis.bar(range(len(nodes)), values, bottom=base, label=name, color=COLOURS[i],
                     hatch=HATCHES[i])  # fmt: skip
            base = [a + b for a, b in zip(base, values, strict=True)]
        names = [node.node[-LABEL_MAX:] for node in nodes]
        axis.set_xticks(range(len(nodes)), names, rotation=30, fontsize="x-small", ha="right")
        axis.set(title=f"{pool.pool}: {pool.users} users, {pool.waiting} waiting", ylabel="slots")
        from_zero(axis)
        axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
    if not pools:
        draw_empty(axes[0, 0], "No warm pools.")
    save(figure, path)
