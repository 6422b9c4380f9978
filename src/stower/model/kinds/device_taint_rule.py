"""DeviceTaintRule (resource.k8s.io/v1beta2): a taint on all devices that the rule selects.

Source: KEP-5055.
"""

import msgspec

from stower.model.kinds.resource_slice import DeviceTaint
from stower.model.meta import ObjectMeta


class DeviceTaintSelector(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """Which devices: all that is given must be equal."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True
):
    """The taint, and the devices. A rule without a selector taints none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A taint on devices."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
