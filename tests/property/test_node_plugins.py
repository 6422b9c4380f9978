"""The plugins that look at one node at a time, against a slow model read off upstream's Go.

The model reads the objects as JSON has them, one pod and one node at a time, and its functions are
named as upstream's. It takes nothing from `src`: what is right is written here once more.

Source: kube-scheduler 1.36 framework/plugins, framework/types.go, backend/cache/cache.go;
component-helpers resource, scheduling/corev1, nodedeclaredfeatures.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.assembly import build_profiles
from stower.engine.cycle import reference as reference_cycle
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features
from stower.framework.profile import Profile
from stower.model.kinds import Node, Pod
from stower.model.raw import decode
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.property.test_long import law

Object = dict[str, Any]
Labels = dict[str, str]
Status = tuple[str, frozenset[str]] | None  # a code and its reasons; None is success

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"
NAMES = ("a", "b", "c", "d")

sample = settings(max_examples=60, deadline=None)
thorough = settings(max_examples=2000, deadline=None)


class World(NamedTuple):
    """Nodes in the order in which they came, pods that are on them, and one to be placed."""

    nodes: list[Object]
    placed: list[Object]
    pod: Object


class Cluster(NamedTuple):
    """The same with several pods, of which each is asked about alone."""

    nodes: list[Object]
    placed: list[Object]
    pods: list[Object]


class Answer(NamedTuple):
    """What PreFilter says of the pod, Filter of each node, and Score of each feasible one."""

    prefilter: Status
    nodes: dict[str, Status]
    scores: dict[str, int]


def name_of(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def labels_of(thing: Object) -> Labels:
    return thing["metadata"].get("labels") or {}


# Ours


def profile(
    plugin: str, args: Object | None = None, comparisons: bool = False, filters: bool = True
) -> Profile:
    """A profile of which this plugin is all that filters and scores."""
    enabled = [{"name": name} for name in dict.fromkeys(("PrioritySort", "DefaultBinder", plugin))]
    own: Object = {
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
        "pluginConfig": [] if args is None else [{"name": plugin, "args": args}],
    }
    if not filters:
        for point in ("preFilter", "filter"):
            own["plugins"][point] = {"disabled": [{"name": "*"}]}
    config = read_configuration({"profiles": [own]})
    return build_profiles(config, Features(comparisons))["default-scheduler"]


def view(thing: Object, kind: type[Any]) -> Any:
    return decode(json.dumps(thing).encode(), kind)


def status_of(rejection: Any) -> Status:
    return None if rejection is None else (rejection.code, frozenset(rejection.reasons))


def state_of(nodes: list[Object], placed: list[Object]) -> ClusterState:
    state = ClusterState()
    for node in nodes:
        state.set_node(view(node, Node))
    for pod in placed:
        state.add_placed(view(pod, Pod))
    return state


def ours(profile: Profile, state: ClusterState, pod: Pod) -> Answer:
    """The plain cycle's answer; the scalar twins and the cached cycle must agree with it."""
    shape = state.shapes.intern(pod, pod.spec.node_name)
    rows, names = state.present_rows(), state.node_names
    for plugin in profile.usage_filters:
        codes, code = plugin.filter(shape, state, state.all_rows), plugin.filter_row(shape, state)
        for row in rows:
            assert (code(row) if code else 0) == (0 if codes is None else codes[row])
    for plugin, _ in profile.usage_scores:
        parts, part = plugin.score(shape, state, state.all_rows), plugin.score_row(shape, state)
        for row in rows:
            assert (part(row) if part else 0) == (0 if parts is None else parts[row])
    verdict = reference_cycle.judge(profile, state, shape, pod)
    cached = SchedulingCycle(state, 0).scores_of(profile, PodEntry(pod, shape))
    if verdict.pre_filter is not None:
        assert (cached < 0).all()
        refused = status_of(verdict.pre_filter[1])
        return Answer(refused, {names[row]: refused for row in rows}, {})
    rejections = {row: verdict.rejection(row) for row in rows}
    nodes = {names[row]: status_of(found and found[1]) for row, found in rejections.items()}
    parts = reference_cycle.scores(profile, state, shape, pod, verdict.feasible)
    total = reference_cycle.total_score(parts, state.row_limit)
    scores = {names[row]: int(total[row]) for row in rows if verdict.feasible[row]}
    highest = max(0, cached.max(initial=-1))
    assert {names[row] for row in rows if cached[row] == highest} == best(scores)
    return Answer(None, nodes, scores)


def best(scores: dict[str, int]) -> set[str]:
    return {name for name, score in scores.items() if score == max(scores.values())}


# The framework


@dataclass(frozen=True)
class Model:
    """What upstream's plugin does at each extension point, for one pod and one node at a time."""

    name: str
    filtered: Callable[[World, Object], Status] | None = None
    scored: Callable[[World, Object], int] | None = None
    normalized: Callable[[dict[str, int]], dict[str, int]] = lambda scores: scores
    prefiltered: Callable[[Object], tuple[Status, set[str] | None]] = lambda pod: (None, None)


def theirs(model: Model, world: World) -> Answer:
    """RunPreFilterPlugins, findNodesThatFitPod and RunScorePlugins, for one plugin."""
    refused, left = model.prefiltered(world.pod)
    if refused is not None:
        return Answer(refused, {name_of(node): refused for node in world.nodes}, {})
    nodes: dict[str, Status] = {}
    for node in world.nodes:
        if left is not None and name_of(node) not in left:
            reason = f"node(s) didn't satisfy plugin(s) [{model.name}]"
            nodes[name_of(node)] = refuse(UNRESOLVABLE, reason)
        else:
            nodes[name_of(node)] = model.filtered(world, node) if model.filtered else None
    feasible = [node for node in world.nodes if nodes[name_of(node)] is None]
    if model.scored is None:
        return Answer(None, nodes, {name_of(node): 0 for node in feasible})
    scores = {name_of(node): model.scored(world, node) for node in feasible}
    return Answer(None, nodes, model.normalized(scores))


def compare(
    model: Model, cluster: Cluster, args: Object | None = None, comparisons: bool = False
) -> None:
    """Both answers of each pod; where the plugin scores, also as if it did not filter."""
    asked = [(profile(model.name, args, comparisons), model)]
    if model.filtered is not None and model.scored is not None:
        scores_alone = Model(model.name, None, model.scored, model.normalized)
        asked.append((profile(model.name, args, comparisons, filters=False), scores_alone))
    state = state_of(cluster.nodes, cluster.placed)
    for pod in cluster.pods:
        world = World(cluster.nodes, cluster.placed, pod)
        for own, upstream in asked:
            assert ours(own, state, view(pod, Pod)) == theirs(upstream, world)


def default_normalize_score(scores: dict[str, int], reverse: bool) -> dict[str, int]:
    highest = max([0, *scores.values()])
    if highest == 0:
        return dict.fromkeys(scores, 100) if reverse else scores
    shares = {name: 100 * score // highest for name, score in scores.items()}
    return {name: 100 - share for name, share in shares.items()} if reverse else shares


def refuse(code: str, *reasons: str) -> Status:
    return code, frozenset(reasons)


# What clusters are made of


class Dice(Random):
    """A number of 24 bits, thrown as often as needed; low ones make small clusters."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.size = 1 + (number >> 22)


Made = Callable[[Dice], Any]


def drawn(made: Made) -> Any:
    """A strategy that draws one number: of what is drawn piece by piece Hypothesis would make five
    examples of six by varying the one before."""
    return st.integers(0, 2**24 - 1).map(lambda number: made(Dice(number)))


def just(value: Any) -> Made:
    return lambda dice: value


def any_of(*values: Any) -> Made:
    return lambda dice: dice.choice(values)


def one_of(*made: Made) -> Made:
    return lambda dice: dice.choice(made)(dice)


def both(*made: Made) -> Made:
    return lambda dice: tuple(one(dice) for one in made)


def many(made: Made, least: int, most: int) -> Made:
    return lambda dice: [made(dice) for _ in range(dice.randint(least, most))]


def some(made: Made, most: int) -> Made:
    """A list that is seldom empty."""
    return lambda dice: many(made, int(dice.random() < 0.9), most)(dice)


def fields(required: dict[str, Made] | None = None, **optional: Made) -> Made:
    """An object with these fields, and with most of the optional ones."""

    def make(dice: Dice) -> Object:
        given = {**(required or {})}
        given |= {key: made for key, made in optional.items() if dice.random() < 0.75}
        return {key: made(dice) for key, made in given.items()}

    return make


def clusters(node: Made, pod: Made, placed_max: int = 0) -> Made:
    """A few nodes, and pods of the same kind on them and to be placed."""

    def make(dice: Dice) -> Cluster:
        nodes, placed, names = [], [], NAMES[: dice.size]
        for name in names:
            made = node(dice)
            metadata = {**made.get("metadata", {}), "name": name, "uid": name}
            nodes.append({**made, "metadata": metadata})
        for i in range(dice.randint(0, placed_max)):
            made = pod(dice)
            spec = {**made["spec"], "nodeName": dice.choice(names)}
            placed.append(known_pod({**made, "spec": spec}, f"p{i}"))
        pods = [pod(dice)]
        while len(pods) < 2 * dice.size - 1:
            pods.append(varied(dice.choice(pods), pod(dice), dice))
        return Cluster(nodes, placed, [known_pod(made, "candidate") for made in pods])

    return make


def varied(one: Object, other: Object, dice: Dice) -> Object:
    """The other pod, or the one with some field of the other's."""
    part = dice.choice(sorted(other))
    if dice.random() < 0.5 or not other[part]:
        return other
    key = dice.choice(sorted(other[part]))
    return {**one, part: {**one[part], key: other[part][key]}}


def known_pod(pod: Object, name: str) -> Object:
    return {**pod, "metadata": {"name": name, "namespace": "default", "uid": name}}


def a_pod(**spec: Made) -> Made:
    """A pod with one container, and these for more of its spec."""
    return fields({"spec": fields({"containers": just([{"name": "c"}])}, **spec)})


# NodeName


def node_name_filter(world: World, node: Object) -> Status:
    wanted = world.pod["spec"].get("nodeName", "")
    if wanted in ("", name_of(node)):
        return None
    return refuse(UNRESOLVABLE, "node(s) didn't match the requested node name")


named_clusters = clusters(just({}), a_pod(nodeName=any_of("", *NAMES, "nowhere")))


@sample
@given(drawn(named_clusters))
def test_node_name(cluster: Cluster) -> None:
    compare(Model("NodeName", node_name_filter), cluster)


@pytest.mark.more
@thorough
@given(drawn(named_clusters))
def test_node_name_more(cluster: Cluster) -> None:
    law(test_node_name)(cluster)


# Taints: NodeUnschedulable, TaintToleration


def parse_int(text: str) -> int | None:
    """strconv.ParseInt(text, 10, 64)."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    return int(text) if -(2**63) <= int(text) <= 2**63 - 1 else None


def compare_numeric_values(toleration: str, taint: str, operator: str) -> bool:
    for text in (toleration, taint):
        digits = text.removeprefix("-")  # content.IsDecimalInteger
        if not digits or any(c not in "0123456789" for c in digits):
            return False
        if digits[0] == "0" and text != "0":
            return False
    bound, value = parse_int(toleration), parse_int(taint)
    if bound is None or value is None:
        return False
    return value < bound if operator == "Lt" else value > bound


def tolerates_taint(toleration: Object, taint: Object, comparisons: bool) -> bool:
    effect, key = toleration.get("effect", ""), toleration.get("key", "")
    if effect and effect != taint["effect"]:
        return False
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator", "")
    if operator in ("", "Equal"):
        return bool(toleration.get("value", "") == taint.get("value", ""))
    if operator == "Exists":
        return True
    if operator in ("Lt", "Gt") and comparisons:
        value, bound = taint.get("value", ""), toleration.get("value", "")
        return compare_numeric_values(bound, value, operator)
    return False


def tolerations_of(pod: Object) -> list[Object]:
    return pod["spec"].get("tolerations") or []


def taints_of(node: Object) -> list[Object]:
    return node["spec"].get("taints") or []


def unschedulable_filter(world: World, node: Object, comparisons: bool) -> Status:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if not node["spec"].get("unschedulable"):
        return None
    if any(tolerates_taint(t, taint, comparisons) for t in tolerations_of(world.pod)):
        return None
    return refuse(UNRESOLVABLE, "node(s) were unschedulable")


def taint_filter(world: World, node: Object, comparisons: bool) -> Status:
    for taint in taints_of(node):
        if taint["effect"] not in ("NoSchedule", "NoExecute"):
            continue
        if not any(tolerates_taint(t, taint, comparisons) for t in tolerations_of(world.pod)):
            return refuse(UNRESOLVABLE, "node(s) had untolerated taint(s)")
    return None


def taint_score(world: World, node: Object, comparisons: bool) -> int:
    soft = [t for t in tolerations_of(world.pod) if t.get("effect", "") in ("", "PreferNoSchedule")]
    count = 0
    for taint in taints_of(node):
        if taint["effect"] == "PreferNoSchedule":
            count += not any(tolerates_taint(t, taint, comparisons) for t in soft)
    return count


_KEYS = ("k1", "k2", "node.kubernetes.io/unschedulable")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute")
_NUMBERS = (*("5", "10", "0") * 3, "v", "-3", "", "-0", "007", "+5", "5.0", "٣",
            str(2**63 - 1), str(2**63), "9" * 70)  # fmt: skip
_taint = fields({"key": any_of(*_KEYS), "effect": any_of(*_EFFECTS)}, value=any_of(*_NUMBERS))
_toleration = fields(
    key=any_of(*_KEYS, *_KEYS, ""),
    operator=any_of("", "Equal", "Exists", "Lt", "Lt", "Gt", "Gt"),
    value=any_of(*_NUMBERS),
    effect=any_of("", *_EFFECTS),
)
tainted_clusters = clusters(
    fields({"spec": fields(unschedulable=any_of(True, False), taints=some(_taint, 4))}),
    a_pod(tolerations=some(_toleration, 4)),
)


@sample
@given(drawn(both(tainted_clusters, any_of(True, False))))
def test_node_unschedulable(case: tuple[Cluster, bool]) -> None:
    cluster, comparisons = case
    model = Model("NodeUnschedulable", partial(unschedulable_filter, comparisons=comparisons))
    compare(model, cluster, None, comparisons)


@pytest.mark.more
@thorough
@given(drawn(both(tainted_clusters, any_of(True, False))))
def test_node_unschedulable_more(case: tuple[Cluster, bool]) -> None:
    law(test_node_unschedulable)(case)


@sample
@given(drawn(both(tainted_clusters, any_of(True, False))))
def test_taint_toleration(case: tuple[Cluster, bool]) -> None:
    cluster, comparisons = case
    model = Model(
        "TaintToleration",
        partial(taint_filter, comparisons=comparisons),
        partial(taint_score, comparisons=comparisons),
        partial(default_normalize_score, reverse=True),
    )
    compare(model, cluster, None, comparisons)


@pytest.mark.more
@thorough
@given(drawn(both(tainted_clusters, any_of(True, False))))
def test_taint_toleration_more(case: tuple[Cluster, bool]) -> None:
    law(test_taint_toleration)(case)


# NodeAffinity


_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def is_label_key(text: str) -> bool:
    """content.IsLabelKey."""
    parts = text.split("/")
    if len(parts) > 2:
        return False
    if len(parts) == 2:
        if len(parts[0]) > 253 or not re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", parts[0]):
            return False
    return len(parts[-1]) <= 63 and re.fullmatch(_NAME, parts[-1]) is not None


def is_label_value(text: str) -> bool:
    return not text or (len(text) <= 63 and re.fullmatch(_NAME, text) is not None)


def can_be_parsed(requirement: Object) -> bool:
    """labels.NewRequirement."""
    values, operator = requirement.get("values") or [], requirement["operator"]
    if operator in ("In", "NotIn") and not values:
        return False
    if operator in ("Exists", "DoesNotExist") and values:
        return False
    if operator in ("Gt", "Lt") and (len(values) != 1 or parse_int(values[0]) is None):
        return False
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
        return False
    return is_label_key(requirement["key"]) and all(is_label_value(value) for value in values)


def requirement_matches(requirement: Object, labels: Labels) -> bool:
    key, operator = requirement["key"], requirement["operator"]
    values = requirement.get("values") or []
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or parse_int(labels[key]) is None:
        return False
    value, bound = parse_int(labels[key]), parse_int(values[0])
    assert value is not None
    assert bound is not None
    return value > bound if operator == "Gt" else value < bound


def field_can_be_parsed(requirement: Object) -> bool:
    values = requirement.get("values") or []
    return requirement["operator"] in ("In", "NotIn") and len(values) == 1


def is_empty_term(term: Object) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def term_can_be_parsed(term: Object) -> bool:
    return all(can_be_parsed(r) for r in term.get("matchExpressions") or []) and all(
        field_can_be_parsed(r) for r in term.get("matchFields") or []
    )


def term_matches(term: Object, node: Object) -> bool:
    """nodeSelectorTerm.match, of a term that is not empty."""
    if not term_can_be_parsed(term):
        return False
    for requirement in term.get("matchExpressions") or []:
        if not requirement_matches(requirement, labels_of(node)):
            return False
    for requirement in term.get("matchFields") or []:
        has = {"metadata.name": name_of(node)}.get(requirement["key"], "")
        if (has == requirement["values"][0]) != (requirement["operator"] == "In"):
            return False
    return True


def selector_matches(selector: Object, node: Object) -> bool:
    for term in selector.get("nodeSelectorTerms") or []:
        if not is_empty_term(term) and term_matches(term, node):
            return True
    return False


def preferred_score(terms: Iterable[Object], node: Object) -> int:
    """PreferredSchedulingTerms.Score. One that cannot be parsed fails upstream's whole cycle, so
    here all of them can be."""
    score = 0
    for term in terms:
        if term["weight"] == 0 or is_empty_term(term["preference"]):
            continue
        assert term_can_be_parsed(term["preference"])
        if term_matches(term["preference"], node):
            score += term["weight"]
    return score


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_affinity_of(pod: Object) -> Object:
    return (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}


def node_affinity_pre_filter(pod: Object) -> tuple[Status, set[str] | None]:
    required = node_affinity_of(pod).get(_REQUIRED)
    terms = (required or {}).get("nodeSelectorTerms") or []
    if not terms:
        return None, None
    names: set[str] = set()
    for term in terms:
        of_term: set[str] | None = None
        for requirement in term.get("matchFields") or []:
            if requirement["key"] == "metadata.name" and requirement["operator"] == "In":
                values = set(requirement.get("values") or [])
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None, None
        names |= of_term
    if not names:
        return refuse(UNRESOLVABLE, "pod affinity terms conflict"), None
    return None, names


def node_affinity_filter(world: World, node: Object, added: Object) -> Status:
    if added.get(_REQUIRED) is not None and not selector_matches(added[_REQUIRED], node):
        return refuse(UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")
    matches = True
    for key, value in (world.pod["spec"].get("nodeSelector") or {}).items():
        if key not in labels_of(node) or labels_of(node)[key] != value:
            matches = False
    required = node_affinity_of(world.pod).get(_REQUIRED)
    if required is not None and not selector_matches(required, node):
        matches = False
    if not matches:
        return refuse(UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
    return None


def node_affinity_score(world: World, node: Object, added: Object) -> int:
    own = node_affinity_of(world.pod).get(_PREFERRED) or []
    return preferred_score(added.get(_PREFERRED) or [], node) + preferred_score(own, node)


_key = any_of("zone", "zone", "disk", "disk", "example.com/x", "none")
_good_expression = one_of(
    fields(
        {
            "key": _key,
            "operator": any_of("In", "In", "NotIn"),
            "values": many(any_of("z1", "z2", "ssd", "7", "6", ""), 1, 3),
        }
    ),
    fields({"key": _key, "operator": any_of("Exists", "DoesNotExist")}),
    fields(
        {
            "key": just("disk"),
            "operator": any_of("Gt", "Lt"),
            "values": many(any_of("5", "6", "7", "007", "0"), 1, 1),
        }
    ),
)
_bad_expression = fields(
    {
        "key": any_of(
            *("zone", "disk", "none") * 3, "bad key", "a/b/c", "/x", "x/", "Ex.com/x", "x" * 64
        ),
        "operator": any_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"),
    },
    values=many(any_of("z1", "7", "-5", "+5", "bad value!", "1_0", "v" * 64, str(2**63)), 0, 2),
)
_names = any_of(*NAMES, *NAMES, "nowhere", "", "")
_good_field = fields(
    {
        "key": just("metadata.name"),
        "operator": any_of("In", "In", "In", "In", "NotIn"),
        "values": many(_names, 1, 1),
    }
)
_bad_field = fields(
    {
        "key": any_of("metadata.name", "metadata.name", "metadata.other"),
        "operator": any_of("In", "NotIn", "Exists"),
    },
    values=many(_names, 0, 2),
)
_good_term = one_of(
    fields({"matchExpressions": many(_good_expression, 1, 2)}),
    fields({"matchFields": many(_good_field, 1, 2)}),
    fields(matchExpressions=some(_good_expression, 2), matchFields=many(_good_field, 0, 2)),
)
_term = one_of(
    _good_term,
    _good_term,
    fields({"matchExpressions": many(_bad_expression, 1, 1)}),
    fields({"matchFields": many(_bad_field, 1, 2)}),
    fields(
        matchExpressions=some(one_of(_good_expression, _bad_expression), 2),
        matchFields=many(one_of(_good_field, _bad_field), 0, 2),
    ),
)


def preferred(term: Any) -> Any:
    return some(fields({"weight": any_of(1, 2, 7, 50, 100), "preference": term}), 4)


def selectors(term: Any) -> Any:
    return fields(nodeSelectorTerms=some(term, 3))


_by_name = fields({"matchFields": many(_good_field, 1, 3)})
_selectors = one_of(selectors(_term), fields({"nodeSelectorTerms": many(_by_name, 1, 2)}))


_labels = fields(
    zone=any_of("z1", "z2"),
    disk=any_of("ssd", "7", "6", "7", "6", "007", "10", "", str(2**63)),
    **{"example.com/x": any_of("z1", "7")},
)
added_affinities = one_of(
    just({}),
    fields(**{_PREFERRED: preferred(_good_term)}),
    fields(**{_REQUIRED: selectors(_good_term), _PREFERRED: preferred(_good_term)}),
)
_own_affinity = fields(**{_REQUIRED: _selectors, _PREFERRED: preferred(_good_term)})
affinity_clusters = clusters(
    fields({"metadata": fields({"labels": _labels})}),
    one_of(
        a_pod(affinity=fields({"nodeAffinity": _own_affinity})),
        a_pod(
            affinity=fields({"nodeAffinity": fields(**{_PREFERRED: preferred(_good_term)})}),
            nodeSelector=any_of({"zone": "z1"}, {"zone": "z2", "disk": "7"}, {"bad key": "x!"}, {}),
        ),
        a_pod(
            affinity=fields({"nodeAffinity": _own_affinity}),
            nodeSelector=any_of({"zone": "z1"}, {"disk": "6"}),
        ),
    ),
)


@sample
@given(drawn(both(affinity_clusters, added_affinities)))
def test_node_affinity(case: tuple[Cluster, Object]) -> None:
    cluster, added = case
    model = Model(
        "NodeAffinity",
        partial(node_affinity_filter, added=added),
        partial(node_affinity_score, added=added),
        partial(default_normalize_score, reverse=False),
        node_affinity_pre_filter,
    )
    compare(model, cluster, {"addedAffinity": added} if added else None)


@pytest.mark.more
@thorough
@given(drawn(both(affinity_clusters, added_affinities)))
def test_node_affinity_more(case: tuple[Cluster, Object]) -> None:
    law(test_node_affinity)(case)


# NodePorts


HostPort = tuple[str, str, int]


def get_host_ports(pod: Object) -> list[HostPort]:
    """IP, protocol and port of what stays for as long as the pod does."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    found = []
    for container in [*sidecars, *spec["containers"]]:
        for port in container.get("ports") or []:
            if port.get("hostPort", 0) > 0:
                ip, protocol = port.get("hostIP", ""), port.get("protocol", "")
                found.append((ip or "0.0.0.0", protocol or "TCP", port["hostPort"]))
    return found


def check_conflict(used: list[HostPort], wanted: HostPort) -> bool:
    for ip, *rest in used:
        if rest == [*wanted[1:]] and ("0.0.0.0" in (ip, wanted[0]) or ip == wanted[0]):
            return True
    return False


def node_ports_filter(world: World, node: Object) -> Status:
    used = [port for pod in pods_on(world, node) for port in get_host_ports(pod)]
    if any(check_conflict(used, wanted) for wanted in get_host_ports(world.pod)):
        return refuse(UNSCHEDULABLE, "node(s) didn't have free ports for the requested pod ports")
    return None


def pods_on(world: World | Cluster, node: Object) -> list[Object]:
    return [pod for pod in world.placed if pod["spec"]["nodeName"] == name_of(node)]


_port = fields(
    {"containerPort": just(80)},
    hostPort=any_of(80, 80, 80, 443, 0),
    hostIP=any_of("10.0.0.1", "10.0.0.2", "", "0.0.0.0", "::"),
    protocol=any_of("TCP", "UDP", ""),
)
_policy = any_of("Always", "Always", "OnFailure")
_port_container = fields({"name": just("c")}, ports=some(_port, 2))
_port_init = fields({"name": just("i")}, ports=some(_port, 2), restartPolicy=_policy)
_port_spec = fields({"containers": some(_port_container, 2)}, initContainers=some(_port_init, 2))
port_clusters = clusters(just({}), fields({"spec": _port_spec}), placed_max=5)


@sample
@given(drawn(port_clusters))
def test_node_ports(cluster: Cluster) -> None:
    compare(Model("NodePorts", node_ports_filter), cluster)


@pytest.mark.more
@thorough
@given(drawn(port_clusters))
def test_node_ports_more(cluster: Cluster) -> None:
    law(test_node_ports)(cluster)


# What pods ask for: component-helpers resource/helpers.go, framework/types.go


Quantities = dict[str, Fraction]
_UNITS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip
NON_ZERO: Quantities = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 2**20)}


def quantities(resources: Object | None) -> Quantities:
    found = {}
    for name, value in (resources or {}).items():
        parts = re.fullmatch(r"([0-9.]+)(e[0-9]+)?([A-Za-z]*)", str(value))
        assert parts is not None
        number, exponent, unit = parts.groups(default="")
        found[name] = Fraction(number + exponent) * _UNITS[unit]
    return found


def add_resource_list(total: Quantities, more: Quantities) -> None:
    for name, quantity in more.items():
        total[name] = total.get(name, Fraction(0)) + quantity


def max_resource_list(total: Quantities, other: Quantities) -> None:
    for name, quantity in other.items():
        if name not in total or quantity > total[name]:
            total[name] = quantity


def is_pod_resize_infeasible(pod: Object) -> bool:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def determine_effective_requests(
    pod: Object, spec: Object | None, actuated: Object | None, allocated: Object | None
) -> Quantities:
    lists = [actuated, allocated] if is_pod_resize_infeasible(pod) else [spec, actuated, allocated]
    result: Quantities = {}
    for one in lists:
        max_resource_list(result, quantities(one))
    return result


def aggregate_container_requests(pod: Object, status: bool, non_missing: Quantities) -> Quantities:
    spec, given = pod["spec"], pod.get("status", {})
    statuses: dict[str, Object] = {}
    if status:
        for kind in ("containerStatuses", "initContainerStatuses"):
            for one in given.get(kind) or []:
                statuses[one["name"]] = one

    def container_requests(container: Object, resizable: bool) -> Quantities:
        own = (container.get("resources") or {}).get("requests")
        found = quantities(own)
        one = statuses.get(container["name"]) if resizable else None
        if one is not None and one.get("resources") is not None:
            actuated, allocated = one["resources"].get("requests"), one.get("allocatedResources")
            found = determine_effective_requests(pod, own, actuated, allocated)
        for name, quantity in non_missing.items():
            if name not in found:
                found[name] = quantity
        return found

    requests: Quantities = {}
    for container in spec["containers"]:
        add_resource_list(requests, container_requests(container, True))
    restartable: Quantities = {}
    init_requests: Quantities = {}
    for container in spec.get("initContainers") or []:
        is_sidecar = container.get("restartPolicy") == "Always"
        own = container_requests(container, is_sidecar)
        if is_sidecar:
            add_resource_list(requests, own)
            add_resource_list(restartable, own)
            max_resource_list(init_requests, restartable)
        else:
            add_resource_list(own, restartable)
            max_resource_list(init_requests, own)
    max_resource_list(requests, init_requests)
    return requests


def is_supported_pod_level_resource(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def is_pod_level_requests_set(pod: Object) -> bool:
    own = pod["spec"].get("resources") or {}
    return any(is_supported_pod_level_resource(name) for name in own.get("requests") or {})


def pod_requests(
    pod: Object,
    status: bool = False,
    pod_level: bool = True,
    non_missing: Quantities | None = None,
) -> Quantities:
    """PodRequests with UseStatusResources, without SkipPodLevelResources and with
    NonMissingContainerRequests; InPlacePodLevelResourcesVerticalScaling is on by default."""
    requests = aggregate_container_requests(pod, status, non_missing or {})
    if pod_level and is_pod_level_requests_set(pod):
        own, given = pod["spec"]["resources"]["requests"], pod.get("status", {})
        effective = None
        if status and given.get("resources") is not None:
            actuated, allocated = (
                given["resources"].get("requests"),
                given.get("allocatedResources"),
            )
            effective = determine_effective_requests(pod, own, actuated, allocated)
        for name, quantity in quantities(own).items():
            if is_supported_pod_level_resource(name):
                requests[name] = quantity
                if effective is not None:
                    requests[name] = effective.get(name, Fraction(0))
    add_resource_list(requests, quantities(pod["spec"].get("overhead")))
    return requests


def is_native_resource(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended_resource_name(name: str) -> bool:
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return is_label_key(f"requests.{name}")


def is_scalar_resource_name(name: str) -> bool:
    return (
        is_extended_resource_name(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


@dataclass
class Resource:
    """framework.Resource: whole numbers, rounded up, CPU in thousandths."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0
    pods: int = 0
    scalars: dict[str, int] = field(default_factory=dict)

    def add(self, more: Quantities) -> "Resource":
        for name, quantity in more.items():
            if name == "cpu":
                self.cpu += math.ceil(quantity * 1000)
            elif name == "memory":
                self.memory += math.ceil(quantity)
            elif name == "ephemeral-storage":
                self.storage += math.ceil(quantity)
            elif name == "pods":
                self.pods += math.ceil(quantity)
            elif is_scalar_resource_name(name):
                self.scalars[name] = self.scalars.get(name, 0) + math.ceil(quantity)
        return self


def non_missing_container_requests(pod: Object, requests: Quantities) -> Quantities:
    if not is_pod_level_requests_set(pod):
        return NON_ZERO
    return {name: quantity for name, quantity in NON_ZERO.items() if name not in requests}


class NodeInfo:
    """What the node has, and what the pods on it take: as asked, and as it counts for scores."""

    def __init__(self, world: World | Cluster, node: Object) -> None:
        self.pods = pods_on(world, node)
        self.allocatable = Resource().add(quantities(node["status"].get("allocatable")))
        self.requested = Resource()
        self.non_zero = Resource()
        for pod in self.pods:
            requests = pod_requests(pod, status=True)
            self.requested.add(requests)
            stand_in = non_missing_container_requests(pod, requests)
            if stand_in:
                requests = pod_requests(pod, status=True, non_missing=stand_in)
            self.non_zero.add({k: v for k, v in requests.items() if k in ("cpu", "memory")})


def by_name(resource: Resource) -> dict[str, int]:
    """What is not 0."""
    own = {
        "cpu": resource.cpu,
        "memory": resource.memory,
        "ephemeral-storage": resource.storage,
        **resource.scalars,
    }
    return {name: amount for name, amount in own.items() if amount}


_CPU = ("0", "100m", "250m", "0.5", "1500u", "1", 1, 0.3, "700m")
_MEMORY = ("0", "100m", "64Mi", "200Mi", "1Gi", "1e9", "129M", "1500.5Ki", 2**31, "700Mi")
_AMOUNTS: dict[str, tuple[Any, ...]] = {
    "ephemeral-storage": ("0", "1Gi", "1500M"),
    "example.com/gpu": ("0", "1", "2"),
    "example.com/fpga": ("1", "3"),
    "other.org/gpu": ("1", "2"),
    "hugepages-2Mi": ("0", "2Mi", "4Mi"),
    "attachable-volumes-csi-x": ("1", "2"),
    "node.kubernetes.io/slot": ("1", "2"),
    # Not counted: the prefix is that of quotas.
    "requests.example.com/gpu": ("1", "9"),
}
_others = one_of(
    *(fields({name: any_of(*amounts)}) for name, amounts in _AMOUNTS.items()),
    fields(**{name: any_of(*amounts) for name, amounts in _AMOUNTS.items()}),
)
_usual = fields(cpu=any_of(*_CPU), memory=any_of(*_MEMORY))


def _requests(dice: Dice) -> Object:
    return {**_usual(dice), **_others(dice)}


_few_requests = one_of(_usual, _usual, _requests)
_resources = fields(requests=_few_requests, limits=_usual)
_status = fields(
    {"name": any_of("c0", "c1", "i0", "i1")}, resources=_resources, allocatedResources=_few_requests
)
_pending = fields(
    {"type": any_of("PodResizePending", "PodResizePending", "PodScheduled")},
    status=any_of("True", "False"),
    reason=any_of("Infeasible", "Infeasible", "Deferred", ""),
)


def asking_pods(dice: Dice) -> Object:
    """Containers, sidecars, init containers, overhead, the pod's own requests, and resizes."""
    spec: Object = {}
    for letter, kind in (("c", "containers"), ("i", "initContainers")):
        spec[kind] = [{"name": f"{letter}{i}"} for i in range(dice.randint(1, 3))]
        for container in spec[kind]:
            if dice.random() < 0.8:
                container["resources"] = _resources(dice)
            if letter == "i" and dice.random() < 0.7:
                container["restartPolicy"] = _policy(dice)
    if dice.random() < 0.4:
        del spec["initContainers"]
    if dice.random() < 0.3:
        spec["overhead"] = _few_requests(dice)
    if dice.random() < 0.4:
        spec["resources"] = fields(requests=_requests, limits=_usual)(dice)
    status: Object = {}
    if dice.random() < 0.5:
        status["containerStatuses"] = some(_status, 3)(dice)
        status["initContainerStatuses"] = some(_status, 3)(dice)
    if dice.random() < 0.5:
        status["resources"] = _resources(dice)
        status["allocatedResources"] = _few_requests(dice)
    if dice.random() < 0.5:
        status["conditions"] = some(_pending, 2)(dice)
    return {"spec": spec, "status": status}


_room = fields(
    {"pods": any_of("110", "110", "110", "3", "1", "0")},
    cpu=any_of("1", "2", "3500m", "8", "64", "0"),
    memory=any_of("1Gi", "3Gi", "4Gi", "9999999999", "8Ti", "0"),
    **{name: any_of("0", "1", "4", "8", "3Gi", "20Gi") for name in _AMOUNTS},
)
asking_clusters = clusters(
    fields({"status": fields({"allocatable": _room})}), asking_pods, placed_max=4
)


@sample
@given(drawn(asking_clusters))
def test_pods_take_what_they_ask_for(cluster: Cluster) -> None:
    """What a node's pods hold and count as, and what a pod must find free."""
    state = state_of(cluster.nodes, cluster.placed)
    for node in cluster.nodes:
        info, row = NodeInfo(cluster, node), state.row_of(name_of(node))
        held = {
            name: c.requested_cells[row]
            for name, c in state.columns.items()
            if c.requested_cells[row]
        }
        assert held.pop("pods", 0) == len(info.pods)
        assert held == by_name(info.requested)
        assert state.non_zero_cpu.requested_cells[row] == info.non_zero.cpu
        assert state.non_zero_memory.requested_cells[row] == info.non_zero.memory
    for pod in cluster.pods:
        asked = {c.name: n for c, n in state.shapes.intern(view(pod, Pod)).requests}
        assert asked == by_name(Resource().add(pod_requests(pod)))


@pytest.mark.more
@thorough
@given(drawn(asking_clusters))
def test_pods_take_what_they_ask_for_more(cluster: Cluster) -> None:
    law(test_pods_take_what_they_ask_for)(cluster)


# NodeResourcesFit


def fit_filter(world: World, node: Object, args: Object) -> Status:
    asked, info = Resource().add(pod_requests(world.pod)), NodeInfo(world, node)
    has, used = info.allocatable, info.requested
    insufficient: list[tuple[str, bool]] = []  # reason, unresolvable
    if len(info.pods) + 1 > has.pods:
        insufficient.append(("Too many pods", False))
    for reason, want, room, taken in (
        ("Insufficient cpu", asked.cpu, has.cpu, used.cpu),
        ("Insufficient memory", asked.memory, has.memory, used.memory),
        ("Insufficient ephemeral-storage", asked.storage, has.storage, used.storage),
    ):
        if want > 0 and want > room - taken:
            insufficient.append((reason, want > room))
    for name, want in asked.scalars.items():
        if want == 0:
            continue
        if is_extended_resource_name(name):
            if name in (args.get("ignoredResources") or []):
                continue
            if name.split("/")[0] in (args.get("ignoredResourceGroups") or []):
                continue
        room = has.scalars.get(name, 0)
        if want > room - used.scalars.get(name, 0):
            insufficient.append((f"Insufficient {name}", want > room))
    if not insufficient:
        return None
    code = UNRESOLVABLE if any(hopeless for _, hopeless in insufficient) else UNSCHEDULABLE
    return refuse(code, *(reason for reason, _ in insufficient))


Weighted = list[tuple[str, int]]
Amounts = list[int]


def pod_request_list(pod: Object, resources: Weighted, fit: bool) -> Amounts:
    """calculatePodResourceRequestList. NewFit gives its scorer neither the pod-level nor the resize
    features."""
    if fit:
        requests = pod_requests(pod, pod_level=False, non_missing=NON_ZERO)
    else:
        requests = pod_requests(pod, status=True)
    return [
        math.ceil(requests.get(name, Fraction(0)) * (1000 if name == "cpu" else 1))
        for name, _ in resources
    ]


def allocation(
    info: NodeInfo, resources: Weighted, asked: Amounts, fit: bool
) -> tuple[Amounts, Amounts, Amounts]:
    """calculateNodeAllocatableRequest: requested, allocated, allocatable, 0 where left out."""
    requested, allocated, allocatable = ([0] * len(resources) for _ in range(3))
    for i, (name, _) in enumerate(resources):
        if asked[i] == 0 and is_scalar_resource_name(name):
            continue
        has, used = info.allocatable, info.non_zero if fit else info.requested
        if name == "cpu":
            room, taken = has.cpu, used.cpu
        elif name == "memory":
            room, taken = has.memory, used.memory
        elif name == "ephemeral-storage":
            room, taken = has.storage, info.requested.storage
        elif name in has.scalars:
            room, taken = has.scalars[name], info.requested.scalars.get(name, 0)
        else:
            room, taken = 0, 0
        if room != 0:
            requested[i], allocated[i], allocatable[i] = taken + asked[i], taken, room
    return requested, allocated, allocatable


def weighted_mean(resources: Weighted, allocatable: Amounts, shares: Callable[[int], int]) -> int:
    total = weights = 0
    for i, (_, weight) in enumerate(resources):
        if allocatable[i] != 0:
            total += shares(i) * weight
            weights += weight
    return total // weights if weights else 0


def least_requested_score(requested: int, capacity: int) -> int:
    return 0 if requested > capacity else (capacity - requested) * 100 // capacity


def most_requested_score(requested: int, capacity: int) -> int:
    return min(requested, capacity) * 100 // capacity


def go_quotient(number: int, divisor: int) -> int:
    """Go's division of integers, towards zero; the divisor is above 0."""
    return number // divisor if number >= 0 else -(-number // divisor)


def broken_linear(shape: list[Object], p: int) -> int:
    """BuildBrokenLinearFunction."""
    points = [(point["utilization"], point["score"] * 10) for point in shape]
    for i, (utilization, score) in enumerate(points):
        if p <= utilization:
            if i == 0:
                return score
            before, low = points[i - 1]
            return low + go_quotient((score - low) * (p - before), utilization - before)
    return points[-1][1]


def requested_to_capacity_score(
    resources: Weighted, requested: Amounts, allocatable: Amounts, shape: list[Object]
) -> int:
    total = weights = 0
    for i, (_, weight) in enumerate(resources):
        if allocatable[i] == 0:
            continue
        percent = 100
        if requested[i] <= allocatable[i]:
            percent = requested[i] * 100 // allocatable[i]
        score = broken_linear(shape, percent)
        if score > 0:
            total += score * weight
            weights += weight
    return math.floor(total / weights + 0.5) if weights else 0


def fit_score(world: World, node: Object, args: Object) -> int:
    strategy = args["scoringStrategy"]
    default = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    specs = strategy.get("resources") or default
    resources = [(spec["name"], spec.get("weight") or 1) for spec in specs]
    asked = pod_request_list(world.pod, resources, fit=True)
    requested, _, allocatable = allocation(NodeInfo(world, node), resources, asked, fit=True)
    if strategy["type"] == "RequestedToCapacityRatio":
        shape = strategy["requestedToCapacityRatio"]["shape"]
        return requested_to_capacity_score(resources, requested, allocatable, shape)
    least = strategy["type"] == "LeastAllocated"
    score = least_requested_score if least else most_requested_score
    return weighted_mean(resources, allocatable, lambda i: score(requested[i], allocatable[i]))


SCORED = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "other.org/gpu",
          "hugepages-2Mi", "node.kubernetes.io/slot", "storage", "none.com/none")  # fmt: skip


def fit_args(names: tuple[str, ...] = SCORED) -> Made:
    resource = fields({"name": any_of("cpu", "memory", *names)}, weight=any_of(0, 1, 3, 7, 100))
    ignored = any_of("example.com/gpu", "other.org/gpu", "hugepages-2Mi", "cpu")
    groups = any_of("example.com", "other.org", "node.kubernetes.io")

    def make(dice: Dice) -> Object:
        kind = dice.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
        strategy: Object = {"type": kind, "resources": some(resource, 4)(dice)}
        if kind == "RequestedToCapacityRatio":
            uses = sorted({dice.choice((0, 100, dice.randint(0, 100))) for _ in range(4)})
            shape = [
                {"utilization": use, "score": dice.choice((0, dice.randint(0, 10)))} for use in uses
            ]
            strategy["requestedToCapacityRatio"] = {"shape": shape}
        args: Object = {"scoringStrategy": strategy}
        if dice.random() < 0.3:
            args["ignoredResources"] = many(ignored, 0, 2)(dice)
        if dice.random() < 0.3:
            args["ignoredResourceGroups"] = many(groups, 0, 2)(dice)
        return args

    return make


@sample
@given(drawn(both(asking_clusters, fit_args())))
def test_node_resources_fit(case: tuple[Cluster, Object]) -> None:
    cluster, args = case
    model = Model("NodeResourcesFit", partial(fit_filter, args=args), partial(fit_score, args=args))
    compare(model, cluster, args)


@pytest.mark.more
@thorough
@given(drawn(both(asking_clusters, fit_args())))
def test_node_resources_fit_more(case: tuple[Cluster, Object]) -> None:
    law(test_node_resources_fit)(case)


def test_equal_sums_do_not_make_equal_pods() -> None:
    """What is asked for as a whole counts when nodes are filtered, not when they are scored."""
    wants = {"requests": {"cpu": "1", "memory": "1Gi"}}
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": 8, "memory": "8Gi"}}}
    pods = [
        {"spec": {"containers": [{"name": "c", "resources": wants}]}},
        {"spec": {"containers": [{"name": "c"}], "resources": wants}},
    ]
    cluster = Cluster([node], [], [known_pod(pod, "candidate") for pod in pods])
    law(test_node_resources_fit)((cluster, {"scoringStrategy": {"type": "LeastAllocated"}}))


@sample
@given(drawn(both(asking_clusters, fit_args(("pods",)))))
def test_slots_do_not_count_towards_fit(case: tuple[Cluster, Object]) -> None:
    """A strategy may name `pods`, but upstream's scorer finds no such resource on any node."""
    law(test_node_resources_fit)(case)


@pytest.mark.more
@thorough
@given(drawn(both(asking_clusters, fit_args(("pods",)))))
def test_slots_do_not_count_towards_fit_more(case: tuple[Cluster, Object]) -> None:
    law(test_node_resources_fit)(case)


# NodeResourcesBalancedAllocation


def balanced_resource_score(requested: Amounts, allocatable: Amounts) -> int:
    fractions: list[float] = []
    total = 0.0
    for i in range(len(requested)):
        if allocatable[i] == 0:
            continue
        fraction = float(requested[i]) / float(allocatable[i])
        if fraction > 1:
            fraction = 1.0
        total += fraction
        fractions.append(fraction)
    std = 0.0
    if len(fractions) == 2:
        std = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = total / float(len(fractions))
        squares = 0.0
        for fraction in fractions:
            squares = squares + (fraction - mean) * (fraction - mean)
        std = math.sqrt(squares / float(len(fractions)))
    return int((1 - std) * 100.0)


def balanced_score(world: World, node: Object, names: list[str]) -> int:
    resources = [(name, 1) for name in names or ["cpu", "memory"]]
    asked = pod_request_list(world.pod, resources, fit=False)
    if not any(asked):
        return 0  # PreScore skips the plugin
    info = NodeInfo(world, node)
    requested, allocated, allocatable = allocation(info, resources, asked, fit=False)
    gain = balanced_resource_score(requested, allocatable)
    gain -= balanced_resource_score(allocated, allocatable)
    return 50 + go_quotient(50 + gain, 2)


def balanced_names(names: tuple[str, ...] = SCORED) -> Made:
    return lambda dice: dice.sample(names, dice.choice((0, 2, 3, len(names))))


@sample
@given(drawn(both(asking_clusters, balanced_names())))
def test_balanced_allocation(case: tuple[Cluster, list[str]]) -> None:
    cluster, names = case
    args = {"resources": [{"name": name, "weight": 1} for name in names]}
    model = Model("NodeResourcesBalancedAllocation", scored=partial(balanced_score, names=names))
    compare(model, cluster, args)


@pytest.mark.more
@thorough
@given(drawn(both(asking_clusters, balanced_names())))
def test_balanced_allocation_more(case: tuple[Cluster, list[str]]) -> None:
    law(test_balanced_allocation)(case)


@sample
@given(drawn(both(asking_clusters, balanced_names(("cpu", "memory", "pods")))))
def test_slots_do_not_count_towards_balance(case: tuple[Cluster, list[str]]) -> None:
    law(test_balanced_allocation)(case)


@pytest.mark.more
@thorough
@given(drawn(both(asking_clusters, balanced_names(("cpu", "memory", "pods")))))
def test_slots_do_not_count_towards_balance_more(case: tuple[Cluster, list[str]]) -> None:
    law(test_balanced_allocation)(case)


def test_balance_is_of_rounded_amounts() -> None:
    """Beyond 2^53 upstream rounds both amounts before it divides them: 57 here, and not 58."""
    fifth = 3_602_879_701_896_399
    room = {"cpu": 1, "memory": str(5 * fifth)}
    requests = {"cpu": "880m", "memory": str(fifth)}
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    node = {"metadata": {"name": "a"}, "status": {"allocatable": room}}
    law(test_balanced_allocation)((Cluster([node], [], [known_pod(pod, "candidate")]), []))


# ImageLocality


def normalized_image_name(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_states(nodes: list[Object]) -> dict[str, tuple[int, set[str]]]:
    """addNodeImageStates, node after node: of all who have an image the first says its size."""
    states: dict[str, tuple[int, set[str]]] = {}
    for node in nodes:
        for image in node["status"].get("images") or []:
            for name in image.get("names") or []:
                _, holders = states.setdefault(name, (image.get("sizeBytes", 0), set()))
                holders.add(name_of(node))
    return states


def image_score(world: World, node: Object) -> int:
    spec, states = world.pod["spec"], image_states(world.nodes)
    containers = [*(spec.get("initContainers") or []), *spec["containers"]]
    wanted = [container.get("image", "") for container in containers]
    for volume in spec.get("volumes") or []:
        if volume.get("image") is not None:
            wanted.append(volume["image"].get("reference", ""))
    total = 0
    for name in wanted:
        size, holders = states.get(normalized_image_name(name), (0, set()))
        if name_of(node) in holders:
            total += int(float(size) * (float(len(holders)) / float(len(world.nodes))))
    lowest, highest = 23 * 2**20, 1000 * 2**20 * len(containers)
    return 100 * (min(max(total, lowest), highest) - lowest) // (highest - lowest)


_SIZES = (0, 23 * 2**20, 24 * 2**20, 300_000_001, 600_000_007, 987_654_321, 1000 * 2**20, 5 * 10**9)
_IMAGES = ("app", "app:v1", "reg:5000/app", "reg:5000/app:v1", "app@sha256:0a", "")
_stored = any_of("app:latest", "reg:5000/app:latest", *_IMAGES[:-1])
_image_container = fields({"name": just("c")}, image=any_of(*_IMAGES))
_image_volume = fields({"name": just("v")}, image=fields(reference=any_of(*_IMAGES)))
_image_spec = fields(
    {"containers": many(_image_container, 1, 3)},
    initContainers=some(_image_container, 2),
    volumes=some(_image_volume, 2),
)
_image = fields({"names": some(_stored, 3)}, sizeBytes=any_of(*_SIZES))
image_clusters = clusters(
    fields({"status": fields({"images": some(_image, 5)})}), fields({"spec": _image_spec})
)


@sample
@given(drawn(image_clusters))
def test_image_locality(cluster: Cluster) -> None:
    compare(Model("ImageLocality", scored=image_score), cluster)


@pytest.mark.more
@thorough
@given(drawn(image_clusters))
def test_image_locality_more(cluster: Cluster) -> None:
    law(test_image_locality)(cluster)


# NodeDeclaredFeatures


REGISTERED = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)


def infer_for_pod_scheduling(pod: Object) -> set[str]:
    spec, found = pod["spec"], set()
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        for rule in container.get("restartPolicyRules") or []:
            if rule["action"] == "RestartAllContainers":
                found.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        found.add("UserNamespacesHostNetworkSupport")
    return found


def declared_features_filter(world: World, node: Object) -> Status:
    declared = set(node["status"].get("declaredFeatures") or []) & set(REGISTERED)
    if infer_for_pod_scheduling(world.pod) <= declared:
        return None
    return refuse(UNRESOLVABLE, "node(s) didn't match Pod's required features")


_rules = some(fields({"action": any_of("Restart", "RestartAllContainers")}), 2)
_ruled = fields({"name": just("c")}, restartPolicy=_policy, restartPolicyRules=_rules)
_feature_spec = fields(
    {"containers": many(_ruled, 1, 2)},
    initContainers=some(_ruled, 2),
    hostNetwork=any_of(True, True, False),
    hostUsers=any_of(False, False, True),
)
# The API keeps the list sorted and without repeats.
_declared = some(any_of(*REGISTERED[2:], *REGISTERED[3:], "AnotherFeature", "Zoo"), 5)
feature_clusters = clusters(
    fields({"status": fields(declaredFeatures=lambda dice: sorted(set(_declared(dice))))}),
    fields({"spec": _feature_spec}),
)


@sample
@given(drawn(feature_clusters))
def test_node_declared_features(cluster: Cluster) -> None:
    compare(Model("NodeDeclaredFeatures", declared_features_filter), cluster)


@pytest.mark.more
@thorough
@given(drawn(feature_clusters))
def test_node_declared_features_more(cluster: Cluster) -> None:
    law(test_node_declared_features)(cluster)


# SchedulingGates, PrioritySort


def pre_enqueue(pod: Object) -> Status:
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]
    if not gates:
        return None
    return refuse(UNRESOLVABLE, f"waiting for scheduling gates: [{' '.join(gates)}]")


gated_pods = a_pod(
    schedulingGates=lambda dice: [
        {"name": name} for name in dice.sample(("example.com/a", "b", "c.d/e"), dice.randint(0, 3))
    ]
)


@sample
@given(drawn(gated_pods))
def test_scheduling_gates(pod: Object) -> None:
    (plugin,) = profile("SchedulingGates").pre_enqueue
    assert status_of(plugin.pre_enqueue(view(known_pod(pod, "p"), Pod))) == pre_enqueue(pod)


@pytest.mark.more
@thorough
@given(drawn(gated_pods))
def test_scheduling_gates_more(pod: Object) -> None:
    law(test_scheduling_gates)(pod)


def less(one: Object, time: int, other: Object, other_time: int) -> bool:
    priority, than = (pod["spec"].get("priority", 0) for pod in (one, other))
    return bool(priority > than or (priority == than and time < other_time))


queued = both(
    a_pod(priority=any_of(0, 1, -1, -(2**31), 2_000_001_000, 2**31 - 1)),
    any_of(0, 1, 10**18, 10**18 + 1),
)


@sample
@given(drawn(both(queued, queued)))
def test_priority_sort(case: tuple[tuple[Object, int], tuple[Object, int]]) -> None:
    one, other = case
    plugin = profile("PrioritySort").queue_sort
    keys = [plugin.sort_key(view(known_pod(p, "p"), Pod), time) for p, time in (one, other)]
    assert (keys[0] < keys[1]) == less(*one, *other)
    assert (keys[1] < keys[0]) == less(*other, *one)


@pytest.mark.more
@thorough
@given(drawn(both(queued, queued)))
def test_priority_sort_more(case: tuple[tuple[Object, int], tuple[Object, int]]) -> None:
    law(test_priority_sort)(case)
