"""When a tree of pod groups evicts nobody: while its victims leave, and for a while after it has
evicted in vain for devices that only drivers know. Must not know how victims are chosen.
"""

from typing import Final

from stower.engine.preemption.candidates import leaving_victims
from stower.engine.preemption.eviction_pauses import SPARES
from stower.engine.queue.entities import QueuedTree
from stower.state.claim_release import is_releasing_devices
from stower.state.cluster import ClusterState
from stower.state.devices import may_use_devices

ONGOING: Final = "ongoing preemption on nominated nodes"


def why_not_now(state: ClusterState, queued: QueuedTree) -> str:
    """Returns why no victims are searched for a tree now, "" for no reason. Has the tree tried
    again once a pause is over."""
    if awaits_victims(state, queued):
        return ONGOING
    until_ns = queued.spares_until_ns
    if until_ns > state.now_ns:
        is_due_before = state.now_ns < queued.retry_ns < until_ns
        queued.retry_ns = queued.retry_ns if is_due_before else until_ns
        return SPARES
    return ""


def awaits_victims(state: ClusterState, queued: QueuedTree) -> bool:
    """Returns whether its victims are still on their nodes, or others of lower priority are leaving
    the nodes that its pods are nominated to, or devices are being released there."""
    if leaving_victims(state, queued.victims):
        return True
    for member in queued.members.values():
        nominated = member.entry.nominated_node_name
        row = state.row_of(nominated)
        is_claiming = row >= 0 and may_use_devices(member.entry)
        if is_claiming and is_releasing_devices(state, nominated):
            return True
        for entry in state.pods_by_row[row].values() if row >= 0 else ():
            is_deletion_pending = (
                entry.is_deletion_pending or entry.pod.metadata.deletion_timestamp is not None
            )
            if is_deletion_pending and entry.pod.priority < queued.priority:
                return True
    return False
