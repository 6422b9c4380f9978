"""Plans for the pods of a tree: on which rows (indices of nodes in the state's arrays) they go.

Must not know how a plan is found.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from stower.devices.claim_sharing import ClaimSharing
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.queue.entities import QueuedPod
from stower.framework.profile import Profile
from stower.groups.tree import Tree
from stower.state.cluster import ClusterState
from stower.state.devices import claim_keys
from stower.state.pod_entry import PodEntry

Plan = list[tuple[QueuedPod, int]]

# Reports a tree on whose problem the solver has raised an error.
SolverFailed = Callable[[Tree, Exception], None]


class TreeResult(NamedTuple):
    """The row of each pod; empty if there is no placement: `message` has the reason. `exhausted`:
    the budget ran out, nothing is proved. `resolvable`: evictions may help."""

    plan: Plan
    message: str = ""
    exhausted: bool = False
    resolvable: bool = True


def shared_claims(pods: Iterable[QueuedPod]) -> set[str]:
    """Returns the keys of the claims that several of these pods use."""
    claiming = [queued.pod for queued in pods if queued.entry.shape.has_claims]
    if len(claiming) < 2:
        return set()
    uses = Counter(key for pod in claiming for key in claim_keys(pod))
    return {key for key, count in uses.items() if count > 1}


def sharing(state: ClusterState, keys: set[str]) -> AbstractContextManager[None]:
    """Has an attempt's pods share what is decided about these claims."""
    return state.devices.extension(ClaimSharing).among(keys) if keys else nullcontext()


def place_in_any_order(
    state: ClusterState, cycle: SchedulingCycle, profile: Profile, pods: Plan
) -> tuple[Plan, Plan]:
    """Places each pod on its row with its reservations, within a trial, in whatever order the
    plugins accept. Returns the pods that are placed, and those that the plugins refuse then."""
    placed: Plan = []
    left = pods
    while left:
        refused = []
        for queued, row in left:
            if cycle.fits(profile, queued.entry, row):
                assume_reserved(state, profile, queued.entry, row)
                placed.append((queued, row))
            else:
                refused.append((queued, row))
        if len(refused) == len(left):
            break
        left = refused
    return placed, left


def assume_reserved(state: ClusterState, profile: Profile, entry: PodEntry, row: int) -> None:
    """Places the pod and holds its reservations, within a trial."""
    for plugin in profile.plugins_for(entry.shape).reserve:
        part = plugin.reserve(entry.pod, entry.shape, state, row)
        if part is not None:
            part.assume(state)
    state.assume(entry, row)


def pending_of(tree: Tree, members: Iterable[QueuedPod]) -> list[list[QueuedPod]]:
    """Returns the waiting pods by group of the tree, in the order in which they are placed."""
    leaves = {tree.groups[g].which.key: g for g in tree.leaves()}
    pending: list[list[QueuedPod]] = [[] for _ in tree.groups]
    for queued in members:
        meta = queued.pod.metadata
        g = leaves.get(f"{meta.namespace}/{queued.pod.group_name}", -1)
        if g >= 0:
            pending[g].append(queued)
    for pods in pending:
        pods.sort(key=_order)
    return pending


def _order(queued: QueuedPod) -> tuple[int, str, str]:
    meta = queued.pod.metadata
    return (-queued.priority, meta.creation_timestamp or "", meta.name)
