"""Measures the fragments of a cluster's GPUs: what is free, and cannot be used by typical pods.

Typical pods are the most frequent of the trace that make up 95 % of all. On each node, a typical
pod loses the free parts of GPUs that have too little for it, where it fits, and all that is free,
where it does not; pods without GPUs lose all. The fragments are the mean over the typical pods.
Source: FGD (Weng et al., USENIX ATC '23), section 4.1, and what its simulator reports.
"""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from stower.sim.openb_devices import DRIVER, GPU_MILLI, MILLI, Task, Trace
from stower.state.arrays import Floats, Ints
from stower.state.cluster import ClusterState
from stower.state.device_usage import UNUSED

TYPICAL_PERCENT: Final = 95
NANO: Final = 10**9


class Fragments(NamedTuple):
    """Thousandths of GPUs that are free, and those of them that are fragments."""

    free_milli: int
    lost_milli: float

    @property
    def ratio_percent(self) -> float:
        """The share of what is free that is fragments."""
        return 100 * self.lost_milli / self.free_milli if self.free_milli else 0.0


class GpuFragments:
    """Measures the fragments of one trace's nodes."""

    def __init__(self, trace: Trace) -> None:
        self._machines = trace.machines
        counts = Counter(trace.tasks)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], _key(item[0])))
        self._typical: list[tuple[Task, int]] = []
        self._pods = 0
        for task, count in ranked:
            if 100 * self._pods >= TYPICAL_PERCENT * len(trace.tasks):
                break
            self._typical.append((task, count))
            self._pods += count
        models = {model for task, _ in self._typical for model in task.models}
        self._of_model = {
            model: np.array([machine.model == model for machine in trace.machines])
            for model in models
        }

    def measure(self, state: ClusterState) -> Fragments:
        """Returns the fragments of the state, which has the trace's nodes."""
        cpu, free = self._room(state)
        each: Ints = free.sum(1)
        lost = 0.0
        for task, count in self._typical:
            lost += count * float(self._lost(task, cpu, free, each).sum())
        return Fragments(int(each.sum()), lost / self._pods if self._pods else 0.0)

    def _lost(self, task: Task, cpu: Ints, free: Ints, each: Ints) -> Floats | Ints:
        """int64[nodes]: thousandths that the task cannot use."""
        if not task.gpus:
            return each
        fits = free >= task.gpu_milli
        is_able = (fits.sum(1) >= task.gpus) & (cpu >= task.cpu_milli)
        if task.models:
            is_able &= np.logical_or.reduce([self._of_model[model] for model in task.models])
        return np.where(is_able, (free * ~fits).sum(1), each)

    def _room(self, state: ClusterState) -> tuple[Ints, Ints]:
        """int64[nodes] milli-CPU and int64[nodes, GPUs] milli of GPUs that are free; 0 of those
        that a node does not have."""
        column = state.column("cpu")
        rows = [state.row_of(machine.name) for machine in self._machines]
        cpu: Ints = (column.allocatable - column.requested)[rows]
        most = max(machine.gpus for machine in self._machines)
        free: Ints = np.zeros((len(rows), most), np.int64)
        for i, machine in enumerate(self._machines):
            used = state.devices.usage((DRIVER, machine.name))
            for gpu in range(machine.gpus):
                usage = used.get(f"gpu-{gpu:03}", UNUSED)
                taken = dict(usage.consumed_capacity).get(MILLI, 0) // NANO
                free[i, gpu] = GPU_MILLI - taken
        return cpu, free


def _key(task: Task) -> tuple[int, int, int, tuple[str, ...]]:
    return task.cpu_milli, task.gpus, task.gpu_milli, task.models
