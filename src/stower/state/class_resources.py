"""Which extended resource names stand for which device class (KEP-5004).

Every class has a name of that kind; some have a second one, which they were given.

Source: kube-scheduler util/assumecache extendedresourcecache. Different from upstream: which class
has a name follows from the classes there are, not from the order in which they came.
"""

from collections.abc import Mapping

from stower.model.kinds.device_class import DeviceClass
from stower.model.resources import CLASS_PREFIX


def classes_by_resource(classes: Mapping[str, DeviceClass]) -> dict[str, str]:
    """Class names by resource name. Of several that claim a name, the newest has it; of those as
    old, the one whose own name comes first."""
    found: dict[str, str] = {}
    ordered = sorted(classes.values(), key=lambda c: c.metadata.name, reverse=True)
    ordered.sort(key=lambda c: c.metadata.creation_timestamp or "")
    for device_class in ordered:
        if device_class.spec.extended_resource_name:
            found[device_class.spec.extended_resource_name] = device_class.metadata.name
    for name in classes:
        found[CLASS_PREFIX + name] = name
    return found
