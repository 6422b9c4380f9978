"""Compares a decision of another scheduler with this one's, on the state just before the decision.

Nothing is tried or written; this scheduler's answer is that of the reference cycle. Must not know
where decisions come from.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
import numpy as np

from stower.engine.cycle import reference
from stower.engine.preemption.displacement import displaceable_pods
from stower.framework.profile import Profile
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

BEST_SHOWN: Final = 8
PARTS_SHOWN: Final = 4
Verdict = Literal["agrees", "differs", "refuses", "places", "unknown"]


class Judgement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The judgement of one decision of another scheduler.

    `verdict`: agrees (its node is one of the best, or no node is feasible here either), differs
    (another node is better: `rank` is that of its node, from 1), refuses (its node is infeasible:
    `reasons`), places (it found no node, here one is feasible), unknown (its node is not known).
    `best`: some of the best nodes, by name; `parts`: by plugin, the score of the best node minus
    that of the chosen node.
    """

    pod: str
    node: str
    verdict: Verdict
    best: tuple[str, ...] = ()
    best_count: int = 0
    score: int = 0
    node_score: int = 0
    rank: int = 0
    feasible: int = 0
    nodes: int = 0
    reasons: tuple[str, ...] = ()
    parts: Mapping[str, int] = {}
    message: str = ""


def judge(
    state: ClusterState, profile: Profile, entry: PodEntry, node_name: str, message: str = ""
) -> Judgement:
    """Returns the judgement of the node that another scheduler chose for a pod that is pending in
    the state; "" where it found none, for the reason in `message`."""
    state.refresh_images()  # a cycle has begun where the other scheduler decided
    with state.trial():
        for other in displaceable_pods(state, profile, entry.pod):
            state.displace(other)
        return _judge(state, profile, entry, node_name, message)


def _judge(
    state: ClusterState, profile: Profile, entry: PodEntry, node_name: str, message: str
) -> Judgement:
    pod, shape = entry.pod, entry.shape
    verdict = reference.judge(profile, state, shape, pod)
    feasible = verdict.feasible
    count, row = int(np.count_nonzero(feasible)), state.row_of(node_name)
    found = Judgement(pod.key, node_name, "unknown", feasible=count, nodes=state.node_count)
    if not count:
        ours = verdict.diagnosis(state.node_count).message()
        if not node_name:
            return msgspec.structs.replace(found, verdict="agrees", message=ours)
        if row < 0:
            return found
        reasons = _reasons(verdict, row) or (ours,)
        return msgspec.structs.replace(found, verdict="refuses", reasons=reasons, message=ours)
    parts = reference.scores(profile, state, shape, pod, feasible)
    total = reference.total_score(parts, len(feasible))
    highest = int(total[feasible].max())
    best = np.flatnonzero(feasible & (total == highest))
    names = sorted(state.node_names[one] for one in best.tolist())
    found = msgspec.structs.replace(
        found, best=tuple(names[:BEST_SHOWN]), best_count=len(names), score=highest
    )
    if not node_name:
        return msgspec.structs.replace(found, verdict="places", message=message)
    if row < 0:
        return found
    if not feasible[row]:
        return msgspec.structs.replace(found, verdict="refuses", reasons=_reasons(verdict, row))
    own = int(total[row])
    rank = 1 + int(np.count_nonzero(total[feasible] > own))
    found = msgspec.structs.replace(found, node_score=own, rank=rank)
    if own == highest:
        return msgspec.structs.replace(found, verdict="agrees")
    first = state.row_of(names[0])
    more = {name: int(part[first] - part[row]) for name, part in parts.items()}
    order = sorted((name for name, by in more.items() if by), key=lambda name: (-more[name], name))
    shown = {name: more[name] for name in order[:PARTS_SHOWN]}
    return msgspec.structs.replace(found, verdict="differs", parts=shown)


def _reasons(verdict: reference.Verdict, row: int) -> tuple[str, ...]:
    refused = verdict.rejection(row)
    if refused is None:
        return ()
    plugin, rejection = refused
    return tuple(f"{plugin}: {reason}" if plugin else reason for reason in rejection.reasons)
