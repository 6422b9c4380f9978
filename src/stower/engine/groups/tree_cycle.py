"""The scheduling cycle for a pod group tree: searches a placement and verifies it with the plugins.

Everything happens in trials, which are undone. The answers of plugins become a problem in numbers,
the search (groups/placement.py) chooses domains, and inside them the plugins choose nodes, one pod
after another, as long as all pods fit so; else each pod goes where the search put it. Where a
plugin refuses such a pod, the attempt learns how many pods of that kind each node can have.

Must not know the queue, writes or time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import numpy as np

from stower.devices.negotiation.claims import driver_of
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.evicted_room import EvictedRoom
from stower.engine.groups.learned_caps import LearnedCaps, kinds_of
from stower.engine.groups.tree_plan import (
    Plan,
    SolverFailed,
    TreeResult,
    assume_reserved,
    place_in_any_order,
    shared_claims,
    sharing,
)
from stower.engine.queue.entities import QueuedPod, encode_pod_terms
from stower.framework.dry_run import CapacityConstraint, TreePods
from stower.framework.profile import Profile
from stower.framework.tree_rules import TogetherRule, TreeRule
from stower.groups.arrival import arrival_order
from stower.groups.placement import (
    Answer,
    ExhaustedSearch,
    FoundPlacement,
    InfeasibleProblem,
)
from stower.groups.placement_check import faults_of
from stower.groups.problem import Problem, collect_placement
from stower.groups.problem_builder import (
    Builder,
    DomainConflictError,
    IndexedProblem,
    Sorted,
    placed_pods,
)
from stower.groups.reasons import failure_message
from stower.groups.searches import Searches, SearchesAtOnce, Unsolved
from stower.groups.tree import Tree
from stower.model.kinds import Pod
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState
from stower.state.devices import claim_keys
from stower.state.pod_entry import PodEntry

# Placements that plugins may refuse before the attempt is given up.
ROUNDS_MAX: Final = 20
# Placements with more pods than the first one that plugins may refuse.
IMPROVEMENTS_MAX: Final = 3
# The largest factor on the budget of a tree whose last attempts were given up.
EFFORT_MAX: Final = 4
# So many attempts in a row search further than the one before.
GROWING_ATTEMPTS: Final = EFFORT_MAX.bit_length() - 1

NO_MORE: Final = "The group has its minimum; there is no room for this pod"

NO_ROWS: Final[Mapping[str, Bools]] = {}
NO_PROMISES: Final[Mapping[str, int]] = {}

Amounts = Callable[[PodEntry], list[CapacityConstraint]]


class TreeCycle:
    """Attempts for trees over one ClusterState. `solver_failed`: None where errors of the solver
    are raised."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle) -> None:
        self._state = state
        self._cycle = cycle
        self.solver_failed: SolverFailed | None = None
        self.searches: Searches = SearchesAtOnce()  # of the tree that is tried

    @contextmanager
    def asking(self, searches: Searches) -> Iterator[None]:
        """Has the attempts inside it raise Unsolved where they would take long."""
        self.searches = searches
        try:
            yield
        finally:
            self.searches = SearchesAtOnce()

    def attempt(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        exhausted_count: int = 0,
        *,
        prefers_asked: bool = False,
        improves: bool = True,
        explains: bool = True,
    ) -> TreeResult:
        """Returns where the tree's pending pods go. pending: by group, its pods without a node, in
        their order; exhausted_count: preceding attempts without a result, each of which doubles
        the budget; prefers_asked: for pods that negotiate, nodes about which others were asked and
        did not refuse them come before all others, also where more pods than the minimum would fit
        on others: else the pods would be placed where nobody was asked yet, again and again;
        improves: more pods are looked for once a placement was found, but not between the answers
        of those who were asked: each has another placement searched; explains: says why there is
        none, which may take longer than to find that out."""
        effort = min(1 << exhausted_count, EFFORT_MAX)
        asked = self._asked_rows(profile, pending) if prefers_asked else {}
        improves = improves and not asked
        promised = self._promised_rows(pending) if self._state.nominated_pods else NO_PROMISES
        try:
            keys = shared_claims(q for pods in pending for q in pods)
            if not keys and not promised and not asked:  # nearly always
                return self._search(
                    profile, tree, pending, effort, {}, improves, promised, explains
                )
            with ExitStack() as around:
                if keys:
                    around.enter_context(sharing(self._state, keys))
                if promised:
                    around.enter_context(self._state.trial())
                    for queued in (q for pods in pending for q in pods if q.uid in promised):
                        self._state.nominate(queued.entry, "")  # not in the way of each other
                if asked:
                    among_asked = self._search(
                        profile, tree, pending, effort, asked, improves, promised, explains
                    )
                    if among_asked.plan:
                        return among_asked
                return self._search(
                    profile, tree, pending, effort, {}, improves, promised, explains
                )
        except DomainConflictError as error:
            message = f"cannot determine domain for already scheduled pods: {error}"
            return TreeResult([], message, resolvable=False)

    def _promised_rows(self, pending: list[list[QueuedPod]]) -> dict[str, int]:
        """Returns by uid the rows that pods are nominated to."""
        names = {q.uid: q.entry.nominated_node_name for pods in pending for q in pods}
        return {uid: self._state.row_of(name) for uid, name in names.items() if name}

    def problem_without(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        evicted: Sequence[PodEntry],
    ) -> tuple[IndexedProblem, Amounts]:
        """Returns the placement problem as if these placed pods were gone, with all that evictions
        may change as if it allowed the most, and a function for the amounts of a pod. Costs less
        than to remove them in a trial. Raises DomainConflictError."""
        attempt = _Attempt(self._state, self._cycle, profile, tree, pending, 1)
        return attempt.problem_without(evicted), attempt.amounts

    def _asked_rows(self, profile: Profile, pending: list[list[QueuedPod]]) -> Mapping[str, Bools]:
        """Returns bool[row_limit] by the pod's uid: the rows about which others were asked. Without
        pods that were asked about all rows."""
        found: dict[str, Bools] = {}
        for queued in (q for pods in pending for q in pods) if profile.negotiating_plugins else ():
            evaluation = self._cycle.evaluation(profile, queued.entry.shape)
            for plugin in evaluation.plugins.negotiating:
                rows = plugin.asked_rows(queued.pod, self._state)
                if rows is not None and (evaluation.best[: len(rows)][~rows] >= 0).any():
                    found[queued.uid] = found.get(queued.uid, True) & rows
        return found

    def _search(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        effort: int,
        among: Mapping[str, Bools],
        improves: bool,
        promised: Mapping[str, int],
        explains: bool,
    ) -> TreeResult:
        """Searches a placement. `among`: bool[row_limit], the only rows for some pods, by uid;
        `promised`: rows that are tried first."""
        top = tree.groups[0]
        if len(tree.groups) == 1 and not (top.topology or top.preferred or promised):
            plan = self._place_one_by_one(profile, pending[0], among)
            if plan is not None:
                return TreeResult(plan)
        begin = partial(
            _Attempt, self._state, self._cycle, profile, tree, pending, effort, self.solver_failed,
            among, improves, promised, explains, self.searches,
        )  # fmt: skip
        if any(group.preferred for group in tree.groups):
            found = begin().run(requires_preferred=True)
            if found.plan:
                return found
        return begin().run()

    def _place_one_by_one(
        self, profile: Profile, members: list[QueuedPod], among: Mapping[str, Bools]
    ) -> Plan | None:
        """Places the pods of a group without topology one after another; None where one does not
        fit."""
        plan = []
        with self._state.trial():
            for queued in members:
                allowed = among.get(queued.uid)
                if allowed is None:
                    row = self._cycle.choose(profile, queued.entry)
                else:
                    row = self._cycle.choose_within(profile, queued.entry, allowed.nonzero()[0])
                if row < 0:
                    return None
                assume_reserved(self._state, profile, queued.entry, row)
                plan.append((queued, row))
        return plan


class _Attempt:
    """One attempt for one tree."""

    def __init__(
        self,
        state: ClusterState,
        cycle: SchedulingCycle,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        effort: int,
        solver_failed: SolverFailed | None = None,
        among: Mapping[str, Bools] = NO_ROWS,
        improves: bool = True,
        promised: Mapping[str, int] = NO_PROMISES,
        explains: bool = True,
        searches: Searches | None = None,
    ) -> None:
        self._searches = searches or SearchesAtOnce()
        self._promised = promised
        self._explains = explains
        self._improves = improves
        self._among = among  # the only rows for some pods, by uid
        self._effort = effort
        self._solver_failed = solver_failed
        self._state = state
        self._cycle = cycle
        self._profile = profile
        self._tree = tree
        self._pending = pending
        self._queued = {q.uid: q for members in pending for q in members}
        # Claims that several of its pods use, or pods of it that are placed.
        self._shared = shared_claims(self._queued.values())
        for g in tree.leaves():
            self._shared.update(k for e in placed_pods(state, tree, g) for k in claim_keys(e.pod))
        pods = [q.pod for q in self._queued.values()]
        self._together = TreePods(pods, self._shared)
        entries = [q.entry for q in self._queued.values()]
        self._rules: list[TreeRule] = [
            rule for plugin in profile.filters for rule in plugin.tree_rules(entries, state)
        ]
        self._masks: dict[object, Bools] = {}  # by key of interchangeable pods
        self._everywhere: Bools = np.ones(state.row_limit, np.bool_)
        self._caps = LearnedCaps(state, cycle, profile)
        self._pass: tuple[bool, bool, int] = False, False, 0

    def run(self, requires_preferred: bool = False) -> TreeResult:
        """Searches and verifies. `requires_preferred`: treats preferred topology as required."""
        self._pass = bool(self._among), requires_preferred, len(self._rules)
        built = self._build(self._classify, self.amounts, requires_preferred, self._rules)
        if kept := self._as_promised(built):
            promised, first = kept
            if self._improves and not first.is_most:
                promised = self._find_more(built, built.problem, first, promised)
            return TreeResult(promised)
        answer: Answer = ExhaustedSearch("plugins")
        rounds = 0  # placements that plugins refused
        for _ in range(ROUNDS_MAX * self._effort):
            problem = self._caps.apply(built.problem)
            answer = self._solve(
                partial(
                    self._searches.place,
                    built,
                    problem,
                    self._effort,
                    self._explains,
                    (self._pass, rounds),
                )
            )
            if not isinstance(answer, FoundPlacement):
                break
            plan = self._verify(built, answer)
            if plan is not None:
                if self._improves and not answer.is_most:
                    plan = self._find_more(built, problem, answer, plan)
                if plan or not any(self._pending):
                    return TreeResult(plan)
                return TreeResult([], NO_MORE)
            rounds += 1
            if not self._caps.tighten(built, problem):
                answer = ExhaustedSearch("plugins", rounds)
                break
        else:
            answer = ExhaustedSearch("plugins", rounds)
        certain: list[TreeRule] = [
            rule for rule in self._rules if not isinstance(rule, TogetherRule)
        ]
        if len(certain) < len(self._rules):  # other devices may serve the pods elsewhere
            self._rules = certain
            self._caps = LearnedCaps(self._state, self._cycle, self._profile)
            return self.run(requires_preferred)
        if self._caps.is_cut and isinstance(answer, InfeasibleProblem):
            answer = ExhaustedSearch("plugins", rounds)
        if not self._explains:
            return TreeResult([], exhausted=isinstance(answer, ExhaustedSearch))
        goes_on = self._effort < EFFORT_MAX
        message = failure_message(self._caps.apply(built.problem), answer, self._tree, goes_on)
        return TreeResult([], message, isinstance(answer, ExhaustedSearch))

    def _as_promised(self, built: IndexedProblem) -> tuple[Plan, FoundPlacement] | None:
        """Returns the placement that the tree was promised when others were evicted for it, if it
        can have that now."""
        pods: Plan = []
        pieces: list[tuple[int, int, int, int]] = []
        node_of = dict(zip(built.rows.tolist(), range(len(built.rows)), strict=True))
        for g, p, entry in (
            (g, p, entry)
            for g, parts in enumerate(built.pods)
            for p, entries in enumerate(parts)
            for entry in entries
            if self._promised.get(entry.uid) in node_of
        ):
            row = self._promised[entry.uid]
            pods.append((self._queued[entry.uid], row))
            pieces.append((g, p, node_of[row], 1))
        placement = collect_placement(pieces)
        if not pods or faults_of(built.problem, placement):
            return None
        with self._state.trial():
            plan, refused = place_in_any_order(
                self._state, self._cycle, self._profile, self._in_order(built, pods)
            )
        is_most = len(pods) == len(self._queued)
        return None if refused else (plan, FoundPlacement(placement, "promised", is_most))

    def _solve(self, search: Callable[[], Answer]) -> Answer:
        """Returns the answer of a search; an error of the solver counts as a placement that was not
        found, which proves nothing."""
        try:
            return search()
        except Unsolved:
            raise
        except Exception as error:
            if self._solver_failed is None:
                raise
            self._solver_failed(self._tree, error)
            return ExhaustedSearch("solver")

    def _find_more(
        self, built: IndexedProblem, problem: Problem, first: FoundPlacement, plan: Plan
    ) -> Plan:
        """Returns a plan for more pods, the same where plugins accept none. Looked for only now:
        that may take a hundred times as long as the first placement, which plugins may refuse."""
        for _ in range(IMPROVEMENTS_MAX):
            capped = self._caps.apply(problem)
            more = self._solve(
                lambda capped=capped: self._searches.improve(  # type: ignore[misc]
                    built, capped, first, self._effort, self._pass
                )
            )
            if not isinstance(more, FoundPlacement):
                return plan
            if more.placement.count <= first.placement.count:
                return plan
            found = self._verify(built, more)
            if found is not None:
                return found if len(found) > len(plan) else plan
            if not self._caps.tighten(built, capped):
                return plan
        return plan

    def problem_without(self, evicted: Sequence[PodEntry]) -> IndexedProblem:
        """See TreeCycle."""
        room = EvictedRoom(evicted, self._state.devices)
        return self._build(
            self._classify_empty, lambda entry: room.constraints(self.amounts(entry))
        )

    def _build(
        self,
        sort: Sorted,
        amounts: Callable[[PodEntry], list[CapacityConstraint]],
        requires_preferred: bool = False,
        rules: Sequence[TreeRule] = (),
    ) -> IndexedProblem:
        """Builds the problem of the pending pods, see Builder."""
        keys = [self._common_keys(pods) for pods in self._pending]
        builder = Builder(self._state, self._tree, sort, amounts, requires_preferred, keys, rules)
        members = [[q.entry for q in pods] for pods in self._pending]
        return builder.build(members, self._priority())

    def _classify_empty(self, entry: PodEntry) -> tuple[object, Bools]:
        """As `_classify`, without refusals that may end when pods are evicted: nobody's eviction
        changes what a node object says, or what a driver has answered."""
        evaluation = self._cycle.evaluation(self._profile, entry.shape)
        key = entry.shape.serial, self._terms(entry.pod)
        if evaluation.refused:
            return key, self._everywhere  # nothing is known
        mask = evaluation.on_empty_nodes[: self._state.row_limit]
        for plugin in evaluation.plugins.negotiating:
            codes = plugin.filter_pod(entry.pod, entry.shape, self._state)
            if codes is not None:
                mask = mask & ~plugin.is_permanent(codes)
        return (*key, mask.tobytes()), mask

    # Answers of plugins, as numbers

    def _classify(self, entry: PodEntry) -> tuple[object, Bools]:
        """Returns a key that is equal for interchangeable pods, and bool[row_limit]: rows that do
        not refuse the pod for good."""
        evaluation = self._cycle.evaluation(self._profile, entry.shape)
        best = evaluation.best[: self._state.row_limit]
        filters, pre_filters = evaluation.plugins.pod_filters, evaluation.plugins.pod_pre_filters
        if not filters and not pre_filters and not self._rules:
            serial = entry.shape.serial
            if serial not in self._masks:
                self._masks[serial] = best >= 0
            return serial, self._masks[serial]
        terms = self._terms(entry.pod)
        for plugin in pre_filters:
            if plugin.pre_filter_pod(entry.pod, entry.shape, self._state) is not None:
                alone = (entry.shape.serial, encode_pod_terms(entry.pod))
                return alone, np.zeros(len(best), np.bool_)
        key = (entry.shape.serial, terms)
        is_negotiated = bool(evaluation.plugins.negotiating) and self._is_negotiated(entry.pod)
        is_negotiated |= entry.uid in self._among
        known = self._masks.get(key) if not is_negotiated else None
        if known is not None:
            return key, known
        mask = best >= 0
        for plugin in filters:
            codes = plugin.filter_pod(entry.pod, entry.shape, self._state)
            if codes is not None:
                lasting = plugin.is_permanent_for(entry.pod, self._state, codes, self._together)
                mask = mask & ~lasting
        if entry.uid in self._among:
            mask = mask & self._among[entry.uid]
        if is_negotiated:
            # Others have answered about each pod by itself.
            return (*key, mask.tobytes()), mask
        self._masks[key] = mask
        return key, mask

    def _is_negotiated(self, pod: Pod) -> bool:
        """Returns whether a driver allocates a claim of the pod."""
        classes, devices = self._state.negotiations.classes, self._state.devices
        claims = (devices.api_claim(key) for key in claim_keys(pod))
        return any(claim is not None and driver_of(claim, classes) for claim in claims)

    def _terms(self, pod: Pod) -> bytes:
        """Encodes by what plugins distinguish pods of one shape; equal for interchangeable pods."""
        volume_claims = self._state.volumes.own_claims(pod) if pod.spec.volumes else None
        return encode_pod_terms(pod, self._own_claims(pod), volume_claims)

    def _own_claims(self, pod: Pod) -> list[object] | None:
        """Returns the specs of the pod's claims where no other pod uses them and none is allocated:
        pods with equal specs are interchangeable. None where the claims' names matter."""
        found: list[object] = []
        for key in claim_keys(pod):
            claim = self._state.devices.claim(key)
            if claim is None or claim.status.allocation is not None or key in self._shared:
                return None
            found.append(claim.spec.devices)
        return found or None

    def amounts(self, entry: PodEntry) -> list[CapacityConstraint]:
        """Returns the capacity constraints of a pod."""
        pod, shape, state = entry.pod, entry.shape, self._state
        return [
            room
            for plugin in self._profile.filters
            if plugin.is_relevant(shape)
            for room in plugin.group_constraints(pod, shape, state, self._together)
        ]

    def _common_keys(self, pods: list[QueuedPod]) -> tuple[str, ...]:
        """Returns topology keys of which the pods of one group must share one domain."""
        found: set[tuple[tuple[str, str], ...]] = set()
        for queued in {q.class_key: q for q in pods}.values():
            pod = queued.pod
            found.add(
                tuple(
                    key
                    for plugin in self._profile.filters
                    if plugin.is_relevant(queued.entry.shape)
                    for key in plugin.common_keys(pod, self._state, self._together)
                )
            )
        return tuple(key for key, _ in found.pop()) if len(found) == 1 else ()

    def _priority(self) -> int:
        return next((q.priority for members in self._pending for q in members), 0)

    # Verification

    def _verify(self, built: IndexedProblem, answer: FoundPlacement) -> Plan | None:
        """Returns the plan that plugins accept: on nodes of their choice, else on those found."""
        counts: dict[tuple[int, int], int] = {}
        rows: dict[tuple[int, int], list[int]] = {}
        for piece in answer.placement.pieces:
            key = (piece.group, piece.part)
            counts[key] = counts.get(key, 0) + piece.count
            rows.setdefault(key, []).extend([int(built.rows[piece.node])] * piece.count)
        free: list[tuple[QueuedPod, Bools]] = []
        fixed: list[tuple[QueuedPod, int]] = []
        for (g, p), count in sorted(
            counts.items(), key=lambda item: self._choices(built, *item[0])
        ):
            allowed = self._domain_rows(built, g, rows[g, p][0])
            chosen = [self._queued[entry.uid] for entry in built.pods[g][p][:count]]
            for queued in chosen:
                asked = self._among.get(queued.uid)
                free.append((queued, allowed if asked is None else allowed & asked))
            fixed += zip(chosen, sorted(rows[g, p]), strict=True)
        plan = self._place_by_score(free)
        return plan if plan is not None else self._place_by_row(built, fixed)

    def _choices(self, built: IndexedProblem, g: int, p: int) -> tuple[int, int, int]:
        """Orders pods by how few devices they can choose from: others can use what is left."""
        entry = built.pods[g][p][0]
        everywhere = slice(0, self._state.row_limit)
        choices = [
            int(room.free(everywhere).sum()) for room in self.amounts(entry) if room.is_discrete
        ]
        return (min(choices, default=0), g, p)

    def _domain_rows(self, built: IndexedProblem, g: int, row: int) -> Bools:
        """Returns bool[row_limit]: the rows in the domain of a group that is on this row."""
        scope = built.problem.scopes[built.problem.groups[g].scope]
        if scope.parent < 0:
            return self._everywhere
        node = int(np.searchsorted(built.rows, row))
        allowed = np.zeros(self._state.row_limit, np.bool_)
        allowed[built.rows[scope.codes == scope.codes[node]]] = True
        return allowed

    def _place_by_score(self, pods: list[tuple[QueuedPod, Bools]]) -> Plan | None:
        plan: Plan = []
        last: Bools | None = None  # pods of a kind share one array
        with self._state.trial():
            for queued, allowed in pods:
                if allowed is not last:
                    last, rows = allowed, allowed.nonzero()[0]
                if allowed is self._everywhere:
                    row = self._cycle.choose(self._profile, queued.entry)
                else:
                    row = self._cycle.choose_within(self._profile, queued.entry, rows)
                if row < 0:
                    return None
                assume_reserved(self._state, self._profile, queued.entry, row)
                plan.append((queued, row))
        return plan

    @staticmethod
    def _in_order(built: IndexedProblem, pods: Plan) -> Plan:
        """Returns the pods in an order that rules between them accept."""
        if not built.problem.rules:
            return pods
        kinds = kinds_of(built)
        nodes = np.searchsorted(built.rows, [row for _, row in pods]).tolist()
        where = [(kinds[q.uid], node) for (q, _), node in zip(pods, nodes, strict=True)]
        return [pods[i] for i in arrival_order(built.problem, where)]

    def _place_by_row(
        self, built: IndexedProblem, pods: list[tuple[QueuedPod, int]]
    ) -> Plan | None:
        """Places each pod on its row, in whatever order the plugins accept; None where they refuse
        all that are left."""
        pods = self._in_order(built, pods)
        with self._state.trial():
            plan, refused = place_in_any_order(self._state, self._cycle, self._profile, pods)
        if refused:
            self._caps.remember(built, refused, plan)
            return None
        return plan
