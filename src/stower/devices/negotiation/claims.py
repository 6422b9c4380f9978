"""Decides which claims are negotiated, with which driver, and reads the state of one negotiation.

A claim is negotiated where a ResourceClass has the name of the device class that the claim
requests. Once the claim is allocated, the finalizer names the driver, whatever becomes of the
class.

Source: KEP-3063; seed 000.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from stower.model.derived import Derived
from stower.model.kinds import Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.pod_scheduling import ClaimScheduling
from stower.model.kinds.resource_claim import (
    ALLOCATED,
    ALLOCATION_MODE,
    DEALLOCATION_REQUESTED,
    IMMEDIATE,
    POD_CLAIM_NAME,
)


def finalizer_of(driver: str) -> str:
    """What a driver puts on a claim before it takes devices for it."""
    return f"{driver}{ALLOCATED}"


def class_names(claim: ResourceClaim) -> list[str]:
    """The device classes that a claim asks for, each once."""
    return _CLASS_NAMES.of(claim)


def _find_class_names(claim: ResourceClaim) -> list[str]:
    found: dict[str, None] = {}
    for request in claim.spec.devices.requests or ():
        for one in (request.exactly, *(request.first_available or ())):
            if one is not None:
                found[one.device_class_name] = None
    return list(found)


_CLASS_NAMES: Final = Derived(_find_class_names)


def driver_of(claim: ResourceClaim, classes: Mapping[str, ResourceClass]) -> str:
    """The driver with which a claim is negotiated, "" for a claim that is not."""
    for finalizer in claim.metadata.finalizers or ():
        if finalizer.endswith(ALLOCATED):
            return finalizer.removesuffix(ALLOCATED)
    if claim.status.allocation is not None or not classes:
        return ""
    found = (classes[name].driver_name for name in class_names(claim) if name in classes)
    return next(found, "")


def terms_fault(claim: ResourceClaim, classes: Mapping[str, ResourceClass]) -> str:
    """Why nobody can allocate the claim, as its requests are for several parties; else ""."""
    names = class_names(claim)
    drivers = {classes[name].driver_name if name in classes else "" for name in names}
    if len(drivers) < 2:
        return ""
    of = ", ".join(
        f"{name} of {classes[name].driver_name if name in classes else 'the scheduler'}"
        for name in names
    )
    return f"resource claim {claim.metadata.key} asks for classes of different drivers: {of}"


def is_delayed(claim: ResourceClaim) -> bool:
    """Whether it is allocated for a pod, once there is one. Claims made for a pod always are."""
    notes = claim.metadata.annotations or {}
    return POD_CLAIM_NAME in notes or notes.get(ALLOCATION_MODE) != IMMEDIATE


def flag_of(claim: ResourceClaim) -> str | None:
    """Why its deallocation was requested; None where it was not."""
    return (claim.metadata.annotations or {}).get(DEALLOCATION_REQUESTED)


def is_leaving(claim: ResourceClaim) -> bool:
    """Whether its allocation is to go: it was requested, or the claim is being deleted."""
    return flag_of(claim) is not None or claim.metadata.deletion_timestamp is not None


def is_pending(claim: ResourceClaim) -> bool:
    """Whether its driver is to find a node for it together with a pod."""
    return claim.status.allocation is None and is_delayed(claim) and not is_leaving(claim)


class Party(NamedTuple):
    """One negotiated claim of a pod, under the name of its entry there."""

    entry: str
    driver: str
    claim: ResourceClaim

    @property
    def key(self) -> str:
        return self.claim.metadata.key

    @property
    def is_allocated(self) -> bool:
        return self.claim.status.allocation is not None


class TreeRank(NamedTuple):
    """The pod group tree of a pod: the key of its root, and what ranks it among pods and trees."""

    key: str
    created: str
    uid: str


class PodNegotiation(NamedTuple):
    """One pod's negotiation as observed. `missing`: whether one of its claims does not exist;
    `tree`: the pod group tree that the pod is scheduled with, None for none."""

    pod: Pod
    parties: tuple[Party, ...]
    scheduling: PodScheduling | None
    missing: bool = False
    tree: TreeRank | None = None

    @property
    def pending(self) -> list[Party]:
        return [party for party in self.parties if is_pending(party.claim)]

    @property
    def drivers(self) -> list[str]:
        return list(dict.fromkeys(party.driver for party in self.parties))

    @property
    def is_ours(self) -> bool:
        """Whether what is said is said about this pod, not about another one of its name."""
        seen = self.scheduling
        return seen is None or seen.owner_uid == self.pod.metadata.uid

    @property
    def round(self) -> int:
        """How often drivers were asked, as far as that is seen."""
        return self.scheduling.spec.round if self.scheduling is not None else 0

    def answer(self, party: Party) -> ClaimScheduling | None:
        """What the claim's driver has said, about whatever candidates; not what it said of another
        claim that had its name."""
        status = self.scheduling.status if self.scheduling is not None and self.is_ours else None
        for answer in (status.resource_claims if status is not None else None) or ():
            if answer.name == party.entry:
                same = answer.claim_uid in ("", party.claim.metadata.uid)
                return answer if same else None
        return None

    def refusals_by_node(self) -> dict[str, Party]:
        """Nodes that a pending claim's driver has called unsuitable, with the first who did."""
        found: dict[str, Party] = {}
        for party in self.pending:
            answer = self.answer(party)
            for name in (answer.unsuitable_nodes if answer is not None else None) or ():
                found.setdefault(name, party)
        return found

    def silent_parties(self) -> list[Party]:
        """Pending claims without an answer about the current candidates."""
        seen = self.scheduling
        found = []
        for party in self.pending:
            answer = self.answer(party)
            if seen is None or answer is None or answer.observed_round != seen.spec.round:
                found.append(party)
        return found


def party_names(parties: Sequence[Party]) -> str:
    """Claims with their drivers, for people."""
    return ", ".join(f"{party.key} of {party.driver}" for party in parties)
