"""NodeResourcesFit: rejects nodes with insufficient resources; scores nodes by their utilization.

Source: kube-scheduler plugins/noderesources/fit.go.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import (
    Args,
    FieldFault,
    ResourceSpec,
    convert_args,
    forbidden,
    invalid,
    label_name_faults,
    raise_faults,
    required,
    unsupported,
)
from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.dry_run import CapacityConstraint, DryRun, TreePods
from stower.framework.fixes import NODE_FIELD, Fix, format_amount, with_smaller_requests
from stower.framework.plugin import Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import DeviceClass, Pod
from stower.model.resources import (
    CLASS_PREFIX,
    CPU,
    MEMORY,
    PODS,
    amount_text,
    amounts,
    is_extended,
    is_scalar,
    pod_requests,
)
from stower.plugins.device_use import with_devices
from stower.plugins.resource_scores import (
    MAX_CUSTOM_SCORE,
    ScoredResource,
    least_allocated,
    least_allocated_row,
    most_allocated,
    most_allocated_row,
    ratio_table,
    requested_to_capacity,
    requested_to_capacity_row,
)
from stower.state.arrays import Bools, Ints, ResourceColumn, Rows
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# Codes are bit sets: bit 0 for no free pod slot, bit 1 for a shortage that no eviction can end, and
# a bit for each resource of the shape. An int64 has room for 60 of them and a bit for all others.
TOO_MANY_PODS: Final = 1
UNRESOLVABLE: Final = 2
FIRST_RESOURCE_BIT: Final = 2
LAST_RESOURCE_BIT: Final = 62
_NO_RESOURCES: Final[frozenset[str]] = frozenset()


class Strategy(Enum):
    """The scoring strategy: which nodes get high scores."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class UtilizationShapePoint(Args, frozen=True):
    """A point of the score's curve: utilization in percent, score from 0 to 10."""

    utilization: int = 0
    score: int = 0


class RatioParam(Args, frozen=True):
    """The curve of RequestedToCapacityRatio."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(Args, frozen=True, rename="camel"):
    """The scoring strategy, and the resources whose utilization it scores."""

    type: str = Strategy.LEAST_ALLOCATED.value
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RatioParam | None = None


class FitArgs(Args, frozen=True, rename="camel"):
    """NodeResourcesFitArgs of a KubeSchedulerConfiguration."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesFit(Plugin):
    """Rejects nodes without room for the pod; scores nodes by the strategy's resources."""

    name = "NodeResourcesFit"
    scope = Scope.USAGE
    changes_of_one_row = Change.PLACED_POD_DELETED
    events_to_register = (
        Change.NODE_ADDED
        | Change.NODE_ALLOCATABLE
        | Change.PLACED_POD_DELETED
        | Change.PLACED_POD_SCALED_DOWN
        | Change.OWN_SCALED_DOWN
        | Change.DEVICE_CLASS_CHANGED
    )

    def __init__(
        self, args: FitArgs | None = None, has_dra_extended_resources: bool = False
    ) -> None:
        """`args` must be valid: `from_args` checks them. `has_dra_extended_resources`: whether
        devices may back resources that a node does not have (KEP-5004)."""
        self.has_dra_extended_resources = has_dra_extended_resources
        args = args or FitArgs()
        strategy = args.scoring_strategy
        self.strategy = Strategy(strategy.type)
        # A weight of 0 means that no weight is set.
        weights = tuple((r.name, r.weight or 1) for r in strategy.resources)
        self.resources = weights or ((CPU, 1), (MEMORY, 1))
        self._scored_extended_resources = frozenset(
            name for name, _ in self.resources if is_extended(name)
        )
        ratio = strategy.requested_to_capacity_ratio
        points = [(p.utilization, p.score) for p in ratio.shape] if ratio is not None else []
        self.table = ratio_table(points) if points else None
        self.ignored_resources = frozenset(args.ignored_resources)
        self.ignored_resource_groups = frozenset(args.ignored_resource_groups)

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NodeResourcesFit":
        """Reads NodeResourcesFitArgs; checks them as ValidateNodeResourcesFitArgs does."""
        parsed = convert_args(args, FitArgs, path)
        raise_faults(_faults(parsed, path))
        has_dra_extended_resources = (
            features.dynamic_resource_allocation and features.devices.extended_resources
        )
        return cls(parsed, has_dra_extended_resources)

    def has_generation(self, shape: Shape) -> bool:
        """Returns whether devices may stand in for resources of the shape."""
        return self.has_dra_extended_resources and bool(shape.extended_requests)

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Returns a number that changes with the resources that devices back, and with the use of
        devices if it changes scores."""
        if not (shape.extended_requests and self.has_dra_extended_resources):
            return 0
        if self._scored_extended_resources.isdisjoint(self._delegated_resources(shape, state)):
            return state.devices.class_generation
        return state.devices.generation

    def _delegated_resources(self, shape: Shape, state: ClusterState) -> frozenset[str]:
        """Returns the resources that devices may back, unchecked on nodes without them."""
        if not (shape.extended_requests and self.has_dra_extended_resources):
            return _NO_RESOURCES
        resources = state.devices.class_by_resource
        return frozenset(
            column.name for column, _ in shape.extended_requests if column.name in resources
        )

    # Filter

    def filter(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Rejects rows with a shortage: the code has a bit for each of them."""
        pods = state.columns[PODS]
        codes = (pods.requested[rows] >= pods.allocatable[rows]).astype(np.int64)
        delegated = self._delegated_resources(shape, state)
        for i, (column, amount) in enumerate(self._checked_requests(shape)):
            bit = _bit(i)
            allocatable = column.allocatable[rows]
            is_short = amount > allocatable - column.requested[rows]
            if column.name in delegated:
                is_short &= allocatable > 0
            if is_short.any():
                codes |= np.where(is_short, bit, 0)
                is_unresolvable = amount > allocatable
                if is_unresolvable.any():
                    codes |= np.where(is_short & is_unresolvable, UNRESOLVABLE, 0)
        return codes

    def passes(self, shape: Shape, state: ClusterState, rows: Rows) -> Bools | None:
        """Returns whether all resources fit."""
        pods = state.columns[PODS]
        fits = pods.requested[rows] < pods.allocatable[rows]
        delegated = self._delegated_resources(shape, state)
        for column, amount in self._checked_requests(shape):
            # `requested + amount` could overflow.
            is_enough = amount <= column.allocatable[rows] - column.requested[rows]
            if column.name in delegated:
                is_enough |= column.allocatable[rows] == 0
            fits &= is_enough
        return fits

    def filter_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Returns the filter for one row at a time."""
        pods = state.columns[PODS]
        requests = tuple(
            (c, amount, _bit(i)) for i, (c, amount) in enumerate(self._checked_requests(shape))
        )
        delegated = self._delegated_resources(shape, state)

        def check(row: int) -> int:
            code = TOO_MANY_PODS if pods.requested_cells[row] >= pods.allocatable_cells[row] else 0
            for column, amount, bit in requests:
                allocatable = column.allocatable_cells[row]
                if amount > allocatable - column.requested_cells[row]:
                    if delegated and not allocatable and column.name in delegated:
                        continue
                    code |= bit | UNRESOLVABLE if amount > allocatable else bit
            return code

        return check

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Returns dry runs of the free resources of a row."""
        requests = tuple((c, n, _bit(i)) for i, (c, n) in enumerate(self._checked_requests(shape)))
        delegated = self._delegated_resources(shape, state)

        def make_dry_run(row: int) -> _FitDryRun:
            checked = requests
            if delegated:
                checked = tuple(
                    r for r in checked if r[0].allocatable_cells[row] or r[0].name not in delegated
                )
            return _FitDryRun(state.columns[PODS], checked, row)

        return make_dry_run

    def capacity_constraints(
        self, shape: Shape, state: ClusterState
    ) -> tuple[CapacityConstraint, ...] | None:
        """Returns a pod slot and each resource; None if what is checked differs between rows."""
        return None if self._delegated_resources(shape, state) else self._amounts(shape, state)

    def group_constraints(
        self, pod: Pod, shape: Shape, state: ClusterState, tree: TreePods
    ) -> tuple[CapacityConstraint, ...]:
        """Returns a pod slot and each resource, delegated or not; see `_amounts`."""
        return self._amounts(shape, state)

    def _amounts(self, shape: Shape, state: ClusterState) -> tuple[CapacityConstraint, ...]:
        """Returns a pod slot and each resource; delegated ones have no limit where missing."""
        delegated = self._delegated_resources(shape, state)
        pods = state.columns[PODS]
        return (
            CapacityConstraint(
                PODS,
                pods.free,
                1,
                _one_pod_slot,
                TOO_MANY_PODS,
                empty=partial(_all_of, pods, False),
            ),
            *(
                CapacityConstraint(
                    column.name,
                    partial(_free_or_unlimited, column)
                    if column.name in delegated
                    else column.free,
                    amount,
                    partial(_requested_amount, column.name),
                    _bit(i),
                    empty=partial(_all_of, column, column.name in delegated),
                )
                for i, (column, amount) in enumerate(self._checked_requests(shape))
            ),
        )

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns a reason for each shortage; unresolvable if evictions cannot end all of them."""
        reasons = ["Too many pods"] if code & TOO_MANY_PODS else []
        for i, (column, _) in enumerate(self._checked_requests(shape)):
            if code & _bit(i) and _bit(i) < 1 << LAST_RESOURCE_BIT:
                reasons.append(f"Insufficient {column.name}")
        if code >> LAST_RESOURCE_BIT & 1:
            reasons.append("Insufficient other resources")
        return Rejection(tuple(reasons), resolvable=not code & UNRESOLVABLE)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Suggests a node with more of each resource that it lacks, or else a pod that asks for
        less."""
        if shape.is_partial:
            return  # a node with dozens of resources that nobody has is no way out
        node = state.node_at(row)
        allocatable = dict(node.status.allocatable or {})
        shortages, cost = [], 0.0
        lacking, asked = dict[str, int](), list[str]()
        delegated = self._delegated_resources(shape, state)
        for column, amount in ((state.columns[PODS], 1), *self._checked_requests(shape)):
            missing = amount - (column.allocatable_cells[row] - column.requested_cells[row])
            if missing > 0 and (column.allocatable_cells[row] or column.name not in delegated):
                total = column.allocatable_cells[row] + missing
                allocatable[column.name] = amount_text(column.name, total)
                shortages.append(f"{format_amount(column.name, missing)} {column.name}")
                cost += 1 + min(1.0, missing / amount)
                lacking[column.name] = missing
                asked.append(_request_text(column, amount, row))
        status = msgspec.structs.replace(node.status, allocatable=allocatable)
        yield Fix(
            f"{NODE_FIELD} lacks {', '.join(shortages)}",
            cost,
            node=msgspec.structs.replace(node, status=status),
        )
        smaller = with_smaller_requests(pod, lacking)
        if smaller is not None:
            yield Fix(f"the pod requests {', '.join(asked)}", cost + 1, smaller)

    def _checked_requests(self, shape: Shape) -> tuple[tuple[ResourceColumn, int], ...]:
        """Returns the requests that must fit: all but those that the profile ignores."""
        if not self.ignored_resources and not self.ignored_resource_groups:
            return shape.requests
        return tuple(
            (column, amount)
            for column, amount in shape.requests
            if not (
                is_extended(column.name)
                and (
                    column.name in self.ignored_resources
                    or column.name.partition("/")[0] in self.ignored_resource_groups
                )
            )
        )

    # Score

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Scores 0 to 100 by the strategy."""
        scored_resources = self._scored_resources(shape, state)
        if not scored_resources:
            return None
        match self.strategy:
            case Strategy.LEAST_ALLOCATED:
                return least_allocated(scored_resources, rows)
            case Strategy.MOST_ALLOCATED:
                return most_allocated(scored_resources, rows)
        assert self.table is not None
        return requested_to_capacity(scored_resources, rows, self.table)

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Returns the score for one row at a time."""
        scored_resources = self._scored_resources(shape, state)
        if not scored_resources:
            return None
        match self.strategy:
            case Strategy.LEAST_ALLOCATED:
                return least_allocated_row(scored_resources)
            case Strategy.MOST_ALLOCATED:
                return most_allocated_row(scored_resources)
        assert self.table is not None
        return requested_to_capacity_row(scored_resources, self.table)

    def _scored_resources(self, shape: Shape, state: ClusterState) -> tuple[ScoredResource, ...]:
        """Returns the resources that count for the shape: extended ones only if it requests them.

        `pods` never counts: kube-scheduler's scorer finds no such resource on any node.
        """
        non_zero = {CPU: state.non_zero_cpu, MEMORY: state.non_zero_memory}
        result = []
        for name, weight in self.resources:
            amount = shape.fit_amounts.get(name, 0)
            if name != PODS and (amount or not is_scalar(name)):
                column = state.column(name)
                if amount and self.has_dra_extended_resources:
                    column = with_devices(column, state)
                result.append(ScoredResource(column, non_zero.get(name, column), amount, weight))
        return tuple(result)

    # Hints

    def hint(self, shape: Shape, event: ClusterEvent) -> bool:
        """Requeues the pod for a node that is large enough and has grown, for freed resources that
        let it in, and for a device class that may back resources which nodes do not have. Upstream
        requeues it for every pod that leaves a node."""
        if event.change & Change.DEVICE_CLASS_CHANGED:
            return self.has_dra_extended_resources and _is_schedulable_after_device_class_event(
                event, shape
            )
        allocatable, old_allocatable = event.allocatable, event.old_allocatable
        if allocatable is not None:
            if allocatable.get(PODS, 0) < 1:
                return False
            requests = self._checked_requests(shape)
            if shape.extended_requests and self.has_dra_extended_resources:
                backed = event.class_by_resource
                requests = tuple(
                    r for r in requests if allocatable.get(r[0].name) or r[0].name not in backed
                )
                if old_allocatable is not None and len(requests) < len(
                    self._checked_requests(shape)
                ):
                    return all(amount <= allocatable.get(c.name, 0) for c, amount in requests)
            if any(amount > allocatable.get(c.name, 0) for c, amount in requests):
                return False
            if old_allocatable is None:
                return True
            names = [PODS, *(column.name for column, _ in requests)]
            return any(allocatable.get(name, 0) > old_allocatable.get(name, 0) for name in names)
        if event.change & Change.PLACED_POD_SCALED_DOWN:
            return _is_schedulable_after_scale_down(event, shape)
        if event.freed is not None:
            may_be_devices = self.has_dra_extended_resources and bool(shape.extended_requests)
            return may_be_devices or event.freed.lets_in(self._checked_requests(shape))
        return True


class _FitDryRun:
    """Free resources of one row, while a dry run adds and removes pods."""

    __slots__ = ("_free", "_row", "_slots", "_wanted")

    def __init__(
        self, pods: ResourceColumn, requests: tuple[tuple[ResourceColumn, int, int], ...], row: int
    ) -> None:
        self._wanted = requests
        self._row = row
        self._slots = pods.allocatable_cells[row] - pods.requested_cells[row]
        self._free = [
            column.allocatable_cells[row] - column.requested_cells[row] for column, _, _ in requests
        ]

    def add(self, entry: PodEntry) -> None:
        self._count(entry, -1)

    def remove(self, entry: PodEntry) -> None:
        self._count(entry, 1)

    def _count(self, entry: PodEntry, sign: int) -> None:
        self._slots += sign
        usage = entry.shape.balanced_amounts
        for i, (column, _, _) in enumerate(self._wanted):
            self._free[i] += sign * usage.get(column.name, 0)

    def code(self) -> int:
        code = 0 if self._slots > 0 else TOO_MANY_PODS
        for free, (column, amount, bit) in zip(self._free, self._wanted, strict=True):
            if amount > free:
                code |= bit | UNRESOLVABLE if amount > column.allocatable_cells[self._row] else bit
        return code


def _request_text(column: ResourceColumn, amount: int, row: int) -> str:
    """Returns how much is asked for, and what the node has of it."""
    room, name = column.allocatable_cells[row], column.name
    free = max(0, room - column.requested_cells[row])
    rest = f", {format_amount(name, free)} free" if free != room else ""
    return (
        f"{format_amount(name, amount)} {name} ({NODE_FIELD} has {format_amount(name, room)}{rest})"
    )


def _one_pod_slot(shape: Shape) -> int:
    return 1


# More than a node has of any resource, and far from overflow.
UNLIMITED: Final = 1 << 60


def _free_or_unlimited(column: ResourceColumn, rows: slice) -> Ints:
    return np.where(column.allocatable[rows] == 0, UNLIMITED, column.free(rows))


def _all_of(column: ResourceColumn, is_delegated: bool, rows: slice) -> Ints:
    amounts: Ints = column.allocatable[rows]
    return np.where(amounts == 0, UNLIMITED, amounts) if is_delegated else amounts


def _requested_amount(name: str, shape: Shape) -> int:
    return shape.balanced_amounts.get(name, 0)


def _faults(args: FitArgs, path: str) -> Iterator[FieldFault]:
    for i, name in enumerate(args.ignored_resources):
        yield from label_name_faults(name, f"{path}.ignoredResources[{i}]")
    for i, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{i}]"
        if "/" in group:
            yield invalid(at, group, "resource group name can't contain '/'")
        yield from label_name_faults(group, at)
    strategy, path = args.scoring_strategy, f"{path}.scoringStrategy"
    names = [s.value for s in Strategy]
    if strategy.type not in names:
        yield unsupported(f"{path}.type", strategy.type, sorted(names))
    for i, resource in enumerate(strategy.resources):
        if not 0 <= resource.weight <= 100:
            at = f"{path}.resources[{i}].weight"
            text = f"resource weight of {resource.name} not in valid range (0, 100]"
            yield invalid(at, resource.weight, text)
    ratio, path = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if strategy.type != Strategy.REQUESTED_TO_CAPACITY_RATIO.value:
        if ratio is not None:
            yield forbidden(path, "must be nil when type is not RequestedToCapacityRatio")
    elif ratio is None:
        yield required(path, "must be specified when type is RequestedToCapacityRatio")
    else:
        yield from _shape_faults(ratio.shape, f"{path}.shape")


def _shape_faults(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[FieldFault]:
    if not shape:
        yield required(path, "at least one point must be specified")
    for i, (left, right) in enumerate(pairwise(shape), 1):
        if left.utilization >= right.utilization:
            text = "values must be sorted in increasing order"
            yield invalid(f"{path}[{i}].utilization", right.utilization, text)
            break
    for i, point in enumerate(shape):
        at = f"{path}[{i}]"
        if not 0 <= point.utilization <= 100:
            yield invalid(f"{at}.utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= MAX_CUSTOM_SCORE:
            yield invalid(f"{at}.score", point.score, "not in valid range [0, 10]")


def _is_schedulable_after_device_class_event(event: ClusterEvent, shape: Shape) -> bool:
    """Returns whether a class now backs a resource of the shape. Source:
    isSchedulableAfterDeviceClassEvent."""
    old, new = event.old_object, event.object
    if not isinstance(new, DeviceClass):
        return False
    names = {new.spec.extended_resource_name}
    if not isinstance(old, DeviceClass):
        names.add(CLASS_PREFIX + new.metadata.name)
    elif old.spec.extended_resource_name in names:
        return False
    return any(column.name in names for column, _ in shape.extended_requests)


def _bit(i: int) -> int:
    """Returns the bit of the shape's i-th resource."""
    return 1 << min(FIRST_RESOURCE_BIT + i, LAST_RESOURCE_BIT)


def _is_schedulable_after_scale_down(event: ClusterEvent, shape: Shape) -> bool:
    """Returns whether a resize freed a resource that the shape requests."""
    if event.old_pod is None or event.pod is None:
        return True
    old_amounts = amounts(pod_requests(event.old_pod, use_status=True))
    new_amounts = amounts(pod_requests(event.pod, use_status=True))
    return any(old_amounts.get(c.name, 0) > new_amounts.get(c.name, 0) for c, _ in shape.requests)
