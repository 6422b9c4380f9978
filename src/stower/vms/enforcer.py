"""The VM scheduling state of all nodes: handles node and migration events, reserve and unreserve.

The state can be rebuilt from Node, Pod and VirtualMachine objects, except for pods that were
assigned to a node which the API does not show yet. Objects come through the reconcile queue, one
event of an object at a time.
Source: seed 004; neondatabase/autoscaling pkg/plugin handle_node.go, handle_vmmigration.go,
framework_methods.go.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final, NamedTuple

from stower.framework.reconcile_queue import EventKind, Result
from stower.framework.writes import DeleteObject, Write
from stower.model.kinds import Node, Pod, VirtualMachineMigration
from stower.model.times import SECOND_NS
from stower.state.journal import Journal
from stower.vms.config import Config
from stower.vms.figures import CALLS, FAILURES, Figures
from stower.vms.migration_rules import RULES
from stower.vms.migrations import CREATED_BY, ENDED, PLANNED, PREFIX, choose
from stower.vms.nodes import InvalidHoldingError, VmNode, node_state
from stower.vms.notes import ERROR, INFO, WARN, Notes
from stower.vms.pods import BadPod, PodState, pod_state
from stower.vms.targets import Plan, Targets, TargetSearch

EXPECTS: Final = (EventKind.MODIFIED, EventKind.DELETED)
ASKED_NS: Final = 5 * SECOND_NS
FORGOTTEN_NS: Final = 60 * SECOND_NS
# How long a VM rests after a migration that failed: doubled with each that follows, up to the most.
REST_FIRST_NS: Final = 10 * SECOND_NS
REST_MAX_NS: Final = 600 * SECOND_NS
# How long the target pod of a migration may wait for a node: others may have filled it.
TARGET_WAIT_NS: Final = 60 * SECOND_NS
MOVED_REST_NS: Final = 300 * SECOND_NS  # after one that succeeded
CAME: Final = (EventKind.ADDED, EventKind.MODIFIED)


class Answer(NamedTuple):
    """What the API says of a write: the HTTP status, 0 where it was carried out, and why not."""

    code: int = 0
    message: str = ""


# A handler asks for writes, one after another, and is sent what became of each.
Steps = Generator[Write, Answer, Result]


class NotFoundError(Exception):
    """An object that is to be looked at again is not known any more."""


class TrackedNode:
    """A node, and what was decided of its pods, by uid. `requested`: where those go that are to
    leave ("": anywhere); `patched_ns`: when the VM of a pod was last written."""

    __slots__ = ("node", "patched_ns", "requested")

    def __init__(self, node: VmNode) -> None:
        self.node = node
        self.requested: dict[str, str] = {}
        self.patched_ns: dict[str, int] = {}


class Asked(NamedTuple):
    """When a migration was asked for, and its planned node ("": none)."""

    at_ns: int
    node: str


class Move(NamedTuple):
    """A migration under way. `key`: namespace/name; `node`: planned, where one was; `target`: its
    target pod as namespace/name, "" for none yet; `since_ns`: how long that is known."""

    key: str
    node: str = ""
    target: str = ""
    since_ns: int = 0


class Rest(NamedTuple):
    """When a VM whose last migrations failed may migrate again, and their number."""

    until_ns: int
    failures: int


class Refusal(NamedTuple):
    """Why an extension point refuses a pod: a status code of kube-scheduler's, and a reason."""

    code: str
    reason: str


class Enforcer:
    """All nodes. `now_ns` is the time of what is being dealt with."""

    def __init__(
        self,
        config: Config,
        requeue_pod: Callable[[str], None],
        requeue_node: Callable[[str], None],
        changed: Callable[[str], None] = lambda uid: None,
        requeue_pod_at: Callable[[str, int], None] = lambda uid, at_ns: None,
        targets: Targets | None = None,
    ) -> None:
        """Each `requeue` has an object looked at again, as it is known, or raises NotFoundError;
        `changed`: told of a pod whose amounts here may be others now; `requeue_pod_at`: has a pod
        reconciled at a time, in nanoseconds; `targets`: None: VMs leave a node whether or not there
        is another one for them, as with neon."""
        self.config = config
        self.now_ns = 0
        self.nodes: dict[str, TrackedNode] = {}
        self.tentative: dict[str, str] = {}  # node name by uid of pods not seen there yet
        self.is_started = False
        self.unseen: dict[str, None] = {}  # names of nodes that have pods nobody could look at yet
        self.awaits_start: dict[str, None] = {}  # uids of pods to be looked at again then
        # Migrations that have not ended, by uid, as objects may change names.
        self.moving: dict[str, Move] = {}
        self.asked: dict[str, Asked] = {}  # those not seen yet, by namespace/name
        self.resting: dict[str, Rest] = {}  # by key of the VM
        self.cpu_max = 0  # of the largest node that was ever seen
        self.memory_max = 0
        self.notes = Notes()
        self.figures = Figures(config.node_metric_labels or {})
        self.journal = Journal()
        self.dirty: dict[str, None] = {}  # names of nodes that have changed
        self.changed = changed
        self.targets = targets
        self.nowhere: dict[str, str] = {}  # by node: what its VMs lack elsewhere
        self.requeue_pod = requeue_pod
        self.requeue_pod_at = requeue_pod_at
        self._requeue_node = requeue_node

    def start(self, unseen: Iterable[str] = ()) -> None:
        """All nodes and pods that were there at first were looked at, but for pods on these nodes:
        what was put off on the others is due."""
        self.is_started = True
        self.unseen = dict.fromkeys(unseen)
        waiting, self.awaits_start = self.awaits_start, {}
        for uid in waiting:
            try:
                self.requeue_pod(uid)
            except NotFoundError:
                text = "Could not requeue Pod after startup, maybe it was deleted?"
                self.notes.add(WARN, text, uid)

    # Nodes

    def handle_node(self, event: EventKind, node: Node) -> Result:
        """A node has come, changed or gone."""
        name, expected = node.metadata.name, event in EXPECTS
        known = self.nodes.get(name)
        if event not in CAME:
            if known is not None:
                if not expected:
                    text = "Deleting node that unexpectedly exists in local state"
                    self.notes.add(WARN, text, name)
                self._drop(known)
            elif expected:
                text = "No-op deleting node that unexpectedly doesn't exist in local state"
                self.notes.add(WARN, text, name)
            return Result()
        labels = self.config.node_metric_labels or {}
        new = node_state(node, self.config.watermark, labels, self.journal, self.dirty)
        if known is None:
            if expected:
                text = "Adding node that unexpectedly doesn't exist in local state"
                self.notes.add(WARN, text, name)
            self.cpu_max = max(self.cpu_max, new.cpu.total)
            self.memory_max = max(self.memory_max, new.memory.total)
            self.notes.add(INFO, "Adding base node state", name)
            known = self.nodes[name] = TrackedNode(new)
            self.dirty[name] = None
        else:
            if not expected:
                text = "Updating node that unexpectedly exists in local state"
                self.notes.add(WARN, text, name)
            if known.node.resize(new):
                self.notes.add(WARN, "Updating base node state", name)
        try:
            return self._balance(known)
        finally:
            self.figures.record_node(known.node)

    def _balance(self, known: TrackedNode) -> Result:
        found: dict[str, str] = {}  # where pods can go, by uid
        lacks: dict[str, str] = {}

        def request(uid: str) -> None:
            self.requeue_pod(uid)
            known.requested[uid] = found.get(uid, "")

        search: TargetSearch | None = None  # begun only where somebody is to leave

        def has_target(pod: PodState) -> bool:
            nonlocal search
            if self.targets is None:
                return True
            search = search or self.targets.search(self._plans())
            node_name = search.find(pod, known.node.name)
            if node_name:
                found[pod.uid] = node_name
                search.take(pod, node_name)
            elif not lacks:
                lacks[pod.vm] = search.lack(pod, known.node.name)
            return bool(node_name)

        try:
            again_ns = choose(
                known.node, known.requested, self.journal, request, self.notes, self.rest_ns,
                has_target, RULES[self.config.migration_rule],
            )  # fmt: skip
            self._note_nowhere(known, lacks)
        except NotFoundError as error:
            self.notes.add(ERROR, "Failed to requeue reconciling of candidate Pod")
            return Result(0, f"could not trigger live migrations: {error}")
        return Result(again_ns)

    def _plans(self) -> list[Plan]:
        """All VMs that are to migrate, as far as it is known whereto."""
        plans = {move.key: (move.node, move.target) for move in self.moving.values()}
        for key, asked in self.asked.items():
            if self.now_ns <= asked.at_ns + FORGOTTEN_NS:
                plans.setdefault(key, (asked.node, ""))
        for known in self.nodes.values():
            for uid, node_name in known.requested.items():
                pod = known.node.pods.get(uid)
                if pod is not None:
                    plans.setdefault(f"{pod.namespace}/{PREFIX}{pod.name}", (node_name, ""))
        return [
            Plan(key.replace(f"/{PREFIX}", "/", 1), node_name, target)
            for key, (node_name, target) in plans.items()
            if node_name
        ]

    def _note_nowhere(self, known: TrackedNode, lacks: Mapping[str, str]) -> None:
        """Records that VMs cannot leave a node that stays above its watermark."""
        name = known.node.name
        is_above = known.node.is_above_watermark and not known.requested
        vm, lack = next(iter(lacks.items()), ("", "")) if is_above else ("", "")
        if not vm:
            self.nowhere.pop(name, None)
            return
        text = f"Nowhere to go for VirtualMachine {vm}: {lack}"
        if self.nowhere.get(name) != text:
            self.nowhere[name] = text
            self.notes.add(WARN, text, name)

    def _drop(self, known: TrackedNode) -> None:
        name = known.node.name
        self.nowhere.pop(name, None)
        for uid in [uid for uid, node in self.tentative.items() if node == name]:
            del self.tentative[uid]
        self.figures.forget(name)
        del self.nodes[name]
        self.dirty.pop(name, None)
        self.notes.add(INFO, "Removed node", name)

    def on_node_change(self, known: TrackedNode) -> None:
        """Something has changed on a node: it is looked at in its turn, which is fair to others."""
        try:
            self._requeue_node(known.node.name)
        except NotFoundError:
            self.notes.add(ERROR, "Failed to requeue Node", known.node.name)
        self.figures.record_node(known.node)

    # Migrations

    def handle_migration(self, event: EventKind, obj: VirtualMachineMigration) -> Result | Steps:
        """One of ours that has ended is not needed any more."""
        meta, phase = obj.metadata, obj.status.phase
        self.asked.pop(meta.key, None)
        before = self.moving.pop(meta.uid, None)
        is_ours = CREATED_BY in (meta.labels or {})
        if is_ours and (
            before is not None or (event is EventKind.ADDED and not meta.deletion_timestamp)
        ):
            self._note_end(f"{meta.namespace}/{obj.spec.vm_name}", phase)
        if event in CAME and phase not in ENDED and (phase or is_ours):
            target = obj.status.target_pod_name
            key = f"{meta.namespace}/{target}" if target else ""
            is_known = before is not None and before.target == key
            self.moving[meta.uid] = Move(
                meta.key,
                (meta.annotations or {}).get(PLANNED, "") if is_ours else "",
                key,
                before.since_ns if before is not None and is_known else self.now_ns,
            )
        if event not in CAME or not is_ours or meta.deletion_timestamp:
            return Result()
        if phase in ENDED:
            return self._delete(obj)
        return self._watch_target(obj) if phase == "Pending" else Result()

    def _watch_target(self, obj: VirtualMachineMigration) -> Result | Steps:
        """Ends a migration whose target pod gets no node: the VM could not grow for as long, and
        may find room elsewhere later."""
        move = self.moving[obj.metadata.uid]
        if self.targets is None or not move.target or self.targets.held(move.target) is not None:
            return Result()
        left_ns = move.since_ns + TARGET_WAIT_NS - self.now_ns
        return Result(left_ns) if left_ns > 0 else self._give_up(obj)

    def _give_up(self, obj: VirtualMachineMigration) -> Steps:
        meta = obj.metadata
        text = (
            f"Deleting VirtualMachineMigration: its target Pod {obj.status.target_pod_name} has no "
            f"node after {TARGET_WAIT_NS // SECOND_NS} s"
        )
        self.notes.add(WARN, text, meta.key)
        result = yield from self._write_deletion(obj)
        if not result.error:
            self._note_end(f"{meta.namespace}/{obj.spec.vm_name}", "Failed")
        return result

    def is_asked(self, pod: PodState) -> bool:
        """Whether a migration of the pod is there, or was made a moment ago."""
        key = f"{pod.namespace}/{PREFIX}{pod.name}"
        asked = self.asked.get(key)
        return any(move.key == key for move in self.moving.values()) or (
            asked is not None and self.now_ns < asked.at_ns + ASKED_NS
        )

    def _note_end(self, vm: str, phase: str) -> None:
        """Has a VM rest after a migration that failed: the next would fail as well, most likely,
        while others can leave the node."""
        if phase == "Succeeded":
            self.resting[vm] = Rest(self.now_ns + MOVED_REST_NS, 0)
        elif phase == "Failed":
            before = self.resting.get(vm)
            failures = before.failures + 1 if before is not None else 1
            rest_ns = min(REST_FIRST_NS << min(failures - 1, 40), REST_MAX_NS)
            self.resting[vm] = Rest(self.now_ns + rest_ns, failures)

    def rest_ns(self, pod: PodState) -> int:
        """Returns how long the pod's VM still rests, 0 where it may migrate."""
        rest = self.resting.get(pod.vm)
        if rest is not None and self.now_ns >= rest.until_ns + REST_MAX_NS:
            del self.resting[pod.vm]  # it is long ago
        return max(rest.until_ns - self.now_ns, 0) if rest is not None else 0

    def can_migrate(self, known: TrackedNode, pod: PodState) -> bool:
        """Whether one more migration may begin from a node: so many at once would be a storm."""
        node_max, all_max = self.config.migrations_per_node_max, self.config.migrations_max
        late_ns = self.now_ns - FORGOTTEN_NS
        for key in [key for key, asked in self.asked.items() if asked.at_ns < late_ns]:
            del self.asked[key]  # nobody ever saw it
        under_way = dict.fromkeys((*(move.key for move in self.moving.values()), *self.asked))
        if f"{pod.namespace}/{PREFIX}{pod.name}" in under_way:
            return True
        if all_max and len(under_way) >= all_max:
            return False
        here = sum(
            other.migrating or f"{other.namespace}/{PREFIX}{other.name}" in under_way
            for other in (known.node.pods[uid] for uid in known.node.migratable)
        )
        return not node_max or here < node_max

    def _delete(self, obj: VirtualMachineMigration) -> Steps:
        meta = obj.metadata
        if obj.status.phase == "Failed":
            self.notes.add(WARN, "Deleting failed VirtualMachineMigration", meta.key)
        else:
            self.notes.add(INFO, "Deleting successful VirtualMachineMigration", meta.key)
        return (yield from self._write_deletion(obj))

    def _write_deletion(self, obj: VirtualMachineMigration) -> Steps:
        meta = obj.metadata
        answer = yield DeleteObject(0, VirtualMachineMigration, meta.namespace, meta.name, meta.uid)
        self.figures.count_write(
            "Delete", "VirtualMachineMigration", meta.name, _error_text(answer)
        )
        return Result(0, f"could not delete migration: {answer.message}" if answer.code else "")

    # Pods that are given a node

    def reserve(self, pod: Pod, node_name: str) -> Refusal | None:
        """Count the pod on a node before the API shows it there. Want of room is no refusal: that
        would be less reliable (neondatabase/autoscaling#869)."""
        refusal = self._reserve(pod, node_name)
        self.count_call("Reserve", pod, refusal)
        return refusal

    def count_call(self, method: str, pod: Pod, refusal: Refusal | None = None) -> None:
        """An extension point was called."""
        labels = metric_labels(pod, self.config)
        self.figures.count(CALLS, labels, method=method)
        if refusal is not None:
            self.figures.count(FAILURES, labels, method=method, status=refusal.code)

    def _reserve(self, pod: Pod, node_name: str) -> Refusal | None:
        if self.config.ignores(pod.metadata.namespace):
            self.notes.add(INFO, "Skipping Reserve request for ignored namespace", pod.key)
            return None
        self.notes.add(INFO, "Handling Reserve request", pod.key)
        state = self.read_pod_state(pod)
        return state if isinstance(state, Refusal) else self._count_tentative(pod, state, node_name)

    def count_other(self, pod: Pod, node_name: str) -> None:
        """Counts a pod that another profile of this scheduler has placed, before the API shows it
        on the node: its room may not be approved for a VM meanwhile."""
        if self.config.ignores(pod.metadata.namespace):
            return
        try:
            state = pod_state(pod)
        except BadPod:
            self.notes.add(ERROR, "Error extracting local information for Pod", pod.key)
            return
        self._count_tentative(pod, state, node_name)

    def _count_tentative(self, pod: Pod, state: PodState, node_name: str) -> Refusal | None:
        if state.uid in self.tentative:
            text = "Pod already exists in set of tentatively scheduled pods"
            self.notes.add(ERROR, text, pod.key)
            return Refusal("UnschedulableAndUnresolvable", text)
        known = self.nodes.get(node_name)
        if known is None:
            self.notes.add(ERROR, "Node not found in local state", node_name)
            return Refusal("Error", "Node not found in local state")
        try:
            known.node.add(state)
        except InvalidHoldingError as error:
            return Refusal("Error", f"panic: {error}")
        self.tentative[state.uid] = node_name
        self.notes.add(INFO, "Reserved tentatively scheduled Pod on Node", pod.key)
        if known.node.is_over:
            self.figures.should_deny(known.node, False)
        return None

    def unreserve(self, pod: Pod, node_name: str) -> None:
        """The pod is not to be there after all. Raises InvalidHoldingError where it
        was to be elsewhere."""
        self.count_call("Unreserve", pod)
        self.notes.add(INFO, "Handling Unreserve request", pod.key)
        uid = pod.metadata.uid
        name = self.tentative.get(uid)
        if name is None:
            text = "Cannot unreserve Pod, it isn't in the set of tentatively scheduled pods"
            self.notes.add(WARN, text, pod.key)
            return
        if name != node_name:
            raise InvalidHoldingError("Pod is tentatively scheduled on an unexpected node")
        known = self.nodes.get(name)
        if known is None:
            self.notes.add(ERROR, "Node not found in local state", name)
            return
        if not known.node.remove(uid):
            raise InvalidHoldingError("Pod unexpectedly doesn't exist on Node")
        del self.tentative[uid]
        self.notes.add(INFO, "Unreserved tentatively scheduled Pod", pod.key)

    def read_pod_state(self, pod: Pod) -> PodState | Refusal:
        """The pod as filters, scores and reservations are to see it."""
        ours = self.config.scheduler_name
        if pod.spec.scheduler_name != ours:
            self.notes.add(ERROR, "Pod has unexpected SchedulerName", pod.key)
            return Refusal(
                "Error",
                f'mismatched SchedulerName for pod: our config has "{ours}", '
                f'but the pod has "{pod.spec.scheduler_name}"',
            )
        try:
            return pod_state(pod)
        except BadPod as error:
            text = "Error extracting local information for Pod"
            self.notes.add(ERROR, text, pod.key)
            return Refusal("UnschedulableAndUnresolvable", f"{text}: {error}")

    def held_state(self, uid: str, node_name: str) -> PodState | None:
        """The pod as it is counted on a node, None where it is not."""
        known = self.nodes.get(node_name)
        return known.node.pods.get(uid) if known is not None else None


def _error_text(answer: Answer) -> str:
    return (answer.message or f"status {answer.code}") if answer.code else ""


def metric_labels(pod: Pod, config: Config) -> Mapping[str, str]:
    """Of counters about extension points."""
    return {
        "desired_availability_zone": _zone(pod),
        "ignored_namespace": str(config.ignores(pod.metadata.namespace)).lower(),
    }


ZONE: Final = "topology.kubernetes.io/zone"


def _zone(pod: Pod) -> str:
    """The zone that the pod must or would like to be in, "" for none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None:
        return ""
    required = affinity.required.node_selector_terms if affinity.required is not None else ()
    terms = [*(required or ()), *(term.preference for term in affinity.preferred or ())]
    for term in terms:
        for want in term.match_expressions or ():
            if want.key == ZONE and want.operator == "In" and len(want.values or ()) == 1:
                return str((want.values or ("",))[0])
    return ""
