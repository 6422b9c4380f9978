"""What the kubelets of simulated nodes have given to pods: admission counts what is allocated, so
that a resize that waits, or never can be, takes nothing from others.

Source: pkg/kubelet (allocation/allocation_manager.go, lifecycle/predicate.go); KEP-1287.
"""

from typing import Final

import msgspec

from stower.controllers.objects import Object, name_of, uid_of
from stower.controllers.pod_status import resources
from stower.model.errors import InvalidObject
from stower.model.kinds import Node, Pod
from stower.model.kubelet_admission import (
    Ports,
    Rejection,
    Taken,
    add_to,
    lacking_resource,
    rejection,
    requested_amounts,
)
from stower.model.resources import Amounts, host_ports, node_room

UNREADABLE: Final = "UnexpectedAdmissionError"


class Allocations:
    """What each pod was given, by uid, and what is used of each node."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._used: dict[str, Amounts] = {}  # by node
        self._ports: dict[str, dict[str, Ports]] = {}  # node: uid, of pods that have some
        self._resources: dict[str, dict[str, Object]] = {}  # by uid of a pod that has not started

    def release(self, pod: Object) -> None:
        """It takes nothing any more."""
        uid, node = uid_of(pod), pod["spec"].get("nodeName") or ""
        self._resources.pop(uid, None)
        taken = self._taken.pop(uid, None)
        if taken is not None:
            add_to(self._used[node], taken.amounts, -1)
            self._ports.get(node, {}).pop(uid, None)

    def hold(self, node: Object, pod: Object) -> None:
        """It runs, so it was admitted: it has what its status says, or what it asks for."""
        uid = uid_of(pod)
        self._resources.pop(uid, None)
        if uid in self._taken:
            return
        try:
            view = _view(_as_allocated(pod))
            taken = Taken(requested_amounts(view, use_status=False), host_ports(view))
        except (InvalidObject, msgspec.ValidationError):
            taken = Taken({})  # nobody could tell; others run all the same
        self._give(node, pod, taken)

    def admit(self, node: Object, pod: Object) -> Rejection | None:
        """Why the pod may not run on the node; None where it may, from now on."""
        uid, name = uid_of(pod), name_of(node)
        if uid in self._taken:
            return None
        try:
            view = _view(pod)
            taken = Taken(requested_amounts(view, use_status=False), host_ports(view))
            ports = tuple(p for ports in self._ports.get(name, {}).values() for p in ports)
            used = Taken(self._used.get(name, {}), ports)
            found = rejection(_node_view(node), used, view, taken)
        except (InvalidObject, msgspec.ValidationError) as error:
            return Rejection(UNREADABLE, str(error))
        if found is None:
            self._give(node, pod, taken)
            self._resources[uid] = {c["name"]: resources(c) for c in pod["spec"]["containers"]}
        return found

    def _give(self, node: Object, pod: Object, taken: Taken) -> None:
        name, uid = name_of(node), uid_of(pod)
        self._taken[uid] = taken
        add_to(self._used.setdefault(name, {}), taken.amounts, 1)
        if taken.ports:
            self._ports.setdefault(name, {})[uid] = taken.ports

    def as_admitted(self, pod: Object) -> Object:
        """The pod with the resources that it had when it was admitted: it starts with those."""
        given = self._resources.get(uid_of(pod))
        containers = pod["spec"]["containers"]
        if given is None or all(given.get(c["name"], {}) == resources(c) for c in containers):
            return pod
        own = [{**c, "resources": given.get(c["name"], {})} for c in containers]
        return {**pod, "spec": {**pod["spec"], "containers": own}}

    def resize(self, node: Object, pod: Object) -> tuple[str, str] | None:
        """Why the pod cannot have what it asks for now; None where it can, from now on."""
        uid, name = uid_of(pod), name_of(node)
        try:
            view = _view(pod)
            wants = requested_amounts(view, use_status=False)
            room = node_room((node.get("status") or {}).get("allocatable"))
            if any(amount > room.get(name, 0) for name, amount in wants.items()):
                return "Infeasible", _infeasible(wants, room)
            others = dict(self._used.get(name, {}))
            if uid in self._taken:
                add_to(others, self._taken[uid].amounts, -1)
            lacking = lacking_resource(_node_view(node), others, wants)
        except (InvalidObject, msgspec.ValidationError) as error:
            return "Infeasible", str(error)
        if lacking is not None:
            return "Deferred", lacking.text
        self.release(pod)
        self._give(node, pod, Taken(wants, host_ports(view)))
        return None


def _infeasible(wants: Amounts, room: Amounts) -> str:
    name = next(name for name, amount in wants.items() if amount > room.get(name, 0))
    return (
        f"Node didn't have enough capacity: {name}, requested: {wants[name]}, "
        f"capacity: {room.get(name, 0)}"
    )


def _as_allocated(pod: Object) -> Object:
    given = {
        status["name"]: status["allocatedResources"]
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if "allocatedResources" in status
    }
    if not given:
        return pod
    own = [
        {**c, "resources": {**(c.get("resources") or {}), "requests": given[c["name"]]}}
        if c["name"] in given
        else c
        for c in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": own}}


def _view(pod: Object) -> Pod:
    """The pod as far as admission reads it. Raises msgspec.ValidationError."""
    told = pod.get("status") or {}
    status = {
        name: told[name]
        for name in ("extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses")
        if name in told
    }
    return msgspec.convert({"metadata": {}, "spec": pod["spec"], "status": status}, Pod)


def _node_view(node: Object) -> Node:
    meta = {"name": name_of(node), "labels": node["metadata"].get("labels") or {}}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    spec = {"taints": node["spec"].get("taints") or ()}
    whole = {"metadata": meta, "spec": spec, "status": {"allocatable": allocatable}}
    return msgspec.convert(whole, Node)
