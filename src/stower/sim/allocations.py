"""ResourceClaims in a simulation without faults: applies the scheduler's writes, ends reservations.

Stands in for the resource claim controller as far as a run needs: removes the reservations of pods
that ended, deallocates claims without users, and deletes a pod's own claims with the pod.
"""

from collections.abc import Iterable, Iterator

import msgspec

from stower.devices.negotiation.claims import driver_of, flag_of
from stower.framework.events import Observed, WatchType
from stower.framework.writes import CreateObject, DeleteObject, ObjectWrite, PatchObject
from stower.model.kinds import ApiObject, Pod, ResourceClaim
from stower.sim.changes import make_object, merged
from stower.sim.claim_lifecycle import recreate_with_claims, without_users
from stower.state.devices import used_claim_keys


class Allocations:
    """The claims of a world."""

    def __init__(self, has_drivers: bool = False) -> None:
        """`has_drivers`: whether somebody deallocates claims that are negotiated."""
        self._has_drivers = has_drivers
        self._claims: dict[str, ResourceClaim] = {}

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """All there are."""
        return tuple(self._claims.values())

    def get(self, key: str) -> ResourceClaim | None:
        """The claim of this namespace/name."""
        return self._claims.get(key)

    def change(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Somebody changed the claim, or asks for its deallocation: what schedulers have written
        stays as it is here. None where that changes nothing, or the claim is not here."""
        known = self._claims.get(claim.metadata.key)
        if known is None or known.metadata.uid != claim.metadata.uid:
            return None
        allocation = known.status.allocation
        if not flag_of(claim) and not self._has_drivers and driver_of(claim, {}) != "":
            allocation = claim.status.allocation  # its driver's
        status = msgspec.structs.replace(
            claim.status, allocation=allocation, reserved_for=known.status.reserved_for
        )
        meta = msgspec.structs.replace(
            claim.metadata,
            finalizers=known.metadata.finalizers,
            resource_version=known.metadata.resource_version,
        )
        changed = msgspec.structs.replace(claim, metadata=meta, status=status)
        return None if changed == known else self._keep(changed)

    def drop(self, key: str) -> None:
        """The claim is deleted."""
        self._claims.pop(key, None)

    def start(self, objects: Iterable[ApiObject]) -> None:
        """All there are at the start, or come."""
        for obj in objects:
            if isinstance(obj, ResourceClaim):
                self._claims[obj.metadata.key] = obj

    def apply_write(self, write: ObjectWrite) -> Observed | None:
        """What happens to the claim by the write; None where it is not there."""
        claim = self._claims.get(f"{write.namespace}/{write.name}")
        if isinstance(write, CreateObject):
            made = make_object(write, f"made-for-{write.uid}")
            assert isinstance(made, ResourceClaim)
            return Observed(WatchType.ADDED, self._keep(made))
        if claim is None or claim.metadata.uid != write.uid:
            return None
        if isinstance(write, DeleteObject):
            del self._claims[claim.metadata.key]
            return Observed(WatchType.DELETED, claim)
        changed = merged(claim, write) if isinstance(write, PatchObject) else claim
        assert isinstance(changed, ResourceClaim)
        return Observed(WatchType.MODIFIED, self._keep(changed))

    def recreate(self, pod: Pod, again: Pod) -> tuple[Pod, tuple[ResourceClaim, ...]]:
        """The pod that comes in the place of another, or beside it, and the claims that come with
        it, like those that were made for the other."""
        return recreate_with_claims(pod, again, self._claims)

    def release(self, pod: Pod) -> Iterator[Observed]:
        """What happens to the claims of a pod that is gone."""
        uid = pod.metadata.uid
        for key in used_claim_keys(pod):
            claim = self._claims.get(key)
            if claim is None:
                continue
            if claim.metadata.controller_uid == uid:
                del self._claims[claim.metadata.key]
                yield Observed(WatchType.DELETED, claim)
            elif claim.is_reserved_for(uid):
                changed = self._keep(without_users(claim, (uid,), self._stays(claim)))
                yield Observed(WatchType.MODIFIED, changed)

    def _stays(self, claim: ResourceClaim) -> bool:
        """A user's claim that a driver has allocated stays so until it is deleted, or somebody asks
        for its deallocation."""
        is_own = bool(claim.metadata.controller_uid)
        return self._has_drivers and not is_own and driver_of(claim, {}) != ""

    def _keep(self, claim: ResourceClaim) -> ResourceClaim:
        version = claim.metadata.resource_version
        number = int(version) + 1 if version.isdecimal() else 1
        meta = msgspec.structs.replace(claim.metadata, resource_version=str(number))
        kept = msgspec.structs.replace(claim, metadata=meta)
        self._claims[meta.key] = kept
        return kept
