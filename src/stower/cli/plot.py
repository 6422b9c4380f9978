"""Plots of a simulation: use over arrivals, and every node as a cell of a heat map.

matplotlib is an extra: without it, `--plot` says how to get it.
"""

import math
from pathlib import Path
from typing import Any, Final

from stower.sim.simulate import Report

FORMATS: Final = (".svg", ".png")
# Resources drawn: more lines and maps than these are not told apart.
RESOURCES_MAX: Final = 4


class PlotError(Exception):
    """The plot cannot be made; the message says why."""


def plot_format(path: Path) -> str:
    """svg or png, by the file's ending. Raises PlotError, also where matplotlib is missing."""
    if path.suffix not in FORMATS:
        raise PlotError(f"--plot {path}: want a name that ends in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotError("--plot needs matplotlib: pip install 'stower[plot]'") from None
    return path.suffix[1:]


def plot(reports: list[Report], path: Path) -> None:
    """Write the file. The same reports give the same bytes."""
    kind = plot_format(path)
    import matplotlib as mpl

    mpl.use("agg")
    # Without these, an svg holds random ids and the time.
    mpl.rcParams["svg.hashsalt"] = "stower"
    # Names are no formulas, whatever they hold.
    mpl.rcParams["text.parse_math"] = False
    import matplotlib.pyplot as plt

    resources = [u.resource for u in reports[0].use if u.allocatable][:RESOURCES_MAX]
    width = 1 + len(resources)
    figure, axes = plt.subplots(
        len(reports), width, figsize=(4 * width, 3.4 * len(reports)), squeeze=False
    )
    for report, row in zip(reports, axes, strict=True):
        _curve(row[0], report, resources)
        for resource, axis in zip(resources, row[1:], strict=True):
            _heat(axis, report, resource)
    figure.tight_layout()
    try:
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(path, format=kind, metadata=metadata)
    except OSError as error:
        raise PlotError(f"--plot {path}: {error.strerror}") from None
    finally:
        plt.close(figure)


def _curve(axis: Any, report: Report, resources: list[str]) -> None:
    arrivals = [number for number, _ in report.curve]
    for resource in resources:
        values = [shares.get(resource, 0.0) for _, shares in report.curve]
        marker = "o" if len(arrivals) == 1 else ""
        axis.plot(arrivals, values, label=resource, marker=marker)
    axis.set(title=f"{report.policy}: use", xlabel="pods arrived", ylabel="% of allocatable")
    axis.set_ylim(0, 100)
    if resources:
        axis.legend(fontsize="small")


def _heat(axis: Any, report: Report, resource: str) -> None:
    values = [node.percent.get(resource, float("nan")) for node in report.node_use]
    across = max(1, math.ceil(math.sqrt(len(values) * 1.4)))
    down = max(1, math.ceil(len(values) / across))
    cells = values + [float("nan")] * (across * down - len(values))
    grid = [cells[i * across : (i + 1) * across] for i in range(down)]
    image = axis.imshow(grid, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    axis.set(title=f"{report.policy}: {resource} by node", xticks=[], yticks=[])
    axis.figure.colorbar(image, ax=axis)
