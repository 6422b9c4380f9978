"""Decides as a kubelet does whether a pod that was bound to its node may run there.

Knows one node, what the pods that its kubelet has admitted take, and the new pod; must not know the
scheduler.
Source: kubelet pkg/kubelet/lifecycle/predicate.go.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stower.model.derived import Derived
from stower.model.kinds import Node, Pod
from stower.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Amounts,
    amounts,
    host_ports,
    is_extended,
    node_room,
    pod_requests,
)
from stower.model.selectors import node_selector_matches
from stower.model.taints import is_tolerated

OUT_OF: Final = "OutOf"  # followed by the name of the resource
NODE_AFFINITY: Final = "NodeAffinity"
NODE_PORTS: Final = "NodePorts"
TAINTS: Final = "TaintToleration"
NO_EXECUTE: Final = "NoExecute"
ANY_IP: Final = "0.0.0.0"
ORDER: Final = (PODS, CPU, MEMORY, EPHEMERAL_STORAGE)  # other resources follow, by name
# What the predicates say (framework/plugins/{nodeaffinity,nodeports,tainttoleration}).
TEXTS: Final = {
    NODE_AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    NODE_PORTS: "node(s) didn't have free ports for the requested pod ports",
    TAINTS: "node(s) had taints that the pod didn't tolerate",
}

Ports = tuple[tuple[str, int, str], ...]  # protocol, port, IP


class Taken(NamedTuple):
    """What a pod takes of its node, or several together; `pods` is among the amounts of several."""

    amounts: Amounts
    ports: Ports = ()


class Rejection(NamedTuple):
    """Why a pod may not run, as its status says it."""

    reason: str
    message: str


def admission_failure(node: Node, admitted: Iterable[Pod], pod: Pod) -> str:
    """Returns the reason of a rejection (`OutOfcpu`, `NodeAffinity`), or "" for a pod that may run.

    admitted: the other pods of the node that have not ended.
    """
    used: Amounts = {}
    ports: Ports = ()
    for other in admitted:
        add_to(used, requested(other), 1)
        ports += host_ports(other)
    taken = Taken(requested(pod), host_ports(pod))
    found = rejection(node, Taken(used, ports), pod, taken)
    return found.reason if found is not None else ""


def add_to(used: Amounts, amounts: Amounts, sign: int) -> None:
    """Adds what a pod takes, or takes it away again with the sign -1."""
    for name, amount in amounts.items():
        used[name] = used.get(name, 0) + sign * amount
    used[PODS] = used.get(PODS, 0) + sign


def rejection(node: Node, used: Taken, pod: Pod, taken: Taken) -> Rejection | None:
    """Returns why the pod may not run on a node of which so much is used, or None. `taken`: what it
    would take.

    Raises InvalidObject for quantities of the node that are none.
    """
    lacking = lacking_resource(node, used.amounts, taken.amounts)
    if lacking is not None:
        return Rejection(f"{OUT_OF}{lacking.name}", lacking.text)
    if not has_affinity(node, pod):
        return _failed(NODE_AFFINITY)
    if have_conflict(taken.ports, used.ports):
        return _failed(NODE_PORTS)
    taints = (taint for taint in node.spec.taints or () if taint.effect == NO_EXECUTE)
    if not all(is_tolerated(pod.spec.tolerations or (), taint) for taint in taints):
        return _failed(TAINTS)
    return None


def _failed(predicate: str) -> Rejection:
    return Rejection(predicate, f"Predicate {predicate} failed: {TEXTS[predicate]}")


class Lacking(NamedTuple):
    """A resource of which a node has too little; CPU in thousandths."""

    name: str
    requested: int
    used: int
    capacity: int

    @property
    def text(self) -> str:
        """As a kubelet says it."""
        return (
            f"Node didn't have enough resource: {self.name}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )


def lacking_resource(node: Node, used: Amounts, wanted: Amounts) -> Lacking | None:
    """Returns the first resource of which the node has too little, or None.

    Extended resources that the node does not have at all are no concern of a kubelet.
    """
    room = node_room(node.status.allocatable)
    want = {**wanted, PODS: 1}
    lacking = [
        name
        for name, amount in want.items()
        if amount
        and amount + used.get(name, 0) > room.get(name, 0)
        and (name in room or not is_extended(name))
    ]
    if not lacking:
        return None
    name = min(lacking, key=lambda name: (ORDER.index(name) if name in ORDER else 9, name))
    return Lacking(name, want[name], used.get(name, 0), room.get(name, 0))


def requested(pod: Pod) -> Amounts:
    """Returns what the pod takes of its node, without what devices of claims provide. Read only."""
    return _REQUESTED.of(pod)


def _find_requested(pod: Pod) -> Amounts:
    return requested_amounts(pod, use_status=True)


def requested_amounts(pod: Pod, use_status: bool) -> Amounts:
    """As `requested`; `use_status` as of `pod_requests`."""
    claim = pod.status.extended_resource_claim_status
    by_devices = {m.resource_name for m in claim.request_mappings} if claim is not None else ()
    taken = pod.status.node_allocatable_resource_claim_statuses or ()
    found = amounts(pod_requests(pod, use_status=use_status, claimed=taken))
    return {name: amount for name, amount in found.items() if name not in by_devices}


_REQUESTED: Final = Derived(_find_requested)


def has_affinity(node: Node, pod: Pod) -> bool:
    """Returns whether the node has what the pod's node selector and node affinity require."""
    return selects(pod, node.metadata.labels or {}, node.metadata.name)


def selects(pod: Pod, labels: Mapping[str, str], name: str) -> bool:
    """Returns whether a node of this name with these labels has what the pod's node selector and
    node affinity require."""
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return required is None or node_selector_matches(required, labels, name)


def have_port_conflict(pod: Pod, other: Pod) -> bool:
    """Returns whether both pods take the same host port on overlapping addresses."""
    return have_conflict(host_ports(pod), host_ports(other))


def have_conflict(ports: Ports, others: Ports) -> bool:
    """Returns whether two sets of ports share one on overlapping addresses."""
    return any(
        (protocol, port) == (protocol_too, port_too) and (ANY_IP in (ip, ip_too) or ip == ip_too)
        for protocol, port, ip in ports
        for protocol_too, port_too, ip_too in others
    )
