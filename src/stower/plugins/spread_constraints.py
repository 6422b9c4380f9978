"""Topology spread constraints: as a profile configures them, and as they apply to one pod.

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
from stower.model.kinds import Pod
from stower.model.kinds.pod import TopologySpreadConstraint
from stower.model.selectors import IN, LabelSelector, Requirement

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
    """A constraint as it applies to one pod."""

    max_skew: int
    key: str
    selector: LabelSelector | None  # None: takes no pod
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def matches(self, pod: Pod) -> bool:
        """Whether the selector takes the pod."""
        return self.selector is not None and self.selector.matches(pod.metadata.labels or {})


def resolve_constraint(constraint: TopologySpreadConstraint, pod: Pod) -> SpreadConstraint:
    return SpreadConstraint(
        constraint.max_skew,
        constraint.topology_key,
        _selector(constraint, pod),
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in (None, HONOR),
        constraint.node_taints_policy == HONOR,
    )


def _selector(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    """With the pod's own values of matchLabelKeys."""
    selector = constraint.label_selector
    if selector is None or not constraint.match_label_keys:
        return selector
    labels = pod.metadata.labels or _NO_LABELS
    more = tuple(
        Requirement(key, IN, (labels[key],)) for key in constraint.match_label_keys if key in labels
    )
    if not more:
        return selector
    expressions = (*(selector.match_expressions or ()), *more)
    return msgspec.structs.replace(selector, match_expressions=expressions)


def is_match_label_changed(
    constraints: tuple[TopologySpreadConstraint, ...], old: Pod | None, new: Pod | None
) -> bool:
    """Whether a label has changed by whose value a constraint selects."""
    before = (old.metadata.labels if old is not None else None) or _NO_LABELS
    after = (new.metadata.labels if new is not None else None) or _NO_LABELS
    keys = {key for c in constraints for key in c.match_label_keys or ()}
    return any(before.get(key) != after.get(key) for key in keys)


def args_faults(args: PodTopologySpreadArgs, path: str) -> Iterator[FieldFault]:
    """Source: apis/config/validation/validation_pluginargs.go."""
    at = f"{path}.defaultConstraints"
    if args.defaulting_type not in ("", "System", "List"):
        yield unsupported(f"{path}.defaultingType", args.defaulting_type, ("List", "System"))
    elif args.defaulting_type != "List" and args.default_constraints:
        text = "when .defaultConstraints are not empty"
        yield invalid(f"{path}.defaultingType", "System", text)
    known = set()
    for i, constraint in enumerate(args.default_constraints):
        where, key = f"{at}[{i}]", constraint.topology_key
        when = constraint.when_unsatisfiable
        if constraint.max_skew <= 0:
            yield invalid(f"{where}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
        if not key:
            yield required(f"{where}.topologyKey", "can not be empty")
        else:
            yield from label_name_faults(key, f"{where}.topologyKey")
        if not when:
            yield required(f"{where}.whenUnsatisfiable", "can not be empty")
        elif when not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
            yield unsupported(
                f"{where}.whenUnsatisfiable", when, (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
            )
        if constraint.label_selector is not None:
            text = "constraint must not define a selector, as they deduced for each pod"
            yield forbidden(f"{where}.labelSelector", text)
        if (key, when) in known:
            yield duplicate(where, f"{{{key}, {when}}}")
        known.add((key, when))
