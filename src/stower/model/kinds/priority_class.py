"""PriorityClass (scheduling.k8s.io/v1): the priority of pods that name the class."""

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32


class PriorityClass(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A priority by name; the default one applies to pods that name none."""

    metadata: ObjectMeta
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None
