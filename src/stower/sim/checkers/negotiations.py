"""Law `negotiations`: drivers and the scheduler follow the protocol of negotiated devices."""

from collections import Counter
from typing import Final

from stower.devices.negotiation.claims import driver_of, is_delayed
from stower.framework.events import WatchType
from stower.groups.tree import DEPTH_MAX
from stower.model.kinds import (
    CompositePodGroup,
    GroupObject,
    Node,
    Pod,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
)
from stower.model.kinds.pod_scheduling import NODES_MAX
from stower.model.kinds.resource_claim import POD_CLAIM_NAME
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.checkers.group_roots import groups_around
from stower.sim.resource_drivers import count_requested
from stower.sim.server import Change

# Of a claim that was made for a pod: so long it may be allocated for nobody. Drivers may be down
# for two minutes, and the scheduler for as long.
IDLE_NS: Final = 600 * SECOND_NS
# A pod that some node would do for, each time that it asks, has one after so many rounds.
ROUNDS_MAX: Final = 20
# Room that a pod has left is asked for, answered and taken within so long.
TAKEN_NS: Final = 120 * SECOND_NS
# So long pods of a group may have devices before all of them have: as long as law hold-and-wait.
GROUP_NS: Final = 60 * SECOND_NS


class Negotiations(Checker):
    """Lists are within their caps, rounds and attempts never fall; what a driver has taken it has;
    no pod's own claim is allocated for nobody for ten minutes; a pod is not asked about for ever
    while some node would do, for as many pods of its group as its minimum lacks; and at the end, a
    pod that waits has nothing allocated, and nothing that it waits for is left."""

    law = "negotiations"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._idle_ns: dict[str, int] = {}
        # By uid of what is said about a pod: round and attempt, in how many rounds there was one
        # and the same node, and the nodes that there were in all of these.
        self._rounds: dict[str, tuple[int, int, int, frozenset[str]]] = {}
        self._left_ns = 0  # when the last pod has left a node
        self._allocated_ns: dict[str, int] = {}  # since when claims are allocated, by uid

    def on_change(self, change: Change) -> None:
        """Look at what is said."""
        _, kind, obj = change
        if isinstance(obj, ResourceClaim):
            if kind is WatchType.DELETED or obj.status.allocation is None:
                self._allocated_ns.pop(obj.metadata.uid, None)
            else:
                self._allocated_ns.setdefault(obj.metadata.uid, self.court.agenda.now_ns)
        elif isinstance(obj, PodScheduling) and kind is not WatchType.DELETED:
            self._check_scheduling(obj)
            self._count_rounds(obj)
        elif isinstance(obj, PodScheduling):
            self._rounds.pop(obj.metadata.uid, None)
        elif isinstance(obj, Pod) and obj.spec.node_name:
            if kind is WatchType.DELETED or obj.is_terminal:
                self._left_ns = self.court.agenda.now_ns

    def _check_scheduling(self, said: PodScheduling) -> None:
        key, spec = said.metadata.key, said.spec
        if len(spec.potential_nodes or ()) > NODES_MAX:
            raise self.violation(
                f"PodScheduling {key} has {len(spec.potential_nodes or ())} potentialNodes, want "
                f"at most {NODES_MAX}"
            )
        for answer in said.status.resource_claims or ():
            if len(answer.unsuitable_nodes or ()) > NODES_MAX:
                raise self.violation(
                    f"PodScheduling {key} has {len(answer.unsuitable_nodes or ())} "
                    f"unsuitableNodes of claim {answer.name}, want at most {NODES_MAX}"
                )
            if answer.observed_round > spec.round:
                raise self.violation(
                    f"PodScheduling {key} has a response for round {answer.observed_round} of "
                    f"claim {answer.name}, but its round is {spec.round}"
                )

    def _count_rounds(self, said: PodScheduling) -> None:
        """Rounds, and those that were asked though a node would do."""
        spec, key = said.spec, said.metadata.key
        rounds, attempt, count, names = self._rounds.get(said.metadata.uid, (0, 0, 0, frozenset()))
        if spec.round < rounds or spec.attempt < attempt:
            raise self.violation(
                f"PodScheduling {key} went from round {rounds}, attempt {attempt} back to round "
                f"{spec.round}, attempt {spec.attempt}"
            )
        pod = self.court.server.get(Pod, key)
        if spec.round > rounds and pod is not None and pod.metadata.uid == said.owner_uid:
            used = self._list_used(pod)
            own = [c for c in used if c.status.allocation is None and is_delayed(c)]
            now = self._could_go(pod, used, own) if own else frozenset()
            names = names & now if count else now
            count = count + 1 if names else 0
            if count > ROUNDS_MAX:
                raise self.violation(
                    f"PodScheduling {key} had {count} rounds while node {min(names)} fits, want at "
                    f"most {ROUNDS_MAX}"
                )
        self._rounds[said.metadata.uid] = (spec.round, spec.attempt, count, names)

    def check(self) -> None:
        """At devices, and at claims that nobody uses."""
        for name, process in self.court.negotiators.processes.items():
            free = process.driver.free_counts()
            for node in process.driver.devices:
                if free(node) < 0:
                    raise self.violation(
                        f"driver {name} has allocated more devices of node {node} than it has"
                    )
        now_ns, idle = self.court.agenda.now_ns, {}
        for key, claim in self._claims().items():
            made_for_pod = POD_CLAIM_NAME in (claim.metadata.annotations or {})
            owned = made_for_pod or claim.metadata.controller is not None
            if owned and claim.status.allocation is not None and not claim.status.reserved_for:
                idle[key] = self._idle_ns.get(key, now_ns)
                if now_ns - idle[key] > IDLE_NS:
                    raise self.violation(
                        f"claim {key} has been allocated without a reservation for more than "
                        f"{IDLE_NS // SECOND_NS} s"
                    )
        self._idle_ns = idle

    def _claims(self) -> dict[str, ResourceClaim]:
        classes = self.court.server.all(ResourceClass)
        claims = self.court.server.all(ResourceClaim).items()
        return {key: claim for key, claim in claims if driver_of(claim, classes)}

    def check_end(self) -> None:
        """All or none; and none where there is nothing left to have."""
        claims = self._claims()
        for name, process in self.court.negotiators.processes.items():
            for entry in process.ledger.entries.values():
                claim = claims.get(f"{entry.namespace}/{entry.name}")
                if claim is None or claim.metadata.uid != entry.uid:
                    raise self.violation(
                        f"driver {name} keeps a device for claim {entry.namespace}/{entry.name}, "
                        "which is deleted"
                    )
                if claim.status.allocation is None:
                    raise self.violation(
                        f"driver {name} keeps a device for claim {entry.namespace}/{entry.name}, "
                        "which is not allocated"
                    )
        for pod in self.court.server.pods_on("").values():
            self._check_waiting(pod)

    def _list_used(self, pod: Pod) -> list[ResourceClaim]:
        server = self.court.server
        classes = server.all(ResourceClass)
        names = [e.resource_claim_name for e in pod.spec.resource_claims or ()]
        names += [s.resource_claim_name for s in pod.status.resource_claim_statuses or ()]
        found = [server.get(ResourceClaim, f"{pod.metadata.namespace}/{n}") for n in names if n]
        return [claim for claim in found if claim is not None and driver_of(claim, classes)]

    def _check_waiting(self, pod: Pod) -> None:
        used = self._list_used(pod)
        if pod.is_terminal or not used:
            return
        if self.court.agenda.now_ns - self._left_ns < TAKEN_NS:
            return  # what it has may be the first half of what it is about to get
        for claim in used:
            users = {user.uid for user in claim.status.reserved_for or ()}
            since_ns = self._allocated_ns.get(claim.metadata.uid, 0)
            if pod.group_name and self.court.agenda.now_ns - since_ns < GROUP_NS:
                continue  # an attempt of the group is not over
            if is_delayed(claim) and users == {pod.metadata.uid}:
                raise self.violation(
                    f"pod {pod.key} is pending, but claim {claim.metadata.key} is reserved for it"
                )
        own = [c for c in used if c.status.allocation is None and is_delayed(c)]
        where = self._could_go(pod, used, own)
        if own and where and not pod.group_name:
            raise self.violation(
                f"pod {pod.key} is pending, but node {min(where)} has the devices of all its claims"
            )

    def _could_go(
        self, pod: Pod, used: list[ResourceClaim], own: list[ResourceClaim]
    ) -> frozenset[str]:
        """The nodes that would do, and on which every driver has what is claimed. Of a pod of a
        group: those that have this for as many such pods as the group's minimum lacks."""
        if any(c.metadata.deletion_timestamp is not None for c in used):
            return frozenset()
        if any(c.status.allocation is None and not is_delayed(c) for c in used):
            return frozenset()
        classes = self.court.server.all(ResourceClass)
        for process in self.court.schedulers:
            engine = process.engine
            queued = engine.queue.get(pod.metadata.uid) if engine is not None else None
            if engine is None or queued is None:
                continue
            if not own:
                return frozenset()
            wanted: dict[str, int] = {}
            for claim in own:
                driver = driver_of(claim, classes)
                wanted[driver] = wanted.get(driver, 0) + count_requested(claim)
            drivers = self.court.negotiators.processes
            free = {name: drivers[name].driver.free_counts() for name in wanted}
            standing = engine.cycle.scores_of(queued.profile, queued.entry)
            levels, bound = self._levels(pod), self._list_bound(pod)
            places: Counter[tuple[int, tuple[str, ...]]] = Counter()
            domains: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
            for row in (standing >= 0).nonzero()[0].tolist():
                name = engine.state.node_names[row]
                devices = min(free[driver](name) // count for driver, count in wanted.items())
                if devices <= 0:
                    continue
                requests = queued.entry.shape.requests
                rooms = (column.free(slice(row, row + 1))[0] // n for column, n in requests)
                labels = engine.state.node_at(row).metadata.labels or {}
                if any(labels.get(key, "") not in values for key, values in bound):
                    continue
                domains[name] = [
                    (i, tuple(labels.get(key, "") for key in keys))
                    for i, (keys, _) in enumerate(levels)
                ]
                for domain in domains[name]:
                    places[domain] += max(int(min((devices, *rooms))), 1)
            found = frozenset(
                name
                for name, own_domains in domains.items()
                if all(places[domain] >= levels[domain[0]][1] for domain in own_domains)
            )
            if found:
                return found
        return frozenset()

    def _levels(self, pod: Pod) -> list[tuple[list[str], int]]:
        """For the pod's group and each group around it: the topology keys that hold there, and how
        many pods below it the minimums lack, as if all wanted as many devices as this pod."""
        found: list[tuple[list[str], int]] = []
        lacking = 1
        for group in groups_around(self.court.server, pod):
            constraints = group.spec.scheduling_constraints
            own = [constraints.key] if constraints is not None and constraints.key else []
            for keys, _ in found:
                keys += own
            lacking = max(lacking, self._count_lacking(group))
            found.append((own, lacking))
        return found or [([], lacking)]

    def _list_bound(self, pod: Pod) -> list[tuple[str, set[str]]]:
        """The topology keys of the groups around the pod that have placed pods, and where these
        are: the pod can go nowhere else."""
        server, found = self.court.server, []
        around = groups_around(server, pod)
        if not any(group.spec.scheduling_constraints for group in around):
            return []
        placed: dict[str, list[Pod]] = {}
        for key, group in server.all(PodGroup).items():
            if group.metadata.namespace == pod.metadata.namespace:
                members = server.pods_of(key).values()
                there = [one for one in members if one.spec.node_name and not one.is_terminal]
                if there:
                    placed[key] = there
        inside = {
            name: {group.metadata.uid for group in groups_around(server, others[0])}
            for name, others in placed.items()
        }
        for group in around:
            constraints = group.spec.scheduling_constraints
            key = constraints.key if constraints is not None else ""
            values = {
                ((node.metadata.labels or {}).get(key, "") if node is not None else "")
                for name, others in placed.items()
                if key and group.metadata.uid in inside[name]
                for node in (server.get(Node, other.spec.node_name) for other in others)
            }
            if values:
                found.append((key, values))
        return found

    def _count_lacking(self, group: GroupObject, level: int = 0) -> int:
        """How many pods the minimums at and below a group lack; 0 where some of its groups are
        enough."""
        server, meta = self.court.server, group.metadata
        if isinstance(group, PodGroup):
            placed = sum(
                bool(pod.spec.node_name) and not pod.is_terminal
                for pod in server.pods_of(meta.key).values()
            )
            return max(group.minimum - placed, 0)
        children = [
            child
            for view in (PodGroup, CompositePodGroup)
            for child in server.all(view).values()
            if child.metadata.namespace == meta.namespace
            and child.spec.parent_composite_pod_group_name == meta.name
        ]
        if group.minimum < len(children) or level >= DEPTH_MAX:
            return 0
        return sum(self._count_lacking(child, level + 1) for child in children)
