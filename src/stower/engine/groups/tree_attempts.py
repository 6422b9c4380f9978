"""What becomes of an attempt for a tree of groups: all of its minimum is assumed, or nothing."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from stower.engine.attempt_errors import FAULTS
from stower.engine.binding.pending_writes import Settling
from stower.engine.binding.permit import Together
from stower.engine.cycle.pod_attempts import NO_BINDER, Outcomes, is_bound_by_some
from stower.engine.cycle.scheduling_cycle import Cycle
from stower.engine.groups.group_status import (
    FALSE,
    INVALID,
    SCHEDULED,
    SCHEDULER_ERROR,
    TRUE,
    UNSCHEDULABLE,
    GroupTelling,
    Word,
)
from stower.engine.groups.tree_cycle import NO_MORE, Found, Plan, TreeCycle, pending_of
from stower.engine.groups.tree_preemption import Harm, TreePreemption
from stower.engine.groups.tree_queue import Trees
from stower.engine.preemption.pod_eviction import CLUSTER
from stower.engine.queue.entities import GANG_SCHEDULING, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import Queue
from stower.engine.status_reporter import Telling
from stower.framework.decisions import Outcome
from stower.framework.writes import DeletePod, Write
from stower.groups.feasibility import Feasibility, feasibility
from stower.groups.problem_builder import admitted, placed
from stower.groups.reasons import NO_NODE
from stower.groups.tree import Tree, done, is_placed, pods_disagree
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState, PodEntry

GATED: Final = "SchedulingGated"  # as of pods with gates: nobody need make room for it yet
HALF_BOUND: Final = "stower.dev/when-half-bound"  # an annotation of a root
RELEASE: Final = "Release"
RELEASED_AFTER_NS: Final = 300 * SECOND_NS  # as long as a Permit plugin waits upstream
NO_ROOM: Final = "there is no room for its minimum beside the groups that are placed"
NOTHING: Final[Mapping[str, str | None]] = {}
ONGOING: Final = "ongoing preemption on nominated nodes"
NEVER: Final = "Never"  # a pod's preemptionPolicy


class TreeOutcomes:
    """Of all attempts for trees."""

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        trees: Trees,
        cycle: Cycle,
        outcomes: Outcomes,
        tell: Telling,
        telling: GroupTelling,
        settling: Settling,
        together: Together,
        skip_deleted: Callable[[QueuedPod], None],
        let_go: Callable[[QueuedPod, str], None],
        send: Callable[[Write], None],
        next_id: Callable[[], int],
    ) -> None:
        self._send = send
        self._next_id = next_id
        self._state = state
        self._queue = queue
        self._trees = trees
        self._cycle = cycle
        self._search = TreeCycle(state, cycle)
        self._preemption = TreePreemption(state, cycle, self._search)
        self._outcomes = outcomes
        self._tell = tell
        self._telling = telling
        self._settling = settling
        self._together = together
        self._skip_deleted = skip_deleted
        self._let_go = let_go
        trees.tell = self._missing

    def attempt(self, queued: QueuedTree) -> None:
        """Try to place the pods of a tree that have no node."""
        now_ns = self._state.now_ns
        for member in list(queued.members.values()):
            if member.pod.metadata.deletion_timestamp is not None:
                self._skip_deleted(member)
        if not queued.members:
            return
        open_ = [uid for uid in queued.members if uid in self._settling]
        if open_:
            for uid in open_:
                self._settling.missed(uid)
            self._queue.wait(queued, queued.refused_by, now_ns, None)
            return
        tree = self._trees.tree(queued.root)
        members = queued.open()
        fault = tree.invalid or pods_disagree(tree, [m.entry for m in members])
        if fault:
            self._fail(queued, fault, is_invalid=bool(tree.invalid))
            self._tell_groups(tree, INVALID if tree.invalid else SCHEDULER_ERROR, fault)
            return
        for member in members:
            member.attempts += 1
        try:
            pending = pending_of(tree, members)
            found = self._search.attempt(queued.profile, tree, pending, queued.given_up)
        except FAULTS as error:  # this tree fails, the loop goes on
            self._fail(queued, str(error))
            return
        queued.given_up = queued.given_up + 1 if found.exhausted else 0
        if found.plan:
            self._assume(queued, tree, found.plan)
            self._tell_groups(tree, UNSCHEDULABLE, NO_MORE)
        else:
            note = self._refuse(queued, tree, found)
            # Groups are not told what each of their pods is, but for the one thing that is in the
            # way of all.
            more = f"; alone: {note}" if note and NO_NODE in found.message else ""
            self._tell_groups(tree, UNSCHEDULABLE, f"{found.message}{more}")

    def why(self, queued: QueuedTree) -> str:
        """What keeps a tree waiting, "" where it would be placed now. Changes nothing."""
        tree = self._trees.tree(queued.root)
        members = queued.open()
        fault = queued.missing or tree.invalid or pods_disagree(tree, [m.entry for m in members])
        if fault:
            return fault
        found = self._search.attempt(queued.profile, tree, pending_of(tree, members))
        return "" if found.plan else found.message

    def _missing(self, tree: Tree, queued: QueuedTree) -> int | None:
        """It waits for something to appear, and has for a while. When to look again, if at all."""
        message, queued.again_ns = queued.missing, 0
        if half := self._half_bound(queued, tree):
            message = f"{message} (half bound: {len(half)} of its pods are on nodes)"
        for member in queued.open():
            self._tell.report(member, GATED, message)
        self._tell_groups(tree, UNSCHEDULABLE, message)
        return queued.again_ns or None

    def _assume(self, queued: QueuedTree, tree: Tree, plan: Plan) -> None:
        if queued.profile.settlers and self._settles(queued, plan):
            return
        if not all(is_bound_by_some(member) for member, _ in plan):
            self._fail(queued, NO_BINDER)
            return
        team = self._together.begin(member for member, _ in plan)
        queued.unschedulable_count = 0
        for member, _ in plan:
            self._queue.release(member)
        for i, (member, row) in enumerate(plan):
            why = "a pod of its group cannot be bound"
            try:
                self._outcomes.take(member, row)
            except FAULTS as error:  # which went well when it was tried
                why = str(error)
                for other in self._together.dissolve(member.uid):
                    self._let_go(other, f"pod {member.pod.key} of its group cannot be bound: {why}")
                if member.entry.assumed:
                    self._let_go(member, why)
                else:
                    self._outcomes.fail(member, why)
            if team.is_dissolved:  # nothing of it is done
                for left, _ in plan[i + 1 :]:
                    self._outcomes.fail(left, why)
                return
        if queued.members:
            # There was no room for these; the others' minimum is met.
            errors = queued.error_count
            self._report(queued, Found([], NO_MORE))
            queued.error_count = errors

    def _settles(self, queued: QueuedTree, plan: Plan) -> bool:
        """Whether others have to agree first with the nodes of some pods: all wait for them."""
        waits = []
        for member, row in plan:
            found = self._cycle.settle_at(queued.profile, member.entry, row)
            if found is not None:
                waits.append((member, *found))
        if not waits:
            return False
        agains = [wait.again_ns for _, _, wait in waits if wait.again_ns is not None]
        names = frozenset(plugin.name for _, plugin, _ in waits)
        again_ns = min(agains) if agains else None
        self._queue.wait(queued, names, self._state.now_ns, again_ns)
        for member, _, wait in waits:
            self._settling.begin(member.uid, wait)
            self._tell.decide(member, Outcome.UNSCHEDULABLE, message=wait.message)
            self._tell.report(member, "Unschedulable", wait.message, wait.nominate)
        return True

    def _refuse(self, queued: QueuedTree, tree: Tree, found: Found) -> str:
        """No place for what waits: others of lower priority leave, if that helps. Why one of its
        pods would not fit alone, "" where all would."""
        queued.root_uid = tree.groups[0].obj.metadata.uid
        half = self._half_bound(queued, tree)
        if half:
            message = f"{found.message} (half bound: {len(half)} of its pods are on nodes)"
            found = found._replace(message=message)
        harm = self._harm(queued, tree, found)
        if harm is None:
            return self._report(queued, found)
        if not harm.plan:
            message = f"{found.message}. preemption: {harm.why_not}"
            kept = dict.fromkeys(queued.members) if harm.why_not == ONGOING else {}
            return self._report(queued, found._replace(message=message), kept)
        nodes = {member.uid: self._state.names[row] for member, row in harm.plan}
        note = self._report(queued, found, nodes)
        for node_name in dict.fromkeys(nodes.values()):
            self._outcomes.take_promises(node_name, queued.priority)
        self._outcomes.evict(queued, CLUSTER, harm.victims)
        if not queued.is_preempting:
            self._queue.ungate(queued, False, self._state.now_ns)
        return note

    def _half_bound(self, queued: QueuedTree, tree: Tree) -> list[PodEntry]:
        """Pods that are on nodes though the tree's minimum never was: whoever bound them has
        crashed, or others took the room. Where the root says so, they leave after a while."""
        if not tree.groups:
            return []
        root = tree.groups[0].obj
        bound = [e for g in tree.leaves() for e in placed(self._state, tree, g) if not e.assumed]
        if not bound or is_placed(root) or admitted(self._state, tree)[0]:
            queued.half_bound_ns = None
            return []
        now_ns = self._state.now_ns
        since_ns = now_ns if queued.half_bound_ns is None else queued.half_bound_ns
        queued.half_bound_ns = since_ns
        if (root.metadata.annotations or {}).get(HALF_BOUND) != RELEASE:
            return bound
        if now_ns - since_ns < RELEASED_AFTER_NS:
            queued.again_ns = since_ns + RELEASED_AFTER_NS
            return bound
        for entry in bound:
            meta = entry.pod.metadata
            if meta.deletion_timestamp is None:
                note = f"{root.metadata.name} cannot be placed as a whole"
                self._tell.event(entry.pod, "Warning", "Released", "Scheduling", note)
                self._send(DeletePod(self._next_id(), meta.namespace, meta.name, meta.uid))
        queued.half_bound_ns = None
        return bound

    def _harm(self, queued: QueuedTree, tree: Tree, found: Found) -> Harm | None:
        """Where the tree would go and who would leave; None where nobody is to be asked to.
        Source: KEP-6012 "Preemption triggering rules"."""
        if not found.resolvable or not any(p.evicts for p in queued.profile.post_filters):
            return None
        pending = pending_of(tree, queued.open())
        if self._feasibility(tree, pending) is Feasibility.UNRESOLVABLE:
            return None
        own = tree.groups[0].obj.spec.preemption_policy
        if (own or queued.pod.spec.preemption_policy) == NEVER:
            return Harm([], [], "not eligible due to preemptionPolicy=Never.")
        if self._awaits_victims(queued):
            return Harm([], [], ONGOING)
        if not admitted(self._state, tree)[0]:
            # Nobody leaves for more than the minimum.
            pending = [
                pods[: max(group.obj.minimum - len(placed(self._state, tree, g)), 0)]
                if not group.which.is_composite
                else []
                for g, (group, pods) in enumerate(zip(tree.groups, pending, strict=True))
            ]
        return self._preemption.find(queued.profile, tree, pending, queued.priority)

    def _feasibility(self, tree: Tree, pending: list[list[QueuedPod]]) -> Feasibility:
        """What the root would say, were all that has no place refused: whether there are enough
        pods at all. A pod that no node would ever take counts as refused, as upstream."""
        said: list[Feasibility] = []
        ended = done(tree, self._state.groups)
        for g in range(len(tree.groups) - 1, -1, -1):
            group = tree.groups[g]
            if group.which.is_composite:
                children = [said[len(tree.groups) - 1 - c] for c in group.children]
                have = children.count(Feasibility.SUCCESS)
                refused = children.count(Feasibility.UNSCHEDULABLE)
            else:
                have, refused = len(placed(self._state, tree, g)), len(pending[g])
            minimum = 0 if g in ended else group.obj.minimum
            said.append(feasibility(minimum, have, 0, refused))
        # A tree that has its minimum asks for room for what is left of it.
        return Feasibility.UNSCHEDULABLE if said[-1] is Feasibility.SUCCESS else said[-1]

    def _awaits_victims(self, queued: QueuedTree) -> bool:
        """Whether pods still leave where its pods were promised room."""
        for member in queued.members.values():
            row = self._state.row_of(member.entry.nominated_to)
            for entry in self._state.on_row[row].values() if row >= 0 else ():
                is_leaving = entry.is_leaving or entry.pod.metadata.deletion_timestamp is not None
                if is_leaving and entry.pod.priority < queued.priority:
                    return True
        return False

    def _report(
        self, queued: QueuedTree, found: Found, nodes: Mapping[str, str | None] = NOTHING
    ) -> str:
        """Nothing of what waits can be placed now. nodes: those that are promised, by pod; None
        leaves a promise as it is, and who is not named has none. What is returned: see _refuse."""
        now_ns = self._state.now_ns
        plugins = set()
        notes: dict[tuple[int, bytes], str] = {}
        seen = set()
        for member in queued.open():
            entry, sort = member.entry, member.sort
            # What was made for extended resources is each pod's own.
            if sort in seen and not entry.shape.extended:
                continue
            seen.add(sort)
            plugins |= {p.name for p in queued.profile.filters if p.concerns(entry.shape)}
            diagnosis, remedy = self._cycle.diagnose(queued.profile, entry)
            if diagnosis is not None:
                plugins |= diagnosis.plugins
                notes[sort] = diagnosis.message(remedy.message)
            for patch in remedy.patches:
                self._send(msgspec.structs.replace(patch, id=self._next_id()))
        self._queue.park(queued, frozenset(plugins), now_ns)
        if found.exhausted:
            again_ns = now_ns + self._queue.delay_ns(queued.unschedulable_count)
            self._queue.again(queued, again_ns)
        elif queued.again_ns > now_ns:
            self._queue.again(queued, queued.again_ns)
        for member in queued.open():
            note = notes.get(member.sort)
            told = found.message
            if not self._has_minimum(member):
                told = told.replace(NO_MORE, NO_ROOM)
            message = f"{told}; alone: {note}" if note else told
            self._tell.decide(member, Outcome.UNSCHEDULABLE, message=message)
            self._tell.report(member, "Unschedulable", message, nodes.get(member.uid, ""))
        if not any(nodes.values()):
            self._queue.ungate(queued, False, now_ns)
        return next(iter(notes.values()), "")

    def _tell_groups(self, tree: Tree, reason: str, message: str) -> None:
        """Groups that have their minimum are placed; the others say why they are not."""
        for group, is_admitted in zip(tree.groups, admitted(self._state, tree), strict=True):
            said = message.replace(NO_MORE, NO_ROOM)
            word = Word(TRUE, SCHEDULED, "") if is_admitted else Word(FALSE, reason, said)
            self._telling.tell(group.which, word)

    def _has_minimum(self, member: QueuedPod) -> bool:
        """Whether the pod's own group has."""
        key = f"{member.pod.metadata.namespace}/{member.pod.group_name}"
        group = self._state.groups.pod_groups.get(key)
        pods = self._state.groups.members.get(key, {}).values()
        return group is None or sum(entry.row >= 0 for entry in pods) >= group.minimum

    def _fail(self, queued: QueuedTree, message: str, *, is_invalid: bool = False) -> None:
        """By no fault of the cluster's."""
        now_ns = self._state.now_ns
        if is_invalid:  # nothing but a change of its groups will help
            self._queue.park(queued, frozenset((GANG_SCHEDULING,)), now_ns)
        else:
            self._queue.retry(queued, now_ns)
        for member in queued.open():
            self._tell.decide(member, Outcome.ERROR, message=message)
            self._tell.report(member, "SchedulerError", message)
