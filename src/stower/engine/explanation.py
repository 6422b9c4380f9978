"""Why a pod is where it is, or nowhere, and the smallest change that would let it run.

Changes are proposed by the plugins that refuse (`Plugin.fixes`), put together node by node, and
tried on the state in a trial that is undone: what is told has been seen to work. Must not change
anything.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from stower.engine import plain
from stower.engine.cycle import Cycle
from stower.engine.queue import Queue
from stower.framework.fixes import Fix
from stower.framework.plugin import Plugin
from stower.framework.post_filter import ranked
from stower.framework.profile import Profile
from stower.framework.reasons import Rejection
from stower.model.kinds import KIND_BY_VIEW, Node, Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState, PodEntry
from stower.state.shapes import Shape

SHOWN: Final = 5
# Nodes on which changes are tried, those that seem closest first.
NODES_TRIED: Final = 40
# One fix may lead to the next refusal: after so many the node is given up.
FIXES_MAX: Final = 16


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """So many nodes were refused by a plugin, for these reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int
    examples: tuple[str, ...]


class Score(msgspec.Struct, frozen=True, rename="camel"):
    """What a node scored, in all and by plugin, weights counted."""

    node: str
    total: int
    parts: dict[str, int]


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """A node on which the pod would fit once these pods were evicted; `violations`: how many of
    them a disruption budget protects."""

    node: str
    victims: tuple[str, ...]
    violations: int


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """What would let the pod run, seen to work. `what`: all of it, in words; `node`: where it would
    go then; `alike`: on so many more of the nodes that were tried the same would help. The rest are
    the objects as they would be: the pod, others by kind/name, those gone."""

    what: tuple[str, ...]
    cost: float
    node: str
    alike: int
    pod: Pod
    objects: dict[str, object]
    gone: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """What there is to say of a pod. `verdict`: placed, fits (and waits only for its turn), gated,
    refused, leaving or unknown (to every profile)."""

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


def explain(
    pod: Pod, state: ClusterState, cycle: Cycle, queue: Queue, profiles: dict[str, Profile]
) -> Explanation:
    """All there is to say of the pod."""
    profile = profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return Explanation(pod.key, "unknown", message=f"of {pod.spec.scheduler_name}")
    if pod.metadata.deletion_timestamp is not None:
        return Explanation(pod.key, "leaving", pod.spec.node_name)
    entry = state.pods.get(pod.metadata.uid)
    if entry is not None and entry.row >= 0:
        return _placed(entry, state, profile)
    entry = entry or PodEntry(pod, state.shapes.intern(pod, pod.spec.node_name))
    queued = queue.get(pod.metadata.uid)
    return _Case(entry, state, cycle, profile).explained(
        tuple(sorted(queued.refused_by)) if queued is not None else ()
    )


def _placed(entry: PodEntry, state: ClusterState, profile: Profile) -> Explanation:
    """Why there: as if it came now."""
    name, shape = state.names[entry.row], entry.shape
    with state.trial():
        state.displace(entry)
        verdict = plain.judge(profile, state, shape, entry.pod)
        scores = _scores(profile, state, shape, entry.pod, verdict, name)
        refused = _refusals(verdict, state)
    return Explanation(
        entry.pod.key, "placed", name, nodes=state.node_count,
        feasible=int(np.count_nonzero(verdict.feasible)), refused=refused, scores=scores,
    )  # fmt: skip


class _Case:
    """One pod that waits."""

    def __init__(
        self, entry: PodEntry, state: ClusterState, cycle: Cycle, profile: Profile
    ) -> None:
        self.entry, self.state, self.cycle, self.profile = entry, state, cycle, profile

    def explained(self, refused_by: tuple[str, ...]) -> Explanation:
        """Whatever keeps it waiting."""
        entry, state, profile = self.entry, self.state, self.profile
        pod, shape = entry.pod, entry.shape
        gates = tuple(gate.name for gate in pod.spec.scheduling_gates or ())
        verdict = plain.judge(profile, state, shape, pod)
        feasible = int(np.count_nonzero(verdict.feasible)) if verdict.pre_filter is None else 0
        row = self.cycle.choose(profile, entry)
        scores = _scores(profile, state, shape, pod, verdict) if feasible else ()
        if row >= 0:
            return Explanation(
                pod.key, "gated" if gates else "fits", state.names[row], nodes=state.node_count,
                feasible=feasible, gates=gates, refused=_refusals(verdict, state), scores=scores,
            )  # fmt: skip
        diagnosis = verdict.diagnosis(state.node_count)
        waits = tuple(sorted({*refused_by, *diagnosis.plugins}))
        return Explanation(
            pod.key, "gated" if gates else "refused", "", diagnosis.message(), state.node_count,
            feasible, gates, _refusals(verdict, state), _wakes(profile, waits), scores,
            self._candidates(), self._changes(verdict),
        )  # fmt: skip

    def _candidates(self) -> tuple[Candidate, ...]:
        """Whom preemption would evict, the best first."""
        if not self.profile.post_filters or not self.state.node_count:
            return ()
        search = self.cycle.candidates(self.profile, self.entry)
        if self.entry.pod.spec.preemption_policy == "Never":
            return ()
        found = search.candidates()
        result = []
        for i in ranked(found)[:SHOWN].tolist():
            row = int(found.rows[i])
            victims = tuple(victim.pod.key for victim in search.victims(row))
            violations = int(found.violations[i])
            result.append(Candidate(self.state.names[row], victims, violations))
        return tuple(result)

    # Changes

    def _changes(self, verdict: plain.Verdict) -> tuple[Change, ...]:
        """The smallest first; of those that differ in the node alone, one."""
        found: dict[tuple[str, ...], list[Change]] = {}
        for row in self._closest(verdict):
            change = self._mended(row)
            if change is not None:
                name = self.state.names[row]
                pattern = tuple(text.replace(name, "") for text in change.what)
                found.setdefault(pattern, []).append(change)
        first = [
            msgspec.structs.replace(min(changes, key=lambda c: c.cost), alike=len(changes) - 1)
            for changes in found.values()
        ]
        return tuple(sorted(first, key=lambda change: (change.cost, change.what))[:SHOWN])

    def _closest(self, verdict: plain.Verdict) -> list[int]:
        """Rows that the fewest plugins refuse, and among these where least is lacking."""
        state, shape = self.state, self.entry.shape
        counts: Ints = np.zeros(state.row_limit, np.int64)
        short = np.zeros(state.row_limit, np.float64)
        for i, plugin in enumerate(self.profile.filters):
            codes = verdict.answers.get(i)
            if codes is not None:
                counts += codes != 0
            for room in plugin.rooms(shape, state) or () if plugin.concerns(shape) else ():
                lacking = np.maximum(room.need - room.free(state.all_rows), 0)
                short += lacking / max(1, room.need)
        rows = np.flatnonzero(state.present[state.all_rows])
        order = np.lexsort((rows, short[rows], counts[rows]))
        return [int(row) for row in rows[order][:NODES_TRIED].tolist()]

    def _mended(self, row: int) -> Change | None:
        """What makes the row feasible, one refusal after the other; None where nothing does."""
        state, applied, cost = self.state, _Applied(self.entry.pod), 0.0
        with state.trial():
            for _ in range(FIXES_MAX):
                entry = PodEntry(applied.pod, state.shapes.intern(applied.pod, applied.node_name))
                fix = self._fix(entry, row, applied)
                if fix is None:
                    chosen = self.cycle.choose(self.profile, entry)
                    if chosen < 0 or not applied.what:
                        return None
                    return applied.change(cost, state.names[chosen])
                cost += fix.cost
                applied.take(fix, state)
        return None

    def _fix(self, entry: PodEntry, row: int, applied: "_Applied") -> Fix | None:
        """Against the first refusal of the row that is left; None where there is none, or where
        nobody knows better."""
        state, pod, shape = self.state, entry.pod, entry.shape
        verdict = plain.Verdict(self.profile, shape, state.row_limit)
        plain.pre_filter(verdict, state, pod)
        refusing: list[Plugin] = []
        if verdict.pre_filter is not None:
            refusing.append(verdict.pre_filter[0])
        else:
            for plugin in self.profile.filters:
                codes = plain.filtered(plugin, pod, shape, state, slice(row, row + 1))
                if codes is not None and codes[0]:
                    refusing.append(plugin)
        for plugin in refusing:
            for fix in plugin.fixes(pod, shape, state, row):
                if fix.text not in applied.what:
                    return fix
        if refusing:
            return None
        promised = plain.nominated_on(state, state.names[row], pod.priority, pod.metadata.uid)
        if promised and plain.refused_with(self.profile, state, shape, pod, row, promised):
            keys = ", ".join(e.pod.key for e in promised)
            return Fix(f"room on {state.names[row]} is promised to {keys}", 2.0, gone=(*promised,))
        return None


class _Applied:
    """Fixes that were put together, on the state and in words."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.what: list[str] = []
        self.objects: dict[str, object] = {}
        self.gone: list[str] = []

    @property
    def node_name(self) -> str:
        """Of the pod's spec."""
        return self.pod.spec.node_name

    def take(self, fix: Fix, state: ClusterState) -> None:
        """Do it, within a trial."""
        self.what.append(fix.text)
        self.pod = fix.pod or self.pod
        if fix.node is not None:
            state.set_node(fix.node)
            self._keep(fix.node)
        for obj in fix.put:
            state.volumes.put(obj)
            self._keep(obj)
        for entry in fix.gone:
            state.remove_pod(entry)
            self.gone.append(entry.pod.key)

    def _keep(self, obj: Node | object) -> None:
        kind = KIND_BY_VIEW[type(obj)].name
        meta = obj.metadata  # type: ignore[union-attr]
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        self.objects[f"{kind}/{key}"] = obj

    def change(self, cost: float, node_name: str) -> Change:
        """All of it."""
        return Change(
            tuple(self.what),
            round(cost, 3),
            node_name,
            0,
            self.pod,
            self.objects,
            tuple(self.gone),
        )


# In words


def _refusals(verdict: plain.Verdict, state: ClusterState) -> tuple[Refusal, ...]:
    """Who refused how many nodes, most first."""
    if verdict.pre_filter is not None:
        plugin, rejection = verdict.pre_filter
        return (Refusal(plugin.name, rejection.reasons, state.node_count, ()),)
    found: dict[tuple[str, Rejection], list[int]] = {}
    for rows in verdict.refusals().values():
        numbers = np.flatnonzero(rows).tolist()
        refused = verdict.rejection(numbers[0])
        if refused is not None:
            found.setdefault(refused, []).extend(numbers)
    result = [
        Refusal(
            plugin, why.reasons, len(rows), tuple(state.names[r] for r in rows[: plain.EXAMPLES])
        )
        for (plugin, why), rows in found.items()
    ]
    return tuple(sorted(result, key=lambda r: (-r.nodes, r.plugin, r.reasons)))


def _scores(
    profile: Profile,
    state: ClusterState,
    shape: Shape,
    pod: Pod,
    verdict: plain.Verdict,
    beside: str = "",
) -> tuple[Score, ...]:
    """The best few, and the node `beside` them."""
    feasible = verdict.feasible
    parts = plain.scores(profile, state, shape, pod, feasible)
    total = plain.total(parts, len(feasible))
    rows = np.flatnonzero(feasible)
    best = rows[np.lexsort((rows, -total[rows]))][:SHOWN].tolist()
    other = state.row_of(beside) if beside else -1
    if other >= 0 and other not in best and feasible[other]:
        best.append(other)
    return tuple(
        Score(
            state.names[row],
            int(total[row]),
            {name: int(part[row]) for name, part in parts.items()},
        )
        for row in best
    )


def _wakes(profile: Profile, plugins: Iterable[str]) -> tuple[str, ...]:
    """The events on which these plugins would have the pod tried again, in words."""
    known = {plugin.name: plugin for plugin in profile.filters}
    found = set()
    for name in plugins:
        if name in known:
            found |= {str(c.name).lower().replace("_", " ") for c in known[name].wakes_on}
    return tuple(sorted(found))
