"""Law `overlooked`: no pod waits although a node has had room for it for a while."""

from collections.abc import Iterator, Mapping
from typing import Final

from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.device_fit import has_negotiated_claims
from stower.sim.filter_model import FilterModel, NodeUsage, Placed, required_terms
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change

# The longest backoff, messages that are late, watches that are taken up again, and some.
WAIT_NS: Final = 90 * SECOND_NS
# The same, and the time after which a pod is tried again without an event: that its last companion
# went makes a pod with affinity to itself the first again, and no event of upstream's wakes it.
FLUSH_NS: Final = WAIT_NS + 330 * SECOND_NS
YOUNG_NS: Final = 30 * SECOND_NS
# Nodes and pods that are looked at each time; pods that are not reached have their turn later.
WORK_MAX: Final = 4_000
TERMS_SHARE: Final = 4  # pods that are compared with a term cost as much as a node
VMS: Final = "AutoscaleEnforcer"
MODELLED: Final = frozenset((
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts",
    "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
    "PodTopologySpread", "InterPodAffinity", "DynamicResources", "NegotiatedResources",
    "NodeDeclaredFeatures", "ImageReadiness", "WarmCapacity", "NominatedVms", VMS,
))  # fmt: skip


class MissedRoom(Checker):
    """Computes from the API's objects on which nodes each pod fits (filter_model.py).

    From the scheduler only this is taken: which filters a profile has, and which pods are in
    flight, on their way to which node.
    """

    law = "overlooked"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._usage = NodeUsage()
        self._fits: dict[str, tuple[int, frozenset[str]]] = {}  # since when, where; by uid
        self._leaders: list[tuple[str, int]] = []
        self._next = ""  # uid of the pod that has its turn with the next look

    def on_change(self, change: Change) -> None:
        """Count what pods hold."""
        self._usage.on_change(change)

    def check(self) -> None:
        """Look at the pods that wait, those first that fitted the last time."""
        found = [p for p in self.court.schedulers if p.engine is not None]
        names_of = [name for p in found if p.engine is not None for name in p.engine.profiles]
        is_split = len(set(names_of)) < len(names_of)  # two lead the same profile
        if not found or is_split or any(leader.is_frozen for leader in found):
            self._fits.clear()
            return
        now_ns = self.court.agenda.now_ns
        if self._leaders != [(leader.name, leader.lives) for leader in found]:
            self._leaders = [(leader.name, leader.lives) for leader in found]
            self._fits.clear()
        leaders = {n: p for p in found if p.engine is not None for n in p.engine.profiles}
        waiting, in_flight = self._split(leaders)
        model = FilterModel(self.court.server, self._usage, in_flight)
        work, before, self._fits = WORK_MAX, self._fits, {}
        for pod in self._in_turn(waiting, before):
            if work <= 0 and pod.metadata.uid not in before:
                self._next = pod.metadata.uid
                break
            work -= self._work(pod)
            leader = leaders[pod.spec.scheduler_name]
            names = frozenset(model.feasible_nodes(pod, self._counts_vms(leader, pod)))
            since_ns, earlier = before.get(pod.metadata.uid, (now_ns, names))
            since_ns, names = max(since_ns, leader.awake_since_ns), names & earlier
            if not names:
                continue
            self._fits[pod.metadata.uid] = since_ns, names
            limit_ns = FLUSH_NS if required_terms(pod, anti=False) else WAIT_NS
            if now_ns - since_ns > limit_ns:
                raise self.violation(
                    f"pod {pod.key} has no node, but fits on node {min(names)} since "
                    f"{since_ns / SECOND_NS:.0f} s, want a node within {limit_ns // SECOND_NS} s"
                )

    def _split(self, leaders: Mapping[str, SchedulerProcess]) -> tuple[list[Pod], list[Placed]]:
        """The pods that wait to be tried, and those that are on their way."""
        waiting, in_flight = [], []
        now_ns = self.court.agenda.now_ns
        for pod in self.court.server.pods_on("").values():
            leader = leaders.get(pod.spec.scheduler_name)
            engine = leader.engine if leader is not None else None
            if engine is None:
                continue
            entry = engine.state.pods.get(pod.metadata.uid)
            if entry is not None and entry.is_assumed and entry.row >= 0:
                in_flight.append(Placed(pod, engine.state.node_names[entry.row]))
                continue
            is_over = pod.is_terminal or pod.metadata.deletion_timestamp is not None
            is_young = now_ns - self.court.server.creation_ns(pod) < YOUNG_NS
            if is_over or is_young or pod.spec.scheduling_gates:
                continue
            profile = engine.profiles.get(pod.spec.scheduler_name)
            if profile is None or any(p.name not in MODELLED for p in profile.filters):
                continue
            if not has_negotiated_claims(self.court.server, pod):
                waiting.append(pod)
        return waiting, in_flight

    def _in_turn(
        self, waiting: list[Pod], before: dict[str, tuple[int, frozenset[str]]]
    ) -> Iterator[Pod]:
        """Those that fitted first; the others from where the last look has ended."""
        yield from (pod for pod in waiting if pod.metadata.uid in before)
        others = [pod for pod in waiting if pod.metadata.uid not in before]
        uids = [pod.metadata.uid for pod in others]
        at = uids.index(self._next) if self._next in uids else 0
        yield from others[at:]
        yield from others[:at]

    def _work(self, pod: Pod) -> int:
        server = self.court.server
        is_about_others = pod.spec.affinity or pod.spec.topology_spread_constraints
        more = len(server.all(Pod)) // TERMS_SHARE if is_about_others else 0
        return 1 + len(server.all(Node)) + more

    def _counts_vms(self, leader: SchedulerProcess, pod: Pod) -> bool:
        assert leader.engine is not None
        profile = leader.engine.profiles[pod.spec.scheduler_name]
        return any(plugin.name == VMS for plugin in profile.filters)
