"""Handles watch events of all kinds but pods and nodes: updates the state, and wakes waiting pods.

Must not know how pods are scheduled.

Source: kube-scheduler eventhandlers.go.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from stower.devices.reached_nodes import only_row, reached_nodes
from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.context import Context
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import CHANGES_BY_KIND, Change, ClusterEvent
from stower.model.kinds import (
    DEVICES,
    GROUPS,
    NEGOTIATING,
    SELECTING,
    STORAGE,
    ApiObject,
    DeviceClass,
    GroupObject,
    Node,
    Pod,
    PodDisruptionBudget,
    PodScheduling,
    ResourceClaim,
    ResourceSlice,
)
from stower.state.device_quantities import has_readable_quantities
from stower.state.devices import extended_claim_owner

STORED: Final = (*STORAGE, *DEVICES, *GROUPS, *NEGOTIATING)
# Kinds that the state holds in other places.
KNOWN: Final = (Node, Pod, PodDisruptionBudget)


class GroupObserver(Protocol):
    """Receives changes of pod groups; attached if groups are used."""

    def on_group(self, obj: GroupObject, is_deleted: bool, has_changed: bool) -> None:
        """Called when a group was added, changed or deleted; `has_changed`: more than its status
        changed."""


class ObjectEvents:
    """Applies objects that watches show."""

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        binding: BindingCycle,
        pending: PendingWrites,
    ) -> None:
        self._state = context.state
        self._queue = queue
        self._pre_bind = binding.pre_bind
        self._overcommitted = binding.overcommitted
        self._pending = pending
        self.groups: GroupObserver | None = None
        # Objects of kinds of which the state keeps extracts or nothing, by kind and name.
        self.others: dict[tuple[type, str, str], ApiObject] = {}

    def _keep(self, obj: ApiObject, is_deleted: bool) -> None:
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        if is_deleted:
            self.others.pop(key, None)
        else:
            self.others[key] = obj

    def handle_object(self, obj: ApiObject, is_deleted: bool) -> None:
        """Applies an object that was added, modified or deleted; ignores unknown kinds."""
        state = self._state
        # Upstream wakes no pod for these two kinds either.
        if isinstance(obj, SELECTING):
            self._keep(obj, is_deleted)
            if is_deleted:
                state.pod_selectors.drop(obj)
            else:
                state.pod_selectors.put(obj)
        elif isinstance(obj, PodDisruptionBudget):
            if is_deleted:
                state.budgets.drop(obj)
            else:
                state.budgets.put(obj)
        else:
            self._store_object(obj, is_deleted)

    def _store_object(self, obj: ApiObject, is_deleted: bool) -> None:
        """Applies an object of a kind that the state stores. A slice or claim with an unreadable
        quantity counts as deleted, as a node does."""
        store = self._store(obj)
        if store is None:
            self._keep(obj, is_deleted)
            return
        old = store.api_object(obj)
        if isinstance(obj, DEVICES) and not is_deleted:
            # The quantities of a claim that is known have been checked, unless they have changed.
            is_checked = (
                isinstance(obj, ResourceClaim)
                and old is not None
                and old.spec == obj.spec
                and old.status.allocation == obj.status.allocation
            )
            is_deleted = not is_checked and not has_readable_quantities(obj)
        if is_deleted:
            store.drop(obj)
        else:
            store.put(obj)
        if isinstance(obj, DeviceClass):
            self._state.renew_partial_shapes()
        if isinstance(obj, ResourceClaim) and (
            is_deleted
            or self._overcommitted.open
            or (obj.status.allocation is not None and not _has_same_users(old, obj))
        ):
            self._overcommitted.on_claim(obj, is_deleted)
        elif isinstance(obj, ResourceSlice):
            self._overcommitted.on_slice(obj)
        self._pre_bind.on_object_change(obj)
        self._pending.observe(obj, is_deleted)
        if isinstance(obj, GROUPS) and self.groups is not None:
            self.groups.on_group(obj, is_deleted, is_deleted or old is None or _differs(old, obj))
        if old is None if is_deleted else old == obj:
            return  # shown before
        added, updated, deleted = CHANGES_BY_KIND[type(obj)]
        change = deleted if is_deleted else added if old is None else updated
        if change and self._queue.is_waiting:
            self._wake(change, old, None if is_deleted else obj, obj)

    def _wake(self, change: Change, old: Any, new: Any, obj: ApiObject) -> None:
        state, queue = self._state, self._queue
        freed: set[str] | None = set()  # nodes on which devices are free now; None: unknown
        subject = ""  # the uid of the only pod that the change may help
        if isinstance(obj, ResourceClaim):
            if _frees_devices(old, new):
                freed = reached_nodes(old, state)
            subject = "" if freed or freed is None else extended_claim_owner(obj)
        elif isinstance(obj, PodScheduling):
            subject = state.uid_by_key.get(obj.metadata.key, "")
        event = ClusterEvent(change, old_object=old, object=new, row=only_row(freed, state))
        if subject or isinstance(obj, PodScheduling):
            queued = queue.get(subject)
            if queued is not None:
                queue.update(queued.tree or queued, event, state.now_ns)
            return
        is_own = isinstance(obj, ResourceClaim) and freed == set()
        queue.wake(event, state.now_ns, obj.metadata.key if is_own else "")

    def wake_for_freed_devices(self) -> None:
        """Requeues pods for devices that were freed without an event: the API never showed them as
        allocated."""
        devices = self._state.devices
        released_claims, devices.released_claims = devices.released_claims, []
        for old in released_claims if self._queue.is_waiting else ():
            seen = devices.api_claim(old.metadata.key)
            change = Change.RESOURCE_CLAIM_UPDATED
            row = only_row(reached_nodes(old, self._state), self._state)
            cluster_event = ClusterEvent(change, old_object=old, object=seen, row=row)
            self._queue.wake(cluster_event, self._state.now_ns)

    def handle_list(self, objects: Iterable[ApiObject]) -> None:
        """Applies a list of all objects but nodes and pods: those that are not in it are
        deleted."""
        state = self._state
        state.pod_selectors.clear()
        state.budgets.clear()
        self.others.clear()
        for obj in objects:
            if isinstance(obj, SELECTING):
                self._keep(obj, False)
                state.pod_selectors.put(obj)
            elif not isinstance(obj, (*KNOWN, *STORED)):
                self._keep(obj, False)
        for obj in objects:
            if isinstance(obj, PodDisruptionBudget):
                state.budgets.put(obj)
        found = [obj for obj in objects if isinstance(obj, STORED)]
        names = {(type(o), o.metadata.namespace, o.metadata.name) for o in found}
        stores: tuple[Any, ...] = (
            state.volumes, state.devices, state.groups, state.negotiations,
        )  # fmt: skip
        state.devices.allocation_order.begin_list()
        for known in [obj for store in stores for obj in store.api_objects()]:
            if (type(known), known.metadata.namespace, known.metadata.name) not in names:
                self._store_object(known, True)
        for obj in found:
            store = self._store(obj)
            if store is not None and store.api_object(obj) != obj:
                self._store_object(obj, False)
        state.devices.allocation_order.end_list()
        self._overcommitted.check_all()

    def _store(self, obj: ApiObject) -> Any:
        """Returns the part of the state that keeps objects of the kind, or None."""
        if isinstance(obj, STORAGE):
            return self._state.volumes
        if isinstance(obj, NEGOTIATING):
            return self._state.negotiations
        if isinstance(obj, GROUPS):
            return self._state.groups
        return self._state.devices if isinstance(obj, DEVICES) else None


def _has_same_users(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    had = old.status.allocation if old is not None else None
    has = new.status.allocation
    if had is None or has is None or old is None:
        return False
    return had.devices == has.devices and old.status.reserved_for == new.status.reserved_for


def _frees_devices(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Returns whether devices that a claim had are free for other claims."""
    had = old.status.allocation if old is not None else None
    return had is not None and (new is None or new.status.allocation is None)


def _differs(old: GroupObject, new: GroupObject) -> bool:
    """Returns whether more than a group's status changed."""
    was, now = old.metadata, new.metadata
    return old.spec != new.spec or (was.labels, was.annotations, was.uid) != (
        now.labels, now.annotations, now.uid,
    )  # fmt: skip
