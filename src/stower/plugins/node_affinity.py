"""NodeAffinity: filters and scores nodes by node selectors, node affinity and addedAffinity.

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
    """Returns bool[row_limit]: nodes that the pod's own selector and terms match; None: all."""
    codes = NodeAffinity().filter(shape, state, state.all_rows)
    return None if codes is None else codes == 0


class NodeAffinityArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    added_affinity: NodeAffinitySpec | None = None


class NodeAffinity(Plugin):
    """Rejects nodes that required terms of pod or profile do not match; scores preferred terms."""

    name = "NodeAffinity"
    normalize = Normalize.BY_MAXIMUM
    reasons = (
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) didn't match scheduler-enforced node affinity",
    )
    events_to_register = Change.NODE_ADDED | Change.NODE_LABELS

    def __init__(self, added_affinity: NodeAffinitySpec | None = None) -> None:
        """`added_affinity`: the profile's addedAffinity, which applies to every pod."""
        self.added_required = added_affinity.required if added_affinity is not None else None
        self.added_preferred = (
            added_affinity.preferred if added_affinity is not None else None
        ) or ()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NodeAffinity":
        """Reads NodeAffinityArgs: addedAffinity."""
        parsed = convert_args(args, NodeAffinityArgs, path)
        added_affinity = parsed.added_affinity
        if added_affinity is not None:
            raise_faults(_term_faults(added_affinity, f"{path}.addedAffinity"))
        return cls(added_affinity)

    def pre_filter(self, shape: Shape, state: ClusterState) -> Rejection | frozenset[str] | None:
        """Returns the nodes that the terms name by metadata.name, if every term does."""
        required = _required_selector(shape)
        terms = (required.node_selector_terms if required is not None else None) or ()
        names: frozenset[str] = frozenset()
        for term in terms:
            term_names = _node_names(term)
            if term_names is None:
                return None
            names |= term_names
        if not terms:
            return None
        return names or Rejection(("pod affinity terms conflict",))

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects nodes: 2 if the profile's terms do not match, else 1 if the pod's do not."""
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
        """Suggests fewer requirements of the pod, or labels for the node."""
        node = state.node_at(row)
        if not _pod_matches(shape, node):
            yield _relaxed_pod_fix(pod, node)
        if self.added_required is not None and not _matches(self.added_required, node):
            yield from _node_label_fix(self.added_required, node)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Scores the sum of weights of matching preferred terms, of the pod and of the profile."""
        preferred = shape.node_affinity.preferred if shape.node_affinity is not None else None
        terms = [
            t
            for t in (*(preferred or ()), *self.added_preferred)
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
        """Requeues the pod for a node that matches now, and is new or did not match before."""
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
        # kube-scheduler compares the pod's terms only, and misses a node that now meets the
        # profile's.
        return self.added_required is not None and not _matches(self.added_required, old)


def _term_faults(added_affinity: NodeAffinitySpec, path: str) -> Iterator[FieldFault]:
    """Yields requirements that could never be evaluated (nodeaffinity.NewNodeSelector)."""
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
    for term_path, term in terms:
        for i, requirement in enumerate(term.match_expressions or ()):
            yield from _label_faults(requirement, f"{term_path}.matchExpressions[{i}]")
        for i, requirement in enumerate(term.match_fields or ()):
            yield from _field_faults(requirement, f"{term_path}.matchFields[{i}]")


def _label_faults(requirement: Requirement, path: str) -> Iterator[FieldFault]:
    """Yields what is invalid in a label requirement. Source: labels.NewRequirement."""
    key, values, values_path = requirement.key, list(requirement.values or ()), f"{path}.values"
    if requirement.operator not in LABEL_OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, LABEL_OPERATORS)
        return
    if faults := qualified_name_faults(key):
        yield invalid(f"{path}.key", key, "; ".join(faults))
    match requirement.operator:
        case "In" | "NotIn" if not values:
            text = "for 'in', 'notin' operators, values set can't be empty"
            yield invalid(values_path, values, text)
        case "Exists" | "DoesNotExist" if values:
            yield invalid(
                values_path, values, "values set must be empty for exists and does not exist"
            )
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "for 'Gt', 'Lt' operators, exactly one value is required"
                yield invalid(values_path, values, text)
            for i, value in enumerate(values):
                if parse_int64(value) is None:
                    text = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield invalid(f"{values_path}[{i}]", value, text)
    for i, value in enumerate(values):
        if value_faults := label_value_faults(value):
            yield invalid(f"{values_path}[{i}][{key}]", value, "; ".join(value_faults))


def _field_faults(requirement: Requirement, path: str) -> Iterator[FieldFault]:
    values = list(requirement.values or ())
    if requirement.operator not in (IN, NOT_IN):
        yield unsupported(f"{path}.operator", requirement.operator, (IN, NOT_IN))
    elif len(values) != 1:
        yield invalid(f"{path}.values", values, "must have one element")


def match_selector(selector: NodeSelector, state: ClusterState, rows: Rows, count: int) -> Bools:
    """Returns bool[count]: which rows match one of the terms."""
    result = np.zeros(count, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty:
            result |= match_term(term, state, rows, count)
    return result


def match_term(term: NodeSelectorTerm, state: ClusterState, rows: Rows, count: int) -> Bools:
    """Returns bool[count]: which rows meet all requirements; none if one cannot be parsed."""
    if not term_is_parsable(term):
        return np.zeros(count, np.bool_)
    result = np.ones(count, np.bool_)
    for requirement in term.match_expressions or ():
        result &= state.labels.match(requirement, rows, count)
    for requirement in term.match_fields or ():
        result &= _match_field(requirement, state, rows, count)
    return result


def _match_field(requirement: Requirement, state: ClusterState, rows: Rows, count: int) -> Bools:
    """Returns bool[count]: which rows meet a requirement on a field. A field that nodes do not have
    reads as the empty string."""
    value = (requirement.values or ("",))[0]
    if requirement.key != NODE_NAME_FIELD:
        is_equal = np.full(count, value == "")
    else:
        all_rows = np.zeros(state.capacity, np.bool_)
        row = state.row_of(value)
        if row >= 0:
            all_rows[row] = True
        is_equal = all_rows[rows]
    return is_equal if requirement.operator == IN else ~is_equal


def _required_selector(shape: Shape) -> NodeSelector | None:
    return shape.node_affinity.required if shape.node_affinity is not None else None


def _node_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    """Returns the node names that a term allows; None if it does not select by name."""
    sets = [
        frozenset(r.values or ())
        for r in term.match_fields or ()
        if r.key == NODE_NAME_FIELD and r.operator == IN
    ]
    return frozenset.intersection(*sets) if sets else None


def _matches(selector: NodeSelector, node: Node) -> bool:
    return node_selector_matches(selector, node.metadata.labels or {}, node.metadata.name)


def _relaxed_pod_fix(pod: Pod, node: Node) -> Fix:
    """Returns the pod without the requirements that the node does not meet, of its closest term."""
    labels, unmet = node.metadata.labels or {}, []
    selector = dict(pod.spec.node_selector or {})
    for key, value in [*selector.items()]:
        if labels.get(key) != value:
            unmet.append(f"{key}={value}")
            del selector[key]
    relaxed_pod = with_spec(pod, node_selector=selector or None)
    affinity = pod.spec.affinity
    node_affinity = affinity.node_affinity if affinity is not None else None
    required = node_affinity.required if node_affinity is not None else None
    if affinity is not None and node_affinity is not None and required is not None:
        if not _matches(required, node):
            met_term, unmet_requirements = _closest_term(required, node)
            unmet += map(format_requirement, unmet_requirements)
            required = None if met_term.is_empty else NodeSelector((met_term,))
            node_affinity = msgspec.structs.replace(node_affinity, required=required)
            relaxed_pod = with_spec(
                relaxed_pod, affinity=msgspec.structs.replace(affinity, node_affinity=node_affinity)
            )
            unmet = unmet or ["its terms match no node"]
    text = f"{NODE_FIELD} does not match the pod's node affinity/selector: {', '.join(unmet)}"
    if all(one.startswith(f"{NODE_NAME_FIELD}=") for one in unmet):  # no node is renamed
        text = f"the pod is for a node with {', '.join(unmet)}, {NODE_FIELD} is another"
    return Fix(text, 1.0 + len(unmet), relaxed_pod)


def _closest_term(selector: NodeSelector, node: Node) -> tuple[NodeSelectorTerm, list[Requirement]]:
    """Returns the term with the fewest unmet requirements, less these; and the unmet ones."""
    labels, fields = node.metadata.labels or {}, {NODE_NAME_FIELD: node.metadata.name}
    best: tuple[NodeSelectorTerm, list[Requirement]] = NodeSelectorTerm(), []
    for i, term in enumerate(selector.node_selector_terms or ()):
        expressions, match_fields = term.match_expressions or (), term.match_fields or ()
        met_labels = [r for r in expressions if requirement_fault(r) is None and r.matches(labels)]
        met_fields = [
            r for r in match_fields
            if field_requirement_fault(r) is None and field_matches(r, fields)
        ]  # fmt: skip
        unmet = [
            r for r in (*expressions, *match_fields) if r not in met_labels and r not in met_fields
        ]
        if i == 0 or len(unmet) < len(best[1]):
            best = NodeSelectorTerm(tuple(met_labels) or None, tuple(met_fields) or None), unmet
    return best


def _node_label_fix(selector: NodeSelector, node: Node) -> Iterator[Fix]:
    """Yields the node with the labels that the profile's closest term requires."""
    _, unmet = _closest_term(selector, node)
    labels = dict(node.metadata.labels or {})
    for requirement in unmet:
        _satisfy_requirement(requirement, labels)
    text = (
        f"{NODE_FIELD} does not match the profile's addedAffinity: "
        f"{', '.join(map(format_requirement, unmet))}"
    )
    yield Fix(text, 1.0 + len(unmet), node=with_labels(node, labels))


def _satisfy_requirement(requirement: Requirement, labels: dict[str, str]) -> None:
    """Changes the labels so that they meet the requirement, if labels can."""
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
