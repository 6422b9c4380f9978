"""Decides what a pod gives back of its negotiated claims, and in which order: rules S4 (a selection
that is late) and S8.

Each step is one write on the version that the decision rests on. Source: seed 000;
kubernetes#120428 (the selection goes first).
"""

from stower.devices.negotiation.candidates import Rules, Surroundings
from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    flag_of,
    is_delayed,
    is_leaving,
    party_names,
)
from stower.devices.negotiation.steps import (
    NO_PLACE_FOR_GROUP,
    PATIENCE_NS_MAX,
    TOUCHED,
    WAITS_FOR_DEALLOCATION,
    Step,
    clear_if_selected,
    refusal_message,
)
from stower.devices.negotiation.trees import TreeTurn, with_jitter
from stower.framework.writes import PatchPodStatus, patch_of
from stower.model.kinds import ResourceClaim
from stower.model.kinds.pod import PodCondition
from stower.model.kinds.resource_claim import DEALLOCATION_REASON_MAX, DEALLOCATION_REQUESTED
from stower.model.times import SECOND_NS

# Selections that are late


def late_reason(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> str:
    """Why the selection is withdrawn, if drivers have not allocated there in time; else ""."""
    seen, pending = negotiation.scheduling, negotiation.pending
    if seen is None or not seen.spec.selected_node or not pending:
        return ""
    name = seen.spec.selected_node
    until_ns = selected_until_ns(negotiation, around, name, seen.spec.attempt, rules)
    if around.now_ns < until_ns:
        return ""
    since_ns = around.first_seen_ns("selected", (name, seen.spec.attempt))
    of = f"{party_names(pending)} on {name}"
    waited_s = (until_ns - since_ns) // SECOND_NS
    return f"timed out waiting for the allocation of {of} for {waited_s} s"


def selected_until_ns(
    negotiation: PodNegotiation,
    around: Surroundings,
    node_name: str,
    attempt: int,
    rules: Rules,
    is_new: bool = False,
) -> int:
    """For how long drivers may take to allocate there. `is_new`: it is being selected now."""
    since_ns = around.first_seen_ns("selected", (node_name, attempt), is_new)
    # Doubles with each selection that was late, not with those that were refused.
    late_count = around.late_count(since_ns)
    longest = min(rules.selection_ns << min(late_count, 40), PATIENCE_NS_MAX)
    return since_ns + with_jitter(longest, negotiation.pod.metadata.uid)


# Claims


def release_leaving(
    negotiation: PodNegotiation, around: Surroundings, leaving: list[Party], rules: Rules
) -> Step:
    """Claims are flagged or being deleted: the pod gives up those that it has reserved. First the
    selection, so that nobody allocates once more; then the pod is touched, so that it cannot be
    bound any more; then the reservation."""
    uid = negotiation.pod.metadata.uid
    late = late_reason(negotiation, around, rules)
    kept = find_held(negotiation, around, rules) if late else None
    if kept is not None:
        return request_deallocation(kept, late)._replace(is_late=True)
    if "S8a" not in rules.without:
        why = late or f"deallocation of {party_names(leaving)} was requested"
        cleared = clear_if_selected(negotiation, why, is_late=bool(late))
        if cleared is not None:
            return cleared
    for party in leaving:
        if party.claim.is_reserved_for(uid):
            return _release_reservation(negotiation, party, rules)
    held = [
        party
        for party in leaving
        if any(not around.is_unbound(c.uid) for c in party.claim.status.reserved_for or ())
    ]
    waits = f"{WAITS_FOR_DEALLOCATION}: {party_names(leaving)}"
    if held and "S8held" not in rules.without:
        # Whoever uses it may do so for long: meanwhile the pod does not keep others' devices.
        found = _find_releasable(negotiation, around, rules)
        if found is not None and len(held) == len(leaving):
            return request_deallocation(found, f"{held[0].key} is in use by another pod")
    kept = find_held(negotiation, around, rules)
    if kept is None:
        return Step(waits)
    flagged = tuple(party.key for party in leaving)
    due_ns = around.first_seen_ns("leaving", flagged) + rules.selection_ns
    if around.now_ns < due_ns:
        return Step(waits, None, None, due_ns)
    return request_deallocation(kept, f"{leaving[0].driver} does not deallocate {flagged[0]}")


def _release_reservation(negotiation: PodNegotiation, party: Party, rules: Rules) -> Step:
    """Touch the pod, then take it out of reservedFor."""
    pod, claim, why = (
        negotiation.pod,
        party.claim,
        f"releasing the reservation of {party_names([party])}",
    )
    mark = _mark(claim)
    touched = pod.condition(TOUCHED)
    if "S8c" not in rules.without and (touched is None or touched.message != mark):
        condition = PodCondition(TOUCHED, "True", "DeallocationRequested", mark)
        meta = pod.metadata
        write = PatchPodStatus(
            0,
            meta.namespace,
            meta.name,
            meta.uid,
            condition,
            resource_version=meta.resource_version,
        )
        return Step(why, write)
    left = [c for c in claim.status.reserved_for or () if c.uid != pod.metadata.uid]
    patch = {"status": {"reservedFor": left or None}}
    return Step(why, patch_of(claim, patch, "status"))


def _mark(claim: ResourceClaim) -> str:
    """What only a touch says that was made after this flag, or this deletion, was seen."""
    meta = claim.metadata
    why = flag_of(claim)
    if why is None:
        why = f"deleted {meta.deletion_timestamp}"
    elif not why.endswith("]"):
        why = f"{why} [{meta.resource_version}]"  # somebody else's: each version is one of its own
    return f"{meta.key} {meta.uid}: {why}"


def give_back(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Step:
    """No node is left: an allocation that may be in the way goes. One at a time, those on nodes
    that are gone first."""
    found = _find_releasable(negotiation, around, rules)
    waits = Step(refusal_message(negotiation) if negotiation.refusals_by_node() else "")
    if found is None:
        return waits
    cleared = (
        clear_if_selected(negotiation, "no node is suitable")
        if "S8a" not in rules.without
        else None
    )
    return cleared or request_deallocation(found, "no node is suitable for the pod")


def give_back_for_tree(
    negotiation: PodNegotiation, around: Surroundings, rules: Rules, turn: TreeTurn
) -> Step:
    """Returns the next step by which a pod gives back what it has, as its tree has no placement.
    Counts as a failed attempt."""
    if turn.keeps:
        return Step(NO_PLACE_FOR_GROUP, None, None, turn.retry_ns)
    step = clear_if_selected(negotiation, NO_PLACE_FOR_GROUP, counts=True)
    step = step or give_back(negotiation, around, rules)
    again_ns = turn.retry_ns if turn.retry_ns > around.now_ns else None
    message = step.message or NO_PLACE_FOR_GROUP
    return step._replace(message=message, again_ns=again_ns, is_stalled=True)


def handle_missing_claim(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Step:
    """A claim of the pod is missing: meanwhile the pod keeps nothing that was allocated for it.
    What is reserved for nobody stays: the claim may be there, and not be seen yet."""
    why = "a resource claim of the pod does not exist"
    cleared = clear_if_selected(negotiation, why)
    if cleared is not None:
        return cleared
    found = find_held(negotiation, around, rules)
    return request_deallocation(found, why) if found is not None else Step("")


def find_held(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Party | None:
    """Returns one of the claims that may be given back and are reserved for the pod. What is
    reserved for nobody stays: a user may have made it."""
    uid = negotiation.pod.metadata.uid
    own = tuple(party for party in negotiation.parties if party.claim.is_reserved_for(uid))
    return _find_releasable(negotiation._replace(parties=own), around, rules)


def _find_releasable(
    negotiation: PodNegotiation, around: Surroundings, rules: Rules
) -> Party | None:
    """A claim that may be given back for the pod: that waited for its first consumer, is not
    flagged, and is reserved for nobody else; on a node that is gone, for nobody who is bound."""
    uid = negotiation.pod.metadata.uid
    allocated = [p for p in negotiation.parties if p.is_allocated and is_delayed(p.claim)]
    lost, others = [], []
    for party in allocated:
        if is_leaving(party.claim):
            continue
        users = {consumer.uid for consumer in party.claim.status.reserved_for or ()}
        unbound = all(user == uid or around.is_unbound(user) for user in users)
        if not around.has_common_node([party.claim]) and "S8lost" not in rules.without:
            if unbound:
                lost.append(party)
        elif users <= {uid} or (unbound and "S8own" in rules.without):
            others.append(party)
    return next(iter([*lost, *others]), None)


def request_deallocation(party: Party, why: str) -> Step:
    """Ask for its deallocation. The text ends with the version that the claim had: no two flags of
    a claim are the same."""
    version = f" [{party.claim.metadata.resource_version}]"
    room = DEALLOCATION_REASON_MAX - len(version.encode())
    text = why.encode()[:room].decode(errors="ignore") + version
    patch = {"metadata": {"annotations": {DEALLOCATION_REQUESTED: text}}}
    return Step(
        f"requested deallocation of {party_names([party])}: {why}", patch_of(party.claim, patch)
    )
