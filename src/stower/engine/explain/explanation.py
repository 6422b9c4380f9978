"""Explains why a pod is on its node, or on none: the verdict, its class, refusals and scores.

Must not change anything; change_search.py finds the smallest change to schedule the pod.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec
import numpy as np

from stower.engine.attempt_errors import ATTEMPT_ERRORS
from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.explain.change_search import Change, ChangeSearch
from stower.engine.explain.classification import (
    CLASSES,
    Finding,
    classify_candidates,
    classify_group,
    classify_pending,
    shortages,
)
from stower.engine.preemption.displacement import displaceable_pods
from stower.engine.queue.entities import QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.explanation import (
    Awaited,
    ExplanationClass,
    ReasonCode,
    Shortage,
    code_of,
)
from stower.framework.post_filter import rank_candidates
from stower.framework.profile import Profile
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

SHOWN: Final = 5


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


Verdict = Literal[
    "placed", "fits", "settling", "grouped", "gated", "refused", "failed", "leaving", "unknown"
]


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """The explanation of a pod. `verdict`: placed, fits (a node is feasible and the pod waits only
    to be tried), settling (a node is feasible, and others have to accept it), grouped (a node is
    feasible for the pod alone, but not for its whole group), gated, refused, failed (a plugin
    failed), leaving (in deletion) or unknown (no profile schedules it). `tried`: the number of
    nodes on which changes were tried; `class`: what it takes until the pod runs; `because`: why it
    is of that class, "" where the other fields say all; `awaited`: the objects that a waiting pod
    waits for, as far as they are known."""

    pod: str
    verdict: Verdict
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
    awaited: tuple[Awaited, ...] = ()


def explain(
    pod: Pod,
    state: ClusterState,
    cycle: SchedulingCycle,
    queue: SchedulingQueue,
    profiles: dict[str, Profile],
    why_waiting: Callable[[QueuedTree], str] = lambda tree: tree.waits_for,
    has_changes: bool = True,
) -> Explanation:
    """Returns the explanation of a pod. `why_waiting` returns what keeps a pod group tree waiting,
    "" where it would be placed; `has_changes`: whether to search for changes."""
    found = _explain(pod, state, cycle, queue, profiles, why_waiting, has_changes)
    if found.verdict in CLASSES:
        return msgspec.structs.replace(found, class_=CLASSES[found.verdict])
    if found.verdict == "grouped":
        return _with_finding(found, classify_group(found.message, pod, state))
    if found.candidates and found.class_ is ExplanationClass.BLOCKED:
        best = found.candidates[0]
        return _with_finding(found, classify_candidates(best.node, best.victims))
    return found


def _with_finding(found: Explanation, finding: Finding) -> Explanation:
    return msgspec.structs.replace(
        found, class_=finding.class_, because=finding.because, awaited=finding.awaited
    )


def _explain(
    pod: Pod,
    state: ClusterState,
    cycle: SchedulingCycle,
    queue: SchedulingQueue,
    profiles: dict[str, Profile],
    why_waiting: Callable[[QueuedTree], str],
    has_changes: bool,
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
            pending = _PendingPod(entry, state, cycle, profile)
            found = pending.explain_pending(refused_by, has_changes)
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

    def explain_pending(self, refused_by: tuple[str, ...], has_changes: bool) -> Explanation:
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
        diagnosis = verdict.diagnosis(state.node_count)
        waits = tuple(sorted({*refused_by, *diagnosis.plugins}))
        message = diagnosis.message(text if text not in diagnosis.message() else "")
        finding = classify_pending(entry, state, self.cycle, profile, verdict)
        search = ChangeSearch(entry, state, self.cycle, profile, finding.lasting)
        rows = search.closest(verdict) if row < 0 else [row]
        changes = search.changes(rows) if has_changes else ()
        if has_changes and not changes and finding.lasting:
            changes = ChangeSearch(entry, state, self.cycle, profile).changes(rows)
        return Explanation(
            pod.key,
            "gated" if gates else "refused",
            state.node_names[row] if row >= 0 else "",
            message if row < 0 else text,
            state.node_count,
            feasible,
            gates,
            refused,
            ("GatesRemoved",) if gates else _events(profile, waits),
            scores,
            () if gates else self._candidates(),
            changes,
            len(rows),
            finding.class_,
            finding.because,
            finding.awaited,
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


# In words


def _refusals(
    verdict: reference.Verdict, state: ClusterState, entry: PodEntry
) -> tuple[Refusal, ...]:
    """Returns the refusals, those with most nodes first."""
    if verdict.pre_filter is not None:
        plugin, rejection = verdict.pre_filter
        codes = tuple(code_of(reason) for reason in rejection.reasons)
        told = tuple(plugin.pod_details(entry.pod, verdict.shape, state))
        return (Refusal(plugin.name, rejection.reasons, state.node_count, (), told, codes),)
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
    """Returns the events on which these plugins have the pod retried, as names."""
    known = {plugin.name: plugin for plugin in profile.filters}
    found = set()
    for name in plugins:
        if name in known:
            events = known[name].events_to_register
            found |= {str(c.name).title().replace("_", "") for c in events}
    return tuple(sorted(found))
