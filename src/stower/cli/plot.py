"""Draws plots of simulations with matplotlib and saves them as .svg or .png.

Placements: use over arrivals, and a heat map with a cell per node; sweeps: bars; packing policies:
allocation as lines; hubs: waiting times as curves.

matplotlib is an optional extra: without it, `--plot` fails with the command that installs it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stower.cli.output import bad_input
from stower.cli.output_files import check_target

if TYPE_CHECKING:  # its module imports the engine, which `stower devices` does not need
    from stower.sim.simulation import Report

FORMATS: Final = (".svg", ".png")
# Resources drawn: more lines and maps than these are not told apart.
RESOURCES_MAX: Final = 4
# What sweeps compare: how it is called, and its unit.
COMPARED: Final = {
    "pending": ("Pods without a node", "pods"),
    "emptyNodes": ("Empty nodes", "nodes"),
    "use cpu %": ("CPU requested", "% of allocatable"),
    "waitedSeconds": ("Waiting time", "s, sum of all pods"),
}
TITLE_MAX: Final = 100
# Okabe and Ito's, which all eyes tell apart, from dark to bright.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Draw a plot to this .svg or .png (needs the extra plot)."
    ),
]
# While there is room for everything, curves of policies are one line.
LOAD_DRAWN_MIN: Final = 60


class PlotError(Exception):
    """The plot cannot be made; the message says why."""


def plot_format(path: Path) -> str:
    """svg or png, by the file's ending. Raises PlotError, also where matplotlib is missing."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"--plot {path}: want a name that ends in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotError("--plot needs matplotlib: pip install 'stower[plot]'") from None
    return path.suffix[1:].lower()


def check_plot(path: Path | None) -> None:
    """Refuse what cannot be drawn there, before anything runs."""
    check_target("--plot", path)
    try:
        if path is not None:
            plot_format(path)
    except PlotError as error:
        raise bad_input(str(error)) from None


def draw(plotted: Callable[[Path], None], path: Path) -> None:
    """Draw it there. Ends the program where that cannot be."""
    try:
        plotted(path)
    except PlotError as error:
        raise bad_input(str(error)) from None


def pyplot() -> Any:
    """matplotlib, with colours that stay apart when printed in grey, and lines that do as well."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.use("agg")
    styles = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
    mpl.rcParams["axes.prop_cycle"] = cycler(color=COLOURS, linestyle=styles)
    # Without these, an svg holds random ids and the time.
    mpl.rcParams["svg.hashsalt"] = "stower"
    # Names are no formulas, whatever they hold.
    mpl.rcParams["text.parse_math"] = False
    import matplotlib.pyplot as plt

    return plt


def from_zero(axis: Any) -> None:
    """Amounts begin at zero, and where all are zero, there is still a scale."""
    axis.set_ylim(bottom=0, top=None if axis.get_ylim()[1] > 0.1 else 1)


def draw_empty(axis: Any, text: str) -> None:
    """A panel that has nothing to show says so."""
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)


def save(figure: Any, path: Path) -> None:
    """Write it. Raises PlotError."""
    kind = plot_format(path)
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    try:
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(path, format=kind, metadata=metadata)
    except OSError as error:
        raise PlotError(f"--plot {path}: {error.strerror}") from None
    finally:
        pyplot().close(figure)


def plot_sweep(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each workload and measure: a bar for each configuration, its mean over the seeds,
    with a line from the least to the most. The same rows give the same bytes."""
    plot_format(path)
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    configs = list(dict.fromkeys(row["config"] for row in rows))
    figure = pyplot().figure(
        figsize=(3.2 * len(COMPARED), 1 + 2.6 * len(workloads)), layout="constrained"
    )
    parts = figure.subfigures(len(workloads), 1, squeeze=False)
    for workload, part in zip(workloads, parts[:, 0], strict=True):
        part.suptitle(workload[:TITLE_MAX])
        line = part.subplots(1, len(COMPARED))
        for (name, (title, unit)), axis in zip(COMPARED.items(), line, strict=True):
            for i, config in enumerate(configs):
                found = [
                    row.get(name) or 0
                    for row in rows
                    if (row["workload"], row["config"]) == (workload, config)
                ]
                middle = sum(found) / len(found)
                spread = [[middle - min(found)], [max(found) - middle]]
                axis.bar(i, middle, yerr=spread, capsize=4, label=config)
            axis.set_xticks(range(len(configs)), configs, rotation=20, fontsize="small")
            axis.set(title=title, ylabel=unit)
            from_zero(axis)
    save(figure, path)


def plot_curves(
    curves: Mapping[str, Sequence[float]], ratios: Mapping[str, Sequence[float]], path: Path
) -> None:
    """What is allocated over what has arrived, in whole percents from 0 on, and the share of free
    GPUs that is fragments: a line for each policy. The same curves give the same bytes."""
    plot_format(path)
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.4))
    texts = ("allocated, % of all GPUs", "fragments, % of free GPUs")
    for axis, lines, first, text in zip(axes, (curves, ratios), (LOAD_DRAWN_MIN, 0), texts):
        for name, values in lines.items():
            axis.plot(range(first, len(values)), values[first:], label=name)
        axis.set(xlabel="arrived, % of all GPUs", ylabel=text)
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    save(figure, path)


def plot_waits(waits: Mapping[tuple[str, str], Sequence[float]], path: Path) -> None:
    """By (case, policy): the share of users who have started after so many seconds."""
    plot_format(path)
    cases = list(dict.fromkeys(case for case, _ in waits))
    size = (7, 2.6 * len(cases))
    figure, axes = pyplot().subplots(len(cases), 1, figsize=size, squeeze=False)
    for axis, case in zip(axes[:, 0], cases, strict=True):
        for (of_case, policy), seconds in waits.items():
            if of_case == case and seconds:
                ordered = sorted(seconds)
                shares = [100 * (i + 1) / len(ordered) for i in range(len(ordered))]
                axis.step([1 + s for s in ordered], shares, where="post", label=policy)
        axis.set_xscale("log")
        axis.set_title(case)
        axis.set_xlabel("1 + seconds since arrival")
        axis.set_ylabel("% of users started")
        axis.legend(loc="lower right")
        axis.grid(alpha=0.3)
    save(figure, path)


def plot(reports: list["Report"], path: Path) -> None:
    """Write the file. The same reports give the same bytes."""
    plot_format(path)
    plt = pyplot()
    resources = [u.resource for u in reports[0].use if u.allocatable][:RESOURCES_MAX]
    width = 1 + len(resources)
    figure, axes = plt.subplots(
        len(reports), width, figsize=(4 * width, 3.4 * len(reports)), squeeze=False
    )
    for report, row in zip(reports, axes, strict=True):
        _curve(row[0], report, resources)
        for resource, axis in zip(resources, row[1:], strict=True):
            _heat(axis, report, resource)
    save(figure, path)


def _curve(axis: Any, report: "Report", resources: list[str]) -> None:
    arrivals = [number for number, _ in report.curve]
    for resource in resources:
        values = [shares.get(resource, 0.0) for _, shares in report.curve]
        marker = "o" if len(arrivals) == 1 else ""
        axis.plot(arrivals, values, label=resource, marker=marker)
    axis.set(title=f"{report.policy}: use", xlabel="pods arrived", ylabel="% of allocatable")
    axis.set_ylim(0, 100)
    axis.set_xlim(0, max(1.0, 1.05 * arrivals[-1]) if arrivals else 1)
    if resources:
        axis.legend(fontsize="small")
    if not arrivals:
        draw_empty(axis, "No pods arrived.")


def _heat(axis: Any, report: "Report", resource: str) -> None:
    values = [node.percent.get(resource, float("nan")) for node in report.node_use]
    across = max(1, math.ceil(math.sqrt(len(values) * 1.4)))
    down = max(1, math.ceil(len(values) / across))
    cells = values + [float("nan")] * (across * down - len(values))
    grid = [cells[i * across : (i + 1) * across] for i in range(down)]
    image = axis.imshow(grid, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    axis.set(title=f"{report.policy}: {resource} by node", xticks=[], yticks=[])
    axis.set_xlabel("one cell per node, in input order")
    axis.figure.colorbar(image, ax=axis, label="% of allocatable")
