"""Negotiation: types for plugins whose pods wait for other components to accept a node before they
are bound to it.

Must not know what is negotiated, or with which components.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stower.framework.writes import CreateObject, PatchObject, PatchPodStatus
from stower.state.arrays import Bools, Ints


class FeasibleNodes(Protocol):
    """The feasible nodes that a scheduling attempt has found, as rows."""

    @property
    def has_rows(self) -> bool:
        """Whether at least one row is feasible."""

    @property
    def chosen_row(self) -> int:
        """The row that was chosen for the pod; -1 for none."""

    @property
    def is_of_tree(self) -> bool:
        """Whether the row was chosen together with rows for the other pods of a pod group tree, so
        that all of them are accepted or none."""

    @property
    def may_select(self) -> bool:
        """Whether all pods of the tree are ready (`Wait.is_ready`)."""

    @property
    def count(self) -> int:
        """The number of feasible rows."""

    def domain_rows(self) -> Bools | None:
        """Returns bool[row_limit]: the rows in the topology domain of the chosen row, where the
        tree's other pods have to be, or preferably are; None where it has no topology."""

    def ranked_rows(self, among: Ints | None = None) -> Sequence[int]:
        """Returns the feasible rows, the best first, or only those in `among`. Empty where no row
        is feasible."""


class Wait(msgspec.Struct, frozen=True):
    """A plugin's answer that the pod cannot be bound yet.

    message: the text of the pod's condition; writes: what to write, without ids; the pod is not
    tried again before the API server has answered the writes and the watch has shown them;
    nominated_node_name: the node to nominate the pod to, "" to withdraw a nomination, None to leave
    it; retry_at_ns: when to try the pod again even if no event arrives; is_retried_at_once: whether
    the pod is tried again as soon as its writes were seen; awaited_object: the object (view,
    namespace/name) that has to change before the pod is tried again. Of a pod of a tree, is_ready:
    it waits for nothing but the tree's other pods; is_stalled: nothing is expected soon, so that
    the tree's other pods must not keep what they have. stage: the round of questions to drivers,
    and what the pod waits for; there is one Event for each.
    """

    message: str
    writes: Sequence[CreateObject | PatchObject | PatchPodStatus] = ()
    nominated_node_name: str | None = None
    retry_at_ns: int | None = None
    is_retried_at_once: bool = False
    awaited_object: tuple[type, str] | None = None
    is_ready: bool = False
    is_stalled: bool = False
    stage: tuple[int, str] | None = None
