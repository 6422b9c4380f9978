"""ReplicationController, ReplicaSet, StatefulSet: their selectors are defaults for spreading."""

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.selectors import LabelSelector


class ReplicationControllerSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What scheduling reads of it."""

    selector: dict[str, str] | None = None


class ReplicationController(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """ReplicationController (v1)."""

    metadata: ObjectMeta
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class ControllerSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What scheduling reads of the others."""

    selector: LabelSelector | None = None


class ReplicaSet(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """ReplicaSet (apps/v1)."""

    metadata: ObjectMeta
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """StatefulSet (apps/v1)."""

    metadata: ObjectMeta
    spec: ControllerSpec = ControllerSpec()
