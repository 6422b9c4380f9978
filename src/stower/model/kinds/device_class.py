"""DeviceClass (resource.k8s.io/v1): selectors and configuration of requests for the class."""

from typing import Any

import msgspec

from stower.model.meta import ObjectMeta


class CelSelector(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An expression over `device` (KEP-4381)."""

    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One condition on a device."""

    cel: CelSelector | None = None


class ClassConfig(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Parameters for the driver, which we hand on as they are."""

    opaque: dict[str, Any] | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Selectors, all of which a device must meet; `extended_resource_name` is KEP-5004's."""

    selectors: tuple[DeviceSelector, ...] | None = None
    config: tuple[ClassConfig, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A class of devices."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()
