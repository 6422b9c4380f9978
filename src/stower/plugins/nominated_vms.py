"""NominatedVms: keeps the room on a node for the VMs that are nominated to it.

What a VM uses is said by its annotations, which only profiles with AutoscaleEnforcer read. Pods of
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
from stower.vms.pods import vm_owner

RESERVED: Final = "node(s) without room beside the VMs that are nominated there"


class NominatedVms(Plugin):
    """Rejects nodes that cannot take both the pod and the VMs nominated there, of its priority or
    above."""

    name = "NominatedVms"
    scope = Scope.PODS
    enabled_beside = "AutoscaleEnforcer"
    reasons = (RESERVED,)
    events_to_register = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.PLACED_POD_DELETED

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether any pod is nominated."""
        return bool(state.nominated_pods)

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes (code 1) where the pod, what is there and the nominated VMs are too much.
        None where no VM is nominated."""
        scheduling = state.companions.get(self.enabled_beside)
        if not state.nominated_pods or not isinstance(scheduling, VmScheduling):
            return None
        own, ledger = amounts_of(pod) or (0, 0), scheduling.ledger
        codes: Ints | None = None
        for name in sorted(state.nominated_pods):
            row = state.row_of(name)
            cpu, memory = self._reserved(pod, name, state)
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

    def _reserved(self, pod: Pod, node_name: str, state: ClusterState) -> tuple[int, int]:
        """Returns the milli-CPU and bytes of the VMs that are nominated to a node."""
        cpu = memory = 0
        for _, entry in sorted(state.nominated_pods[node_name].items()):
            other = entry.pod
            if vm_owner(other) is None or entry.row >= 0 or other.priority < pod.priority:
                continue
            amounts = amounts_of(other) or (0, 0)
            cpu, memory = cpu + amounts[0], memory + amounts[1]
        return cpu, memory

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns None: nobody is evicted for room that is reserved."""
        return None

    def is_permanent(self, codes: Ints) -> Bools:
        """Returns False: a nomination ends."""
        return np.zeros(len(codes), np.bool_)
