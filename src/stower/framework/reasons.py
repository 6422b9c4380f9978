"""Rejections of nodes and pods, and the diagnosis of an attempt with kube-scheduler's message.

Must not know which plugins exist.

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
    """A plugin's rejection of a node or a pod. `resolvable`: whether removing pods could lift it;
    `evictable`: removing pods could lift it, although upstream reports the opposite."""

    reasons: tuple[str, ...]
    resolvable: bool = False
    evictable: bool = False

    @property
    def code(self) -> str:
        """The status code, by upstream's name."""
        return UNSCHEDULABLE if self.resolvable else UNRESOLVABLE

    @property
    def may_evict(self) -> bool:
        """Whether to look for pods whose eviction would help."""
        return self.resolvable or self.evictable

    @property
    def message(self) -> str:
        """All reasons on one line."""
        return ", ".join(self.reasons)


class RejectionCount(msgspec.Struct, frozen=True, gc=False):
    """The number of nodes that a plugin rejected with one rejection. `plugin` is "" for nodes that
    PreFilter excluded."""

    plugin: str
    rejection: Rejection
    node_count: int


class Diagnosis(msgspec.Struct, frozen=True, gc=False):
    """Why no node was feasible. `plugins`: the plugins whose rejection an event may lift;
    `examples`: the names of some nodes for each entry of `refused`, where examples are recorded."""

    node_count: int
    refused: tuple[RejectionCount, ...] = ()
    pre_filter: RejectionCount | None = None
    plugins: frozenset[str] = frozenset()
    examples: tuple[tuple[str, ...], ...] = ()

    def message(self, post_filter: str = "") -> str:
        """Returns the message of the PodScheduled condition, word for word as kube-scheduler writes
        it."""
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
    """Returns the number of nodes by reason. A node with several reasons counts for each."""
    counts: dict[str, int] = {}
    for entry in refused:
        for reason in entry.rejection.reasons:
            counts[reason] = counts.get(reason, 0) + entry.node_count
    return counts
