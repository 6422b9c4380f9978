"""NominatedVms: keeps the room on a node for VMs, and pods beside them, that are nominated to it.

What VMs use is said by their annotations, which only profiles with AutoscaleEnforcer read. Pods of
all other profiles pass this filter instead: else a pod of lower priority takes the room that pods
were evicted from for a VM, and the VM evicts that pod too, again and again. Enabled by itself in
profiles without AutoscaleEnforcer, where another profile has it.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from stower.framework.cluster_events import Change
from stower.framework.dry_run import DryRun
from stower.framework.plugin import Plugin, Scope
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.vms.controller import VmScheduling
from stower.vms.ledger import amounts_of

RESERVED: Final = "node(s) without room beside the pods that are nominated there"


class NominatedVms(Plugin):
    """Rejects nodes that cannot take both the pod and the pods of VM profiles nominated there, of
    its priority or above."""

    name = "NominatedVms"
    scope = Scope.PODS
    enabled_beside = "AutoscaleEnforcer"
    reasons = (RESERVED,)
    changes_of_one_row = Change.PLACED_POD_DELETED
    events_to_register = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.PLACED_POD_DELETED

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether any pod is nominated."""
        return bool(state.nominated_pods)

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes (code 1) where the pod, what is there and what is nominated are too much.
        None where nothing is nominated."""
        scheduling = state.companions.get(self.enabled_beside)
        if not state.nominated_pods or not isinstance(scheduling, VmScheduling):
            return None
        own, ledger = amounts_of(pod) or (0, 0), scheduling.ledger
        codes: Ints | None = None
        for name in sorted(state.nominated_pods):
            row = state.row_of(name)
            cpu, memory = _reserved(pod, name, state, scheduling)
            if row < 0 or not (cpu or memory):
                continue
            is_full = (
                ledger.cpu[row] + own[0] + cpu > state.column("cpu").allocatable[row]
                or ledger.memory[row] + own[1] + memory > state.column("memory").allocatable[row]
            )
            if is_full:
                codes = np.zeros(state.row_limit, np.int64) if codes is None else codes
                codes[row] = 1
        return codes

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns None: nobody is evicted for room that is reserved."""
        return None

    def is_permanent(self, codes: Ints) -> Bools:
        """Returns False: a nomination ends."""
        return np.zeros(len(codes), np.bool_)


def _reserved(
    pod: Pod, node_name: str, state: ClusterState, scheduling: VmScheduling
) -> tuple[int, int]:
    """Returns the milli-CPU and bytes of pods of the VM profile that are nominated to a node."""
    cpu = memory = 0
    for _, entry in sorted(state.nominated_pods[node_name].items()):
        other = entry.pod
        is_counted = other.spec.scheduler_name == scheduling.config.scheduler_name
        if is_counted and entry.row < 0 and other.priority >= pod.priority:
            amounts = amounts_of(other) or (0, 0)
            cpu, memory = cpu + amounts[0], memory + amounts[1]
    return cpu, memory
