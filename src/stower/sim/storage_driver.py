"""A storage driver of a run with faults: creates volumes for claims once a node is selected.

It may be down for a while.
"""

import random
from typing import Final

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from stower.model.kinds.storage import (
    BIND_COMPLETED,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimStatus,
    ObjectReference,
    VolumeSpec,
    VolumeStatus,
)
from stower.model.meta import ObjectMeta
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.server import Change, Server

CLASS: Final = "made"
MAKE_NS: Final = (SECOND_NS // 10, 8 * SECOND_NS)


class Driver:
    """Of the one class of storage of a run."""

    def __init__(self, agenda: Agenda, server: Server, chance: random.Random) -> None:
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._is_up = True
        server.tell.append(self._on_change)

    def begin(self) -> None:
        """Its class is there."""
        meta = ObjectMeta(CLASS, uid=CLASS)
        self._server.put(StorageClass(meta, "sim.stower.dev", WAIT_FOR_FIRST_CONSUMER))

    def stop(self) -> None:
        """It is silent: nothing is made."""
        self._is_up = False

    def start(self) -> None:
        """It is back, and does what it had to."""
        self._is_up = True
        for claim in [*self._server.all(PersistentVolumeClaim).values()]:
            self._check_claim(claim)

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if isinstance(obj, PersistentVolumeClaim) and kind is not WatchType.DELETED:
            self._check_claim(obj)

    def _check_claim(self, claim: PersistentVolumeClaim) -> None:
        if claim.selected_node and not claim.spec.volume_name:
            self._agenda.schedule_after(self._chance.randint(*MAKE_NS), lambda: self._make(claim))

    def _make(self, asked: PersistentVolumeClaim) -> None:
        claim = self._server.get(PersistentVolumeClaim, asked.metadata.key)
        if (
            not self._is_up
            or claim is None
            or claim.metadata.uid != asked.metadata.uid
            or claim.spec.volume_name
        ):
            return
        name, meta = f"volume-{claim.metadata.uid}", claim.metadata
        spec = VolumeSpec(
            capacity={"storage": "1Gi"},
            access_modes=claim.spec.access_modes,
            claim_ref=ObjectReference(meta.namespace, meta.name, meta.uid),
            storage_class_name=CLASS,
        )
        self._server.put(PersistentVolume(ObjectMeta(name, uid=name), spec, VolumeStatus("Bound")))
        annotations = {**(meta.annotations or {}), BIND_COMPLETED: "yes"}
        self._server.put(
            msgspec.structs.replace(
                claim,
                metadata=msgspec.structs.replace(meta, annotations=annotations),
                spec=msgspec.structs.replace(claim.spec, volume_name=name),
                status=ClaimStatus("Bound"),
            )
        )
