"""Topology spread constraints: plugin arguments, and constraints resolved for one pod.

Source: kube-scheduler plugins/podtopologyspread/common.go; KEP-3243 (matchLabelKeys).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from stower.framework.args import (
    Args,
    FieldFault,
    duplicate,
    forbidden,
    invalid,
    label_name_faults,
    required,
    unsupported,
)
from stower.model.derived import Derived
from stower.model.kinds import Pod
from stower.model.kinds.pod import TopologySpreadConstraint
from stower.model.selectors import IN, LabelSelector, Requirement
from stower.state.row_counts import required_label

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HONOR: Final = "Honor"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)
_NO_LABELS: Final[Mapping[str, str]] = {}


class PodTopologySpreadArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = ""


class SpreadConstraint(NamedTuple):
    """A constraint with the values that apply to one pod."""

    max_skew: int
    key: str
    selector: LabelSelector | None  # None: matches no pod
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def matches(self, pod: Pod) -> bool:
        """Returns whether the selector matches the pod."""
        return self.selector is not None and self.selector.matches(pod.metadata.labels or {})


def resolve_constraint(constraint: TopologySpreadConstraint, pod: Pod) -> SpreadConstraint:
    """Returns the constraint as it applies to the pod."""
    return SpreadConstraint(
        constraint.max_skew,
        constraint.topology_key,
        _selector(constraint, pod),
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in (None, HONOR),
        constraint.node_taints_policy == HONOR,
    )


def _find_wanted(pod: Pod) -> frozenset[tuple[str, str]] | None:
    """Returns the labels of which another pod must have one for any of the pod's own hard
    constraints to match it; None where a constraint may match without."""
    pairs = set()
    for constraint in pod.spec.topology_spread_constraints or ():
        if constraint.when_unsatisfiable == DO_NOT_SCHEDULE:
            pair = required_label(_selector(constraint, pod))
            if pair is None:
                return None
            pairs.add(pair)
    return frozenset(pairs)


_WANTED: Final = Derived(_find_wanted)


def may_match(pod: Pod, other: Pod) -> bool:
    """Returns whether a hard constraint of the pod's own may match the other one: a quick look."""
    wanted = _WANTED.of(pod)
    return wanted is None or not wanted.isdisjoint((other.metadata.labels or _NO_LABELS).items())


def _selector(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    """Returns the selector with the pod's values of matchLabelKeys."""
    selector = constraint.label_selector
    if selector is None or not constraint.match_label_keys:
        return selector
    labels = pod.metadata.labels or _NO_LABELS
    requirements = tuple(
        Requirement(key, IN, (labels[key],)) for key in constraint.match_label_keys if key in labels
    )
    if not requirements:
        return selector
    expressions = (*(selector.match_expressions or ()), *requirements)
    return msgspec.structs.replace(selector, match_expressions=expressions)


def is_match_label_changed(
    constraints: tuple[TopologySpreadConstraint, ...], old: Pod | None, new: Pod | None
) -> bool:
    """Returns whether a label changed whose value a constraint selects by (matchLabelKeys)."""
    old_labels = (old.metadata.labels if old is not None else None) or _NO_LABELS
    new_labels = (new.metadata.labels if new is not None else None) or _NO_LABELS
    keys = {key for c in constraints for key in c.match_label_keys or ()}
    return any(old_labels.get(key) != new_labels.get(key) for key in keys)


def args_faults(args: PodTopologySpreadArgs, path: str) -> Iterator[FieldFault]:
    """Yields invalid fields. Source: apis/config/validation/validation_pluginargs.go."""
    field_path = f"{path}.defaultConstraints"
    if args.defaulting_type not in ("", "System", "List"):
        yield unsupported(f"{path}.defaultingType", args.defaulting_type, ("List", "System"))
    elif args.defaulting_type != "List" and args.default_constraints:
        text = "when .defaultConstraints are not empty"
        yield invalid(f"{path}.defaultingType", "System", text)
    seen = set()
    for i, constraint in enumerate(args.default_constraints):
        constraint_path, key = f"{field_path}[{i}]", constraint.topology_key
        action = constraint.when_unsatisfiable
        if constraint.max_skew <= 0:
            yield invalid(
                f"{constraint_path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)"
            )
        if not key:
            yield required(f"{constraint_path}.topologyKey", "can not be empty")
        else:
            yield from label_name_faults(key, f"{constraint_path}.topologyKey")
        if not action:
            yield required(f"{constraint_path}.whenUnsatisfiable", "can not be empty")
        elif action not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
            yield unsupported(
                f"{constraint_path}.whenUnsatisfiable", action, (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
            )
        if constraint.label_selector is not None:
            text = "constraint must not define a selector, as they deduced for each pod"
            yield forbidden(f"{constraint_path}.labelSelector", text)
        if (key, action) in seen:
            yield duplicate(constraint_path, f"{{{key}, {action}}}")
        seen.add((key, action))
