"""Laws of a simulated hub day, checked at all times while Stower places the pods.

Checked against the API's objects and the boot and pull times of the day's nodes.
"""

from typing import ClassVar, Final, Protocol

from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import WarmPoolSpec
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.autoscaler import UNNEEDED_NS, Autoscaler, Bin, Machine
from stower.sim.checkers.checker import ViolationError
from stower.sim.server import Server

# A node that users have left is rid of its placeholders by then: moves are no more than 6 a minute.
PERIOD_NS: Final = 10 * SECOND_NS  # placeholders are counted so often
EMPTIED_NS: Final = 600 * SECOND_NS
MINUTE_NS: Final = 60 * SECOND_NS


class Hub(Protocol):
    """What is looked at."""

    agenda: Agenda
    server: Server
    autoscaler: Autoscaler
    spec: WarmPoolSpec  # what pools say

    def is_user(self, pod: Pod) -> bool:
        """Whether somebody uses it."""

    def arrival_ns(self, pod: Pod) -> int:
        """When the user came."""


class Law:
    """One of them. A method that is not overridden looks at nothing."""

    name: ClassVar[str]

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def check(self) -> None:
        """Asked now and then, when all that happens at once has happened."""

    def on_bind(self, pod: Pod, machine: Machine) -> None:
        """A user was given a node."""

    def on_move(self) -> None:
        """A placeholder was moved."""

    def on_removal(self, machine: Machine) -> None:
        """The autoscaler takes a node away."""

    def violation(self, what: str) -> ViolationError:
        """To be raised."""
        return ViolationError(self.name, what)

    def without_placeholders(self, machine: Machine) -> Bin:
        """Its room, with users alone."""
        pods = self.hub.server.pods_on(machine.name).values()
        return self.hub.autoscaler.bin_of(machine, [p for p in pods if self.hub.is_user(p)])

    def is_ready(self, machine: Machine) -> bool:
        """Whether it has its images."""
        return machine.pulled_ns <= self.hub.agenda.now_ns


class UserWaits(Law):
    """No user waits while evicting placeholders on a ready node would let that one in."""

    name = "nobody waits for placeholders"

    def check(self) -> None:
        """Of all who wait."""
        waiting = [p for p in self.hub.server.pods_on("").values() if self.hub.is_user(p)]
        if not waiting:
            return
        scaler = self.hub.autoscaler
        for machine in filter(self.is_ready, scaler.machines.values()):
            room = self.without_placeholders(machine)
            for pod in waiting:
                if room.take(pod, scaler.needs_of(pod)):
                    raise self.violation(
                        f"user {pod.metadata.name} would fit on {machine.name} without placeholders"
                    )


class ReadyNodes(Law):
    """Users are only on nodes that are ready, but for those who waited as long as they should, and
    for whom there is room on none that is."""

    name = "ready nodes"

    def on_bind(self, pod: Pod, machine: Machine) -> None:
        """Of each."""
        hub = self.hub
        if self.is_ready(machine):
            return
        came_ns = hub.arrival_ns(pod) // SECOND_NS * SECOND_NS  # what the API says has no fractions
        waited_ns = hub.agenda.now_ns - came_ns
        wait_s = hub.spec.images.wait_seconds
        if waited_ns < wait_s * SECOND_NS:
            told = f"user {pod.metadata.name} is bound to {machine.name}, which is pulling images,"
            raise self.violation(
                f"{told} after {waited_ns / SECOND_NS:g} s, want a wait of {wait_s} s"
            )
        for other in filter(self.is_ready, hub.autoscaler.machines.values()):
            if self.without_placeholders(other).take(pod, hub.autoscaler.needs_of(pod)):
                raise self.violation(
                    f"user {pod.metadata.name} is bound to {machine.name}, which is pulling "
                    f"images, although {other.name} is ready and has room"
                )


class Moves(Law):
    """In no minute are there more moves than are allowed."""

    name = "moves"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._at_ns: list[int] = []

    def on_move(self) -> None:
        """By when the last few were."""
        now_ns = self.hub.agenda.now_ns
        self._at_ns = [at_ns for at_ns in self._at_ns if at_ns > now_ns - MINUTE_NS] + [now_ns]
        most = self.hub.spec.repositioning.per_minute
        if len(self._at_ns) > most:
            raise self.violation(f"{len(self._at_ns)} within a minute, want at most {most}")


class EmptyNodes(Law):
    """A node that all users have left is rid of its placeholders, where other nodes with users have
    room for them."""

    name = "emptied"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._since_ns: dict[str, int] = {}

    def check(self) -> None:
        """How long each could have been emptied."""
        how = self.hub.spec.repositioning
        if self.hub.spec.placeholders.placement == "Spread":  # the newest node is kept
            return
        if how.mode != "Drain" or min(how.per_minute, how.burst, how.in_flight, how.per_node) < 6:
            return
        hub, scaler = self.hub, self.hub.autoscaler
        ready = [*filter(self.is_ready, scaler.machines.values())]
        pods_on = {m.name: [*hub.server.pods_on(m.name).values()] for m in ready}
        used = [m for m in ready if any(map(hub.is_user, pods_on[m.name]))]
        bins = [scaler.bin_of(m, pods_on[m.name]) for m in used]
        for pod in hub.server.pods_on("").values():
            any(one.take(pod, scaler.needs_of(pod)) for one in bins)
        was, self._since_ns = self._since_ns, {}
        now_ns = hub.agenda.now_ns
        for machine in ready:
            pods = pods_on[machine.name]
            if machine in used or not pods or not scaler.fit(pods, bins):
                continue
            since_ns = self._since_ns[machine.name] = was.get(machine.name, now_ns)
            if now_ns - since_ns > EMPTIED_NS:
                raise self.violation(
                    f"the placeholders on {machine.name}, which has no users, could have moved for "
                    f"{EMPTIED_NS / SECOND_NS:g} s"
                )


class PullingNodes(Law):
    """The autoscaler removes no node that still pulls, but one that should have its images."""

    name = "pulling"

    def on_removal(self, machine: Machine) -> None:
        """Of each."""
        stuck_ns = self.hub.spec.placeholders.stuck_after_seconds * SECOND_NS
        if stuck_ns >= UNNEEDED_NS or machine.pulled_ns - machine.ready_ns > stuck_ns:
            return  # it is the autoscaler that does not wait, or nobody could
        is_stuck = self.hub.agenda.now_ns - machine.ready_ns > stuck_ns
        if not self.is_ready(machine) and not is_stuck:
            raise self.violation(f"{machine.name} is removed while it pulls images")


class Headroom(Law):
    """There are as many placeholders as are wanted at least: without a node, or on one that users
    can use. Those on a node that should have had its images do not count."""

    name = "headroom"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._since_ns: int | None = None

    def check(self) -> None:
        """How long there were too few."""
        hub, now_ns = self.hub, self.hub.agenda.now_ns
        how = hub.spec.placeholders
        machines, useful = hub.autoscaler.machines, 0
        for pod in hub.server.all(Pod).values():
            machine = machines.get(pod.spec.node_name)
            is_stuck = (
                machine is not None
                and not self.is_ready(machine)
                and now_ns - machine.ready_ns > how.stuck_after_seconds * SECOND_NS + PERIOD_NS
            )
            useful += not (hub.is_user(pod) or is_stuck)
        if useful >= min(how.replicas, how.replicas_max):
            self._since_ns = None
            return
        self._since_ns = self._since_ns or now_ns
        if now_ns - self._since_ns > 2 * PERIOD_NS:
            raise self.violation(
                f"{useful} placeholders are of use to somebody, want {how.replicas}, for "
                f"{(now_ns - self._since_ns) / SECOND_NS:g} s"
            )


class Room(Law):
    """No node holds more than it has room for."""

    name = "room"

    def check(self) -> None:
        """Of each that is there."""
        for machine in self.hub.autoscaler.machines.values():
            pods = self.hub.server.pods_on(machine.name).values()
            if min(self.hub.autoscaler.bin_of(machine, pods).free.values()) < 0:
                raise self.violation(f"the pods on {machine.name} request more than it has")


LAWS: Final[tuple[type[Law], ...]] = (
    UserWaits, ReadyNodes, Moves, EmptyNodes, PullingNodes, Headroom, Room,
)  # fmt: skip
