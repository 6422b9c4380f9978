"""A slow, obvious model of the state, and random histories that are put to both."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from stower.model.kinds import Node, Pod
from stower.model.kinds.pod import ClaimedResources
from stower.model.resources import Claimed
from stower.model.selectors import LabelSelector, parse_selector
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.property.strategies import NODE_NAMES, nodes, pods

TALLIES: tuple[tuple[frozenset[str] | None, LabelSelector], ...] = (
    (None, parse_selector("app=web")),
    (frozenset(("default",)), parse_selector("app")),
)


@dataclass
class Model:
    """What the objects say: nodes by name, pods by uid with the node that each is on, and what
    claims take of it."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    claimed: dict[str, Claimed] = field(default_factory=dict)

    def copied(self) -> "Model":
        """One that goes its own way."""
        return Model(dict(self.nodes), dict(self.pods), set(self.assumed), dict(self.claimed))

    def rebuilt(self) -> ClusterState:
        """A fresh state of the same objects."""
        state = ClusterState(is_counting_claims=True)
        for namespaces, selector in TALLIES:
            state.tally((namespaces, selector)).domain_counts("zone")
        for node in self.nodes.values():
            state.set_node(node)
        for pod, node_name in self.pods.values():
            entry = state.add_pending(pod)
            if node_name:
                state.assume(entry, state._row_for(node_name))
                state.assume_claimed_resources(entry, self.claimed.get(pod.metadata.uid, ()))
        return state


def questions(
    steps: list[list[tuple[Any, ...]]], candidates: list[Pod]
) -> Iterator[tuple[ClusterState, PodEntry]]:
    """Yields, after each step of a history, the state (always the same) with each candidate."""
    state, model = ClusterState(), Model()
    entries = [PodEntry(pod, state.shapes.intern(pod)) for pod in candidates]
    for step in steps:
        for operation in step:
            apply(state, model, operation)
        for entry in entries:
            yield state, entry


def apply(state: ClusterState, model: Model, operation: tuple[Any, ...]) -> None:
    """One operation on both. Operations that make no sense here do nothing."""
    kind, *args = operation
    if kind == "node":
        (node,) = args
        state.set_node(node)
        model.nodes[node.metadata.name] = node
    elif kind == "remove node":
        (name,) = args
        assert (name in model.nodes) == state.remove_node(name)
        model.nodes.pop(name, None)
    elif kind == "pod":
        (pod,) = args
        uid = pod.metadata.uid
        if uid not in model.pods:
            if pod.spec.node_name:
                state.add_placed(pod)
            else:
                state.add_pending(pod)
            model.pods[uid] = (pod, pod.spec.node_name)
            if pod.spec.node_name:
                model.claimed[uid] = _told(pod)
        else:
            _change(state, model, pod)
    elif kind == "remove pod":
        (uid,) = args
        if uid in model.pods:
            state.remove_pod(state.pods[uid])
            del model.pods[uid]
            model.assumed.discard(uid)
            model.claimed.pop(uid, None)
    elif kind == "assume":
        uid, name = args
        row = state.row_of(name)
        if uid in model.pods and not model.pods[uid][1] and row >= 0:
            state.assume(state.pods[uid], row)
            model.pods[uid] = (model.pods[uid][0], name)
            model.assumed.add(uid)
    elif kind == "forget":
        (uid,) = args
        if uid in model.assumed:
            state.forget(state.pods[uid])
            model.pods[uid] = (model.pods[uid][0], "")
            model.assumed.discard(uid)
            model.claimed.pop(uid, None)
    elif kind == "claim room":
        uid, claimed = args
        if uid in model.assumed:
            state.assume_claimed_resources(state.pods[uid], claimed)
            model.claimed[uid] = claimed


def _change(state: ClusterState, model: Model, pod: Pod) -> None:
    """The API shows a known pod: with a node it is confirmed there, without one it has changed."""
    uid = pod.metadata.uid
    _, node_name = model.pods[uid]
    if pod.spec.node_name:
        state.confirm(state.pods[uid], pod)
        model.pods[uid] = (pod, pod.spec.node_name)
        model.assumed.discard(uid)
        model.claimed[uid] = _told(pod)
    elif not node_name or uid in model.assumed:
        state.update_pending(state.pods[uid], pod)
        model.pods[uid] = (pod, node_name)


def _told(pod: Pod) -> Claimed:
    return pod.status.node_allocatable_resource_claim_statuses or ()


@st.composite
def _claimed(draw: Any) -> Claimed:
    """What the claims of a pod take of its node."""
    resources = {"cpu": draw(st.sampled_from(("1", "1500m"))), "hugepages-2Mi": "4Mi"}
    return (ClaimedResources("c", ("main",), resources),) if draw(st.booleans()) else ()


@st.composite
def _pods(draw: Any, name: str, node: str = "") -> Pod:
    """A pod whose status may say what its claims take."""
    pod = draw(pods(name, node=node))
    told = draw(_claimed()) or None
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=told)
    return msgspec.structs.replace(pod, status=status)


@st.composite
def operations(draw: Any) -> tuple[Any, ...]:
    """One operation."""
    name = f"p{draw(st.integers(0, 7))}"
    uid = f"uid-of-default-{name}"
    kind = draw(
        st.sampled_from(
            (
                "node",
                "node",
                "remove node",
                "pod",
                "pod",
                "placed",
                "remove pod",
                "assume",
                "forget",
                "claim room",
            )
        )
    )
    if kind == "node":
        return ("node", draw(nodes()))
    if kind == "remove node":
        return ("remove node", draw(st.sampled_from(NODE_NAMES)))
    if kind == "pod":
        return ("pod", draw(_pods(name)))
    if kind == "placed":
        return ("pod", draw(_pods(name, node=draw(st.sampled_from((*NODE_NAMES, "unseen"))))))
    if kind == "assume":
        return ("assume", uid, draw(st.sampled_from(NODE_NAMES)))
    if kind == "claim room":
        return ("claim room", uid, draw(_claimed()))
    return (kind, uid)


def by_node(state: ClusterState) -> dict[str, Any]:
    """Everything that the state knows, by names instead of rows and codes."""
    rows = dict(state.row_by_name)
    ports = {
        port: {
            ip: {state.node_names[r]: n for r, n in users.items()} for ip, users in by_ip.items()
        }
        for port, by_ip in state.ports.view().items()
    }
    tallies = {}
    for namespaces, selector in TALLIES:
        tally = state.tally((namespaces, selector))
        counts = {name: int(tally.counts[row]) for name, row in rows.items() if tally.counts[row]}
        zones = state.labels.column("zone")
        sums = tally.domain_counts("zone")
        by_zone = {z: int(sums[c]) for z, c in zones.code_of.items()}
        tallies[repr((namespaces, selector))] = (counts, by_zone)
    columns = (*state.columns.values(), state.non_zero_cpu, state.non_zero_memory)
    return {
        "nodes": {
            name: (
                bool(state.present[row]),
                bool(state.unschedulable[row]),
                state.taints.values[int(state.taints.codes[row])],
                {
                    c.name: (c.allocatable_cells[row], c.requested_cells[row])
                    for c in columns
                    if c.allocatable_cells[row] or c.requested_cells[row]
                },
                {
                    k: c.values[int(c.codes[row])]
                    for k, c in state.labels.columns.items()
                    if c.codes[row]
                },
                sorted(state.pods_by_row[row]),
                state.nodes[row],
                int(state.tie_breaker.hashes[row]),
            )
            for name, row in rows.items()
        },
        "node count": state.node_count,
        "images": {
            image: sorted(state.node_names[row] for row in holders)
            for image, holders in state.images.view().items()
        },
        "ports": ports,
        "tallies": tallies,
        "pods": {
            uid: (
                entry.pod,
                entry.claimed_resources,
                state.node_names[entry.row] if entry.row >= 0 else "",
            )
            for uid, entry in state.pods.items()
        },
        "nominated": {name: sorted(pods) for name, pods in state.nominated_pods.items()},
    }


def arrays(state: ClusterState) -> dict[str, Any]:
    """Every array and table as it lies in memory, for comparing before and after a trial.

    Left out is what may outlive a rollback: capacity, columns that are all zero, interned shapes.
    """
    limit = state.capacity
    result: dict[str, Any] = {
        "names": list(state.node_names),
        "free": list(state._free_rows),
        "rows": dict(state.row_by_name),
        "present": state.present.tobytes(),
        "unschedulable": state.unschedulable.tobytes(),
        "hashes": state.tie_breaker.hashes.tobytes(),
        "taints": [state.taints.values[int(code)] for code in state.taints.codes],
        "node count": state.node_count,
        "capacity": limit,
        "on row": [dict(sorted(row.items())) for row in state.pods_by_row],
        "assumed": sorted(uid for uid, entry in state.pods.items() if entry.is_assumed),
    }
    for column in (*state.columns.values(), state.non_zero_cpu, state.non_zero_memory):
        if column.allocatable.any() or column.requested.any():
            result[f"column {column.name}"] = (
                column.allocatable.tobytes(),
                column.requested.tobytes(),
            )
    for key, labels in state.labels.columns.items():
        if labels.codes.any():
            result[f"label {key}"] = [labels.values[int(code)] for code in labels.codes]
    return result | {"by node": by_node(state)}
