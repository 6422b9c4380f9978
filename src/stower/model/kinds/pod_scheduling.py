"""PodScheduling (stower.dev/v1): the negotiation between the scheduler and drivers about one pod.

The object has the pod's name, and the pod as its only owner. The scheduler writes the spec, the
drivers write the status. Source: KEP-3063 (PodSchedulingContext), seed 000; `round` and `attempt`
are our own: a round identifies the candidate nodes that a driver's response is about, an attempt
counts the selections of a node that failed.
"""

from typing import Final

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32, Int64

NODES_MAX: Final = 128  # PodSchedulingNodeListMaxSize


class PodSchedulingSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """`selected_node`: where drivers are to allocate, "" for nowhere yet; `potential_nodes`: those
    that they are asked about, the best first; `round` grows with each change of these; `attempt`
    with each selection that came to nothing."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] | None = None
    round: Int64 = 0
    attempt: Int32 = 0


class ClaimScheduling(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the driver of one claim answers. `name`: as in the pod's spec.resourceClaims."""

    name: str = ""
    claim_uid: str = msgspec.field(default="", name="claimUID")
    unsuitable_nodes: tuple[str, ...] | None = None
    observed_round: Int64 = 0


class PodSchedulingStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """One entry for each claim that is not allocated yet."""

    resource_claims: tuple[ClaimScheduling, ...] | None = None


class PodScheduling(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The negotiation about one pod."""

    metadata: ObjectMeta
    spec: PodSchedulingSpec = PodSchedulingSpec()
    status: PodSchedulingStatus = PodSchedulingStatus()

    @property
    def owner_uid(self) -> str:
        """The uid of the pod that it is about, "" where it has no owner."""
        owners = self.metadata.owner_references or ()
        return owners[0].uid if owners else ""
