"""Service (v1): its selector, which is a default for spreading pods."""

import msgspec

from stower.model.meta import ObjectMeta


class ServiceSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What scheduling reads of a service."""

    selector: dict[str, str] | None = None


class Service(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()
