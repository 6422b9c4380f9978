"""Claims are allocated and reserved before anybody runs on them, and let go after."""

from stower.framework.events import WatchType
from stower.model.kinds import Pod, ResourceClaim
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.server import Change
from stower.state.devices import claim_refs


class Reservations(Checker):
    """A claim that is reserved is allocated; a pod gets its node when all its claims are allocated,
    reserved for it, and to be used there; at the end, nobody who is gone holds devices."""

    law = "reservations"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()

    def changed(self, change: Change) -> None:
        """Look at each claim that changes, and at each pod that gets a node."""
        _, kind, obj = change
        if isinstance(obj, ResourceClaim) and kind is not WatchType.DELETED:
            if obj.status.reserved_for and obj.status.allocation is None:
                raise self.broken(f"{obj.metadata.key} is reserved and not allocated")
        pod = self._binds.seen(change)
        if pod is None:
            return
        names = [ref.name for ref in claim_refs(pod)]
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            names.append(extended.resource_claim_name)
        for name in names:
            key = f"{pod.metadata.namespace}/{name}"
            claim = self.court.server.get(ResourceClaim, key)
            if claim is None or not claim.is_reserved_for(pod.metadata.uid):
                raise self.broken(f"{pod.key} is bound, and {key} is not reserved for it")
            self._usable(pod, claim)

    def _usable(self, pod: Pod, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        for term in (selector.node_selector_terms or ()) if selector is not None else ():
            for field in term.match_fields or ():
                if pod.spec.node_name not in (field.values or ()):
                    where = f"{claim.metadata.key} is allocated for {field.values}"
                    raise self.broken(f"{pod.key} is bound to {pod.spec.node_name}, and {where}")

    def finished(self) -> None:
        """Nobody who is gone has devices."""
        server = self.court.server
        for claim in server.all(ResourceClaim).values():
            if claim.status.allocation is None:
                continue
            users = [
                server.get(Pod, f"{claim.metadata.namespace}/{consumer.name}")
                for consumer in claim.status.reserved_for or ()
            ]
            if not any(pod is not None and not pod.is_terminal for pod in users):
                raise self.broken(f"{claim.metadata.key} is allocated, and nobody uses it")
