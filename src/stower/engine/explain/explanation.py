"""Explains why a pod is on its node, or on none, and the smallest change to schedule it.

The plugins that refuse a node propose changes (`Plugin.fixes`); they are combined node by node and
verified on the state, in a trial that is undone. Must not change anything.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.explain.classification import (
    CLASSES,
    classify_group,
    classify_pending,
    shortages,
)
from stower.engine.preemption.displacement import displaceable_pods
from stower.engine.queue.entities import QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.explanation import (
    ChangeCode,
    ChangeStep,
    ExplanationClass,
    ReasonCode,
    Shortage,
    changed_fields,
    code_of,
)
from stower.framework.fixes import NODE_FIELD, Fix, with_spec
from stower.framework.plugin import Plugin
from stower.framework.post_filter import rank_candidates
from stower.framework.profile import Profile
from stower.framework.reasons import Rejection
from stower.model.kinds import KIND_BY_VIEW, Node, Pod, Storage
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

SHOWN: Final = 5
# Nodes on which changes are tried: for each set of refusing plugins, those that lack least.
NODES_PER_PATTERN: Final = 8
NODES_TRIED: Final = 64
# One fix may lead to the next refusal: after this many the node is given up.
FIXES_MAX: Final = 16


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """The number of nodes that a plugin refused for the same reasons, with some of their names.
    `codes`: of the reasons, in their order; `details`, `shortages`: more about the first of these
    nodes, and the amounts that it lacks."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int
    examples: tuple[str, ...]
    details: tuple[str, ...] = ()
    codes: tuple[ReasonCode, ...] = ()
    shortages: tuple[Shortage, ...] = ()


class Score(msgspec.Struct, frozen=True, rename="camel"):
    """The score of a node, in all and by plugin, with weights."""

    node: str
    total: int
    parts: dict[str, int]


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """A node on which the pod fits once these pods are evicted; `violations`: the number of them
    that a disruption budget protects."""

    node: str
    victims: tuple[str, ...]
    violations: int


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """A verified change that lets the pod run. `what`: its steps, in words; `node`: where the pod
    goes then; `alike`: the number of other tried nodes on which the same change helps; `pod` and
    `objects` (by kind/name): the objects after the change; `gone`: keys of the pods that it
    removes; `waits`: what the pod waits for then, where others have to accept its node, or "";
    `steps`: the fields that change."""

    what: tuple[str, ...]
    cost: float
    node: str
    alike: int
    pod: Pod
    objects: dict[str, object]
    gone: tuple[str, ...]
    waits: str = ""
    steps: tuple[ChangeStep, ...] = ()


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """The explanation of a pod. `verdict`: placed, fits (a node is feasible and the pod waits only
    to be tried), settling (a node is feasible, and others have to accept it), grouped (a node is
    feasible for the pod alone, but not for its whole group), gated, refused, failed (a plugin
    failed), leaving (in deletion) or unknown (no profile schedules it). `tried`: the number of
    nodes on which changes were tried; `class`: what it takes until the pod runs; `because`: why it
    is of that class, "" where the other fields say all."""

    pod: str
    verdict: str
    node: str = ""
    message: str = ""
    nodes: int = 0
    feasible: int = 0
    gates: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    waits_for: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    changes: tuple[Change, ...] = ()
    tried: int = 0
    class_: ExplanationClass = msgspec.field(default=ExplanationClass.BLOCKED, name="class")
    because: str = ""


def explain(
    pod: Pod,
    state: ClusterState,
    cycle: SchedulingCycle,
    queue: SchedulingQueue,
    profiles: dict[str, Profile],
    why_waiting: Callable[[QueuedTree], str] = lambda tree: tree.waits_for,
) -> Explanation:
    """Returns the explanation of a pod. `why_waiting` returns what keeps a pod group tree waiting,
    "" where it would be placed."""
    found = _explain(pod, state, cycle, queue, profiles, why_waiting)
    if found.verdict in CLASSES:
        return msgspec.structs.replace(found, class_=CLASSES[found.verdict])
    if found.verdict == "grouped":
        return msgspec.structs.replace(found, class_=classify_group(found.message))
    return found


def _explain(
    pod: Pod,
    state: ClusterState,
    cycle: SchedulingCycle,
    queue: SchedulingQueue,
    profiles: dict[str, Profile],
    why_waiting: Callable[[QueuedTree], str],
) -> Explanation:
    profile = profiles.get(pod.spec.scheduler_name)
    if profile is None:
        name = pod.spec.scheduler_name
        because = f"no scheduler of the name {name} is known here"
        return Explanation(pod.key, "unknown", message=name, because=because)
    if pod.metadata.deletion_timestamp is not None:
        return Explanation(pod.key, "leaving", pod.spec.node_name)
    entry = state.pods.get(pod.metadata.uid)
    if entry is not None and entry.row >= 0:
        return _explain_placed(entry, state, profile)
    entry = entry or PodEntry(pod, state.shapes.intern(pod, pod.spec.node_name))
    queued = queue.get(pod.metadata.uid)
    refused_by = tuple(sorted(queued.refused_by)) if queued is not None else ()
    with state.trial():  # so that plugins that learn from attempts do not learn from this one
        try:
            for other in displaceable_pods(state, profile, pod):
                state.displace(other)
            found = _PendingPod(entry, state, cycle, profile).explain_pending(refused_by)
        except ATTEMPT_ERRORS as error:
            return Explanation(pod.key, "failed", message=str(error), nodes=state.node_count)
    if queued is not None and queued.tree is not None and found.verdict == "fits":
        message = why_waiting(queued.tree)
        if message:
            return msgspec.structs.replace(found, verdict="grouped", message=message)
    return found


def _explain_placed(entry: PodEntry, state: ClusterState, profile: Profile) -> Explanation:
    """Explains a placed pod, as if it were scheduled now."""
    name, shape = state.node_names[entry.row], entry.shape
    with state.trial():
        state.displace(entry)
        for other in displaceable_pods(state, profile, entry.pod):
            state.displace(other)
        verdict = reference.judge(profile, state, shape, entry.pod)
        scores = _scores(profile, state, shape, entry.pod, verdict, name)
        refused = _refusals(verdict, state, entry)
    return Explanation(
        entry.pod.key, "placed", name, nodes=state.node_count,
        feasible=int(np.count_nonzero(verdict.feasible)), refused=refused, scores=scores,
    )  # fmt: skip


class _PendingPod:
    """A pending pod that is explained."""

    def __init__(
        self, entry: PodEntry, state: ClusterState, cycle: SchedulingCycle, profile: Profile
    ) -> None:
        self.entry, self.state, self.cycle, self.profile = entry, state, cycle, profile
        # Plugins that refuse the pod in any case: only their changes of the pod are tried.
        self._lasting = frozenset[str]()

    def explain_pending(self, refused_by: tuple[str, ...]) -> Explanation:
        """Returns what keeps the pod waiting."""
        entry, state, profile = self.entry, self.state, self.profile
        pod, shape = entry.pod, entry.shape
        gates = tuple(gate.name for gate in pod.spec.scheduling_gates or ())
        verdict = reference.judge(profile, state, shape, pod)
        feasible = int(np.count_nonzero(verdict.feasible))
        row = self.cycle.choose(profile, entry)
        negotiation = self.cycle.negotiate(profile, entry, row)
        scores = _scores(profile, state, shape, pod, verdict) if feasible else ()
        refused = _refusals(verdict, state, entry)
        if row >= 0 and not gates and negotiation is None:
            plugins = [plugin for plugin in profile.filters if plugin.is_relevant(shape)]
            if awaited := next((t for p in plugins if (t := p.awaited(pod, state))), ""):
                return Explanation(
                    pod.key, "settling", state.node_names[row], f"waits for {awaited}",
                    state.node_count, feasible, refused=refused, scores=scores,
                )  # fmt: skip
            return Explanation(
                pod.key, "fits", state.node_names[row], nodes=state.node_count, feasible=feasible,
                refused=refused, scores=scores,
            )  # fmt: skip
        text = negotiation[1].message if negotiation is not None else ""
        if negotiation is not None and row >= 0 and not gates:
            return Explanation(
                pod.key, "settling", negotiation[1].nominated_node_name or "", text,
                state.node_count, feasible,
                refused=refused, waits_for=_events(profile, (negotiation[0].name,)), scores=scores,
            )  # fmt: skip
        rows = self._closest(verdict) if row < 0 else [row]
        diagnosis = verdict.diagnosis(state.node_count)
        waits = tuple(sorted({*refused_by, *diagnosis.plugins}))
        message = diagnosis.message(text if text not in diagnosis.message() else "")
        finding = classify_pending(entry, state, self.cycle, profile, verdict)
        self._lasting = finding.lasting
        changes = self._changes(rows)
        if not changes and self._lasting:
            self._lasting = frozenset()
            changes = self._changes(rows)
        return Explanation(
            pod.key,
            "gated" if gates else "refused",
            state.node_names[row] if row >= 0 else "",
            message if row < 0 else text,
            state.node_count,
            feasible,
            gates,
            refused,
            ("gates removed",) if gates else _events(profile, waits),
            scores,
            () if gates else self._candidates(),
            changes,
            len(rows),
            finding.class_,
            finding.because,
        )

    def _candidates(self) -> tuple[Candidate, ...]:
        """Returns the candidates of preemption, the best first."""
        if not self.profile.post_filters or not self.state.node_count:
            return ()
        search = self.cycle.candidates(self.profile, self.entry)
        if self.entry.pod.spec.preemption_policy == "Never":
            return ()
        found = search.candidates()
        result = []
        for i in rank_candidates(found)[:SHOWN].tolist():
            row = int(found.rows[i])
            victims = tuple(victim.pod.key for victim in search.victims(row))
            violations = int(found.pdb_violations[i])
            result.append(Candidate(self.state.node_names[row], victims, violations))
        return tuple(result)

    # Changes

    def _changes(self, rows: list[int]) -> tuple[Change, ...]:
        """Returns changes, the smallest first; of those that differ in the node alone, one."""
        found: dict[tuple[str, ...], list[Change]] = {}
        known: dict[int, tuple[tuple[str, ...], Change] | None] = {}
        for row in rows:
            mended = self._stable_change(row, known)
            if mended is not None and mended[1] not in found.get(mended[0], ()):
                found.setdefault(mended[0], []).append(mended[1])
        first = [
            msgspec.structs.replace(min(changes, key=lambda c: c.cost), alike=len(changes) - 1)
            for changes in found.values()
        ]
        return tuple(sorted(first, key=lambda change: (change.cost, change.what))[:SHOWN])

    def _closest(self, verdict: reference.Verdict) -> list[int]:
        """Returns the rows that the fewest plugins refuse, among equals those that lack least, some
        for each set of refusing plugins."""
        state, shape, pod = self.state, self.entry.shape, self.entry.pod
        counts: Ints = np.zeros(state.row_limit, np.int64)
        patterns: Ints = np.zeros(state.row_limit, np.int64)
        short = np.zeros(state.row_limit, np.float64)
        for i, plugin in enumerate(self.profile.filters):
            codes = verdict.answers.get(i)
            if verdict.pre_filter is not None:  # no filter ran yet
                codes = reference.filter_codes(plugin, pod, shape, state, state.all_rows)
            if codes is not None:
                counts += codes != 0
                patterns |= (codes != 0).astype(np.int64) << min(i, 62)
            for room in (
                plugin.capacity_constraints(shape, state) or () if plugin.is_relevant(shape) else ()
            ):
                lacking = np.maximum(room.need - room.free(state.all_rows), 0)
                short += lacking / max(1, room.need)
        rows = np.flatnonzero(state.present[state.all_rows])
        chosen: list[int] = []
        taken: dict[int, int] = {}
        for row in rows[np.lexsort((rows, short[rows], counts[rows]))].tolist():
            pattern = int(patterns[row])
            taken[pattern] = taken.get(pattern, 0) + 1
            if taken[pattern] <= NODES_PER_PATTERN:
                chosen.append(row)
                if len(chosen) == NODES_TRIED:
                    break
        return chosen

    def _stable_change(
        self, row: int, known: dict[int, tuple[tuple[str, ...], Change] | None]
    ) -> tuple[tuple[str, ...], Change] | None:
        """Returns the change after which the pod goes to this row. Where it would go to another
        row then, that row's own change is smaller, and is returned instead."""
        while row not in known:
            known[row] = None
            mended = self._change_for(row)
            if mended is None:
                return None
            change, chosen, texts = mended
            if chosen == row:
                known[row] = texts, change
                break
            row = chosen
        return known[row]

    def _change_for(self, row: int) -> tuple[Change, int, tuple[str, ...]] | None:
        """Returns the change that lifts the refusals of this row one after another, the row that
        is chosen then, and the texts without node names; None where no change does."""
        state, applied, cost = self.state, _Applied(self.entry.pod), 0.0
        for gate in applied.pod.spec.scheduling_gates or ():
            applied.what.append(f"the pod has the scheduling gate {gate.name}")
            cost += 1.0
        applied.pod = with_spec(applied.pod, scheduling_gates=None)
        with state.trial():
            for _ in range(FIXES_MAX):
                entry = PodEntry(applied.pod, state.shapes.intern(applied.pod, applied.node_name))
                chosen = self.cycle.choose(self.profile, entry) if applied.what else -1
                if chosen >= 0:
                    found = self.cycle.negotiate(self.profile, entry, chosen)
                    waits = found[1].message if found is not None else ""
                    change = applied.change(
                        cost, state.node_names[row], state.node_names[chosen], waits
                    )
                    return change, chosen, tuple(applied.what)
                fix = self._first_fix(entry, row, applied)
                if fix is None:
                    return None
                cost += fix.cost
                applied.take(fix, state)
        return None

    def _first_fix(self, entry: PodEntry, row: int, applied: "_Applied") -> Fix | None:
        """Returns a fix for the first remaining refusal of the row; None where there is no refusal,
        or no plugin proposes a fix."""
        state, pod, shape = self.state, entry.pod, entry.shape
        verdict = reference.Verdict(self.profile, shape, state.row_limit)
        reference.pre_filter(verdict, state, pod)
        refusing: list[Plugin] = []
        if verdict.pre_filter is not None:
            refusing.append(verdict.pre_filter[0])
        else:
            for plugin in self.profile.filters:
                codes = reference.filter_codes(plugin, pod, shape, state, slice(row, row + 1))
                if codes is not None and codes[0]:
                    refusing.append(plugin)
        for plugin in refusing:
            fixes = plugin.fixes(pod, shape, state, row)
            fresh = [fix for fix in fixes if fix.text not in applied.what]
            if plugin.name in self._lasting:
                fresh = [fix for fix in fresh if fix.pod is not None]
            if fresh:
                return min(fresh, key=lambda fix: fix.cost)
        return None if refusing else self._fix_nominations(entry, row)

    def _fix_nominations(self, entry: PodEntry, row: int) -> Fix | None:
        """Returns the fix where the row's room is nominated to other pods: as few of them as
        possible go elsewhere."""
        state, pod, shape = self.state, entry.pod, entry.shape

        def keep_off(pods: list[PodEntry]) -> bool:
            return bool(pods) and (
                reference.find_refusal(self.profile, state, shape, pod, row, pods) is not None
            )

        every = reference.nominated_pods_on(
            state, state.node_names[row], pod.priority, pod.metadata.uid
        )
        if not keep_off(every):
            return None
        kept: list[PodEntry] = []
        for one in sorted(every, key=lambda e: -e.pod.priority):
            if not keep_off([*kept, one]):
                kept.append(one)
        gone = tuple(one for one in every if one not in kept)
        keys = ", ".join(one.pod.key for one in gone)
        return Fix(
            f"room on {NODE_FIELD} is reserved for pods nominated to it: {keys}",
            1.0 + len(gone),
            removed_pods=gone,
        )


class _Applied:
    """Fixes that were combined: the objects after them, and their texts."""

    def __init__(self, pod: Pod) -> None:
        self.pod = self._pod_before = pod
        self._before: dict[str, Node | Storage | None] = {}
        self.what: list[str] = []
        self.objects: dict[str, object] = {}
        self.gone: list[str] = []

    @property
    def node_name(self) -> str:
        """The node name in the pod's spec."""
        return self.pod.spec.node_name

    def take(self, fix: Fix, state: ClusterState) -> None:
        """Applies a fix to the state, within a trial."""
        self.what.append(fix.text)
        self.pod = fix.pod or self.pod
        if fix.node is not None:
            row = state.row_of(fix.node.metadata.name)
            self._keep(fix.node, state.nodes[row] if row >= 0 else None)
            state.set_node(fix.node)
        for obj in fix.objects:
            self._keep(obj, state.volumes.api_object(obj))
            state.volumes.put(obj)
        for entry in fix.removed_pods:
            state.remove_pod(entry)
            self.gone.append(entry.pod.key)

    def _keep(self, obj: Node | Storage, before: Node | Storage | None) -> None:
        key = f"{KIND_BY_VIEW[type(obj)].name}/{obj.metadata.key}"
        self.objects[key] = obj
        self._before.setdefault(key, before)

    def _steps(self) -> tuple[ChangeStep, ...]:
        """Returns what differs between the objects before and after the fixes."""
        steps = changed_fields("Pod", self.pod.key, self._pod_before, self.pod)
        for key, obj in self.objects.items():
            kind, _, name = key.partition("/")
            steps += changed_fields(kind, name, self._before[key], obj)
        steps += (ChangeStep(ChangeCode.REMOVE_POD, "Pod", key) for key in self.gone)
        return tuple(steps)

    def change(self, cost: float, on: str, goes_to: str, waits: str) -> Change:
        """Returns the combined change, as it was verified for the node `on`."""
        what = tuple(text.replace(NODE_FIELD, on) for text in self.what)
        return Change(
            what,
            round(cost, 3),
            goes_to,
            0,
            self.pod,
            self.objects,
            tuple(self.gone),
            waits,
            self._steps(),
        )


# In words


def _refusals(
    verdict: reference.Verdict, state: ClusterState, entry: PodEntry
) -> tuple[Refusal, ...]:
    """Returns the refusals, those with most nodes first."""
    if verdict.pre_filter is not None:
        plugin, rejection = verdict.pre_filter
        codes = tuple(code_of(reason) for reason in rejection.reasons)
        return (Refusal(plugin.name, rejection.reasons, state.node_count, (), (), codes),)
    found: dict[tuple[str, Rejection], list[int]] = {}
    for rows in verdict.refusals().values():
        numbers = np.flatnonzero(rows).tolist()
        refused = verdict.rejection(numbers[0])
        if refused is not None:
            found.setdefault(refused, []).extend(numbers)
    plugins = {plugin.name: plugin for plugin in verdict.profile.filters}
    result = []
    for (name, why), numbers in found.items():
        examples = tuple(state.node_names[row] for row in numbers[: reference.EXAMPLES])
        asked = plugins.get(name)  # none of them, where all nodes were narrowed down to a few
        details = (
            asked.details(entry.pod, verdict.shape, state, numbers[0]) if asked is not None else ()
        )
        codes = tuple(code_of(reason) for reason in why.reasons)
        name = name or ", ".join(sorted(verdict.restricted_by))
        lacks = shortages(name, entry, state, verdict.profile, numbers[0])
        result.append(
            Refusal(name, why.reasons, len(numbers), examples, tuple(details), codes, lacks)
        )
    return tuple(sorted(result, key=lambda r: (-r.nodes, r.plugin, r.reasons)))


def _scores(
    profile: Profile,
    state: ClusterState,
    shape: Shape,
    pod: Pod,
    verdict: reference.Verdict,
    compared_node: str = "",
) -> tuple[Score, ...]:
    """Returns the scores of the best few nodes, and of the node `compared_node`."""
    feasible = verdict.feasible
    parts = reference.scores(profile, state, shape, pod, feasible)
    total = reference.total_score(parts, len(feasible))
    rows = np.flatnonzero(feasible)
    best = rows[np.lexsort((rows, -total[rows]))][:SHOWN].tolist()
    other = state.row_of(compared_node) if compared_node else -1
    if other >= 0 and other not in best and feasible[other]:
        best.append(other)
    return tuple(
        Score(
            state.node_names[row],
            int(total[row]),
            {name: int(part[row]) for name, part in parts.items()},
        )
        for row in best
    )


def _events(profile: Profile, plugins: Iterable[str]) -> tuple[str, ...]:
    """Returns the events on which these plugins have the pod retried, in words."""
    known = {plugin.name: plugin for plugin in profile.filters}
    found = set()
    for name in plugins:
        if name in known:
            found |= {str(c.name).lower().replace("_", " ") for c in known[name].events_to_register}
    return tuple(sorted(found))
