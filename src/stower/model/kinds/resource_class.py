"""ResourceClass (stower.dev/v1): a device class whose claims are negotiated with a driver.

It has the name of the DeviceClass that claims request. No slice lists these devices: the driver
reports for each node whether it can provide them. Source: KEP-3063 (classic dynamic resource
allocation), seed 000.
"""

from typing import Any

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.selectors import NodeSelector


class ResourceClass(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Who allocates, with which parameters, and which nodes are worth asking about (all, where
    there is no selector). `driver_name` is immutable."""

    metadata: ObjectMeta
    driver_name: str = ""
    parameters: dict[str, Any] | None = None
    suitable_nodes: NodeSelector | None = None
