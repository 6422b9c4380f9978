"""One scheduling attempt for a pod group tree: all of its minimum is assumed, or nothing.

Must not know watch events, or how a placement is found.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.binding.pending_writes import PendingWrites
from stower.engine.context import Context
from stower.engine.cycle.pod_attempts import NO_BINDER, PodAttempts, has_binder
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.alike_pods import key_of_alike
from stower.engine.groups.eviction_pauses import ONGOING
from stower.engine.groups.group_status import (
    FALSE,
    INVALID,
    SCHEDULED,
    TRUE,
    ConditionValue,
    GroupStatus,
)
from stower.engine.groups.lasting_refusal import find_outlasting
from stower.engine.groups.tree_cycle import (
    GROWING_ATTEMPTS,
    NO_MORE,
    TreeCycle,
)
from stower.engine.groups.tree_plan import (
    Plan,
    SolverFailed,
    TreeResult,
    pending_of,
    shared_claims,
    sharing,
)
from stower.engine.groups.tree_preemption import AWAITS_VICTIMS, TreePreemption, VictimPlan
from stower.engine.groups.tree_queue import TreeQueue
from stower.engine.groups.tree_solving import TreeSolving
from stower.engine.outbox import UNTRACKED
from stower.engine.preemption.eviction_pauses import begin_pause
from stower.engine.preemption.pod_eviction import CLUSTER, PodEviction
from stower.engine.queue.entities import GANG_SCHEDULING, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import SCHEDULER_ERROR, UNSCHEDULABLE
from stower.framework.cluster_events import ClusterEvent
from stower.framework.decisions import Outcome
from stower.framework.negotiation import Wait
from stower.framework.plugin import Plugin
from stower.framework.profile import Profile
from stower.framework.writes import DeletePod
from stower.groups.problem_builder import admitted_groups, placed_pods
from stower.groups.reasons import NO_NODE
from stower.groups.searches import SearchesAtOnce, Unsolved
from stower.groups.tree import Tree, find_disagreement, is_placed, tree_of
from stower.model.kinds import GroupObject
from stower.model.times import SECOND_NS
from stower.state.arrays import Bools
from stower.state.groups import GroupKey
from stower.state.pod_entry import PodEntry

GATED: Final = "SchedulingGated"  # as for pods with gates: needs no room yet
HALF_BOUND: Final = "stower.dev/when-half-bound"  # an annotation of a root
RELEASE: Final = "Release"
RELEASED_AFTER_NS: Final = 300 * SECOND_NS  # as long as a Permit plugin waits upstream
NEXT_STEP_NS: Final = 2 * SECOND_NS  # between steps of giving back, while a tree is incomplete
NO_ROOM: Final = (
    "The composite group has its minimum; there is no room for the minimum of this group"
)
MORE_FOLLOW: Final = "The group has its minimum; its other pods are tried next"
NOTHING: Final[Mapping[str, str | None]] = {}


class TreeAttempts:
    """Runs attempts for trees, and applies their results."""

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        cycle: SchedulingCycle,
        attempts: PodAttempts,
        binding: BindingCycle,
        eviction: PodEviction,
        pending: PendingWrites,
    ) -> None:
        self._state = context.state
        self._context = context
        self._outbox = context.outbox
        self._reporter = context.reporter
        self._queue = queue
        self._cycle = cycle
        self._attempts = attempts
        self._binding = binding
        self._eviction = eviction
        self._pending = pending
        self.trees = TreeQueue(context.state, queue)
        self.trees.reporter = self
        self.status = GroupStatus(context)
        eviction.groups = self.status
        self._tree_cycle = TreeCycle(context.state, cycle)
        self._solving = TreeSolving(context, queue)
        self.spent = 0  # by searches of this step, see Searches
        self._preemption = TreePreemption(context.state, cycle, self._tree_cycle)

    def solver_failed(self, report: SolverFailed) -> None:
        """Has errors of the solver reported instead of raised."""
        self._tree_cycle.solver_failed = report

    def on_group(self, obj: GroupObject, is_deleted: bool, has_changed: bool) -> None:
        """Handles a group that was added, modified or deleted. `has_changed`: whether more than its
        status changed."""
        if has_changed:
            self.trees.on_group_change(obj)
        self.status.observe(obj, is_deleted)

    def run(self, queued: QueuedTree) -> None:
        """Tries to place the unscheduled pods of a tree."""
        now_ns = self._state.now_ns
        queued.awaits_more = queued.outlasts = None
        for member in list(queued.members.values()):
            if member.pod.metadata.deletion_timestamp is not None:
                self._attempts.skip_deleted(member)
        if not queued.members:
            return
        pending_uids = [uid for uid in queued.members if uid in self._pending.pods]
        if pending_uids:
            for uid in pending_uids:
                self._pending.retry_when_seen(uid)
            self._queue.wait(queued, queued.refused_by, now_ns, None)
            return
        tree = self.trees.tree(queued.root)
        members = queued.ungated_members()
        fault = tree.invalid or find_disagreement(tree, [m.entry for m in members])
        if fault:
            self._context.is_applying = True
            queued.searches.finish(False)
            self.fail(queued, fault, is_invalid=bool(tree.invalid))
            self._give_back_unplaceable(queued)
            self._set_conditions(tree, INVALID, fault)
            return
        if members:
            queued.profile = members[0].profile  # the pod that the tree was queued with may be gone
        queued.pairs_searched = len(members) * self._state.node_count
        self._state.refresh_images()
        for member in members:
            member.attempts += 1
        try:
            if self._begin_attempt(queued.profile, members):
                self._continue_giving_back(queued)
                return
            found, victims = self._search(queued, tree, members)
        except Unsolved as unsolved:
            for member in members:
                member.attempts -= 1  # this one goes on when the answer is there
            self._solving.ask(queued, tree, unsolved)
            return
        except ATTEMPT_ERRORS as error:  # only this tree's attempt fails
            self.fail(queued, str(error))
            return
        self._context.is_applying = True
        if isinstance(victims, VictimPlan) and victims.exhausted:
            found = found._replace(exhausted=True)
        is_stale = queued.searches.is_stale
        if not (is_stale and found.exhausted):  # such an attempt was none on this state
            queued.exhausted_count = queued.exhausted_count + 1 if found.exhausted else 0
        if is_stale and not found.plan:
            queued.retry_ns = now_ns + self._queue.delay_ns(queued.unschedulable_count)
        queued.searches.finish(found.exhausted and queued.exhausted_count <= GROWING_ATTEMPTS)
        if found.plan:
            self._assume(queued, tree, found.plan)
            self._set_conditions(tree, UNSCHEDULABLE, NO_MORE)
        else:
            told, note = self._refuse(queued, tree, found, victims)
            # Conditions of groups leave out the diagnoses of single pods, unless one keeps off all.
            more = f"; one pod alone: {note}" if note and NO_NODE in told else ""
            self._set_conditions(tree, UNSCHEDULABLE, f"{told}{more}")

    def _search(
        self, queued: QueuedTree, tree: Tree, members: list[QueuedPod]
    ) -> tuple[TreeResult, VictimPlan | str | None]:
        """Searches a placement, and victims where there is none. Raises Unsolved."""
        searches, is_known = queued.searches, False
        searches.begin_attempt()
        try:
            with self._tree_cycle.asking(searches):
                found = self._tree_cycle.attempt(
                    queued.profile,
                    tree,
                    pending_of(tree, members),
                    queued.exhausted_count,
                    prefers_asked=True,
                )
                victims = None if found.plan else self._victims_or_error(queued, tree, found)
            is_known = True
            return found, victims
        except Unsolved:
            is_known = True
            raise
        finally:
            self.spent += searches.spent
            if not is_known:  # an answer may be what fails
                searches.finish(False)

    def _begin_attempt(
        self, profile: Profile, members: list[QueuedPod], can_be_placed: bool = True
    ) -> bool:
        """Lets plugins that negotiate for the tree's pods prepare the attempt. Returns whether the
        pods first have to give back what they have."""
        found = False
        for plugin in profile.negotiating_plugins:
            pods = [m.pod for m in members if plugin.is_relevant(m.entry.shape)]
            found |= bool(pods) and plugin.begin_tree_attempt(pods, self._state, can_be_placed)
        return found

    def _give_back_unplaceable(self, queued: QueuedTree) -> bool:
        """Takes the next steps by which pods of an invalid or incomplete tree give back what they
        have. Returns whether steps may be left."""
        all_members = queued.ungated_members()
        members = [m for m in all_members if m.uid not in self._pending.pods]
        try:
            self._begin_attempt(queued.profile, members, can_be_placed=False)
        except ATTEMPT_ERRORS:
            return False  # the tree has to change before it is tried
        waits = [found for found in self._find_steps_back(queued) if found[0] in members]
        for member, _, wait in waits:
            self._pending.begin(member.uid, wait)
        return len(members) < len(all_members) or any(wait.writes for _, _, wait in waits)

    def _continue_giving_back(self, queued: QueuedTree) -> None:
        """Parks a tree whose last placement failed, and takes the next steps by which its pods give
        back what they have. No placement is searched before; the pods' conditions stay."""
        self._context.is_applying = True
        waits = [*self._find_steps_back(queued)]
        names = frozenset(plugin.name for _, plugin, _ in waits)
        agains = [wait.retry_at_ns for _, _, wait in waits if wait.retry_at_ns is not None]
        queued.pairs_searched = 0  # nothing was searched
        self._queue.wait(queued, names, self._state.now_ns, min(agains, default=None))
        for member, _, wait in waits:
            self._pending.begin(member.uid, wait)

    def waiting_reason(self, queued: QueuedTree) -> str:
        """Returns what keeps a tree waiting, "" where it would be placed now. Changes nothing."""
        tree = self.trees.tree(queued.root)
        members = queued.ungated_members()
        fault = (
            queued.waits_for or tree.invalid or find_disagreement(tree, [m.entry for m in members])
        )
        if fault:
            return fault
        return self.dry_run(queued).message

    def dry_run(self, queued: QueuedTree) -> TreeResult:
        """Returns where the tree's pods would go now, by the groups as they are in the state."""
        tree = tree_of(self._state.groups, queued.root)
        pending = pending_of(tree, queued.ungated_members())
        return self._tree_cycle.attempt(queued.profile, tree, pending, improves=False)

    def dry_run_victims(self, queued: QueuedTree, found: TreeResult) -> VictimPlan | None:
        """Returns who would leave for a tree that `dry_run` has refused, None where nobody may."""
        tree = tree_of(self._state.groups, queued.root)
        with self._tree_cycle.asking(SearchesAtOnce()):
            return self._preemption.victims_for(queued, tree, found, looks_only=True)

    def usable_rows(self, queued: QueuedTree) -> Bools:
        """Returns bool[row_limit]: the nodes that some pod of the tree might use if they were
        empty."""
        usable = np.zeros(self._state.row_limit, np.bool_)
        for member in queued.distinct_members():
            evaluation = self._cycle.evaluation(queued.profile, member.entry.shape)
            usable |= evaluation.on_empty_nodes[: self._state.row_limit]
        return usable

    def report_waiting(self, tree: Tree, queued: QueuedTree) -> int | None:
        """Reports what the tree waits for. Returns when to report again, None for never."""
        message, queued.retry_ns = queued.waits_for, 0
        if half := self._half_bound_pods(queued, tree):
            message = f"{message} (partially bound: {len(half)} of its pods are on nodes)"
        members = queued.ungated_members()
        for member in members:
            self._reporter.report(member, GATED, message)
        fault = self.trees.fault_of(queued)
        self._set_conditions(tree, INVALID if fault else UNSCHEDULABLE, fault or message)
        if fault and not tree.groups:  # the groups that there are name their parent
            names = [f"{m.pod.metadata.namespace}/{m.pod.group_name}" for m in members]
            for key in dict.fromkeys(names):
                for which in self._state.groups.lineage(GroupKey(False, key)):
                    self.status.set(which, ConditionValue(FALSE, INVALID, fault))
        if queued.profile.negotiating_plugins and self._give_back_unplaceable(queued):
            return self._state.now_ns + NEXT_STEP_NS
        return queued.retry_ns or None

    def _assume(self, queued: QueuedTree, tree: Tree, plan: Plan, why_left: str = NO_MORE) -> None:
        """Assumes the plan's pods, or waits for others to accept it. why_left: why it has not all
        pods of the tree."""
        if queued.profile.negotiating_plugins and self._wait(queued, tree, plan):
            return
        if not all(has_binder(member) for member, _ in plan):
            self.fail(queued, NO_BINDER)
            return
        with sharing(self._state, shared_claims([member for member, _ in plan])):
            is_placed = self._place_all(queued, plan)
        if is_placed and queued.members:
            # The minimum is placed; these may have room, or evict others as single pods would.
            errors = queued.error_count
            self._report(queued, TreeResult([], why_left, exhausted=True))
            queued.error_count = errors

    def _place_all(self, queued: QueuedTree, plan: Plan) -> bool:
        """Assumes the pods of a plan; returns whether all are: else none is bound."""
        group = self._binding.permit.wait(member for member, _ in plan)
        queued.unschedulable_count = 0
        for member, _ in plan:
            self._queue.release(member)
        for i, (member, row) in enumerate(plan):
            why = "another pod of the same pod group cannot be bound"
            try:
                self._attempts.place(member, row)
            except ATTEMPT_ERRORS as error:  # which did not happen in the trial
                why = str(error)
                message = f"pod {member.pod.key} of the same pod group cannot be bound: {why}"
                self._binding.reject_group(member.uid, message)
                if member.entry.is_assumed:
                    self._binding.cancel(member, why)
                else:
                    self._attempts.fail(member, why)
            if group.is_rejected:
                for left, _ in plan[i + 1 :]:
                    self._attempts.fail(left, why)
                return False
        return True

    def _wait(self, queued: QueuedTree, tree: Tree, plan: Plan) -> bool:
        """Parks the tree where others have to accept the nodes of some of its pods first. Returns
        False where they need not."""
        waits = self._negotiate(queued, tree, plan, False)
        if not waits:
            return False
        if all(wait.is_ready for _, _, wait in waits):
            waits = self._negotiate(queued, tree, plan, True)
        if any(wait.is_stalled for _, _, wait in waits):
            returns = self._find_returns(queued)
            waits = [found for found in waits if found[0].uid not in returns]
            waits += returns.values()
        agains = [wait.retry_at_ns for _, _, wait in waits if wait.retry_at_ns is not None]
        names = frozenset(plugin.name for _, plugin, _ in waits)
        again_ns = min(agains) if agains else None
        queued.exhausted_count = queued.pairs_searched = (
            0  # what it waits for is dealt with at once
        )
        self._queue.wait(queued, names, self._state.now_ns, again_ns)
        if again_ns is not None:
            queued.awaits_more = self._pending_answers(queued, waits)
        for member, _, wait in waits:
            self._pending.begin(member.uid, wait)
            self._reporter.decide(member, Outcome.UNSCHEDULABLE, message=wait.message)
            self._reporter.report_wait(member, wait)
        return True

    def _pending_answers(
        self, queued: QueuedTree, waits: list[tuple[QueuedPod, Plugin, Wait]]
    ) -> Callable[[ClusterEvent], bool]:
        """Returns a function that says whether the tree with these waits still waits for answers
        after an event. Else each of the answers about n pods would have n pods placed again."""
        plugins = {plugin.name: plugin for _, plugin, _ in waits}

        def awaits_more(event: ClusterEvent) -> bool:
            for name, plugin in plugins.items():
                pods = [m.pod for m, by, _ in waits if by.name == name and m.uid in queued.members]
                if plugin.awaits_more(pods, self._state, event):
                    return True
            return False

        return awaits_more

    def _negotiate(
        self, queued: QueuedTree, tree: Tree, plan: Plan, may_select: bool
    ) -> list[tuple[QueuedPod, Plugin, Wait]]:
        """Returns what the pods of the plan wait for, without those that wait for nothing."""
        waits = []
        keys = {tree.groups[g].which.key: tree.topology_keys(g) for g in tree.leaves()}
        for member, row in plan:
            group = f"{member.pod.metadata.namespace}/{member.pod.group_name}"
            try:
                found = self._cycle.negotiate_at(
                    queued.profile, member.entry, row, may_select, keys.get(group, ())
                )
            except ATTEMPT_ERRORS:
                continue  # `_assume` meets it again, and reports it
            if found is not None:
                waits.append((member, *found))
        return waits

    def _victims_or_error(
        self, queued: QueuedTree, tree: Tree, found: TreeResult
    ) -> VictimPlan | str | None:
        """Returns what TreePreemption does; an error counts for that alone. Raises Unsolved."""
        try:
            victims = self._preemption.victims_for(queued, tree, found)
        except ATTEMPT_ERRORS as error:
            return str(error)
        if victims is not None and not victims.plan and queued.searches.is_outdated():
            raise Unsolved
        return victims

    def _refuse(
        self, queued: QueuedTree, tree: Tree, found: TreeResult, victims: VictimPlan | str | None
    ) -> tuple[str, str]:
        """Refuses a tree that cannot be placed, and preempts where that helps. Returns what its
        groups are told, and why one of its pods would not fit alone, "" where all would."""
        queued.root_uid = tree.groups[0].obj.metadata.uid
        told = found.message
        half = self._half_bound_pods(queued, tree)
        if half:
            message = f"{found.message} (partially bound: {len(half)} of its pods are on nodes)"
            found = found._replace(message=message)
        if isinstance(victims, str):  # tried again with backoff
            message = f"{found.message}. preemption: {victims}"
            return told, self._report(queued, found._replace(message=message, exhausted=True))
        if victims is not None:
            queued.futile_count = queued.futile_count + 1 if victims.is_futile else 0
        is_known = not found.exhausted or (victims is not None and victims.is_proved)
        if is_known and queued.retry_ns <= self._state.now_ns:
            queued.outlasts = find_outlasting(self._state, self._tree_cycle, queued, tree, victims)
        if victims is None:
            return told, self._report(queued, found)
        if victims.why_not == ONGOING:  # it has been found where the tree goes
            told = f"{AWAITS_VICTIMS} ({ONGOING})"
            return told, self._report(
                queued, found._replace(message=told), dict.fromkeys(queued.members)
            )
        if not victims.plan:
            message = f"{found.message}. preemption: {victims.why_not}"
            return told, self._report(queued, found._replace(message=message))
        queued.outlasts = None
        if not victims.victims:
            self._assume(queued, tree, victims.plan, MORE_FOLLOW)
            return told, ""
        told = victims.text()
        nodes = {member.uid: self._state.node_names[row] for member, row in victims.plan}
        note = self._report(queued, found._replace(message=told), nodes)
        for node_name in dict.fromkeys(nodes.values()):
            self._eviction.withdraw_nominations(node_name, queued.priority)
        self._eviction.evict(queued, CLUSTER, victims.victims)
        begin_pause(self._state, queued, (member.pod for member in queued.members.values()))
        if not queued.is_preempting:
            self._queue.finish_preemption(queued, False, self._state.now_ns)
        return told, note

    def _half_bound_pods(self, queued: QueuedTree, tree: Tree) -> list[PodEntry]:
        """Returns pods that are on nodes although the tree's minimum never was: the scheduler that
        bound the pods crashed, or other pods took the room. If the root's annotation requests it,
        these pods are deleted after a delay."""
        if not tree.groups:
            return []
        root = tree.groups[0].obj
        bound = [
            e for g in tree.leaves() for e in placed_pods(self._state, tree, g) if not e.is_assumed
        ]
        if not bound or is_placed(root) or admitted_groups(self._state, tree)[0]:
            queued.half_bound_ns = None
            return []
        now_ns = self._state.now_ns
        since_ns = now_ns if queued.half_bound_ns is None else queued.half_bound_ns
        queued.half_bound_ns = since_ns
        if (root.metadata.annotations or {}).get(HALF_BOUND) != RELEASE:
            return bound
        if now_ns - since_ns < RELEASED_AFTER_NS:
            queued.retry_ns = since_ns + RELEASED_AFTER_NS
            return bound
        for entry in bound:
            meta = entry.pod.metadata
            if meta.deletion_timestamp is None:
                note = (
                    f"Deleting the pod: group {root.metadata.name} was partially bound for "
                    f"{RELEASED_AFTER_NS // SECOND_NS} s"
                )
                self._reporter.event(entry.pod, "Warning", "Released", "Scheduling", note)
                id = self._outbox.next_id()
                write = DeletePod(id, meta.namespace, meta.name, meta.uid)
                self._outbox.send(write, UNTRACKED)
        queued.half_bound_ns = None
        return bound

    def _report(
        self, queued: QueuedTree, found: TreeResult, nodes: Mapping[str, str | None] = NOTHING
    ) -> str:
        """Parks the tree and reports why on each of its pods. nodes: the node to nominate by pod
        uid; None leaves a nomination, pods that are not named lose theirs. Returns as _refuse."""
        now_ns = self._state.now_ns
        plugins = set()
        notes: dict[tuple[int, bytes], str] = {}
        alike: dict[object, tuple[int, bytes]] = {}
        seen = set()
        for member in queued.ungated_members():
            entry, class_key = member.entry, member.class_key
            # Claims made for extended resources differ from pod to pod.
            if class_key in seen and not entry.shape.extended_requests:
                continue
            seen.add(class_key)
            plugins |= {
                p.name
                for p in queued.profile.filters
                if p.is_relevant(entry.shape) and p.is_relevant_to_pod(entry.pod, self._state)
            }
            try:
                like = key_of_alike(self._state, queued.profile, entry)
                if like in alike:
                    if alike[like] in notes:
                        notes[class_key] = notes[alike[like]]
                    continue
                diagnosis, post_filter_result = self._cycle.diagnose(queued.profile, entry)
            except ATTEMPT_ERRORS as error:  # this pod's only; the group's result stands
                notes[class_key] = str(error)
                continue
            if like is not None and (diagnosis is None or diagnosis.pre_filter is None):
                alike[like] = class_key
            if diagnosis is not None:
                plugins |= diagnosis.plugins
                notes[class_key] = diagnosis.message(post_filter_result.message)
            if post_filter_result.retry_at_ns is not None and queued.retry_ns <= now_ns:
                queued.retry_ns = post_filter_result.retry_at_ns
            for patch in post_filter_result.patches:
                id = self._outbox.next_id()
                self._outbox.send(msgspec.structs.replace(patch, id=id), UNTRACKED)
        self._queue.park(queued, frozenset(plugins), now_ns)
        if found.exhausted and queued.exhausted_count <= GROWING_ATTEMPTS:
            # Later attempts would repeat the same search: only a change helps then.
            delay_ns = self._queue.delay_ns(queued.unschedulable_count)
            self._queue.retry_at(queued, now_ns + delay_ns)
        elif queued.retry_ns > now_ns:
            self._queue.retry_at(queued, queued.retry_ns)
        for member in queued.ungated_members():
            note = notes.get(member.class_key)
            message = found.message
            if not self._has_minimum(member):
                message = message.replace(NO_MORE, NO_ROOM)
            message = f"{message}; this pod alone: {note}" if note else message
            self._reporter.decide(member, Outcome.UNSCHEDULABLE, message=message)
            self._reporter.report(member, UNSCHEDULABLE, message, nodes.get(member.uid, ""))
        if not any(nodes.values()):
            self._queue.finish_preemption(queued, False, now_ns)
        if not nodes and queued.profile.negotiating_plugins:
            self._give_claims_back(queued)
        return next(iter(notes.values()), "")

    def _give_claims_back(self, queued: QueuedTree) -> None:
        """Takes the next steps by which pods give back negotiated claims: the tree fits nowhere, so
        its pods must not keep devices that other pods could use (seed 000: all claims or none)."""
        agains = []
        for member, _, wait in self._find_steps_back(queued):
            self._pending.begin(member.uid, wait)
            if wait.retry_at_ns is not None:
                agains.append(wait.retry_at_ns)
        if agains:
            self._queue.retry_at(queued, min(agains))

    def _find_returns(self, queued: QueuedTree) -> dict[str, tuple[QueuedPod, Plugin, Wait]]:
        """Returns the steps by which pods give something back now, by the pod's uid."""
        return {found[0].uid: found for found in self._find_steps_back(queued) if found[2].writes}

    def _find_steps_back(self, queued: QueuedTree) -> Iterator[tuple[QueuedPod, Plugin, Wait]]:
        for member in queued.ungated_members():
            try:
                found = self._cycle.negotiate(queued.profile, member.entry, -1, is_of_tree=True)
            except ATTEMPT_ERRORS:
                continue  # reported by the diagnosis of the pod
            if found is not None:
                yield member, *found

    def _set_conditions(self, tree: Tree, reason: str, message: str) -> None:
        """Sets the condition of each group: True where its minimum is placed, else False."""
        for group, is_admitted in zip(tree.groups, admitted_groups(self._state, tree), strict=True):
            value = ConditionValue(FALSE, reason, message.replace(NO_MORE, NO_ROOM))
            if is_admitted:
                value = ConditionValue(TRUE, SCHEDULED, "")
            self.status.set(group.which, value)

    def _has_minimum(self, member: QueuedPod) -> bool:
        """Returns whether the minimum of the pod's own group is placed."""
        key = f"{member.pod.metadata.namespace}/{member.pod.group_name}"
        group = self._state.groups.pod_groups.get(key)
        pods = self._state.groups.members.get(key, {}).values()
        return group is None or sum(entry.row >= 0 for entry in pods) >= group.minimum

    def fail(self, queued: QueuedTree, message: str, *, is_invalid: bool = False) -> None:
        """Ends the attempt in an error; `is_invalid`: only a change of its groups helps."""
        now_ns = self._state.now_ns
        if is_invalid:
            self._queue.park(queued, frozenset((GANG_SCHEDULING,)), now_ns)
        else:
            self._queue.retry(queued, now_ns)
        for member in queued.ungated_members():
            self._reporter.decide(member, Outcome.ERROR, message=message)
            self._reporter.report(member, SCHEDULER_ERROR, message)
