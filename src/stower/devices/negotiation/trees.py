"""Knowledge about the negotiations of a pod group tree, whose pods get all their devices or none.

A driver answers about each pod alone, so that its answers do not show that a node has fewer devices
than the pods of the tree need together. That shows when pods of the tree have devices of the node
and the driver refuses the node to another one. The tree then gives back all its devices, and plans
again with the learned number of devices. The number expires, as drivers do not publish devices:
after 30 s, doubling with each attempt to 10 minutes, or when a running pod gives back such devices.

The number of attempts is in the PodSchedulings (spec.attempt). The rest is lost in a restart: the
tree then waits for as long before it asks for devices.

Must not know the engine. Source: seed 000 (all claims or none).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from stower.devices.negotiation.claims import Party, PodNegotiation, is_delayed, is_leaving
from stower.model.kinds import PodScheduling, ResourceClaim
from stower.model.times import SECOND_NS

DELAY_NS: Final = 30 * SECOND_NS
DELAY_NS_MAX: Final = 600 * SECOND_NS
# A driver calls a node unsuitable for 30 s after an allocation failed there, for whatever reason.
# The first attempts wait for the end of that, and no longer: others may need the devices.
PATIENCE_NS: Final = 35 * SECOND_NS
PATIENT_ATTEMPTS: Final = 2
JITTER_PARTS: Final = 1_000
# So many attempts in a row follow at once, each with a smaller capacity than the one before.
RETRIES_MAX: Final = 3
# No attempt after so many is followed by another at once: what such a tree needs may not exist, and
# each attempt keeps devices from others for a while.
RETRYING_ATTEMPTS: Final = 8
TREES_MAX: Final = 10_000  # with more, the oldest are forgotten
# In place of a node: devices of an allocation that all nodes can use.
ANY_NODE: Final = ""
# The same for devices that several nodes can use.
SOME_NODES: Final = "*"

# A driver and a node, or ANY_NODE.
Pool = tuple[str, str]
# A claim by key and uid.
ClaimId = tuple[str, str]


class TreeTurn(NamedTuple):
    """What one step of a pod's negotiation may do for its tree.

    node: the pod's node in the placement of the tree, "" where the tree has no placement or gives
    back its devices; may_select: whether nodes may be selected, as the tree has begun or all pods
    of the placement are ready; is_begun: whether pods of the tree have devices or selected nodes;
    not_before_ns: when the tree may begin; retry_ns: when a tree without a placement is tried
    again; attempt: the highest of its pods; keeps: whether the pods keep what they have although
    there is no placement.
    """

    node: str
    may_select: bool
    is_begun: bool
    not_before_ns: int
    retry_ns: int
    attempt: int
    keeps: bool = False


class TreeSurroundings(Protocol):
    """The cluster state, as it is read for one tree."""

    now_ns: int

    def claims_in_use(self, drivers: Collection[str]) -> Iterable[tuple[ClaimId, Pool]]:
        """Yields the claims of these drivers that pods with a node use, and whose devices these
        are: of the driver on that node, on SOME_NODES or on ANY_NODE."""

    def is_in_use(self, claim: ClaimId) -> bool:
        """Returns whether the claim is still allocated."""


class TreeNegotiation:
    """What is known about the negotiations of one tree.

    capacity: by driver and node, the devices that the pods of the tree can have at most; held: the
    devices that they have; is_begun: whether pods of the tree have devices or selected nodes;
    is_failed: whether they are giving them back; patient_until_ns: until when they keep them in an
    attempt without a placement; is_stalled: whether a driver does not answer; not_before_ns: when
    the tree may begin again; expires_ns: when the capacity is forgotten.
    """

    def __init__(self) -> None:
        self.capacity: dict[Pool, int] = {}
        self.held: dict[Pool, int] = {}
        self.assumed: dict[Pool, int] = {}  # in a trial
        self.attempt = 0
        self.is_begun = False
        self.is_failed = False
        self.is_stalled = False
        self.patient_until_ns = 0
        self.not_before_ns = 0
        self.expires_ns = 0
        self._is_new = True
        self._has_learned = False
        self._retries = 0
        # Nodes that were refused to each pod when the tree began, by the pod's uid.
        self._refused: dict[str, frozenset[str]] = {}
        self._in_use: dict[ClaimId, Pool] = {}  # claims of others when the last attempt failed

    def update(
        self, key: str, negotiations: Sequence[PodNegotiation], around: TreeSurroundings
    ) -> None:
        """Takes over what the objects show at the beginning of an attempt. Costs O(pods)."""
        said = [n.scheduling for n in negotiations if n.scheduling is not None and n.is_ours]
        self.attempt = max((each.spec.attempt for each in said), default=0)
        self.held = _count_held(negotiations)
        self.is_begun = any(has_begun(negotiation) for negotiation in negotiations)
        self.is_stalled = False
        delay_ns = delay_for(key, self.attempt)
        if self.is_begun and not self.is_failed:
            self._learn(negotiations)
        elif not self.is_begun and self.is_failed:
            self._end_attempt(negotiations, delay_ns, around)
        elif not self.is_begun and self._is_new and self.attempt:
            self._wait(negotiations, delay_ns, around)
        if not self.is_begun and self.expires_ns:
            if around.now_ns >= self.expires_ns or self._has_others_left(around):
                self._forget()
        self._is_new = False

    def begin(self, negotiation: PodNegotiation) -> None:
        """Records what is known as a node is selected for the pod."""
        uid = negotiation.pod.metadata.uid
        self._refused.setdefault(uid, frozenset(negotiation.refusals_by_node()))

    def fail(self, now_ns: int) -> None:
        """Records that there is no placement. The attempt has failed, and the pods give back their
        devices, unless the reason may pass in time."""
        if not self.patient_until_ns:
            self.patient_until_ns = now_ns + PATIENCE_NS
        is_patient = self.attempt < PATIENT_ATTEMPTS and not self.is_stalled
        self.is_failed |= not is_patient or now_ns >= self.patient_until_ns

    def free(self, pool: Pool) -> int | None:
        """Returns how many devices the tree can have in addition, None where that is unknown."""
        capacity = self.capacity.get(pool)
        if capacity is None:
            return None
        return capacity - self.held.get(pool, 0) - self.assumed.get(pool, 0)

    def assume(self, pool: Pool, count: int) -> None:
        """Counts devices for a pod that a trial has placed; a negative count withdraws them."""
        self.assumed[pool] = self.assumed.get(pool, 0) + count

    def _learn(self, negotiations: Sequence[PodNegotiation]) -> None:
        """Learns from nodes that were refused since the tree began and on which it has devices.
        Where no pod is refused any more, a failure has passed, and there are more devices."""
        refused: dict[Pool, int] = {}
        accepted: dict[Pool, int] = {}
        for negotiation in negotiations:
            before = self._refused.get(negotiation.pod.metadata.uid)
            if before is None:
                continue
            for driver, count in pending_devices(negotiation).items():
                nodes = refused_by(negotiation, driver)
                for node in (*(nodes - before), ANY_NODE) if nodes - before else ():
                    pool = (driver, node)
                    refused[pool] = min(refused.get(pool, count), count)
                for of, node in self.capacity:
                    if of == driver and node not in nodes and (node or not nodes - before):
                        accepted[of, node] = max(accepted.get((of, node), count), count)
        for pool in sorted(refused):
            held = self.held.get(pool, 0)
            capacity = held + refused[pool] - 1
            if held and capacity < self.capacity.get(pool, capacity + 1):
                self.capacity[pool] = capacity
                self._has_learned = True
        for pool in sorted(accepted.keys() - refused.keys()):
            self.capacity[pool] = max(self.capacity[pool], self.held.get(pool, 0) + accepted[pool])

    def _end_attempt(
        self, negotiations: Sequence[PodNegotiation], delay_ns: int, around: TreeSurroundings
    ) -> None:
        """Nothing is held any more: plans again at once if something was learned, else later."""
        is_repeated = (
            self._has_learned and self._retries < RETRIES_MAX and self.attempt < RETRYING_ATTEMPTS
        )
        self._wait(negotiations, delay_ns, around)
        self._retries += 1
        if is_repeated:
            self.not_before_ns = around.now_ns
        self.is_failed = self._has_learned = False
        self.patient_until_ns = 0
        self._refused = {}

    def _wait(
        self, negotiations: Sequence[PodNegotiation], delay_ns: int, around: TreeSurroundings
    ) -> None:
        self.not_before_ns = self.expires_ns = around.now_ns + delay_ns
        drivers = dict.fromkeys(driver for n in negotiations for driver in n.drivers)
        self._in_use = dict(around.claims_in_use(drivers))

    def _has_others_left(self, around: TreeSurroundings) -> bool:
        """Returns whether others have given back devices that may have been lacking: where the
        tree has learned of which there are too few, some of these."""
        drivers = {driver for driver, _ in self.capacity}
        return any(
            not drivers or pool in self.capacity or (node == SOME_NODES and driver in drivers)
            for claim, pool in self._in_use.items()
            if not around.is_in_use(claim)
            for driver, node in (pool,)
        )

    def _forget(self) -> None:
        self.capacity = {}
        self._in_use = {}
        self.not_before_ns = self.expires_ns = self._retries = 0


class TreeNegotiations:
    """What is known about the negotiations of all trees, by the uid of the root: a group that is
    created again begins anew."""

    def __init__(self) -> None:
        self._known: dict[str, TreeNegotiation] = {}

    def get(self, uid: str) -> TreeNegotiation | None:
        """Returns what is known about a tree, None for nothing."""
        return self._known.get(uid)

    def add(self, uid: str) -> TreeNegotiation:
        """Returns what is known about a tree, new if necessary."""
        known = self._known.get(uid)
        if known is None:
            if len(self._known) >= TREES_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[uid] = TreeNegotiation()
        return known


def delay_for(key: str, attempt: int) -> int:
    """Returns how long a tree waits after an attempt, in nanoseconds: 30 s, doubling to 10 minutes,
    up to a fourth longer, not the same for all trees."""
    return with_jitter(min(DELAY_NS << min(max(attempt - 1, 0), 40), DELAY_NS_MAX), key)


def with_jitter(delay_ns: int, key: str) -> int:
    """Returns the delay, up to a fourth longer, not the same for all keys."""
    part = sum(key.encode()) * 31 % JITTER_PARTS
    return delay_ns + delay_ns * part // (4 * JITTER_PARTS)


def device_count(party: Party) -> int:
    """Returns how many devices a claim requests, at least 1."""
    asked = [request.exactly for request in party.claim.spec.devices.requests or ()]
    return max(1, sum(exactly.count or 1 for exactly in asked if exactly is not None))


def pending_devices(negotiation: PodNegotiation) -> dict[str, int]:
    """Returns the number of devices of the pod's pending claims by driver."""
    found: dict[str, int] = {}
    for party in negotiation.pending:
        found[party.driver] = found.get(party.driver, 0) + device_count(party)
    return found


def refused_by(negotiation: PodNegotiation, driver: str) -> frozenset[str]:
    """Returns the nodes that the driver calls unsuitable for a pending claim of the pod."""
    found: set[str] = set()
    for party in negotiation.pending:
        answer = negotiation.answer(party) if party.driver == driver else None
        found.update((answer.unsuitable_nodes if answer is not None else None) or ())
    return frozenset(found)


def _own_parties(negotiation: PodNegotiation) -> list[Party]:
    """Returns allocated claims that are reserved for the pod alone, or that it is giving back."""
    uid, found = negotiation.pod.metadata.uid, []
    for party in negotiation.parties:
        users = {user.uid for user in party.claim.status.reserved_for or ()}
        if party.is_allocated and is_delayed(party.claim) and users <= {uid}:
            if users or is_leaving(party.claim):
                found.append(party)
    return found


def has_begun(negotiation: PodNegotiation) -> bool:
    """Returns whether the pod has a selected node, or devices that it may give back."""
    said = negotiation.scheduling
    if said is not None and negotiation.is_ours and said.spec.selected_node:
        return True
    return bool(_own_parties(negotiation))


def _count_held(negotiations: Sequence[PodNegotiation]) -> dict[Pool, int]:
    """Returns the allocated devices by driver and selected node, and by driver where they can be
    used on all nodes. Devices that are being given back do not count."""
    held: dict[Pool, int] = {}
    for negotiation in negotiations:
        said = negotiation.scheduling
        node = said.spec.selected_node if said is not None and negotiation.is_ours else ""
        for party in _own_parties(negotiation):
            allocation = party.claim.status.allocation
            if allocation is None or is_leaving(party.claim):
                continue
            pool = (party.driver, node if allocation.node_selector is not None else ANY_NODE)
            if pool[1] or allocation.node_selector is None:
                held[pool] = held.get(pool, 0) + device_count(party)
    return held


def is_answer(old: object, new: object) -> bool:
    """Returns whether a change may be a driver's answer: of a PodScheduling, or of a claim that is
    being allocated."""
    if isinstance(new, PodScheduling):
        return isinstance(old, PodScheduling)
    if isinstance(new, ResourceClaim) and isinstance(old, ResourceClaim):
        return old.status.allocation is None and not is_leaving(new)
    return False


def awaits_more_answers(negotiations: Sequence[PodNegotiation], answer: object) -> bool:
    """Returns whether the answer is about one of these pods of a tree, and drivers have still to
    answer about some of them. False where a selected node is refused, or a claim is missing: the
    tree has to go on at once."""
    is_about, is_awaiting = False, False
    for negotiation in negotiations:
        said, pending = negotiation.scheduling, negotiation.pending
        if said is None or not negotiation.is_ours or negotiation.missing:
            return False
        selected = said.spec.selected_node
        if selected and selected in negotiation.refusals_by_node():
            return False
        is_awaiting |= bool(pending if selected else negotiation.silent_parties())
        is_about |= said is answer or any(party.claim is answer for party in negotiation.parties)
    return is_about and is_awaiting
