"""DefaultPreemption against a slow, obvious model: one node at a time, one pod at a time.

The model follows Kubernetes 1.36's own code: plugins/defaultpreemption (SelectVictimsOnNode,
filterPodsWithPDBViolation, PodEligibleToPreemptOthers), framework/preemption (FindCandidates,
pickOneNodeForPreemption), framework/runtime (RunFilterPluginsWithNominatedPods) and the AddPod and
RemovePod of the filters. It knows no rows, columns, rooms or dry runs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice, permutations, product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stower.assembly import build_profiles
from stower.engine.cycle import reference, verdict_cache
from stower.engine.cycle.verdict_cache import VerdictCache
from stower.engine.preemption import candidates, evaluator
from stower.engine.preemption.evaluator import Evaluator, Search
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features
from stower.framework.post_filter import best_candidates
from stower.model.kinds import Namespace, Node, Pod, PodDisruptionBudget
from stower.model.kinds.pod import TopologySpreadConstraint
from stower.model.meta import ObjectMeta
from stower.model.raw import decode
from stower.model.selectors import node_selector_matches
from stower.model.taints import is_tolerated
from stower.plugins.default_preemption import DefaultPreemption
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.builders import make_node, make_pod
from tests.property.test_pods_about_pods import (
    NAMESPACES,
    about,
    counts,
    included,
    labels,
    parts,
    selects,
    takes,
)

PROFILE = build_profiles(read_configuration({}), Features())["default-scheduler"]
NODES = ("a", "b", "c", "d", "e")
HOSTNAME = "kubernetes.io/hostname"
HOPELESS = "UnschedulableAndUnresolvable"
REFUSED = "Unschedulable"
NO_VICTIMS = "No preemption victims found for incoming pod"
ORDERS_MAX = 24
PRIORITY_SHIFT = 2**31  # math.MaxInt32 + 1
NOW = "9999-12-31T00:00:00Z"

Status = tuple[str, tuple[str, ...]]  # code and reasons; None where all is well
Chosen = tuple[frozenset[str], int]  # victims' keys, and how many of them break a budget


# The model: what a node and the filters know


def host_ports(pod: Pod) -> set[tuple[str, str, int]]:
    return {
        (p.host_ip or "0.0.0.0", p.protocol or "TCP", p.host_port)
        for c in pod.spec.containers
        for p in c.ports or ()
        if p.host_port
    }


def asked(pod: Pod) -> dict[str, int]:
    """Requests as these tests write them: 300m of cpu, plain numbers of all else."""
    resources = pod.spec.containers[0].resources
    requests = (resources.requests if resources else None) or {}
    return {name: int(str(amount).removesuffix("m")) for name, amount in requests.items()}


class NodeInfo:
    """A node and its pods. The host ports in use are a set: nobody counts who uses one."""

    def __init__(self, node: Node, pods: Iterable[Pod] = ()) -> None:
        self.node = node
        self.pods: list[Pod] = []
        self.ports: set[tuple[str, str, int]] = set()
        for pod in pods:
            self.add(pod)

    def copy(self) -> "NodeInfo":
        other = NodeInfo(self.node)
        other.pods, other.ports = list(self.pods), set(self.ports)
        return other

    def add(self, pod: Pod) -> None:
        self.pods.append(pod)
        self.ports |= host_ports(pod)

    def remove(self, pod: Pod) -> None:
        self.pods = [p for p in self.pods if p is not pod]
        self.ports -= host_ports(pod)


class Paths:
    """criticalPaths: the domains with the fewest pods and the next."""

    def __init__(self) -> None:
        self.two: list[tuple[str, int]] = [("", 2**31 - 1), ("", 2**31 - 1)]

    def update(self, value: str, number: int) -> None:
        two = self.two
        i = 0 if value == two[0][0] else 1 if value == two[1][0] else -1
        if i >= 0:
            two[i] = (value, number)
            if two[0][1] > two[1][1]:
                two.reverse()
        elif number < two[0][1]:
            self.two = [(value, number), two[0]]
        elif number < two[1][1]:
            two[1] = (value, number)


class Spread:
    """PodTopologySpread's preFilterState."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.constraints: list[TopologySpreadConstraint] = [
            c
            for c in pod.spec.topology_spread_constraints or ()
            if c.when_unsatisfiable == "DoNotSchedule"
        ]
        self.found: list[dict[str, int]] = [{} for _ in self.constraints]
        self.paths = [Paths() for _ in self.constraints]

    def count(self, infos: list[NodeInfo]) -> None:
        for c, found, paths in zip(self.constraints, self.found, self.paths):
            for info in infos:
                if self.keyed(info.node) and included(c, self.pod, info.node):
                    value = labels(info.node)[c.topology_key]
                    number = sum(counts(c, self.pod, other) for other in info.pods)
                    found[value] = found.get(value, 0) + number
            for value, number in found.items():
                paths.update(value, number)

    def keyed(self, node: Node) -> bool:
        return all(c.topology_key in labels(node) for c in self.constraints)

    def copy(self) -> "Spread":
        other = Spread(self.pod)
        other.found = [dict(found) for found in self.found]
        for mine, theirs in zip(self.paths, other.paths):
            theirs.two = list(mine.two)
        return other

    def update(self, other: Pod, node: Node, by: int) -> None:
        """A pod that is being deleted, or that an empty selector takes, counts here after all."""
        if other.metadata.namespace != self.pod.metadata.namespace or not self.keyed(node):
            return
        for c, found, paths in zip(self.constraints, self.found, self.paths):
            if selects(c, self.pod, other) and included(c, self.pod, node):
                value = labels(node)[c.topology_key]
                found[value] = found.get(value, 0) + by
                paths.update(value, found[value])

    def refuses(self, node: Node) -> Status | None:
        text = "node(s) didn't match pod topology spread constraints"
        for c, found, paths in zip(self.constraints, self.found, self.paths):
            value = labels(node).get(c.topology_key)
            if value is None:
                return HOPELESS, (f"{text} (missing required label)",)
            fewest = 0 if len(found) < (c.min_domains or 1) else paths.two[0][1]
            if found.get(value, 0) + selects(c, self.pod, self.pod) - fewest > c.max_skew:
                return REFUSED, (text,)
        return None


Pairs = Counter[tuple[str, str]]  # topology key and value


def bump(pairs: Pairs, node: Node, key: str, by: int) -> None:
    if key in labels(node):
        pair = (key, labels(node)[key])
        pairs[pair] += by
        if pairs[pair] == 0:
            del pairs[pair]


class Affinity:
    """InterPodAffinity's preFilterState."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.want, self.avoid, _, _ = parts(pod)
        self.existing: Pairs = Counter()
        self.near: Pairs = Counter()
        self.away: Pairs = Counter()

    def copy(self) -> "Affinity":
        other = Affinity(self.pod)
        other.existing, other.near = Counter(self.existing), Counter(self.near)
        other.away = Counter(self.away)
        return other

    def update(self, other: Pod, node: Node, by: int) -> None:
        for term in parts(other)[1]:
            if about(term, other, self.pod):
                bump(self.existing, node, term.topology_key, by)
        if self.want and all(about(term, self.pod, other) for term in self.want):
            for term in self.want:
                bump(self.near, node, term.topology_key, by)
        for term in self.avoid:
            if about(term, self.pod, other):
                bump(self.away, node, term.topology_key, by)

    def refuses(self, node: Node) -> Status | None:
        met = True
        for term in self.want:
            value = labels(node).get(term.topology_key)
            if value is None:
                return HOPELESS, ("node(s) didn't match pod affinity rules",)
            met &= self.near[term.topology_key, value] > 0
        first = not self.near and all(about(term, self.pod, self.pod) for term in self.want)
        if not met and not first:
            return HOPELESS, ("node(s) didn't match pod affinity rules",)
        for term in self.avoid:
            value = labels(node).get(term.topology_key)
            if value is not None and self.away[term.topology_key, value] > 0:
                return REFUSED, ("node(s) didn't match pod anti-affinity rules",)
        if any(self.existing[pair] > 0 for pair in labels(node).items()):
            return REFUSED, ("node(s) didn't satisfy existing pods anti-affinity rules",)
        return None


class CycleState:
    """What PreFilter found; None for a plugin that it had skipped for the whole cycle."""

    def __init__(self, spread: Spread | None, affinity: Affinity | None) -> None:
        self.spread = spread
        self.affinity = affinity

    @classmethod
    def of(cls, pod: Pod, infos: list[NodeInfo]) -> "CycleState":
        spread, affinity = Spread(pod), Affinity(pod)
        spread.count(infos)
        for info in infos:
            for other in info.pods:
                affinity.update(other, info.node, 1)
        matters = affinity.existing or affinity.want or affinity.avoid
        return cls(spread if spread.constraints else None, affinity if matters else None)

    def copy(self) -> "CycleState":
        return CycleState(
            self.spread and self.spread.copy(), self.affinity and self.affinity.copy()
        )

    def update(self, other: Pod, node: Node, by: int) -> None:
        if self.spread is not None:
            self.spread.update(other, node, by)
        if self.affinity is not None:
            self.affinity.update(other, node, by)


def static_refusal(pod: Pod, node: Node) -> Status | None:
    """NodeUnschedulable, TaintToleration, NodeAffinity."""
    if node.spec.unschedulable:  # which no pod here tolerates
        return HOPELESS, ("node(s) were unschedulable",)
    hard = [t for t in node.spec.taints or () if t.effect in ("NoSchedule", "NoExecute")]
    if not all(is_tolerated(pod.spec.tolerations or (), t, False) for t in hard):
        return HOPELESS, ("node(s) had untolerated taint(s)",)
    wanted = pod.spec.node_selector or {}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    if any(labels(node).get(k) != v for k, v in wanted.items()) or (
        required is not None
        and not node_selector_matches(required, labels(node), node.metadata.name)
    ):
        return HOPELESS, ("node(s) didn't match Pod's node affinity/selector",)
    return None


def ports_refusal(pod: Pod, info: NodeInfo) -> Status | None:
    """NodePorts, as HostPortInfo.CheckConflict."""
    for ip, protocol, port in host_ports(pod):
        for other_ip, other_protocol, other_port in info.ports:
            if (protocol, port) == (other_protocol, other_port) and (
                ip == other_ip or "0.0.0.0" in (ip, other_ip)
            ):
                return REFUSED, ("node(s) didn't have free ports for the requested pod ports",)
    return None


def room_refusal(pod: Pod, info: NodeInfo) -> Status | None:
    """NodeResourcesFit."""
    has = info.node.status.allocatable or {}
    room = {name: int(str(amount).removesuffix("m")) for name, amount in has.items()}
    reasons = []
    if len(info.pods) + 1 > room["pods"]:
        reasons.append("Too many pods")
    code = REFUSED
    for name, amount in asked(pod).items():
        used = sum(asked(other).get(name, 0) for other in info.pods)
        if amount > 0 and amount > room.get(name, 0) - used:
            reasons.append(f"Insufficient {name}")
            if amount > room.get(name, 0):
                code = HOPELESS
    return (code, tuple(reasons)) if reasons else None


# The model: preemption


@dataclass
class World:
    """A cluster, and a pod that would like to be in it."""

    nodes: list[Node]
    pods: list[Pod]  # placed
    waiting: list[Pod]  # promised room on status.nominatedNodeName
    budgets: list[PodDisruptionBudget]
    preemptor: Pod

    def infos(self) -> list[NodeInfo]:
        return [
            NodeInfo(node, (p for p in self.pods if p.spec.node_name == node.metadata.name))
            for node in self.nodes
        ]


class Model:
    """One scheduling cycle of the preemptor."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pod = world.preemptor
        self.infos = world.infos()
        self.state = CycleState.of(self.pod, self.infos)
        self.statuses = {
            info.node.metadata.name: self.run_filters(self.state, info) for info in self.infos
        }

    def run_filters(self, state: CycleState, info: NodeInfo) -> Status | None:
        """RunFilterPluginsWithNominatedPods."""
        with_them, state_with = info.copy(), state.copy()
        added = False
        for other in self.world.waiting:
            if (
                other.status.nominated_node_name == info.node.metadata.name
                and other.priority >= self.pod.priority
                and other.metadata.uid != self.pod.metadata.uid
            ):
                with_them.add(other)
                state_with.update(other, info.node, 1)
                added = True
        status = self.run_filters_once(state_with, with_them)
        if not added or status is not None:
            return status
        return self.run_filters_once(state, info)

    def run_filters_once(self, state: CycleState, info: NodeInfo) -> Status | None:
        return (
            static_refusal(self.pod, info.node)
            or ports_refusal(self.pod, info)
            or room_refusal(self.pod, info)
            or (state.spread and state.spread.refuses(info.node))
            or (state.affinity and state.affinity.refuses(info.node))
            or None
        )

    def select_victims(self, info: NodeInfo) -> set[Chosen] | Status:
        """SelectVictimsOnNode, in each order that equally important pods may come in."""
        eligible = [p for p in info.pods if p.priority < self.pod.priority]
        info, state = info.copy(), self.state.copy()
        for pod in eligible:
            info.remove(pod)
            state.update(pod, info.node, -1)
        if not eligible:
            return HOPELESS, (NO_VICTIMS,)
        status = self.run_filters(state, info)
        if status is not None:
            return status
        return {
            self.reprieve(order, info.copy(), state.copy())
            for order in islice(orders(eligible), ORDERS_MAX)
        }

    def reprieve(self, order: list[Pod], info: NodeInfo, state: CycleState) -> Chosen:
        """Bring back whom it can. `order`: the most important first."""
        violating = breaks_budget(order, self.world.budgets)
        victims: set[str] = set()
        violations = 0
        for pod in (*(p for p in order if p.key in violating),
                    *(p for p in order if p.key not in violating)):  # fmt: skip
            info.add(pod)
            state.update(pod, info.node, 1)
            if self.run_filters(state, info) is not None:
                info.remove(pod)
                state.update(pod, info.node, -1)
                victims.add(pod.key)
                violations += pod.key in violating
        assert victims, f"expected at least one victim pod on node {info.node.metadata.name}"
        return frozenset(victims), violations

    def not_eligible(self) -> str:
        """PodEligibleToPreemptOthers."""
        if self.pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        name = self.pod.status.nominated_node_name
        status = self.statuses.get(name) or (HOPELESS, ())
        if not name or status[0] == HOPELESS:
            return ""
        (info,) = (i for i in self.infos if i.node.metadata.name == name)
        for pod in info.pods:
            if pod.priority < self.pod.priority and terminates_by_preemption(pod):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def dry_run(self) -> dict[str, set[Chosen] | Status]:
        """DryRunPreemption of all nodes that evictions might help."""
        found: dict[str, set[Chosen] | Status] = {}
        for info in self.infos:
            status = self.statuses[info.node.metadata.name]
            if status is not None and status[0] == REFUSED:
                found[info.node.metadata.name] = self.select_victims(info)
        return found

    def no_candidate(self, dry_run: dict[str, set[Chosen] | Status]) -> str:
        """FitError.Error() where no node is a candidate."""
        reasons: Counter[str] = Counter()
        for refusal in dry_run.values():
            assert isinstance(refusal, tuple)
            reasons.update(refusal[1])
        rest = len(self.infos) - len(dry_run)
        if rest:
            reasons["Preemption is not helpful for scheduling"] = rest
        listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
        return f"0/{len(self.infos)} nodes are available: {listed}."


def started(pod: Pod) -> str:
    """GetPodStartTime; all are given in the same form."""
    return pod.status.start_time or NOW


def rank(pod: Pod) -> tuple[int, str]:
    """MoreImportantPod: the smaller, the more important."""
    return -pod.priority, started(pod)


def orders(pods: list[Pod]) -> Iterator[list[Pod]]:
    """Every order in which sort.Slice, which is not stable, may leave them."""
    groups = [list(group) for _, group in groupby(sorted(pods, key=rank), key=rank)]
    for choice in product(*(permutations(group) for group in groups)):
        yield [pod for group in choice for pod in group]


def order_count(pods: list[Pod]) -> int:
    return sum(1 for _ in islice(orders(pods), ORDERS_MAX + 1))


def breaks_budget(order: list[Pod], budgets: list[PodDisruptionBudget]) -> set[str]:
    """filterPodsWithPDBViolation: keys of the violating pods."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating = set()
    for pod in order:
        if not labels(pod):
            continue
        for i, budget in enumerate(budgets):
            selector = budget.spec.selector
            if budget.metadata.namespace != pod.metadata.namespace:
                continue
            if selector is None or not (selector.match_labels or selector.match_expressions):
                continue
            if not takes(selector, pod):
                continue
            if pod.metadata.name in (budget.status.disrupted_pods or {}):
                continue
            allowed[i] -= 1
            if allowed[i] < 0:
                violating.add(pod.key)
    return violating


def terminates_by_preemption(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


def pick_nodes(candidates: dict[str, tuple[list[Pod], int]]) -> set[str]:
    """pickOneNodeForPreemption: all nodes that may come out of it. Victims by importance."""

    def latest_start(name: str) -> str:
        victims, _ = candidates[name]
        top = max(pod.priority for pod in victims)
        return min(started(pod) for pod in victims if pod.priority == top)

    left = sorted(candidates)
    smaller_is_better: list[Any] = [
        lambda name: candidates[name][1],
        lambda name: candidates[name][0][0].priority,
        lambda name: sum(pod.priority + PRIORITY_SHIFT for pod in candidates[name][0]),
        lambda name: len(candidates[name][0]),
    ]
    for score in smaller_is_better:
        lowest = min(map(score, left))
        left = [name for name in left if score(name) == lowest]
    latest = max(map(latest_start, left))
    return {name for name in left if latest_start(name) == latest}


# Strategies

rarely = st.sampled_from((False,) * 11 + (True,))
sometimes = st.sampled_from((False, False, False, True))
never, often = st.just(False), st.sampled_from((True, True, True, False))
priorities = st.sampled_from((-10, 0, 0, 0, 10, 10, 50, 100))
apps = st.sampled_from(({"app": "web"}, {"app": "web"}, {"app": "db"}, {}))
namespaces = st.sampled_from(("default",) * 7 + ("other",))
WEB, DB = ({"matchLabels": {"app": app}} for app in ("web", "db"))
HAS_APP = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
NOT_DB = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}
selectors = st.sampled_from((WEB, WEB, WEB, DB, HAS_APP, HAS_APP, NOT_DB, {}, None))
topologies = st.sampled_from(("zone",) * 4 + (HOSTNAME,) * 4 + ("nowhere",))


@st.composite
def sites(draw: Any, name: str) -> Node:
    """A node on which few pods have room."""
    zone = draw(st.sampled_from(("z1",) * 3 + ("z2",) * 4 + (None,)))
    gpu = {"example.com__gpu": "2"} if draw(often) else {}
    return make_node(
        name,
        cpu=draw(st.sampled_from(("1000m", "1000m", "1500m"))),
        memory=draw(st.sampled_from(("1000", "500"))),
        pods=draw(st.sampled_from(("110", "110", "3"))),
        labels={HOSTNAME: name} | ({"zone": zone} if zone else {}),
        taints=[{"key": "k1", "effect": "NoSchedule"}] if draw(rarely) else [],
        unschedulable=draw(rarely) and draw(sometimes),
        **gpu,
    )


@st.composite
def terms(draw: Any) -> dict[str, Any]:
    """A term about other pods."""
    term: dict[str, Any] = {"topologyKey": draw(topologies), "labelSelector": draw(selectors)}
    if draw(rarely):
        term["namespaces"] = draw(st.lists(namespaces, max_size=2))
    if draw(rarely):
        term["namespaceSelector"] = draw(st.sampled_from(({}, {"matchLabels": {"team": "a"}})))
    return term


@st.composite
def spreads(draw: Any) -> dict[str, Any]:
    """A hard constraint."""
    made: dict[str, Any] = {
        "maxSkew": draw(st.sampled_from((1, 1, 2))),
        "topologyKey": draw(topologies),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": draw(selectors),
    }
    if draw(sometimes):
        made["minDomains"] = draw(st.integers(1, 4))
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw(rarely):
            made[field] = draw(st.sampled_from(("Honor", "Ignore")))
    if draw(rarely):
        made["matchLabelKeys"] = ["app"]
    return made


def _required(made: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": made}


@st.composite
def host_port_lists(draw: Any) -> list[dict[str, Any]]:
    """Up to two ports of a container."""
    numbers = draw(st.lists(st.sampled_from((80, 80, 443)), min_size=1, max_size=2, unique=True))
    ips = st.sampled_from(("", "", "10.0.0.1", "10.0.0.2"))
    protocols = st.sampled_from(("TCP", "TCP", "UDP"))
    return [
        {"containerPort": n, "hostPort": n, "hostIP": draw(ips), "protocol": draw(protocols)}
        for n in numbers
    ]


SMALL_CPU = st.sampled_from((None, "0m", "100m", "200m", "300m", "500m"))


@st.composite
def pods(
    draw: Any,
    name: str,
    *,
    cpu: Any = SMALL_CPU,
    ports: Any = sometimes,
    avoids: Any = rarely,
    wants: Any = rarely,
    spread: Any = rarely,
    **fields: Any,
) -> Pod:
    """A pod; `ports` to `spread` say whether it has any."""
    affinity: dict[str, Any] = {}
    if draw(avoids):
        affinity["podAntiAffinity"] = _required(draw(st.lists(terms(), min_size=1, max_size=2)))
    if draw(wants):
        affinity["podAffinity"] = _required(draw(st.lists(terms(), min_size=1, max_size=2)))
    affinity |= fields.pop("node_affinity", {})
    if draw(spread):
        fields["topologySpreadConstraints"] = draw(st.lists(spreads(), min_size=1, max_size=2))
    amounts = {
        "cpu": draw(cpu),
        "memory": draw(st.sampled_from((None, None, "100", "300"))),
        "example.com/gpu": draw(st.sampled_from((None, None, None, "1"))),
    }
    container = {
        "name": "main",
        "resources": {"requests": {k: v for k, v in amounts.items() if v is not None}},
        "ports": draw(host_port_lists()) if draw(ports) else [],
    }
    if "priority" not in fields:
        fields["priority"] = draw(priorities)
    return make_pod(
        name,
        namespace=draw(namespaces),
        labels=draw(apps),
        containers=[container],
        affinity=affinity,
        **fields,
    )


@st.composite
def deletions(draw: Any, some: Any = sometimes) -> dict[str, Any]:
    """Some pods are on their way out, some of those for a preemptor."""
    if not draw(some):
        return {}
    condition = {
        "type": "DisruptionTarget",
        "status": draw(st.sampled_from(("True",) * 4 + ("False",))),
        "reason": draw(st.sampled_from(("PreemptionByScheduler",) * 4 + ("DeletionByPodGC",))),
    }
    deletion = draw(st.sampled_from(("2026-01-01T00:00:00Z",) * 4 + (None,)))
    return {"deletion": deletion, "conditions": [condition] if draw(often) else []}


def at(pod: Pod, second: int | None) -> Pod:
    """The pod, started then."""
    time = None if second is None else f"2026-01-01T00:00:{second:02}Z"
    return replace(pod, status=replace(pod.status, start_time=time))


@st.composite
def budgets(draw: Any, name: str, pod_names: tuple[str, ...]) -> PodDisruptionBudget:
    """A budget for some pods, of which some may be counted already."""
    disrupted = draw(st.lists(st.sampled_from(pod_names), max_size=2)) if draw(sometimes) else []
    data = {
        "metadata": {"name": name, "namespace": draw(namespaces)},
        "spec": {"selector": draw(st.sampled_from((WEB, WEB, HAS_APP, NOT_DB, {}, None)))},
        "status": {
            "disruptionsAllowed": draw(st.sampled_from((0, 0, 1, 2))),
            "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
        },
    }
    return decode(json.dumps(data).encode(), PodDisruptionBudget)


HALF_CPU = st.sampled_from(("300m", "400m", "500m", "800m"))
BIG_CPU = st.sampled_from(("500m", "700m", "1000m", "1000m", "1100m"))
PLAIN: dict[str, Any] = {"avoids": never, "wants": never, "spread": never}
# What the preemptor is about, and what the pods that are there have of that.
THEMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "room": ({"ports": never, **PLAIN, "cpu": BIG_CPU}, {"cpu": HALF_CPU}),
    "ports": ({"ports": often, **PLAIN}, {"ports": often}),
    "spread": ({"spread": often}, {"cpu": st.sampled_from((None, "100m", "300m"))}),
    "affinity": ({"avoids": often, "wants": sometimes}, {"avoids": sometimes}),
    "company": ({"wants": often, "cpu": BIG_CPU}, {"cpu": HALF_CPU}),
    "all": (
        {"ports": often, "avoids": often, "wants": rarely, "spread": often, "cpu": BIG_CPU},
        {"cpu": HALF_CPU, "avoids": sometimes},
    ),
}


@st.composite
def preemptors(draw: Any, names: tuple[str, ...], **fields: Any) -> Pod:
    """It may name nodes."""
    if draw(rarely):
        fields["nodeSelector"] = {"zone": draw(st.sampled_from(("z1", "z2")))}
    if draw(rarely):
        named = {"key": "metadata.name", "operator": "In"}
        named["values"] = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        fields["node_affinity"] = {
            "nodeAffinity": _required({"nodeSelectorTerms": [{"matchFields": [named]}]})
        }
    if draw(sometimes):
        fields["tolerations"] = [{"key": "k1", "operator": "Exists"}]
    if draw(rarely):
        fields["preemptionPolicy"] = draw(st.sampled_from(("Never", "PreemptLowerPriority")))
    priority = draw(st.sampled_from((0, 10, 50, 50, 50, 100, 100)))
    return draw(pods("preemptor", priority=priority, **fields))


@st.composite
def worlds(draw: Any) -> World:
    """A few full nodes. Start times differ, unless ties are wanted."""
    names = NODES[: draw(st.sampled_from((3, 3, 4, 5)))]
    own, theirs = THEMES[draw(st.sampled_from(("room", "spread", "spread", *THEMES)))]
    has_ties = draw(sometimes)
    leaving = often if draw(st.booleans()) else rarely
    promised = (
        draw(st.sampled_from(("", *names, "gone"))) if leaving is often or draw(rarely) else ""
    )
    places = st.sampled_from((*names * 4, "gone"))
    count = draw(st.integers(len(names), 3 * len(names)))
    placed = []
    for i in range(count):
        fields = {**theirs, **draw(deletions(leaving))}
        if has_ties:
            fields["priority"] = draw(st.sampled_from((0, 0, 10)))
        placed.append(
            draw(pods(f"p{i}", node=names[i] if i < len(names) else draw(places), **fields))
        )
    if has_ties:
        times = draw(st.lists(st.sampled_from((1, None)), min_size=count, max_size=count))
    else:
        times = [n or None for n in draw(st.permutations(range(count)))]
    waiting = []
    for i in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        fields = {**theirs, **draw(deletions(rarely))}
        fields["priority"] = draw(st.sampled_from((0, 50, 100, 100)))
        waiting.append(draw(pods(f"w{i}", nominated=draw(places), **fields)))
    pod_names = tuple(pod.metadata.name for pod in placed)
    return World(
        nodes=[draw(sites(name)) for name in names],
        pods=[at(pod, second) for pod, second in zip(placed, times)],
        waiting=waiting,
        budgets=[
            draw(budgets(f"b{i}", pod_names)) for i in range(draw(st.sampled_from((0, 1, 2, 3))))
        ],
        preemptor=draw(preemptors(names, nominated=promised, **own)),
    )


# Ours beside the model


def build(world: World) -> tuple[ClusterState, PodEntry]:
    """The same in a state, and the preemptor's entry."""
    state = ClusterState()
    for name, own in NAMESPACES.items():
        state.pod_selectors.put(Namespace(metadata=ObjectMeta(name=name, labels=own)))
    for node in world.nodes:
        state.set_node(node)
    for budget in world.budgets:
        state.budgets.put(budget)
    for pod in world.pods:
        state.add_placed(pod)
    for pod in (*world.waiting, world.preemptor):
        entry = state.add_pending(pod)
        state.nominate(entry, pod.status.nominated_node_name)
    return state, entry


def statuses(state: ClusterState, entry: PodEntry) -> dict[str, Status | None]:
    """Ours for each node that PreFilter left."""
    verdict = reference.judge(PROFILE, state, entry.shape, entry.pod)
    found: dict[str, Status | None] = {}
    for row in state.present_rows():
        rejection = verdict.rejection(row)
        if rejection is None:
            found[state.node_names[row]] = None
        elif rejection[0]:
            found[state.node_names[row]] = rejection[1].code, tuple(sorted(rejection[1].reasons))
    return found


def theirs(model: Model) -> dict[str, Status | None]:
    return {
        name: status and (status[0], tuple(sorted(status[1])))
        for name, status in model.statuses.items()
    }


def ask(preemption: Evaluator, state: ClusterState, entry: PodEntry) -> Search:
    verdict = reference.judge(PROFILE, state, entry.shape, entry.pod)
    return preemption.failure(PROFILE, entry, verdict)


def closed(world: World) -> World:
    """The nodes where the preemptor would fit take no more pods, all others stay as they are."""
    fits = {name for name, status in Model(world).statuses.items() if status is None}
    nodes = [
        replace(n, spec=replace(n.spec, unschedulable=True)) if n.metadata.name in fits else n
        for n in world.nodes
    ]
    return World(nodes, world.pods, world.waiting, world.budgets, world.preemptor)


full_worlds = worlds().map(closed)


def refused_alike(world: World) -> tuple[Model, ClusterState, PodEntry] | None:
    """Both sides of a world in which the filters agree; another test asks whether they do."""
    model = Model(world)
    state, entry = build(world)
    expected, ours = theirs(model), statuses(state, entry)
    agree = all(ours[name] == expected[name] is not None for name in ours)
    return (model, state, entry) if agree else None


def check_filters(world: World) -> None:
    expected = theirs(Model(world))
    ours = statuses(*build(world))
    assert {name: expected[name] for name in ours} == ours


def check_candidates(world: World) -> None:
    both = refused_alike(world)
    if both is None:
        return
    model, state, entry = both
    for info in model.infos:
        if order_count([p for p in info.pods if p.priority < model.pod.priority]) > ORDERS_MAX:
            return
    expected = {n: c for n, c in model.dry_run().items() if isinstance(c, set)}
    search = ask(Evaluator(state, b""), state, entry)
    found = search.candidates()
    assert set(expected) == {state.node_names[row] for row in found.rows.tolist()}
    chosen: dict[str, tuple[list[Pod], int]] = {}
    for row, violations in zip(found.rows.tolist(), found.pdb_violations.tolist()):
        victims = [v.pod for v in search.victims(row)]
        assert victims == sorted(victims, key=rank)
        assert (frozenset(v.key for v in victims), violations) in expected[state.node_names[row]]
        chosen[state.node_names[row]] = victims, violations
    if not chosen:
        return
    acceptable = pick_nodes(chosen)
    assert acceptable == {state.node_names[row] for row in best_candidates(found).tolist()}
    if model.not_eligible():
        return
    result = DefaultPreemption().post_filter(search)
    assert "" == result.message
    assert result.nominated_node_name in acceptable
    assert chosen[result.nominated_node_name][0] == [v.pod for v in result.victims]


def check_texts(world: World) -> None:
    both = refused_alike(world)
    if both is None:
        return
    model, state, entry = both
    search = ask(Evaluator(state, b""), state, entry)
    result = DefaultPreemption().post_filter(search)
    why_not = model.not_eligible()
    if why_not:
        expected = f"preemption: {why_not}", None, ()
        assert expected == (result.message, result.nominated_node_name, result.victims)
    found = model.dry_run()
    if any(isinstance(outcome, set) for outcome in found.values()):
        assert why_not or result.victims
        return
    assert model.no_candidate(found) == search.no_candidate_reason()
    if not why_not:
        assert (f"preemption: {model.no_candidate(found)}", "") == (
            result.message,
            result.nominated_node_name,
        )


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_filters_beside_promises_are_as_the_model_says(world: World) -> None:
    """What each node says before anything is evicted, where room was promised to others."""
    check_filters(world)


@settings(max_examples=60, deadline=None)
@given(full_worlds)
def test_candidates_are_as_the_model_says(world: World) -> None:
    """Every candidate, its victims and how many of them break a budget; and the best of them."""
    check_candidates(world)


@settings(max_examples=60, deadline=None)
@given(full_worlds)
def test_texts_are_as_the_model_says(world: World) -> None:
    """Why a pod may not evict anybody, or why it would not help."""
    check_texts(world)


# Corners of the above, by hand


def host(name: str = "a", **fields: Any) -> Node:
    own = {HOSTNAME: name, "zone": "z1"}
    return make_node(name, cpu="1000m", memory="1000", labels=own, **fields)


def container(cpu: str = "0m", port: int = 0) -> list[dict[str, Any]]:
    ports = [{"containerPort": port, "hostPort": port}] if port else []
    return [{"name": "main", "resources": {"requests": {"cpu": cpu}}, "ports": ports}]


def guest(name: str, cpu: str = "0m", port: int = 0, **fields: Any) -> Pod:
    """A pod that is there, or one of more importance that waits for room on its node."""
    fields = {"node": "a", "labels": {"app": "web"}, **fields}
    return make_pod(name, containers=container(cpu, port), **fields)


def waiter(cpu: str = "0m", port: int = 0, **fields: Any) -> Pod:
    return guest("w0", cpu, port, node="", nominated="a", priority=100, **fields)


def asker(cpu: str = "0m", port: int = 0, **fields: Any) -> Pod:
    return guest("preemptor", cpu, port, node="", priority=50, **fields)


def evenly(selector: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
    ]


def social(field: str, key: str = HOSTNAME, selector: Any = WEB) -> dict[str, Any]:
    return {field: _required([{"topologyKey": key, "labelSelector": selector}])}


DELETED = "2026-01-01T00:00:00Z"
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
TWO = [host(), host("b", unschedulable=True)]


def protected(*pod_names: str, selector: Any = WEB) -> PodDisruptionBudget:
    """None of the pods may be evicted, but for these, which are counted already."""
    data = {
        "metadata": {"name": "b0", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptedPods": dict.fromkeys(pod_names, DELETED)},
    }
    return decode(json.dumps(data).encode(), PodDisruptionBudget)


CORNERS = {
    "a port is free again, but for whom it was promised": World(
        [host()], [guest("p0", port=80)], [waiter(port=80)], [], asker(port=80)
    ),
    "two have one port, and either frees it": World(
        [host()],
        [guest("p0", port=80), guest("p1", port=80, priority=100)], [], [], asker(port=80),
    ),
    "who was promised room avoids, but nobody there does": World(
        [host()], [], [waiter(affinity=social("podAntiAffinity"))], [], asker()
    ),
    "somebody avoids as well, but by a key that no node has": World(
        [host()],
        [guest("p0", affinity=social("podAntiAffinity", "nowhere"))],
        [waiter(affinity=social("podAntiAffinity"))], [], asker(),
    ),
    "somebody avoids as well, on another node": World(
        TWO,
        [guest("p0", node="b", affinity=social("podAntiAffinity"))],
        [waiter(affinity=social("podAntiAffinity"))], [], asker(),
    ),
    "an empty selector counts who was promised room": World(
        TWO, [], [waiter()], [], asker(topologySpreadConstraints=evenly({}))
    ),
    "one that is being deleted and was promised room counts": World(
        TWO, [], [waiter(deletion=DELETED)], [], asker(topologySpreadConstraints=evenly(WEB))
    ),
    "one that is being deleted makes room it never took": World(
        TWO,
        [guest("p0", deletion=DELETED), guest("p1", priority=100)],
        [], [], asker(topologySpreadConstraints=evenly(WEB)),
    ),
    "only who was promised room is company": World(
        [host()],
        [guest("p0", "1000m", labels={})],
        [waiter()], [], asker("500m", labels={}, affinity=social("podAffinity")),
    ),
    "a victim was the only company": World(
        [host()], [guest("p0", "1000m")], [], [], asker("500m", affinity=social("podAffinity"))
    ),
    "the first of its kind, once the others are gone": World(
        [host()],
        [guest("p0", "1000m")],
        [], [], asker("500m", affinity=social("podAffinity", selector=HAS_APP)),
    ),
    "who is counted already breaks no budget": World(
        [host()], [guest("p0", "1000m")], [], [protected("p0")], asker("500m")
    ),
    "a budget for those without a label is for nobody without any": World(
        [host()], [guest("p0", "1000m", labels={})], [], [protected(selector=NOT_DB)], asker("500m")
    ),
    "its victims are on their way out": World(
        [host()],
        [guest("p0", "1000m", deletion=DELETED, conditions=[TARGET])],
        [], [], asker("500m", nominated="a"),
    ),
    "others are on their way out": World(
        [host()],
        [guest("p0", "1000m", deletion=DELETED, conditions=[{**TARGET, "reason": "Eviction"}])],
        [], [], asker("500m", nominated="a"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str) -> None:
    """What chance seldom comes upon."""
    world = CORNERS[name]
    check_filters(world)
    check_candidates(closed(world))
    check_texts(closed(world))


# Kept between calls

PREEMPTORS = ("preemptor", "twin", "rival", "porter")
Action = tuple[Any, ...]


def answer(search: Search) -> dict[str, tuple[Any, ...]]:
    """All that is known of each candidate, by columns and by name."""
    found = search.candidates()
    columns = (
        found.pdb_violations,
        found.highest_priority,
        found.priority_sum,
        found.victim_count,
        found.earliest_start,
    )
    return {
        search.state.node_names[row]: (
            *(int(column[i]) for column in columns),
            [v.uid for v in search.victims(row)],
        )
        for i, row in enumerate(found.rows.tolist())
    }


def said(verdict: reference.Verdict, state: ClusterState) -> tuple[Any, ...]:
    """All that a verdict tells of the nodes there are."""
    there = state.present[state.all_rows]
    return (
        [verdict.rejection(row) for row in range(state.row_limit)],
        verdict.resolvable().tolist(),
        verdict.diagnosis(state.node_count),
        {
            i: None if codes is None or not codes[there].any() else codes[there].tolist()
            for i, codes in verdict.answers.items()
        },
    )


def row_by_row(search: Search, verdict: reference.Verdict) -> dict[str, tuple[Any, ...]]:
    """The same from the victims of each row alone."""
    result = {}
    state = search.state
    search.candidates()  # asked first, it prepares the rest
    for row in state.present_rows():
        refusal = verdict.rejection(row)
        if refusal is None or not refusal[1].resolvable:
            continue
        found = search.find_row_victims(row)
        if found.victims:
            top = found.victims[0].pod.priority
            result[state.node_names[row]] = (
                found.violations,
                top,
                sum(v.pod.priority + PRIORITY_SHIFT for v in found.victims),
                len(found.victims),
                min(candidates.start_second(v.pod) for v in found.victims if v.pod.priority == top),
                [v.uid for v in found.victims],
            )
    return result


def follow(state: ClusterState, action: Action) -> None:
    """One thing that happens. What makes no sense here does nothing."""
    kind, *args = action
    if kind == "node":
        state.set_node(args[0])
    elif kind == "node gone":
        state.remove_node(args[0])
    elif kind == "budget":
        state.budgets.put(args[0])
    elif kind == "budget gone":
        state.budgets.drop(args[0])
    elif kind == "pod":
        (pod,) = args
        if pod.metadata.uid in state.pods:
            state.remove_pod(state.pods[pod.metadata.uid])
        state.add_placed(pod)
    else:
        entry = next((e for e in state.pods.values() if e.pod.metadata.name == args[0]), None)
        if entry is None:
            return
        if kind == "promise":
            if entry.row < 0:
                state.nominate(entry, args[1])
        elif entry.row >= 0 and kind == "pod gone":
            state.remove_pod(entry)
        elif entry.row >= 0 and kind == "started":
            state.confirm(entry, at(entry.pod, args[1]))
        elif entry.row >= 0 and kind == "labelled":
            pod = entry.pod
            state.confirm(entry, replace(pod, metadata=replace(pod.metadata, labels=args[1])))


pod_names = tuple(f"p{i}" for i in range(8))
seconds = st.sampled_from((None, *range(6)))


@st.composite
def placed_pods(
    draw: Any, name: str, nodes: tuple[str, ...] = (*NODES[:3] * 2, "d", "gone")
) -> Pod:
    """One that takes a good part of a node, and that few things are said of."""
    node, deleted = draw(st.sampled_from(nodes)), draw(deletions(rarely))
    pod = draw(pods(name, cpu=HALF_CPU, node=node, **PLAIN, **deleted))
    return at(pod, draw(seconds))


some_budget = st.sampled_from(("b0", "b1")).flatmap(lambda name: budgets(name, pod_names))
actions = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(pod_names).flatmap(placed_pods)),
    st.tuples(st.just("pod gone"), st.sampled_from(pod_names)),
    st.tuples(st.just("started"), st.sampled_from(pod_names), seconds),
    st.tuples(st.just("labelled"), st.sampled_from(pod_names), apps),
    st.tuples(
        st.just("promise"), st.sampled_from((*PREEMPTORS, "w0")), st.sampled_from(("", *NODES[:4]))
    ),
    st.tuples(st.just("budget"), some_budget),
    st.tuples(st.just("budget gone"), some_budget),
    st.tuples(st.just("node"), st.sampled_from(NODES).flatmap(sites)),
    st.tuples(st.just("node gone"), st.sampled_from(NODES)),
)


@st.composite
def histories(draw: Any, size: int = 8) -> list[list[Action]]:
    """Some nodes with pods on them, and what happens between two questions."""
    first: list[Action] = [("node", draw(sites(name))) for name in NODES[:4]]
    for i in range(draw(st.integers(4, 8))):
        first.append(("pod", draw(placed_pods(f"p{i}", (NODES[i % 4],)))))
    if draw(often):
        first.append(("budget", draw(some_budget)))
    return [first, *draw(st.lists(st.lists(actions, max_size=2), min_size=3, max_size=size))]


def check_kept(history: list[list[Action]], big: str, one_by_one: int, kept_max: int) -> None:
    state = ClusterState()
    entries = []
    for name in (*PREEMPTORS, "w0"):
        fields: dict[str, Any] = {"priority": 50, "cpu": big}
        if name == "rival":
            fields["priority"] = 10
        if name == "porter":
            fields["ports"] = [80]
        entry = state.add_pending(make_pod(name, memory="100", **fields))
        if name != "w0":
            entries.append(entry)
    kept, verdicts = Evaluator(state, b""), VerdictCache(state)
    with (
        patch.object(evaluator, "ROWS_ONE_BY_ONE_MAX", one_by_one),
        patch.object(candidates, "ROWS_ONE_BY_ONE_MAX", one_by_one),
        patch.object(evaluator, "KEPT_MAX", kept_max),
        patch.object(verdict_cache, "KEPT_MAX", kept_max),
    ):
        for step in history:
            for action in step:
                follow(state, action)
            for entry in entries:
                verdict = reference.judge(PROFILE, state, entry.shape, entry.pod)
                search = Evaluator(state, b"").failure(PROFILE, entry, verdict)
                fresh = answer(search)
                assert row_by_row(search, verdict) == fresh
                again = kept.failure(PROFILE, entry, verdict)
                assert search.select_candidate() == again.select_candidate()
                assert fresh == answer(again)
                if not state.nominated_pods:
                    stood = verdicts.get(PROFILE, entry.shape, entry.pod)
                    assert said(verdict, state) == said(stood, state)
                    assert fresh == answer(Evaluator(state, b"").failure(PROFILE, entry, stood))


@settings(max_examples=60, deadline=None)
@given(
    histories(),
    st.sampled_from(("500m", "1000m")),
    st.sampled_from((0, 48)),
    st.sampled_from((2, 64)),
)
def test_what_is_kept_equals_what_is_found_anew(
    history: list[list[Action]], big: str, one_by_one: int, kept_max: int
) -> None:
    """Whatever happens between two questions, the answer is that of somebody who asks first."""
    check_kept(history, big, one_by_one, kept_max)


FULL: list[Action] = [
    ("node", host("a")), ("node", host("b")), ("budget", protected()),
    ("pod", guest("p0", "1000m")), ("pod", guest("p1", "1000m", node="b", labels={})),
]  # fmt: skip
CHANGES: dict[str, list[Action]] = {
    "a pod has started": [("started", "p0", 3)],
    "a pod is protected by its new labels": [("labelled", "p1", {"app": "web"})],
    "a pod is not protected any more": [("labelled", "p0", {})],
    "the first was promised room": [("promise", "preemptor", "a")],
    "the second was promised room": [("promise", "twin", "a")],
    "a third was promised room": [("promise", "w0", "a")],
    "a budget has changed": [("budget", protected("p0"))],
    "a budget is gone": [("budget gone", protected())],
    "a node is closed": [("node", host("a", unschedulable=True))],
    "a node is gone": [("node gone", "b")],
    "a pod is gone": [("pod gone", "p0")],
    "no node is left": [("node gone", "a"), ("node gone", "b")],
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_alone(name: str) -> None:
    """As above, for one change; and for one that is taken back."""
    for big, one_by_one in product(("500m", "1000m"), (0, 48)):
        nodes, back = FULL[:2], [*FULL, ("promise", "w0", "")]
        moved = [("pod", guest("p1", "1000m", node="gone"))]
        check_kept([FULL, CHANGES[name], moved, nodes, back], big, one_by_one, 64)


# The same laws, more often; the plugin itself most of all


@pytest.mark.more
@settings(max_examples=500, deadline=None)
@given(worlds())
def test_more_filters_beside_promises(world: World) -> None:
    check_filters(world)


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(full_worlds)
def test_more_candidates(world: World) -> None:
    check_candidates(world)


@pytest.mark.more
@settings(max_examples=500, deadline=None)
@given(full_worlds)
def test_more_texts(world: World) -> None:
    check_texts(world)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(
    histories(30),
    st.sampled_from(("500m", "1000m")),
    st.sampled_from((0, 48)),
    st.sampled_from((2, 64)),
)
def test_more_of_what_is_kept(
    history: list[list[Action]], big: str, one_by_one: int, kept_max: int
) -> None:
    check_kept(history, big, one_by_one, kept_max)
