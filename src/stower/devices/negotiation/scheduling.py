"""Decides the scheduler's next step for a pod's negotiated claims: rules S1 to S6 and S8.

`next_step` is called in each attempt with the observed objects. It returns at most one write, on
the version that the decision rests on, and is called again once that write is observed. So a
restart, a lost write or another scheduler change nothing: the next step follows from the objects.

Source: KEP-3063; seed 000. Each rule has a failure that it prevents, and that a test shows:
tests/property/test_negotiation_model.py.
"""

from typing import Any, Final, NamedTuple

from stower.devices.negotiation.candidates import (
    RankedNodes,
    Rules,
    Surroundings,
    all_nodes,
    candidates,
    candidates_of_tree,
    new_nodes_of_tree,
)
from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    flag_of,
    is_delayed,
    is_leaving,
    party_names,
)
from stower.devices.negotiation.trees import TreeTurn, with_jitter
from stower.framework.writes import CreateObject, PatchObject, PatchPodStatus, patch_of
from stower.model.kinds import PodScheduling, ResourceClaim
from stower.model.kinds.pod import PodCondition
from stower.model.kinds.resource_claim import DEALLOCATION_REASON_MAX, DEALLOCATION_REQUESTED
from stower.model.times import SECOND_NS, time_text

WAITS_FOR_INFORMATION: Final = "waiting for resource driver to provide information"
WAITS_FOR_ALLOCATION: Final = "waiting for resource driver to allocate resource"
WAITS_FOR_DEALLOCATION: Final = "waiting for resource driver to deallocate resource"
WAITS_FOR_GROUP: Final = "waiting until nodes can be selected for all pods of the group"
NO_PLACE_FOR_GROUP: Final = "no suitable nodes for all pods of the group"
# The condition by which a pod is touched before a claim is taken from it: a binding that is on its
# way to the API server relies on the pod as it was before, and so cannot be carried out any more.
TOUCHED: Final = "stower.dev/ClaimGivenBack"
PATIENCE_NS_MAX: Final = 600 * SECOND_NS

StepWrite = CreateObject | PatchObject | PatchPodStatus


class Step(NamedTuple):
    """What is done. `nominate`: the node that is promised to the pod; "" takes a promise back, None
    leaves it. `again_ns`: when to ask again though nothing has happened. `behind`: the pod that
    goes first: what is said about it may end the wait. `is_ready`: all that is left is to select
    the node, which waits for the other pods of the tree; `is_stalled`: nothing is expected soon, so
    that other pods of the tree must not keep devices. Whether a step that writes is one of several
    is for `has_next_step` to say."""

    message: str
    write: StepWrite | None = None
    nominate: str | None = None
    again_ns: int | None = None
    behind: str = ""
    is_ready: bool = False
    is_stalled: bool = False


def next_step(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    turn: TreeTurn | None = None,
) -> Step | None:
    """What to do now; None: all claims are allocated and the pod may be bound.

    `ranked`: the nodes that would do for the pod, the best first; where its allocated claims can be
    used, and that no driver has refused. `turn`: for a pod that is scheduled with its pod group.
    """
    seen = negotiation.scheduling
    if seen is not None and not negotiation.is_ours:
        return Step(f"waiting for podscheduling {seen.metadata.key} of another pod to be deleted")
    leaving = [party for party in negotiation.parties if is_leaving(party.claim)]
    if leaving:
        return _release_leaving(negotiation, around, leaving, rules)
    if negotiation.missing:
        return _handle_missing_claim(negotiation, around, rules)
    immediate = [p for p in negotiation.parties if not p.is_allocated and not is_delayed(p.claim)]
    if immediate:
        return Step(f"{WAITS_FOR_ALLOCATION}: {party_names(immediate)}")
    if turn is not None and not turn.node:
        return _give_back_for_tree(negotiation, around, rules, turn)
    if not negotiation.pending:
        return None if ranked else _give_back(negotiation, around, rules)
    if seen is not None and seen.spec.selected_node:
        return _step_with_selection(negotiation, around, seen, rules)
    if turn is not None:
        return _step_of_tree(negotiation, around, ranked, rules, turn)
    return _step_without_selection(negotiation, around, ranked, rules)


def has_next_step(step: Step) -> bool:
    """Whether there is more to do as soon as what was written is seen: after all but questions and
    selections, which wait for drivers."""
    asks = isinstance(step.write, PatchObject) and "round" in (step.write.patch.get("spec") or {})
    return not (isinstance(step.write, CreateObject) or asks or is_selection(step))


def is_selection(step: Step) -> bool:
    """Whether the step's write selects a node."""
    write = step.write
    if isinstance(write, PatchObject):
        return bool((write.patch.get("spec") or {}).get("selectedNode"))
    return isinstance(write, CreateObject) and bool(write.body["spec"].get("selectedNode"))


# With a node selected


def _step_with_selection(
    negotiation: PodNegotiation, around: Surroundings, seen: PodScheduling, rules: Rules
) -> Step:
    """Drivers allocate there, or the selection is taken back (S4)."""
    name, pending = seen.spec.selected_node, negotiation.pending
    refusing = negotiation.refusals_by_node().get(name)
    allocated = [party for party in negotiation.parties if party.is_allocated]
    elsewhere = next((p for p in allocated if not around.is_available_on(p.claim, name)), None)
    if refusing is not None and "S8a" in rules.without and allocated:
        return _give_back(negotiation, around, rules)
    if refusing is not None:
        return _clear(
            negotiation, seen, f"{refusing.driver} cannot allocate {refusing.key} on {name}"
        )
    if elsewhere is not None:
        return _clear(
            negotiation, seen, f"allocated claim {elsewhere.key} is not available on {name}"
        )
    if not around.has_node(name):
        return _clear(negotiation, seen, f"node {name} does not exist")
    due_ns = _selected_until_ns(negotiation, around, name, seen.spec.attempt, rules)
    of = f"{party_names(pending)} on {name}"
    if around.now_ns >= due_ns:
        return _clear(
            negotiation, seen, f"timed out waiting for the allocation of {of}", counts=True
        )
    return Step(f"{WAITS_FOR_ALLOCATION}: {of}", None, name, due_ns)


def _selected_until_ns(
    negotiation: PodNegotiation, around: Surroundings, node_name: str, attempt: int, rules: Rules
) -> int:
    """For how long drivers may take to allocate there."""
    return around.first_seen_ns("selected", (node_name, attempt)) + _patience_ns(
        negotiation, attempt, rules
    )


def _patience_ns(negotiation: PodNegotiation, attempt: int, rules: Rules) -> int:
    """Doubles, up to a fourth longer, not the same for all pods."""
    longest = min(rules.selection_ns << min(attempt, 40), PATIENCE_NS_MAX)
    return with_jitter(longest, negotiation.pod.metadata.uid)


def _clear(
    negotiation: PodNegotiation, seen: PodScheduling, why: str, counts: bool = False
) -> Step:
    """Take the selection back. Where several drivers have to agree, it counts as a failed attempt
    (S5); `counts`: so does one that was waited for in vain, for which the next is waited for
    longer, and one of a pod group that cannot be placed."""
    spec: dict[str, Any] = {"selectedNode": ""}
    if counts or len(negotiation.drivers) > 1:
        spec["attempt"] = seen.spec.attempt + 1
    return Step(f"selected node withdrawn: {why}", patch_of(seen, {"spec": spec}), "")


def _clear_if_selected(negotiation: PodNegotiation, why: str, counts: bool = False) -> Step | None:
    """The same, where something is selected."""
    seen = negotiation.scheduling
    if seen is None or not seen.spec.selected_node:
        return None
    return _clear(negotiation, seen, why, counts=counts)


# With none selected


def _step_without_selection(
    negotiation: PodNegotiation, around: Surroundings, ranked: RankedNodes, rules: Rules
) -> Step | None:
    seen, pending = negotiation.scheduling, negotiation.pending
    if seen is None:
        return (
            _ask(negotiation, around, ranked, rules)
            if ranked
            else _give_back(negotiation, around, rules)
        )
    asked = seen.spec.potential_nodes or ()
    known = ranked.select(asked)
    silent = negotiation.silent_parties() if "S2" not in rules.without else []
    since_ns = around.first_seen_ns("asked", seen.spec.round)
    due_ns = since_ns + rules.answer_ns
    in_vain = _has_asked_all(negotiation, around, ranked, rules)
    at_once = len(pending) == 1 and not in_vain
    if known and (at_once or not silent):
        turn_ns = around.first_seen_ns("turn", (seen.spec.round, seen.spec.attempt)) + rules.turn_ns
        by_rank = around.now_ns < turn_ns
        in_turn = seen.spec.attempt and "S5" not in rules.without
        if in_turn and (first := around.preceding_pod(negotiation, by_rank)):
            message = (
                f"Another pod that negotiates with {', '.join(negotiation.drivers)} is tried first"
            )
            kept = None if by_rank else _find_held(negotiation, around, rules)
            if kept is not None:  # the other one may need just this
                return _request_deallocation(kept, message)
            again_ns = turn_ns if by_rank else around.now_ns + rules.refresh_ns
            return Step(message, None, None, again_ns, first)
        # What came to nothing on the best may do on the next: each attempt begins with another.
        name = known[seen.spec.attempt % len(known)]
        patch = {"spec": {"selectedNode": name}}
        message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {name}"
        due_ns = _selected_until_ns(negotiation, around, name, seen.spec.attempt, rules)
        return Step(message, patch_of(seen, patch), name, due_ns)
    if known and around.now_ns >= due_ns:  # nothing is selected past a driver that is silent
        message = _waiting_message(negotiation, around, silent, due_ns, since_ns)
        kept = _find_held(negotiation, around, rules)
        return _request_deallocation(kept, message) if kept is not None else Step(message)
    if known:
        is_told = in_vain and around.now_ns < due_ns
        message = (
            _refusal_message(negotiation)
            if is_told
            else _waiting_message(negotiation, around, silent, due_ns, since_ns)
        )
        return Step(message, None, None, due_ns)
    if len(known) < len(ranked):
        again_ns = since_ns + rules.refresh_ns
        if in_vain and around.now_ns < again_ns:
            return Step(_refusal_message(negotiation), None, None, again_ns)
        return _ask(negotiation, around, ranked, rules, in_vain)
    allocated = [party.claim for party in negotiation.parties if party.is_allocated]
    if silent and asked and (not allocated or around.has_common_node(allocated)):
        keeps = bool(_find_held(negotiation, around, rules))
        if not keeps or around.now_ns < due_ns:
            message = _waiting_message(negotiation, around, silent, due_ns, since_ns)
            return Step(message, None, None, due_ns if keeps else None)
    return _give_back(negotiation, around, rules)


def _step_of_tree(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    turn: TreeTurn,
) -> Step:
    """Returns the next step of a pod that its tree has placed on a node, before that is selected:
    all drivers have answered about the node, and nodes are selected for all pods of the tree or for
    none. Trees take turns as pods do (S5)."""
    seen, pending = negotiation.scheduling, negotiation.pending
    if seen is None:
        return _ask(negotiation, around, ranked, rules, turn=turn)
    since_ns = around.first_seen_ns("asked", seen.spec.round)
    silent = negotiation.silent_parties()
    if silent:
        due_ns = since_ns + rules.answer_ns
        message = _waiting_message(negotiation, around, silent, due_ns, since_ns)
        is_late = around.now_ns >= due_ns
        return Step(message, None, None, None if is_late else due_ns, is_stalled=is_late)
    if turn.node not in (seen.spec.potential_nodes or ()):
        again_ns = since_ns + rules.refresh_ns
        each = new_nodes_of_tree(rules)
        in_vain = _has_asked_all(negotiation, around, ranked, rules, each)
        if in_vain and around.now_ns < again_ns:
            return Step(_refusal_message(negotiation), None, None, again_ns, is_stalled=True)
        return _ask(negotiation, around, ranked, rules, turn=turn)
    if not turn.is_begun and (waits := _wait_for_turn(negotiation, around, rules, turn)):
        return waits
    if not turn.may_select:
        return Step(WAITS_FOR_GROUP, is_ready=True)
    patch = {"spec": {"selectedNode": turn.node}}
    message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {turn.node}"
    due_ns = _selected_until_ns(negotiation, around, turn.node, seen.spec.attempt, rules)
    return Step(message, patch_of(seen, patch), turn.node, due_ns)


def _wait_for_turn(
    negotiation: PodNegotiation, around: Surroundings, rules: Rules, turn: TreeTurn
) -> Step | None:
    """Returns what a tree waits for before it begins: the end of its delay, or another pod."""
    if around.now_ns < turn.not_before_ns:
        message = f"{NO_PLACE_FOR_GROUP}: attempt {turn.attempt} failed, the next one follows later"
        return Step(message, None, None, turn.not_before_ns, is_stalled=True)
    if not turn.attempt:
        return None
    turn_ns = around.first_seen_ns("turn", turn.attempt) + rules.turn_ns
    by_rank = around.now_ns < turn_ns
    first = around.preceding_pod(negotiation, by_rank)
    if not first:
        return None
    again_ns = turn_ns if by_rank else around.now_ns + rules.refresh_ns
    drivers = ", ".join(negotiation.drivers)
    message = f"Another pod that negotiates with {drivers} is tried first"
    return Step(message, None, None, again_ns, first)


def _waiting_message(
    negotiation: PodNegotiation,
    around: Surroundings,
    silent: list[Party],
    due_ns: int,
    since_ns: int,
) -> str:
    """Whom the pod waits for: all that were asked; those who keep silent, once that is too long."""
    if around.now_ns < due_ns:
        return f"{WAITS_FOR_INFORMATION}: {party_names(negotiation.pending)}"
    since = time_text(since_ns)
    return f"{WAITS_FOR_INFORMATION}: {party_names(silent)} (no answer since {since})"


def _has_asked_all(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    each: int | None = None,
) -> bool:
    """Whether all nodes were asked about before, more than can be at once: then they are asked
    about a part at a time, and nothing is promised or told anew until one will do. `each`: new
    nodes per round, where others are asked about again."""
    seen = negotiation.scheduling
    if seen is None or seen.spec.round < 3:
        return False
    count = len(all_nodes(negotiation, around, ranked.names()))
    return count > rules.nodes_max and -(-count // (each or rules.nodes_max)) < seen.spec.round


def _ask(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    in_vain: bool = False,
    turn: TreeTurn | None = None,
) -> Step:
    """Ask about nodes (S1), others than those of the last round where there was one; where it is
    about one claim only, its driver may begin with the best at once (S3). For a pod of a tree, the
    node of the placement is among them, and nothing is selected."""
    seen, pending = negotiation.scheduling, negotiation.pending
    nodes = (
        candidates(negotiation, around, ranked.names(), rules.nodes_max)
        if turn is None
        else candidates_of_tree(negotiation, around, ranked, rules, turn.node)
    )
    spec: dict[str, Any] = {"potentialNodes": nodes}
    first = seen.spec.attempt == 0 if seen is not None else True
    select = (
        not in_vain
        and turn is None
        and len(pending) == 1
        and (first or "S5" in rules.without or not around.preceding_pod(negotiation, True))
    )
    if select:
        spec["selectedNode"] = nodes[0]
    spec["round"] = seen.spec.round + 1 if seen is not None else 1
    message = (
        _refusal_message(negotiation)
        if in_vain
        else f"{WAITS_FOR_INFORMATION}: {party_names(pending)}"
    )
    if select:
        message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {nodes[0]}"
    nominate = nodes[0] if select else None
    due_ns = around.first_seen_ns("asked", spec["round"]) + rules.answer_ns
    if select:
        attempt = seen.spec.attempt if seen is not None else 0
        due_ns = _selected_until_ns(negotiation, around, nodes[0], attempt, rules)
    if seen is not None:
        return Step(message, patch_of(seen, {"spec": spec}), nominate, due_ns)
    meta = negotiation.pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid,
             "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    names = {"namespace": meta.namespace, "name": meta.name}
    body = {"metadata": {**names, "ownerReferences": [owner]}, "spec": spec}
    write = CreateObject(0, PodScheduling, meta.namespace, meta.name, meta.uid, body)
    return Step(message, write, nominate, due_ns)


def _refusal_message(negotiation: PodNegotiation) -> str:
    """Who has refused what there was."""
    parties = list({party.key: party for party in negotiation.refusals_by_node().values()}.values())
    return f"no suitable node for {party_names(parties or negotiation.pending)}"


# Giving claims back (S8)


def _release_leaving(
    negotiation: PodNegotiation, around: Surroundings, leaving: list[Party], rules: Rules
) -> Step:
    """Claims are flagged or being deleted: the pod gives up those that it has reserved. First the
    selection, so that nobody allocates once more; then the pod is touched, so that it cannot be
    bound any more; then the reservation."""
    uid = negotiation.pod.metadata.uid
    if "S8a" not in rules.without:
        cleared = _clear_if_selected(
            negotiation, f"deallocation of {party_names(leaving)} was requested"
        )
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
            return _request_deallocation(found, f"{held[0].key} is in use by another pod")
    kept = _find_held(negotiation, around, rules)
    if kept is None:
        return Step(waits)
    flagged = tuple(party.key for party in leaving)
    due_ns = around.first_seen_ns("leaving", flagged) + rules.selection_ns
    if around.now_ns < due_ns:
        return Step(waits, None, None, due_ns)
    return _request_deallocation(kept, f"{leaving[0].driver} does not deallocate {flagged[0]}")


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


def _give_back(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Step:
    """No node is left: an allocation that may be in the way goes. One at a time, those on nodes
    that are gone first."""
    found = _find_releasable(negotiation, around, rules)
    waits = Step(_refusal_message(negotiation) if negotiation.refusals_by_node() else "")
    if found is None:
        return waits
    cleared = (
        _clear_if_selected(negotiation, "no node is suitable")
        if "S8a" not in rules.without
        else None
    )
    return cleared or _request_deallocation(found, "no node is suitable for the pod")


def _give_back_for_tree(
    negotiation: PodNegotiation, around: Surroundings, rules: Rules, turn: TreeTurn
) -> Step:
    """Returns the next step by which a pod gives back what it has, as its tree has no placement.
    Counts as a failed attempt."""
    if turn.keeps:
        return Step(NO_PLACE_FOR_GROUP, None, None, turn.retry_ns)
    step = _clear_if_selected(negotiation, NO_PLACE_FOR_GROUP, counts=True)
    step = step or _give_back(negotiation, around, rules)
    again_ns = turn.retry_ns if turn.retry_ns > around.now_ns else None
    message = step.message or NO_PLACE_FOR_GROUP
    return step._replace(message=message, again_ns=again_ns, is_stalled=True)


def _handle_missing_claim(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Step:
    """A claim of the pod is missing: meanwhile the pod keeps nothing that was allocated for it.
    What is reserved for nobody stays: the claim may be there, and not be seen yet."""
    why = "a resource claim of the pod does not exist"
    cleared = _clear_if_selected(negotiation, why)
    if cleared is not None:
        return cleared
    found = _find_held(negotiation, around, rules)
    return _request_deallocation(found, why) if found is not None else Step("")


def _find_held(negotiation: PodNegotiation, around: Surroundings, rules: Rules) -> Party | None:
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


def _request_deallocation(party: Party, why: str) -> Step:
    """Ask for its deallocation. The text ends with the version that the claim had: no two flags of
    a claim are the same."""
    version = f" [{party.claim.metadata.resource_version}]"
    room = DEALLOCATION_REASON_MAX - len(version.encode())
    text = why.encode()[:room].decode(errors="ignore") + version
    patch = {"metadata": {"annotations": {DEALLOCATION_REQUESTED: text}}}
    return Step(
        f"requested deallocation of {party_names([party])}: {why}", patch_of(party.claim, patch)
    )
