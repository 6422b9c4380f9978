"""The negotiation rules D1 to D8 of a resource driver, as pure functions: from the watched objects
and the ledger they derive the next actions for a pod or a claim. No state is kept.

D1: allocate and answer only for the pod that the PodScheduling belongs to, while it has no node (or
was given one by another component). D2: an answer keeps the nodes that were unsuitable before, if
they still are. D3: do not allocate on a node that the own answer lists as unsuitable. D4: write the
finalizer before allocating. D5: allocate all claims of the pod or none. D6: write allocation and
reservation together. D7: free devices of an outdated selection after the finalizer is removed. D8:
free devices, then clear the allocation, then remove annotation and finalizer.

Must not know calls in flight, retries or time.

Source: KEP-3063; seed 000. tests/property/test_negotiation_model.py shows for each rule the failure
that it prevents.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from stower.devices.negotiation.claims import (
    Party,
    PodNegotiation,
    driver_of,
    finalizer_of,
    flag_of,
    is_delayed,
    is_leaving,
    terms_fault,
)
from stower.driver.ledger import Entry
from stower.framework.writes import PatchObject, patch_of
from stower.model.kinds import Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.pod_scheduling import NODES_MAX, ClaimScheduling
from stower.model.kinds.resource_claim import (
    DEALLOCATION_REQUESTED,
    RESERVED_FOR_MAX,
    ConsumerReference,
)
from stower.state.devices import distinct_claim_refs

NOTHING: Final[frozenset[str]] = frozenset()


class Write(NamedTuple):
    """Patches an object, on condition that it still has the version that was seen."""

    patch: PatchObject


class Take(NamedTuple):
    """Allocates devices for all of these claims on a node, or for none, then writes the allocations
    to the claims in these versions. With `on`, only while this PodScheduling still selects the
    node."""

    claims: tuple[ResourceClaim, ...]
    node: str
    pod: Pod | None = None
    on: PodScheduling | None = None


class Free(NamedTuple):
    """Frees the devices of the entry."""

    entry: Entry


Action = Write | Take | Free
# Which of the nodes will not do for the pod's claims here; None: that is being found out.
Examine = Callable[[Pod, Sequence[ResourceClaim], Sequence[str]], frozenset[str] | None]


class ObjectReader(Protocol):
    """Read access to the watched API objects, by namespace/name, or by name for cluster-scoped
    objects."""

    @property
    def classes(self) -> Mapping[str, ResourceClass]:
        """All ResourceClasses by name."""

    def pod(self, key: str) -> Pod | None:
        """Returns the pod, or None."""

    def claim(self, key: str) -> ResourceClaim | None:
        """Returns the ResourceClaim, or None."""

    def scheduling(self, key: str) -> PodScheduling | None:
        """Returns the PodScheduling of the pod, or None."""

    def pods_of(self, claim_key: str) -> Sequence[str]:
        """Returns the keys of the pods that reference a claim."""


class Rules(NamedTuple):
    """The rules that are switched off in `without`, so that tests can show which failure each
    prevents."""

    without: frozenset[str] = frozenset()


def negotiation_of(seen: ObjectReader, driver: str, pod: Pod) -> PodNegotiation:
    """Returns the negotiation of the pod, restricted to the claims of this driver."""
    parties = []
    for ref in distinct_claim_refs(pod):
        claim = seen.claim(f"{pod.metadata.namespace}/{ref.name}")
        if claim is not None and driver_of(claim, seen.classes) == driver:
            parties.append(Party(ref.entry_name, driver, claim))
    return PodNegotiation(pod, tuple(parties), seen.scheduling(pod.key))


def is_asked_for(negotiation: PodNegotiation) -> bool:
    """Returns whether the PodScheduling belongs to this pod, and the pod either has no node yet, or
    was assigned by another component to a node on which its claims must be allocated (D1)."""
    pod, said = negotiation.pod, negotiation.scheduling
    if said is None or said.owner_uid != pod.metadata.uid or pod.is_terminal:
        return False
    if pod.spec.node_name:
        return not said.spec.round and said.spec.selected_node == pod.spec.node_name
    return pod.metadata.deletion_timestamp is None


# For a pod


def pod_actions(
    seen: ObjectReader,
    driver: str,
    pod_key: str,
    ledger: Mapping[str, Entry],
    examine: Examine,
    rules: Rules,
    failed: Collection[str] = NOTHING,
) -> list[Action]:
    """Returns the next actions for the pod's claims without an allocation. `failed`: nodes on which
    an allocation for the pod failed recently, so that it is unknown whether devices are allocated
    there."""
    pod = seen.pod(pod_key)
    negotiation = negotiation_of(seen, driver, pod) if pod is not None else None
    if negotiation is None or negotiation.scheduling is None:
        return []
    said, pending = negotiation.scheduling, negotiation.pending
    if not pending or ("D1" not in rules.without and not is_asked_for(negotiation)):
        return []
    node = said.spec.selected_node
    entries = [answer for party in pending if (answer := negotiation.answer(party)) is not None]
    is_listed = any(node in (answer.unsuitable_nodes or ()) for answer in entries)
    if node and (not is_listed or "D3" in rules.without):
        refused = examine(negotiation.pod, [p.claim for p in pending], [node])
        if refused is None:
            return []
        if node not in refused or (node not in failed and _is_taken(pending, ledger, node)):
            some = pending if "D5" not in rules.without else pending[:1]
            return _allocation(negotiation, some, ledger, node, rules)
    return _answer(negotiation, pending, examine)


def _is_taken(parties: Sequence[Party], ledger: Mapping[str, Entry], node: str) -> bool:
    """Returns whether the ledger has devices on the node for all of these claims."""
    found = [ledger.get(party.claim.metadata.uid) for party in parties]
    return all(entry is not None and entry.node == node for entry in found)


def _answer(
    negotiation: PodNegotiation, pending: Sequence[Party], examine: Examine
) -> list[Action]:
    """Returns a write with the unsuitable nodes among the candidates and among the nodes that were
    unsuitable before (D2); nothing if the PodScheduling already says so."""
    said = negotiation.scheduling
    assert said is not None
    answers = {party.entry: negotiation.answer(party) for party in pending}
    known = [answer for answer in answers.values() if answer is not None]
    before = [name for answer in known for name in answer.unsuitable_nodes or ()]
    selected = [said.spec.selected_node] if said.spec.selected_node else []
    nodes = list(dict.fromkeys([*selected, *(said.spec.potential_nodes or ()), *before]))
    refused = examine(negotiation.pod, [party.claim for party in pending], nodes)
    if refused is None:
        return []
    listed = tuple([name for name in nodes if name in refused][:NODES_MAX])
    wanted = {
        party.entry: ClaimScheduling(
            party.entry, party.claim.metadata.uid, listed or None, said.spec.round
        )
        for party in pending
    }
    if all(_is_same_answer(answers[entry], answer) for entry, answer in wanted.items()):
        return []
    others = [answer for answer in said.status.resource_claims or () if answer.name not in wanted]
    status = {"resourceClaims": msgspec.to_builtins([*others, *wanted.values()])}
    return [Write(patch_of(said, {"status": status}, "status"))]


def _is_same_answer(answer: ClaimScheduling | None, wanted: ClaimScheduling) -> bool:
    """Returns whether an answer has the same content, in any order of nodes."""
    return (
        answer is not None
        and answer.observed_round == wanted.observed_round
        and answer.claim_uid == wanted.claim_uid
        and {*(answer.unsuitable_nodes or ())} == {*(wanted.unsuitable_nodes or ())}
    )


def _allocation(
    negotiation: PodNegotiation,
    pending: Sequence[Party],
    ledger: Mapping[str, Entry],
    node: str,
    rules: Rules,
) -> list[Action]:
    """Returns writes of the missing finalizers (D4); if none is missing, the allocation of all
    claims (D5)."""
    claims = [party.claim for party in pending]
    if "D4" not in rules.without:
        bare = [claim for claim in claims if not _is_protected(claim, pending[0].driver)]
        if bare:
            return [Write(_protect(claim, pending[0].driver)) for claim in bare]
    for claim in claims:
        entry = ledger.get(claim.metadata.uid)
        if entry is not None and entry.node != node:
            return []  # of an earlier selection: `claim_actions` gives it back first
    return [Take(tuple(claims), node, negotiation.pod, negotiation.scheduling)]


def _is_protected(claim: ResourceClaim, driver: str) -> bool:
    return finalizer_of(driver) in (claim.metadata.finalizers or ())


def _protect(claim: ResourceClaim, driver: str) -> PatchObject:
    finalizers = [*(claim.metadata.finalizers or ()), finalizer_of(driver)]
    return patch_of(claim, {"metadata": {"finalizers": finalizers}})


def allocation_patch(claim: ResourceClaim, entry: Entry, pod: Pod | None) -> PatchObject:
    """Returns one write of the claim's allocation and its reservation for the pod (D6)."""
    status: dict[str, Any] = {"allocation": entry.allocation}
    users = claim.status.reserved_for or ()
    if pod is not None and len(users) < RESERVED_FOR_MAX:
        own = ConsumerReference("", "pods", pod.metadata.name, pod.metadata.uid)
        others = [user for user in users if user.uid != own.uid]
        status["reservedFor"] = msgspec.to_builtins([*others, own])
    return patch_of(claim, {"status": status}, "status")


# For a claim


def claim_actions(
    seen: ObjectReader, driver: str, claim_key: str, ledger: Mapping[str, Entry], rules: Rules
) -> list[Action]:
    """Returns the next actions for a claim that depend on no single pod: deallocation, frees of
    outdated entries, and immediate allocation."""
    claim = seen.claim(claim_key)
    entry = ledger.get(claim.metadata.uid) if claim is not None else None
    if claim is None or driver_of(claim, seen.classes) != driver:
        # Ours no more, without our finalizer: nothing that we may have sent can land. What has
        # landed is in use, whoever took the finalizer away.
        is_given = claim is not None and claim.status.allocation is not None
        return [Free(entry)] if entry is not None and not is_given else []
    if is_leaving(claim):
        return _deallocation(claim, driver, entry)
    if claim.status.allocation is not None:
        return []
    if not is_delayed(claim):
        return [] if terms_fault(claim, seen.classes) else _immediate_actions(claim, driver, rules)
    if entry is None or _is_wanted(seen, driver, claim, entry):
        return []
    # Taken for a selection that is no more (D7): once the finalizer is gone, no allocation that is
    # still on its way can land.
    if _is_protected(claim, driver) and "D7" not in rules.without:
        return [Write(_unprotect(claim, driver))]
    return [Free(entry)]


def _unprotect(
    claim: ResourceClaim, driver: str, also: Mapping[str, Any] | None = None
) -> PatchObject:
    finalizers = [f for f in claim.metadata.finalizers or () if f != finalizer_of(driver)]
    return patch_of(claim, {"metadata": {"finalizers": finalizers or None, **(also or {})}})


def _is_wanted(seen: ObjectReader, driver: str, claim: ResourceClaim, entry: Entry) -> bool:
    """Returns whether a pod's PodScheduling selects the node of the entry."""
    for pod_key in seen.pods_of(claim.metadata.key):
        pod = seen.pod(pod_key)
        negotiation = negotiation_of(seen, driver, pod) if pod is not None else None
        if negotiation is None or negotiation.scheduling is None or not is_asked_for(negotiation):
            continue
        if negotiation.scheduling.spec.selected_node == entry.node:
            return True
    return False


def _deallocation(claim: ResourceClaim, driver: str, entry: Entry | None) -> list[Action]:
    """Returns the next step of a deallocation: frees the devices, then clears the allocation, then
    removes annotation and finalizer (D8)."""
    if claim.status.reserved_for:
        return []
    if entry is not None:
        return [Free(entry)]
    if claim.status.allocation is not None and _is_protected(claim, driver):
        status = {"allocation": None, "devices": None}
        return [Write(patch_of(claim, {"status": status}, "status"))]
    flagged = {"annotations": {DEALLOCATION_REQUESTED: None}} if flag_of(claim) is not None else {}
    if claim.status.allocation is None and (flagged or _is_protected(claim, driver)):
        return [Write(_unprotect(claim, driver, flagged))]
    return []


def _immediate_actions(claim: ResourceClaim, driver: str, rules: Rules) -> list[Action]:
    """Returns the actions for a claim that is allocated without waiting for a pod."""
    if not _is_protected(claim, driver):
        return [Write(_protect(claim, driver))]
    return [Take((claim,), "")]


def is_allocated_by(
    claim: ResourceClaim, driver: str, classes: Mapping[str, ResourceClass]
) -> bool:
    """Returns whether the claim has an allocation made by this driver."""
    is_own = driver_of(claim, classes) == driver and _is_protected(claim, driver)
    return is_own and claim.status.allocation is not None


def adopted_entry(claim: ResourceClaim) -> Entry:
    """Returns the ledger entry for an allocated claim, derived from its status."""
    meta, allocation = claim.metadata, msgspec.to_builtins(claim.status.allocation)
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    fields = [one for term in terms for one in term.get("matchFields") or ()]
    node = fields[0]["values"][0] if len(fields) == 1 else ""
    return Entry(meta.uid, meta.namespace, meta.name, node, allocation)


def free_abandoned(seen: ObjectReader, ledger: Mapping[str, Entry]) -> list[Free]:
    """Returns the frees of all entries whose claim is deleted or was replaced by another claim of
    the same name (D7)."""
    found = []
    for entry in ledger.values():
        claim = seen.claim(f"{entry.namespace}/{entry.name}")
        if claim is None or claim.metadata.uid != entry.uid:
            found.append(Free(entry))
    return found
