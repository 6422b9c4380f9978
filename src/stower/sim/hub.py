"""A day of a hub, run: users come and go, placeholders hold room, nodes boot, pull and are removed.

The engine decides; the rest is an API without delay, kubelets that start what has its images, a
puller on every node, the controller of the placeholders' StatefulSet where the policy has one, and
a cluster autoscaler by the rules of the real one, in slots of equal pods.
"""

from collections import deque
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.framework.events import Event, Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.writes import AgentAnswer, CallExtender, CreateEvent, DeletePod, Write
from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS, time_text
from stower.plugins.warm_capacity import warm_of
from stower.sim.agenda import Agenda
from stower.sim.hub_day import DAY_S, Day, User
from stower.sim.hub_policies import (
    IMAGE,
    IMAGE_BYTES,
    NODE_LABELS,
    Policy,
    Scenario,
    configuration_of,
    placeholder_of,
    settings_of,
    user_of,
)
from stower.sim.server import OK, Change, Server
from stower.warm.target import wanted

SCAN_NS: Final = 10 * SECOND_NS
MINUTE_NS: Final = 60 * SECOND_NS
UNNEEDED_NS: Final = 600 * SECOND_NS
EMPTY_AT_ONCE: Final = 10
# A day begins so long after the epoch, so that what was before it has a time as well.
EPOCH_NS: Final = 86_400 * SECOND_NS * 365


class Outcome(msgspec.Struct):
    """What came of a day. `waits_s`: of each user, from arrival to start."""

    policy: str
    seed: int
    waits_s: list[float] = []
    node_hours: float = 0.0
    evicted: int = 0
    moved: int = 0
    moves_in_a_minute: int = 0  # at most
    nodes_made: int = 0
    cold: int = 0  # users who were given a node without their images
    steps: int = 0


class _Machine(msgspec.Struct):
    """A node from when it was ordered. Times in ns; `ready`, `pulled`: when it will be so."""

    name: str
    ordered_ns: int
    ready_ns: int
    pulled_ns: int
    unneeded_ns: int | None = None


class HubDay:
    """One day under one policy."""

    def __init__(self, day: Day, scenario: Scenario, policy: Policy) -> None:
        self.day, self.scenario, self.policy = day, scenario, policy
        self.agenda = Agenda()
        self.agenda.now_ns = EPOCH_NS
        self.server = Server(lambda: self.agenda.now_ns)
        self.server.tell.append(self._happened)
        settings = settings_of(scenario, policy, day, EPOCH_NS)
        self.settings = settings
        self.engine = build_engine(configuration_of(scenario, policy, settings), seed=day.seed)
        self.outcome = Outcome(policy.name, day.seed)
        self._warm = warm_of(self.engine.state)
        self._moves_ns: list[int] = []
        self._inbox: deque[Event] = deque()
        self._machines: dict[str, _Machine] = {}
        self._made = 0
        self._grown_ns = 0
        self._waiting: dict[str, User] = {}  # by name
        self._came_ns: dict[str, int] = {}  # by uid
        self._wake_ns: int | None = None
        self._is_stepping = False
        self._is_listed = False  # before that, the engine knows of nothing
        self._told: set[str] = set()  # uids of pods that were seen on their nodes

    def run(self) -> Outcome:
        """From the first minute to the last."""
        self._order(warm=True)
        self._is_listed = True
        self._send(Listed((*self.server.everything(),)))
        for i, user in enumerate(self.day.users):
            at_ns = EPOCH_NS + int(user.arrival_s * SECOND_NS)
            self.agenda.at(at_ns, lambda i=i, user=user: self._come(i, user))  # type: ignore[misc]
        self._scan()
        end_ns = EPOCH_NS + int(DAY_S * SECOND_NS)
        self.agenda.run(end_ns)
        for machine in self._machines.values():
            self.outcome.node_hours += (end_ns - machine.ordered_ns) / SECOND_NS / 3600
        self._count_moves()
        for user in self._waiting.values():
            self.outcome.waits_s.append(DAY_S - user.arrival_s)
        return self.outcome

    def _count_moves(self) -> None:
        """What the scheduler deleted for users is what it deleted for nothing else."""
        warm = self._warm
        if warm is not None:
            self.outcome.moved = warm.figures.moved
            self.outcome.moves_in_a_minute = _most_in_a_minute(self._moves_ns)
            self.outcome.evicted -= warm.figures.moved + warm.figures.lowered

    # Users

    def _come(self, i: int, user: User) -> None:
        name = f"jupyter-{i}"
        self._waiting[name] = user
        self._came_ns[name] = self.agenda.now_ns
        self.server.put(user_of(name, user.lecture, time_text(self.agenda.now_ns)))

    def _bound(self, pod: Pod) -> None:
        """A kubelet starts it once it has the image."""
        name, now_ns = pod.metadata.name, self.agenda.now_ns
        machine = self._machines.get(pod.spec.node_name)
        user = self._waiting.get(name)
        if machine is None:
            return
        at_ns = max(now_ns, machine.pulled_ns) if user is not None else now_ns
        if user is not None:
            del self._waiting[name]
            self.outcome.cold += machine.pulled_ns > now_ns
            wait_s = (at_ns - EPOCH_NS) / SECOND_NS - user.arrival_s
            self.outcome.waits_s.append(max(0.0, wait_s))
            ends_ns = at_ns + int(user.life_s * SECOND_NS)
            self.agenda.at(ends_ns, lambda: self._end(pod))
        self.agenda.at(at_ns, lambda: self._start(pod))

    def _start(self, pod: Pod) -> None:
        found = self.server.get(Pod, pod.metadata.key)
        if found is not None and found.metadata.uid == pod.metadata.uid:
            at = time_text(self.agenda.now_ns)
            status = msgspec.structs.replace(found.status, phase="Running", start_time=at)
            self.server.put(msgspec.structs.replace(found, status=status))

    def _end(self, pod: Pod) -> None:
        self.server.remove(pod)

    # Placeholders

    def _keep(self) -> None:
        """The StatefulSet, as large as is wanted now."""
        if self.policy.keeps_its_own:
            return
        users: dict[str, Pod] = {}
        came_ns: dict[str, int] = {}
        if self.policy.told or self.policy.surge_s:
            users = {p.metadata.uid: p for p in self._pods("singleuser-server")}
            came_ns = {uid: self._came_ns[uid] for uid in users}
        count = wanted(self.settings, users, came_ns, 0, self.agenda.now_ns)
        there = {p.metadata.name: p for p in self._pods("user-placeholder")}
        for i in range(count):
            if f"user-placeholder-{i}" not in there:
                self._make_placeholder(i)
        for name, pod in there.items():
            if int(name.rpartition("-")[2]) >= count:
                self.server.remove(pod)
        self._count = count

    _count = 0

    def _make_placeholder(self, i: int) -> None:
        at = time_text(self.agenda.now_ns)
        self.server.put(placeholder_of(i, f"placeholder-{i}-{self.server.revision}", at))

    def _pods(self, component: str) -> list[Pod]:
        return [
            pod
            for pod in self.server.all(Pod).values()
            if (pod.metadata.labels or {}).get("component") == component
        ]

    # Nodes

    def _order(self, warm: bool = False) -> None:
        boot_s, pull_s = self.day.nodes[self._made % len(self.day.nodes)]
        late_s = self.scenario.late_s(self.day.seed, self._made)
        now_ns, name = self.agenda.now_ns, f"node-{self._made:03d}"
        self._made += 1
        self.outcome.nodes_made += 1
        ready_ns = now_ns if warm else now_ns + int(boot_s * SECOND_NS)
        pulled_ns = now_ns if warm else ready_ns + int((pull_s + late_s) * SECOND_NS)
        self._machines[name] = _Machine(name, now_ns, ready_ns, pulled_ns)
        if warm:
            self._register(name)
        else:
            self._grown_ns = now_ns
            self.agenda.at(ready_ns, lambda: self._register(name))
            self.agenda.at(pulled_ns, lambda: self._pulled(name))

    def _register(self, name: str) -> None:
        machine, slots = self._machines[name], self.scenario.slots
        room = {"cpu": f"{slots}", "memory": f"{slots}Gi", "pods": "110"}
        document = {
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": time_text(self.agenda.now_ns),
                "labels": {**NODE_LABELS, "kubernetes.io/hostname": name},
            },
            "status": {"allocatable": room, "capacity": room},
        }  # fmt: skip
        if machine.pulled_ns <= self.agenda.now_ns:
            document["status"]["images"] = IMAGES  # type: ignore[index]
        self.server.put(msgspec.convert(document, Node))

    def _pulled(self, name: str) -> None:
        node = self.server.get(Node, name)
        if node is not None:
            images = msgspec.convert({"images": IMAGES}, type(node.status)).images
            status = msgspec.structs.replace(node.status, images=images)
            self.server.put(msgspec.structs.replace(node, status=status))

    def _remove(self, machine: _Machine) -> None:
        del self._machines[machine.name]
        hours = (self.agenda.now_ns - machine.ordered_ns) / SECOND_NS / 3600
        self.outcome.node_hours += hours
        node = self.server.get(Node, machine.name)
        if node is not None:
            self.server.remove(node)
        for pod in [*self.server.pods_on(machine.name).values()]:
            self.server.remove(pod)

    # The autoscaler

    def _scan(self) -> None:
        self._keep()
        self._grow()
        self._shrink()
        self.agenda.after(SCAN_NS, self._scan)

    def _free(self, machine: _Machine) -> int:
        return self.scenario.slots - len(self.server.pods_on(machine.name))

    def _grow(self) -> None:
        """Pods that fit on no node that is ready, or will be, want more of them."""
        now_ns, slots = self.agenda.now_ns, self.scenario.slots
        pending = len(self.server.pods_on(""))
        machines = self._machines.values()
        free = sum(self._free(m) for m in machines if m.ready_ns <= now_ns)
        free += slots * sum(m.ready_ns > now_ns for m in machines)
        for _ in range(-(-(pending - free) // slots)):
            if len(self._machines) < self.scenario.nodes_max:
                self._order()

    def _shrink(self) -> None:
        """Nodes below half use, of which all can go elsewhere, for ten minutes."""
        now_ns, slots = self.agenda.now_ns, self.scenario.slots
        ready = [m for m in self._machines.values() if m.ready_ns <= now_ns]
        free = sum(self._free(m) for m in ready) - len(self.server.pods_on(""))
        empty: list[_Machine] = []
        drained: list[_Machine] = []
        for machine in ready:
            pods = self.server.pods_on(machine.name)
            holds_users = any(p.metadata.name.startswith("jupyter-") for p in pods.values())
            elsewhere = free - self._free(machine) >= len(pods)
            if holds_users or 2 * len(pods) >= slots or not elsewhere:
                machine.unneeded_ns = None
                continue
            if machine.unneeded_ns is None:
                machine.unneeded_ns = now_ns
            if now_ns - machine.unneeded_ns >= UNNEEDED_NS:
                (drained if pods else empty).append(machine)
        if now_ns - self._grown_ns < UNNEEDED_NS:
            return
        for machine in [*empty[:EMPTY_AT_ONCE], *(drained[:1] if not empty else ())]:
            if len(self._machines) > 1:
                self._remove(machine)

    # The API, and the engine

    def _happened(self, change: Change) -> None:
        _, kind, obj = change
        if not self._is_listed:
            return
        self._inbox.append(Observed(kind, obj))
        if isinstance(obj, Pod):
            if kind.value == "DELETED" and obj.metadata.name.startswith("user-placeholder-"):
                self._again(obj)
            elif kind.value == "MODIFIED" and obj.metadata.deletion_timestamp is not None:
                self.agenda.at(self.agenda.now_ns, lambda: self.server.remove(obj))
            elif kind.value == "MODIFIED" and obj.spec.node_name and not obj.status.start_time:
                if obj.metadata.uid not in self._told:
                    self._told.add(obj.metadata.uid)
                    self._bound(obj)
        if not self._is_stepping:
            self._step()

    def _again(self, pod: Pod) -> None:
        """The StatefulSet makes it again, under its name."""
        i = int(pod.metadata.name.rpartition("-")[2])
        now_ns = self.agenda.now_ns

        def make() -> None:
            if i < self._count and self.server.get(Pod, pod.metadata.key) is None:
                self._make_placeholder(i)

        self.agenda.at(now_ns, make)

    def _send(self, event: Event) -> None:
        self._inbox.append(event)
        if not self._is_stepping:
            self._step()

    def _step(self) -> None:
        self._is_stepping = True
        while self._inbox:
            event = self._inbox.popleft()
            self.outcome.steps += 1
            for write in self.engine.step(event, self.agenda.now_ns):
                self._carry_out(write)
            if self._warm is not None and self._warm.figures.moved > len(self._moves_ns):
                more = self._warm.figures.moved - len(self._moves_ns)
                self._moves_ns += [self.agenda.now_ns] * more
        self._is_stepping = False
        self._sleep()

    def _carry_out(self, write: Write) -> None:
        if isinstance(write, CallExtender | AgentAnswer):
            return
        if isinstance(write, CreateEvent):
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
        self.agenda.at(due_ns, lambda: self._woken(due_ns))

    def _woken(self, at_ns: int) -> None:
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


IMAGES: Final[list[dict[str, Any]]] = [{"names": [IMAGE], "sizeBytes": IMAGE_BYTES}]
