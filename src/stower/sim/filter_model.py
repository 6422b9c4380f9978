"""Decides on which nodes a pod fits, by the API's objects alone: the filters, slow and obvious.

Shares no code with the plugins, the state or the caches of the engine. Where a pod has something
that is not modelled, it fits nowhere. Counts pods in flight where the caller says that they are.
Source: kube-scheduler's plugins; docs/limits.md says what is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    StorageClass,
    WarmPool,
)
from stower.model.kinds.pod import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from stower.model.kinds.storage import WAIT_FOR_FIRST_CONSUMER
from stower.model.kubelet_admission import has_affinity, have_port_conflict, requested
from stower.model.resources import PODS, Amounts, host_ports, node_room
from stower.model.selectors import LabelSelector, node_selector_matches
from stower.model.taints import Taint, is_tolerated
from stower.sim.device_fit import DeviceFits, Devices
from stower.sim.server import Change, Server, group_key_of
from stower.sim.vm_holdings import reserved_amounts
from stower.state.volumes import claims_of, is_made_for
from stower.vms.config import SHIPPED
from stower.vms.ledger import amounts_of
from stower.warm.pools import Role, pool_role_of

UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
Predicate = Callable[[Node], bool]


class Placed(NamedTuple):
    """A pod, and the node that it is on, or has been given."""

    pod: Pod
    node_name: str


class NodeUsage:
    """What the pods of each node request together; follows the changes of the server."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Placed, Amounts]] = {}  # by uid
        self._used: dict[str, Amounts] = {}  # by node
        self._rooms: dict[str, tuple[Node, Amounts]] = {}  # by node
        self.device_fits = DeviceFits()
        self.with_anti_affinity: dict[str, Placed] = {}  # by uid, pods that have required terms

    def on_change(self, change: Change) -> None:
        """Count a pod that came, changed, ended or went."""
        _, kind, pod = change
        if not isinstance(pod, Pod):
            return
        uid, before = pod.metadata.uid, self._held.get(pod.metadata.uid)
        is_there = bool(pod.spec.node_name) and not pod.is_terminal
        if before is not None:
            if is_there and kind is not WatchType.DELETED and _is_alike(before[0].pod, pod):
                if uid in self.with_anti_affinity:
                    self.with_anti_affinity[uid] = Placed(pod, pod.spec.node_name)
                return
            del self._held[uid]
            self.with_anti_affinity.pop(uid, None)
            self._add(before[0].node_name, before[1], -1)
        if is_there and kind is not WatchType.DELETED:
            amounts = {**requested(pod), PODS: 1}
            self._held[uid] = Placed(pod, pod.spec.node_name), amounts
            self._add(pod.spec.node_name, amounts, 1)
            if required_terms(pod, anti=True):
                self.with_anti_affinity[uid] = self._held[uid][0]

    def _add(self, node_name: str, amounts: Amounts, sign: int) -> None:
        used = self._used.setdefault(node_name, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount

    def room(self, node: Node) -> Mapping[str, int]:
        """Returns what a node has in all. Read only."""
        known = self._rooms.get(node.metadata.name)
        if known is None or known[0] is not node:
            known = self._rooms[node.metadata.name] = node, node_room(node.status.allocatable)
        return known[1]

    def used(self, node_name: str) -> Mapping[str, int]:
        """Returns the sum of a node. Read only."""
        return self._used.get(node_name, {})


def _without_claim(pod: Pod) -> Pod:
    """Returns the pod without the claim for its extended resources that an attempt to bind it has
    left in its status: where it goes, devices are still to be found."""
    if pod.status.extended_resource_claim_status is None:
        return pod
    status = msgspec.structs.replace(pod.status, extended_resource_claim_status=None)
    return msgspec.structs.replace(pod, status=status)


def _is_alike(old: Pod, new: Pod) -> bool:
    """Whether both hold the same room of the same node."""
    return (
        old.spec.node_name == new.spec.node_name
        and old.spec.containers == new.spec.containers
        and old.status.container_statuses == new.status.container_statuses
        and old.status.extended_resource_claim_status == new.status.extended_resource_claim_status
        and old.status.node_allocatable_resource_claim_statuses
        == new.status.node_allocatable_resource_claim_statuses
    )


class FilterModel:
    """All filters for one pod after another, at one moment."""

    def __init__(self, server: Server, usage: NodeUsage, in_flight: Iterable[Placed]) -> None:
        """in_flight: pods that have been given a node that the API does not show yet."""
        self._server = server
        self._usage = usage
        self._devices: Devices | None = None
        self._reserved: dict[str, tuple[int, int]] = {}  # for VMs, by node
        self._in_flight: dict[str, list[Placed]] = {}
        for placed in in_flight:
            self._in_flight.setdefault(placed.node_name, []).append(placed)

    def feasible_nodes(
        self, pod: Pod, counts_vms: bool, *, without_devices: bool = False
    ) -> list[str]:
        """Returns the names of the nodes on which the pod fits. counts_vms: the pod's profile
        counts what is reserved for VMs. without_devices: the pod's claims are not looked at."""
        found = (self._group(pod), self._volumes(pod), self._warmth(pod))
        of_pod = [predicate for predicate in found if predicate is not None]
        if len(of_pod) < len(found):
            return []
        nominated = list(self._nominated(pod))
        want = {**requested(_without_claim(pod)), PODS: 1}
        nodes = [
            node
            for node in self._server.all(Node).values()
            if self._has_room(node, want, nominated)
            and self._is_open(node, pod, nominated)
            and all(predicate(node) for predicate in of_pod)
        ]
        builders: list[Callable[[], Predicate | None]] = [
            lambda: self._vm_room(pod) if counts_vms else _anywhere,
            lambda: self._spread(pod, []),
            lambda: self._affinity(pod, []),
            lambda: self._spread(pod, nominated) if nominated else _anywhere,
            lambda: self._affinity(pod, nominated) if nominated else _anywhere,
            lambda: _anywhere if without_devices else self._claims(pod),
        ]
        for build in builders:
            if not nodes:
                return []
            predicate = build()
            nodes = [node for node in nodes if predicate(node)] if predicate is not None else []
        return [node.metadata.name for node in nodes]

    def _claims(self, pod: Pod) -> Predicate | None:
        if not pod.spec.resource_claims:
            return _anywhere
        if self._devices is None:
            self._devices = Devices(self._server)
        return self._usage.device_fits.predicate(self._devices, pod)

    def _nominated(self, pod: Pod) -> Iterator[Placed]:
        """The pods that were promised a node and come before this one."""
        for other in self._server.pods_on("").values():
            name = other.status.nominated_node_name
            if name and other.metadata.uid != pod.metadata.uid and other.priority >= pod.priority:
                yield Placed(other, name)

    def _beside(self, node_name: str, nominated: Iterable[Placed]) -> Iterator[Pod]:
        """The pods that are on their way to the node."""
        yield from (placed.pod for placed in self._in_flight.get(node_name, ()))
        yield from (placed.pod for placed in nominated if placed.node_name == node_name)

    # One node

    def _has_room(self, node: Node, want: Amounts, nominated: Iterable[Placed]) -> bool:
        name = node.metadata.name
        room, used = self._usage.room(node), self._usage.used(name)
        for resource, amount in want.items():
            if amount and amount + used.get(resource, 0) > room.get(resource, 0):
                return False
        if not (nominated or name in self._in_flight):
            return True
        beside = [*self._beside(name, nominated)]
        total = dict(used)
        for pod in beside:
            for resource, amount in {**requested(pod), PODS: 1}.items():
                total[resource] = total.get(resource, 0) + amount
        return all(
            not amount or amount + total.get(resource, 0) <= room.get(resource, 0)
            for resource, amount in want.items()
        )

    def _is_open(self, node: Node, pod: Pod, nominated: Iterable[Placed]) -> bool:
        tolerations = pod.spec.tolerations or ()
        if node.spec.unschedulable and not is_tolerated(tolerations, UNSCHEDULABLE):
            return False
        if not has_affinity(node, pod) or not tolerates_all(node, pod):
            return False
        if not host_ports(pod):
            return True
        name = node.metadata.name
        there = [p for p in self._server.pods_on(name).values() if not p.is_terminal]
        return not any(have_port_conflict(o, pod) for o in (*there, *self._beside(name, nominated)))

    # All nodes

    def _everybody(self, nominated: Iterable[Placed]) -> Iterator[Placed]:
        yield from self._placed(self._server.all(Pod).values())
        yield from nominated

    def _placed(self, pods: Iterable[Pod]) -> Iterator[Placed]:
        """Those of the pods that are placed, and all pods that are about to be."""
        for pod in pods:
            if pod.spec.node_name and not pod.is_terminal:
                yield Placed(pod, pod.spec.node_name)
        for placed in self._in_flight.values():
            yield from placed

    def _labels(self, node_name: str) -> Mapping[str, str]:
        node = self._server.get(Node, node_name)
        return (node.metadata.labels or {}) if node is not None else {}

    def _group(self, pod: Pod) -> Predicate | None:
        """A pod of a group that has its minimum, and no parent, joins its domain. All others wait
        for pods that are placed with them."""
        if not pod.group_name:
            return _anywhere
        key = group_key_of(pod)
        group = self._server.get(PodGroup, key)
        if group is None or group.spec.parent_composite_pod_group_name:
            return None
        placed = [
            one.node_name
            for one in self._placed(self._server.pods_of(key).values())
            if one.pod.group_name
            and group_key_of(one.pod) == key
            and one.pod.metadata.deletion_timestamp is None
        ]
        if len(placed) < group.minimum or group.spec.resource_claims:
            return None
        constraints = group.spec.scheduling_constraints
        label = constraints.key if constraints is not None else ""
        domains = {self._labels(name).get(label) for name in placed}
        return lambda node: not label or {(node.metadata.labels or {}).get(label)} == domains

    def _volumes(self, pod: Pod) -> Predicate | None:
        """Claims that are bound, or whose volumes are made where the pod goes."""
        wants: list[Predicate] = []
        for volume in pod.spec.volumes or ():
            if volume.ephemeral is None and volume.persistent_volume_claim is None:
                return None
        if pod.spec.volumes and self._server.all(CSINode):
            return None  # limits of drivers
        for name, is_ephemeral in claims_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            claim = self._server.get(PersistentVolumeClaim, key)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                return None
            if is_ephemeral and not is_made_for(claim, pod):
                return None
            predicate = self._volume(claim)
            if predicate is None:
                return None
            wants.append(predicate)
        return lambda node: all(predicate(node) for predicate in wants)

    def _volume(self, claim: PersistentVolumeClaim) -> Predicate | None:
        if set(claim.spec.access_modes or ()) != {"ReadWriteOnce"}:
            return None
        if claim.is_bound:
            volume = self._server.get(PersistentVolume, claim.spec.volume_name)
            if volume is None or volume.metadata.labels:
                return None  # a volume with labels may be of a zone
            affinity = volume.spec.node_affinity
            required = affinity.required if affinity is not None else None
            return lambda node: (
                required is None
                or node_selector_matches(required, node.metadata.labels or {}, node.metadata.name)
            )
        made = self._server.get(StorageClass, claim.class_name)
        if made is None or made.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            return None
        if made.allowed_topologies or (self._server.all(PersistentVolume) and claim.spec.selector):
            return None
        selected = claim.selected_node
        return lambda node: not selected or node.metadata.name == selected

    def _warmth(self, pod: Pod) -> Predicate | None:
        """A user goes to nodes of its pool that have the images, a placeholder nowhere."""
        found = pool_role_of(self._server.all(WarmPool).values(), pod)
        if found is None:
            return _anywhere
        pool, role = found
        images = pool.spec.images
        if role is not Role.USER or images.pullers is not None or images.of_users:
            return None
        names = images.names or ()
        return lambda node: pool.holds(node) and _has_images(node, names)

    def _vm_room(self, pod: Pod) -> Predicate:
        """The room that is not reserved for VMs; for one that leaves a node above its watermark, up
        to the watermark."""
        cpu, memory = amounts_of(pod) or (0, 0)
        owners = pod.metadata.owner_references or ()
        leaves = any(one.controller and one.name.startswith("schedplugin-") for one in owners)
        share = SHIPPED.watermark if leaves else 1

        def has_room(node: Node) -> bool:
            room, name = self._usage.room(node), node.metadata.name
            held = self._reserved.get(name)
            if held is None:
                held = self._reserved[name] = reserved_amounts(self._server, name)
            coming = [amounts_of(other) or (0, 0) for other in self._beside(name, ())]
            used = held[0] + cpu + sum(one for one, _ in coming)
            used_memory = held[1] + memory + sum(one for _, one in coming)
            total, total_memory = room.get("cpu", 0), room.get("memory", 0)
            return used <= int(total * share) and used_memory <= int(total_memory * share)

        return has_room

    def _spread(self, pod: Pod, nominated: list[Placed]) -> Predicate:
        """Hard constraints hold whether or not pods count that are being deleted: the pod is woken
        when these have gone, not when their deletion begins."""
        constraints = [
            each
            for each in pod.spec.topology_spread_constraints or ()
            if each.when_unsatisfiable == "DoNotSchedule"
        ]
        if not constraints:
            return _anywhere
        keys = {each.topology_key for each in constraints}
        everybody = list(self._everybody(nominated))
        staying = [one for one in everybody if one.pod.metadata.deletion_timestamp is None]
        wants = [
            self._spread_predicate(each, pod, keys, among)
            for each in constraints
            for among in (everybody, staying)
        ]
        return lambda node: all(predicate(node) for predicate in wants)

    def _spread_predicate(
        self, constraint: TopologySpreadConstraint, pod: Pod, keys: set[str], among: list[Placed]
    ) -> Predicate:
        key, domains, counts = constraint.topology_key, set(), {}
        eligible = set()
        for node in self._server.all(Node).values():
            labels = node.metadata.labels or {}
            if not keys.issubset(labels):
                continue
            if constraint.node_affinity_policy in (None, "Honor") and not has_affinity(node, pod):
                continue
            if constraint.node_taints_policy == "Honor" and not tolerates_all(node, pod):
                continue
            domains.add(labels[key])
            eligible.add(node.metadata.name)
        counts = dict.fromkeys(domains, 0)
        for other, node_name in among:
            if node_name in eligible and _is_spread_with(constraint, pod, other):
                counts[self._labels(node_name)[key]] += 1
        least = min(counts.values(), default=0)
        if len(domains) < (constraint.min_domains or 1):
            least = 0
        own = 1 if _is_spread_with(constraint, pod, pod) else 0

        def is_even(node: Node) -> bool:
            value = (node.metadata.labels or {}).get(key)
            return value is not None and counts.get(value, 0) + own - least <= constraint.max_skew

        return is_even

    def _affinity(self, pod: Pod, nominated: list[Placed]) -> Predicate:
        """Required affinity and anti-affinity, of the pod and of those that are there."""
        near, far = required_terms(pod, anti=False), required_terms(pod, anti=True)
        taken = self._avoided_domains(pod, nominated)
        if not near and not far:
            return lambda node: not _is_in(node, taken)
        everybody = list(self._everybody(nominated))
        for term in far:
            for other, node_name in everybody:
                value = self._labels(node_name).get(term.topology_key)
                if value is not None and self._matches(term, pod, other):
                    taken.add((term.topology_key, value))
        company = [o for o in everybody if all(self._matches(t, pod, o.pod) for t in near)]
        met = {
            (term.topology_key, value)
            for term in near
            for _, node_name in company
            if (value := self._labels(node_name).get(term.topology_key)) is not None
        }
        is_first = bool(near) and not met and all(self._matches(term, pod, pod) for term in near)

        def is_near(node: Node) -> bool:
            labels = node.metadata.labels or {}
            return all(
                term.topology_key in labels
                and (is_first or (term.topology_key, labels[term.topology_key]) in met)
                for term in near
            )

        return lambda node: is_near(node) and not _is_in(node, taken)

    def _avoided_domains(self, pod: Pod, nominated: list[Placed]) -> set[tuple[str, str]]:
        """The domains, as key and value, that other pods keep this one out of."""
        coming = [placed for all_of in self._in_flight.values() for placed in all_of]
        found = set()
        for other, node_name in (*self._usage.with_anti_affinity.values(), *coming, *nominated):
            for term in required_terms(other, anti=True):
                value = self._labels(node_name).get(term.topology_key)
                if value is not None and self._matches(term, other, pod):
                    found.add((term.topology_key, value))
        return found

    def _matches(self, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
        """Whether the term of one pod selects the other."""
        namespace = other.metadata.namespace
        named = term.namespaces or ()
        if term.namespace_selector is not None:
            found = self._server.get(Namespace, namespace)
            labels = (found.metadata.labels or {}) if found is not None else {}
            if namespace not in named and not term.namespace_selector.matches(labels):
                return False
        elif namespace not in (named or (owner.metadata.namespace,)):
            return False
        if term.label_selector is None:
            return False
        own, labels = owner.metadata.labels or {}, other.metadata.labels or {}
        return (
            term.label_selector.matches(labels)
            and all(labels.get(k) == own[k] for k in term.match_label_keys or () if k in own)
            and all(labels.get(k) != own[k] for k in term.mismatch_label_keys or () if k in own)
        )


def required_terms(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    """Returns the required terms of the pod's affinity, or anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    terms: PodAffinity | None = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return (terms.required or ()) if terms is not None else ()


def tolerates_all(node: Node, pod: Pod) -> bool:
    """Returns whether the pod tolerates all taints that keep pods off the node."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or is_tolerated(pod.spec.tolerations or (), taint)
        for taint in node.spec.taints or ()
    )


def _is_spread_with(constraint: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    """Whether the other pod counts for the constraint of this one."""
    selector: LabelSelector | None = constraint.label_selector
    if selector is None or other.metadata.namespace != pod.metadata.namespace:
        return False
    own, labels = pod.metadata.labels or {}, other.metadata.labels or {}
    return selector.matches(labels) and all(
        labels.get(key) == own[key] for key in constraint.match_label_keys or () if key in own
    )


def _is_in(node: Node, domains: set[tuple[str, str]]) -> bool:
    return any((node.metadata.labels or {}).get(key) == value for key, value in domains)


def _has_images(node: Node, names: Iterable[str]) -> bool:
    there = {name for image in node.status.images or () for name in image.names or ()}
    return there.issuperset(names)


def _anywhere(node: Node) -> bool:
    return True
