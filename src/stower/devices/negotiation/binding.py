"""Reserves a pod's allocated claims before the pod is bound, and detects changes until then: rules
S6 and S7.

The pod's resourceVersion is read first; then each claim is patched, or checked by a patch without
effect, on its known version; the binding carries the pod's version. Every party that takes a claim
from a pod modifies the pod before. So a binding that succeeds finds all claims reserved for the
pod.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.devices.negotiation.claims import Party, PodNegotiation, is_leaving
from stower.framework.pod_version import NEWS_NS, PodVersion
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import PatchObject, Write, no_op_patch, patch_of
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX, ConsumerReference
from stower.state.cluster import ClusterState

CONFLICTS_MAX: Final = 20
RENEWALS_MAX: Final = 5
TURNS_MAX: Final = 10_000  # from here on, those that are over are forgotten


def full_reason(party: Party) -> str:
    """Why nobody else can have the claim."""
    return (
        f"resource claim {party.key} of {party.driver} is in use by {RESERVED_FOR_MAX} pods, "
        "the maximum"
    )


def reservation_patch(claim: ResourceClaim, pod: Pod) -> PatchObject:
    """The claim, reserved for the pod as well (S6)."""
    meta = pod.metadata
    consumer = ConsumerReference("", "pods", meta.name, meta.uid)
    users = [*(claim.status.reserved_for or ()), consumer]
    return patch_of(claim, {"status": {"reservedFor": msgspec.to_builtins(users)}}, "status")


def unusable_reason(party: Party, claim: ResourceClaim | None, is_available: bool) -> str:
    """Why the pod cannot be bound with the claim as it is by now, "" where it can."""
    if claim is None or claim.metadata.uid != party.claim.metadata.uid:
        return f'resourceclaim "{party.claim.metadata.name}" not found'
    if is_leaving(claim):
        return f"claim {party.key} is being deallocated"
    if claim.status.allocation is None:
        return f"claim {party.key} got deallocated in the meantime"
    return "" if is_available else f"claim {party.key} got allocated elsewhere in the meantime"


class Turns:
    """Who of our own pods reserves a claim next. Two that did so at once would rely on the same
    version of it: of many that share a claim all but one would fail, and try again."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[str, str, int]] = {}  # by key: version, pod's uid, until when

    def take(self, key: str, version: str, uid: str, now_ns: int) -> int:
        """0: it is the pod's turn to write on that version; else when it may be, if the claim does
        not change before."""
        taken = self._taken.get(key)
        if taken is not None and taken[:2] != (version, uid):
            if taken[0] == version and now_ns < taken[2]:
                return taken[2]
        if len(self._taken) >= TURNS_MAX:
            self._taken = {k: one for k, one in self._taken.items() if now_ns < one[2]}
        self._taken[key] = (version, uid, now_ns + NEWS_NS)
        return 0


class NegotiatedBinding:
    """The negotiated claims of one pod; see framework.reservation.Reservation."""

    timeout_message = "timed out reserving the negotiated claims"

    def __init__(
        self,
        negotiation: PodNegotiation,
        is_available: Callable[[ResourceClaim], bool],
        timeout_ns: int,
        turns: Turns,
        assume: Callable[[ClusterState], None] = lambda state: None,
    ) -> None:
        """`is_available`: whether a claim as it is by now can be used on the chosen node; `assume`:
        counts the devices of the claims in a trial."""
        self.timeout_ns = timeout_ns
        self.awaited_objects: tuple[tuple[type, str, str], ...] = tuple(
            (ResourceClaim, p.claim.metadata.namespace, p.claim.metadata.name)
            for p in negotiation.parties
        )
        self._version = PodVersion(negotiation.pod.metadata.uid)
        self._negotiation = negotiation
        self._is_available = is_available
        self._turns = turns
        self._assume = assume
        self._asked: dict[int, str] = {}
        self._sure: dict[str, None] = {}  # claims that were seen to be ours, after the pod was read
        self._used: dict[str, tuple[str, int]] = {}  # by key: what was relied on, until when
        self._behind: dict[str, int] = {}  # by key: until when it is another pod's turn
        self._conflicts = 0
        self._renewals = 0

    @property
    def retry_at_ns(self) -> int | None:
        """When to look for what did not come."""
        dues = [*(ns for _, ns in self._used.values()), *self._behind.values()]
        news_ns = self._version.awaited_until_ns
        if news_ns is not None and not self._sure and not self._asked:
            dues.append(news_ns)
        return min(dues, default=None)

    @property
    def pod_resource_version(self) -> str:
        """The version that was known before the claims were looked at."""
        return self._version.value

    def assume(self, state: ClusterState) -> None:
        """Counts the devices for the pod's tree. Nothing is taken that the API does not show."""
        self._assume(state)

    def restart(self, state: ClusterState) -> bool:
        """The pod is not as it was: read it again, and its claims after it."""
        self._renewals += 1
        self._version.reject(state.now_ns)
        self._sure.clear()
        return self._renewals <= RENEWALS_MAX

    def _read_pod(self, state: ClusterState) -> bool:
        """Whether the pod's version is known on which the binding will rely."""
        version = self._version.newest(state)
        if version is None:
            return False
        if not self._sure and not self._asked:
            self._version.value = version
        return True

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Reservations, and for claims that are reserved, whether they still are."""
        found: list[Write] = []
        if not self._read_pod(state):
            return found
        uid, asked = self._negotiation.pod.metadata.uid, {*self._asked.values()}
        for party in self._negotiation.parties:
            key = party.key
            claim = state.devices.api_claim(key)
            if claim is None or key in asked or key in self._sure or self._fault(state, party):
                continue
            version, due_ns = self._used.get(key, ("", 0))
            if version == claim.metadata.resource_version and state.now_ns < due_ns:
                continue
            self._used.pop(key, None)
            self._behind.pop(key, None)
            version = claim.metadata.resource_version
            write = no_op_patch(claim, "status")
            if not claim.is_reserved_for(uid):
                due_ns = self._turns.take(key, version, uid, state.now_ns)
                if due_ns:
                    self._behind[key] = due_ns
                    continue
                write = reservation_patch(claim, self._negotiation.pod)
            id = next_id()
            self._asked[id] = key
            self._used[key] = (version, state.now_ns + NEWS_NS)
            found.append(msgspec.structs.replace(write, id=id))
        return found

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """What was refused because something newer is there is tried on that."""
        key = self._asked.pop(id)
        if code == 0:
            self._sure[key] = None
            self._used.pop(key, None)
            return True
        self._conflicts += 1
        return code in (CONFLICT, UNKNOWN) and self._conflicts < CONFLICTS_MAX

    def _fault(self, state: ClusterState, party: Party) -> str:
        claim = state.devices.api_claim(party.key)
        fault = unusable_reason(party, claim, claim is not None and self._is_available(claim))
        if claim is None or fault or claim.is_reserved_for(self._negotiation.pod.metadata.uid):
            return fault
        return (
            full_reason(party) if len(claim.status.reserved_for or ()) >= RESERVED_FOR_MAX else ""
        )

    def failure_reason(self, state: ClusterState) -> str:
        """Why the pod cannot have its claims after all."""
        faults = (self._fault(state, party) for party in self._negotiation.parties)
        return next((fault for fault in faults if fault), "")

    def is_done(self, state: ClusterState) -> bool:
        """All are reserved for the pod, and were so after its version was read."""
        return all(party.key in self._sure for party in self._negotiation.parties)

    def waiting_event(self) -> tuple[str, str]:
        """Nothing to tell."""
        return "", ""

    def forget(self, state: ClusterState) -> None:
        """Nothing was taken."""

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Reservations stay for the next attempt: to take one back, the pod is touched first."""
        return []
