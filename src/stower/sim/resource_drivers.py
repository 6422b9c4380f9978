"""Simulated drivers that negotiate: processes that crash, and devices that no slice lists.

The counterpart of live/driver.py: a process lists and watches, calls its driver, which takes time,
and writes. A process that crashes loses everything but the ledger; a write that it had sent may
still arrive, and an interrupted call may or may not have finished.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from stower.driver import Allocation, Controller, Driver, Entry, MemoryLedger, RefusedError
from stower.driver.controller import VIEWS
from stower.driver.executor import Call, call
from stower.driver.messages import Event, Examination, Output
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.retries import TRIES, is_retriable, pause_seconds
from stower.framework.writes import PatchObject
from stower.model.kinds import ApiObject, Pod, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.link import MILLI_NS, Link, Weather
from stower.sim.server import OK, Server

CALL_NS = (MILLI_NS, 2 * SECOND_NS)
EXAMINATION_NS = (MILLI_NS // 2, 50 * MILLI_NS)
EVERYWHERE: Final = ""  # in place of a node
# A call that fails though nothing is the matter.
FAILS = 0.02


class CountedDevices(Driver):
    """So many devices on each node; a claim wants as many as its requests say."""

    def __init__(self, name: str, devices: Mapping[str, int]) -> None:
        self.name = name
        self.devices = dict(devices)
        self.is_failing = False
        self._counts: dict[str, tuple[Entry, int]] = {}  # devices that entries have, by uid

    def _work(self) -> None:
        if self.is_failing:
            raise RefusedError("the driver is failing")

    def count_free(self, node: str) -> int:
        """How many are free."""
        return self.free_counts()(node)

    def free_counts(self) -> Callable[[str], int]:
        """Returns a function that says how many are free on a node now."""
        taken: dict[str, int] = {}
        before, counts = self._counts, dict[str, tuple[Entry, int]]()
        for uid, entry in self.taken.items():
            known = before.get(uid)
            if known is None or known[0] is not entry:
                known = entry, _count(entry)
            counts[uid] = known
            taken[entry.node] = taken.get(entry.node, 0) + known[1]
        self._counts = counts
        return lambda node: self.devices.get(node, 0) - taken.get(node, 0)

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Those that have too few left for all of these."""
        self._work()
        wanted, free = sum(map(count_requested, claims)), self.free_counts()
        return [node for node in nodes if free(node) < wanted]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Any that are free; what was taken for a claim before is noted already."""
        self._work()
        wanted = sum(map(count_requested, claims))
        nodes = [node] if node else sorted(self.devices)
        known = {c.metadata.uid: self.taken.get(c.metadata.uid) for c in claims}
        noted, free = sum(_count(e) for e in known.values() if e is not None), self.free_counts()
        where = next((n for n in nodes if free(n) + noted >= wanted), None)
        if where is None:
            raise RefusedError(
                f"{wanted} devices requested, {max(map(free, nodes), default=0)} left"
            )
        return [self._make_allocation(claim, where) for claim in claims]

    def _make_allocation(self, claim: ResourceClaim, where: str) -> Allocation:
        names = [f"{claim.metadata.uid}-{i}" for i in range(count_requested(claim))]
        return Allocation([("device", where, name) for name in names], [where])

    def deallocate(self, claim: Entry) -> None:
        """The ledger is all there is."""
        self._work()


class Licences(CountedDevices):
    """So many seats, which can be used on any node; as examples/drivers/licences.py."""

    def free_counts(self) -> Callable[[str], int]:
        """Returns a function that says how many are free, wherever."""
        free = self.devices[EVERYWHERE] - sum(map(_count, self.taken.values()))
        return lambda node: free

    def _make_allocation(self, claim: ResourceClaim, where: str) -> Allocation:
        seats = super()._make_allocation(claim, "seats")
        return Allocation(seats.devices)


def count_requested(claim: ResourceClaim) -> int:
    """How many devices a claim asks for."""
    asked = [request.exactly for request in claim.spec.devices.requests or ()]
    return sum(max(1, exactly.count) for exactly in asked if exactly is not None)


def _count(entry: Entry) -> int:
    devices: Mapping[str, Any] = (entry.allocation or {}).get("devices") or {}
    return len(devices.get("results") or ())


class DriverProcess:
    """One driver that negotiates."""

    def __init__(
        self,
        driver: CountedDevices,
        agenda: Agenda,
        server: Server,
        chance: random.Random,
        weather: list[Weather],
    ) -> None:
        self.driver = driver
        self.ledger = MemoryLedger()
        self.lives = 0
        driver.taken = self.ledger.entries
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._weather = weather
        self._link: Link | None = None
        self._controller: Controller | None = None
        self._wake_ns: int | None = None

    def start(self) -> None:
        """Begin with what the ledger and the server say."""
        if self._link is not None:
            return
        self.lives += 1
        self._controller = None
        self._link = Link(
            self._agenda, self._server, self._chance, self._weather, VIEWS,
            self._on_list, self._on_change,
        )  # fmt: skip

    def crash(self) -> None:
        """It is gone, with all that it knew."""
        if self._link is not None:
            self.lives += 1
            self._link.close()
            self._link = None
            self._controller = None
            self._wake_ns = None

    def _on_list(self) -> None:
        link = self._link
        if link is None or not link.is_ready:
            return
        if self._controller is None:
            self._controller = Controller(self.driver.name, self.ledger.entries)
        self._take(Listed(link.list_objects()))

    def _on_change(self, kind: WatchType, obj: ApiObject) -> None:
        if self._controller is not None:
            self._take(Observed(kind, obj))

    def _take(self, event: Event) -> None:
        if self._controller is None:
            return
        for output in self._controller.step(event, self._agenda.now_ns):
            self._carry_out(output)
        self._sleep()

    def _carry_out(self, output: Output) -> None:
        if isinstance(output, Call):
            within = EXAMINATION_NS if isinstance(output, Examination) else CALL_NS
            life = self.lives
            self._agenda.schedule_after(
                self._chance.randint(*within), lambda: self._on_call_end(output, life)
            )
        elif isinstance(output, PatchObject):
            self._write(output, 0, self.lives)

    def _on_call_end(self, output: Call, life: int) -> None:
        """What was begun by a process that has crashed since may have been carried out."""
        if life != self.lives and self._chance.random() < 0.5:
            return
        self.driver.is_failing = self._chance.random() < FAILS
        answer = call(output, self.driver, self.ledger)
        self.driver.is_failing = False
        if life == self.lives:
            self._take(answer)

    def _write(self, write: PatchObject, turn: int, life: int) -> None:
        if life != self.lives or self._link is None:
            return

        def on_answer(status: int, found: Any) -> None:
            if life != self.lives:
                return
            code, version = found if status == OK else (status, "")
            if is_retriable(write, code) and turn + 1 < TRIES:
                shortest, longest = pause_seconds(turn)
                pause_ns = int(self._chance.uniform(shortest, longest) * SECOND_NS)
                self._agenda.schedule_after(pause_ns, lambda: self._write(write, turn + 1, life))
            elif code == OK:
                self._take(WriteOk(write.id, version))
            else:
                self._take(WriteFailed(write.id, code, f"{code}"))

        self._link.ask(lambda: self._server.carry_out(write, by_driver=True), on_answer)

    def _sleep(self) -> None:
        due_ns = self._controller.next_wake_ns if self._controller is not None else None
        if due_ns is None or (self._wake_ns is not None and self._wake_ns <= due_ns):
            return
        self._wake_ns = due_ns
        life = self.lives
        self._agenda.schedule_at(
            max(due_ns, self._agenda.now_ns), lambda: self._on_wake(due_ns, life)
        )

    def _on_wake(self, at_ns: int, life: int) -> None:
        if life == self.lives and self._wake_ns == at_ns:
            self._wake_ns = None
            self._take(Tick())


class Negotiators:
    """All drivers that negotiate, by name."""

    def __init__(
        self, agenda: Agenda, server: Server, chance: random.Random, weather: list[Weather]
    ) -> None:
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._weather = weather
        self.processes: dict[str, DriverProcess] = {}

    def add(self, name: str, devices: Mapping[str, int]) -> None:
        """A driver begins to work, with so many devices on each node, or everywhere."""
        chance = random.Random(f"{self._chance.random()}:{name}")
        driver = (Licences if EVERYWHERE in devices else CountedDevices)(name, devices)
        process = DriverProcess(driver, self._agenda, self._server, chance, self._weather)
        self.processes[name] = process
        process.start()

    def crash(self, name: str) -> None:
        """It dies."""
        self.processes[name].crash()

    def start(self, name: str) -> None:
        """It is started again."""
        self.processes[name].start()
