"""PodTopologySpread and InterPodAffinity against a slow, obvious model: loops over nodes and pods.

The model follows upstream's own code, node by node and pod by pod; it knows no tallies or domains.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.model.kinds import Namespace, Node, Pod
from stower.model.kinds.pod import PodAffinityTerm, TopologySpreadConstraint
from stower.model.meta import ObjectMeta
from stower.model.selectors import LabelSelector, node_selector_matches
from stower.model.taints import is_tolerated
from stower.plugins.inter_pod_affinity import InterPodAffinity
from stower.plugins.pod_topology_spread import PodTopologySpread
from stower.state.cluster import ClusterState
from tests.property.strategies import NODE_NAMES, nodes, social_pods
from tests.property.worlds import Model, apply, operations

Placed = list[tuple[Pod, Node]]
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}


def labels(obj: Any) -> dict[str, str]:
    return obj.metadata.labels or {}


def takes(selector: LabelSelector | None, pod: Pod) -> bool:
    return selector is not None and selector.matches(labels(pod))


def placed(model: Model) -> Placed:
    return [(pod, model.nodes[name]) for pod, name in model.pods.values() if name in model.nodes]


# PodTopologySpread


def counts(constraint: TopologySpreadConstraint, owner: Pod, other: Pod) -> bool:
    """Whether the other pod is one of those that are spread."""
    selector = constraint.label_selector
    if other.metadata.deletion_timestamp or other.metadata.namespace != owner.metadata.namespace:
        return False
    if selector is None or is_everything(constraint, owner):
        return False
    return selects(constraint, owner, other)


def is_everything(constraint: TopologySpreadConstraint, owner: Pod) -> bool:
    """An empty selector counts nobody, though it takes the pod itself."""
    selector = constraint.label_selector
    keys = [k for k in constraint.match_label_keys or () if k in labels(owner)]
    assert selector is not None
    return not (selector.match_labels or selector.match_expressions or keys)


def selects(constraint: TopologySpreadConstraint, owner: Pod, other: Pod) -> bool:
    keys = [k for k in constraint.match_label_keys or () if k in labels(owner)]
    return takes(constraint.label_selector, other) and all(
        labels(other).get(k) == labels(owner)[k] for k in keys
    )


def included(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    """Whether the node's pods count: nodeAffinityPolicy and nodeTaintsPolicy."""
    if constraint.node_affinity_policy in (None, "Honor"):
        wanted = pod.spec.node_selector or {}
        if any(labels(node).get(k) != v for k, v in wanted.items()):
            return False
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        required = affinity.required if affinity else None
        if required is not None and not node_selector_matches(
            required, labels(node), node.metadata.name
        ):
            return False
    if constraint.node_taints_policy == "Honor":
        hard = [t for t in node.spec.taints or () if t.effect in ("NoSchedule", "NoExecute")]
        return all(is_tolerated(pod.spec.tolerations or (), t, False) for t in hard)
    return True


def spread_filter(pod: Pod, nodes: list[Node], there: Placed) -> dict[str, int]:
    """0, 1 (no label) or 2 (too many) for each node."""
    hard = [c for c in pod.spec.topology_spread_constraints or ()
            if c.when_unsatisfiable == "DoNotSchedule"]  # fmt: skip
    found: list[Counter[str]] = []
    for c in hard:
        own: Counter[str] = Counter()
        for node in nodes:
            keyed = all(k.topology_key in labels(node) for k in hard)
            if keyed and included(c, pod, node):
                own[labels(node)[c.topology_key]] += sum(
                    on is node and counts(c, pod, other) for other, on in there
                )
        found.append(own)
    result = {}
    for node in nodes:
        code = 0
        for c, own in zip(hard, found, strict=True):
            value = labels(node).get(c.topology_key)
            if value is None:
                code = 1
                break
            least = min(own.values(), default=0) if len(own) >= (c.min_domains or 1) else 0
            if own.get(value, 0) + selects(c, pod, pod) - least > c.max_skew:
                code = 2
                break
        result[node.metadata.name] = code
    return result


def spread_score(pod: Pod, nodes: list[Node], there: Placed, good: set[str]) -> dict[str, int]:
    soft = [c for c in pod.spec.topology_spread_constraints or ()
            if c.when_unsatisfiable == "ScheduleAnyway"]  # fmt: skip
    if not soft:
        return {}
    feasible = [n for n in nodes if n.metadata.name in good]
    keyed = [n for n in feasible if all(c.topology_key in labels(n) for c in soft)]
    raw: dict[str, float] = dict.fromkeys((n.metadata.name for n in keyed), 0.0)
    for c in soft:
        values = {labels(n)[c.topology_key] for n in keyed}
        host = c.topology_key == "kubernetes.io/hostname"
        weight = math.log((len(keyed) if host else len(values)) + 2)
        for n in keyed:
            number = 0
            for other, on in there:
                if not counts(c, pod, other):
                    continue
                if host:
                    number += on is n
                else:
                    all_keys = all(k.topology_key in labels(on) for k in soft)
                    same = labels(on).get(c.topology_key) == labels(n)[c.topology_key]
                    number += same and all_keys and included(c, pod, on)
            raw[n.metadata.name] += number * weight + (c.max_skew - 1)
    rounded = {name: math.floor(value + 0.5) for name, value in raw.items()}
    highest, lowest = max(rounded.values(), default=0), min(rounded.values(), default=0)
    result = {n.metadata.name: 0 for n in feasible}
    for name, value in rounded.items():
        result[name] = 100 * (highest + lowest - value) // highest if highest else 100
    return result


# InterPodAffinity


def about(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Whether a term of the owner is about the other pod."""
    namespace = other.metadata.namespace
    named = namespace in (term.namespaces or ())
    if not term.namespaces and term.namespace_selector is None:
        named = namespace == owner.metadata.namespace
    selector = term.namespace_selector
    if selector is not None and selector.matches(NAMESPACES.get(namespace, {})):
        named = True
    return named and takes(term.label_selector, other)


def parts(pod: Pod) -> tuple[Any, Any, Any, Any]:
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity else None
    away = affinity.pod_anti_affinity if affinity else None
    return (
        (near.required if near else None) or (), (away.required if away else None) or (),
        (near.preferred if near else None) or (), (away.preferred if away else None) or (),
    )  # fmt: skip


def same_domain(key: str, one: Node, other: Node) -> bool:
    return key in labels(one) and labels(one)[key] == labels(other).get(key)


def affinity_filter(pod: Pod, nodes: list[Node], there: Placed) -> dict[str, int]:
    near, away, _, _ = parts(pod)
    friends = [(p, n) for p, n in there if near and all(about(t, pod, p) for t in near)]
    anywhere = any(t.topology_key in labels(n) for _, n in friends for t in near)
    alone = not anywhere and all(about(t, pod, pod) for t in near)
    result = {}
    for node in nodes:
        name = node.metadata.name
        keyed = all(t.topology_key in labels(node) for t in near)
        met = all(any(same_domain(t.topology_key, node, n) for _, n in friends) for t in near)
        if not keyed or not (met or alone):
            result[name] = 1
        elif any(about(t, pod, p) and same_domain(t.topology_key, node, n)
                 for t in away for p, n in there):  # fmt: skip
            result[name] = 2
        elif any(about(t, p, pod) and same_domain(t.topology_key, node, n)
                 for p, n in there for t in parts(p)[1]):  # fmt: skip
            result[name] = 3
        else:
            result[name] = 0
    return result


def shares(pod: Pod, there: Placed) -> Iterator[tuple[str, Node, int]]:
    """Key, node and weight of everything that counts towards a score."""
    _, _, likes, dislikes = parts(pod)
    for other, node in there:
        for terms, sign in ((likes, 1), (dislikes, -1)):
            for w in terms:
                if about(w.pod_affinity_term, pod, other):
                    yield w.pod_affinity_term.topology_key, node, sign * w.weight
        needs, _, theirs, against = parts(other)
        for term in needs:
            if about(term, other, pod):
                yield term.topology_key, node, 1
        for terms, sign in ((theirs, 1), (against, -1)):
            for w in terms:
                if about(w.pod_affinity_term, other, pod):
                    yield w.pod_affinity_term.topology_key, node, sign * w.weight


def affinity_score(pod: Pod, nodes: list[Node], there: Placed, good: set[str]) -> dict[str, int]:
    raw = {
        n.metadata.name: sum(w for key, on, w in shares(pod, there) if same_domain(key, n, on))
        for n in nodes
        if n.metadata.name in good
    }
    if not raw:
        return {}
    lowest, span = min(raw.values()), max(raw.values()) - min(raw.values())
    return {name: int(100 * ((v - lowest) / span)) if span else 0 for name, v in raw.items()}


World = tuple[ClusterState, Model]


@st.composite
def worlds(draw: Any) -> World:
    """Nodes with many pods on them, some of which came, moved or went after they were counted."""
    state, model = ClusterState(), Model()
    for name, own in NAMESPACES.items():
        state.pod_selectors.put(Namespace(metadata=ObjectMeta(name=name, labels=own)))
    names = NODE_NAMES[: draw(st.integers(2, len(NODE_NAMES)))]
    for name in names:
        apply(state, model, ("node", draw(nodes(name))))
    first = draw(social_pods("first"))  # registers its tallies before the others are there
    shape = state.shapes.intern(first)
    for plugin in (PodTopologySpread(), InterPodAffinity()):
        plugin.filter_pod(first, shape, state)
    for number in range(draw(st.integers(1, 12))):
        node = draw(st.sampled_from(names))
        apply(state, model, ("pod", draw(social_pods(f"p{number}", node))))
    for operation in draw(st.lists(operations(), max_size=6)):
        apply(state, model, operation)
    return state, model


@settings(max_examples=100, deadline=None)
@given(worlds(), social_pods("candidate"))
def test_spreading_is_as_the_model_says(world: World, pod: Pod) -> None:
    state, model = world
    compare(PodTopologySpread(), state, model, pod, spread_filter, spread_score)


@settings(max_examples=100, deadline=None)
@given(worlds(), social_pods("candidate"))
def test_affinity_is_as_the_model_says(world: World, pod: Pod) -> None:
    state, model = world
    compare(InterPodAffinity(), state, model, pod, affinity_filter, affinity_score)


def compare(
    plugin: Any, state: ClusterState, model: Model, pod: Pod, filtered: Any, scored: Any
) -> None:
    shape = state.shapes.intern(pod)
    nodes, there = list(model.nodes.values()), placed(model)
    expected = filtered(pod, nodes, there)
    codes = plugin.filter_pod(pod, shape, state)
    found = {
        state.node_names[row]: 0 if codes is None else int(codes[row])
        for row in state.present_rows()
    }
    assert expected == found
    good = {name for name, code in expected.items() if not code}
    feasible = np.zeros(state.row_limit, np.bool_)
    feasible[state.rows_of(good)] = True
    scores = plugin.score_pod(pod, shape, state, feasible)
    wanted = scored(pod, nodes, there, good)
    if scores is None:
        assert not any(wanted.values())
    else:
        assert wanted == {state.node_names[row]: int(scores[row]) for row in state.rows_of(good)}
