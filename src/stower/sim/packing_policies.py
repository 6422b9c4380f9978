"""Policies that pack GPUs, as scheduler configurations: the studies' baselines, Stower's scores.

The baselines are those of the OpenB studies (Weng et al., ATC '23): first fit, best fit and dot
product, with the truncated integer scores of their scheduler and ties to the lowest name. They
exist for comparison only and are no part of a real scheduler.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from stower.framework.args import Args, convert_args, invalid
from stower.framework.configuration import API_VERSION, KIND
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.model.kinds import Pod
from stower.model.quantity import quantity_of
from stower.model.resources import CPU
from stower.plugins.fragmentation import Fragmentation
from stower.sim.openb_devices import DRIVER, GPU_MILLI, MILLI
from stower.state.arrays import Bools, Floats, Ints
from stower.state.cluster import ClusterState
from stower.state.devices import Devices, claim_refs
from stower.state.shapes import Shape

Document = dict[str, Any]

NANO: Final = 10**9
PERCENT: Final = 100


class FreeMilli:
    """What is left of each node's GPUs, kept up to date with what claims hold."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._free: Ints = np.zeros(0, np.int64)
        self._known = (-1, -1, -1)
        self._position = 0

    def column(self, state: ClusterState) -> Ints:
        """int64[capacity]: milli of all GPUs of the row's node together. Read only."""
        devices = self._devices
        known = (state.layout_generation, devices.slice_generation, state.node_log.position)
        changed = devices.pools_changed_since(self._position)
        if known != self._known or changed is None:
            self._free = np.zeros(state.capacity, np.int64)
            changed = [(s.spec.driver, s.spec.pool.name) for s in devices.slices.values()]
            self._totals = {
                s.spec.pool.name: GPU_MILLI * len(s.spec.devices or ())
                for s in devices.slices.values()
            }
        for driver, pool in dict.fromkeys(changed):
            row = state.row_of(pool)
            if driver == DRIVER and row >= 0:
                self._free[row] = self._totals[pool] - self._count_taken(driver, pool)
        self._known, self._position = known, devices.log_position
        return self._free

    def largest(self, state: ClusterState) -> int:
        """What the node with the most GPUs has."""
        self.column(state)
        return max(self._totals.values(), default=0)

    def _count_taken(self, driver: str, pool: str) -> int:
        uses = self._devices.usage((driver, pool)).values()
        return sum(dict(use.consumed_capacity).get(MILLI, 0) for use in uses) // NANO


class PackingArgs(Args, frozen=True):
    """Arguments of the plugin: which baseline it is."""

    policy: str = "best-fit"


class PackingBaseline(Plugin):
    """Score the one node that the baseline takes, and no other: ties go to the lowest name."""

    name: ClassVar[str] = "PackingBaseline"
    scope = Scope.PODS

    def __init__(self, policy: str) -> None:
        self._policy = policy

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "PackingBaseline":
        """The baseline by name."""
        policy = convert_args(args, PackingArgs, path).policy
        if policy not in BASELINES:
            raise invalid(f"{path}.policy", policy, f"must be one of {', '.join(BASELINES)}")
        return cls(policy)

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """int64[row_limit]: 100 for one row."""
        rows = np.flatnonzero(feasible)
        if self._policy != FIRST_FIT and len(rows):
            ranks = self._ranks(pod, state, rows)
            rows = rows[ranks == ranks.max()]
        scores = np.zeros(state.row_limit, np.int64)
        if len(rows):
            scores[min(rows.tolist(), key=state.node_names.__getitem__)] = MAX_NODE_SCORE
        return scores

    def _ranks(self, pod: Pod, state: ClusterState, rows: NDArray[np.intp]) -> Ints:
        """int64[rows]: how good each row is, as a whole number of hundredths."""
        gpus = state.devices.extension(FreeMilli)
        column = state.column(CPU)
        most_cpu, most_milli = max(int(column.allocatable.max()), 1), gpus.largest(state) or 1
        cpu_free = column.allocatable[rows] - column.requested[rows]
        milli_free = gpus.column(state)[rows]
        cpu, milli = _requested_cpu(pod), requested_milli(pod, state)
        rank: Floats
        if self._policy == BEST_FIT:
            left = (cpu_free - cpu) / most_cpu * 0.5 + (milli_free - milli) / most_milli * 0.5
            rank = 1 - left
        else:
            product = cpu_free / most_cpu * (cpu / most_cpu)
            product = product + milli_free / most_milli * (milli / most_milli)
            rank = 1 - product / 2
        return np.floor(rank * PERCENT).astype(np.int64)


def _requested_cpu(pod: Pod) -> int:
    requests = (c.resources.requests for c in pod.spec.containers if c.resources is not None)
    return sum(quantity_of(r[CPU]).round_up(-3) for r in requests if r and CPU in r)


def requested_milli(pod: Pod, state: ClusterState) -> int:
    """What the pod's claims ask of GPUs, all together."""
    total = 0
    for ref in claim_refs(pod):
        claim = state.devices.api_claim(f"{pod.metadata.namespace}/{ref.name}")
        for request in (claim.spec.devices.requests or ()) if claim is not None else ():
            exactly = request.exactly
            if exactly is None or exactly.capacity is None:
                continue
            asked = (exactly.capacity.requests or {}).get(MILLI, "0")
            total += (exactly.count or 1) * quantity_of(asked).round_up(0)
    return total


FIRST_FIT: Final = "first-fit"
BEST_FIT: Final = "best-fit"
DOT_PRODUCT: Final = "dot-product"
RANDOM: Final = "random"
BASELINES: Final = (FIRST_FIT, BEST_FIT, DOT_PRODUCT)
FRAGMENTATION_MODES: Final = ("fgd", "dgf")
POLICIES: Final = (RANDOM, *BASELINES, *FRAGMENTATION_MODES)
# Which GPU of the node. Fragmentation chooses by itself where nothing is said.
DEVICE_ORDERS: Final = {
    RANDOM: "Random", FIRST_FIT: "FirstFit", BEST_FIT: "BestFit", DOT_PRODUCT: "BestFit",
}  # fmt: skip


def configuration(policy: str) -> Document:
    """The KubeSchedulerConfiguration of a policy: all default filters, its own score alone.

    Nobody is evicted. Without a score, ties are broken at random.
    """
    config: list[Document] = []
    if policy in DEVICE_ORDERS:
        order = {"deviceOrder": DEVICE_ORDERS[policy]}
        config.append({"name": "DynamicResources", "args": order})
    scores = []
    if policy in BASELINES:
        scores = [{"name": PackingBaseline.name}]
        config.append({"name": PackingBaseline.name, "args": {"policy": policy}})
    elif policy in FRAGMENTATION_MODES:
        scores = [{"name": Fragmentation.name}]
        config.append({"name": Fragmentation.name, "args": {"mode": policy}})
    plugins = {
        "score": {"disabled": [{"name": "*"}], "enabled": scores},
        "postFilter": {"disabled": [{"name": "*"}]},
    }
    profile = {"percentageOfNodesToScore": 100, "plugins": plugins, "pluginConfig": config}
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
