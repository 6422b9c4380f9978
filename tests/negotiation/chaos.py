"""Small worlds in which anybody may work next, crash, or be deleted; and what must be true when
everybody has had the time to do all there is to do.

A world and a history are plain numbers, so that a failure can be made small. Each number of a deed
means one of what there is by then.
"""

from collections import Counter
from typing import Any, NamedTuple

from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim
from stower.model.kinds.resource_claim import DEALLOCATION_REQUESTED, IMMEDIATE
from stower.state.devices import claim_refs
from tests.builders import make_node
from tests.negotiation.keeping import Keeper, delete
from tests.negotiation.laws import Laws, reaches
from tests.negotiation.processes import Counting, CrashingLedger, DriverProcess, Process, where
from tests.negotiation_cluster import Cluster

Deed = tuple[int, int, int]
DEEDS = (
    *["hear"] * 12, *["send"] * 12, *["keep"] * 6, *["turn"] * 3, *["time"] * 2, *["pod"] * 2,
    "claim", "crash", "crash", "start", "start", "lose", "land", "ledger", "devices", "node",
)  # fmt: skip
SECONDS = (1, 2, 4, 31, 45)
FAIR_SECONDS = 7_200


class World(NamedTuple):
    """`cpus`: of each node; `devices`: of each driver, on each node; `claims`: of users, with the
    driver and whether it is immediate; `pods`: priority, drivers of their own claims, users'
    claims."""

    cpus: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]
    claims: tuple[tuple[int, bool], ...]
    pods: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    schedulers: int = 1


class Chaos:
    """A world on its way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = cluster = Cluster()
        self.keeper = Keeper(cluster)
        self._uids = 0
        for i in range(len(world.cpus)):
            self._put_node(i)
        for i, counts in enumerate(world.devices):
            driver = Counting(f"d{i}.example.com", {f"n{n}": c for n, c in enumerate(counts)})
            cluster.add_driver(driver)
        for i in range(len(world.claims)):
            self._make_claim(i)
        cluster.start()
        for _ in range(1, world.schedulers):
            cluster.add_scheduler()
        Laws(cluster)
        cluster.others.append(self.keeper.work)
        for i in range(len(world.pods)):
            self._make_pod(i)

    # Objects

    def _put_node(self, i: int) -> None:
        self.cluster.server.put(make_node(f"n{i}", cpu=str(self.world.cpus[i])))

    def _make_claim(self, i: int) -> None:
        driver, immediate = self.world.claims[i]
        self._uids += 1
        notes = {"allocation_mode": IMMEDIATE} if immediate else {}
        self.cluster.claim(f"c{i}", f"d{driver % len(self.world.devices)}", f"c{self._uids}",
                           **notes)  # fmt: skip

    def _make_pod(self, i: int) -> None:
        priority, own, claims = self.world.pods[i]
        drivers = len(self.world.devices)
        names = [f"c{c % len(self.world.claims)}" for c in claims if self.world.claims]
        self._uids += 1
        self.cluster.pod(
            f"p{i}", *dict.fromkeys(names), own=[f"d{d % drivers}" for d in own], cpu="1",
            priority=priority, uid=f"p{self._uids}",
        )  # fmt: skip

    def _lose_node(self, name: str) -> None:
        server = self.cluster.server
        server.remove(server.get(Node, name))
        for pod in [*server.pods_on(name).values()]:
            server.remove(pod)

    # Deeds

    def do(self, deed: Deed) -> None:
        """One thing happens."""
        what, which, how = deed
        name = DEEDS[what % len(DEEDS)]
        processes = self.cluster.processes
        process = processes[which % len(processes)]
        getattr(self, f"_{name}")(process, which // len(processes), how)

    def _hear(self, process: Process, which: int, how: int) -> None:
        kinds = process.kinds()
        if kinds:
            process.hear(kinds[how % len(kinds)])

    def _send(self, process: Process, which: int, how: int) -> None:
        process.send(lost=how % 16 == 15)
        self._check()

    def _keep(self, process: Process, which: int, how: int) -> None:
        self.keeper.work()

    def _turn(self, process: Process, which: int, how: int) -> None:
        self.cluster.run(how * 3)

    def _time(self, process: Process, which: int, how: int) -> None:
        self.cluster.now_ns += SECONDS[how % len(SECONDS)] * 1_000_000_000
        self.cluster.tick(self.cluster.now_ns)

    def _pod(self, process: Process, which: int, how: int) -> None:
        i = how % len(self.world.pods)
        found = self.cluster.server.get(Pod, f"default/p{i}")
        if found is None:
            self._make_pod(i)
        else:
            delete(self.cluster, found)

    def _claim(self, process: Process, which: int, how: int) -> None:
        claims = self.cluster.server.all(ResourceClaim)
        if self.world.claims and how % 3:
            i = which % len(self.world.claims)
            if f"default/c{i}" not in claims:
                self._make_claim(i)
            else:
                delete(self.cluster, claims[f"default/c{i}"])
        elif claims:
            delete(self.cluster, [*claims.values()][which % len(claims)])

    def _crash(self, process: Process, which: int, how: int) -> None:
        process.stop(lands=how % 2 == 0)

    def _start(self, process: Process, which: int, how: int) -> None:
        for one in self.cluster.processes:
            if not one.is_up:
                one.start()

    def _lose(self, process: Process, which: int, how: int) -> None:
        if self.cluster.flying:
            self.cluster.flying.pop(how % len(self.cluster.flying))

    def _land(self, process: Process, which: int, how: int) -> None:
        if self.cluster.flying:
            self.cluster.write(self.cluster.flying.pop(how % len(self.cluster.flying)))
            self._check()

    def _ledger(self, process: Process, which: int, how: int) -> None:
        if isinstance(process, DriverProcess):
            ledger: CrashingLedger = process.ledger
            ledger.crash_after = ledger.writes + how % 2 if which % 2 else None
            ledger.crash_before = ledger.writes + how % 2 if which % 2 == 0 else None

    def _devices(self, process: Process, which: int, how: int) -> None:
        if isinstance(process, DriverProcess) and isinstance(process.driver, Counting):
            node = f"n{which % len(self.world.cpus)}"
            driver = process.driver
            if driver.free(node) > 0 and how % 2:
                driver.devices[node] -= 1
            elif driver.devices[node] < 3:
                driver.devices[node] += 1

    def _node(self, process: Process, which: int, how: int) -> None:
        i = which % len(self.world.cpus)
        if self.cluster.server.get(Node, f"n{i}") is None:
            self._put_node(i)
        elif how % 2:
            self._lose_node(f"n{i}")

    def _check(self) -> None:
        """Look at the ledgers."""
        self.cluster.others[0]()

    # In the end

    def settle(self, lands: bool) -> None:
        """Everybody works, for long."""
        for write in self.cluster.flying if lands else ():
            self.cluster.write(write)
        self.cluster.flying.clear()
        for process in self.cluster.processes:
            if isinstance(process, DriverProcess):
                process.ledger.crash_after = process.ledger.crash_before = None
            if not process.is_up:
                process.start()
        self.cluster.advance(FAIR_SECONDS)

    def check(self) -> int:
        """What must be true then. Returns how many pods have a node."""
        server = self.cluster.server
        entries = {
            uid: entry
            for process in self.cluster.drivers.values()
            for uid, entry in process.ledger.entries.items()
        }
        pods: dict[str, Pod] = server.all(Pod)
        bound = {pod.metadata.uid for pod in pods.values() if pod.spec.node_name}
        for claim in server.all(ResourceClaim).values():
            key, status = claim.metadata.key, claim.status
            entry = entries.pop(claim.metadata.uid, None)
            assert (entry is not None) == (status.allocation is not None), f"{key}: {entry}"
            users = {user.uid for user in status.reserved_for or ()}
            leaving = is_leaving(claim)
            assert not leaving or users & bound, f"{key} is leaving for ever"
            if users and is_delayed(claim) and not users & bound:
                assert len(users) > 1, f"{key} is kept for a pod that waits"
        assert {} == entries, "in a ledger, and nobody's"
        said = {*server.all(PodScheduling)}
        assert said <= {pod.key for pod in pods.values() if not pod.spec.node_name}
        for pod in pods.values():
            if not pod.spec.node_name:
                assert self.cluster.message(pod.metadata.name), f"{pod.key} is not told why"
                found = [node for node in server.all(Node).values() if self._could(pod, node)]
                assert [] == found, f"{pod.key} could run there"
        return len(bound)

    def _could(self, pod: Pod, node: Node) -> bool:
        """Whether what nobody else has would do for the pod on the node."""
        server, name = self.cluster.server, node.metadata.name
        i = int(name[1:])
        if len(server.pods_on(name)) >= self.world.cpus[i]:
            return False
        wanted: Counter[str] = Counter()
        for ref in claim_refs(pod):
            claim = server.get(ResourceClaim, f"default/{ref.name}")
            if claim is None or is_leaving(claim):
                return False
            allocation = claim.status.allocation
            users = {user.uid for user in claim.status.reserved_for or ()}
            request = (claim.spec.devices.requests or ())[0]
            assert request.exactly is not None
            driver = f"{request.exactly.device_class_name}.example.com"
            entry = self.cluster.drivers[driver].ledger.entries.get(claim.metadata.uid)
            if not is_delayed(claim) or users - {pod.metadata.uid}:
                if allocation is None or not reaches(allocation.node_selector, node):
                    return False
            elif entry is None or where(entry) != name:
                wanted[driver] += 1
        drivers: dict[str, Any] = {n: p.driver for n, p in self.cluster.drivers.items()}
        return all(count <= drivers[driver].free(name) for driver, count in wanted.items())


def is_leaving(claim: ResourceClaim) -> bool:
    """Whether it is flagged or being deleted."""
    notes = claim.metadata.annotations or {}
    return DEALLOCATION_REQUESTED in notes or claim.metadata.deletion_timestamp is not None


def is_delayed(claim: ResourceClaim) -> bool:
    """Whether it is allocated for a pod."""
    notes = claim.metadata.annotations or {}
    return notes.get("stower.dev/allocation-mode") != IMMEDIATE


def run(world: World, history: list[Deed], lands: bool = False) -> int:
    """A world, its history, and its end. Returns how many pods have a node."""
    chaos = Chaos(world)
    for deed in history:
        chaos.do(deed)
    chaos.settle(lands)
    return chaos.check()
