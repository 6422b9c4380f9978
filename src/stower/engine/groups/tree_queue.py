"""Trees of groups in the queue: which pod waits with which tree, and what keeps a tree from being
tried.

The root is what is queued (KEP-6012 "Prerequisites"). Parents and members may come in any order: a
tree is known by the topmost group that is named, be it known or not, and moves when that changes.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from stower.engine.queue.entities import Place, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import Queue
from stower.framework.cluster_events import OWN
from stower.framework.profile import Profile
from stower.groups.tree import Tree, tree_of, unready
from stower.model.kinds import GroupObject, Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey, group_key

# What most trees wait for comes at once; what does not is worth a word.
TOLD_AFTER_NS: Final = 15 * SECOND_NS
LET_IN: Final = "waiting for its pods to be let in"


class Trees:
    """All trees of which some pod has no node."""

    def __init__(self, state: ClusterState, queue: Queue, is_on: bool) -> None:
        """`is_on`: whether there are any."""
        self._is_on = is_on
        # Who is told what a tree has waited for for a while.
        self.tell: Callable[[Tree, QueuedTree], int | None] = lambda known, tree: None
        # Trees that wait for something to appear, and when it is told; the heap has old ones too.
        self._untold: dict[GroupKey, int] = {}
        self._due: list[tuple[int, GroupKey]] = []
        self._state = state
        self._queue = queue
        self._by_root: dict[GroupKey, QueuedTree] = {}
        # Whose pods or groups have changed since they were last looked at.
        self._changed: dict[GroupKey, None] = {}
        # Some of whose pods wait at a gate that more can open than a change of their own.
        self._gated: dict[GroupKey, None] = {}
        self._known: dict[GroupKey, tuple[int, Tree]] = {}
        queue.emptied = self._emptied

    @property
    def next_wake_ns(self) -> int | None:
        """When the next tree is told what it waits for."""
        while self._due and self._untold.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def _tell_at(self, root: GroupKey, due_ns: int) -> None:
        self._untold[root] = due_ns
        heappush(self._due, (due_ns, root))

    def takes(self, pod: Pod) -> bool:
        """Whether the pod waits with a tree."""
        return self._is_on and bool(pod.group_name)

    def add(self, queued: QueuedPod, profile: Profile, now_ns: int) -> QueuedTree:
        """A pod waits with its tree."""
        root = self._root(queued.pod)
        tree = self._by_root.get(root)
        if tree is None:
            tree = self._by_root[root] = QueuedTree(root, profile, now_ns)
        self._queue.hold(queued, tree)
        self._look_at_gate(queued, tree)
        self._changed[root] = None
        return tree

    def _look_at_gate(self, queued: QueuedPod, tree: QueuedTree) -> None:
        was = queued.uid in tree.gated
        gate = queued.gate()
        if gate is not None:
            name, error = gate
            if error or queued.profile.plugins[name].wakes_on & ~OWN:
                self._gated[tree.root] = None
        if (gate is not None) == was:
            return
        self._changed[tree.root] = None
        if was:
            del tree.gated[queued.uid]
        else:
            tree.gated[queued.uid] = queued

    def group_changed(self, obj: GroupObject) -> None:
        """A group has come, changed or gone: trees may have another root now."""
        which = group_key(obj)
        groups = self._state.groups
        # Where its pods wait now, have waited while it was not known, or did while it was; or, of
        # what was a cycle, in any of its groups.
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
                    self.add(member, member.profile, tree.added_ns)

    def pod_changed(self, queued: QueuedPod) -> None:
        """A pod that waits has changed: what it is held back by may have."""
        if queued.tree is not None:
            self._look_at_gate(queued, queued.tree)

    def counted_anew(self, pod: Pod) -> None:
        """A pod that does not wait has come into some group, or is gone."""
        if self.takes(pod) and (root := self._root(pod)) in self._by_root:
            self._changed[root] = None

    def domains_changed(self) -> None:
        """Some node is in other domains now: trees that were refused may have one."""
        for root, tree in self._by_root.items():
            if tree.place is Place.UNSCHEDULABLE:
                groups = self.tree(root).groups
                if any(group.topology or group.preferred for group in groups):
                    self._changed[root] = None

    def settle(self, now_ns: int) -> None:
        """Let trees in whose pods and groups are complete now, and hold back those that are not."""
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, root = heappop(self._due)
            del self._untold[root]
            waiting = self._by_root.get(root)
            if waiting is not None and waiting.missing:
                again_ns = self.tell(self.tree(root), waiting)
                if again_ns is not None:
                    self._tell_at(root, again_ns)
        if not self._changed and not self._gated:
            return
        for root in list(self._gated):
            tree = self._by_root.get(root)
            del self._gated[root]
            if tree is None:
                continue
            for member in list(tree.gated.values()):
                self._look_at_gate(member, tree)
        changed, self._changed = self._changed, {}
        for root in changed:
            tree = self._by_root.get(root)
            if tree is None or not tree.members:
                continue
            known = self.tree(root)
            tree.missing = unready(known, self._counts(known, tree), self._state.groups)
            if not tree.missing and len(tree.gated) == len(tree.members):
                tree.missing = LET_IN
            if not tree.missing or tree.missing == LET_IN:
                self._untold.pop(root, None)
            elif root not in self._untold:
                self._tell_at(root, now_ns + TOLD_AFTER_NS)
            if tree.place is Place.NOWHERE:
                self._queue.add_tree(tree, now_ns)
            else:
                self._queue.stir(tree, now_ns)

    def failed(self, queued: QueuedPod, now_ns: int) -> None:
        """A pod that had its node has it no more: its tree is tried again after a delay."""
        tree = self.add(queued, queued.profile, now_ns)
        tree.missing = ""
        # Whatever has woken it meanwhile: what has failed would fail again at once.
        if tree.place is not Place.ERROR_BACKOFF and not tree.is_preempting:
            self._queue.retry_tree(tree, now_ns)

    def tree(self, root: GroupKey) -> Tree:
        """The tree as the objects say it is."""
        generation = self._state.groups.generation
        known = self._known.get(root)
        if known is not None and known[0] == generation:
            return known[1]
        tree = tree_of(self._state.groups, root)
        self._known[root] = (generation, tree)
        return tree

    def _counts(self, tree: Tree, queued: QueuedTree) -> list[int]:
        """Pods by group: all that are there, but for those that are gated."""
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

    def _emptied(self, tree: QueuedTree) -> None:
        if self._by_root.get(tree.root) is tree:
            del self._by_root[tree.root]
            self._known.pop(tree.root, None)
            self._untold.pop(tree.root, None)
