"""AutoscaleEnforcer: VMs go where there is room for what they hold and may ask for.

Filter counts all pods that are placed on a node, those of ignored namespaces too, so that these can
be evicted; Score counts those that VM scheduling knows there. Its companion approves what VMs ask
for, and moves them.

    plugins: {multiPoint: {enabled: [{name: AutoscaleEnforcer}]}}
    pluginConfig: [{name: AutoscaleEnforcer, args: {watermark: 0.9, ...}}]

Source: seed 004; neondatabase/autoscaling pkg/plugin/framework_methods.go.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.cluster_events import Change
from stower.framework.fixes import NODE_FIELD, Fix
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.plugin_guard import PluginError
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.framework.reasons import Rejection
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.quantity import Format, Quantity
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.vms.config import SHIPPED, BadConfig, Config, config_of
from stower.vms.controller import VmScheduling
from stower.vms.enforcer import Refusal
from stower.vms.ledger import amounts_of
from stower.vms.notes import ERROR
from stower.vms.pods import PodState
from stower.vms.scoring import fractions, scores

CPU, MEMORY = "cpu", "memory"
BINARY: Final = Format.BINARY_SI
HASH_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
NOT_ENOUGH_RESOURCES: Final = "Not enough resources for Pod"


class AutoscaleEnforcer(Plugin):
    """See the module."""

    name = "AutoscaleEnforcer"
    scope = Scope.PODS
    reasons = (NOT_ENOUGH_RESOURCES,)
    resolvable = True
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
        """The fields of neon's configuration file; those that are not given are as neon ships
        them."""
        try:
            return cls(config_of(args or {}))
        except BadConfig as error:
            raise InvalidObject(path, msgspec.to_builtins(args), str(error)) from error

    def companion(self, state: ClusterState, seed: int) -> VmScheduling:
        """Approvals and migrations."""
        return VmScheduling(self.config, state, seed)

    def _vm_scheduling(self, state: ClusterState) -> VmScheduling:
        found: VmScheduling = state.companions[self.name]
        return found

    def _read_pod_state(self, method: str, pod: Pod, state: ClusterState) -> PodState | Refusal:
        enforcer = self._vm_scheduling(state).enforcer
        found = enforcer.read(pod)
        refusal = found if isinstance(found, Refusal) else None
        enforcer.called(method, pod, refusal)
        if refusal is not None and refusal.code == "Error":
            raise PluginError(refusal.reason)
        return found

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """A pod that does not say what it needs goes nowhere."""
        found = self._read_pod_state("Filter", pod, state)
        return Rejection((found.reason,), False) if isinstance(found, Refusal) else None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """1 where there is no room."""
        cpu, memory = amounts_of(pod) or (0, 0)
        ledger, rows = self._vm_scheduling(state).ledger, state.all_rows
        over = ledger.cpu[rows] + cpu > state.column(CPU).allocatable[rows]
        over |= ledger.memory[rows] + memory > state.column(MEMORY).allocatable[rows]
        return over.astype(np.int64)

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """Counted, as it says that a VM has found no node; evictions are for others."""
        enforcer = self._vm_scheduling(evaluator.state).enforcer
        enforcer.called("PostFilter", evaluator.pod)
        enforcer.notes.add(ERROR, "Pod rejected by all Filter method calls", evaluator.pod.key)
        return PostFilterResult()

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """0 to 100, and with `randomize` any number from 1 to that, by seed, pod and node."""
        found = self._read_pod_state("Score", pod, state)
        if isinstance(found, Refusal):
            return None
        scheduling = self._vm_scheduling(state)
        enforcer, rows = scheduling.enforcer, np.flatnonzero(feasible)
        amounts = amounts_of(found) or (0, 0)
        cpu, cpus, memory, memories = scheduling.held_on(rows)
        cpu, memory = cpu + amounts[0], memory + amounts[1]
        over = (cpu > cpus) | (memory > memories)
        scoring = self.config.scoring
        of_cpu = fractions(scoring, cpu / 1000, cpus / 1000, enforcer.cpu_max / 1000)
        of_memory = fractions(scoring, memory, memories, float(enforcer.memory_max))
        node_scores = scores(of_cpu, of_memory, over)
        if scoring.randomize:
            node_scores = _randomize(
                node_scores, _random_numbers(scheduling.seed, pod, state.name_hashes[rows])
            )
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = node_scores
        return result

    def _shortages(
        self, pod: Pod, state: ClusterState, row: int
    ) -> list[tuple[str, int, int, int]]:
        """Of what a node has too little for a pod: what it needs, what is set aside, what there
        is."""
        amounts, ledger = amounts_of(pod) or (0, 0), self._vm_scheduling(state).ledger
        found = []
        for name, need, counted in zip(
            (CPU, MEMORY), amounts, (ledger.cpu, ledger.memory), strict=True
        ):
            held, total = int(counted[row]), int(state.column(name).allocatable[row])
            if held + need > total:
                found.append((name, need, held, total))
        return found

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """How much is set aside, and how much there is."""
        for name, need, held, total in self._shortages(pod, state, row):
            unit = "m" if name == CPU else ""
            yield f"{name}: needs {need}{unit}, {held}{unit} of {total}{unit} are set aside"

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """More of what the node has too little of."""
        node = state.node_at(row)
        lacks = self._shortages(pod, state, row)
        if not lacks:
            return
        room, texts, cost = dict(node.status.allocatable or {}), [], 0.0
        for name, need, held, _ in lacks:
            total = held + need
            room[name] = f"{total}m" if name == CPU else str(total)
            short = total - int(state.column(name).allocatable[row])
            amount = Quantity.of_milli(short) if name == CPU else Quantity.of(short, BINARY)
            texts.append(f"{amount} {name} for VMs")
            cost += 1 + min(1.0, short / need)
        status = msgspec.structs.replace(node.status, allocatable=room)
        bigger = msgspec.structs.replace(node, status=status)
        yield Fix(f"{NODE_FIELD} lacks {', '.join(texts)}", cost, node=bigger)


def _random_numbers(seed: int, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    """uint64[nodes]: equal for the same seed, pod and node, else unlike."""
    salt = np.uint64(zlib.crc32(f"{seed}/{pod.metadata.uid}".encode()))
    with np.errstate(over="ignore"):
        mixed = (nodes ^ salt) * HASH_MULTIPLIER
        mixed ^= mixed >> np.uint64(31)
        mixed *= HASH_MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _randomize(node_scores: Ints, random_numbers: np.ndarray) -> Ints:
    """Any number from 1 to each; 0 stays."""
    least = np.maximum(node_scores, 1).astype(np.uint64)
    found: Ints = np.where(node_scores > 0, (random_numbers % least).astype(np.int64) + 1, 0)
    return found
