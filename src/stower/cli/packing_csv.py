"""Writes the runs of packing policies as CSV files, for the plots of FGD's published results.

Source: the columns of analysis_allo_discrete.csv and its kin in the simulator of FGD (Weng et al.,
USENIX ATC '23).
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from stower.sim.openb_devices import GPU_MILLI, Trace
from stower.sim.packing import LOAD_MAX, Run

TUNE: Final = LOAD_MAX / 100  # so many times the GPUs that there are is asked for
HEAD: Final = ("workload", "sc_policy", "tune", "seed", "total_gpus")
PLACEMENT_HEAD: Final = (
    "workload", "sc_policy", "tune", "seed", "number", "cpu_milli", "memory_mib", "num_gpu",
    "gpu_milli", "gpu_spec", "node", "gpus",
)  # fmt: skip


def write_csv(folder: Path, workload: str, trace: Trace, runs: Sequence[Run]) -> None:
    """Writes the allocation rate, the fragments in % of all GPUs and of the free ones, by arrived
    load, and where each pod went."""
    gpus = trace.capacity_milli // GPU_MILLI
    percents = [str(load) for load in range(LOAD_MAX + 1)]
    ordered = sorted(runs, key=lambda run: (run.policy, run.seed))
    for name, curve in (
        ("analysis_allo_discrete.csv", "curve"),
        ("analysis_frag_discrete.csv", "fragments"),
        ("analysis_frag_ratio_discrete.csv", "fragment_ratio"),
    ):
        rows = (
            (workload, run.policy, TUNE, run.seed, gpus, *(f"{v:.2f}" for v in getattr(run, curve)))
            for run in ordered
        )
        _write(folder / name, (*HEAD, *percents), rows)
    _write(folder / "placements.csv", PLACEMENT_HEAD, _placements(workload, ordered))


def _placements(workload: str, runs: Sequence[Run]) -> Iterable[Sequence[object]]:
    for run in runs:
        for number, arrival in enumerate(run.arrivals):
            task = arrival.task
            yield (
                workload, run.policy, TUNE, run.seed, number, task.cpu_milli, task.memory_mib,
                task.gpus, task.gpu_milli, "|".join(task.models), arrival.node,
                "|".join(arrival.gpus),
            )  # fmt: skip


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
