"""NodeAffinity: node selectors, required and preferred node affinity, and what the profile adds.

Source: kube-scheduler plugins/nodeaffinity; component-helpers nodeaffinity.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import (
    Args,
    FieldFault,
    convert_args,
    invalid,
    raise_faults,
    unsupported,
)
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.fixes import NODE_FIELD, Fix, format_requirement, with_labels, with_spec
from stower.framework.plugin import Features, Normalize, Plugin
from stower.framework.reasons import Rejection
from stower.model.kinds import Node, Pod
from stower.model.kinds.pod import NodeAffinity as NodeAffinitySpec
from stower.model.names import label_value_faults, qualified_name_faults
from stower.model.selectors import (
    IN,
    NODE_NAME_FIELD,
    NOT_IN,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    field_matches,
    field_requirement_fault,
    node_selector_matches,
    parse_int64,
    requirement_fault,
    term_is_parsable,
)
from stower.state.arrays import Bools, Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

NOT_MATCHED: Final = 1
ENFORCED_NOT_MATCHED: Final = 2


def required_rows(shape: Shape, state: ClusterState) -> Bools | None:
    """bool[row_limit]: nodes that the pod's own selector and terms admit; None: all of them."""
    codes = NodeAffinity().filter(shape, state, state.all_rows)
    return None if codes is None else codes == 0


class NodeAffinityArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    added_affinity: NodeAffinitySpec | None = None


class NodeAffinity(Plugin):
    """Refuse nodes that neither the pod's terms nor the profile's admit; score preferred terms."""

    name = "NodeAffinity"
    normalize = Normalize.BY_MAXIMUM
    reasons = (
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match scheduler-enforced node affinity",
    )
    events_to_register = Change.NODE_ADDED | Change.NODE_LABELS

    def __init__(self, added_affinity: NodeAffinitySpec | None = None) -> None:
        """`added` is the profile's addedAffinity: it holds for every pod."""
        self.added_required = added_affinity.required if added_affinity is not None else None
        self.added_preferred = (
            added_affinity.preferred if added_affinity is not None else None
        ) or ()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NodeAffinity":
        """NodeAffinityArgs: addedAffinity."""
        read = convert_args(args, NodeAffinityArgs, path)
        added_affinity = read.added_affinity
        if added_affinity is not None:
            raise_faults(_term_faults(added_affinity, f"{path}.addedAffinity"))
        return cls(added_affinity)

    def pre_filter(self, shape: Shape, state: ClusterState) -> Rejection | frozenset[str] | None:
        """The nodes that the terms name by metadata.name, where every term does."""
        required = _required_selector(shape)
        terms = (required.node_selector_terms if required is not None else None) or ()
        names: frozenset[str] = frozenset()
        for term in terms:
            of_term = _node_names(term)
            if of_term is None:
                return None
            names |= of_term
        if not terms:
            return None
        return names or Rejection(("pod affinity terms conflict",))

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """2 where the profile's terms do not match, else 1 where the pod's do not."""
        required = _required_selector(shape)
        if self.added_required is None and required is None and not shape.node_selector:
            return None
        count = len(state.present[rows])
        codes = np.zeros(count, np.int64)
        for key, value in (shape.node_selector or {}).items():
            equal = Requirement(key, IN, (value,))
            codes[~state.labels.match(equal, rows, count)] = NOT_MATCHED
        if required is not None:
            codes[~match_selector(required, state, rows, count)] = NOT_MATCHED
        if self.added_required is not None:
            codes[~match_selector(self.added_required, state, rows, count)] = ENFORCED_NOT_MATCHED
        return codes

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Ask for less, or label the node."""
        node = state.node_at(row)
        if not _pod_matches(shape, node):
            yield _relaxed_pod_fix(pod, node)
        if self.added_required is not None and not _matches(self.added_required, node):
            yield from _node_label_fix(self.added_required, node)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Sum of the weights of the preferred terms that match, the pod's and the profile's."""
        own = shape.node_affinity.preferred if shape.node_affinity is not None else None
        terms = [
            t
            for t in (*(own or ()), *self.added_preferred)
            if t.weight and not t.preference.is_empty
        ]
        if not terms:
            return None
        count = len(state.present[rows])
        scores = np.zeros(count, np.int64)
        for term in terms:
            scores[match_term(term.preference, state, rows, count)] += term.weight
        return scores

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Wake for a node that matches now and, if it was there before, did not."""
        node = event.node
        if node is None:
            return False
        if self.added_required is not None and not _matches(self.added_required, node):
            return False
        if not _pod_matches(shape, node):
            return False
        old = event.old_node
        if old is None or not _pod_matches(shape, old):
            return True
        # Upstream looks at the pod's terms alone, and misses a node that now meets the profile's.
        return self.added_required is not None and not _matches(self.added_required, old)


def _term_faults(added_affinity: NodeAffinitySpec, path: str) -> Iterator[FieldFault]:
    """Conditions that could never be evaluated (nodeaffinity.NewNodeSelector)."""
    required = (
        added_affinity.required.node_selector_terms if added_affinity.required is not None else None
    ) or ()
    terms = [
        (f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]", term)
        for i, term in enumerate(required)
    ]
    terms += [
        (f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]", p.preference)
        for i, p in enumerate(added_affinity.preferred or ())
        if p.weight
    ]
    for at, term in terms:
        for i, requirement in enumerate(term.match_expressions or ()):
            yield from _label_faults(requirement, f"{at}.matchExpressions[{i}]")
        for i, requirement in enumerate(term.match_fields or ()):
            yield from _field_faults(requirement, f"{at}.matchFields[{i}]")


def _label_faults(requirement: Requirement, path: str) -> Iterator[FieldFault]:
    """Source: labels.NewRequirement."""
    key, values, at = requirement.key, list(requirement.values or ()), f"{path}.values"
    if requirement.operator not in LABEL_OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, LABEL_OPERATORS)
        return
    if faults := qualified_name_faults(key):
        yield invalid(f"{path}.key", key, "; ".join(faults))
    match requirement.operator:
        case "In" | "NotIn" if not values:
            text = "for 'in', 'notin' operators, values set can't be empty"
            yield invalid(at, values, text)
        case "Exists" | "DoesNotExist" if values:
            yield invalid(at, values, "values set must be empty for exists and does not exist")
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "for 'Gt', 'Lt' operators, exactly one value is required"
                yield invalid(at, values, text)
            for i, value in enumerate(values):
                if parse_int64(value) is None:
                    text = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield invalid(f"{at}[{i}]", value, text)
    for i, value in enumerate(values):
        if found := label_value_faults(value):
            yield invalid(f"{at}[{i}][{key}]", value, "; ".join(found))


def _field_faults(requirement: Requirement, path: str) -> Iterator[FieldFault]:
    values = list(requirement.values or ())
    if requirement.operator not in (IN, NOT_IN):
        yield unsupported(f"{path}.operator", requirement.operator, (IN, NOT_IN))
    elif len(values) != 1:
        yield invalid(f"{path}.values", values, "must have one element")


def match_selector(selector: NodeSelector, state: ClusterState, rows: Rows, count: int) -> Bools:
    """bool[count]: which rows match one of the terms."""
    result = np.zeros(count, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty:
            result |= match_term(term, state, rows, count)
    return result


def match_term(term: NodeSelectorTerm, state: ClusterState, rows: Rows, count: int) -> Bools:
    """bool[count]: which rows meet all conditions; none where one of them cannot be parsed."""
    if not term_is_parsable(term):
        return np.zeros(count, np.bool_)
    result = np.ones(count, np.bool_)
    for requirement in term.match_expressions or ():
        result &= state.labels.match(requirement, rows, count)
    for requirement in term.match_fields or ():
        result &= _match_field(requirement, state, rows, count)
    return result


def _match_field(requirement: Requirement, state: ClusterState, rows: Rows, count: int) -> Bools:
    """A field that nodes do not have reads as the empty string."""
    value = (requirement.values or ("",))[0]
    if requirement.key != NODE_NAME_FIELD:
        equal = np.full(count, value == "")
    else:
        all_rows = np.zeros(state.capacity, np.bool_)
        row = state.row_of(value)
        if row >= 0:
            all_rows[row] = True
        equal = all_rows[rows]
    return equal if requirement.operator == IN else ~equal


def _required_selector(shape: Shape) -> NodeSelector | None:
    return shape.node_affinity.required if shape.node_affinity is not None else None


def _node_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The node names that a term allows, or None where it does not go by name."""
    sets = [
        frozenset(r.values or ())
        for r in term.match_fields or ()
        if r.key == NODE_NAME_FIELD and r.operator == IN
    ]
    return frozenset.intersection(*sets) if sets else None


def _matches(selector: NodeSelector, node: Node) -> bool:
    return node_selector_matches(selector, node.metadata.labels or {}, node.metadata.name)


def _relaxed_pod_fix(pod: Pod, node: Node) -> Fix:
    """The pod without what it asks of nodes and this one does not have, of the term that comes
    closest."""
    labels, missed = node.metadata.labels or {}, []
    selector = dict(pod.spec.node_selector or {})
    for key, value in [*selector.items()]:
        if labels.get(key) != value:
            missed.append(f"{key}={value}")
            del selector[key]
    mended = with_spec(pod, node_selector=selector or None)
    affinity = pod.spec.affinity
    own = affinity.node_affinity if affinity is not None else None
    required = own.required if own is not None else None
    if affinity is not None and own is not None and required is not None:
        if not _matches(required, node):
            kept, lost = _closest_term(required, node)
            missed += map(format_requirement, lost)
            required = None if kept.is_empty else NodeSelector((kept,))
            own = msgspec.structs.replace(own, required=required)
            mended = with_spec(
                mended, affinity=msgspec.structs.replace(affinity, node_affinity=own)
            )
            missed = missed or ["nodes by terms that match none"]
    text = f"{NODE_FIELD} is not what the pod wants: {', '.join(missed)}"
    return Fix(text, 1.0 + len(missed), mended)


def _closest_term(selector: NodeSelector, node: Node) -> tuple[NodeSelectorTerm, list[Requirement]]:
    """The term of which the node misses least, without that; and what it misses."""
    labels, fields = node.metadata.labels or {}, {NODE_NAME_FIELD: node.metadata.name}
    best: tuple[NodeSelectorTerm, list[Requirement]] = NodeSelectorTerm(), []
    for i, term in enumerate(selector.node_selector_terms or ()):
        of_labels, of_fields = term.match_expressions or (), term.match_fields or ()
        met = [r for r in of_labels if requirement_fault(r) is None and r.matches(labels)]
        named = [
            r for r in of_fields
            if field_requirement_fault(r) is None and field_matches(r, fields)
        ]  # fmt: skip
        missed = [r for r in (*of_labels, *of_fields) if r not in met and r not in named]
        if i == 0 or len(missed) < len(best[1]):
            best = NodeSelectorTerm(tuple(met) or None, tuple(named) or None), missed
    return best


def _node_label_fix(selector: NodeSelector, node: Node) -> Iterator[Fix]:
    """The node with labels that the profile's closest term wants."""
    _, missed = _closest_term(selector, node)
    labels = dict(node.metadata.labels or {})
    for requirement in missed:
        _satisfy_requirement(requirement, labels)
    text = (
        f"{NODE_FIELD} is not what the profile wants: {', '.join(map(format_requirement, missed))}"
    )
    yield Fix(text, 1.0 + len(missed), node=with_labels(node, labels))


def _satisfy_requirement(requirement: Requirement, labels: dict[str, str]) -> None:
    """Change the labels so that they meet it, where labels can."""
    key, values = requirement.key, requirement.values or ("",)
    match requirement.operator:
        case "In":
            labels[key] = values[0]
        case "Exists":
            labels[key] = ""
        case "NotIn" | "DoesNotExist":
            labels.pop(key, None)
        case "Gt" | "Lt":
            step = 1 if requirement.operator == "Gt" else -1
            labels[key] = str((parse_int64(values[0]) or 0) + step)


def _pod_matches(shape: Shape, node: Node) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(k) != v for k, v in (shape.node_selector or {}).items()):
        return False
    required = _required_selector(shape)
    return required is None or _matches(required, node)
