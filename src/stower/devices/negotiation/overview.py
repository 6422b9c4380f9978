"""Describes all negotiations for people: each pod, the state of each of its claims, what the claim
waits for, and hints.

The description follows from the API objects alone, in the order in which the scheduler
(scheduling.py) and the drivers (driver/rules.py) read them. Must not be used for decisions.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    driver_of,
    finalizer_of,
    flag_of,
    is_delayed,
    is_leaving,
    is_pending,
    terms_fault,
)
from stower.devices.negotiation.steps import REFUSED_ON_ALL
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX
from stower.model.selectors import node_selector_matches
from stower.model.times import SECOND_NS, time_ns
from stower.state.devices import claim_refs

HINTS_MAX: Final = 5
USERS_MAX: Final = 3  # pods of a claim that a hint names
PATIENCE_NS: Final = 30 * SECOND_NS  # whoever says nothing for longer may not run
SCHEDULER: Final = "the scheduler"


class ClaimState(msgspec.Struct, frozen=True, rename="camel"):
    """One claim. `state`: missing, pending (nobody was asked about it), silent (no answer about
    this round), answered, allocated, flagged (its deallocation was requested) or deleting; of the
    last two `allocated` says whether it is; `nodes`: where it can be used then, `everywhere` where
    that is on all of them; `unsuitable`: what was answered; `used_by`: for whom it is reserved;
    `awaits`: what has to happen next, or ""."""

    claim: str
    driver: str
    state: str
    awaits: str = ""
    allocated: bool = False
    nodes: tuple[str, ...] = ()
    everywhere: bool = False
    unsuitable: tuple[str, ...] = ()
    observed_round: int = 0
    used_by: tuple[str, ...] = ()
    flag: str = ""


class Negotiation(msgspec.Struct, frozen=True, rename="camel"):
    """One pod. `since`: when it began, "" where that is not known; `candidates`: how many nodes are
    asked about, of which no driver has refused `left`; `awaits`: what has to happen beside what the
    claims wait for, or ""; `hints`: what may help, though nobody can try it."""

    pod: str
    since: str = ""
    candidates: int = 0
    left: int = 0
    round: int = 0
    attempt: int = 0
    selected_node: str = ""
    awaits: str = ""
    claims: tuple[ClaimState, ...] = ()
    hints: tuple[str, ...] = ()


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """All pods that negotiate, and the claims of drivers that no such pod uses."""

    negotiations: tuple[Negotiation, ...]
    claims: tuple[ClaimState, ...]


class Objects:
    """What is looked at."""

    def __init__(
        self,
        pods: Iterable[Pod],
        claims: Iterable[ResourceClaim],
        classes: Iterable[ResourceClass],
        schedulings: Iterable[PodScheduling],
        nodes: Iterable[Node],
        now_ns: int | None = None,
    ) -> None:
        """`now_ns`: since the epoch; None where it is not known."""
        self.pods = {pod.key: pod for pod in pods if not pod.is_terminal}
        self.claims = {claim.metadata.key: claim for claim in claims}
        self.classes = {found.metadata.name: found for found in classes}
        self.schedulings = {found.metadata.key: found for found in schedulings}
        self.nodes = {node.metadata.name: node for node in nodes}
        self.now_ns = now_ns
        self._negotiations = {key: self._negotiation(pod) for key, pod in self.pods.items()}
        self.uids = {pod.metadata.uid: pod for pod in self.pods.values()}

    def negotiations_of_pods(self) -> Iterable[PodNegotiation]:
        """What there is to say about each pod, in the order of their names."""
        return (negotiation for _, negotiation in sorted(self._negotiations.items()))

    def negotiation(self, key: str) -> PodNegotiation | None:
        """The same about one pod."""
        return self._negotiations.get(key)

    def _negotiation(self, pod: Pod) -> PodNegotiation:
        parties, missing = [], False
        for ref in claim_refs(pod):
            claim = self.claims.get(f"{pod.metadata.namespace}/{ref.name}")
            missing |= claim is None and ref.name != ""
            driver = driver_of(claim, self.classes) if claim is not None else ""
            if claim is not None and driver:
                parties.append(Party(ref.entry_name, driver, claim))
        return PodNegotiation(pod, tuple(parties), self.schedulings.get(pod.key), missing)

    def available_nodes(self, claim: ResourceClaim) -> tuple[str, ...] | None:
        """The nodes on which an allocated claim can be used, None for all."""
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            return None
        selector = allocation.node_selector
        return tuple(
            name
            for name, node in self.nodes.items()
            if node_selector_matches(selector, node.metadata.labels or {}, name)
        )

    def is_available_on(self, claim: ResourceClaim, name: str) -> bool:
        """Whether an allocated claim can be used on the node."""
        reached = self.available_nodes(claim)
        return reached is None or name in reached


def overview(objects: Objects, only: str = "") -> Overview | None:
    """What there is. `only`: a pod, a claim or a driver, the first two with their namespace or
    without; None where there is none of that name."""
    found: list[Negotiation] = []
    shown: dict[str, None] = {}
    for negotiation in objects.negotiations_of_pods():
        if not _is_open(negotiation):
            continue
        found.append(_Case(objects, negotiation).report())
        shown.update((party.key, None) for party in negotiation.parties)
    for key, said in sorted(objects.schedulings.items()):
        if key not in objects.pods:
            found.append(_leftover_negotiation(said))
    others = []
    for key, claim in sorted(objects.claims.items()):
        driver = driver_of(claim, objects.classes)
        if driver and key not in shown:
            others.append(_unused_claim_state(objects, Party("", driver, claim)))
    if not only:
        return Overview(tuple(found), tuple(others))
    return _part(objects, Overview(tuple(found), tuple(others)), only)


def _part(objects: Objects, whole: Overview, only: str) -> Overview | None:
    """What is about a pod, a claim or a driver."""

    def is_meant(key: str) -> bool:
        return only in (key, key.partition("/")[2])

    used = {
        f"{pod.metadata.namespace}/{ref.name}"
        for key, pod in objects.pods.items()
        if is_meant(key)
        for ref in claim_refs(pod)
    }
    drivers = {known.driver_name for known in objects.classes.values()}
    drivers |= {driver_of(claim, objects.classes) for claim in objects.claims.values()}
    names = (*objects.pods, *objects.claims, *objects.schedulings)
    if only not in drivers and not any(map(is_meant, names)):
        return None

    def concerns(state: ClaimState) -> bool:
        return state.driver == only or is_meant(state.claim)

    return Overview(
        tuple(n for n in whole.negotiations if is_meant(n.pod) or any(map(concerns, n.claims))),
        tuple(state for state in whole.claims if concerns(state) or state.claim in used),
    )


def _is_open(negotiation: PodNegotiation) -> bool:
    """Whether something is still to be agreed on. A pod that has a node lacks a claim then."""
    pod = negotiation.pod
    if not pod.spec.node_name:
        return bool(negotiation.parties) or (
            negotiation.scheduling is not None and negotiation.is_ours
        )
    uid = pod.metadata.uid
    staying = [party.claim for party in negotiation.parties if not is_leaving(party.claim)]
    return any(c.status.allocation is None or not c.is_reserved_for(uid) for c in staying)


def _leftover_negotiation(said: PodScheduling) -> Negotiation:
    """What was said about a pod that is gone."""
    spec = said.spec
    return Negotiation(
        said.metadata.key,
        said.metadata.creation_timestamp or "",
        len(spec.potential_nodes or ()),
        round=spec.round,
        attempt=spec.attempt,
        selected_node=spec.selected_node,
        awaits="the PodScheduling to be deleted: its pod does not exist",
    )


def _unused_claim_state(objects: Objects, party: Party) -> ClaimState:
    """A claim that no pod negotiates about."""
    claim, awaits = party.claim, ""
    if is_leaving(claim):
        awaits = _deallocation_wait(objects, party)
    elif claim.status.allocation is None:
        own = f"{party.driver} to allocate {party.key}"
        fault = terms_fault(claim, objects.classes)
        awaits = fault or ("a pod that uses it" if is_delayed(claim) else own)
    return _state(objects, party, "pending", awaits)


def _state(
    objects: Objects, party: Party, state: str, awaits: str, unsuitable: Iterable[str] = (),
    observed_round: int = 0,
) -> ClaimState:  # fmt: skip
    """How a claim stands; `state` and the rest are those of one that is not allocated."""
    claim, allocation = party.claim, party.claim.status.allocation
    reached = objects.available_nodes(claim) if allocation is not None else ()
    if allocation is not None:
        state = "allocated"
    if claim.metadata.deletion_timestamp is not None:
        state = "deleting"
    elif flag_of(claim) is not None:
        state = "flagged"
    namespace = claim.metadata.namespace
    return ClaimState(
        party.key,
        party.driver,
        state,
        awaits,
        allocation is not None,
        reached or (),
        reached is None,
        tuple(unsuitable),
        observed_round,
        tuple(f"{namespace}/{user.name}" for user in claim.status.reserved_for or ()),
        flag_of(claim) or "",
    )


def _deallocation_wait(objects: Objects, party: Party) -> str:
    """What a claim waits for whose allocation is to go."""
    claim, key, driver = party.claim, party.key, party.driver
    users = claim.status.reserved_for or ()
    holding = [u for u in users if _is_bound(objects, u.uid)]
    if holding:
        others = f" (and {len(holding) - 1} more)" if len(holding) > 1 else ""
        return f"{claim.metadata.namespace}/{holding[0].name}, which uses {key}, to end{others}"
    if users:
        user = users[0]
        who = SCHEDULER if user.uid in objects.uids else "the claim controller"
        return f"{who} to release {key}, reserved for {claim.metadata.namespace}/{user.name}"
    if claim.status.allocation is not None or finalizer_of(driver) in (
        claim.metadata.finalizers or ()
    ):
        return f"{driver} to deallocate {key}"
    if claim.metadata.deletion_timestamp is not None:
        return f"{key} to be deleted"
    return f"{driver} to remove the deallocation request from {key}"


def _is_bound(objects: Objects, uid: str) -> bool:
    pod = objects.uids.get(uid)
    return pod is not None and pod.spec.node_name != ""


class _Case:
    """One pod."""

    def __init__(self, objects: Objects, negotiation: PodNegotiation) -> None:
        self._objects = objects
        self._negotiation = negotiation
        self._said = negotiation.scheduling if negotiation.is_ours else None
        spec = self._said.spec if self._said is not None else None
        self._asked = (spec.potential_nodes if spec is not None else None) or ()
        self._selected = spec.selected_node if spec is not None else ""
        self._refused = negotiation.refusals_by_node()
        self._left = [
            name for name in self._asked if name not in self._refused and name in objects.nodes
        ]
        self._silent = {party.key for party in negotiation.silent_parties()}

    def report(self) -> Negotiation:
        """All there is to say."""
        said, negotiation = self._said, self._negotiation
        parties = {party.entry: party for party in negotiation.parties}
        claims = []
        for ref in claim_refs(negotiation.pod):
            if ref.entry_name in parties:
                claims.append(self._claim(parties[ref.entry_name]))
            elif ref.name is None:
                awaits = f"the claim of entry {ref.entry_name} to be created"
                claims.append(ClaimState("", "", "missing", awaits))
            elif ref.name and (key := self._key(ref.name)) not in self._objects.claims:
                claims.append(ClaimState(key, "", "missing", f"{key} to be created"))
        return Negotiation(
            negotiation.pod.key,
            (said.metadata.creation_timestamp or "") if said is not None else "",
            len(self._asked),
            len(self._left),
            said.spec.round if said is not None else 0,
            said.spec.attempt if said is not None else 0,
            self._selected,
            claims=tuple(claims),
            hints=tuple(dict.fromkeys(self._hints()))[:HINTS_MAX],
        )

    def _key(self, name: str) -> str:
        return f"{self._negotiation.pod.metadata.namespace}/{name}"

    def _claim(self, party: Party) -> ClaimState:
        answer = self._negotiation.answer(party)
        if self._said is None or not (self._said.spec.round or self._selected):
            state = "pending"
        else:
            state = "silent" if party.key in self._silent else "answered"
        unsuitable = (answer.unsuitable_nodes if answer is not None else None) or ()
        observed = answer.observed_round if answer is not None else 0
        is_told = is_pending(party.claim)
        return _state(
            self._objects,
            party,
            state,
            self._awaits(party),
            unsuitable if is_told else (),
            observed if is_told else 0,
        )

    # What a claim waits for

    def _awaits(self, party: Party) -> str:
        negotiation, pod, claim = self._negotiation, self._negotiation.pod, party.claim
        seen = negotiation.scheduling
        if pod.metadata.deletion_timestamp is not None:
            return f"{pod.key}, which is being deleted, to end"
        if is_leaving(claim):
            return _deallocation_wait(self._objects, party)
        if seen is not None and not negotiation.is_ours:
            return f"PodScheduling {seen.metadata.key} of another pod to be deleted"
        fault = terms_fault(claim, self._objects.classes) if not party.is_allocated else ""
        if fault:
            return f"the claim to be replaced: {fault}"
        if pod.spec.node_name:
            return self._preset_wait(party)
        if not party.is_allocated and not is_delayed(claim):
            return f"{party.driver} to allocate {party.key}"
        if pod.spec.scheduling_gates and seen is None:
            return f"the scheduling gates of {pod.key} to be removed"
        if party.is_allocated:
            return self._allocated_wait(party)
        return self._pending_wait(party)

    def _preset_wait(self, party: Party) -> str:
        """Of a pod that has its node already."""
        pod, key = self._negotiation.pod, party.key
        node_name = pod.spec.node_name
        if party.is_allocated and not self._objects.is_available_on(party.claim, node_name):
            return f"{pod.key} to be deleted: {key} cannot be used on {node_name}"
        if party.is_allocated:
            is_ours = party.claim.is_reserved_for(pod.metadata.uid)
            return "" if is_ours else f"{key} to be reserved for {pod.key}"
        if not is_delayed(party.claim) or self._selected == node_name:
            return f"{party.driver} to allocate {key} on {node_name}"
        return f"a controller to request {key} on {node_name} from {party.driver}"

    def _pending_wait(self, party: Party) -> str:
        """Of a claim that its driver is to find a node for."""
        negotiation, key, driver = self._negotiation, party.key, party.driver
        leaving = next((p for p in negotiation.parties if is_leaving(p.claim)), None)
        if leaving is not None:
            return f"{SCHEDULER} to continue once {leaving.key} is deallocated"
        if negotiation.missing:
            return f"{SCHEDULER} to continue once all claims exist"
        if self._said is None:
            return f"{SCHEDULER} to send candidate nodes to {driver}"
        if self._selected:
            if self._is_void(self._selected):
                return f"{SCHEDULER} to withdraw the selected node {self._selected}"
            return f"{driver} to allocate {key} on {self._selected}"
        round = self._said.spec.round
        if key in self._silent and len(negotiation.pending) > 1:
            return f"{driver} to answer about round {round}"
        if not self._left:
            refusing = dict.fromkeys(p.driver for p in self._refused.values()) or {driver: None}
            who = f"{driver} does not refuse" if [*refusing] == [driver] else "no driver refuses"
            return f"a node that {who}"
        others = [p for p in negotiation.pending if p.key in self._silent]
        if others and len(negotiation.pending) > 1:
            return f"{others[0].driver} to answer about round {round}"
        first = self._preceding_pod()
        if first:
            return f"{first}, which is tried first"
        told = negotiation.pod.condition("PodScheduled")
        if told is not None and (told.message or "").startswith(REFUSED_ON_ALL):
            return f"{SCHEDULER} to select a node again: drivers refused all that were selected"
        return f"{SCHEDULER} to select a node"

    def _is_void(self, name: str) -> bool:
        """Whether nobody can be waited for on the selected node any more."""
        objects, negotiation = self._objects, self._negotiation
        allocated = [party.claim for party in negotiation.parties if party.is_allocated]
        elsewhere = any(not objects.is_available_on(claim, name) for claim in allocated)
        return name in self._refused or name not in objects.nodes or elsewhere

    def _preceding_pod(self) -> str:
        """Of pods that failed before and share a driver, one at a time is selected for (S5)."""
        said = self._said
        if said is None or not said.spec.attempt:
            return ""
        drivers = {*self._negotiation.drivers}
        for other in self._objects.negotiations_of_pods():
            its = other.scheduling
            if (
                other is self._negotiation
                or its is None
                or not other.is_ours
                or other.pod.spec.node_name
            ):
                continue
            shares = not drivers.isdisjoint(other.drivers)
            if shares and its.spec.attempt and its.spec.selected_node:
                return other.pod.key
        return ""

    def _allocated_wait(self, party: Party) -> str:
        """Of a claim that has its devices."""
        negotiation, pod, key = self._negotiation, self._negotiation.pod, party.key
        reached = self._objects.available_nodes(party.claim)
        if reached is not None and not reached:
            return f"a node on which {key} can be used"
        if (
            negotiation.pending
            or negotiation.missing
            or any(is_leaving(p.claim) for p in negotiation.parties)
        ):
            return ""  # it is for the others to go on
        sets = [
            set(r)
            for p in negotiation.parties
            if (r := self._objects.available_nodes(p.claim)) is not None
        ]
        if any(not p.is_allocated for p in negotiation.parties):
            return ""
        if sets and not set.intersection(*sets):
            keys = ", ".join(p.key for p in negotiation.parties)
            return f"{SCHEDULER} to request deallocation of one claim: no node can use {keys}"
        if party.claim.is_reserved_for(pod.metadata.uid):
            return f"{SCHEDULER} to bind {pod.key}"
        users = len(party.claim.status.reserved_for or ())
        if users >= RESERVED_FOR_MAX:
            return f"one of the {users} pods that use {key} to end"
        return f"{SCHEDULER} to reserve {key} for {pod.key}"

    # What may help

    def _hints(self) -> Iterable[str]:
        negotiation, said, objects = self._negotiation, self._said, self._objects
        if negotiation.pod.metadata.deletion_timestamp is not None:
            return
        for party in negotiation.parties:
            users = party.claim.status.reserved_for or () if is_leaving(party.claim) else ()
            for user in users:
                if _is_bound(objects, user.uid):
                    who = f"{party.claim.metadata.namespace}/{user.name}"
                    yield (
                        f"delete {who} or wait for its end: it uses {party.key}, which is to be "
                        "deallocated"
                    )
            if self._asked and not self._left and party.is_allocated:
                yield from self._sharing_hints(party)
        if said is None:
            return
        for party in negotiation.pending if self._is_driver_awaited() and self._is_late() else ():
            if party.key in self._silent:
                why = "see the Events of the claim"
                yield f"check that {party.driver} runs: no answer about {party.key} ({why})"
        yield from self._remedies()

    def _sharing_hints(self, party: Party) -> Iterable[str]:
        """A claim of the pod's own that cannot be given back, as others use it."""
        for user in party.claim.status.reserved_for or () if is_delayed(party.claim) else ():
            if (
                _is_bound(self._objects, user.uid)
                and user.uid != self._negotiation.pod.metadata.uid
            ):
                who = f"{party.claim.metadata.namespace}/{user.name}"
                yield f"delete {who}: then {party.key} can be allocated on another node"

    def _is_driver_awaited(self) -> bool:
        """Whether it is for a driver to answer or to allocate."""
        negotiation = self._negotiation
        if negotiation.missing or any(is_leaving(party.claim) for party in negotiation.parties):
            return False
        if self._selected:
            return not self._is_void(self._selected)
        return bool(self._left) and len(negotiation.pending) > 1

    def _is_late(self) -> bool:
        """Whether drivers were given time; also where nobody knows."""
        said, now_ns = self._said, self._objects.now_ns
        began_ns = time_ns(said.metadata.creation_timestamp) if said is not None else None
        return now_ns is None or began_ns is None or now_ns - began_ns >= PATIENCE_NS

    def _remedies(self) -> Iterable[str]:
        """What would give devices back, of drivers that refuse nodes: by what holds them."""
        objects, own = self._objects, {party.key for party in self._negotiation.parties}
        refused: dict[str, tuple[Party, list[str]]] = {}
        for name in self._asked:
            if name in self._refused:
                party = self._refused[name]
                refused.setdefault(party.key, (party, []))[1].append(name)
        for key, claim in sorted(objects.claims.items()):
            if key in own or claim.status.allocation is None:
                continue
            for refusing, names in refused.values():
                if driver_of(claim, objects.classes) != refusing.driver:
                    continue
                reached = [name for name in names if objects.is_available_on(claim, name)]
                what = _remedy(claim) if reached else ""
                if what:
                    more = f" (or {len(reached) - 1} more)" if len(reached) > 1 else ""
                    yield (
                        f"{what}: then {refusing.driver} may allocate {refusing.key} on "
                        f"{reached[0]}{more}"
                    )


def _remedy(claim: ResourceClaim) -> str:
    """What would give the claim's devices back, "" where that is under way."""
    key, users = claim.metadata.key, claim.status.reserved_for or ()
    if is_leaving(claim):
        names = _names(claim)
        return f"wait for the end of {names}, which uses {key}, or delete it" if users else ""
    if not users:
        return f"delete {key}, which no pod uses"
    made = len(users) == 1 and claim.metadata.controller_uid == users[0].uid
    return f"delete {_names(claim)}" if made else f"delete {_names(claim)} and {key}"


def _names(claim: ResourceClaim) -> str:
    users = [f"{claim.metadata.namespace}/{user.name}" for user in claim.status.reserved_for or ()]
    more = f" and {len(users) - USERS_MAX} more pods" if len(users) > USERS_MAX else ""
    return ", ".join(users[:USERS_MAX]) + more
