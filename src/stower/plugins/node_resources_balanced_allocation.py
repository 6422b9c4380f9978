"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly with the pod.

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
    """Scores nodes by how even their resource use becomes. Pods without requests are not scored."""

    name = "NodeResourcesBalancedAllocation"
    scope = Scope.USAGE

    def __init__(
        self, resources: tuple[str, ...] = (CPU, MEMORY), has_dra_extended_resources: bool = False
    ) -> None:
        """`has_dra_extended_resources`: as in NodeResourcesFit."""
        self.resources = resources
        self.has_dra_extended_resources = has_dra_extended_resources

    def has_generation(self, shape: Shape) -> bool:
        """Returns whether devices may stand in for resources of the shape."""
        return self.has_dra_extended_resources and bool(shape.extended_requests)

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Returns the generation of devices if their use changes scores, else 0."""
        if not (self.has_dra_extended_resources and shape.extended_requests):
            return 0
        resources = state.devices.class_by_resource
        is_scored = any(
            c.name in resources and c.name in self.resources for c, _ in shape.extended_requests
        )
        return state.devices.generation if is_scored else 0

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "NodeResourcesBalancedAllocation":
        """Reads NodeResourcesBalancedAllocationArgs: distinct resources, each of weight 1."""
        parsed = convert_args(args, BalancedArgs, path)
        names = [resource.name for resource in parsed.resources]
        faults = []
        for i, resource in enumerate(parsed.resources):
            resource_path = f"{path}.resources[{i}]"
            if resource.name in names[:i]:
                faults.append(duplicate(f"{resource_path}.name", resource.name))
            if resource.weight not in (0, 1):
                faults.append(invalid(f"{resource_path}.weight", resource.weight, "must be 1"))
        raise_faults(faults)
        has_dra_extended_resources = (
            features.dynamic_resource_allocation and features.devices.extended_resources
        )
        return cls(tuple(names) or (CPU, MEMORY), has_dra_extended_resources)

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Scores 50 to 100; 75 if the pod does not change the balance."""
        scored_resources = self._scored_resources(shape, state)
        return balanced_allocation(scored_resources, rows) if scored_resources else None

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """Returns the score for one row at a time."""
        scored_resources = self._scored_resources(shape, state)
        return balanced_allocation_row(scored_resources) if scored_resources else None

    def _scored_resources(self, shape: Shape, state: ClusterState) -> tuple[ScoredResource, ...]:
        """Returns the scored resources; none for a pod that requests none of them. `pods` is never
        scored, see NodeResourcesFit."""
        requested = shape.balanced_amounts
        if not any(map(requested.get, self.resources)):
            return ()
        result = []
        for name in self.resources:
            amount = requested.get(name, 0)
            if name != PODS and (amount or not is_scalar(name)):
                column = state.column(name)
                if amount and self.has_dra_extended_resources:
                    column = with_devices(column, state)
                result.append(ScoredResource(column, column, amount, 1))
        return tuple(result)
