"""The plugin protocol: kube-scheduler's extension points, for many nodes at once.

A plugin is given a pod's shape, the state and the rows to look at (all, or just those that
changed). It answers with a small integer per row: 0 passes, anything else is a code that
`rejection` turns into reasons. A score is an integer per row too.

`scope` says what an answer depends on, and so what it may be cached by:
  NODE  the node object alone (labels, taints, images); asked again for rows whose node changed
  USE   the node and what is placed on it; asked again for every row on which a pod came or went
  PODS  the pod itself, and what is placed anywhere; asked for each pod, about all rows at once, by
        `filter_pod` and `score_pod`

A method that a plugin does not override is not one of its extension points.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Final

import msgspec

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.companion import Companion
from stower.framework.device_gates import DeviceGates
from stower.framework.dry_run import CapacityConstraint, DryRun, TrialRun
from stower.framework.fixes import Fix
from stower.framework.negotiation import FeasibleNodes, Wait
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import DeleteObject
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# Highest score of one plugin for one node, before its weight.
MAX_NODE_SCORE: Final = 100


class Features(msgspec.Struct, frozen=True):
    """Feature gates that are asked about, with Kubernetes 1.36's defaults. `drivers`: whether there
    are any to negotiate with, which is not so in a simulation; `groups`: whether pods of a group
    are placed together, which is off in 1.36; `composite_groups`: whether groups are in groups;
    `warm_pools`: whether there may be WarmPool objects, which have plugins enabled."""

    taint_toleration_comparison_operators: bool = False
    dynamic_resource_allocation: bool = True
    devices: DeviceGates = DeviceGates()
    drivers: bool = True
    groups: bool = True
    warm_pools: bool = False
    composite_groups: bool = True


# Gates by name: the field of Features or of its device gates, and whether the gate is an alpha one.
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
    """`features` (None: the defaults) with gates as --feature-gates has them, Name=true, ...; and
    the names of those that no plugin asks about. Raises ValueError."""
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
    """What a plugin's answers depend on."""

    NODE = auto()
    USAGE = auto()
    PODS = auto()


class Normalize(Enum):
    """How raw scores become 0 to 100 (helper.DefaultNormalizeScore)."""

    NONE = auto()
    """They already are."""
    BY_MAXIMUM = auto()
    """As a share of the highest raw score among the feasible nodes."""
    BY_MAXIMUM_REVERSED = auto()
    """The same, and the highest raw score gets 0."""


class Plugin:
    """Base of all plugins. Instances are immutable: what they know comes from their arguments."""

    name: ClassVar[str]
    scope: ClassVar[Scope] = Scope.NODE
    normalize: ClassVar[Normalize] = Normalize.NONE
    # Texts by code, for plugins whose codes are 1, 2, ... and whose refusals share `resolvable`.
    reasons: ClassVar[tuple[str, ...]] = ()
    resolvable: ClassVar[bool] = False
    is_preemption: ClassVar[bool] = False  # whether its remedy is that others leave
    events_to_register: Change = Change.NONE  # of the class, or of the instance where gates decide
    # Whether a claim's change can help only pods that name it, unless it gives devices back.
    is_own_claims_only: ClassVar[bool] = False
    # The plugin whose arguments enable this one, where a profile says nothing of it.
    enabling_plugin: ClassVar[str] = ""
    default_weight: ClassVar[int] = 0

    @classmethod
    def from_args(cls, args: Mapping[str, Any] | None, path: str, features: Features) -> "Plugin":
        """The plugin as a profile configures it. Raises InvalidObject that names the field, which
        lies below `path`; a plugin that does not override this takes no arguments."""
        return cls()

    def with_profile_plugins(self, plugins: Mapping[str, "Plugin"]) -> "Plugin":
        """The plugin among those that its profile enables, by name; itself where they make no
        difference to it."""
        return self

    def sort_key(self, pod: Pod, added_ns: int) -> tuple[int, ...]:
        """QueueSort: pods with smaller keys are tried first."""
        raise NotImplementedError

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """PreEnqueue: a refusal keeps the pod gated, out of every queue that is tried."""
        raise NotImplementedError

    def pre_filter(self, shape: Shape, state: ClusterState) -> Rejection | frozenset[str] | None:
        """PreFilter: refuse the pod at once, or leave only the nodes of these names."""
        raise NotImplementedError

    def is_relevant(self, shape: Shape) -> bool:
        """For scope PODS: whether any pod of this shape can matter to it."""
        return True

    def pre_filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Rejection | None:
        """PreFilter, for scope PODS: refuse the pod at once."""
        raise NotImplementedError

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Filter: int64[rows], 0 where the pod may go; None where it may go to all of them."""
        raise NotImplementedError

    def passes(self, shape: Shape, state: ClusterState, rows: Rows) -> Bools | None:
        """Filter without the reasons: bool[rows], None where all pass. Must equal `filter` == 0;
        worth overriding where the codes cost extra."""
        codes = self.filter(shape, state, rows)
        return None if codes is None else codes == 0

    def filter_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """The same for one row at a time: a function, or None where the pod may go anywhere.

        Only asked of plugins of scope USE, whose answers are refreshed row by row. It must equal
        `filter`; this default is the adapter.
        """

        def check(row: int) -> int:
            codes = self.filter(shape, state, slice(row, row + 1))
            return 0 if codes is None else int(codes[0])

        return check

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """What a code of `filter` means."""
        return Rejection((self.reasons[code - 1],), self.resolvable)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Score: int64[rows], raw where `normalize` is set; None is 0 for all of them."""
        raise NotImplementedError

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """The same for one row at a time; only asked of scope USE. Must equal `score`."""

        def score(row: int) -> int:
            scores = self.score(shape, state, slice(row, row + 1))
            return 0 if scores is None else int(scores[0])

        return score

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """For scope NODE: changes whenever a node's change may alter the answers of other rows.
        For filters of scope USE: whenever something that is neither node nor pod does."""
        return 0

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Filter, for scope PODS: int64[row_limit] as `filter`; None where it may go anywhere."""
        raise NotImplementedError

    def observe_new_pods(self, state: ClusterState) -> None:
        """Take note of the pods that have come, where scores depend on that. Attempts do it by
        themselves; in a trial nothing is learned: who asks what would be must not change it."""

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Whether `score_pod` may have something to say; worth overriding where that is cheap."""
        return True

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Score, for scope PODS: int64[row_limit], 0 to 100, of which only the feasible rows mean
        anything; None where it has nothing to say."""
        raise NotImplementedError

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """What the filter would say if pods came to a row or left it: asked for row by row when
        evictions are looked for. None where pods make no difference to this one.

        The default for other scopes than NODE is right for every filter, and slow.
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
        """The filter as amounts, for one that has `dry_runs`; None where it is not of that kind."""
        return None

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, shared: Container[str]
    ) -> tuple[CapacityConstraint, ...]:
        """Amounts that the filter compares, for a whole group of pods at once: no more may be
        placed than there is of each. What else it refuses is no matter here. `shared`: keys of
        claims that others use too, which are nobody's own."""
        return self.capacity_constraints(shape, state) or ()

    def is_permanent(self, codes: Ints) -> Bools:
        """bool[codes]: which refusals nothing ends that is placed anywhere."""
        lasting: Bools = codes != 0
        return lasting

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """More about this plugin's refusal of the row, line by line, for people."""
        return ()

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """What would lift this plugin's refusal of the row, or of the pod as a whole; what people
        would rather do comes first. Where a fix leads to another refusal, it is asked again."""
        return ()

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """PostFilter: what to do for a pod that fits nowhere."""
        raise NotImplementedError

    def reserve(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Reservation | None:
        """Reserve and PreBind: what other objects must agree with before the pod is bound to the
        row; None where nothing is."""
        raise NotImplementedError

    def negotiate(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible_nodes: FeasibleNodes
    ) -> Wait | None:
        """After each attempt: what others have to agree with before the pod is bound. None where
        nothing is in the way of that, as far as this plugin knows."""
        raise NotImplementedError

    def displaceable_pods(self, pod: Pod, state: ClusterState) -> Sequence[PodEntry]:
        """Pods that are in the way of this one nowhere: a node is chosen as if they were gone, and
        those that hold the room are deleted at once, in this order. What it says may not depend on
        anything that a trial changes."""
        return ()

    def post_bind(self, pod: Pod, state: ClusterState) -> Sequence[DeleteObject]:
        """PostBind: what is not needed any more, now that the pod was seen on its node."""
        raise NotImplementedError

    def companion(self, state: ClusterState, seed: int) -> Companion | None:
        """What goes on beside scheduling for this plugin, made once for an engine."""
        return None

    def bind(self, pod: Pod) -> bool:
        """Bind: whether this plugin binds the pod."""
        raise NotImplementedError

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Queueing hint: might this change, one of `wakes_on`, let a refused pod in?"""
        return True

    def hint_pod(self, pod: Pod, shape: Shape, event: ClusterEvent) -> bool:
        """The same, for plugins to which the pod's labels and terms about others matter."""
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
    """Whether the plugin takes part at this extension point."""
    method = _METHODS[point]
    if plugin.scope is Scope.PODS:
        method = _POD_METHODS.get(point, method)
    return getattr(plugin, method) is not getattr(Plugin, method)
