"""Simulates a day of a hub: users come and go, placeholders reserve room, nodes boot and pull.

The engine decides. The rest is an API without delay, kubelets that start pods whose images are on
the node, a puller on every node, the controller of the placeholders' StatefulSet if the policy has
one, and a cluster autoscaler (autoscaler.py).
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.framework.events import Event, Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.plugin import Features
from stower.framework.writes import AgentAnswer, CallExtender, CreateEvent, DeletePod, Solve, Write
from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS, time_text
from stower.plugins.warm_capacity import find_warm_controller
from stower.sim.agenda import Agenda
from stower.sim.autoscaler import Autoscaler, Machine, NodeGroup
from stower.sim.checkers.checker import ViolationError
from stower.sim.hub_day import Day, User
from stower.sim.hub_laws import LAWS, Law
from stower.sim.hub_policies import (
    IMAGE_BYTES,
    Policy,
    Scenario,
    setup_of,
)
from stower.sim.placeholder_sets import PlaceholderSet
from stower.sim.server import OK, Change, Server

SCAN_NS: Final = 10 * SECOND_NS
LOOK_NS: Final = 30 * SECOND_NS
MINUTE_NS: Final = 60 * SECOND_NS
DAY_NS: Final = 86_400 * SECOND_NS
HOUR_S: Final = 3600.0
ACTIVITY_NS: Final = 300 * SECOND_NS  # so much later a hub says that a user is idle
# What is told of a step of the engine: when, which event, what was written.
Tell = Callable[[int, Event, Sequence[Write]], None]


class Outcome(msgspec.Struct):
    """What came of a day. `waits_s`: of each user, from arrival to start; `broken`: the law that
    was, where the day has ended, and how."""

    policy: str
    seed: int
    waits_s: list[float] = []
    node_hours: float = 0.0
    cost: float = 0.0
    evicted: int = 0
    moved: int = 0
    moves_in_a_minute: int = 0  # at most
    nodes_made: int = 0
    cold: int = 0  # users who were given a node without their images
    steps: int = 0
    lowered: int = 0  # placeholders that were wanted no more
    orders_failed: int = 0  # for nodes that the provider did not have
    hours: float = 24.0  # that the day has
    broken: str = ""


class HubDay:
    """One day under one policy."""

    def __init__(
        self,
        day: Day,
        scenario: Scenario,
        policy: Policy,
        laws: Sequence[type[Law]] = LAWS,
        tell: Tell | None = None,
    ) -> None:
        """`laws`: looked at where the policy is ours; `tell`: is told of each step of the
        engine."""
        self._tell = tell
        self.day, self.scenario, self.policy = day, scenario, policy
        self.agenda = Agenda()
        self.agenda.now_ns = day.starts_ns
        self.server = Server(lambda: self.agenda.now_ns)
        self.server.tell.append(self._on_change)
        self.setup = setup = setup_of(scenario, policy, day)
        self.spec = setup.spec
        self.images = [{"names": [setup.image], "sizeBytes": IMAGE_BYTES}]
        self.engine = build_engine(
            setup.configuration,
            seed=day.seed,
            features=Features(warm_pools=bool(setup.pools)),
            contains_errors=False,
        )
        self._sets = [
            PlaceholderSet(
                self.server, self.agenda, namespace, one, setup.make_placeholder, self._users
            )
            for namespace, one in setup.settings.items()
            if not policy.has_own_placeholders
        ]
        self.outcome = Outcome(policy.name, day.seed, hours=day.length_s / HOUR_S)
        self.autoscaler = Autoscaler(self.server, setup.groups, self._order, self._remove)
        self.machines = self.autoscaler.machines
        self._warm = find_warm_controller(self.engine.state)
        self._moves_ns: list[int] = []
        self._inbox: deque[Event] = deque()
        self._made = 0
        self._waiting: dict[str, User] = {}  # by name
        self._came_ns: dict[str, int] = {}  # by uid
        self._wake_ns: int | None = None
        self._is_stepping = False
        self._is_listed = False  # before that, the engine knows of nothing
        self._told: set[str] = set()  # uids of pods that were seen on their nodes
        self._laws = (
            [law(self) for law in laws] if policy.has_own_placeholders and setup.has_laws else []
        )

    def run(self) -> Outcome:
        """From the first minute to the last."""
        self._order(self.setup.groups[0], warm=True)
        for pool in self.setup.pools:
            self.server.put(pool)
        self._is_listed = True
        self._send(Listed((*self.server.list_objects(),)))
        for i, user in enumerate(self.day.users):
            at_ns = self.day.starts_ns + int(user.arrival_s * SECOND_NS)
            self.agenda.schedule_at(at_ns, lambda i=i, user=user: self._add_user(i, user))  # type: ignore[misc]
        self._scan()
        self.agenda.schedule_after(
            LOOK_NS + SECOND_NS, self._check_laws
        )  # never in the moment of a scan
        end_ns = self.day.starts_ns + int(self.day.length_s * SECOND_NS)
        try:
            self.agenda.run(end_ns)
        except ViolationError as broken:
            at_s = (self.agenda.now_ns - self.day.starts_ns) / SECOND_NS
            self.outcome.broken = f"at {at_s:.0f} s: {broken}"
        for machine in self.machines.values():
            self._add_cost(machine)
        self._count_moves()
        for user in self._waiting.values():
            self.outcome.waits_s.append(self.day.length_s - user.arrival_s)
        return self.outcome

    def is_user(self, pod: Pod) -> bool:
        """Whether somebody uses it."""
        return pod.metadata.uid in self._came_ns

    def arrival_ns(self, pod: Pod) -> int:
        """When the user came."""
        return self._came_ns[pod.metadata.uid]

    def _check_laws(self) -> None:
        for law in self._laws:
            law.check()
        self.agenda.schedule_after(LOOK_NS, self._check_laws)

    def _count_moves(self) -> None:
        """What the scheduler deleted for users is what it deleted for nothing else."""
        warm = self._warm
        if warm is not None:
            self.outcome.moved = warm.figures.moved
            self.outcome.moves_in_a_minute = _most_in_a_minute(self._moves_ns)
            self.outcome.lowered = warm.figures.lowered
            self.outcome.evicted -= warm.figures.moved + warm.figures.lowered
        self.outcome.orders_failed = self.autoscaler.failed

    # Users

    def _add_user(self, i: int, user: User) -> None:
        pod = self.setup.make_user(i, user, time_text(self.agenda.now_ns))
        self._waiting[pod.metadata.name] = user
        self._came_ns[pod.metadata.uid] = self.agenda.now_ns
        self.server.put(pod)

    def _users(self, namespace: str) -> tuple[dict[str, Pod], dict[str, int]]:
        """Of one hub, and when they came, by uid."""
        users = {
            p.metadata.uid: p
            for p in self.server.all(Pod).values()
            if self.is_user(p) and p.metadata.namespace == namespace
        }
        return users, {uid: self._came_ns[uid] for uid in users}

    def _on_bind(self, pod: Pod) -> None:
        """A kubelet starts it once it has the image."""
        name, now_ns = pod.metadata.name, self.agenda.now_ns
        machine = self.machines.get(pod.spec.node_name)
        user = self._waiting.get(name)
        if machine is None:
            return
        at_ns = max(now_ns, machine.pulled_ns) if user is not None else now_ns
        if user is not None:
            del self._waiting[name]
            self.outcome.cold += machine.pulled_ns > now_ns
            for law in self._laws:
                law.on_bind(pod, machine)
            wait_s = (at_ns - self.day.starts_ns) / SECOND_NS - user.arrival_s
            self.outcome.waits_s.append(max(0.0, wait_s))
            ends_ns = at_ns + int(user.life_s * SECOND_NS)
            self.agenda.schedule_at(ends_ns, lambda: self._end(pod))
            active_ns = at_ns + int(min(user.active_s, user.life_s) * SECOND_NS)
            told_ns = active_ns + ACTIVITY_NS
            if told_ns < ends_ns:
                self.agenda.schedule_at(told_ns, lambda: self._tell_idle(pod, active_ns))
        self.agenda.schedule_at(at_ns, lambda: self._start(pod))

    def _start(self, pod: Pod) -> None:
        found = self.server.get(Pod, pod.metadata.key)
        if found is not None and found.metadata.uid == pod.metadata.uid:
            at = time_text(self.agenda.now_ns)
            status = msgspec.structs.replace(found.status, phase="Running", start_time=at)
            self.server.put(msgspec.structs.replace(found, status=status))

    def _tell_idle(self, pod: Pod, active_ns: int) -> None:
        """The hub says since when nothing is done there."""
        found = self.server.get(Pod, pod.metadata.key)
        if found is not None:
            name = self.spec.packing.last_activity_annotation
            notes = {**(found.metadata.annotations or {}), name: time_text(active_ns)}
            meta = msgspec.structs.replace(found.metadata, annotations=notes)
            self.server.put(msgspec.structs.replace(found, metadata=meta))

    def _end(self, pod: Pod) -> None:
        self.server.remove(pod)

    # Nodes

    def _order(self, group: NodeGroup, warm: bool = False) -> bool:
        """One more node, if the provider has one; the first is there, and warm."""
        at_s = self.agenda.now_ns % DAY_NS / SECOND_NS
        if any(first <= at_s < last for first, last in group.outages):
            return False
        number = self._made
        boot_s, pull_s = self.day.nodes[number % len(self.day.nodes)]
        chance = random.Random(f"{self.day.seed}:{number}:{group.name}")
        if group.boot_seconds is not None:
            boot_s = chance.uniform(*group.boot_seconds)
        if group.pull_seconds is not None:
            pull_s = chance.uniform(*group.pull_seconds)
        pull_s += self.scenario.late_s(self.day.seed, number)
        now_ns, name = self.agenda.now_ns, f"node-{number:03d}"
        self._made += 1
        self.outcome.nodes_made += 1
        ready_ns = now_ns if warm else now_ns + int(boot_s * SECOND_NS)
        pulled_ns = now_ns if warm else ready_ns + int(pull_s * SECOND_NS)
        self.machines[name] = Machine(name, group, now_ns, ready_ns, pulled_ns)
        if warm:
            self._register(name)
        else:
            self.agenda.schedule_at(ready_ns, lambda: self._register(name))
            self.agenda.schedule_at(pulled_ns, lambda: self._finish_pull(name))
        return True

    def _register(self, name: str) -> None:
        machine = self.machines.get(name)
        if machine is None:
            return
        document: dict[str, Any] = {
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": time_text(self.agenda.now_ns),
                "labels": {**machine.group.labels, "kubernetes.io/hostname": name},
            },
            "spec": {"taints": msgspec.to_builtins(machine.group.taints)},
            "status": {
                "allocatable": machine.group.allocatable, "capacity": machine.group.allocatable,
            },
        }  # fmt: skip
        if machine.pulled_ns <= self.agenda.now_ns:
            document["status"]["images"] = self.images
        self.server.put(msgspec.convert(document, Node))

    def _finish_pull(self, name: str) -> None:
        node = self.server.get(Node, name)
        if node is not None:
            images = msgspec.convert({"images": self.images}, type(node.status)).images
            status = msgspec.structs.replace(node.status, images=images)
            self.server.put(msgspec.structs.replace(node, status=status))

    def _add_cost(self, machine: Machine) -> None:
        hours = (self.agenda.now_ns - machine.ordered_ns) / SECOND_NS / 3600
        self.outcome.node_hours += hours
        self.outcome.cost += hours * machine.group.price_per_hour

    def _remove(self, machine: Machine) -> None:
        for law in self._laws:
            law.on_removal(machine)
        self._add_cost(machine)
        node = self.server.get(Node, machine.name)
        if node is not None:
            self.server.remove(node)
        for pod in [*self.server.pods_on(machine.name).values()]:
            self.server.remove(pod)

    def _scan(self) -> None:
        for one in self._sets:
            one.keep()
        self.autoscaler.scan(self.agenda.now_ns)
        self.agenda.schedule_after(SCAN_NS, self._scan)

    # The API, and the engine

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if not self._is_listed:
            return
        self._inbox.append(Observed(kind, obj))
        if isinstance(obj, Pod):
            if kind.value == "DELETED":
                for one in self._sets:
                    one.handle_deleted(obj)
            elif kind.value == "MODIFIED" and obj.metadata.deletion_timestamp is not None:
                self.agenda.schedule_at(self.agenda.now_ns, lambda: self.server.remove(obj))
            elif kind.value == "MODIFIED" and obj.spec.node_name and not obj.status.start_time:
                if obj.metadata.uid not in self._told:
                    self._told.add(obj.metadata.uid)
                    self._on_bind(obj)
        if not self._is_stepping:
            self._step()

    def _send(self, event: Event) -> None:
        self._inbox.append(event)
        if not self._is_stepping:
            self._step()

    def _step(self) -> None:
        self._is_stepping = True
        while self._inbox:
            event = self._inbox.popleft()
            self.outcome.steps += 1
            writes = self.engine.step(event, self.agenda.now_ns)
            if self._tell is not None:
                self._tell(self.agenda.now_ns, event, writes)
            for write in writes:
                self._carry_out(write)
            if self._warm is not None and self._warm.figures.moved > len(self._moves_ns):
                more = self._warm.figures.moved - len(self._moves_ns)
                self._moves_ns += [self.agenda.now_ns] * more
                for law in self._laws * more:
                    law.on_move()
        self._is_stepping = False
        self._sleep()

    def _carry_out(self, write: Write) -> None:
        if isinstance(write, CallExtender | AgentAnswer):
            return
        if isinstance(write, CreateEvent | Solve):
            self._inbox.append(WriteOk(write.id))
            return
        self.outcome.evicted += isinstance(write, DeletePod)
        code, version = self.server.carry_out(write)
        done = WriteOk(write.id, version) if code == OK else WriteFailed(write.id, code, "refused")
        self._inbox.append(done)

    def _sleep(self) -> None:
        due_ns = self.engine.next_wake_ns
        if due_ns is None or (self._wake_ns is not None and self._wake_ns <= due_ns):
            return
        self._wake_ns = due_ns
        self.agenda.schedule_at(due_ns, lambda: self._on_wake(due_ns))

    def _on_wake(self, at_ns: int) -> None:
        if self._wake_ns == at_ns:
            self._wake_ns = None
            due_ns = self.engine.next_wake_ns
            if due_ns is not None and due_ns <= self.agenda.now_ns:
                self._send(Tick())
            else:
                self._sleep()


def _most_in_a_minute(times_ns: list[int]) -> int:
    starts = ((i, at_ns) for i, at_ns in enumerate(times_ns))
    return max((sum(at_ns <= t < at_ns + MINUTE_NS for t in times_ns[i:]) for i, at_ns in starts),
               default=0)  # fmt: skip
