"""Sums up what the containers of a pod spec ask for, or are limited to.

Source: AggregateContainerRequests and AggregateContainerLimits of k8s.io/component-helpers.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stower.model.kinds import Pod
from stower.model.quantity import Quantity
from stower.model.resources import pod_requests

Object = dict[str, Any]


def container_totals(spec: Object, field: str) -> Mapping[str, Quantity]:
    """The sum of a field of all containers' resources, init containers counted while they run.

    `field`: requests or limits. Raises msgspec.ValidationError for a spec of the wrong shape.
    """
    bare: Object = {}
    for kind in ("containers", "initContainers"):
        bare[kind] = [
            {**c, "resources": {"requests": (c.get("resources") or {}).get(field) or {}}}
            for c in spec.get(kind) or ()
        ]
    return pod_requests(msgspec.convert({"metadata": {}, "spec": bare}, Pod))
