"""The companion for VM scheduling: passes objects through the reconcile queue to their handlers.

Also continues handlers and agents' requests when the writes that they wait for are answered.

Source: seed 004; neondatabase/autoscaling pkg/plugin entrypoint.go.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from stower.framework.cluster_events import Change, ClusterEvent
from stower.framework.companion import EntityFailed, Metric, TrialScheduler, raise_error
from stower.framework.reconcile_queue import EventKind, Item, Key, ReconcileQueue, Result
from stower.framework.writes import AgentAnswer, JsonPatchObject, Write
from stower.model.kinds import ApiObject, Node, Pod, VirtualMachine, VirtualMachineMigration
from stower.model.times import SECOND_NS
from stower.state.arrays import Floats, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.vms.agent import PodWait, handle_request
from stower.vms.approval import SHORT, handle_pod
from stower.vms.config import Config
from stower.vms.enforcer import Answer, Enforcer, NotFoundError
from stower.vms.figures import PANICS
from stower.vms.ledger import Ledger
from stower.vms.nodes import InvalidHoldingError
from stower.vms.notes import ERROR, INFO, WARN
from stower.vms.orphans import Orphans
from stower.vms.pending_approvals import PendingApprovals
from stower.vms.pod_listeners import PodListeners
from stower.vms.pods import PodState, vm_owner
from stower.vms.targets import Rooms, Targets
from stower.vms.vm_approvals import VmApprovals

POD: Final = "Pod"
NODE: Final = "Node"
MIGRATION: Final = "VirtualMachineMigration"
OF_VIEW: Final = {Pod: POD, Node: NODE, VirtualMachineMigration: MIGRATION}
# Answers of which nobody knows whether the write was carried out.
UNKNOWN: Final = 504
WITHOUT_VMS: Final = (
    "Pods of VMs exist, but no VirtualMachine can be read: what a scheduler before this one has "
    "approved counts only from when the pods show it, and may be given away until then "
    "(docs/vms.md)"
)
LOOKS_MAX: Final = 256  # per step, so that other handlers run in between
# What objects of other users provoke; any other exception is an error of the scheduler.
FAULTS: Final = (InvalidHoldingError,)


class _Task(NamedTuple):
    """A handler, or an agent's request, that waits for an answer."""

    steps: Generator[Any, Any, Any]
    item: Item | None
    request: int


class VmScheduling:
    """See Companion."""

    def __init__(self, config: Config, state: ClusterState, seed: int = 0) -> None:
        self.config = config
        self.seed = seed
        self.entity_failed: EntityFailed = raise_error  # see EntityGuard
        self.queue = ReconcileQueue()
        self.ledger: Ledger
        self._retries: list[tuple[int, str]] = []  # when to reconcile which pod
        self._retry_ns: dict[str, int] = {}  # the same by uid
        self.enforcer = Enforcer(
            config, self._requeue_pod, self._requeue_node, self._on_change, self._requeue_pod_at,
            Targets(self._rooms, self._fits, self._held_pod),
        )  # fmt: skip
        self._trial_scheduler: TrialScheduler | None = None
        self._written = PendingApprovals()
        self._approved = VmApprovals()
        self.ledger = Ledger(
            state, self.enforcer.held_state, self.enforcer.notes, self._approved.counted
        )
        self._ends: list[tuple[int, str]] = []  # by when it is to show, for which pod
        self._approving: dict[int, tuple[str, str]] = {}  # by write: for which pod, and what
        self._began_ns: dict[Key, int] = {}  # of objects that are being looked at
        self._state = state
        self._objects: dict[Key, Any] = {}
        self._by_name: dict[tuple[str, str], str] = {}  # kind and key: uid
        self._awaited: dict[Key, None] | None = None  # at the start; None before there is one
        self._start_by_ns = 0
        self._to_look_at: dict[str, None] = {}  # uids of pods that may have got or lost a node
        self._by_write: dict[int, _Task] = {}
        self._listeners: PodListeners[_Task] = PodListeners()
        self._is_held = False
        self._orphans = Orphans()
        self._ready: deque[tuple[_Task, Any]] = deque()
        self._looked_at: dict[Key, None] = {}  # what is there, as far as handlers know
        self._out: list[Write] = []
        self._held: Floats = np.zeros((4, state.capacity))
        state.placement_listeners.append(self.ledger)
        state.placement_listeners.append(self)

    def attach(self, trial_scheduler: TrialScheduler) -> None:
        """See Companion."""
        self._trial_scheduler = trial_scheduler

    # Events

    def on_object(self, obj: ApiObject, is_deleted: bool, now_ns: int) -> None:
        """See Companion. A pod that has ended is gone."""
        kind = OF_VIEW.get(type(obj))
        if kind is None:
            if isinstance(obj, VirtualMachine):
                self._on_vm(obj, is_deleted, now_ns)
            return
        self.enforcer.now_ns = now_ns
        name, uid = (kind, obj.metadata.key), obj.metadata.uid
        before = self._by_name.get(name)
        if before is not None and before != uid:
            self._forget(Key(kind, before), now_ns)  # another one has its name now
        key = Key(kind, uid)
        known = self._objects.get(key)
        if known is not None and known.metadata.key != obj.metadata.key:
            self._forget(key, now_ns)  # no API server changes a name
        if isinstance(known, Pod):
            self._approved.drop_pod(known)  # its owner may be another now
        if is_deleted or (isinstance(obj, Pod) and obj.is_terminal):
            if key in self._objects:
                self._objects[key] = obj
                self._forget(key, now_ns)
            return
        self._objects[key] = obj
        self._by_name[name] = uid
        if isinstance(obj, Pod):
            self._approved.put_pod(obj)
        self._enqueue(key, now_ns)
        if kind == POD:
            self._notify_listeners(uid)

    def _on_vm(self, vm: VirtualMachine, is_deleted: bool, now_ns: int) -> None:
        """The pod of a VM is reconciled when something else is approved for the VM."""
        for uid in self._approved.put(vm, is_deleted):
            self._on_change(uid)
            self._enqueue(Key(POD, uid), now_ns)

    def _forget(self, key: Key, now_ns: int) -> None:
        obj = self._objects.pop(key)
        if isinstance(obj, Pod):
            self._approved.drop_pod(obj)
            self._orphans.drop(key.uid)
        name = (key.kind, obj.metadata.key)
        if self._by_name.get(name) == key.uid:
            del self._by_name[name]
        if self._awaited:
            self._awaited.pop(key, None)
        self._enqueue(key, now_ns, obj)
        if key.kind == POD:
            self._notify_listeners(key.uid)

    def on_list(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """See Companion. Approvals begin once all nodes and pods that are there at first were
        looked at."""
        found, vms = {}, []
        for obj in objects:
            if isinstance(obj, VirtualMachine):
                vms.append(obj)
            kind = OF_VIEW.get(type(obj))
            if kind is not None and not (isinstance(obj, Pod) and obj.is_terminal):
                found[Key(kind, obj.metadata.uid)] = obj
        for key in [key for key in self._objects if key not in found]:
            self._forget(key, now_ns)
        for uid in self._approved.replace(vms):
            self._enqueue(Key(POD, uid), now_ns)
        # Nodes come before the pods that are on them.
        for wanted in (NODE, POD, MIGRATION):
            for key, obj in found.items():
                if key.kind == wanted and self._objects.get(key) != obj:
                    self.on_object(obj, False, now_ns)
        for key, obj in found.items():  # they were stored before their VMs were known
            if isinstance(obj, Pod) and vm_owner(obj) is not None:
                self._on_change(key.uid)
        if self._awaited is None:
            runners = any(isinstance(o, Pod) and vm_owner(o) is not None for o in found.values())
            if runners and not vms:
                self.enforcer.notes.add(WARN, WITHOUT_VMS)
            self._awaited = {key: None for key in found if key.kind != MIGRATION}
            self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        timeout_s = self.config.startup_event_handling_timeout_seconds
        self._start_by_ns = now_ns + timeout_s * SECOND_NS

    # As a watcher of the state

    def add_pod(self, entry: PodEntry, row: int) -> None:
        """See PlacementListener."""
        self._defer_check(entry)

    def remove_pod(self, entry: PodEntry, row: int) -> None:
        """See PlacementListener."""
        self._defer_check(entry)

    def update_pod(self, entry: PodEntry) -> None:
        """See PlacementListener."""

    def grow(self, capacity: int) -> None:
        """See PlacementListener."""

    def _defer_check(self, entry: PodEntry) -> None:
        # In a trial it may only be supposed: what it is then is seen afterwards.
        if not entry.pod.spec.node_name or entry.uid in self.enforcer.tentative:
            self._to_look_at[entry.uid] = None

    def _check_placements(self) -> None:
        """Reserves for pods that were given a node, of every profile, and releases the reservations
        of pods that lost their node."""
        if not self._to_look_at:
            return
        uids, self._to_look_at = self._to_look_at, {}
        enforcer, names = self.enforcer, self._state.node_names
        for uid in uids:
            entry = self._state.pods.get(uid)
            was = enforcer.tentative.get(uid)
            here = names[entry.row] if entry is not None and entry.row >= 0 else ""
            if was is not None and was != here:
                pod = entry.pod if entry is not None else self._objects.get(Key(POD, uid))
                self._unreserve(uid, was, pod)
                was = None
            if was is None and entry is not None and entry.is_assumed and here:
                if here not in enforcer.nodes:
                    self._to_look_at[uid] = None  # the node is looked at first
                elif entry.pod.spec.scheduler_name == self.config.scheduler_name:
                    enforcer.reserve(self._approved.counted(entry.pod), here)
                    self._on_change(uid)
                else:
                    enforcer.count_other(self._approved.counted(entry.pod), here)
                    self._on_change(uid)

    def _unreserve(self, uid: str, node_name: str, pod: Pod | None) -> None:
        if pod is not None:
            try:
                self.enforcer.unreserve(pod, node_name)
            except InvalidHoldingError as error:
                self.enforcer.notes.add(ERROR, str(error), pod.key)
        if self.enforcer.tentative.pop(uid, None) is not None:
            known = self.enforcer.nodes.get(node_name)
            if known is not None:
                known.node.remove(uid)

    def _on_change(self, uid: str) -> None:
        """More is known of what a pod holds."""
        entry = self._state.pods.get(uid)
        if entry is not None:
            self.ledger.update_pod(entry)

    def reserved_amounts(self, rows: Ints) -> Floats:
        """float64[4, rows]: what is reserved of CPU, its total, the same of memory."""
        enforcer, state = self.enforcer, self._state
        if self._held.shape[1] < state.capacity:
            self._held = np.zeros((4, state.capacity))
            enforcer.dirty.update(dict.fromkeys(enforcer.nodes))
        for name in enforcer.dirty:
            row, known = state.row_of(name), enforcer.nodes.get(name)
            if row >= 0 and known is not None:
                cpu, memory = known.node.cpu, known.node.memory
                self._held[:, row] = cpu.reserved, cpu.total, memory.reserved, memory.total
        enforcer.dirty.clear()
        found: Floats = self._held[:, rows]
        return found

    def _rooms(self) -> Rooms:
        """What is left below the watermark of each node that is known here."""
        at = [(name, self._state.row_of(name)) for name in self.enforcer.nodes]
        rows = np.array([row for _, row in at if row >= 0], np.int64)
        cpu, cpu_total, memory, memory_total = self.reserved_amounts(rows)
        mark = self.config.watermark
        return Rooms(
            [name for name, row in at if row >= 0],
            np.floor(cpu_total * mark) - cpu, cpu_total,
            np.floor(memory_total * mark) - memory, memory_total,
        )  # fmt: skip

    # What it does

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """See Companion. As many objects are looked at at once as there may be workers."""
        self.enforcer.now_ns = now_ns
        self._is_held = is_held
        self._check_placements()
        self._ready += [(task, False) for task in self._listeners.expire(now_ns)]
        while self._ends and self._ends[0][0] <= now_ns:
            _, uid = heappop(self._ends)
            if self._written.has_expired(uid, now_ns):
                self._enqueue(Key(POD, uid), now_ns)
        while self._retries and self._retries[0][0] <= now_ns:
            _, uid = heappop(self._retries)
            del self._retry_ns[uid]
            self._enqueue(Key(POD, uid), now_ns)
        for _ in range(LOOKS_MAX):
            while self._ready:
                task, answer = self._ready.popleft()
                self._continue_task(task, answer, now_ns, next_id)
            if is_held or self.queue.processing_count >= self.config.reconcile_workers:
                break
            item = self.queue.dequeue(now_ns)
            if item is None:
                break
            self._handle(item, now_ns, next_id)
        self._check_startup(now_ns)
        out, self._out = self._out, []
        return out

    def _event_of(self, key: Key) -> EventKind:
        """What has happened to an object since handlers were told of it last."""
        if key in self._objects:
            known = key in self._looked_at
            self._looked_at[key] = None
            return EventKind.MODIFIED if known else EventKind.ADDED
        known = self._looked_at.pop(key, False) is None
        return EventKind.DELETED if known else EventKind.EPHEMERAL

    def _handle(self, item: Item, now_ns: int, next_id: Callable[[], int]) -> None:
        item = item._replace(event=self._event_of(item.key))
        self.enforcer.figures.waits.observe(now_ns - item.due_ns)
        self._began_ns[item.key] = now_ns
        try:
            found = self._handle_item(item)
        except Exception as error:
            found = self._handle_panic(item, error)
        if isinstance(found, Result):
            self._finish(item, found, now_ns)
        else:
            self._continue_task(_Task(found, item, 0), None, now_ns, next_id)

    def _handle_item(self, item: Item) -> Any:
        enforcer, event = self.enforcer, item.event
        if item.key.kind == POD:
            if event in (EventKind.DELETED, EventKind.EPHEMERAL):
                self._written.forget(item.key.uid)
            counted = self._approved.counted(item.object)
            pod, least = self._written.with_approvals(counted, enforcer.now_ns)
            return handle_pod(enforcer, event, pod, least, self._approved.of_pod(pod))
        if item.key.kind == NODE:
            return self._handle_node(event, item.object)
        return enforcer.handle_migration(event, item.object)

    def _handle_node(self, event: EventKind, node: Node) -> Result:
        """With a node that goes, its pods are forgotten: where it comes back before they have gone,
        they are looked at before anything is approved there."""
        name, enforcer = node.metadata.name, self.enforcer
        other = self._objects.get(Key(NODE, self._by_name.get((NODE, name), "")))
        if other is not None and other.metadata.uid != node.metadata.uid:
            if name not in enforcer.nodes:
                return Result()
            event = EventKind.DELETED  # another one has its name now, and comes next
            self._enqueue(Key(NODE, other.metadata.uid), enforcer.now_ns)
            self._looked_at.pop(Key(NODE, other.metadata.uid), None)
        before = enforcer.nodes.get(name)
        result = enforcer.handle_node(event, node)
        if name not in enforcer.nodes:
            if before is not None:
                uids = before.node.pods
                self._orphans.add(name, (u for u in uids if Key(POD, u) in self._objects))
        elif before is None and self._awaited is not None:
            for uid in self._orphans.take(name):
                key = Key(POD, uid)
                self._awaited[key] = None
                enforcer.unseen[name] = None
                self._enqueue(key, enforcer.now_ns)
        return result

    def _continue_task(
        self, task: _Task, answer: Any, now_ns: int, next_id: Callable[[], int]
    ) -> None:
        """Carry on until it needs another answer, or has ended."""
        self.enforcer.now_ns = now_ns
        try:
            step = task.steps.send(answer)
        except StopIteration as ended:
            if task.item is not None:
                self._finish(task.item, ended.value, now_ns)
            else:
                status, body, type = ended.value
                self._out.append(AgentAnswer(task.request, status, body, type))
            return
        except Exception as error:
            if task.item is None:
                if not isinstance(error, FAULTS):
                    self.entity_failed(f"request {task.request}", error)
                text = "internal error while handling the request"
                self._out.append(AgentAnswer(task.request, 500, text, "text/plain"))
                return
            self._finish(task.item, self._handle_panic(task.item, error), now_ns)
            return
        if isinstance(step, PodWait):
            if not self._listeners.wait(task, step):
                self._ready.append((task, True))
            return
        write = msgspec.structs.replace(step, id=next_id())
        if isinstance(write, JsonPatchObject) and task.item is not None:
            value = write.operations[-1]["value"]  # the others are tests, and prepare for it
            self._approving[write.id] = (task.item.key.uid, value)
            until_ns = self._written.add(task.item.object, value, now_ns)
            heappush(self._ends, (until_ns, task.item.key.uid))
        self._by_write[write.id] = task
        self._out.append(write)

    def _handle_panic(self, item: Item, error: Exception) -> Result:
        self.enforcer.figures.count(PANICS, kind=item.key.kind)
        if not isinstance(error, FAULTS):
            self.entity_failed(item.object, error)
        return Result(0, str(error))

    def _finish(self, item: Item, result: Result, now_ns: int) -> None:
        notes, (kind, uid) = self.enforcer.notes, item.key
        took_ns = now_ns - self._began_ns.pop(item.key)
        self.enforcer.figures.record_duration(kind, bool(result.error), took_ns)
        # What it is the next time is found out then.
        result = self.queue.finish(item._replace(event=EventKind.MODIFIED), result, now_ns)
        if self._awaited and (not result.error or self.enforcer.is_started):
            self._awaited.pop(item.key, None)
        if not result.error:
            return
        about = item.object.metadata.key
        # That there is no room is no fault, and said every few seconds.
        level = INFO if result.error == SHORT else ERROR
        notes.add(level, f"Failed to reconcile {item.event.value} {kind}: {result.error}", about)
        times = self.queue.backoff_entries[kind][uid].failure_count
        threshold = self.config.log_successive_failures_threshold
        if not times % threshold:
            text = f"{kind} has failed to reconcile >={threshold} times in a row"
            notes.add(WARN, f"{text}: {times}", about)

    def _check_startup(self, now_ns: int) -> None:
        """Whether all that was there at first was looked at. Where that takes too long, what cannot
        be read is not waited for any more, as it is not at other times, and nodes begin whose pods
        all were looked at."""
        awaited, enforcer = self._awaited, self.enforcer
        if awaited is None or (enforcer.is_started and not enforcer.unseen):
            return
        if not awaited:
            enforcer.notes.add(INFO, "Handled all initial events")
            enforcer.start()
        elif enforcer.is_started:
            unseen = self._unseen_nodes(awaited)
            if len(unseen) < len(enforcer.unseen):
                enforcer.start(unseen)
        elif now_ns >= self._start_by_ns:
            timeout_s = self.config.startup_event_handling_timeout_seconds
            text = f"{len(awaited)} objects not handled after {timeout_s} s"
            first = self._objects.get(next(iter(awaited)))
            about = first.metadata.key if first is not None else ""
            enforcer.notes.add(ERROR, f"Timed out handling initial events: {text}, retrying", about)
            for key in list(awaited):
                self._enqueue(key, now_ns)
                if key.uid in self.queue.backoff_entries.get(key.kind, {}):
                    del awaited[key]  # it was looked at, and cannot be read
            enforcer.start(self._unseen_nodes(awaited))

    def _unseen_nodes(self, awaited: Iterable[Key]) -> list[str]:
        """The nodes of objects that were not looked at."""
        found = (self._objects[key] for key in awaited if key in self._objects)
        return [*dict.fromkeys(
            obj.spec.node_name if isinstance(obj, Pod) else obj.metadata.name for obj in found
        )]  # fmt: skip

    def take_cluster_events(self) -> list[ClusterEvent]:
        """See Companion."""
        uids, self.ledger.shrunk = self.ledger.shrunk, {}
        found = (self._state.pods.get(uid) for uid in uids)
        change = Change.PLACED_POD_SCALED_DOWN
        return [ClusterEvent(change, old_pod=e.pod, pod=e.pod) for e in found if e is not None]

    def take_pods_to_activate(self) -> list[tuple[str, str]]:
        """Nobody comes before others."""
        return []

    def on_answer(self, id: int, code: int, message: str, now_ns: int) -> None:
        """See Companion."""
        task = self._by_write.pop(id, None)
        if task is None:
            return
        approving = self._approving.pop(id, None)
        if approving is not None and not code:
            self._written.confirm(*approving)
        self._ready.append((task, Answer(code, message)))

    @property
    def next_wake_ns(self) -> int | None:
        """See Companion."""
        is_shut = self._is_held or self.queue.processing_count >= self.config.reconcile_workers
        dues = [None if is_shut else self.queue.next_due_ns]
        dues += [times[0][0] for times in (self._ends, self._retries) if times]
        dues.append(self._listeners.next_ns)
        if self._awaited and not self.enforcer.is_started:
            dues.append(self._start_by_ns)
        found = [due for due in dues if due is not None]
        return min(found) if found else None

    @property
    def is_idle(self) -> bool:
        """See Companion."""
        is_busy = self._by_write or self._ready or not self._listeners.is_empty
        return not is_busy and self._written.is_empty

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        return list(self.enforcer.notes.drain())

    def metrics(self) -> list[Metric]:
        """See Companion."""
        return self.enforcer.figures.metrics(self.queue, self.enforcer.nowhere)

    # Requests of agents

    def on_request(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """See Companion."""
        self.enforcer.now_ns = now_ns
        talk = handle_request(self.enforcer, method, body, self._find, self._listeners.watch)
        self._ready.append((_Task(talk, None, id), None))
        return True

    def _find(self, namespace: str, name: str) -> Pod | None:
        uid = self._by_name.get((POD, f"{namespace}/{name}"))
        return self._objects.get(Key(POD, uid)) if uid is not None else None

    def _notify_listeners(self, uid: str) -> None:
        """A pod has changed: whoever listens goes on."""
        tasks = self._listeners.notify(uid, Key(POD, uid) in self._objects)
        self._ready += [(task, True) for task in tasks]

    # The queue

    def _enqueue(self, key: Key, now_ns: int, obj: Any = None) -> None:
        """What has happened is found out when it is looked at: the store is the truth."""
        if obj is None:
            obj = self._objects.get(key)
        if obj is not None:
            self.queue.enqueue(*key, EventKind.MODIFIED, obj, now_ns)

    def _requeue_pod(self, uid: str) -> None:
        key = Key(POD, uid)
        if key not in self._objects:
            raise NotFoundError(
                f"could not requeue pod with UID {uid}: pod not found in watch store"
            )
        self._enqueue(key, self.enforcer.now_ns)

    def _fits(self, uid: str, node_name: str) -> bool:
        """Whether a pod would fit on another node, as if it had left its own."""
        entry, row = self._state.pods.get(uid), self._state.row_of(node_name)
        if entry is None or row < 0 or self._trial_scheduler is None:
            return False
        with self._state.trial():
            if entry.row >= 0:
                self._state.displace(entry)
            return self._trial_scheduler.fits(entry, row)

    def _held_pod(self, key: str) -> PodState | None:
        """A pod as it counts on the node that it is on, or was given."""
        uid = self._by_name.get((POD, key), "")
        pod = self._objects.get(Key(POD, uid))
        node_name = (pod.spec.node_name if pod is not None else "") or self.enforcer.tentative.get(
            uid
        )
        return self.enforcer.held_state(uid, node_name) if node_name else None

    def _requeue_pod_at(self, uid: str, at_ns: int) -> None:
        if uid not in self._retry_ns:
            self._retry_ns[uid] = at_ns
            heappush(self._retries, (at_ns, uid))

    def _requeue_node(self, name: str) -> None:
        uid = self._by_name.get((NODE, name))
        if uid is None:
            raise NotFoundError(f"node {name} not found in watch store")
        self._enqueue(Key(NODE, uid), self.enforcer.now_ns)
