"""The resource claim controller of a run with faults: creates claims for pods and releases them.

Does what controllers/resource_claims.py does, on typed objects and with delays. It may be down;
afterwards it catches up.
"""

import random
from typing import Any, Final

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.model.kinds.resource_claim import FINALIZER, ResourceClaimSpec, ResourceClaimStatus
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.claim_lifecycle import make_claim, with_claims
from stower.sim.server import Change, Server

LATE_NS: Final = (SECOND_NS // 20, 3 * SECOND_NS)


class Claims:
    """Of all pods of a run."""

    def __init__(self, agenda: Agenda, server: Server, seed: str) -> None:
        self._agenda = agenda
        self._server = server
        self._seed = seed
        self._is_up = True
        self._keys: dict[str, dict[str, None]] = {}  # of the claims of a pod, by its uid
        server.tell.append(self._on_change)

    def make(self, pod: Pod, specs: dict[str, dict[str, Any]]) -> None:
        """Claims of the pod's own, by the entries that name a template; soon."""
        chance = random.Random(f"{self._seed}:claims:{pod.metadata.uid}")
        self._agenda.schedule_after(chance.randint(*LATE_NS), lambda: self._make(pod, specs))

    def _make(self, pod: Pod, specs: dict[str, dict[str, Any]]) -> None:
        found = self._server.get(Pod, pod.metadata.key)
        if found is None or found.metadata.uid != pod.metadata.uid:
            return
        names = {}
        for entry, spec in specs.items():
            claim = make_claim(pod, entry, msgspec.convert(spec, ResourceClaimSpec))
            self._server.put(claim)
            names[entry] = claim.metadata.name
        self._server.put(with_claims(found, names))

    def stop(self) -> None:
        """It is down: nothing is given back meanwhile."""
        self._is_up = False

    def start(self) -> None:
        """It is back, and sees what there is to do."""
        self._is_up = True
        for claim in [*self._server.all(ResourceClaim).values()]:
            self._schedule_release(claim)

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if isinstance(obj, ResourceClaim) and kind is not WatchType.DELETED:
            for uid in _pods_of(obj):
                self._keys.setdefault(uid, {})[obj.metadata.key] = None
            self._schedule_release(obj)
        elif isinstance(obj, Pod) and (kind is WatchType.DELETED or obj.is_terminal):
            uid = obj.metadata.uid
            if kind is WatchType.DELETED:
                self._schedule_collection(obj)
            for key in self._keys.get(uid, ()):
                claim = self._server.get(ResourceClaim, key)
                if claim is not None and uid in _pods_of(claim):
                    self._schedule_release(claim)
            if kind is WatchType.DELETED:
                self._keys.pop(uid, None)

    def _schedule_collection(self, pod: Pod) -> None:
        """What was said about a pod that is gone is collected, whoever is down."""
        chance = random.Random(f"{self._seed}:said:{pod.metadata.uid}")
        self._agenda.schedule_after(chance.randint(*LATE_NS), lambda: self._collect(pod))

    def _collect(self, pod: Pod) -> None:
        found = self._server.get(PodScheduling, pod.metadata.key)
        if found is not None and found.owner_uid == pod.metadata.uid:
            self._server.remove(found)

    def _schedule_release(self, claim: ResourceClaim) -> None:
        if not self._is_up or not self._has_work(claim):
            return
        meta = claim.metadata
        chance = random.Random(f"{self._seed}:{meta.uid}:{meta.resource_version}")
        self._agenda.schedule_after(
            chance.randint(*LATE_NS), lambda: self._release(meta.key, meta.uid)
        )

    def _has_work(self, claim: ResourceClaim) -> bool:
        reserved = claim.status.reserved_for or ()
        if any(
            not self._is_consumer_alive(consumer.name, consumer.uid, claim) for consumer in reserved
        ):
            return True
        if claim.metadata.deletion_timestamp is not None and claim.metadata.finalizers:
            return FINALIZER in claim.metadata.finalizers and not reserved
        return not reserved and self._owner_is_gone(claim)

    def _is_consumer_alive(self, name: str, uid: str, claim: ResourceClaim) -> bool:
        pod = self._server.get(Pod, f"{claim.metadata.namespace}/{name}")
        return pod is not None and pod.metadata.uid == uid and not pod.is_terminal

    def _owner_is_gone(self, claim: ResourceClaim) -> bool:
        owner = claim.metadata.controller
        return owner is not None and not self._is_consumer_alive(owner.name, owner.uid, claim)

    def _release(self, key: str, uid: str) -> None:
        """One step: consumers that are gone; then the claim of a pod that is gone."""
        claim = self._server.get(ResourceClaim, key)
        if not self._is_up or claim is None or claim.metadata.uid != uid:
            return
        reserved = claim.status.reserved_for or ()
        left = tuple(c for c in reserved if self._is_consumer_alive(c.name, c.uid, claim))
        is_ours = FINALIZER in (claim.metadata.finalizers or ())  # else a driver's to deallocate
        if len(left) != len(reserved):
            status = msgspec.structs.replace(claim.status, reserved_for=left or None)
            if not left and is_ours:
                status = ResourceClaimStatus()
            self._server.put(msgspec.structs.replace(claim, status=status))
            return
        if left or not self._owner_is_gone(claim):
            return
        if not is_ours:
            self._server.delete(claim)
            return
        if claim.status.allocation is not None:
            self._server.put(msgspec.structs.replace(claim, status=ResourceClaimStatus()))
        elif FINALIZER in (claim.metadata.finalizers or ()):
            meta = msgspec.structs.replace(claim.metadata, finalizers=None)
            self._server.put(msgspec.structs.replace(claim, metadata=meta))
        else:
            self._server.remove(claim)


def _pods_of(claim: ResourceClaim) -> list[str]:
    """The uids of the pod that the claim was made for, and of those for which it is reserved."""
    owner = claim.metadata.controller_uid
    return [*([owner] if owner else []), *(c.uid for c in claim.status.reserved_for or ())]
