"""How claims name a StorageClass, and which one those have that name none.

Source: plugin/pkg/admission/storage/storageclass/setdefault.
"""

from collections.abc import Iterable, Mapping
from typing import Final

BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
OWN_PROVISIONER: Final = "stower.dev/volumes"  # of a cluster of `stower up`
DEFAULT_MARKS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def is_default_class(annotations: Mapping[str, str] | None) -> bool:
    """Returns whether a StorageClass with these annotations is a default one."""
    return any((annotations or {}).get(mark) == "true" for mark in DEFAULT_MARKS)


def default_class(classes: Iterable[tuple[str, str, Mapping[str, str] | None]]) -> str:
    """Returns the name of the newest default StorageClass, "" where there is none. `classes`: name,
    creationTimestamp and annotations."""
    defaults = [(time, name) for name, time, marks in classes if is_default_class(marks)]
    newest = max((time for time, _ in defaults), default="")
    return min((name for time, name in defaults if time == newest), default="")
