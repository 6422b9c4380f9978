"""The plugin protocol: kube-scheduler's extension points, for many nodes at once.

A plugin gets a pod's shape, the state and the rows to evaluate (all rows, or just those that
changed). It returns a small integer per row: 0 passes, anything else is a code that `rejection`
turns into reasons. A score is an integer per row too.

`scope` says what an answer depends on, and so how it may be cached:
  NODE   the node object alone (labels, taints, images); evaluated again when the node changes
  USAGE  the node and the pods on it; evaluated again for every row on which a pod came or went
  PODS   the pod itself, and pods on any node; evaluated for each pod, for all rows at once, by
         `filter_pod` and `score_pod`

A method that a plugin does not override is not one of its extension points. Must not know any
plugin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.companion import Companion
from stower.framework.device_gates import DeviceGates
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods, TrialRun
from stower.framework.fixes import Fix
from stower.framework.negotiation import FeasibleNodes, Wait
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.tree_rules import TreeRule
from stower.framework.writes import DeleteObject
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# Highest score of one plugin for one node, before its weight.
MAX_NODE_SCORE: Final = 100


class Features(msgspec.Struct, frozen=True):
    """Feature gates that plugins read, with the defaults of Kubernetes 1.36. `drivers`: whether
    there are drivers to negotiate with, which a simulation has not; `groups`: whether pods of a
    group are placed together, off in 1.36; `composite_groups`: whether groups may contain groups;
    `warm_pools`: whether WarmPool objects are served, which enables their plugins."""

    taint_toleration_comparison_operators: bool = False
    dynamic_resource_allocation: bool = True
    devices: DeviceGates = DeviceGates()
    drivers: bool = True
    groups: bool = True
    warm_pools: bool = False
    composite_groups: bool = True


# Gates by name: the field of Features or of its device gates, and whether the gate is alpha.
GATES: Final = {
    "WarmPools": ("warm_pools", False),  # Stower's own
    "TaintTolerationComparisonOperators": ("taint_toleration_comparison_operators", True),
    "GenericWorkload": ("groups", False),
    "CompositePodGroup": ("composite_groups", False),
    "DynamicResourceAllocation": ("dynamic_resource_allocation", False),
    "DRAAdminAccess": ("devices.admin_access", False),
    "DRAPrioritizedList": ("devices.prioritized_list", False),
    "DRAPartitionableDevices": ("devices.partitionable", False),
    "DRADeviceTaints": ("devices.taints", False),
    "DRADeviceBindingConditions": ("devices.binding", False),
    "DRAConsumableCapacity": ("devices.consumable", False),
    "DRAListTypeAttributes": ("devices.list_attributes", True),
    "DRAExtendedResource": ("devices.extended_resources", False),
    "DRAWorkloadResourceClaims": ("devices.group_claims", True),
    "DRANodeAllocatableResources": ("devices.node_allocatable", True),
}


def read_features(text: str, features: Features | None = None) -> tuple[Features, list[str]]:
    """Returns `features` (None: the defaults) with the gates of a --feature-gates text, and the
    names of gates that no plugin reads. Raises ValueError."""
    given: dict[str, bool | None] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if not name.isalnum() or value not in _BOOL_BY_TEXT:
            raise ValueError(f"got {part!r}, want NAME=true or NAME=false")
        given[name] = _BOOL_BY_TEXT[value]
    every = given.pop("AllAlpha", None)
    features = features or Features()
    devices = features.devices
    for name, (field, is_alpha) in GATES.items():
        is_on = given.pop(name, every if is_alpha else None)
        if is_on is None:
            continue
        if field.startswith("devices."):
            devices = devices._replace(**{field.removeprefix("devices."): is_on})
        else:
            features = msgspec.structs.replace(features, **{field: is_on})
    return msgspec.structs.replace(features, devices=devices), [*given]


# As Go's strconv.ParseBool reads them.
_BOOL_BY_TEXT: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class Scope(Enum):
    """The objects that a plugin's answers depend on."""

    NODE = auto()
    USAGE = auto()
    PODS = auto()


class Normalize(Enum):
    """The conversion of raw scores to 0 to 100 (helper.DefaultNormalizeScore)."""

    NONE = auto()
    """Raw scores are 0 to 100 already."""
    BY_MAXIMUM = auto()
    """As a share of the highest raw score among the feasible nodes."""
    BY_MAXIMUM_REVERSED = auto()
    """BY_MAXIMUM, reversed: the highest raw score gets 0."""


class DomainScores(NamedTuple):
    """Scores that are equal for all nodes of a topology domain.

    key: the label key of the domains, "" where all nodes have the same score; points: takes
    bool[value codes], the codes that some feasible node has, and returns int64[value codes], what
    `score_pod` returns for nodes with each code."""

    key: str
    points: Callable[[Bools], Ints]


class Plugin:
    """Base of all plugins. Instances are immutable: their arguments are their only state."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.NODE
    normalize: ClassVar[Normalize] = Normalize.NONE
    # Texts by code, for plugins whose codes are 1, 2, ... and whose refusals share `resolvable`.
    reasons: ClassVar[tuple[str, ...]] = ()
    resolvable: ClassVar[bool] = False
    is_preemption: ClassVar[bool] = False  # whether its PostFilter evicts other pods
    events_to_register: Change = Change.NONE  # of the class, or of the instance where gates decide
    # Changes after which the filter may let the pod onto the row of the change, and no other one.
    changes_of_one_row: ClassVar[Change] = Change.NONE
    # Whether a claim's change can help only pods that name the claim, unless it frees devices.
    is_own_claims_only: ClassVar[bool] = False
    # The plugin whose arguments enable this one, where the profile does not name it.
    enabling_plugin: ClassVar[str] = ""
    # Enabled by itself in profiles without this plugin, where another profile has it.
    enabled_beside: ClassVar[str] = ""
    default_weight: ClassVar[int] = 0

    @classmethod
    def from_args(cls, args: Mapping[str, Any] | None, path: str, features: Features) -> "Plugin":
        """Returns the plugin as a profile configures it; a plugin that does not override this has
        no arguments. Raises InvalidObject, whose path begins with `path`."""
        return cls()

    def with_profile_plugins(
        self, plugins: Mapping[str, "Plugin"], filters: frozenset[str]
    ) -> "Plugin":
        """Returns the plugin for a profile that enables these plugins, by name; itself where they
        make no difference. `filters`: the names of those that filter."""
        return self

    def sort_key(self, pod: Pod, added_ns: int) -> tuple[int, ...]:
        """QueueSort: returns the pod's key; pods with smaller keys are tried first."""
        raise NotImplementedError

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """PreEnqueue: returns a rejection to keep the pod gated, so that it is not tried."""
        raise NotImplementedError

    def pre_filter(self, shape: Shape, state: ClusterState) -> Rejection | frozenset[str] | None:
        """PreFilter: returns a rejection of the pod, or the names of the only nodes to consider."""
        raise NotImplementedError

    def is_relevant(self, shape: Shape) -> bool:
        """Returns whether the plugin may have an answer for any pod of this shape."""
        return True

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """For scope PODS: returns whether `filter_pod` or `score_pod` may have an answer for the
        pod; worth overriding where that costs little."""
        return True

    def may_need_others(self, pod: Pod) -> bool:
        """Returns whether the filter may refuse a node because a pod is not there any more."""
        return False

    def needs_other(self, pod: Pod, other: Pod) -> bool:
        """Returns whether a pod may have to be near this other one."""
        return False

    def awaited(self, pod: Pod, state: ClusterState) -> str:
        """Returns what a pod that has a place waits for before it is bound, "" for nothing."""
        return ""

    def minds_elsewhere(self, pod: Pod, other: Pod) -> bool:
        """For scope PODS: returns whether the filter may refuse the pod a node because of another
        pod on another node."""
        return True

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """PreFilter, for scope PODS: returns a rejection of the pod."""
        raise NotImplementedError

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Filter: returns int64[rows], 0 where the row passes; None where all rows pass."""
        raise NotImplementedError

    def passes(self, shape: Shape, state: ClusterState, rows: Rows) -> Bools | None:
        """Filter without reasons: returns bool[rows], None where all rows pass. Must equal `filter`
        == 0; worth overriding where codes cost extra."""
        codes = self.filter(shape, state, rows)
        return None if codes is None else codes == 0

    def filter_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Filter for one row at a time: returns a function from row to code, or None where all rows
        pass.

        Called for plugins of scope USAGE, whose answers are refreshed row by row. Must equal
        `filter`; this default adapts it.
        """

        def check(row: int) -> int:
            codes = self.filter(shape, state, slice(row, row + 1))
            return 0 if codes is None else int(codes[0])

        return check

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the rejection that a code of `filter` stands for."""
        return Rejection((self.reasons[code - 1],), self.resolvable)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Score: returns int64[rows], raw where `normalize` is set; None for 0 everywhere."""
        raise NotImplementedError

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Score for one row at a time, for plugins of scope USAGE. Must equal `score`."""

        def score(row: int) -> int:
            scores = self.score(shape, state, slice(row, row + 1))
            return 0 if scores is None else int(scores[0])

        return score

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Returns a number that changes whenever cached answers become invalid: for scope NODE,
        when the change of one node may alter the answers for other rows; for filters of scope
        USAGE, when an object that is neither node nor pod may."""
        return 0

    def has_generation(self, shape: Shape) -> bool:
        """Returns whether `generation` may change for the shape."""
        return True

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Filter, for scope PODS: returns int64[row_limit] as `filter`; None if all rows pass."""
        raise NotImplementedError

    def observe_new_pods(self, state: ClusterState) -> None:
        """Records new pods, where scores depend on the arrival of pods. Attempts record by
        themselves; nothing is recorded in a trial, so that a question does not change the answer.
        """

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether `score_pod` may return scores; worth overriding where that is cheap."""
        return True

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Score, for scope PODS: returns int64[row_limit], 0 to 100, meaningful on feasible rows
        alone; None for no scores."""
        raise NotImplementedError

    def domain_scores(self, pod: Pod, shape: Shape, state: ClusterState) -> DomainScores | None:
        """Returns the scores of `score_pod` by domain, where they depend on a node's domain alone:
        a choice then looks at no single node."""
        return None

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns a function from row to DryRun, which answers what the filter would return if pods
        came to the row or left it; None where pods make no difference. Used by preemption.

        The default is right for every filter, and slow.
        """
        if self.scope is Scope.NODE:
            return None

        def row_code(row: int) -> int:
            if self.scope is Scope.PODS:
                codes = self.filter_pod(pod, shape, state)
                return 0 if codes is None else int(codes[row])
            codes = self.filter(shape, state, slice(row, row + 1))
            return 0 if codes is None else int(codes[0])

        return lambda row: TrialRun(state, row, row_code)

    def capacity_constraints(
        self, shape: Shape, state: ClusterState
    ) -> tuple[CapacityConstraint, ...] | None:
        """Returns the filter as amounts, where it has `dry_runs` and compares nothing but amounts;
        None elsewhere."""
        return None

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns amounts that bound how many pods of a tree a row takes; other reasons of the
        filter are left out. `pod` is one of the tree's."""
        return self.capacity_constraints(shape, state) or ()

    def is_permanent(self, codes: Ints) -> Bools:
        """Returns bool[codes]: which rejections the placement of other pods cannot lift."""
        lasting: Bools = codes != 0
        return lasting

    def is_permanent_for(self, pod: Pod, state: ClusterState, codes: Ints, tree: TreePods) -> Bools:
        """Returns bool[codes]: which rejections of a pod the placement of its tree's other pods
        cannot lift."""
        return self.is_permanent(codes)

    def common_keys(
        self, pod: Pod, state: ClusterState, tree: TreePods
    ) -> tuple[tuple[str, str], ...]:
        """Returns topology keys of which pods of the tree must share one domain, each with what
        these pods have in common: pods for which both are equal share it."""
        return ()

    def tree_rules(self, pods: Sequence[PodEntry], state: ClusterState) -> Iterable[TreeRule]:
        """Returns rules between the pods of a tree, beyond what `group_constraints` bounds: they
        forbid no placement that the filter would accept in some order."""
        return ()

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Returns more about this plugin's rejection of the row, line by line."""
        return ()

    def pod_details(self, pod: Pod, shape: Shape, state: ClusterState) -> Iterable[str]:
        """Returns more about this plugin's rejection of the pod as a whole, line by line."""
        return ()

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Returns changes that lift this plugin's rejection of the row, or of the pod as a whole,
        preferred ones first. Called again where a fix leads to another rejection."""
        return ()

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """PostFilter: returns what to do for a pod that fits on no node."""
        raise NotImplementedError

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """Reserve and PreBind: returns the conditions that must hold before the binding to the row;
        None for no conditions."""
        raise NotImplementedError

    def negotiate(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible_nodes: FeasibleNodes
    ) -> Wait | None:
        """Runs after each attempt: returns what other components have to accept before the pod is
        bound; None where this plugin has nothing to wait for."""
        raise NotImplementedError

    def begin_tree_attempt(
        self, pods: Sequence[Pod], state: ClusterState, can_be_placed: bool
    ) -> bool:
        """Prepares an attempt for the pods without a node of a pod group tree, for plugins that
        negotiate. `can_be_placed`: whether the tree is complete and valid. Returns whether the pods
        first have to give back what they have. Changes nothing in a trial."""
        return False

    def asked_rows(self, pod: Pod, state: ClusterState) -> Bools | None:
        """Returns bool[row_limit]: the rows about which other components were asked for a pod of a
        tree; a placement on other rows needs more questions first. None where nobody was asked. For
        plugins that negotiate."""
        return None

    def awaits_more(self, pods: Sequence[Pod], state: ClusterState, event: ClusterEvent) -> bool:
        """Returns whether the event is an answer of another component about one of these pods of a
        tree, which wait for answers, and only the answers that are still missing allow the next
        step. For plugins that negotiate; `state` has the event."""
        return False

    def displaceable_pods(self, pod: Pod, state: ClusterState) -> Sequence[PodEntry]:
        """Returns pods that the pod may displace: a node is chosen as if they were absent, and
        those that occupy the room are deleted at once, in this order. Must not depend on anything
        that a trial changes."""
        return ()

    def post_bind(self, pod: Pod, state: ClusterState) -> Sequence[DeleteObject]:
        """PostBind: returns deletions of objects that a pod with a node does not need any more."""
        raise NotImplementedError

    def companion(self, state: ClusterState, seed: int) -> Companion | None:
        """Returns the plugin's companion, one per engine, or None."""
        return None

    def bind(self, pod: Pod) -> bool:
        """Bind: returns whether this plugin binds the pod."""
        raise NotImplementedError

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Queueing hint: returns whether the event, one of `events_to_register`, may make a
        rejected pod schedulable."""
        return True

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """Queueing hint for plugins to which the pod's labels and pod terms matter."""
        return self.hint(shape, event)


class ExtensionPoint(Enum):
    """Extension points by their configuration name, and the method that implements each."""

    QUEUE_SORT = "queueSort"
    PRE_ENQUEUE = "preEnqueue"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    SCORE = "score"
    RESERVE = "reserve"
    BIND = "bind"
    POST_BIND = "postBind"


_METHODS: Final = {
    ExtensionPoint.QUEUE_SORT: "sort_key",
    ExtensionPoint.PRE_ENQUEUE: "pre_enqueue",
    ExtensionPoint.PRE_FILTER: "pre_filter",
    ExtensionPoint.FILTER: "filter",
    ExtensionPoint.POST_FILTER: "post_filter",
    ExtensionPoint.SCORE: "score",
    ExtensionPoint.RESERVE: "reserve",
    ExtensionPoint.BIND: "bind",
    ExtensionPoint.POST_BIND: "post_bind",
}
_POD_METHODS: Final = {
    ExtensionPoint.PRE_FILTER: "pre_filter_pod",
    ExtensionPoint.FILTER: "filter_pod",
    ExtensionPoint.SCORE: "score_pod",
}


def implements(plugin: type[Plugin], point: ExtensionPoint) -> bool:
    """Returns whether the plugin implements this extension point."""
    method = _METHODS[point]
    if plugin.scope is Scope.PODS:
        method = _POD_METHODS.get(point, method)
    return getattr(plugin, method) is not getattr(Plugin, method)
