"""Law `hold-and-wait`: a pod without a node does not hold a device for 60 s while another pod could
use the device.
"""

from collections.abc import Iterator
from typing import Final

from stower.devices.negotiation.claims import class_names, driver_of, is_delayed, is_leaving
from stower.model.kinds import PersistentVolumeClaim, Pod, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.filter_model import FilterModel, NodeUsage, Placed
from stower.sim.resource_drivers import count_requested
from stower.sim.server import Change
from stower.state.claim_release import is_available_on
from stower.state.devices import used_claim_keys
from stower.state.volumes import claims_of

HELD_NS: Final = 60 * SECOND_NS


class HoldAndWait(Checker):
    """Looks at allocated claims of pods without a node, and for pods that want the same.

    Another pod could use the devices for certain if a node of the allocation passes all filters
    (filter_model.py), and has devices for all claims of the pod with those that are held but not
    without; pods of groups are left out. A claim whose deallocation is requested is
    held by its driver, not by the pod. A pod whose volume is not provisioned yet keeps its devices,
    as upstream.
    """

    law = "hold-and-wait"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._held_ns: dict[tuple[str, str], int] = {}  # since when, by claim, other pod and node
        self._usage = NodeUsage()

    def on_change(self, change: Change) -> None:
        """Count what pods hold."""
        self._usage.on_change(change)

    def check(self) -> None:
        """Of each device that waits with its pod, how long, and who else wants it."""
        now_ns = self.court.agenda.now_ns
        awake_ns = min((p.awake_since_ns for p in self.court.schedulers), default=now_ns)
        in_vain = [*self._list_held()]
        wanting = [*self._list_wanting()] if in_vain else []
        nodes = FittingNodes(self.court, self._usage)
        held: dict[tuple[str, str], int] = {}
        for claim, holder in in_vain:
            for other, node in self._find_users(claim, holder, wanting, nodes):
                # The same claim, pod and node for the whole time.
                key = (f"{claim.metadata.uid} {other.metadata.uid}", node)
                held[key] = since_ns = self._held_ns.get(key, now_ns)
                if now_ns - max(since_ns, awake_ns) > HELD_NS:
                    raise self.violation(
                        f"pod {holder.key} has no node and holds claim {claim.metadata.key} for "
                        f"{(now_ns - since_ns) // SECOND_NS} s, want at most "
                        f"{HELD_NS // SECOND_NS} s, while pod {other.key} could use the devices on "
                        f"node {node}"
                    )
        self._held_ns = held

    def _list_held(self) -> Iterator[tuple[ResourceClaim, Pod]]:
        """Yields allocated claims whose pods all have no node, with one of these pods."""
        server = self.court.server
        users: dict[str, list[Pod]] = {}
        for pod in server.pods_on("").values():
            for key in used_claim_keys(pod) if not pod.is_terminal else ():
                users.setdefault(key, []).append(pod)
        for pod in server.all(Pod).values() if users else ():
            if pod.spec.node_name and not pod.is_terminal:
                for key in used_claim_keys(pod):
                    users.pop(key, None)
        for key, pods in users.items():
            claim = server.get(ResourceClaim, key)
            if claim is None or claim.status.allocation is None or is_leaving(claim):
                continue
            holding = {user.uid for user in claim.status.reserved_for or ()}
            holding.add(claim.metadata.controller_uid)  # made for the pod
            holders = [pod for pod in pods if pod.metadata.uid in holding]
            if holders and not any(self._awaits_volumes(pod) for pod in holders):
                yield claim, holders[0]

    def _awaits_volumes(self, pod: Pod) -> bool:
        keys = (f"{pod.metadata.namespace}/{name}" for name, _ in claims_of(pod))
        found = (self.court.server.get(PersistentVolumeClaim, key) for key in keys)
        return any(claim is None or not claim.is_bound for claim in found)

    def _list_wanting(self) -> Iterator[tuple[Pod, list[ResourceClaim]]]:
        """Yields pods that belong to no group, with their claims; some of the claims are not
        allocated."""
        server = self.court.server
        for pod in server.pods_on("").values():
            claims = [server.get(ResourceClaim, key) for key in used_claim_keys(pod)]
            waits = not (
                pod.spec.scheduling_gates or pod.group_name or pod.metadata.deletion_timestamp
                or pod.is_terminal
            )  # fmt: skip
            if not waits or len(claims) != len(pod.spec.resource_claims or ()):
                continue
            if any(claim is None or is_leaving(claim) or not is_delayed(claim) for claim in claims):
                continue
            if any(claim.status.allocation is None for claim in claims):
                yield pod, claims

    def _find_users(
        self,
        claim: ResourceClaim,
        holder: Pod,
        wanting: list[tuple[Pod, list[ResourceClaim]]],
        nodes: "FittingNodes",
    ) -> Iterator[tuple[Pod, str]]:
        """Yields pods that could use the claim's devices, each with a node."""
        allocation = claim.status.allocation
        if allocation is None:
            return
        for other, claims in wanting:
            if other.metadata.uid == holder.metadata.uid or not self._may_help(claim, claims):
                continue
            for name in nodes.of(other):
                if is_available_on(allocation, name) and self._has_devices(claim, claims, name):
                    yield other, name
                    break

    def _may_help(self, held: ResourceClaim, claims: list[ResourceClaim]) -> bool:
        """Returns whether some claim that is not allocated asks for devices of the same kind."""
        classes = self.court.server.all(ResourceClass)
        driver = driver_of(held, classes)
        return any(
            driver_of(claim, classes) == driver if driver else claim.spec == held.spec
            for claim in claims
            if claim.status.allocation is None
        )

    def _has_devices(self, held: ResourceClaim, claims: list[ResourceClaim], node: str) -> bool:
        """Returns whether a node has devices for all claims with those of the held claim, and not
        without. Of structured devices, only the same request is known to get the same devices."""
        server = self.court.server
        missing = []
        for claim in claims:
            if claim.status.allocation is None:
                missing.append(claim)
            elif not is_available_on(claim.status.allocation, node):
                return False
        drivers = self.court.negotiators.processes
        classes = server.all(ResourceClass)
        of_held = driver_of(held, classes)
        if not of_held:
            return len(missing) == 1 and missing[0].spec == held.spec
        wanted: dict[str, int] = {}
        for claim in missing:
            driver = driver_of(claim, classes)
            if driver not in drivers or not self._is_suitable(claim, node):
                return False
            wanted[driver] = wanted.get(driver, 0) + count_requested(claim)
        free = {driver: drivers[driver].driver.count_free(node) for driver in wanted}
        if of_held not in wanted or all(free[driver] >= n for driver, n in wanted.items()):
            return False
        free[of_held] += count_requested(held)
        return all(free[driver] >= n for driver, n in wanted.items())

    def _is_suitable(self, claim: ResourceClaim, node: str) -> bool:
        """Returns whether the claim's class names no nodes; with nodes, it is not compared."""
        found = self.court.server.all(ResourceClass)
        classes = [found.get(name) for name in class_names(claim)]
        return all(each is not None and each.suitable_nodes is None for each in classes)


class FittingNodes:
    """The nodes that pods fit on but for their devices, at one moment; computed when asked for."""

    def __init__(self, court: Court, usage: NodeUsage) -> None:
        self._court = court
        self._usage = usage
        self._model: FilterModel | None = None
        self._names: dict[str, list[str]] = {}  # by the pod's uid

    def of(self, pod: Pod) -> list[str]:
        """Returns the names of the pod's nodes. What is reserved for VMs counts for each pod."""
        uid = pod.metadata.uid
        if uid not in self._names:
            if self._model is None:
                placed = [*self._list_in_flight()]
                self._model = FilterModel(self._court.server, self._usage, placed)
            self._names[uid] = self._model.feasible_nodes(pod, True, without_devices=True)
        return self._names[uid]

    def _list_in_flight(self) -> Iterator[Placed]:
        """Yields pods that a scheduler has given a node; the API does not show that yet."""
        engines = [each.engine for each in self._court.schedulers if each.engine is not None]
        for pod in self._court.server.pods_on("").values():
            for engine in engines:
                entry = engine.state.pods.get(pod.metadata.uid)
                if entry is not None and entry.is_assumed and entry.row >= 0:
                    yield Placed(pod, engine.state.node_names[entry.row])
                    break
