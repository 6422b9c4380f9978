"""What the kubelets of simulated nodes have given to pods: admission counts what is allocated, so
that a resize that waits, or never can be, takes nothing from others.

Source: pkg/kubelet (allocation/allocation_manager.go, lifecycle/predicate.go); KEP-1287.
"""

from typing import Final

import msgspec

from stower.controllers.objects import Object, ObjectStore, name_of, uid_of
from stower.controllers.pod_status import resources
from stower.model.errors import InvalidObject
from stower.model.kinds import Node, Pod
from stower.model.kubelet_admission import (
    Rejection,
    Taken,
    lacking_resource,
    rejection,
    requested_amounts,
)
from stower.model.resources import Amounts, host_ports, node_room

UNREADABLE: Final = "UnexpectedAdmissionError"


class Allocations:
    """By node, the pods that its kubelet has admitted, and what each takes."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}  # by uid
        self._resources: dict[str, dict[str, Object]] = {}  # by uid of a pod that has not started
        self._admitted: dict[str, dict[str, None]] = {}  # node: uids

    def release(self, pod: Object) -> None:
        """It takes nothing any more."""
        uid = uid_of(pod)
        self._taken.pop(uid, None)
        self._resources.pop(uid, None)
        self._admitted.get(pod["spec"].get("nodeName") or "", {}).pop(uid, None)

    def hold(self, node: Object, pod: Object) -> None:
        """It runs, so it was admitted."""
        self._admitted.setdefault(name_of(node), {})[uid_of(pod)] = None
        self._resources.pop(uid_of(pod), None)

    def admit(self, seen: ObjectStore, node: Object, pod: Object) -> Rejection | None:
        """Why the pod may not run on the node; None where it may, from now on."""
        uid = uid_of(pod)
        if uid in self._admitted.setdefault(name_of(node), {}):
            return None
        try:
            view = _view(pod)
            taken = Taken(requested_amounts(view, use_status=False), host_ports(view))
            found = rejection(_node_view(node), self._others(seen, node, pod), view, taken)
        except (InvalidObject, msgspec.ValidationError) as error:
            return Rejection(UNREADABLE, str(error))
        if found is None:
            self._taken[uid] = taken
            self._admitted[name_of(node)][uid] = None
            self._resources[uid] = {c["name"]: resources(c) for c in pod["spec"]["containers"]}
        return found

    def as_admitted(self, pod: Object) -> Object:
        """The pod with the resources that it had when it was admitted: it starts with those."""
        given = self._resources.get(uid_of(pod))
        containers = pod["spec"]["containers"]
        if given is None or all(given.get(c["name"], {}) == resources(c) for c in containers):
            return pod
        own = [{**c, "resources": given.get(c["name"], {})} for c in containers]
        return {**pod, "spec": {**pod["spec"], "containers": own}}

    def resize(self, seen: ObjectStore, node: Object, pod: Object) -> tuple[str, str] | None:
        """Why the pod cannot have what it asks for now; None where it can, from now on."""
        try:
            view = _view(pod)
            wants = requested_amounts(view, use_status=False)
            room = node_room((node.get("status") or {}).get("allocatable"))
            if any(amount > room.get(name, 0) for name, amount in wants.items()):
                return "Infeasible", _infeasible(wants, room)
            others = self._others(seen, node, pod)
            lacking = lacking_resource(_node_view(node), others, wants)
        except (InvalidObject, msgspec.ValidationError) as error:
            return "Infeasible", str(error)
        if lacking is not None:
            name, asked, used, there = lacking
            return "Deferred", (
                f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, "
                f"capacity: {there}"
            )
        self._taken[uid_of(pod)] = Taken(wants, host_ports(view))
        return None

    def _others(self, seen: ObjectStore, node: Object, pod: Object) -> list[Taken]:
        admitted, own = self._admitted.get(name_of(node), {}), uid_of(pod)
        return [
            self._taken_by(other)
            for other in seen.pods_on(name_of(node))
            if uid_of(other) in admitted and uid_of(other) != own
        ]

    def _taken_by(self, pod: Object) -> Taken:
        """What it was given, as its status says it; what it asks for, where that says nothing."""
        uid = uid_of(pod)
        known = self._taken.get(uid)
        if known is None:
            try:
                view = _view(_as_allocated(pod))
                known = Taken(requested_amounts(view, use_status=False), host_ports(view))
            except (InvalidObject, msgspec.ValidationError):
                known = Taken({})  # nobody could tell; others run all the same
            self._taken[uid] = known
        return known


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
