"""Pod group trees with at least one unscheduled pod, keyed by root, and what each waits for.

The root is what is queued (KEP-6012 "Prerequisites"). Parents and members may come in any order: a
tree is known by the topmost group that is named, whether that exists or not, and its pods move to
another tree when that changes. Must not know nodes, writes or the search.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from stower.engine.queue.entities import Place, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import PENDING_POD_CHANGES
from stower.groups.tree import Tree, find_fault, tree_of, waiting_reason
from stower.model.kinds import GroupObject, Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey, group_key

# What most trees wait for comes at once; what does not is reported.
REPORTED_AFTER_NS: Final = 15 * SECOND_NS
WAITS_FOR_GATES: Final = "All pods of the group are gated"


class WaitReporter(Protocol):
    """Reports what a tree has waited for for a while."""

    def report_waiting(self, tree: Tree, queued: QueuedTree) -> int | None:
        """Reports it. Returns when to report again, None for never."""


# Reports a tree whose update raised an error, returns when to try again.
UpdateFailed = Callable[[GroupKey, Exception], int]


class TreeQueue:
    """All queued trees, and the trees whose pods or groups changed since the last cycle."""

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        queue.trees = self
        self.reporter: WaitReporter | None = None
        self.update_failed: UpdateFailed | None = None
        # Builds all again, after a tree whose update was half done.
        self.rebuild: Callable[[GroupKey], None] = lambda root: None
        # Trees whose update has raised an error, and when it is repeated.
        self._failed: dict[GroupKey, int] = {}
        self._by_root: dict[GroupKey, QueuedTree] = {}
        self._former: dict[GroupKey, QueuedTree] = {}  # from before a reset
        self.reset()

    def reset(self) -> None:
        """Forgets all trees; trees that are added again keep the results of their attempts."""
        self._former = {**self._former, **self._by_root}
        self._by_root = {}
        self._changed: dict[GroupKey, None] = {}
        # Trees with pods at a gate that more than the pod's own update can open.
        self._gated: dict[GroupKey, None] = {}
        # Trees that wait for something, and when that is reported; the heap has old entries too.
        self._unreported: dict[GroupKey, int] = {}
        self._deadlines: list[tuple[int, GroupKey]] = []
        self._trees: dict[GroupKey, tuple[int, Tree]] = {}  # with the generation of the groups
        self._is_interrupted = False  # all was built again, and the trees are to be updated

    @property
    def next_wake_ns(self) -> int | None:
        """The time of the next report of what a tree waits for, or of a repeated update; now, where
        all was built again after an error."""
        if self._is_interrupted:
            return self._state.now_ns
        first_ns = self._next_report_ns
        if self._failed:
            retry_ns = min(self._failed.values())
            return retry_ns if first_ns is None else min(first_ns, retry_ns)
        return first_ns

    @property
    def _next_report_ns(self) -> int | None:
        deadlines = self._deadlines
        while deadlines and self._unreported.get(deadlines[0][1]) != deadlines[0][0]:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    # Changes

    @property
    def has_changes(self) -> bool:
        """Whether `update` has anything to do."""
        return bool(self._changed or self._gated or self._deadlines or self._failed)

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod to the tree of its pod group."""
        self._add(queued, self._state.now_ns)

    def end_reset(self) -> None:
        """Forgets the trees from before the reset."""
        self._former = {}

    def _add(self, queued: QueuedPod, added_ns: int) -> QueuedTree:
        root = self._root(queued.pod)
        tree = self._by_root.get(root)
        if tree is None:
            tree = self._former.pop(root, None) if self._former else None
            if tree is None:
                tree = QueuedTree(root, queued.profile, added_ns)
            else:
                tree.renew(queued.profile)
            self._by_root[root] = tree
        self._queue.hold(queued, tree)
        self._update_gate(queued, tree)
        self._changed[root] = None
        return tree

    def _update_gate(self, queued: QueuedPod, tree: QueuedTree) -> None:
        was_gated = queued.uid in tree.gated
        gate = queued.closed_gate()
        if gate is not None:
            name, error = gate
            if error or queued.profile.plugins[name].events_to_register & ~PENDING_POD_CHANGES:
                self._gated[tree.root] = None
        if (gate is not None) == was_gated:
            return
        self._changed[tree.root] = None
        if was_gated:
            del tree.gated[queued.uid]
        else:
            tree.gated[queued.uid] = queued

    def on_group_change(self, obj: GroupObject) -> None:
        """Moves pods whose tree has another root since a group was added, modified or deleted."""
        which = group_key(obj)
        groups = self._state.groups
        # The trees of its pods now, while it was not known and while it was; and where groups
        # formed a cycle, those of all its groups.
        roots = [groups.root(which), *groups.lineage(which)]
        if parent := groups.parent_of(obj):
            around = GroupKey(True, parent)
            roots += [groups.root(around), *groups.lineage(around)]
        for root in dict.fromkeys(roots):
            tree = self._by_root.get(root)
            if tree is None:
                continue
            self._changed[root] = None
            for member in list(tree.members.values()):
                if self._root(member.pod) != root:
                    self._queue.release(member)
                    self._add(member, tree.added_ns)

    def on_pod_change(self, queued: QueuedPod) -> None:
        """Evaluates the gates (PreEnqueue) of a held pod again after a change of the pod."""
        if queued.tree is not None:
            self._update_gate(queued, queued.tree)

    def on_member_change(self, pod: Pod) -> None:
        """Looks at the pod's tree again: a pod with a node joined or left its group."""
        if pod.group_name and (root := self._root(pod)) in self._by_root:
            self._changed[root] = None

    def on_domain_change(self) -> None:
        """Looks at refused trees with topology constraints again: a node changed its domains."""
        for root, tree in self._by_root.items():
            if tree.place is Place.UNSCHEDULABLE:
                try:
                    groups = self.tree(root).groups
                    if not any(group.topology or group.preferred for group in groups):
                        continue
                except Exception:  # the update that follows reports it
                    pass
                self._changed[root] = None

    def update(self, now_ns: int) -> bool:
        """Reports what trees wait for, and moves trees that changed: complete trees may be tried,
        incomplete ones are gated. Returns True where all was built again after an error: there is
        more to do."""
        self._is_interrupted = False
        damaged: GroupKey | None = None  # a tree whose update was half done
        if self._deadlines:
            self._report_waiting(now_ns)
        for root in list(self._gated):
            tree = self._by_root.get(root)
            del self._gated[root]
            if tree is None:
                continue
            try:
                for member in list(tree.gated.values()):
                    self._update_gate(member, tree)
            except Exception as error:
                self._on_failure(root, error)
        if self._failed:
            self._repeat_failed(now_ns)
        if self._changed:
            changed, self._changed = self._changed, {}
            for root in changed:
                tree = self._by_root.get(root)
                if tree is not None and tree.members and root not in self._failed:
                    try:
                        waits_for = self._waiting_reason(root, tree)
                    except Exception as error:  # nothing was changed
                        self._on_failure(root, error)
                        continue
                    try:
                        self._update_tree(root, tree, waits_for, now_ns)
                    except Exception as error:
                        self._on_failure(root, error)
                        damaged = root
        if damaged is None:
            return False
        self.rebuild(damaged)
        self._is_interrupted = True
        return True

    def _repeat_failed(self, now_ns: int) -> None:
        for root, due_ns in [*self._failed.items()]:
            if root not in self._by_root:
                del self._failed[root]
            elif due_ns <= now_ns:
                del self._failed[root]
                self._changed[root] = None

    def _on_failure(self, root: GroupKey, error: Exception) -> None:
        if self.update_failed is None:
            raise error
        self._failed[root] = self.update_failed(root, error)

    def _report_waiting(self, now_ns: int) -> None:
        while (due_ns := self._next_report_ns) is not None and due_ns <= now_ns:
            _, root = heappop(self._deadlines)
            del self._unreported[root]
            waiting = self._by_root.get(root)
            if waiting is not None and waiting.waits_for and self.reporter is not None:
                try:
                    again_ns = self.reporter.report_waiting(self.tree(root), waiting)
                except Exception as error:  # only the report is lost, until it is repeated
                    self._on_failure(root, error)
                    continue
                if again_ns is not None:
                    self._report_at(root, again_ns)

    def _report_at(self, root: GroupKey, due_ns: int) -> None:
        self._unreported[root] = due_ns
        heappush(self._deadlines, (due_ns, root))

    def _waiting_reason(self, root: GroupKey, queued: QueuedTree) -> str:
        """Returns what the tree waits for before it can be tried, or ""."""
        tree = self.tree(root)
        reason = waiting_reason(tree, self._pod_counts(tree, queued), self._state.groups)
        if not reason and len(queued.gated) == len(queued.members):
            return WAITS_FOR_GATES
        return reason

    def _update_tree(self, root: GroupKey, queued: QueuedTree, waits_for: str, now_ns: int) -> None:
        queued.waits_for = waits_for
        if not queued.waits_for or queued.waits_for == WAITS_FOR_GATES:
            self._unreported.pop(root, None)
        else:
            is_known = root in self._unreported
            fault = self.fault_of(queued, is_known)
            if fault or not is_known:
                self._report_at(root, now_ns if fault else now_ns + REPORTED_AFTER_NS)
        if queued.place is Place.NOWHERE:
            self._queue.add_tree(queued, now_ns)
        else:
            self._queue.update_tree(queued, now_ns)

    def fault_of(self, queued: QueuedTree, is_quick: bool = False) -> str:
        """Returns why a tree would wait for ever as it is, which is reported at once; or "".
        is_quick: looks at its groups, its first pod and its last."""
        tree, members = self.tree(queued.root), queued.members
        others = self._state.other_scheduler_pods
        if is_quick or (len(members) < 3 and not others):
            first = next(iter(members.values())).entry.pod.spec
            last = next(reversed(members.values())).entry.pod.spec
            is_alike = first is last or (
                first.priority == last.priority
                and first.preemption_policy == last.preemption_policy
            )
            if is_alike and tree.groups and not tree.invalid:
                return ""
        pods = [member.entry for member in queued.ungated_members()]
        return find_fault(tree, pods, others.values())

    def fail(self, queued: QueuedPod) -> None:
        """Returns a pod that lost its node to its tree, which is tried again after a delay."""
        now_ns = self._state.now_ns
        tree = self._add(queued, now_ns)
        tree.waits_for = ""
        # Even where an event woke the tree: what failed would fail again at once.
        if tree.place is not Place.ERROR_BACKOFF and not tree.is_preempting:
            self._queue.retry_tree(tree, now_ns)

    def forget(self, tree: QueuedTree) -> None:
        """Forgets a tree that has no member left."""
        if self._by_root.get(tree.root) is tree:
            del self._by_root[tree.root]
            self._trees.pop(tree.root, None)
            self._unreported.pop(tree.root, None)

    # Trees

    def get(self, root: GroupKey) -> QueuedTree | None:
        """Returns the queued tree of a root, None where it has no pod without a node."""
        return self._by_root.get(root)

    def tree(self, root: GroupKey) -> Tree:
        """Returns the tree of groups below a root, by the objects."""
        generation = self._state.groups.generation
        known = self._trees.get(root)
        if known is not None and known[0] == generation:
            return known[1]
        tree = tree_of(self._state.groups, root)
        self._trees[root] = (generation, tree)
        return tree

    def _pod_counts(self, tree: Tree, queued: QueuedTree) -> list[int]:
        """Returns the number of ungated pods per group of the tree, with a node or without."""
        groups = self._state.groups
        gated = Counter(
            f"{member.pod.metadata.namespace}/{member.pod.group_name}"
            for member in queued.gated.values()
        )
        return [
            0
            if group.which.is_composite
            else len(groups.members.get(group.which.key, ())) - gated[group.which.key]
            for group in tree.groups
        ]

    def _root(self, pod: Pod) -> GroupKey:
        key = GroupKey(False, f"{pod.metadata.namespace}/{pod.group_name}")
        return self._state.groups.root(key)
