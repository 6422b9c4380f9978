"""Devices as the API has them (slices, classes, taint rules, claims), and the devices that claims
use.

A claim uses the devices of its allocation from the moment of the scheduler's decision (an
assumption), until the API shows another state or the decision is withdrawn. In a trial, a claim
uses nothing once all its pods were taken off their nodes. Must not know how devices are chosen.

Sources: kube-scheduler plugins/dynamicresources (allocateddevices.go, dra_manager.go); KEP-5075 for
shares: each share is counted, also on a device without a capacity that it could consume.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from stower.model.derived import Derived, forget
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
from stower.model.kinds.resource_slice import ResourceSlice
from stower.state.allocation_order import AllocationOrder
from stower.state.change_log import ChangeLog
from stower.state.class_resources import classes_by_resource
from stower.state.device_usage import DeviceUsage, PoolID, UsageCounts
from stower.state.journal import Journal

if TYPE_CHECKING:
    from stower.state.pod_entry import PodEntry

Extension = TypeVar("Extension")


class ClaimRef(NamedTuple):
    """A reference of a pod or pod group to a claim. entry_name: the entry in its spec; name: the
    claim's name, None where the claim is not created yet, "" where no claim is needed;
    is_generated: whether the claim is created from a template."""

    entry_name: str
    name: str | None
    is_generated: bool


def claim_refs(pod: Pod) -> Iterator[ClaimRef]:
    """Yields the claim references of a pod, in the order of its spec (resourceclaim.Name)."""
    return _claim_refs(pod.spec.resource_claims, pod.status.resource_claim_statuses)


def distinct_claim_refs(pod: Pod) -> list[ClaimRef]:
    """Returns the claim references of a pod, each claim only by the first entry that names it."""
    return _DISTINCT_REFS.of(pod) if pod.spec.resource_claims else []


def _find_distinct_refs(pod: Pod) -> list[ClaimRef]:
    found: dict[str, ClaimRef] = {}
    for ref in claim_refs(pod):
        found.setdefault(ref.name or f"/{ref.entry_name}", ref)
    return [*found.values()]


_DISTINCT_REFS: Final = Derived(_find_distinct_refs)


def group_claim_refs(group: PodGroup) -> Iterator[ClaimRef]:
    """Yields the claim references of a pod group (resourceclaim.NameFromPodGroup)."""
    return _claim_refs(group.spec.resource_claims, group.status.resource_claim_statuses)


def _claim_refs(
    entries: tuple[PodResourceClaim, ...] | None,
    statuses: tuple[PodResourceClaimStatus, ...] | None,
) -> Iterator[ClaimRef]:
    status_by_entry = {status.name: status for status in statuses or ()}
    for entry in entries or ():
        yield _claim_ref(entry, status_by_entry)


def _claim_ref(
    entry: PodResourceClaim, status_by_entry: dict[str, PodResourceClaimStatus]
) -> ClaimRef:
    if entry.resource_claim_name is not None:
        return ClaimRef(entry.name, entry.resource_claim_name, False)
    status = status_by_entry.get(entry.name)
    if status is None:
        return ClaimRef(entry.name, None, True)
    return ClaimRef(entry.name, status.resource_claim_name or "", True)


def may_use_devices(entry: "PodEntry") -> bool:
    """Returns whether a pod may have devices: through claims, or for extended resources."""
    return entry.shape.has_claims or bool(entry.shape.extended_requests)


class Devices:
    """All objects about devices, the assumptions about claims, and the usage of every device.
    `generation` grows with every change of an object or an assumption."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        # Claims whose assumption was dropped, until the engine wakes pods that wait for devices.
        self.released_claims: list[ResourceClaim] = []
        self._claims: dict[str, ResourceClaim] = {}  # by key, as the API has them
        self._assumed_claims: dict[str, ResourceClaim] = {}  # by key, where not as the API has them
        # By claim key: the version from which on the API shows the assumption, once written.
        self._expected_versions: dict[str, str] = {}
        # By claim key: the version whose reservations are being taken back.
        self._revoked_versions: dict[str, str] = {}
        # Keys of the claims that were created for extended resources, by their pod's uid.
        self._extended_claim_by_pod: dict[str, str] = {}
        # Uids of the pods that the open trials have displaced, by the keys of their claims.
        self._displaced_users: dict[str, dict[str, None]] = {}
        self.is_sharing = False  # whether pods of an attempt share claims: devices/claim_sharing.py
        # The class generation and the mapping that was computed for it.
        self._class_by_resource: tuple[int, dict[str, str]] = (-1, {})
        # Keys of the ResourceClaimTemplates, as far as whoever asks knows them: schedulers do not.
        self.template_keys: frozenset[str] | None = None
        self.now_ns = 0  # of the state's last step
        self.generation = 0
        # Grow with changes of the claims in the API, of the devices (slices and taint rules), of
        # the taint rules, and of the classes.
        self.claim_generation = 0
        self.slice_generation = 0
        self.rule_generation = 0
        self.class_generation = 0
        self._usage = UsageCounts()
        self.allocation_order = AllocationOrder()
        # By claim key: the allocation that is counted in the usage.
        self._counted_allocations: dict[str, AllocationResult] = {}
        self._users: dict[str, dict[str, PodEntry]] = {}  # placed pods, by claim key and uid
        self.slice_log: ChangeLog[str] = ChangeLog()
        self._extensions: dict[type, object] = {}

    def extension(self, kind: type[Extension]) -> Extension:
        """Returns what a higher layer keeps about these devices: the one instance of `kind`, which
        the first call creates from this object."""
        instance = self._extensions.get(kind)
        if instance is None:
            instance = self._extensions[kind] = kind(self)  # type: ignore[call-arg]
        return instance  # type: ignore[return-value]

    # Objects

    def put(self, obj: DeviceObject) -> None:
        """Adds or replaces an object."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            self.claim_generation += 1
            key = obj.metadata.key
            assumed = self._assumed_claims.get(key)
            if assumed is not None:
                if self._supersedes(obj, assumed):
                    self._expected_versions.pop(key, None)
                    self._release_assumed(key, obj.status.allocation)
                else:
                    # Another part of the claim has changed: the assumed status stands.
                    self._assumed_claims[key] = msgspec.structs.replace(obj, status=assumed.status)
                    forget(assumed)
            if self._extended_claim_by_pod:
                self._forget_extended_owner(key)
            forget(self._claims.get(key))
            self._claims[key] = obj
            if not (self._journal.is_recording or self._journal.is_undoing):
                self.allocation_order.observe(key, obj)
            if key in self._revoked_versions and not self.is_revoked(obj):
                del self._revoked_versions[key]
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
        """Removes an object."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            self.claim_generation += 1
            self._forget_extended_owner(obj.metadata.key)
            forget(self._claims.pop(obj.metadata.key, None))
            if not (self._journal.is_recording or self._journal.is_undoing):
                self.allocation_order.observe(obj.metadata.key, None)
            self._release_assumed(obj.metadata.key)
            self._expected_versions.pop(obj.metadata.key, None)
            self._revoked_versions.pop(obj.metadata.key, None)
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

    def _forget_extended_owner(self, key: str) -> None:
        """Drops the claim's pod, as the API has had it: it may have another owner now, or none."""
        old = self._claims.get(key)
        owner = extended_claim_owner(old) if old is not None else ""
        if owner and self._extended_claim_by_pod.get(owner) == key:
            del self._extended_claim_by_pod[owner]

    def _supersedes(self, obj: ResourceClaim, assumed: ResourceClaim) -> bool:
        """Returns whether the claim in the API ends the assumption."""
        # A claim without uid was to be created: `obj` is that claim, or another of its name.
        is_created = not assumed.metadata.uid
        if obj.status.allocation is not None:
            return True
        if obj.metadata.uid != assumed.metadata.uid and not is_created:
            return True
        expected = self._expected_versions.get(obj.metadata.key, "")
        return bool(expected) and is_same_or_newer(obj.metadata.resource_version, expected)

    def _log_undo(self, obj: DeviceObject) -> None:
        if isinstance(obj, ResourceClaim):
            key = obj.metadata.key
            self._journal.log(self._assume, key, self._assumed_claims.get(key))
        old = self.api_object(obj)
        if old is None:
            self._journal.log(self.drop, obj)
        else:
            self._journal.log(self.put, old)

    def api_object(self, obj: DeviceObject) -> DeviceObject | None:
        """Returns the object as the API has it, None where it has none."""
        if isinstance(obj, ResourceClaim):
            return self._claims.get(obj.metadata.key)
        if isinstance(obj, ResourceSlice):
            return self.slices.get(obj.metadata.name)
        if isinstance(obj, DeviceClass):
            return self.classes.get(obj.metadata.name)
        return self.rules.get(obj.metadata.name)

    def api_objects(self) -> list[DeviceObject]:
        """Returns all objects as the API has them."""
        return [
            *self.slices.values(), *self.classes.values(), *self.rules.values(),
            *self._claims.values(),
        ]  # fmt: skip

    # Claims

    def claim(self, key: str) -> ResourceClaim | None:
        """Returns the claim of that namespace/name: as assumed, else as the API has it."""
        return self._assumed_claims.get(key) or self._claims.get(key)

    def claims(self) -> Iterator[ResourceClaim]:
        """Yields all claims, as assumed where there is an assumption, also those that are yet to
        be created."""
        for key, claim in self._claims.items():
            yield self._assumed_claims.get(key, claim)
        for key, claim in self._assumed_claims.items():
            if key not in self._claims:
                yield claim

    def adopt_assumptions(self, other: "Devices") -> None:
        """Takes over the assumptions of another state's devices, but those that the objects here
        have ended; and the order of allocations."""
        self.allocation_order.adopt(other.allocation_order)
        for key, claim in other._assumed_claims.items():
            seen = self._claims.get(key)
            expected = other._expected_versions.get(key)
            if expected is not None:
                self._expected_versions[key] = expected
            if (
                seen is not None
                and seen != other._claims.get(key)
                and self._supersedes(seen, claim)
            ):
                self._expected_versions.pop(key, None)
                continue
            if seen is not None or not claim.metadata.uid:
                self._assume(key, claim)
        for key, version in other._revoked_versions.items():
            self._revoked_versions[key] = version
            seen = self._claims.get(key)
            if seen is None or not self.is_revoked(seen):
                del self._revoked_versions[key]

    def assumptions_view(self) -> dict[str, ResourceClaim]:
        """Returns all assumed claims by key, for comparing states."""
        return dict(self._assumed_claims)

    def usage_view(self) -> dict[PoolID, dict[str, DeviceUsage]]:
        """Returns the usage of all devices in use, for comparing states."""
        return self._usage.view()

    def assumed_claim(self, key: str) -> ResourceClaim | None:
        """Returns the claim as assumed, where that is not as the API has it."""
        return self._assumed_claims.get(key)

    def assume_status(self, key: str, status: ResourceClaimStatus) -> None:
        """Assumes a status of the claim that was decided and that the API does not show yet."""
        claim = self.claim(key)
        if claim is not None:
            self._assume_logged(key, msgspec.structs.replace(claim, status=status))

    def assume_made(self, claim: ResourceClaim) -> None:
        """Assumes a claim that is to be created. It has no uid."""
        self._assume_logged(claim.metadata.key, claim)

    def expect(self, key: str, version: str) -> None:
        """Records that the assumption was written: the assumption ends with that version of the
        claim."""
        if key not in self._assumed_claims:
            return
        seen = self._claims.get(key)
        if (
            seen is not None
            and version
            and is_same_or_newer(seen.metadata.resource_version, version)
        ):
            self.restore(key)
        else:
            self._expected_versions[key] = version

    def revoke(self, claim: ResourceClaim) -> None:
        """Records that a reservation in this version of the claim is being taken back. Until a
        newer version comes, it is unknown whether the reservation still exists."""
        self._revoked_versions[claim.metadata.key] = claim.metadata.resource_version

    def is_revoked(self, claim: ResourceClaim) -> bool:
        """Returns whether reservations in this version of the claim may have been removed since."""
        version = self._revoked_versions.get(claim.metadata.key)
        return version is not None and is_same_or_newer(version, claim.metadata.resource_version)

    def cancel_revocation(self, key: str, version: str) -> None:
        """Records that a reservation was written again, and was still there in this version. Where
        that is the version of the revocation, the revocation has failed, and no newer version will
        show it."""
        if self._revoked_versions.get(key) == version:
            del self._revoked_versions[key]

    def restore(self, key: str) -> None:
        """Withdraws the assumption about a claim: the claim counts as the API has it."""
        self._expected_versions.pop(key, None)
        if key in self._assumed_claims:
            if self._journal.is_recording:
                self._journal.log(self._assume, key, self._assumed_claims[key])
            self._release_assumed(key)
            self.generation += 1
            self._recount(key)

    def _release_assumed(self, key: str, api_allocation: AllocationResult | None = None) -> None:
        """Drops the assumption about a claim. Adds the claim to `released_claims` unless the API's
        allocation has the same devices."""
        claim = self._assumed_claims.pop(key, None)
        forget(claim)
        allocation = claim.status.allocation if claim is not None else None
        is_other = api_allocation is None or (
            allocation and allocation.devices != api_allocation.devices
        )
        if claim is not None and is_other and not self._journal.is_recording:
            self.released_claims.append(claim)

    @property
    def has_assumptions(self) -> bool:
        """Whether the API does not show some assumption yet."""
        return bool(self._assumed_claims)

    def api_claim(self, key: str) -> ResourceClaim | None:
        """Returns the claim as the API has it."""
        return self._claims.get(key)

    def allocatable_claim(self, key: str) -> ResourceClaim | None:
        """Returns the claim as the API has it; in a trial that has displaced all pods of the claim,
        without its allocation, as it is once these pods are deleted."""
        claim = self._claims.get(key)
        if claim is None or claim.status.allocation is None or not self._journal.is_in_trial:
            return claim
        if key in self._counted_allocations:
            return claim
        return msgspec.structs.replace(claim, status=ResourceClaimStatus())

    def api_claims(self) -> Iterator[ResourceClaim]:
        """Yields all claims as the API has them."""
        yield from self._claims.values()

    def extended_resource_claim(self, uid: str) -> ResourceClaim | None:
        """Returns the claim that was created for the extended resources of the pod of this uid, as
        the API has it."""
        return self._claims.get(self._extended_claim_by_pod.get(uid, ""))

    @property
    def class_by_resource(self) -> dict[str, str]:
        """Device class names by the extended resource that they stand for."""
        if self._class_by_resource[0] != self.class_generation:
            self._class_by_resource = (self.class_generation, classes_by_resource(self.classes))
        return self._class_by_resource[1]

    def _assume_logged(self, key: str, claim: ResourceClaim | None) -> None:
        if self._journal.is_recording:
            self._journal.log(self._assume, key, self._assumed_claims.get(key))
        self._assume(key, claim)

    def _assume(self, key: str, claim: ResourceClaim | None) -> None:
        self.generation += 1
        if claim is None:
            self._assumed_claims.pop(key, None)
        else:
            self._assumed_claims[key] = claim
        self._recount(key)

    # Usage

    def usage(self, pool: PoolID) -> dict[str, DeviceUsage]:
        """Returns the usage of a pool's devices by name. Unused devices are left out."""
        return self._usage.of_pool(pool)

    def usage_version(self, pool: PoolID) -> int:
        """Returns a number that differs after every change of the pool's usage; 0 where no device
        is used."""
        return self._usage.version(pool)

    def claims_of_pool(self, pool: PoolID) -> Iterable[str]:
        """Returns the keys of the claims that use devices of a pool."""
        return self._usage.claims(pool)

    def users(self, key: str) -> dict[str, "PodEntry"]:
        """Returns the placed pods that use a claim, by uid."""
        return self._users.get(key, {})

    def has_bound_users(self, key: str) -> bool:
        """Returns whether a pod that the API shows on a node uses the claim."""
        return any(not entry.is_assumed for entry in self.users(key).values())

    def pools_changed_since(self, position: int) -> list[PoolID] | None:
        """Returns the pools whose usage has changed after a position of the log of usage; None
        where the log has dropped some changes."""
        return self._usage.log.entries_since(position)

    @property
    def log_position(self) -> int:
        """The current position of the log of usage."""
        return self._usage.log.position

    def add_pod(self, entry: "PodEntry") -> None:
        """Adds a pod with claims that was placed."""
        for key in claim_keys(entry.pod):
            self._users.setdefault(key, {})[entry.uid] = entry
        if self._journal.is_recording or self._journal.is_undoing:
            self._recount_displaced(entry, is_placed=True)

    def remove_pod(self, entry: "PodEntry") -> None:
        """Removes a pod with claims that has left its node."""
        for key in claim_keys(entry.pod):
            users = self._users.get(key)
            if users is None or users.pop(entry.uid, None) is None:
                continue
            if not users:
                del self._users[key]
        if self._journal.is_recording or self._journal.is_undoing:
            self._recount_displaced(entry, is_placed=False)

    def _recount_displaced(self, entry: "PodEntry", is_placed: bool) -> None:
        """Counts the claims of a pod that a trial, or its rollback, has placed or displaced."""
        extended = self._extended_claim_by_pod.get(entry.uid)
        for key in (*claim_keys(entry.pod), *([extended] if extended is not None else ())):
            was_displaced = entry.uid in self._displaced_users.get(key, ())
            if self._journal.is_recording and was_displaced is is_placed:
                self._set_displaced(key, entry.uid, not is_placed)
            else:  # a rollback sets it by the journal
                self._recount(key)

    def _set_displaced(self, key: str, uid: str, is_displaced: bool) -> None:
        """Records whether the open trials have displaced a user of a claim."""
        if self._journal.is_recording:
            self._journal.log(self._set_displaced, key, uid, not is_displaced)
        displaced = self._displaced_users.setdefault(key, {})
        if is_displaced:
            displaced[uid] = None
        else:
            del displaced[uid]
        if not displaced:
            del self._displaced_users[key]
        self._recount(key)

    def _recount(self, key: str) -> None:
        """Counts the current allocation of a claim in the usage. In a trial that has displaced its
        last pod, a claim uses nothing."""
        claim = self.claim(key)
        allocation = claim.status.allocation if claim is not None else None
        if claim is not None and allocation is not None and self._journal.is_in_trial:
            is_displaced = key in self._displaced_users and key not in self._users
            if claim.status.reserved_for and is_displaced:
                allocation = None
        counted = self._counted_allocations.get(key)
        if counted is allocation:
            return
        if counted is not None:
            self._usage.remove(key, counted)
            del self._counted_allocations[key]
        if allocation is not None:
            self._usage.add(key, allocation)
            self._counted_allocations[key] = allocation


def extended_claim_owner(claim: ResourceClaim) -> str:
    """Returns the uid of the pod for whose extended resources the claim was created, or ""."""
    meta = claim.metadata
    if (meta.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) == "true":
        return meta.controller_uid
    return ""


def claim_keys(pod: Pod) -> list[str]:
    """Returns the keys of the claims that a pod refers to, as far as they have been created."""
    return _CLAIM_KEYS.of(pod) if pod.spec.resource_claims else []


def _find_claim_keys(pod: Pod) -> list[str]:
    namespace = pod.metadata.namespace
    return [f"{namespace}/{ref.name}" for ref in claim_refs(pod) if ref.name]


_CLAIM_KEYS: Final = Derived(_find_claim_keys)


def used_claim_keys(pod: Pod) -> list[str]:
    """Returns the keys of all claims of a pod, with the one that was created for its extended
    resources."""
    extended = pod.status.extended_resource_claim_status
    name = extended.resource_claim_name if extended is not None else ""
    return [*claim_keys(pod), *([f"{pod.metadata.namespace}/{name}"] if name else ())]


def is_same_or_newer(version: str, other: str) -> bool:
    """Returns whether a resourceVersion is equal to another one or later. Versions that are not
    numbers are compared for equality."""
    try:
        return int(version) >= int(other)
    except ValueError:
        return version == other


def devices_of(objects: Iterable[object]) -> Devices:
    """Returns a Devices of the device objects among these objects, which may be of any kind."""
    devices = Devices(Journal())
    for obj in objects:
        if isinstance(obj, DEVICES):
            devices.put(obj)
    return devices
