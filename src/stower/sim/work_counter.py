"""Counts what the parts of the scheduler do, by the changes of objects on the server."""

from collections.abc import Mapping
from typing import Final

from stower.devices.negotiation.claims import class_names, driver_of
from stower.engine.groups.group_status import OF_GROUPS, OF_PODS, OF_PODS_ALPHA
from stower.framework.events import WatchType
from stower.model.kinds import (
    CompositePodGroup,
    Node,
    Pod,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
    VirtualMachine,
    VirtualMachineMigration,
    WarmPool,
)
from stower.sim.report import Part, Report
from stower.sim.server import Change, Server
from stower.vms.migrations import ENDED
from stower.vms.pods import APPROVED, migration_owner, vm_owner
from stower.warm.placeholders import NODE_ANNOTATION
from stower.warm.pools import Pool, Role

ADMITTED: Final = (OF_PODS, OF_GROUPS, OF_PODS_ALPHA)


class WorkCounter:
    """Counts in a report. Keeps no more than the uids of objects that exist."""

    def __init__(self, report: Report, server: Server) -> None:
        self._report = report
        self._server = server
        self._parts: dict[str, Part] = {}  # by uid of the pod, where it cannot change
        self._bound: set[str] = set()
        self._ending: set[str] = set()
        self._placed_groups: set[str] = set()
        self._allocated: dict[str, Part] = {}
        self._approved: dict[str, str] = {}
        self._ended: set[str] = set()
        self._negotiations: dict[str, tuple[int, str]] = {}

    def on_change(self, change: Change) -> None:
        """Takes a change of the server."""
        _, kind, obj = change
        is_deleted = kind is WatchType.DELETED
        if isinstance(obj, Pod):
            self._on_pod(kind, obj)
        elif isinstance(obj, ResourceClaim):
            self._on_claim(obj, is_deleted)
        elif isinstance(obj, PodGroup | CompositePodGroup):
            self._on_group(obj, is_deleted)
        elif isinstance(obj, PodScheduling):
            self._on_negotiation(obj, is_deleted)
        elif isinstance(obj, VirtualMachine):
            self._on_vm(obj, is_deleted)
        elif isinstance(obj, VirtualMachineMigration):
            self._on_migration(obj, kind)
        elif isinstance(obj, WarmPool) and kind is not WatchType.MODIFIED:
            self._parts.clear()
        elif isinstance(obj, Node):
            if kind is not WatchType.MODIFIED:
                self._count(Part.CLUSTER, "nodes removed" if is_deleted else "nodes added")

    def part_of(self, pod: Pod) -> Part:
        """Returns the part that the pod counts for."""
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            return self._part_of_claims(pod)
        found = self._parts.get(pod.metadata.uid)
        if found is None:
            found = self._part_by_owner(pod)
            if self._server.get(Pod, pod.metadata.key) is not None:
                self._parts[pod.metadata.uid] = found
        return found

    def _part_of_claims(self, pod: Pod) -> Part:
        if pod.group_name:
            return Part.GROUPS
        if classes := self._server.all(ResourceClass):
            names = [entry.resource_claim_name for entry in pod.spec.resource_claims or ()]
            names += [one.resource_claim_name for one in pod.status.resource_claim_statuses or ()]
            for name in names:
                claim = self._server.get(ResourceClaim, f"{pod.metadata.namespace}/{name}")
                if claim is not None and _is_negotiated(claim, classes):
                    return Part.NEGOTIATION
        return Part.DEVICES

    def _part_by_owner(self, pod: Pod) -> Part:
        if pod.group_name:
            return Part.GROUPS
        if vm_owner(pod) is not None or migration_owner(pod) is not None:
            return Part.VMS
        for pool in self._server.all(WarmPool).values():
            if Pool(pool.metadata.key, pool.spec, pool).role_of(pod) is not None:
                return Part.WARM
        return Part.PODS

    def _count(self, part: Part, what: str) -> None:
        self._report.part(part).count(what)

    def _on_pod(self, kind: WatchType, pod: Pod) -> None:
        uid = pod.metadata.uid
        is_ours = self._server.is_scheduler_writing
        is_ending = kind is WatchType.DELETED or pod.metadata.deletion_timestamp is not None
        if is_ending and uid not in self._ending and is_ours and pod.spec.node_name:
            self._count(self.part_of(pod), "pods evicted")
        if kind is WatchType.DELETED:
            self._ending.discard(uid)
            self._bound.discard(uid)
            self._parts.pop(uid, None)
            return
        if is_ending:
            self._ending.add(uid)
        elif pod.spec.node_name and uid not in self._bound:
            self._bound.add(uid)
            self._count(self.part_of(pod), "pods bound")
        if kind is WatchType.ADDED and is_ours and self._is_placeholder(pod):
            is_move = NODE_ANNOTATION in (pod.metadata.annotations or {})
            self._count(Part.WARM, "placeholders moved" if is_move else "placeholders made")

    def _is_placeholder(self, pod: Pod) -> bool:
        pools = self._server.all(WarmPool).values()
        roles = (Pool(pool.metadata.key, pool.spec, pool).role_of(pod) for pool in pools)
        return Role.PLACEHOLDER in roles

    def _on_claim(self, claim: ResourceClaim, is_deleted: bool) -> None:
        uid = claim.metadata.uid
        is_allocated = claim.status.allocation is not None and not is_deleted
        if is_allocated and uid not in self._allocated:
            is_negotiated = bool(driver_of(claim, self._server.all(ResourceClass)))
            part = self._allocated[uid] = Part.NEGOTIATION if is_negotiated else Part.DEVICES
            self._count(part, "claims allocated")
        elif not is_allocated and uid in self._allocated:
            self._count(self._allocated.pop(uid), "claims deallocated")

    def _on_group(self, group: PodGroup | CompositePodGroup, is_deleted: bool) -> None:
        uid = group.metadata.uid
        if is_deleted:
            self._placed_groups.discard(uid)
        elif uid not in self._placed_groups and any(
            condition.type in ADMITTED and condition.status == "True"
            for condition in group.status.conditions or ()
        ):
            self._placed_groups.add(uid)
            is_tree = isinstance(group, CompositePodGroup)
            self._count(Part.GROUPS, "composite groups placed" if is_tree else "groups placed")

    def _on_negotiation(self, found: PodScheduling, is_deleted: bool) -> None:
        uid, spec = found.metadata.uid, found.spec
        if is_deleted:
            self._negotiations.pop(uid, None)
            self._count(Part.NEGOTIATION, "negotiations ended")
            return
        if uid not in self._negotiations:
            self._count(Part.NEGOTIATION, "negotiations begun")
        round, node_name = self._negotiations.get(uid, (0, ""))
        if spec.round > round:
            self._count(Part.NEGOTIATION, "rounds")
        if spec.selected_node and spec.selected_node != node_name:
            self._count(Part.NEGOTIATION, "nodes selected")
        self._negotiations[uid] = (spec.round, spec.selected_node)

    def _on_vm(self, vm: VirtualMachine, is_deleted: bool) -> None:
        uid = vm.metadata.uid
        approved = (vm.metadata.annotations or {}).get(APPROVED, "")
        if is_deleted:
            self._approved.pop(uid, None)
        elif approved != self._approved.get(uid, ""):
            self._approved[uid] = approved
            if self._server.is_scheduler_writing:
                self._count(Part.VMS, "approvals")

    def _on_migration(self, migration: VirtualMachineMigration, kind: WatchType) -> None:
        uid, phase = migration.metadata.uid, migration.status.phase
        if kind is WatchType.DELETED:
            self._ended.discard(uid)
        elif kind is WatchType.ADDED and self._server.is_scheduler_writing:
            self._count(Part.VMS, "migrations begun")
        elif phase in ENDED and uid not in self._ended:
            self._ended.add(uid)
            self._count(Part.VMS, f"migrations {phase.lower()}")


def _is_negotiated(claim: ResourceClaim, classes: Mapping[str, ResourceClass]) -> bool:
    return bool(driver_of(claim, classes)) or any(name in classes for name in class_names(claim))
