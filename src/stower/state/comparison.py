"""Rebuilds a state from the API objects and assumptions that another state holds; compares states.

A state that an internal error may have damaged is compared with the one that is rebuilt. Caches and
registered tallies are left out: they are derived from what is compared. Must not know the engine.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from stower.model.kinds import SELECTING, ApiObject, Node
from stower.state.cluster import ClusterState


def stored_objects(state: ClusterState) -> Iterator[ApiObject]:
    """Yields all API objects that the state holds, but namespaces, services and controllers, of
    which it keeps extracts: budgets, volumes, devices and groups before nodes, pods last."""
    yield from state.budgets.api_objects()
    for store in (state.volumes, state.devices, state.groups, state.negotiations):
        yield from store.api_objects()
    for node in state.nodes:
        if node is not None:
            yield node
    for entry in state.pods.values():
        yield entry.pod


def rebuilt(state: ClusterState, others: Iterable[ApiObject]) -> ClusterState:
    """Returns a new state of the same objects, assumptions and nominations. `others`: the objects
    of which the state keeps extracts. Costs as much as the first list of all objects."""
    fresh = ClusterState(state.is_counting_claims)
    fresh.groups.has_composite_groups = state.groups.has_composite_groups
    for obj in others:
        if isinstance(obj, SELECTING):
            fresh.pod_selectors.put(obj)
    for budget in state.budgets.api_objects():
        fresh.budgets.put(budget)
    for old, new in stores(state, fresh):
        for stored in old.api_objects():
            new.put(stored)
        if old is not state.groups:
            new.adopt_assumptions(old)
    for node in state.nodes:
        if isinstance(node, Node):
            fresh.set_node(node)
    for entry in state.pods.values():
        if entry.pod.spec.node_name:
            copy = fresh.add_placed(entry.pod)
        else:
            copy = fresh.add_pending(entry.pod)
            if entry.row >= 0:
                fresh.assume(copy, fresh._row_for(state.node_names[entry.row]))
                if entry.claimed_resources:
                    fresh.assume_claimed_resources(copy, entry.claimed_resources)
        fresh.nominate(copy, entry.nominated_node_name)
    return fresh


def stores(one: ClusterState, other: ClusterState) -> tuple[tuple[Any, Any], ...]:
    """Returns the stores of API objects of two states, pairwise."""
    return (
        (one.volumes, other.volumes),
        (one.devices, other.devices),
        (one.groups, other.groups),
        (one.negotiations, other.negotiations),
    )


def differences(one: ClusterState, other: ClusterState) -> list[str]:
    """Returns the names of what differs between two states; empty where they are equal."""
    here, there = view(one), view(other)
    return [key for key in here if here[key] != there[key]]


def view(state: ClusterState) -> dict[str, Any]:
    """Returns what the state holds, by the names of nodes instead of rows and codes."""
    names = state.node_names
    columns = (*state.columns.values(), state.non_zero_cpu, state.non_zero_memory)
    nodes = {}
    for name, row in state.row_by_name.items():
        usage = {c.name: (c.allocatable_cells[row], c.requested_cells[row]) for c in columns}
        labels = {k: c.values[int(c.codes[row])] for k, c in state.labels.columns.items()}
        nodes[name] = (
            bool(state.present[row]),
            bool(state.unschedulable[row]),
            state.taints.values[int(state.taints.codes[row])],
            {resource: amounts for resource, amounts in usage.items() if any(amounts)},
            {key: value for key, value in labels.items() if value is not None},
            sorted(state.pods_by_row[row]),
            state.nodes[row],
        )
    return {
        "journal": (len(state.journal), state.journal.is_recording, state.journal.is_undoing),
        "node count": state.node_count,
        "nodes": nodes,
        "pods": {
            uid: (
                entry.pod,
                names[entry.row] if entry.row >= 0 else "",
                entry.is_assumed,
                entry.claimed_resources,
                entry.nominated_node_name,
            )
            for uid, entry in state.pods.items()
        },
        "pods by name": dict(state.uid_by_key),
        "members of groups": {
            key: sorted(members) for key, members in state.groups.members.items() if members
        },
        "nominations": {name: sorted(pods) for name, pods in state.nominated_pods.items()},
        "host ports": {
            (port, ip): sorted((names[row], count) for row, count in rows.items())
            for port, by_ip in state.ports.view().items()
            for ip, rows in by_ip.items()
        },
        "use of devices": state.devices.usage_view(),
        "assumptions": (state.devices.assumptions_view(), state.volumes.assumptions_view()),
        "objects": {
            (type(obj).__name__, obj.metadata.namespace, obj.metadata.name): obj
            for obj in stored_objects(state)
        },
    }
