"""Finds the class of an explanation: never, blocked, waiting or ready. Changes nothing.

`never` and `waiting` are proved on the state, in trials: without all other pods, and without the
pods that are being deleted. `blocked` is the rest.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.explanation import (
    NODE_KIND_CODES,
    STATE_TAINT,
    WAITING_CODES,
    Awaited,
    ExplanationClass,
    ReasonCode,
    Shortage,
    code_of,
)
from stower.framework.fixes import format_amount
from stower.framework.plugin import Plugin
from stower.framework.profile import Profile
from stower.model.kinds import Pod
from stower.model.kinds.resource_claim import ResourceClaimStatus
from stower.model.taints import NO_EXECUTE, NO_SCHEDULE, is_tolerated
from stower.model.times import SECOND_NS, time_ns, time_text
from stower.state.arrays import Bools, distinct
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

AWAITED_SHOWN: Final = 20
AMOUNT_CODES: Final = {ReasonCode.INSUFFICIENT_RESOURCE, ReasonCode.TOO_MANY_PODS}
# Verdicts whose class depends on nothing else.
CLASSES: Final = {
    "placed": ExplanationClass.READY,
    "fits": ExplanationClass.READY,
    "settling": ExplanationClass.WAITING,
    "leaving": ExplanationClass.WAITING,
    "unknown": ExplanationClass.NEVER,
    "failed": ExplanationClass.BLOCKED,
}


class Finding(NamedTuple):
    """The class of a pod, why it is so, in words, the objects that it waits for, and the plugins
    that refuse it whatever other pods leave."""

    class_: ExplanationClass
    because: str = ""
    awaited: tuple[Awaited, ...] = ()
    lasting: frozenset[str] = frozenset()


def classify_group(message: str, pod: Pod, state: ClusterState) -> Finding:
    """Returns the finding for a pod that waits for its group, by what keeps the group waiting."""
    if code_of(message) not in WAITING_CODES:
        return Finding(ExplanationClass.BLOCKED)
    key = f"{pod.metadata.namespace}/{pod.group_name}"
    group, members = state.groups.pod_groups.get(key), len(state.groups.members.get(key, ()))
    if group is None or members >= group.minimum:  # another group of its tree
        text = f"waits for its group: {message}"
        return Finding(ExplanationClass.WAITING, text, (Awaited("PodGroup", key),))
    missing = group.minimum - members
    text = f"waits for {missing:,} more of the {group.minimum:,} pods that PodGroup {key} wants"
    awaited = Awaited("PodGroup", key, group.metadata.creation_timestamp or "", missing=missing)
    return Finding(ExplanationClass.WAITING, text, (awaited,))


def classify_candidates(node_name: str, victims: Sequence[str]) -> Finding:
    """Returns the finding for a pod that is refused, and that preemption makes room for."""
    awaited = tuple(Awaited("Pod", key) for key in victims[:AWAITED_SHOWN])
    first, more = victims[0], f" and {len(victims) - 1:,} more" if len(victims) > 1 else ""
    text = f"its next attempt evicts {first}{more} from {node_name}"
    return Finding(ExplanationClass.WAITING, text, awaited)


def classify_pending(
    entry: PodEntry,
    state: ClusterState,
    cycle: SchedulingCycle,
    profile: Profile,
    verdict: reference.Verdict,
) -> Finding:
    """Returns the class of a pod that is refused or gated. Opens trials within the caller's."""
    lasting = _find_lasting(entry, state, profile)
    if lasting is not None:
        return lasting
    missing = _missing_template(entry.pod, state)
    lack = f"no ResourceClaimTemplate {missing} exists, which its claim would be made from"
    if entry.pod.spec.scheduling_gates:
        return Finding(ExplanationClass.BLOCKED, lack if missing else "")
    if verdict.pre_filter is not None:
        reasons = verdict.pre_filter[1].reasons
        if missing:
            return Finding(ExplanationClass.BLOCKED, lack)
        codes = {code_of(reason) for reason in reasons}
        if codes == {ReasonCode.CLAIM_NOT_CREATED}:
            text = f"waits for a controller to make its claims: {reasons[0]}"
            return Finding(ExplanationClass.WAITING, text)
        if codes <= WAITING_CODES:
            return Finding(ExplanationClass.WAITING, f"waits for what ends by itself: {reasons[0]}")
    elif found := _row_waiting_text(entry, state, profile, verdict):
        return Finding(ExplanationClass.WAITING, found[1], (Awaited("Node", found[0]),))
    leaving = _pods_to_wait_for(entry, state, cycle, profile)
    if leaving:
        awaited = tuple(map(_awaited_end, leaving[:AWAITED_SHOWN]))
        return Finding(ExplanationClass.WAITING, _leaving_text(leaving), awaited)
    return Finding(ExplanationClass.BLOCKED)


def _find_lasting(entry: PodEntry, state: ClusterState, profile: Profile) -> Finding | None:
    """Returns the finding where each node would refuse the pod even if it were as new and had no
    pods; None where one would not."""
    present: Bools = state.present[state.all_rows]
    if not present.any() or _has_suitable_row(entry, state, profile):
        return None
    pod, shape = entry.pod, entry.shape
    refused: Bools = np.zeros(state.row_limit, np.bool_)
    counts, plugins = Counter[str](), set[str]()
    # A taint of a device may end, as that of a node.
    may_end = {ReasonCode.DEVICES_NOT_AVAILABLE} if _has_device_taints(state) else set()
    kinds = NODE_KIND_CODES - may_end
    with state.trial():
        for other in list(state.pods.values()):
            if other.row >= 0:
                state.displace(other)
        _free_devices(state)
        for plugin in profile.filters:
            codes = reference.filter_codes(plugin, pod, shape, state, state.all_rows)
            for code in distinct(codes[codes != 0]) if codes is not None else ():
                texts = plugin.rejection(shape, int(code)).reasons
                lasting = [text for text in texts if code_of(text) in kinds]
                here = (codes == code) & present
                if lasting and {*map(code_of, lasting)} == {ReasonCode.UNTOLERATED_TAINT}:
                    for row in np.flatnonzero(here).tolist():
                        here[row] = _has_lasting_taint(entry, state, row)
                if lasting and here.any():
                    refused |= here
                    plugins.add(plugin.name)
                    for text in lasting:
                        counts[_lasting_text(text, entry, state, plugin)] += int(here.sum())
    if not refused[present].all():
        return None
    reasons = ", ".join(f"{count:,} {text}" for text, count in counts.items())
    because = (
        f"no node would take it, whatever other pods leave, nor one more of its kinds: {reasons}"
    )
    return Finding(ExplanationClass.NEVER, because, (), frozenset(plugins))


def _has_suitable_row(entry: PodEntry, state: ClusterState, profile: Profile) -> bool:
    """Returns whether some row is certain to take the pod if it were as new and had no pods, found
    without a trial, which takes a second with 60,000 pods. False where that is not known."""
    pod, shape = entry.pod, entry.shape
    suitable: Bools = state.present[state.all_rows].copy()
    for plugin in profile.filters:
        codes = reference.filter_codes(plugin, pod, shape, state, state.all_rows)
        if codes is None or not codes.any():
            continue
        is_short = False
        for code in distinct(codes[codes != 0]):
            kinds = {code_of(text) for text in plugin.rejection(shape, int(code)).reasons}
            is_short |= bool(kinds & AMOUNT_CODES)
            if kinds & NODE_KIND_CODES - AMOUNT_CODES:
                suitable &= codes != code
        for constraint in plugin.capacity_constraints(shape, state) or () if is_short else ():
            if constraint.empty is None:
                return False
            suitable &= constraint.empty(state.all_rows) >= constraint.need
    return bool(suitable.any())


def _has_device_taints(state: ClusterState) -> bool:
    return bool(state.devices.rules) or any(
        device.taints for one in state.devices.slices.values() for device in one.spec.devices or ()
    )


def _free_devices(state: ClusterState) -> None:
    """Takes all claims' devices from them, for as long as a trial lasts."""
    for claim in [*state.devices.api_claims()]:
        if claim.status.allocation is not None:
            state.devices.assume_status(claim.metadata.key, ResourceClaimStatus())


def _lasting_text(text: str, entry: PodEntry, state: ClusterState, plugin: Plugin) -> str:
    """Returns the reason; of an amount, with how much is requested and the most that a node has.
    All pods are displaced."""
    for constraint in plugin.capacity_constraints(entry.shape, state) or ():
        if text == f"Insufficient {constraint.label or constraint.name}":
            name, most = constraint.name, int(constraint.free(state.all_rows).max(initial=0))
            asked, most_text = (format_amount(name, n) for n in (constraint.need, most))
            return f"{text} ({asked} requested, a node has {most_text} at most)"
    return text


def _has_lasting_taint(entry: PodEntry, state: ClusterState, row: int) -> bool:
    """Returns whether the pod does not tolerate a taint that does not tell the node's condition."""
    node, tolerations = state.nodes[row], entry.pod.spec.tolerations or ()
    return node is not None and any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE)
        and not taint.key.startswith(STATE_TAINT)
        and not is_tolerated(tolerations, taint)
        for taint in node.spec.taints or ()
    )


def _missing_template(pod: Pod, state: ClusterState) -> str:
    """Returns the key of a template that a claim of the pod is to be made from, and that is known
    not to be there; "" elsewhere."""
    known, made = state.devices.template_keys, pod.status.resource_claim_statuses or ()
    if known is None:
        return ""
    for entry in pod.spec.resource_claims or ():
        key = f"{pod.metadata.namespace}/{entry.resource_claim_template_name}"
        is_made = any(status.name == entry.name for status in made)
        if entry.resource_claim_template_name and key not in known and not is_made:
            return key
    return ""


def _row_waiting_text(
    entry: PodEntry, state: ClusterState, profile: Profile, verdict: reference.Verdict
) -> tuple[str, str] | None:
    """Returns a node that is refused for nothing but what ends by itself, and the reasons as text;
    None where there is no such node."""
    for rows in verdict.refusals().values():
        first, *_ = np.flatnonzero(rows).tolist()
        refusal = verdict.rejection(first)
        if refusal is None or not {code_of(r) for r in refusal[1].reasons} <= WAITING_CODES:
            continue
        for row in np.flatnonzero(rows).tolist():
            found = _reasons_on(entry, state, profile, row)
            if found and found <= WAITING_CODES:
                plugin = profile.plugins.get(refusal[0])
                details = plugin.details(entry.pod, entry.shape, state, row) if plugin else ()
                name, rest = state.node_names[row], "".join(f"; {text}" for text in details)
                return name, f"waits on {name}: {', '.join(refusal[1].reasons)}{rest}"
    return None


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


def _pods_to_wait_for(
    entry: PodEntry, state: ClusterState, cycle: SchedulingCycle, profile: Profile
) -> list[PodEntry]:
    """Returns the pods that end by themselves (they are being deleted, or have a deadline), on the
    node that the pod gets then; none where it gets none."""
    leaving = {
        other.uid: other.row
        for other in state.pods.values()
        if other.row >= 0
        and (
            other.is_deletion_pending
            or other.pod.metadata.deletion_timestamp is not None
            or (other.pod.spec.active_deadline_seconds and other.pod.status.start_time)
        )
    }
    by_end = sorted((state.pods[uid] for uid in leaving), key=_end_order)
    rows = {0: -1}  # by how many of the first have ended, the row that the pod gets

    def row_after(count: int) -> int:
        if count not in rows:
            with state.trial():
                for other in by_end[:count]:
                    state.remove_pod(other)
                rows[count] = cycle.choose(profile, entry)
        return rows[count]

    if row_after(len(by_end)) < 0:
        return []
    # The fewest, by bisection: whose end helps nobody but others is rare.
    low, high = 0, len(by_end)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if row_after(middle) >= 0 else (middle, high)
    first = by_end[:high]
    here = [other for other in first if leaving[other.uid] == rows[high]]
    return here or first  # on other nodes: the pod kept away from these


def _end_order(entry: PodEntry) -> tuple[bool, int, str]:
    """Who is being deleted ends before whoever has a deadline, the first deadline first."""
    pod = entry.pod
    if entry.is_deletion_pending or pod.metadata.deletion_timestamp is not None:
        return False, 0, entry.uid
    begun_ns = time_ns(pod.status.start_time) or 0
    ends_ns = begun_ns + (pod.spec.active_deadline_seconds or 0) * SECOND_NS
    return True, ends_ns, entry.uid


def _awaited_end(entry: PodEntry) -> Awaited:
    """Returns a pod that ends by itself, with the time of its deletion or deadline."""
    pod = entry.pod
    seconds, started = pod.spec.active_deadline_seconds, pod.status.start_time or ""
    if (since := pod.metadata.deletion_timestamp) or entry.is_deletion_pending or not seconds:
        return Awaited("Pod", pod.key, since or "")
    begun_ns = time_ns(started)
    until = time_text(begun_ns + seconds * SECOND_NS) if begun_ns is not None else ""
    return Awaited("Pod", pod.key, started, until)


def _leaving_text(leaving: Sequence[PodEntry]) -> str:
    """Returns the first of these pods with its end, and the number of the others, as text."""
    first, *others = leaving
    pod = first.pod
    if since := pod.metadata.deletion_timestamp:
        what = f"deleted at {since}"
    elif first.is_deletion_pending:
        what = "being deleted"
    else:
        what = f"{pod.spec.active_deadline_seconds} s from {pod.status.start_time}"
    more = f" and {len(others):,} more" if others else ""
    return f"waits for pods to end: {pod.key} ({what}){more}"


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
