"""Why a node or a pod was refused, and the words in which Kubernetes says so.

Source: scheduler framework/types.go (FitError.Error), interface.go (status codes).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
SUCCESS: Final = "Success"

NO_NODES: Final = "no nodes available to schedule pods"


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """A refusal: its reasons, and whether removing pods could ever change it. `evictable`: it
    could, although upstream says that it could not."""

    reasons: tuple[str, ...]
    resolvable: bool = False
    evictable: bool = False

    @property
    def code(self) -> str:
        """The status code as upstream names it."""
        return UNSCHEDULABLE if self.resolvable else UNRESOLVABLE

    @property
    def may_evict(self) -> bool:
        """Whether to look for pods whose removal would help."""
        return self.resolvable or self.evictable

    @property
    def message(self) -> str:
        """All reasons in one line."""
        return ", ".join(self.reasons)


class RejectionCount(msgspec.Struct, frozen=True, gc=False):
    """So many nodes were refused by this plugin with this rejection. No plugin: outside the
    nodes that PreFilter left."""

    plugin: str
    rejection: Rejection
    node_count: int


class Diagnosis(msgspec.Struct, frozen=True, gc=False):
    """Why no node would do. `plugins` are those whose refusal an event might lift; `examples`
    (where they were asked for): some nodes for each of `refused`."""

    node_count: int
    refused: tuple[RejectionCount, ...] = ()
    pre_filter: RejectionCount | None = None
    plugins: frozenset[str] = frozenset()
    examples: tuple[tuple[str, ...], ...] = ()

    def message(self, post_filter: str = "") -> str:
        """The text of the PodScheduled condition, word for word as kube-scheduler has it."""
        if self.node_count == 0:
            return NO_NODES
        text = f"0/{self.node_count} nodes are available:"
        if self.pre_filter is not None:
            text += f" {self.pre_filter.rejection.message}."
        else:
            counts = count_reasons(self.refused)
            if counts:
                text += f" {', '.join(sorted(f'{n} {reason}' for reason, n in counts.items()))}."
        return f"{text} {post_filter}" if post_filter else text


def count_reasons(refused: Iterable[RejectionCount]) -> dict[str, int]:
    """Nodes per reason. A node with several reasons counts for each."""
    counts: dict[str, int] = {}
    for entry in refused:
        for reason in entry.rejection.reasons:
            counts[reason] = counts.get(reason, 0) + entry.node_count
    return counts
