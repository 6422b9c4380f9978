"""NodeResourcesBalancedAllocation: prefer nodes whose resources the pod would use evenly.

Source: kube-scheduler plugins/noderesources/balanced_allocation.go.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stower.framework.args import Args, ResourceSpec, convert_args, duplicate, invalid, raise_faults
from stower.framework.plugin import Features, Plugin, Scope
from stower.model.resources import CPU, MEMORY, PODS, is_scalar
from stower.plugins.device_use import with_devices
from stower.plugins.resource_scores import (
    ScoredResource,
    balanced_allocation,
    balanced_allocation_row,
)
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape


class BalancedArgs(Args, frozen=True):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    resources: tuple[ResourceSpec, ...] = ()


class NodeResourcesBalancedAllocation(Plugin):
    """Score by how much more even the node's use becomes. Pods without requests are not scored."""

    name = "NodeResourcesBalancedAllocation"
    scope = Scope.USAGE

    def __init__(
        self, resources: tuple[str, ...] = (CPU, MEMORY), has_dra_extended_resources: bool = False
    ) -> None:
        """`by_devices` as NodeResourcesFit's."""
        self.resources = resources
        self.has_dra_extended_resources = has_dra_extended_resources

    def has_generation(self, shape: Shape) -> bool:
        """Returns whether devices may stand in for resources of the shape."""
        return self.has_dra_extended_resources and bool(shape.extended_requests)

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """How devices are used, where that scores."""
        if not (self.has_dra_extended_resources and shape.extended_requests):
            return 0
        resources = state.devices.class_by_resource
        counts = any(
            c.name in resources and c.name in self.resources for c, _ in shape.extended_requests
        )
        return state.devices.generation if counts else 0

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NodeResourcesBalancedAllocation":
        """NodeResourcesBalancedAllocationArgs: resources, each once, of weight 1."""
        read = convert_args(args, BalancedArgs, path)
        names = [resource.name for resource in read.resources]
        faults = []
        for i, resource in enumerate(read.resources):
            at = f"{path}.resources[{i}]"
            if resource.name in names[:i]:
                faults.append(duplicate(f"{at}.name", resource.name))
            if resource.weight not in (0, 1):
                faults.append(invalid(f"{at}.weight", resource.weight, "must be 1"))
        raise_faults(faults)
        has_dra_extended_resources = (
            features.dynamic_resource_allocation and features.devices.extended_resources
        )
        return cls(tuple(names) or (CPU, MEMORY), has_dra_extended_resources)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """50 to 100, 75 where nothing changes."""
        scored_resources = self._scored_resources(shape, state)
        return balanced_allocation(scored_resources, rows) if scored_resources else None

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """The same for one row."""
        scored_resources = self._scored_resources(shape, state)
        return balanced_allocation_row(scored_resources) if scored_resources else None

    def _scored_resources(self, shape: Shape, state: ClusterState) -> tuple[ScoredResource, ...]:
        """None for a pod that asks for none of the resources. Pods are not among them, see Fit."""
        asked = shape.balanced_amounts
        if not any(map(asked.get, self.resources)):
            return ()
        result = []
        for name in self.resources:
            amount = asked.get(name, 0)
            if name != PODS and (amount or not is_scalar(name)):
                column = state.column(name)
                if amount and self.has_dra_extended_resources:
                    column = with_devices(column, state)
                result.append(ScoredResource(column, column, amount, 1))
        return tuple(result)
