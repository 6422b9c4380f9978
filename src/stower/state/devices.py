"""Devices as the API has them: slices, classes, taint rules, claims; and what claims hold.

A claim holds the devices of its allocation from the moment we decide on it (an assumption), until
the API says otherwise or the decision is taken back. In a trial, a claim all of whose pods were
taken off their nodes holds nothing.

Sources: kube-scheduler plugins/dynamicresources (allocateddevices.go, dra_manager.go); KEP-5075 for
shares: each is counted, also where a device has no capacity that it could take a part of.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from stower.model.kinds import DEVICES, DeviceObject, Pod
from stower.model.kinds.device_class import DeviceClass
from stower.model.kinds.device_taint_rule import DeviceTaintRule
from stower.model.kinds.pod import PodResourceClaim, PodResourceClaimStatus
from stower.model.kinds.pod_group import PodGroup
from stower.model.kinds.resource_claim import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from stower.model.kinds.resource_slice import QuantityText, ResourceSlice
from stower.model.quantity import quantity_of
from stower.state.change_log import ChangeLog
from stower.state.class_resources import classes_by_resource
from stower.state.journal import Journal

if TYPE_CHECKING:
    from stower.state.pod_entry import PodEntry

PoolID = tuple[str, str]  # driver, pool
NANO: Final = -9
Extension = TypeVar("Extension")


class DeviceUsage(NamedTuple):
    """How a device is used: by so many claims alone (more than one only while they disagree), in
    so many shares, which have taken this much (nano-units) of each capacity."""

    exclusive_count: int = 0
    share_count: int = 0
    consumed_capacity: tuple[tuple[str, int], ...] = ()


UNUSED: Final = DeviceUsage()


class ClaimRef(NamedTuple):
    """A claim of a pod or group: its entry there, and the claim's name, None where there is none
    yet, "" where none is needed."""

    entry_name: str
    name: str | None
    is_generated: bool


def claim_refs(pod: Pod) -> Iterator[ClaimRef]:
    """The claims that a pod names, in its order (resourceclaim.Name)."""
    return _claim_refs(pod.spec.resource_claims, pod.status.resource_claim_statuses)


def distinct_claim_refs(pod: Pod) -> list[ClaimRef]:
    """The same, but each claim under the first entry that names it only."""
    found: dict[str, ClaimRef] = {}
    for ref in claim_refs(pod):
        found.setdefault(ref.name or f"/{ref.entry_name}", ref)
    return [*found.values()]


def group_claim_refs(group: PodGroup) -> Iterator[ClaimRef]:
    """The same of a group of pods (resourceclaim.NameFromPodGroup)."""
    return _claim_refs(group.spec.resource_claims, group.status.resource_claim_statuses)


def _claim_refs(
    entries: tuple[PodResourceClaim, ...] | None,
    statuses: tuple[PodResourceClaimStatus, ...] | None,
) -> Iterator[ClaimRef]:
    made = {status.name: status for status in statuses or ()}
    for entry in entries or ():
        yield _claim_ref(entry, made)


def _claim_ref(entry: PodResourceClaim, made: dict[str, PodResourceClaimStatus]) -> ClaimRef:
    if entry.resource_claim_name is not None:
        return ClaimRef(entry.name, entry.resource_claim_name, False)
    status = made.get(entry.name)
    if status is None:
        return ClaimRef(entry.name, None, True)
    return ClaimRef(entry.name, status.resource_claim_name or "", True)


class Devices:
    """All of them. `generation` grows with every change of an object or an assumption."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        # What was decided and is not to be after all, for whoever waits for devices.
        self.released_claims: list[ResourceClaim] = []
        self._claims: dict[str, ResourceClaim] = {}
        self._assumed: dict[str, ResourceClaim] = {}
        # The version from which on the API shows what was assumed, where that was written.
        self._expected: dict[str, str] = {}
        # By claim key: the version whose reservations are being taken back.
        self._revoked: dict[str, str] = {}
        # Claims that were made for extended resources, by their pod's uid.
        self._extended_claim_by_pod: dict[str, str] = {}
        self._displaced_pods: dict[str, None] = {}  # of these pods: those that have left in a trial
        self._class_by_resource: tuple[int, dict[str, str]] = (-1, {})
        self.generation = 0
        # Grow with a change of what there is, or of what may be chosen.
        self.slice_generation = 0
        self.rule_generation = 0
        self.class_generation = 0
        self._usage: dict[PoolID, dict[str, DeviceUsage]] = {}
        self._usage_versions: dict[PoolID, int] = {}
        self._counted_allocations: dict[
            str, AllocationResult
        ] = {}  # by claim key: what is counted for it
        self._users: dict[str, dict[str, PodEntry]] = {}  # placed pods, by claim key and uid
        # Pools in which something was taken or given back, and the names of slices that changed.
        self.pool_log: ChangeLog[PoolID] = ChangeLog()
        self.slice_log: ChangeLog[str] = ChangeLog()
        self._extensions: dict[type, object] = {}

    def extension(self, kind: type[Extension]) -> Extension:
        """What a higher layer keeps of these devices: made once, with this object."""
        part = self._extensions.get(kind)
        if part is None:
            part = self._extensions[kind] = kind(self)  # type: ignore[call-arg]
        return part  # type: ignore[return-value]

    # Objects

    def put(self, obj: DeviceObject) -> None:
        """An object as it is now."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            key = obj.metadata.key
            assumed = self._assumed.get(key)
            if assumed is not None:
                if self._supersedes(obj, assumed):
                    self._expected.pop(key, None)
                    self._release_assumed(key, obj.status.allocation)
                else:
                    # Something else about it has changed: what was decided still stands.
                    self._assumed[key] = msgspec.structs.replace(obj, status=assumed.status)
            self._claims[key] = obj
            if key in self._revoked and not self.is_revoked(obj):
                del self._revoked[key]
            owner = extended_claim_owner(obj)
            if owner:
                self._extended_claim_by_pod[owner] = key
            self._recount(key)
        elif isinstance(obj, ResourceSlice):
            self.slices[name] = obj
            self.slice_log.add(name)
            self.slice_generation += 1
        elif isinstance(obj, DeviceClass):
            self.classes[name] = obj
            self.class_generation += 1
        else:
            self.rules[name] = obj
            self.rule_generation += 1
            self.slice_generation += 1

    def drop(self, obj: DeviceObject) -> None:
        """It is gone."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            self._claims.pop(obj.metadata.key, None)
            self._release_assumed(obj.metadata.key)
            self._expected.pop(obj.metadata.key, None)
            self._revoked.pop(obj.metadata.key, None)
            owner = extended_claim_owner(obj)
            if self._extended_claim_by_pod.get(owner) == obj.metadata.key:
                del self._extended_claim_by_pod[owner]
            self._recount(obj.metadata.key)
        elif isinstance(obj, ResourceSlice):
            self.slices.pop(name, None)
            self.slice_log.add(name)
            self.slice_generation += 1
        elif isinstance(obj, DeviceClass):
            self.classes.pop(name, None)
            self.class_generation += 1
        else:
            self.rules.pop(name, None)
            self.rule_generation += 1
            self.slice_generation += 1

    def _supersedes(self, obj: ResourceClaim, assumed: ResourceClaim) -> bool:
        """Whether the API says how it is, whatever was assumed."""
        made = not assumed.metadata.uid  # by us: this is it, or it has taken the name
        if obj.status.allocation is not None:
            return True
        if obj.metadata.uid != assumed.metadata.uid and not made:
            return True
        expected = self._expected.get(obj.metadata.key, "")
        return bool(expected) and is_same_or_newer(obj.metadata.resource_version, expected)

    def _log_undo(self, obj: DeviceObject) -> None:
        if isinstance(obj, ResourceClaim):
            key = obj.metadata.key
            self._journal.log(self._assume, key, self._assumed.get(key))
        old = self.api_object(obj)
        if old is None:
            self._journal.log(self.drop, obj)
        else:
            self._journal.log(self.put, old)

    def api_object(self, obj: DeviceObject) -> DeviceObject | None:
        """What is known of the object, as the API has it."""
        if isinstance(obj, ResourceClaim):
            return self._claims.get(obj.metadata.key)
        if isinstance(obj, ResourceSlice):
            return self.slices.get(obj.metadata.name)
        if isinstance(obj, DeviceClass):
            return self.classes.get(obj.metadata.name)
        return self.rules.get(obj.metadata.name)

    def api_objects(self) -> list[DeviceObject]:
        """All of them, as the API has them."""
        return [
            *self.slices.values(), *self.classes.values(), *self.rules.values(),
            *self._claims.values(),
        ]  # fmt: skip

    # Claims

    def claim(self, key: str) -> ResourceClaim | None:
        """The claim of that namespace/name, as decided."""
        return self._assumed.get(key) or self._claims.get(key)

    def claims(self) -> Iterator[ResourceClaim]:
        """All claims, as decided; with those that are to be made."""
        for key, claim in self._claims.items():
            yield self._assumed.get(key, claim)
        for key, claim in self._assumed.items():
            if key not in self._claims:
                yield claim

    def assume_status(self, key: str, status: ResourceClaimStatus) -> None:
        """Decided, and not in the API yet: what the claim's status will be."""
        claim = self.claim(key)
        if claim is not None:
            self._assume_logged(key, msgspec.structs.replace(claim, status=status))

    def assume_made(self, claim: ResourceClaim) -> None:
        """Decided, and not in the API yet: there will be this claim. It has no uid."""
        self._assume_logged(claim.metadata.key, claim)

    def expect(self, key: str, version: str) -> None:
        """It was written: from that version on, the API says how it is."""
        if key not in self._assumed:
            return
        seen = self._claims.get(key)
        if (
            seen is not None
            and version
            and is_same_or_newer(seen.metadata.resource_version, version)
        ):
            self.restore(key)
        else:
            self._expected[key] = version

    def revoke(self, claim: ResourceClaim) -> None:
        """Somebody's reservation, as of this version, is being taken back: nobody knows yet whether
        it still is there."""
        self._revoked[claim.metadata.key] = claim.metadata.resource_version

    def is_revoked(self, claim: ResourceClaim) -> bool:
        """Whether the reservations of the claim as seen may be gone by now."""
        version = self._revoked.get(claim.metadata.key)
        return version is not None and is_same_or_newer(version, claim.metadata.resource_version)

    def cancel_revocation(self, key: str, version: str) -> None:
        """A reservation that was written once more is of this version: where that is the one as of
        which it was being taken back, that has come to nothing, and no news of it will come."""
        if self._revoked.get(key) == version:
            del self._revoked[key]

    def restore(self, key: str) -> None:
        """Take back what was decided about the claim, as far as the API does not have it."""
        self._expected.pop(key, None)
        if key in self._assumed:
            if self._journal.is_recording:
                self._journal.log(self._assume, key, self._assumed[key])
            self._release_assumed(key)
            self.generation += 1
            self._recount(key)

    def _release_assumed(self, key: str, api_allocation: AllocationResult | None = None) -> None:
        """What was decided is not counted on any more; the API has this instead."""
        claim = self._assumed.pop(key, None)
        allocation = claim.status.allocation if claim is not None else None
        is_other = api_allocation is None or (
            allocation and allocation.devices != api_allocation.devices
        )
        if claim is not None and is_other and not self._journal.is_recording:
            self.released_claims.append(claim)

    @property
    def has_assumptions(self) -> bool:
        """Whether something that was decided is not in the API yet."""
        return bool(self._assumed)

    def api_claim(self, key: str) -> ResourceClaim | None:
        """The claim as the API has it."""
        return self._claims.get(key)

    def api_claims(self) -> Iterator[ResourceClaim]:
        """All claims, as the API has them."""
        yield from self._claims.values()

    def extended_resource_claim(self, uid: str) -> ResourceClaim | None:
        """The claim that was made for the extended resources of the pod, as the API has it."""
        return self._claims.get(self._extended_claim_by_pod.get(uid, ""))

    @property
    def class_by_resource(self) -> dict[str, str]:
        """Device classes by the names of the extended resources that they stand for."""
        if self._class_by_resource[0] != self.class_generation:
            self._class_by_resource = (self.class_generation, classes_by_resource(self.classes))
        return self._class_by_resource[1]

    def _assume_logged(self, key: str, claim: ResourceClaim | None) -> None:
        if self._journal.is_recording:
            self._journal.log(self._assume, key, self._assumed.get(key))
        self._assume(key, claim)

    def _assume(self, key: str, claim: ResourceClaim | None) -> None:
        self.generation += 1
        if claim is None:
            self._assumed.pop(key, None)
        else:
            self._assumed[key] = claim
        self._recount(key)

    # What is held

    def usage(self, pool: PoolID) -> dict[str, DeviceUsage]:
        """How the devices of a pool are used, by name; those that are not are left out."""
        return self._usage.get(pool, {})

    def usage_version(self, pool: PoolID) -> int:
        """Another one whenever that has changed; 0 where nothing is used."""
        return self._usage_versions.get(pool, 0)

    def users(self, key: str) -> dict[str, "PodEntry"]:
        """The placed pods that use a claim."""
        return self._users.get(key, {})

    def pools_changed_since(self, position: int) -> list[PoolID] | None:
        """The pools that have changed since; None where that is not remembered any more."""
        return self.pool_log.entries_since(position)

    @property
    def log_position(self) -> int:
        return self.pool_log.position

    def add_pod(self, entry: "PodEntry") -> None:
        """A pod with claims was placed."""
        for key in claim_keys(entry.pod):
            self._users.setdefault(key, {})[entry.uid] = entry
            if self._journal.is_recording or self._journal.is_undoing:
                self._recount(key)
        if entry.uid in self._displaced_pods:
            del self._displaced_pods[entry.uid]
            self._recount(self._extended_claim_by_pod.get(entry.uid, ""))

    def remove_pod(self, entry: "PodEntry") -> None:
        """It left its node."""
        for key in claim_keys(entry.pod):
            users = self._users.get(key)
            if users is None or users.pop(entry.uid, None) is None:
                continue
            if not users:
                del self._users[key]
            if self._journal.is_recording or self._journal.is_undoing:
                self._recount(key)
        made = self._extended_claim_by_pod.get(entry.uid)
        if made is not None and self._journal.is_in_trial:
            self._displaced_pods[entry.uid] = None
            self._recount(made)

    def _recount(self, key: str) -> None:
        """What the claim holds, as it is now. In a trial, nothing once its last pod has left."""
        claim = self.claim(key)
        allocation = claim.status.allocation if claim is not None else None
        if claim is not None and allocation is not None and self._journal.is_in_trial:
            owner = extended_claim_owner(claim)
            has_user = owner not in self._displaced_pods if owner else key in self._users
            if claim.status.reserved_for and not has_user:
                allocation = None
        held = self._counted_allocations.get(key)
        if held is allocation:
            return
        if held is not None:
            self._count(held, -1)
            del self._counted_allocations[key]
        if allocation is not None:
            self._count(allocation, 1)
            self._counted_allocations[key] = allocation

    def _count(self, allocation: AllocationResult, sign: int) -> None:
        for result in allocation.devices.results or ():
            if result.admin_access:
                continue
            pool = (result.driver, result.pool)
            used = self._usage.setdefault(pool, {})
            use = used.get(result.device, UNUSED)
            if result.share_id is None:
                use = use._replace(exclusive_count=use.exclusive_count + sign)
            else:
                taken = dict(use.consumed_capacity)
                for name, text in (result.consumed_capacity or {}).items():
                    taken[name] = taken.get(name, 0) + sign * max(to_nano(text), 0)
                left = tuple(sorted((name, n) for name, n in taken.items() if n))
                use = DeviceUsage(use.exclusive_count, use.share_count + sign, left)
            if use == UNUSED:
                used.pop(result.device, None)
            else:
                used[result.device] = use
            self.pool_log.add(pool)
            self._usage_versions[pool] = self.pool_log.position
            if not used:
                del self._usage[pool], self._usage_versions[pool]


def extended_claim_owner(claim: ResourceClaim) -> str:
    """The uid of the pod for whose extended resources the claim was made, or ""."""
    meta = claim.metadata
    if (meta.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) == "true":
        return meta.controller_uid
    return ""


def to_nano(text: QuantityText) -> int:
    """A quantity in nano-units."""
    return quantity_of(text).round_up(NANO)


def claim_keys(pod: Pod) -> list[str]:
    """Keys of the claims that a pod names, as far as they have been made."""
    namespace = pod.metadata.namespace
    return [f"{namespace}/{ref.name}" for ref in claim_refs(pod) if ref.name]


def used_claim_keys(pod: Pod) -> list[str]:
    """The same, with the one that was made for its extended resources."""
    extended = pod.status.extended_resource_claim_status
    own = extended.resource_claim_name if extended is not None else ""
    return [*claim_keys(pod), *([f"{pod.metadata.namespace}/{own}"] if own else ())]


def is_same_or_newer(version: str, other: str) -> bool:
    """Whether an object's version is that of another one, or a later one."""
    try:
        return int(version) >= int(other)
    except ValueError:
        return version == other


def devices_of(objects: Iterable[object]) -> Devices:
    """What there is of devices among these objects, of whatever kinds."""
    devices = Devices(Journal())
    for obj in objects:
        if isinstance(obj, DEVICES):
            devices.put(obj)
    return devices
