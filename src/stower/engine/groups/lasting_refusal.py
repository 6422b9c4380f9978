"""Why a tree of pod groups has no place, whoever is evicted, and for how long that holds while
other pods end.

Most pods that end leave room on a node that is not what the tree lacks. A count says so: so many
places are missing in each domain, and so many have come since. It takes microseconds, a search
milliseconds to seconds. The count is an upper bound, see groups/bounds.py: where it allows a
placement, the tree is searched again.

Must not know the queue, or any change but room that a pod has left.
"""

from collections.abc import Callable

from stower.engine.groups.evicted_room import EvictedRoom
from stower.engine.groups.tree_cycle import Amounts, TreeCycle
from stower.engine.groups.tree_plan import pending_of
from stower.engine.groups.tree_preemption import VictimPlan
from stower.engine.queue.entities import QueuedTree
from stower.framework.dry_run import CapacityConstraint
from stower.framework.freed_room import FreedRoom
from stower.groups.bounds import ALIVE, missing_places
from stower.groups.problem_builder import DomainConflictError, IndexedProblem
from stower.groups.tree import Tree
from stower.groups.units import group_of, priority_of
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

Domain = tuple[str, ...]  # the values of the topology keys


class CountedRefusal:
    """There are too few places for a tree, even if all pods were gone that preemption may evict."""

    def __init__(
        self, state: ClusterState, priority: int, leaving: frozenset[str], leaves: "list[_Leaf]"
    ) -> None:
        """`leaving`: uids of pods that were counted as gone as they were being deleted."""
        self._state = state
        self._priority = priority
        self._leaving = leaving
        self._leaves = leaves

    def outlasts(self, freed: FreedRoom) -> bool:
        """Returns whether that holds with the room that a pod has left now."""
        if self._is_counted_as_gone(freed.entry):
            return True
        here = self._state.pods_by_row[freed.row].values()
        gone = (entry for entry in here if self._is_counted_as_gone(entry))
        evicted = EvictedRoom(gone, self._state.devices)
        return not _is_enough(self._leaves, freed, evicted)

    def _is_counted_as_gone(self, entry: PodEntry) -> bool:
        return entry.uid in self._leaving or is_lower(self._state, entry, self._priority)


class FutileEviction:
    """A search has found no placement without all pods that preemption may evict: that one of them
    is gone helps no preemption."""

    def __init__(
        self,
        state: ClusterState,
        priority: int,
        leaving: frozenset[str],
        leaves: "list[_Leaf] | None",
    ) -> None:
        """`leaving`: uids of pods that were being deleted: the search has left them where they
        were; `leaves`: None where no placement without evictions can come of it either."""
        self._groups = state.groups
        self._nobody = EvictedRoom((), state.devices)
        self._priority = priority
        self._leaving = leaving
        self._leaves = leaves

    def outlasts(self, freed: FreedRoom) -> bool:
        """Returns whether the tree has no place with the room that a pod has left now."""
        entry = freed.entry
        # A pod of a group that leaves as a whole may have stayed with a more important one of it.
        is_alone = group_of(self._groups, entry) is None
        was_evicted = is_alone and priority_of(self._groups, entry) < self._priority
        if not was_evicted or entry.uid in self._leaving:
            return False
        return self._leaves is None or not _is_enough(self._leaves, freed, self._nobody)


def _is_enough(leaves: "list[_Leaf]", freed: FreedRoom, evicted: EvictedRoom) -> bool:
    is_enough = False
    for leaf in leaves:  # all of them: each keeps what has come
        is_enough |= leaf.is_enough(freed, evicted)
    return is_enough


class _Leaf:
    """A PodGroup of the tree, and how many places it lacks by domain."""

    def __init__(
        self, state: ClusterState, built: IndexedProblem, g: int, lacks: Ints, amounts: Amounts
    ) -> None:
        group = built.problem.groups[g]
        scope = built.problem.scopes[group.scope]
        self._state = state
        self._keys = built.keys[g]
        self._lacks_elsewhere = max(group.minimum, 1) if group.domains is None else ALIVE
        self._lacks: dict[Domain, int] = {}
        of_code: dict[int, int] = {}  # any of its rows
        for code, row in zip(scope.codes.tolist(), built.rows.tolist(), strict=True):
            of_code.setdefault(code, row)
        for code, lacking in enumerate(lacks.tolist()):
            if code in of_code:
                self._lacks[self._domain(of_code[code]) or ()] = lacking
        self._parts = [(len(pods), amounts(pods[0])) for pods in built.pods[g]]
        self._before: dict[int, int] = {}  # by row, the places that were there at the refusal
        self._added: dict[Domain, dict[int, int]] = {}  # those that have come, by domain and row

    def is_enough(self, freed: FreedRoom, evicted: EvictedRoom) -> bool:
        """Returns whether the group may be in the row's domain with the places there are now."""
        row = freed.row
        domain = self._domain(row)
        lacking = self._lacks.get(domain, self._lacks_elsewhere) if domain is not None else ALIVE
        if domain is None or lacking == ALIVE:
            return False
        if row not in self._before:
            # Pods that came between the refusal and now have only taken room: this is no less.
            self._before[row] = self._places(row, evicted, freed.entry)
        added = self._added.setdefault(domain, {})
        added[row] = max(self._places(row, evicted) - self._before[row], 0)
        return sum(added.values()) >= lacking

    def _places(self, row: int, evicted: EvictedRoom, left: PodEntry | None = None) -> int:
        """Returns how many pods of the group fit on the row, each kind as if it were alone;
        `left`: a pod that was still there."""
        here = slice(row, row + 1)
        places = 0
        for count, rooms in self._parts:
            if left is not None:
                rooms = [_occupied(room, left) for room in rooms]
            for room in evicted.constraints(rooms):
                if room.need > 0:
                    count = min(count, max(int(room.free(here)[0]), 0) // room.need)
            places += count
        return places

    def _domain(self, row: int) -> Domain | None:
        """Returns the domain that the row is in, None where a label is missing."""
        node = self._state.nodes[row]
        labels = (node.metadata.labels or {}) if node is not None else None
        if labels is None or any(key not in labels for key in self._keys):
            return None
        return tuple(labels[key] for key in self._keys)


def _occupied(room: CapacityConstraint, entry: PodEntry) -> CapacityConstraint:
    used = room.usage(entry.shape)
    return room._replace(free=lambda rows: room.free(rows) - used) if used else room


def is_lower(state: ClusterState, entry: PodEntry, priority: int) -> bool:
    """Returns whether preemption for this priority may evict a pod."""
    return entry.pod.priority < priority or (
        bool(entry.group_name) and priority_of(state.groups, entry) < priority
    )


def find_outlasting(
    state: ClusterState,
    cycle: TreeCycle,
    queued: QueuedTree,
    tree: Tree,
    victims: VictimPlan | None,
) -> Callable[[FreedRoom], bool] | None:
    """Returns a function that says whether the refusal of a tree holds with the room that a pod has
    left; None where nothing is known. `victims`: what came of its preemption."""
    priority = queued.priority
    gone, leaving = [], []
    for entry in state.placed_pods():
        if entry.pod.metadata.deletion_timestamp is not None or entry.is_deletion_pending:
            leaving.append(entry)
        elif is_lower(state, entry, priority):
            gone.append(entry)
    uids = frozenset(entry.uid for entry in leaving)
    pending = pending_of(tree, queued.ungated_members())

    def count(evicted: list[PodEntry]) -> list[_Leaf] | None:
        try:
            built, amounts = cycle.problem_without(queued.profile, tree, pending, evicted)
        except DomainConflictError:
            return None
        lacks = missing_places(built.problem)
        if lacks is None:
            return None
        leaves = enumerate(lacks)
        return [_Leaf(state, built, g, of, amounts) for g, of in leaves if of is not None]

    if leaves := count([*gone, *leaving]):
        return CountedRefusal(state, priority, uids, leaves).outlasts
    if victims is None or not victims.is_futile:
        return None
    if victims.is_proved:
        return FutileEviction(state, priority, uids, None).outlasts
    leaves = count([])
    return FutileEviction(state, priority, uids, leaves).outlasts if leaves else None
