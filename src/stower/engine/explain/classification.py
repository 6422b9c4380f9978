"""Finds the class of an explanation: never, blocked, waiting or ready. Changes nothing.

`never` and `waiting` are proved on the state, in trials: without all other pods, and without the
pods that are being deleted. `blocked` is the rest.
"""

from typing import Final

import numpy as np

from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.explanation import (
    NODE_KIND_CODES,
    STATE_TAINT,
    WAITING_CODES,
    ExplanationClass,
    ReasonCode,
    Shortage,
    code_of,
)
from stower.framework.profile import Profile
from stower.model.taints import NO_EXECUTE, NO_SCHEDULE, is_tolerated
from stower.state.arrays import Bools, distinct
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

# Verdicts whose class depends on nothing else.
CLASSES: Final = {
    "placed": ExplanationClass.READY,
    "fits": ExplanationClass.READY,
    "settling": ExplanationClass.WAITING,
    "leaving": ExplanationClass.WAITING,
    "unknown": ExplanationClass.NEVER,
    "failed": ExplanationClass.BLOCKED,
}


def classify_group(message: str) -> ExplanationClass:
    """Returns the class of a pod that waits for its group, by what keeps the group waiting."""
    is_waiting = code_of(message) in WAITING_CODES
    return ExplanationClass.WAITING if is_waiting else ExplanationClass.BLOCKED


def classify_pending(
    entry: PodEntry,
    state: ClusterState,
    cycle: SchedulingCycle,
    profile: Profile,
    verdict: reference.Verdict,
) -> ExplanationClass:
    """Returns the class of a pod that is refused or gated. Opens trials within the caller's."""
    if _is_refused_by_kinds(entry, state, profile):
        return ExplanationClass.NEVER
    if entry.pod.spec.scheduling_gates:
        return ExplanationClass.BLOCKED
    if verdict.pre_filter is not None:
        codes = {code_of(reason) for reason in verdict.pre_filter[1].reasons}
        is_waiting = codes <= WAITING_CODES
    else:
        is_waiting = _is_row_waiting(entry, state, profile, verdict)
    if is_waiting or _fits_after_deletions(entry, state, cycle, profile):
        return ExplanationClass.WAITING
    return ExplanationClass.BLOCKED


def _is_refused_by_kinds(entry: PodEntry, state: ClusterState, profile: Profile) -> bool:
    """Returns whether each node would refuse the pod even if it were as new and had no pods."""
    present: Bools = state.present[state.all_rows]
    if not present.any():
        return False
    pod, shape = entry.pod, entry.shape
    refused: Bools = np.zeros(state.row_limit, np.bool_)
    with state.trial():
        for other in list(state.pods.values()):
            if other.row >= 0:
                state.displace(other)
        for plugin in profile.filters:
            codes = reference.filter_codes(plugin, pod, shape, state, state.all_rows)
            for code in distinct(codes[codes != 0]) if codes is not None else ():
                reasons = {code_of(text) for text in plugin.rejection(shape, int(code)).reasons}
                lasting = reasons & NODE_KIND_CODES
                if lasting == {ReasonCode.UNTOLERATED_TAINT}:
                    for row in np.flatnonzero((codes == code) & ~refused).tolist():
                        refused[row] = _has_lasting_taint(entry, state, row)
                elif lasting:
                    refused |= codes == code
    return bool(refused[present].all())


def _has_lasting_taint(entry: PodEntry, state: ClusterState, row: int) -> bool:
    """Returns whether the pod does not tolerate a taint that does not tell the node's condition."""
    node, tolerations = state.nodes[row], entry.pod.spec.tolerations or ()
    return node is not None and any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE)
        and not taint.key.startswith(STATE_TAINT)
        and not is_tolerated(tolerations, taint)
        for taint in node.spec.taints or ()
    )


def _is_row_waiting(
    entry: PodEntry, state: ClusterState, profile: Profile, verdict: reference.Verdict
) -> bool:
    """Returns whether some node is refused for nothing but what ends by itself."""
    for rows in verdict.refusals().values():
        first, *_ = np.flatnonzero(rows).tolist()
        refusal = verdict.rejection(first)
        if refusal is None or not {code_of(r) for r in refusal[1].reasons} <= WAITING_CODES:
            continue
        for row in np.flatnonzero(rows).tolist():
            found = _reasons_on(entry, state, profile, row)
            if found and found <= WAITING_CODES:
                return True
    return False


def _reasons_on(
    entry: PodEntry, state: ClusterState, profile: Profile, row: int
) -> set[ReasonCode]:
    found: set[ReasonCode] = set()
    for plugin in profile.filters:
        codes = reference.filter_codes(plugin, entry.pod, entry.shape, state, slice(row, row + 1))
        if codes is not None and codes[0]:
            reasons = plugin.rejection(entry.shape, int(codes[0])).reasons
            found |= {code_of(reason) for reason in reasons}
    return found


def _fits_after_deletions(
    entry: PodEntry, state: ClusterState, cycle: SchedulingCycle, profile: Profile
) -> bool:
    """Returns whether the pod fits once the pods that are being deleted are gone."""
    leaving = [
        other
        for other in state.pods.values()
        if other.row >= 0
        and (other.is_deletion_pending or other.pod.metadata.deletion_timestamp is not None)
    ]
    if not leaving:
        return False
    with state.trial():
        for other in leaving:
            state.remove_pod(other)
        return cycle.choose(profile, entry) >= 0


def shortages(
    plugin_name: str, entry: PodEntry, state: ClusterState, profile: Profile, row: int
) -> tuple[Shortage, ...]:
    """Returns the amounts that a row lacks for the pod, where the plugin compares amounts."""
    plugin = profile.plugins.get(plugin_name)
    if plugin is None or not plugin.is_relevant(entry.shape):
        return ()
    found = []
    for constraint in plugin.capacity_constraints(entry.shape, state) or ():
        free = int(constraint.free(slice(row, row + 1))[0])
        if constraint.need > free:
            found.append(Shortage(constraint.name, constraint.need, free))
    return tuple(found)
