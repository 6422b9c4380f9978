"""DynamicResources: it refuses pods with resource claims, which would start without their devices.

Source: kube-scheduler plugins/dynamicresources.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.args import Args, convert_args, invalid
from stower.framework.plugin import Features, Plugin
from stower.framework.post_filter import Failure, Remedy
from stower.framework.reasons import Rejection
from stower.model.times import SECOND_NS, duration_ns
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

NOT_ALLOCATED: Final = "pod has resourceClaims, for which no devices are allocated yet"


class DynamicResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    filter_timeout: str = "10s"
    binding_timeout: str = "10m0s"


class DynamicResources(Plugin):
    """A pod without claims has none that could be given back for it."""

    name = "DynamicResources"

    def pre_filter(self, shape: Shape, state: ClusterState) -> Rejection | frozenset[str] | None:
        """Allocation is not built yet: better none than a pod without its devices."""
        return Rejection((NOT_ALLOCATED,)) if shape.claims else None

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "DynamicResources":
        """DynamicResourcesArgs: filterTimeout and bindingTimeout."""
        read = convert_args(args, DynamicResourcesArgs, path)
        for field, text, least_ns, must in (
            ("filterTimeout", read.filter_timeout, 0, "must be zero or positive"),
            ("bindingTimeout", read.binding_timeout, SECOND_NS, "must be at least 1 second"),
        ):
            lasts_ns = duration_ns(text)
            if lasts_ns is None or lasts_ns < least_ns:
                raise invalid(f"{path}.{field}", text, must)
        return cls()

    def post_filter(self, failure: Failure) -> Remedy:
        """Nothing to be done, in upstream's words."""
        return Remedy("no new claims to deallocate")
