"""PodGroup (scheduling.k8s.io/v1alpha2): the claims that its pods share (KEP-5729)."""

from typing import Final

import msgspec

from stower.model.kinds.pod import PodResourceClaim, PodResourceClaimStatus
from stower.model.meta import ObjectMeta

API_GROUP: Final = "scheduling.k8s.io"
RESOURCE: Final = "podgroups"


class PodGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the group has for all its pods."""

    resource_claims: tuple[PodResourceClaim, ...] | None = None


class PodGroupStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The claims that were made for the group."""

    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Pods that belong together."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
