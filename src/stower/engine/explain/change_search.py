"""Searches the smallest change with which a pending pod can be scheduled.

The plugins that refuse a node propose fixes (`Plugin.fixes`); they are combined node by node and
verified on the state, in a trial that is undone. Must not change anything.
"""

from typing import Final

import msgspec
import numpy as np

from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.explanation import ChangeCode, ChangeStep, changed_fields
from stower.framework.fixes import NODE_FIELD, Fix, with_spec
from stower.framework.plugin import Plugin
from stower.framework.profile import Profile
from stower.model.kinds import KIND_BY_VIEW, Node, Pod, Storage
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

CHANGES_SHOWN: Final = 5
# Nodes on which changes are tried: for each set of refusing plugins, those that lack least.
NODES_PER_PATTERN: Final = 8
NODES_TRIED: Final = 64
# One fix may lead to the next refusal: after this many the node is given up.
FIXES_MAX: Final = 16


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """A verified change that lets the pod run. `what`: its steps, in words; `node`: where the pod
    goes then; `alike`: the number of other tried nodes on which the same change helps; `steps`: the
    fields that change, objects that are created and pods that are removed; `waits`: what the pod
    waits for then, where others have to accept its node, or ""."""

    what: tuple[str, ...]
    cost: float
    node: str
    alike: int
    steps: tuple[ChangeStep, ...]
    waits: str = ""


class ChangeSearch:
    """The search for one pending pod. `lasting`: plugins that refuse the pod in any case, of which
    only changes of the pod are tried."""

    def __init__(
        self,
        entry: PodEntry,
        state: ClusterState,
        cycle: SchedulingCycle,
        profile: Profile,
        lasting: frozenset[str] = frozenset(),
    ) -> None:
        self.entry, self.state, self.cycle, self.profile = entry, state, cycle, profile
        self._lasting = lasting

    def changes(self, rows: list[int]) -> tuple[Change, ...]:
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
        return tuple(sorted(first, key=lambda change: (change.cost, change.what))[:CHANGES_SHOWN])

    def closest(self, verdict: reference.Verdict) -> list[int]:
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
        self._objects: dict[str, Node | Storage] = {}
        self._gone: list[str] = []

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
            self._gone.append(entry.pod.key)

    def _keep(self, obj: Node | Storage, before: Node | Storage | None) -> None:
        key = f"{KIND_BY_VIEW[type(obj)].name}/{obj.metadata.key}"
        self._objects[key] = obj
        self._before.setdefault(key, before)

    def _steps(self) -> tuple[ChangeStep, ...]:
        """Returns what differs between the objects before and after the fixes."""
        steps = changed_fields("Pod", self.pod.key, self._pod_before, self.pod)
        for key, obj in self._objects.items():
            kind, _, name = key.partition("/")
            steps += changed_fields(kind, name, self._before[key], obj)
        steps += (ChangeStep(ChangeCode.REMOVE_POD, "Pod", key) for key in self._gone)
        return tuple(steps)

    def change(self, cost: float, on: str, goes_to: str, waits: str) -> Change:
        """Returns the combined change, as it was verified for the node `on`."""
        what = tuple(text.replace(NODE_FIELD, on) for text in self.what)
        return Change(
            what,
            round(cost, 3),
            goes_to,
            0,
            self._steps(),
            waits,
        )
