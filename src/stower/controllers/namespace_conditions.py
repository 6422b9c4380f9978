"""Writes the conditions of a namespace that is being deleted: what is left of it, and why.

Source: pkg/controller/namespace/deletion/status_condition_utils.go, Kubernetes 1.36; reasons and
messages kept verbatim.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from stower.controllers.objects import Object
from stower.model.times import time_text

CONTENT_FAILURE: Final = "NamespaceDeletionContentFailure"
CONTENT_REMAINING: Final = "NamespaceContentRemaining"
FINALIZERS_REMAINING: Final = "NamespaceFinalizersRemaining"
# Type, reason and message where nothing is wrong, in upstream's order.
GOOD: Final = (
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        CONTENT_FAILURE,
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (CONTENT_REMAINING, "ContentRemoved", "All content successfully removed"),
    (
        FINALIZERS_REMAINING,
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
)


class Leftovers(NamedTuple):
    """What is left of a collection."""

    resource: tuple[str, str, str]  # group, version and plural
    object_count: int
    finalizers: Mapping[str, int]  # how many objects have each
    fault: str  # what went wrong, "" for nothing

    @classmethod
    def of(
        cls,
        path: str,
        count: int = 0,
        finalizers: Mapping[str, int] | None = None,
        fault: str = "",
    ) -> "Leftovers":
        """Returns what is left of the collection at a path."""
        parts = path.split("/")  # "", api, version or "", apis, group, version
        group, version = ("", parts[2]) if parts[1] == "api" else (parts[2], parts[3])
        return cls((group, version, parts[-1]), count, finalizers or {}, fault)


def updated_conditions(
    namespace: Object, leftovers: Mapping[str, Leftovers], faults: Sequence[str], now_ns: int
) -> list[Object] | None:
    """Returns all conditions of the namespace, None if they are as they should be.

    `leftovers`: what is counted; `faults`: why content cannot be deleted.
    """
    bad = _bad_conditions(leftovers, faults)
    before = {c["type"]: c for c in (namespace.get("status") or {}).get("conditions") or ()}
    found = dict(before)
    for type, reason, message in GOOD:
        status = "False"
        if type in bad:
            status, (reason, message) = "True", bad[type]
        old = before.get(type, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        found[type] = {
            "type": type,
            "status": status,
            "lastTransitionTime": since or time_text(now_ns),
            "reason": reason,
            "message": message,
        }
    return None if found == before else list(found.values())


def _bad_conditions(
    leftovers: Mapping[str, Leftovers], faults: Sequence[str]
) -> dict[str, tuple[str, str]]:
    bad: dict[str, tuple[str, str]] = {}
    if faults:
        shown = ", ".join(sorted(faults))
        bad[CONTENT_FAILURE] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(faults)} remaining: {shown}",
        )
    counts = sorted(
        f"{plural}.{group} has {found.object_count} resource instances"
        for found in leftovers.values()
        if found.object_count
        for group, _, plural in (found.resource,)
    )
    if counts:
        text = f"Some resources are remaining: {', '.join(counts)}"
        bad[CONTENT_REMAINING] = "SomeResourcesRemain", text
    finalizers: dict[str, int] = {}
    for found in leftovers.values():
        for name, count in found.finalizers.items():
            finalizers[name] = finalizers.get(name, 0) + count
    if finalizers:
        shown = ", ".join(
            sorted(f"{name} in {count} resource instances" for name, count in finalizers.items())
        )
        text = f"Some content in the namespace has finalizers remaining: {shown}"
        bad[FINALIZERS_REMAINING] = "SomeFinalizersRemain", text
    return bad
