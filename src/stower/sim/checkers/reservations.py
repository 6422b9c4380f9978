"""Law `reservations`: claims are allocated and reserved before pods run, and released after."""

from typing import Final

from stower.devices.given_back import TYPES
from stower.devices.negotiation.claims import driver_of
from stower.framework.events import WatchType
from stower.model.kinds import Pod, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.server import Change
from stower.state.devices import used_claim_keys

# The longest that it takes until a claim is given back, in its few steps, and some.
GIVEN_BACK_NS: Final = 30 * SECOND_NS


class Reservations(Checker):
    """A claim that is reserved is allocated; a pod gets its node when all its claims are allocated,
    reserved for it, and to be used there; at the end, nobody who is gone holds devices, and no pod
    with a node says that its devices are being given back."""

    law = "reservations"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()
        self._ended_ns: dict[str, int] = {}  # by claim: when a user of it last ended

    def on_change(self, change: Change) -> None:
        """Look at each claim that changes, and at each pod that gets a node."""
        _, kind, obj = change
        if isinstance(obj, Pod) and (kind is WatchType.DELETED or obj.is_terminal):
            self._ended_ns.update(dict.fromkeys(used_claim_keys(obj), self.court.agenda.now_ns))
        if isinstance(obj, ResourceClaim) and kind is not WatchType.DELETED:
            if obj.status.reserved_for and obj.status.allocation is None:
                raise self.violation(f"claim {obj.metadata.key} is reserved but not allocated")
        pod = self._binds.find_bound_pod(change)
        if pod is None:
            return
        for key in used_claim_keys(pod):
            claim = self.court.server.get(ResourceClaim, key)
            if claim is None or not claim.is_reserved_for(pod.metadata.uid):
                raise self.violation(
                    f"pod {pod.key} is bound, but claim {key} is not reserved for it"
                )
            self._usable(pod, claim)

    def _usable(self, pod: Pod, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        for term in (selector.node_selector_terms or ()) if selector is not None else ():
            for field in term.match_fields or ():
                if pod.spec.node_name not in (field.values or ()):
                    where = f"claim {claim.metadata.key} is allocated for {field.values}"
                    raise self.violation(
                        f"pod {pod.key} is bound to {pod.spec.node_name}, but {where}"
                    )

    def check_end(self) -> None:
        """Nobody who is gone has devices. A pod that waits may have a claim that was allocated for
        an attempt of it that failed: the next one uses it."""
        server = self.court.server
        alive = [pod for pod in server.all(Pod).values() if not pod.is_terminal]
        used = {key for pod in alive for key in used_claim_keys(pod)}
        for pod in alive:
            if pod.spec.node_name and any(pod.condition(type) for type in TYPES):
                raise self.violation(
                    f"pod {pod.key} has a node, and a condition that its devices are given back"
                )
        waiting = {pod.metadata.uid for pod in alive if not pod.spec.node_name}
        for key, claim in server.all(ResourceClaim).items():
            if driver_of(claim, {}) and claim.metadata.controller is None:
                continue  # a user's own, which its driver keeps for whoever comes (S0.34)
            if any(user.uid in waiting for user in claim.status.reserved_for or ()):
                continue
            is_over = self.court.agenda.now_ns - self._ended_ns.get(key, 0) > GIVEN_BACK_NS
            if claim.status.allocation is not None and key not in used and is_over:
                raise self.violation(f"claim {key} is allocated, but no pod uses it")
