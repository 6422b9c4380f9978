"""Maps extended resource names to the device classes that they stand for (KEP-5004).

Every device class has an implicit resource name. A class may have a second one, by its spec.

Source: kube-scheduler util/assumecache extendedresourcecache. Different from upstream: the class of
a name depends on the classes that exist, not on the order in which they were added.
"""

from collections.abc import Mapping

from stower.model.kinds.device_class import DeviceClass
from stower.model.resources import CLASS_PREFIX


def classes_by_resource(classes: Mapping[str, DeviceClass]) -> dict[str, str]:
    """Returns class names by resource name. Of several classes that claim a resource name, the
    newest has it; of classes of the same age, the class whose own name sorts first."""
    found: dict[str, str] = {}
    ordered = sorted(classes.values(), key=lambda c: c.metadata.name, reverse=True)
    ordered.sort(key=lambda c: c.metadata.creation_timestamp or "")
    for device_class in ordered:
        if device_class.spec.extended_resource_name:
            found[device_class.spec.extended_resource_name] = device_class.metadata.name
    for name in classes:
        found[CLASS_PREFIX + name] = name
    return found
