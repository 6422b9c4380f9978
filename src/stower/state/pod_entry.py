"""PodEntry: a pod as the state holds it. Must not know where entries are kept."""

from stower.model.kinds import Pod
from stower.model.resources import Claimed
from stower.state.shapes import Shape


class PodEntry:
    """One pod. `row` is -1 while it has no node; `key` and `group_name` are those of `pod`."""

    __slots__ = (
        "claimed_resources",
        "displaced_row",
        "eviction_backoff_until_ns",
        "group_name",
        "is_assumed",
        "is_deletion_pending",
        "key",
        "nominated_node_name",
        "pending_write_count",
        "pod",
        "rank",
        "row",
        "shape",
        "slot",
        "uid",
        "written_version",
    )

    def __init__(self, pod: Pod, shape: Shape) -> None:
        self.uid = pod.metadata.uid
        self.key = pod.key
        self.group_name = pod.group_name
        self.pod = pod
        self.shape = shape
        self.row = -1
        self.displaced_row = -1  # the row that a trial has taken the pod off
        self.rank: tuple[int, int, int, str] | None = None  # importance, cached at first use
        self.slot = -1  # in the table of placed pods
        self.is_assumed = False
        # Until then the pod is displaced only where nothing else helps: its deletion was refused.
        self.eviction_backoff_until_ns = 0
        self.is_deletion_pending = False  # the API accepted a deletion that no watch has shown yet
        self.nominated_node_name = ""
        self.written_version = ""  # resourceVersion after our last write, seen or not
        self.pending_write_count = 0  # status patches of ours that are not answered
        self.claimed_resources: Claimed = ()  # what its claims take of its node, where counted

    def renew(self, pod: Pod, shape: Shape) -> "PodEntry":
        """Starts again as a pod without a node; what was written about it stays known."""
        known = (
            self.eviction_backoff_until_ns,
            self.is_deletion_pending,
            self.written_version,
            self.pending_write_count,
        )
        PodEntry.__init__(self, pod, shape)
        (
            self.eviction_backoff_until_ns,
            self.is_deletion_pending,
            self.written_version,
            self.pending_write_count,
        ) = known
        return self
