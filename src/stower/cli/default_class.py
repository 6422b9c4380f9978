"""Finds the StorageClass of claims that name none.

Source: plugin/pkg/admission/storage/storageclass/setdefault.
"""

from collections.abc import Iterable
from typing import Final

from stower.model.kinds import StorageClass

DEFAULT_CLASS_MARKS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def default_class(classes: Iterable[StorageClass]) -> str:
    """Returns the name of the newest default StorageClass, "" where there is none."""
    defaults = [
        one.metadata
        for one in classes
        if "true" in ((one.metadata.annotations or {}).get(mark) for mark in DEFAULT_CLASS_MARKS)
    ]
    newest = max((meta.creation_timestamp or "" for meta in defaults), default="")
    names = (meta.name for meta in defaults if (meta.creation_timestamp or "") == newest)
    return min(names, default="")
