"""AutoscaleEnforcer: places autoscaled VMs where the CPU and memory that they may use are free.

Filter counts all pods placed on a node, including pods of ignored namespaces, so that preemption
can evict these too. Score counts only the pods that VM scheduling tracks on the node. The companion
(vms/controller.py) approves resource requests of VMs and migrates VMs.

    plugins: {multiPoint: {enabled: [{name: AutoscaleEnforcer}]}}
    pluginConfig: [{name: AutoscaleEnforcer, args: {watermark: 0.9, ...}}]

Source: seed 004; neondatabase/autoscaling pkg/plugin/framework_methods.go.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.cluster_events import Change
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.plugin_guard import PluginError
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.framework.reasons import Rejection
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.quantity import Format, Quantity
from stower.model.resources import amount_text
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.vms.config import SHIPPED, BadConfig, Config, config_of
from stower.vms.controller import VmScheduling
from stower.vms.enforcer import Refusal
from stower.vms.ledger import RowRoom, amounts_of
from stower.vms.migrations import PREFIX
from stower.vms.notes import ERROR
from stower.vms.pods import PodState, migration_owner
from stower.vms.scoring import fractions, scores

CPU, MEMORY = "cpu", "memory"
BINARY: Final = Format.BINARY_SI
HASH_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
NOT_ENOUGH_RESOURCES: Final = "Not enough resources for Pod"


class AutoscaleEnforcer(Plugin):
    """Rejects nodes without room for the VM; scores nodes by utilization with the VM."""

    name = "AutoscaleEnforcer"
    scope = Scope.PODS
    reasons = (NOT_ENOUGH_RESOURCES,)
    resolvable = True
    changes_of_one_row = Change.PLACED_POD_DELETED
    events_to_register = (
        Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.PLACED_POD_DELETED
        | Change.PLACED_POD_SCALED_DOWN | Change.OWN_ANNOTATIONS
    )  # fmt: skip

    def __init__(self, config: Config = SHIPPED) -> None:
        self.config = config

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "AutoscaleEnforcer":
        """Reads the fields of neon's configuration file; missing fields have neon's defaults.
        Raises InvalidObject."""
        try:
            return cls(config_of(args or {}))
        except BadConfig as error:
            raise InvalidObject(path, msgspec.to_builtins(args), str(error)) from error

    def companion(self, state: ClusterState, seed: int) -> VmScheduling:
        """Returns the companion that approves resource requests and migrates VMs."""
        return VmScheduling(self.config, state, seed)

    def _vm_scheduling(self, state: ClusterState) -> VmScheduling:
        scheduling: VmScheduling = state.companions[self.name]
        return scheduling

    def _read_pod_state(self, method: str, pod: Pod, state: ClusterState) -> PodState | Refusal:
        """Counts the call of `method`; returns the pod's resource state, or the refusal of the pod.
        Raises PluginError if reading the pod fails with status Error."""
        enforcer = self._vm_scheduling(state).enforcer
        pod_state = enforcer.read_pod_state(pod)
        refusal = pod_state if isinstance(pod_state, Refusal) else None
        enforcer.count_call(method, pod, refusal)
        if refusal is not None and refusal.code == "Error":
            raise PluginError(refusal.reason)
        return pod_state

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """Rejects a pod whose resource requirements cannot be read."""
        pod_state = self._read_pod_state("Filter", pod, state)
        return Rejection((pod_state.reason,), False) if isinstance(pod_state, Refusal) else None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes (code 1) without room for the pod's CPU or memory."""
        cpu, memory = amounts_of(pod) or (0, 0)
        ledger, rows = self._vm_scheduling(state).ledger, state.all_rows
        is_exceeded = ledger.cpu[rows] + cpu > self._limit(pod, state, CPU)[rows]
        is_exceeded |= ledger.memory[rows] + memory > self._limit(pod, state, MEMORY)[rows]
        return is_exceeded.astype(np.int64)

    def _limit(self, pod: Pod, state: ClusterState, resource: str) -> Ints:
        """Returns how much of a resource may be reserved on each row: all that there is; for a VM
        that leaves a node above its watermark, up to the watermark of the next one."""
        allocatable = state.column(resource).allocatable
        owner = migration_owner(pod)
        if owner is None or not owner.controller or not owner.name.startswith(PREFIX):
            return allocatable
        limit: Ints = (allocatable.astype(np.float64) * self.config.watermark).astype(np.int64)
        return limit

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs that count amounts."""
        need, ledger = amounts_of(pod) or (0, 0), self._vm_scheduling(state).ledger
        cpu, memory = self._limit(pod, state, CPU), self._limit(pod, state, MEMORY)
        return lambda row: RowRoom(ledger, row, need, (int(cpu[row]), int(memory[row])))

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """Counts the call and logs that all nodes were rejected. Other plugins preempt."""
        enforcer = self._vm_scheduling(evaluator.state).enforcer
        enforcer.count_call("PostFilter", evaluator.pod)
        enforcer.notes.add(ERROR, "Pod rejected by all Filter method calls", evaluator.pod.key)
        return PostFilterResult()

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores 0 to 100; with `randomize`, a number from 1 to that score, which seed, pod and
        node determine."""
        pod_state = self._read_pod_state("Score", pod, state)
        if isinstance(pod_state, Refusal):
            return None
        scheduling = self._vm_scheduling(state)
        enforcer, rows = scheduling.enforcer, np.flatnonzero(feasible)
        amounts = amounts_of(pod_state) or (0, 0)
        cpu, total_cpu, memory, total_memory = scheduling.reserved_amounts(rows)
        cpu, memory = cpu + amounts[0], memory + amounts[1]
        is_exceeded = (cpu > total_cpu) | (memory > total_memory)
        scoring = self.config.scoring
        cpu_fractions = fractions(scoring, cpu / 1000, total_cpu / 1000, enforcer.cpu_max / 1000)
        memory_fractions = fractions(scoring, memory, total_memory, float(enforcer.memory_max))
        node_scores = scores(cpu_fractions, memory_fractions, is_exceeded)
        if scoring.randomize:
            node_scores = _randomize(
                node_scores, _random_numbers(scheduling.seed, pod, state.tie_breaker.hashes[rows])
            )
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = node_scores
        return result

    def _shortages(
        self, pod: Pod, state: ClusterState, row: int
    ) -> list[tuple[str, int, int, int]]:
        """Returns the resources that the node lacks for the pod: name, needed, reserved and
        allocatable amount (milli-CPU, bytes)."""
        amounts, ledger = amounts_of(pod) or (0, 0), self._vm_scheduling(state).ledger
        shortages = []
        for name, needed, reserved_by_row in zip(
            (CPU, MEMORY), amounts, (ledger.cpu, ledger.memory), strict=True
        ):
            reserved, total = int(reserved_by_row[row]), int(self._limit(pod, state, name)[row])
            if reserved + needed > total:
                shortages.append((name, needed, reserved, total))
        return shortages

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Yields the needed, reserved and allocatable amount of each short resource."""
        for name, needed, reserved, total in self._shortages(pod, state, row):
            unit = "m" if name == CPU else ""
            yield f"{name}: needs {needed}{unit}, {reserved}{unit} of {total}{unit} are reserved"

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests a node with more of each resource that it lacks."""
        node = state.node_at(row)
        shortages = self._shortages(pod, state, row)
        if not shortages:
            return
        allocatable, texts, cost = dict(node.status.allocatable or {}), [], 0.0
        for name, needed, reserved, _ in shortages:
            total = reserved + needed
            allocatable[name] = amount_text(name, total)
            missing = total - int(state.column(name).allocatable[row])
            amount = Quantity.of_milli(missing) if name == CPU else Quantity.of(missing, BINARY)
            texts.append(f"{amount} {name} for VMs")
            cost += 1 + min(1.0, missing / needed)
        status = msgspec.structs.replace(node.status, allocatable=allocatable)
        larger_node = msgspec.structs.replace(node, status=status)
        yield Fix(f"{NODE_FIELD} lacks {', '.join(texts)}", cost, node=larger_node)


def _random_numbers(seed: int, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    """Returns uint64[nodes]: hashes of seed, pod uid and node name."""
    salt = np.uint64(zlib.crc32(f"{seed}/{pod.metadata.uid}".encode()))
    with np.errstate(over="ignore"):
        hashes = (nodes ^ salt) * HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(31)
        hashes *= HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _randomize(node_scores: Ints, random_numbers: np.ndarray) -> Ints:
    """Returns int64[nodes]: a number from 1 to each score; 0 stays 0."""
    moduli = np.maximum(node_scores, 1).astype(np.uint64)
    result: Ints = np.where(node_scores > 0, (random_numbers % moduli).astype(np.int64) + 1, 0)
    return result
