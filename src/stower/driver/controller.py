"""The controller of a resource driver, sans I/O: takes watch events and results, and returns writes
to the API and calls of the driver. A result has the id of its write or call.

The rules (rules.py) decide from the watched objects and the ledger alone. The controller keeps the
operations in flight (operations.py), the driver's answers about nodes (node_suitability.py), and
the keys of the objects to reconcile next (work_queue.py). Must not know how calls and writes are
executed (executor.py, stower.live.driver).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stower.devices.negotiation.claims import driver_of, is_leaving
from stower.driver.ledger import Entry
from stower.driver.messages import (
    AdoptCall,
    AdoptResult,
    AllocateCall,
    AllocateResult,
    DeallocateCall,
    DeallocateResult,
    Event,
    ExaminationResult,
    Output,
)
from stower.driver.node_suitability import REFRESH, NodeSuitability
from stower.driver.objects import Key, Objects
from stower.driver.operations import Operation, Operations
from stower.driver.outbox import Outbox
from stower.driver.rules import (
    Action,
    Free,
    ObjectReader,
    Rules,
    Take,
    Write,
    adopted_entry,
    allocation_patch,
    claim_actions,
    free_abandoned,
    is_allocated_by,
    pod_actions,
)
from stower.driver.work_queue import WorkQueue
from stower.framework.events import Listed, Observed, WatchType, WriteFailed, WriteOk
from stower.framework.retries import CONFLICT
from stower.framework.writes import no_op_patch
from stower.model.kinds import ApiObject, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.state.devices import claim_keys

VIEWS: Final = (Pod, ResourceClaim, ResourceClass, PodScheduling)  # the kinds to watch
ADOPT: Final[Key] = (object, "adopt")  # the timer's key in the work queue
ADOPT_RETRY_NS: Final = SECOND_NS
BLOCKED_NS: Final = 3 * SECOND_NS  # until work that found an object blocked is tried again
RETRIABLE: Final = (404, 429)  # a retry may succeed, or the object is gone


class Counts(msgspec.Struct):
    """The numbers of a driver's results since its start, for its metrics."""

    answers: int = 0
    allocations: int = 0
    refusals: int = 0
    deallocations: int = 0
    conflicts: int = 0
    errors: int = 0


class Controller:
    """Reconciles the claims and pods of one driver."""

    def __init__(
        self, driver: str, entries: Mapping[str, Entry], rules: Rules | None = None
    ) -> None:
        """`entries`: the driver's ledger by claim uid, updated by the caller as it executes
        AllocateCall, DeallocateCall and AdoptCall."""
        self.driver = driver
        self.counts = Counts()
        self.seen: ObjectReader = (objects := Objects())
        self._objects = objects
        self._outbox = Outbox(driver)
        self._queue = WorkQueue(self._outbox)
        self._operations = Operations(self._outbox, self._queue, objects)
        self._suitability = NodeSuitability(self._outbox, self._queue)
        self._entries = entries
        self._uids: dict[str, dict[str, None]] = {}  # by claim key: uids that may have entries
        for entry in entries.values():
            self._index_entry(entry)
        self._rules = rules or Rules()
        self._is_listed = False  # the first list came, and its allocations are in the ledger
        self._adopting: AdoptCall | None = None

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which to send a Tick if no other event comes before; None for never."""
        return self._queue.next_timer_ns

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight and no object is due."""
        return (
            self._operations.is_empty
            and not self._suitability.is_asking
            and self._queue.is_empty
            and self._adopting is None
        )

    def step(self, event: Event, now_ns: int) -> list[Output]:
        """Processes one event and returns the outputs to execute now."""
        self._outbox.start_step(now_ns)
        if isinstance(event, Observed):
            self._observe(event.object, event.type is WatchType.DELETED)
        elif isinstance(event, Listed):
            self._on_list(event)
        elif isinstance(event, ExaminationResult):
            self._on_examination_result(event)
        elif isinstance(event, AllocateResult):
            self._on_allocate_result(event)
        elif isinstance(event, DeallocateResult):
            self._on_deallocate_result(event)
        elif isinstance(event, AdoptResult):
            self._on_adopt_result(event)
        elif isinstance(event, WriteOk | WriteFailed):
            self._on_write_answer(event)
        self._fire_timers()
        self._reconcile()
        return self._outbox.outputs

    # Objects

    def _on_list(self, event: Listed) -> None:
        keys = {(type(obj), obj.metadata.key) for obj in event.objects}
        for key, obj in [*self._objects.by_key.items()]:
            if key not in keys:
                self._observe(obj, True)
        for obj in event.objects:
            if isinstance(obj, VIEWS):
                self._observe(obj, False)
        if not self._is_listed and self._adopting is None:
            self._adopt()
        for entry in self._entries.values():
            self._queue.add((ResourceClaim, f"{entry.namespace}/{entry.name}"))

    def _adopt(self) -> None:
        """Adds allocations of this driver that are missing in the ledger to the ledger, before
        anything is allocated. They are missing if the ledger was lost, or if the last process ended
        before it had cleared them. Their devices are in use, and are freed like all others."""
        found = [
            adopted_entry(claim)
            for claim in self._objects.claims()
            if claim.metadata.uid not in self._entries
            and is_allocated_by(claim, self.driver, self.seen.classes)
        ]
        if found:
            self._adopting = AdoptCall(self._outbox.next_id(), tuple(found))
            self._outbox.send(self._adopting)
        else:
            self._is_listed = True
            self._suitability.on_ledger_change()

    def _on_adopt_result(self, event: AdoptResult) -> None:
        adopting, self._adopting = self._adopting, None
        if event.error:
            self.counts.errors += 1
            self._queue.add_after(ADOPT, ADOPT_RETRY_NS)
            return
        for entry in adopting.entries if adopting is not None else ():
            self._index_entry(entry)
        self._is_listed = True
        self._suitability.on_ledger_change()
        self._queue_all()

    def _observe(self, obj: ApiObject, is_deleted: bool) -> None:
        """Stores the object and queues all objects whose next action may depend on it."""
        key = (type(obj), obj.metadata.key)
        if isinstance(obj, Pod) and not obj.spec.resource_claims:
            return
        if is_deleted:
            self._objects.drop(obj)
        else:
            self._objects.put(obj)
        self._operations.observe(key, None if is_deleted else obj.metadata.resource_version)
        if isinstance(obj, ResourceClaim):
            self._queue.add(key)
            for pod_key in self._objects.pods_of(obj.metadata.key):
                self._queue.add((Pod, pod_key))
        elif isinstance(obj, Pod | PodScheduling):
            pod_key = obj.metadata.key
            self._queue.add((Pod, pod_key))
            if isinstance(obj, Pod) and (is_deleted or obj.spec.node_name):
                self._suitability.forget_pod(pod_key)
            pod = obj if isinstance(obj, Pod) else self._objects.pod(pod_key)
            for claim_key in claim_keys(pod) if pod is not None else ():
                self._queue.add((ResourceClaim, claim_key))
        elif isinstance(obj, ResourceClass):
            self._queue_all()

    def _queue_all(self) -> None:
        for key in self._objects.by_key:
            if key[0] in (Pod, ResourceClaim):
                self._queue.add(key)

    def _index_entry(self, entry: Entry) -> None:
        self._uids.setdefault(f"{entry.namespace}/{entry.name}", {})[entry.uid] = None

    # Reconciliation

    def _fire_timers(self) -> None:
        while (key := self._queue.pop_due_timer()) is not None:
            if key == REFRESH:
                self._suitability.refresh()
            elif key == ADOPT:
                self._adopt()
            else:
                self._operations.expire(key)
                self._queue.add(key if key[0] is not PodScheduling else (Pod, key[1]))

    def _reconcile(self) -> None:
        """Starts the next actions of all keys that are due. A blocked key is queued again when its
        operation finishes or its object's version arrives; a key in backoff, by its timer."""
        if not self._is_listed:
            return
        while (key := self._queue.get()) is not None:
            if self._operations.is_blocked(key) or self._queue.is_backing_off(key):
                continue
            view, name = key
            actions = (
                self._claim_actions(name) if view is ResourceClaim else self._pod_actions(name)
            )
            if actions:
                self._start(key, actions)
            elif key not in self._objects.by_key:
                self._queue.forget(key)

    def _pod_actions(self, name: str) -> list[Action]:
        return pod_actions(
            self.seen,
            self.driver,
            name,
            self._entries,
            self._suitability.unsuitable_nodes,
            self._rules,
            self._suitability.failed_nodes(self._objects.pod(name)),
        )

    def _claim_actions(self, name: str) -> list[Action]:
        found = claim_actions(self.seen, self.driver, name, self._entries, self._rules)
        # Also entries of deleted claims that had the same name.
        uids = [uid for uid in self._uids.pop(name, ()) if uid in self._entries]
        entries = {uid: self._entries[uid] for uid in uids}
        for entry in entries.values():
            self._index_entry(entry)
        freed: list[Action] = [
            one for one in free_abandoned(self.seen, entries) if one not in found
        ]
        return freed or found

    def _start(self, key: Key, actions: Sequence[Action]) -> None:
        """Sends the actions as one operation, unless one of their objects is blocked."""
        keys = [key]
        for action in actions:
            if isinstance(action, Write):
                patch = action.patch
                keys.append((patch.view, f"{patch.namespace}/{patch.name}"))
            elif isinstance(action, Take):
                keys += [(ResourceClaim, claim.metadata.key) for claim in action.claims]
        if any(self._operations.is_blocked(one) for one in keys):
            self._queue.add_after(key, BLOCKED_NS)
            return
        operation = self._operations.start(tuple(dict.fromkeys(keys)))
        for action in actions:
            if isinstance(action, Write):
                self.counts.answers += action.patch.view is PodScheduling
                self._operations.write(operation, action.patch)
            elif isinstance(action, Free):
                id = self._operations.call(operation)
                self._operations.send(operation, DeallocateCall(id, action.entry))
            else:
                operation.take = action
                if action.on is not None:
                    self._operations.write(operation, no_op_patch(action.on, "status"))
                else:
                    self._take(operation, action)

    def _take(self, operation: Operation, take: Take) -> None:
        """Allocates all claims in one call of the driver, or writes the allocations that the ledger
        already has."""
        known = [self._entries.get(claim.metadata.uid) for claim in take.claims]
        if all(entry is not None and entry.allocation is not None for entry in known):
            self._write_allocations(operation, take)
            return
        entries = tuple(
            Entry(claim.metadata.uid, claim.metadata.namespace, claim.metadata.name, take.node)
            for claim in take.claims
        )
        for entry in entries:
            self._index_entry(entry)
        id = self._operations.call(operation)
        self._operations.send(operation, AllocateCall(id, take.claims, take.node, entries))

    def _write_allocations(self, operation: Operation, take: Take) -> None:
        operation.take = None
        for claim in take.claims:
            entry = self._entries[claim.metadata.uid]
            self.counts.allocations += 1
            self._operations.write(operation, allocation_patch(claim, entry, take.pod))

    # Answers

    def _on_write_answer(self, event: WriteOk | WriteFailed) -> None:
        answered = self._operations.pop_write(event)
        if answered is None:
            return
        operation, key, relied_on = answered
        if isinstance(event, WriteFailed) and event.code == CONFLICT:
            # The newer version is here already, or on its way: decide again when it is here.
            self.counts.conflicts += 1
            operation.take = None
            self._operations.expect_newer(key, relied_on)
        elif isinstance(event, WriteFailed):
            operation.failed = True
            operation.take = None
            self.counts.errors += 1
            self._record_rejected_write(operation, key, event)
        elif operation.take is not None:
            self._take(operation, operation.take)  # the no-op write: the selection still stands
        elif event.resource_version:
            self._operations.expect_own_write(key, event.resource_version)
        self._finish_if_answered(operation)

    def _on_allocate_result(self, event: AllocateResult) -> None:
        operation = self._operations.pop_call(event.id)
        take = operation.take
        self._suitability.on_ledger_change()
        if take is not None and event.error:
            operation.take = None
            self.counts.refusals += 1
            if take.pod is not None:
                self._suitability.on_allocation_failure(take.pod, take.node)
            else:
                operation.failed = True
            for claim in take.claims:
                where = f" on {take.node}" if take.node else ""
                note = f"Cannot allocate devices{where}: {event.error}"
                self._outbox.record_warning(claim, "AllocationFailed", note)
        elif take is not None:
            self._write_allocations(operation, take)
        self._finish_if_answered(operation)

    def _on_deallocate_result(self, event: DeallocateResult) -> None:
        operation = self._operations.pop_call(event.id)
        self._suitability.on_ledger_change()
        if event.error:
            operation.failed = True
            claim = self._objects.claim(operation.keys[0][1])
            if claim is not None:
                self._outbox.record_warning(claim, "DeallocationFailed", event.error)
        else:
            self.counts.deallocations += 1
        self._finish_if_answered(operation)

    def _on_examination_result(self, event: ExaminationResult) -> None:
        asked = self._suitability.pop_question(event.id)
        pod_key = (Pod, asked.pod_key)
        if event.error:
            self.counts.errors += 1
            self._queue.add_rate_limited(pod_key)
            for claim in asked.claims:
                note = f"Cannot determine unsuitable nodes: {event.error}"
                self._outbox.record_warning(claim, "AllocationFailed", note)
            return
        self._queue.forget(pod_key)
        if self._objects.pod(asked.pod_key) is not None:
            self._suitability.keep_answer(asked, event.refused)
            self._queue.add(pod_key)

    def _finish_if_answered(self, operation: Operation) -> None:
        """Once all outputs of the operation are answered, releases its objects, and queues them and
        the objects that they blocked. After a failure, the first object is queued after a
        backoff."""
        if operation.unanswered:
            return
        self._operations.finish(operation)
        first = operation.keys[0]
        if operation.failed:
            self._queue.add_rate_limited(first)
        else:
            self._queue.forget(first)
            self._queue.add(first)
        for view, name in operation.keys:
            if view is PodScheduling:
                self._queue.add((Pod, name))
            elif view is ResourceClaim and (view, name) != first:
                self._queue.add((view, name))
                for pod in self._objects.pods_of(name):
                    self._queue.add((Pod, pod))

    def _record_rejected_write(self, operation: Operation, key: Key, event: WriteFailed) -> None:
        """Records an Event for each of the driver's claims in the operation if the API server
        rejects the write for good."""
        if not 400 <= event.code < 500 or event.code in RETRIABLE:
            return
        written = f"{key[0].__name__} {key[1]}"
        names = [name for view, name in operation.keys if view is ResourceClaim]
        pod = self._objects.pod(operation.keys[0][1]) if not names else None
        for name in names or (claim_keys(pod) if pod is not None else ()):
            claim = self._objects.claim(name)
            if claim is not None and driver_of(claim, self.seen.classes) == self.driver:
                reason = "DeallocationFailed" if is_leaving(claim) else "AllocationFailed"
                note = f"API server rejected the patch of {written}: {event.message}"
                self._outbox.record_warning(claim, reason, note)
