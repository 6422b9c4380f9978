"""Decides the scheduler's next step for a pod's negotiated claims: rules S1 to S6.

`next_step` is called in each attempt with the observed objects. It returns at most one write, on
the version that the decision rests on, and is called again once that write is observed. So a
restart, a lost write or another scheduler change nothing: the next step follows from the objects.

Source: KEP-3063; seed 000. Each rule has a failure that it prevents, and that a test shows:
tests/property/test_negotiation_model.py.
"""

from typing import Any

from stower.devices.negotiation.candidates import (
    RankedNodes,
    Rules,
    Surroundings,
    all_nodes,
    asked_rounds,
    candidates,
    candidates_of_tree,
    new_nodes_of_tree,
)
from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    is_delayed,
    is_leaving,
    party_names,
)
from stower.devices.negotiation.giving_back import (
    find_held,
    give_back,
    give_back_for_tree,
    handle_missing_claim,
    late_reason,
    release_leaving,
    request_deallocation,
    selected_until_ns,
)
from stower.devices.negotiation.steps import (
    NO_PLACE_FOR_GROUP,
    PATIENCE_NS_MAX,
    REFUSED_ON_ALL,
    WAITS_FOR_ALLOCATION,
    WAITS_FOR_GROUP,
    WAITS_FOR_INFORMATION,
    Step,
    clear,
    refusal_message,
)
from stower.devices.negotiation.trees import TreeTurn
from stower.framework.writes import CreateObject, patch_of
from stower.model.kinds import PodScheduling
from stower.model.times import time_text


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
        return release_leaving(negotiation, around, leaving, rules)
    if negotiation.missing:
        return handle_missing_claim(negotiation, around, rules)
    immediate = [p for p in negotiation.parties if not p.is_allocated and not is_delayed(p.claim)]
    if immediate:
        return Step(f"{WAITS_FOR_ALLOCATION}: {party_names(immediate)}")
    if turn is not None and not turn.node:
        return give_back_for_tree(negotiation, around, rules, turn)
    if not negotiation.pending:
        return None if ranked else give_back(negotiation, around, rules)
    if seen is not None and seen.spec.selected_node:
        return _step_with_selection(negotiation, around, seen, rules)
    if turn is not None:
        return _step_of_tree(negotiation, around, ranked, rules, turn)
    return _step_without_selection(negotiation, around, ranked, rules)


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
        return give_back(negotiation, around, rules)
    if refusing is not None:
        # Pods that race for the same devices, again and again, take turns.
        is_repeated = around.add_failure(refusing, seen)
        why = f"{refusing.driver} cannot allocate {refusing.key} on {name}"
        return clear(negotiation, seen, why, counts=is_repeated)
    if elsewhere is not None:
        return clear(
            negotiation, seen, f"allocated claim {elsewhere.key} is not available on {name}"
        )
    if not around.has_node(name):
        return clear(negotiation, seen, f"node {name} does not exist")
    late = late_reason(negotiation, around, rules)
    if late:
        # While the selection stands, as that it is late is forgotten with it.
        around.add_failure(pending[0], seen, is_late=True)
        kept = find_held(negotiation, around, rules)
        if kept is not None:
            return request_deallocation(kept, late)._replace(is_late=True)
        return clear(negotiation, seen, late, is_late=True)
    due_ns = selected_until_ns(negotiation, around, name, seen.spec.attempt, rules)
    message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {name}"
    if seen.spec.attempt:
        since_ns = around.first_seen_ns("selected", (name, seen.spec.attempt))
        message = f"{message} (since {time_text(since_ns)}, attempt {seen.spec.attempt + 1})"
    return Step(message, None, name, due_ns)


# With none selected


def _step_without_selection(
    negotiation: PodNegotiation, around: Surroundings, ranked: RankedNodes, rules: Rules
) -> Step | None:
    seen, pending = negotiation.scheduling, negotiation.pending
    if seen is None:
        return (
            _ask(negotiation, around, ranked, rules)
            if ranked
            else give_back(negotiation, around, rules)
        )
    asked = seen.spec.potential_nodes or ()
    known = ranked.select(asked)
    silent = negotiation.silent_parties() if "S2" not in rules.without else []
    since_ns = around.first_seen_ns("asked", seen.spec.round)
    due_ns = since_ns + rules.answer_ns
    in_vain_ns = _delay_in_vain_ns(negotiation, around, ranked, rules)
    if not silent or (len(pending) == 1 and not in_vain_ns):
        ready = [name for name in known if around.refused_until_ns(name) <= around.now_ns]
        if ready:
            return _select(negotiation, around, seen, ready, rules)
        if known and len(known) == len(ranked):
            return _wait_after_refusals(negotiation, around, known, rules)
    elif known and around.now_ns >= due_ns:  # nothing is selected past a driver that is silent
        message = _waiting_message(negotiation, around, silent, due_ns, since_ns)
        kept = find_held(negotiation, around, rules)
        return request_deallocation(kept, message) if kept is not None else Step(message)
    elif known:
        message = (
            refusal_message(negotiation)
            if in_vain_ns
            else _waiting_message(negotiation, around, silent, due_ns, since_ns)
        )
        return Step(message, None, None, due_ns)
    if len(known) < len(ranked):
        again_ns = since_ns + in_vain_ns
        if around.now_ns < again_ns:
            return Step(refusal_message(negotiation), None, None, again_ns)
        return _ask(negotiation, around, ranked, rules, in_vain_ns > 0)
    allocated = [party.claim for party in negotiation.parties if party.is_allocated]
    if silent and asked and (not allocated or around.has_common_node(allocated)):
        keeps = bool(find_held(negotiation, around, rules))
        if not keeps or around.now_ns < due_ns:
            message = _waiting_message(negotiation, around, silent, due_ns, since_ns)
            return Step(message, None, None, due_ns if keeps else None)
    return give_back(negotiation, around, rules)


def _select(
    negotiation: PodNegotiation,
    around: Surroundings,
    seen: PodScheduling,
    nodes: list[str],
    rules: Rules,
) -> Step:
    """Select one of these nodes, once it is the pod's turn."""
    turn_ns = around.first_seen_ns("turn", (seen.spec.round, seen.spec.attempt)) + rules.turn_ns
    by_rank = around.now_ns < turn_ns
    in_turn = seen.spec.attempt and "S5" not in rules.without
    if in_turn and (first := around.preceding_pod(negotiation, by_rank)):
        drivers = ", ".join(negotiation.drivers)
        message = f"Another pod that negotiates with {drivers} is tried first"
        kept = None if by_rank else find_held(negotiation, around, rules)
        if kept is not None:  # the other one may need just this
            return request_deallocation(kept, message)
        again_ns = turn_ns if by_rank else around.now_ns + rules.refresh_ns
        return Step(message, None, None, again_ns, first)
    # What came to nothing on the best may do on the next: each attempt begins with another.
    name = nodes[seen.spec.attempt % len(nodes)]
    patch = {"spec": {"selectedNode": name}}
    message = f"{WAITS_FOR_ALLOCATION}: {party_names(negotiation.pending)} on {name}"
    due_ns = selected_until_ns(negotiation, around, name, seen.spec.attempt, rules, True)
    return Step(message, patch_of(seen, patch), name, due_ns)


def _wait_after_refusals(
    negotiation: PodNegotiation, around: Surroundings, nodes: list[str], rules: Rules
) -> Step:
    """Drivers call the nodes suitable, and refused each of them when it was selected."""
    again_ns = min(around.refused_until_ns(name) for name in nodes)
    message = f"{REFUSED_ON_ALL}: {party_names(negotiation.pending)}"
    message = f"{message} (next attempt at {time_text(again_ns)})"
    kept = find_held(negotiation, around, rules)
    if kept is not None:
        return request_deallocation(kept, message)
    # The driver may allocate or deallocate something before.
    return Step(message, None, None, min(again_ns, around.now_ns + rules.refresh_ns))


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
        each = new_nodes_of_tree(rules)
        in_vain_ns = _delay_in_vain_ns(negotiation, around, ranked, rules, each)
        again_ns = since_ns + in_vain_ns
        if around.now_ns < again_ns:
            return Step(refusal_message(negotiation), None, None, again_ns, is_stalled=True)
        return _ask(negotiation, around, ranked, rules, turn=turn)
    if not turn.is_begun and (waits := _wait_for_turn(negotiation, around, rules, turn)):
        return waits
    if not turn.may_select:
        return Step(WAITS_FOR_GROUP, is_ready=True)
    patch = {"spec": {"selectedNode": turn.node}}
    message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {turn.node}"
    due_ns = selected_until_ns(negotiation, around, turn.node, seen.spec.attempt, rules, True)
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


def _delay_in_vain_ns(
    negotiation: PodNegotiation,
    around: Surroundings,
    ranked: RankedNodes,
    rules: Rules,
    each: int | None = None,
) -> int:
    """How long to wait before the next questions where all nodes were asked about before, more than
    can be at once; else 0. Then they are asked about a part at a time, less and less often but all
    of them in ten minutes, and nothing is promised or told anew until one will do. `each`: new
    nodes per round, where others are asked about again."""
    seen = negotiation.scheduling
    if seen is None or seen.spec.round < 3:
        return 0
    count = len(all_nodes(negotiation, around, ranked.names()))
    if count <= rules.nodes_max:
        return 0
    rounds = -(-count // (each or rules.nodes_max))
    times = (asked_rounds(seen, around) - 1) // rounds
    if not times:
        return 0
    longest = max(PATIENCE_NS_MAX // rounds, rules.refresh_ns)
    return min(rules.refresh_ns << min(times - 1, 40), longest)


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
    ready = (name for name in nodes if around.refused_until_ns(name) <= around.now_ns)
    name = next(ready, "") if select else ""
    if name:
        spec["selectedNode"] = name
    spec["round"] = seen.spec.round + 1 if seen is not None else 1
    message = (
        refusal_message(negotiation)
        if in_vain
        else f"{WAITS_FOR_INFORMATION}: {party_names(pending)}"
    )
    due_ns = around.first_seen_ns("asked", spec["round"]) + rules.answer_ns
    if name:
        message = f"{WAITS_FOR_ALLOCATION}: {party_names(pending)} on {name}"
        attempt = seen.spec.attempt if seen is not None else 0
        due_ns = selected_until_ns(negotiation, around, name, attempt, rules, True)
    nominate = name or None
    if seen is not None:
        return Step(message, patch_of(seen, {"spec": spec}), nominate, due_ns)
    meta = negotiation.pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid,
             "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    names = {"namespace": meta.namespace, "name": meta.name}
    body = {"metadata": {**names, "ownerReferences": [owner]}, "spec": spec}
    write = CreateObject(0, PodScheduling, meta.namespace, meta.name, meta.uid, body)
    return Step(message, write, nominate, due_ns)
