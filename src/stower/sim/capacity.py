"""Answers questions about room with the engine: how many more copies fit, can a node be drained.

No pod is evicted to make room: pods are tried as if their preemptionPolicy were Never.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from stower.engine.engine import Engine
from stower.framework.decisions import Outcome
from stower.framework.reasons import count_reasons
from stower.model.errors import InvalidObject
from stower.model.kinds import Background, Pod
from stower.model.kinds.pod import PREEMPT_NEVER, PodStatus
from stower.sim.node_pods import belongs_to_node
from stower.sim.trial_world import TrialWorld
from stower.sim.workload import Workload


class Fit(msgspec.Struct, frozen=True, rename="camel"):
    """How many copies of a pod, or of a mix of pods, fit. `fits`: whole mixes; `by_node`, `by_pod`:
    copies by node and by pod, also those of the mix that is not whole; `next`: the pod of which no
    more fits; `message` and `refusals` (nodes by reason) tell why. They are empty where as many fit
    as were asked about."""

    fits: int
    by_node: dict[str, int]
    message: str
    refusals: dict[str, int]
    by_pod: dict[str, int] = {}
    next: str = ""


class Drain(msgspec.Struct, frozen=True, rename="camel"):
    """What becomes of a node's pods: where they would go, why some find no place, which of them a
    disruption budget keeps, and who stays because the node goes on with it."""

    moves: dict[str, str]
    stuck: dict[str, str]
    kept: tuple[str, ...]
    stays: tuple[str, ...]


def fit(
    workload: Workload,
    engine: Engine,
    mix: Sequence[tuple[Pod, int]],
    most: int,
    related: Iterable[Background] = (),
) -> Fit:
    """How many mixes fit, up to so many, once what waits has been placed. `mix`: pods, and how many
    copies of each are in one mix; `related`: what comes with the pods; of claims that were made for
    a pod, each copy gets its own."""
    tried = TrialWorld(engine)
    waiting = (patient(arrival.pod) for arrival in workload.arrivals)
    others = (*workload.related, *related)
    tried.world.start(workload.nodes, (*workload.placed, *waiting), others)
    tried.world.settle()
    by_node, by_pod = Counter[str](), {pod.key: 0 for pod, _ in mix}
    for i in range(most):
        for pod in (pod for pod, count in mix for _ in range(count)):
            name = f"{pod.metadata.name or 'pod'}-copy-{by_pod[pod.key]}"
            pending = make_pending(pod, name, f"{pod.metadata.namespace}/{name}")
            copy, claims = tried.world.recreate(pod, pending)
            decision = tried.add(copy, claims)
            if decision is None or decision.outcome is not Outcome.PLACED:
                found = decision.diagnosis if decision is not None else None
                refused = found.refused or (found.pre_filter,) if found is not None else ()
                refusals = count_reasons(refusal for refusal in refused if refusal is not None)
                return Fit(i, by_node, tried.reason(copy), refusals, by_pod, pod.key)
            by_node[decision.node_name] += 1
            by_pod[pod.key] += 1
    return Fit(most, by_node, "", {}, by_pod)


def drain(workload: Workload, engine: Engine, node_name: str) -> Drain:
    """What would become of the node's pods. Raises InvalidObject where there is no such node."""
    names = [node.metadata.name for node in workload.nodes]
    if node_name not in names:
        raise InvalidObject("node", node_name, f"one of the {len(names)} nodes given")
    here = [pod for pod in workload.placed if pod.spec.node_name == node_name]
    stays = [pod for pod in here if belongs_to_node(pod)]
    goes = [pod for pod in here if not belongs_to_node(pod) and not pod.is_terminal]
    tried = TrialWorld(engine)
    # Closed is not enough: there are pods that tolerate it.
    nodes = (node for node in workload.nodes if node.metadata.name != node_name)
    waiting = (patient(arrival.pod) for arrival in workload.arrivals)
    tried.world.start(nodes, (*workload.placed, *waiting), workload.related)
    tried.world.settle()
    entries = (engine.state.pods[pod.metadata.uid] for pod in _by_priority(goes))
    violating, free = engine.state.budgets.split_by_violation(entries)
    moves, stuck = {}, {}
    leaving = [entry.pod for entry in free]
    coming = [
        tried.world.recreate(pod, make_pending(pod, pod.metadata.name, f"{pod.metadata.uid}-moved"))
        for pod in leaving
    ]
    for pod in leaving:
        tried.world.delete_pod(pod.metadata.uid)
    for pod, (again, claims) in zip(leaving, coming):
        decision = tried.add(again, claims)
        if decision is not None and decision.outcome is Outcome.PLACED:
            moves[pod.key] = decision.node_name
        else:
            stuck[pod.key] = tried.reason(again)
    kept = tuple(entry.pod.key for entry in violating)
    return Drain(moves, stuck, kept, tuple(pod.key for pod in stays))


def make_pending(pod: Pod, name: str, uid: str = "") -> Pod:
    """A new pod like this one."""
    meta = msgspec.structs.replace(
        pod.metadata, name=name, uid=uid or name, deletion_timestamp=None
    )
    spec = msgspec.structs.replace(pod.spec, node_name="", preemption_policy=PREEMPT_NEVER)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus("Pending"))


def patient(pod: Pod) -> Pod:
    """The pod, and it evicts nobody."""
    spec = msgspec.structs.replace(pod.spec, preemption_policy=PREEMPT_NEVER)
    return msgspec.structs.replace(pod, spec=spec)


def _by_priority(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (-pod.priority, pod.key))
