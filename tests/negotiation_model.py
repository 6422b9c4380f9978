"""Small worlds in which the scheduler's and the drivers' rules are run in every possible order.

The rules are the real ones (devices/negotiation, driver/rules); around them is the least that can
carry them: an API server with compare-and-set, a cache for each process that may lag object by
object, one write at a time in flight for each pod and each driver, ledgers, and a claim controller.
Every interleaving is explored, breadth first; states that differ in nothing but the numbers of
versions are one.

Not in it: time (a selection is late where a fault says so, else nobody waits for too long),
Immediate mode, full claims, nodes that are added.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from stower.devices.negotiation.binding import reservation_patch, unusable_reason
from stower.devices.negotiation.candidates import Rules
from stower.devices.negotiation.claims import Party, PodNegotiation, driver_of, flag_of
from stower.devices.negotiation.scheduling import next_step
from stower.devices.negotiation.steps import Step, is_selection
from stower.devices.negotiation.turns import preceding_pod
from stower.driver.author import Allocation
from stower.driver.ledger import Entry
from stower.driver.rules import (
    Free,
    Take,
    Write,
    allocation_patch,
    claim_actions,
    free_abandoned,
    pod_actions,
)
from stower.driver.rules import Rules as DriverRules
from stower.framework.writes import (
    Bind,
    CreateObject,
    DeleteObject,
    PatchObject,
    PatchPodStatus,
    no_op_patch,
)
from stower.model.kinds import Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.selectors import node_selector_matches
from stower.sim.changes import bound, make_object, merged, patched
from stower.state.devices import claim_refs

Key = tuple[str, str]  # "pod", "said" or "claim", and its name
Label = tuple[str, ...]
KIND: Final = {Pod: "pod", PodScheduling: "said", ResourceClaim: "claim"}
NODES_SEEN: Final[Key] = ("nodes", "")
CONTROLLER: Final = "K"  # of claims
LATE_NS: Final = 1 << 60


class Setup(NamedTuple):
    """A world at its beginning. `claims`: by pod; `drivers`: by claim; `devices`: by driver and
    node; `stale`: who has a cache that lags; `faults`: at most one of each; `keeps`: whether
    nothing may ever have to be deallocated."""

    claims: Mapping[str, Sequence[str]]
    drivers: Mapping[str, str]
    devices: Mapping[str, Mapping[str, int]]
    stale: Sequence[str] = ()
    faults: Sequence[str] = ()
    schedulers: Sequence[str] = ("S",)
    without: frozenset[str] = frozenset()
    nodes_max: int = 128
    keeps: bool = False


class World:
    """One state. Never changed once it was explored."""

    __slots__ = ("caches", "faults", "ghosts", "ledgers", "nodes", "ops", "revision", "server")

    def __init__(self) -> None:
        self.server: dict[Key, Any] = {}
        self.nodes: tuple[str, ...] = ()
        self.caches: dict[str, dict[Key, Any]] = {}
        self.ops: dict[tuple[str, str], Any] = {}  # by process and pod ("" for a driver)
        self.ghosts: tuple[Any, ...] = ()  # writes of processes that are no more
        self.ledgers: dict[str, dict[str, Entry]] = {}
        self.faults: tuple[str, ...] = ()
        self.revision = 0

    def copy(self) -> "World":
        """The same, to be changed."""
        other = World()
        other.server = dict(self.server)
        other.nodes = self.nodes
        other.caches = dict(self.caches)
        other.ops = dict(self.ops)
        other.ghosts = self.ghosts
        other.ledgers = dict(self.ledgers)
        other.faults = self.faults
        other.revision = self.revision
        return other


class Doing(NamedTuple):
    """One write in flight, and what comes after it."""

    write: Any
    then: tuple[Any, ...] = ()  # further writes, or what is to be taken
    kind: str = "write"


class Awaiting(NamedTuple):
    """A version that is to be seen first; `is_selection`: in which a node was selected."""

    key: Key
    version: int
    is_selection: bool = False


class Binding(NamedTuple):
    """A pod that is being bound: its version, claims that were seen to be reserved since."""

    version: str
    sure: tuple[str, ...] = ()
    write: Any = None
    about: str = ""


class Violation(Exception):
    """A state that must not be."""


class _View:
    """A driver's cache, as driver/rules asks for it."""

    def __init__(self, cache: Mapping[Key, Any], classes: Mapping[str, ResourceClass]) -> None:
        self._cache = cache
        self.classes = classes

    def pod(self, key: str) -> Pod | None:
        return self._cache.get(("pod", key.partition("/")[2]))

    def claim(self, key: str) -> ResourceClaim | None:
        return self._cache.get(("claim", key.partition("/")[2]))

    def scheduling(self, key: str) -> PodScheduling | None:
        return self._cache.get(("said", key.partition("/")[2]))

    def pods_of(self, claim_key: str) -> list[str]:
        name = claim_key.partition("/")[2]
        return [
            pod.metadata.key
            for (kind, _), pod in sorted(self._cache.items(), key=lambda item: item[0])
            if kind == "pod" and any(ref.name == name for ref in claim_refs(pod))
        ]


class _Ranked(list[str]):
    """Nodes, the best first."""

    def names(self) -> list[str]:
        return self

    def in_domain(self) -> list[str]:
        return self

    def select(self, names: Sequence[str]) -> list[str]:
        return [name for name in self if name in names]


class _Around:
    """A scheduler's surroundings, as devices/negotiation asks for them."""

    def __init__(
        self,
        model: "Model",
        cache: Mapping[Key, Any],
        negotiation: PodNegotiation,
        ops: Mapping[str, Any],
        is_late: bool,
    ) -> None:
        """`ops`: what this scheduler has in flight, by pod; `is_late`: whether a selection has
        been waited for in vain."""
        said = negotiation.scheduling
        is_late &= said is not None and said.spec.selected_node != ""
        self.now_ns = LATE_NS if is_late else 0
        self._model = model
        self._ops = ops
        self._cache = cache
        self._negotiation = negotiation
        self._nodes: tuple[str, ...] = cache[NODES_SEEN]

    def is_available_on(self, claim: ResourceClaim, node_name: str) -> bool:
        return node_name in self._nodes and reaches(claim, node_name)

    def has_common_node(self, claims: Sequence[ResourceClaim]) -> bool:
        return any(all(reaches(claim, n) for claim in claims) for n in self._nodes)

    def has_node(self, node_name: str) -> bool:
        return node_name in self._nodes

    def is_unbound(self, uid: str) -> bool:
        pods = (obj for (kind, _), obj in self._cache.items() if kind == "pod")
        return any(pod.metadata.uid == uid and not pod.spec.node_name for pod in pods)

    def preceding_pod(self, negotiation: PodNegotiation, by_rank: bool) -> str:
        others = []
        for (kind, name), said in sorted(self._cache.items(), key=lambda item: item[0]):
            pod = self._cache.get(("pod", name)) if kind == "said" else None
            if pod is None or pod is negotiation.pod or not said.spec.attempt or pod.spec.node_name:
                continue
            op = self._ops.get(name)
            selecting = isinstance(op, Doing) and _selects(op.write)
            selecting |= isinstance(op, Awaiting) and op.is_selection
            selecting |= bool(said.spec.selected_node)  # no time passes here
            others.append((self._model.negotiation(self._cache, pod), selecting))
        return preceding_pod(negotiation, others, by_rank)

    def first_seen_ns(self, what: str, state: object, is_new: bool = False) -> int:
        return 0

    def add_failure(self, party: Party, seen: PodScheduling, is_late: bool = False) -> bool:
        return False

    def late_count(self, but_ns: int = -1) -> int:
        return 0

    def refused_until_ns(self, node_name: str) -> int:
        return 0

    def interleave(self, names: Sequence[str]) -> list[str]:
        return list(names)


def reaches(claim: ResourceClaim, node: str) -> bool:
    """Whether an allocated claim can be used on the node."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    return selector is None or node_selector_matches(selector, {}, node)


def _selects(write: Any) -> bool:
    return isinstance(write, PatchObject) and is_selection(Step("", write))


class Model:
    """The moves of a setup's world."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rules = Rules(nodes_max=setup.nodes_max, without=setup.without)
        self.driver_rules = DriverRules(setup.without)
        self.classes = {
            d: msgspec.convert({"metadata": {"name": d}, "driverName": d}, ResourceClass)
            for d in setup.devices
        }
        self._interned: dict[bytes, Any] = {}
        self._parts: dict[int, tuple[int, tuple[tuple[Key, int], ...]]] = {}
        self._kept: list[Any] = []
        self._templates: dict[bytes, int] = {}

    # Objects

    def first(self) -> World:
        """Where it begins: pods and claims are there, nobody has done anything."""
        world = World()
        world.nodes = tuple(sorted({n for nodes in self.setup.devices.values() for n in nodes}))
        for name in self.setup.drivers:
            self._put(world, ("claim", name), self._claim(name, 1))
        for name in self.setup.claims:
            self._put(world, ("pod", name), self._pod(name, 1))
        keepers = [CONTROLLER] if CONTROLLER in self.setup.stale else []
        for process in (*self.setup.schedulers, *self.setup.devices, *keepers):
            world.caches[process] = self._all(world, process)
        world.ledgers = {driver: {} for driver in self.setup.devices}
        world.faults = tuple(self.setup.faults)
        return world

    def _all(self, world: World, process: str) -> dict[Key, Any]:
        """What a list tells it."""
        objects = {**world.server, NODES_SEEN: world.nodes}
        return {key: obj for key, obj in objects.items() if self._cares(process, key)}

    def _pod(self, name: str, life: int) -> Pod:
        entries = [{"name": c, "resourceClaimName": c} for c in self.setup.claims[name]]
        meta = {"name": name, "namespace": "default", "uid": f"{name}-{life}"}
        return msgspec.convert({"metadata": meta, "spec": {"resourceClaims": entries}}, Pod)

    def _claim(self, name: str, life: int) -> ResourceClaim:
        exactly = {"deviceClassName": self.setup.drivers[name]}
        meta = {"name": name, "namespace": "default", "uid": f"{name}-{life}"}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        return msgspec.convert({"metadata": meta, "spec": spec}, ResourceClaim)

    def _put(self, world: World, key: Key, obj: Any) -> int:
        world.revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(world.revision))
        obj = self._intern(msgspec.structs.replace(obj, metadata=meta))
        world.server[key] = obj
        self._spread(world, key)
        return world.revision

    def _drop(self, world: World, key: Key) -> None:
        world.server.pop(key, None)
        self._spread(world, key)

    def _spread(self, world: World, key: Key) -> None:
        """Caches that do not lag know at once."""
        for process in world.caches:
            if process not in self.setup.stale and self._cares(process, key):
                self._deliver(world, process, key)

    def _cares(self, process: str, key: Key) -> bool:
        """A driver does not look at others' claims, nor at nodes; a controller's cache is of
        pods."""
        if process in self.setup.schedulers:
            return True
        if process == CONTROLLER:
            return key[0] == "pod"
        return key != NODES_SEEN and self.setup.drivers.get(key[1], process) == process

    def _deliver(self, world: World, process: str, key: Key) -> None:
        cache = dict(world.caches[process])
        if key == NODES_SEEN:
            cache[key] = world.nodes
        elif key in world.server:
            cache[key] = world.server[key]
        else:
            cache.pop(key, None)
        world.caches[process] = cache
        for at, op in [*world.ops.items()]:
            if at[0] == process and isinstance(op, Awaiting) and op.key == key:
                if key not in cache or int(cache[key].metadata.resource_version) >= op.version:
                    del world.ops[at]

    def _intern(self, obj: Any) -> Any:
        text = type(obj).__name__.encode() + msgspec.json.encode(obj)
        return self._interned.setdefault(text, obj)

    def negotiation(self, cache: Mapping[Key, Any], pod: Pod) -> PodNegotiation:
        """The pod's negotiation as a scheduler sees it."""
        parties, missing = [], False
        for ref in claim_refs(pod):
            claim = cache.get(("claim", ref.name or ""))
            missing |= claim is None
            if claim is not None and (driver := driver_of(claim, self.classes)):
                parties.append(Party(ref.entry_name, driver, claim))
        return PodNegotiation(pod, tuple(parties), cache.get(("said", pod.metadata.name)), missing)

    # The server

    def _carry_out(self, world: World, write: Any) -> tuple[int, Key, int]:
        """Do it: the status, whom it was about, and the version since."""
        if isinstance(write, Bind | PatchPodStatus):
            return self._about_pod(world, write)
        key = (KIND[write.view], write.name)
        found = world.server.get(key)
        if isinstance(write, CreateObject):
            if found is not None:
                return 409, key, 0
            return 200, key, self._put(world, key, make_object(write, f"said-{write.uid}"))
        if found is None or found.metadata.uid != write.uid:
            return 404 if found is None else 409, key, 0
        if isinstance(write, DeleteObject):
            self._drop(world, key)
            return 200, key, 0
        if write.resource_version not in ("", found.metadata.resource_version):
            return 409, key, 0
        changed = merged(found, write)
        if changed == found:
            return 200, key, int(found.metadata.resource_version)
        if changed.metadata.deletion_timestamp and not changed.metadata.finalizers:
            self._drop(world, key)
            return 200, key, 0
        return 200, key, self._put(world, key, changed)

    def _about_pod(self, world: World, write: Bind | PatchPodStatus) -> tuple[int, Key, int]:
        key = ("pod", write.name)
        pod = world.server.get(key)
        if pod is None or pod.metadata.uid != write.uid:
            return 404, key, 0
        version = pod.metadata.resource_version
        if write.resource_version and write.resource_version != version:
            return 409, key, 0
        if isinstance(write, Bind):
            if pod.spec.node_name:
                return 409, key, 0
            return 200, key, self._put(world, key, bound(pod, write))
        return 200, key, self._put(world, key, patched(pod, write))

    # Moves

    def moves(self, world: World) -> Iterator[tuple[Label, World]]:
        """Everything that can happen next; faults have labels that begin with "!"."""
        for scheduler in self.setup.schedulers:
            for pod in self.setup.claims:
                yield from self._scheduler(world, scheduler, pod)
        for driver in self.setup.devices:
            yield from self._driver(world, driver)
        yield from self._controller(world)
        yield from self._deliveries(world)
        for i, ghost in enumerate(world.ghosts):
            new = world.copy()
            new.ghosts = world.ghosts[:i] + world.ghosts[i + 1 :]
            self._carry_out(new, ghost)
            yield ("ghost",), new
        yield from self._faults(world)

    def _deliveries(self, world: World) -> Iterator[tuple[Label, World]]:
        for process in self.setup.stale:
            cache = world.caches[process]
            for key in sorted({*world.server, *cache, NODES_SEEN}):
                if not self._cares(process, key):
                    continue
                now = world.nodes if key == NODES_SEEN else world.server.get(key)
                if cache.get(key) is not now and cache.get(key) != now:
                    new = world.copy()
                    self._deliver(new, process, key)
                    yield ("deliver", process, *key), new

    def _controller(self, world: World) -> Iterator[tuple[Label, World]]:
        """K1 and K3, on what is so, or (without K1) on what its cache says."""
        seen = world.server if self._has("K1") else world.caches[CONTROLLER]
        pods = {obj.metadata.uid for (kind, _), obj in seen.items() if kind == "pod"}
        for key, obj in [*world.server.items()]:
            if key[0] == "said" and obj.owner_uid not in pods:
                new = world.copy()
                self._drop(new, key)
                yield ("K3", key[1]), new
            elif key[0] == "claim":
                users = obj.status.reserved_for or ()
                left = tuple(user for user in users if user.uid in pods)
                if left != tuple(users):
                    new = world.copy()
                    status = msgspec.structs.replace(obj.status, reserved_for=left or None)
                    self._put(new, key, msgspec.structs.replace(obj, status=status))
                    yield ("K1", key[1]), new

    # The scheduler

    def _scheduler(self, world: World, who: str, name: str) -> Iterator[tuple[Label, World]]:
        at, cache = (who, name), world.caches[who]
        op = world.ops.get(at)
        label = (who, name)
        if isinstance(op, Awaiting):
            yield from self._waits_no_more(world, at, op)
            return
        if isinstance(op, Doing):
            new = world.copy()
            del new.ops[at]
            self._landed(new, at, *self._carry_out(new, op.write), op.write)
            yield (*label, "lands"), new
            return
        pod = cache.get(("pod", name))
        if pod is None:
            if op is not None:
                new = world.copy()
                del new.ops[at]
                yield (*label, "forgets"), new
            return
        if pod.spec.node_name:
            new = world.copy()
            new.ops.pop(at, None)
            said = cache.get(("said", name))
            if said is not None and said.owner_uid == pod.metadata.uid:
                meta = said.metadata
                write = DeleteObject(0, PodScheduling, "default", name, meta.uid)
                new.ops[at] = Doing(write)
                yield (*label, "tidies"), new
            elif op is not None:
                yield (*label, "is done"), new
            return
        negotiation = self.negotiation(cache, pod)
        if isinstance(op, Binding):
            yield from self._binding(world, at, label, negotiation, op)
            return
        refused = negotiation.refusals_by_node()
        ranked = _Ranked(
            node
            for node in cache[NODES_SEEN]
            if node not in refused
            and all(reaches(p.claim, node) for p in negotiation.parties if p.is_allocated)
        )
        ops = {at[1]: op for at, op in world.ops.items() if at[0] == who}
        late = f"is-late {name}"
        around = _Around(self, cache, negotiation, ops, late in world.faults)
        step = next_step(negotiation, around, ranked, self.rules)
        if step is not None and step.write is None:
            return
        new = world.copy()
        if not around.now_ns:
            new.faults = tuple(fault for fault in world.faults if fault != late)
        if step is not None:
            new.ops[at] = Doing(step.write)
            yield (*label, "writes"), new
        else:
            new.ops[at] = Binding(pod.metadata.resource_version if self._has("S7r") else "")
            yield (*label, "reads"), new

    def _waits_no_more(
        self, world: World, at: tuple[str, str], op: Awaiting
    ) -> Iterator[tuple[Label, World]]:
        """What it waits for has come and gone before it was seen: after a while, it goes on."""
        if world.caches[at[0]].get(op.key) is world.server.get(op.key):
            new = world.copy()
            del new.ops[at]
            yield (*at, "waits no more"), new

    def _has(self, rule: str) -> bool:
        return rule not in self.setup.without

    def _landed(
        self, new: World, at: tuple[str, str], code: int, key: Key, version: int, write: Any
    ) -> None:
        """What was written is to be seen first; where it met a conflict, what is newer."""
        if code == 409 and isinstance(write, PatchObject):
            version = int(write.resource_version) + 1
        elif code == 409 and isinstance(write, PatchPodStatus):
            version = int(write.resource_version or 0) + 1
        elif code == 409:
            version = 1  # somebody else made it
        elif code != 200:
            version = 1 << 60  # it is gone
        cache = new.caches[at[0]]
        known = cache.get(key)
        is_seen = known is not None and int(known.metadata.resource_version) >= version
        if version == 0 or version == 1 << 60:
            is_seen = known is None or known is not new.server.get(key)
            is_seen = known is None
            version = 1 << 60
        if not is_seen:
            new.ops[at] = Awaiting(key, version, code == 200 and _selects(write))

    def _binding(
        self,
        world: World,
        at: tuple[str, str],
        label: Label,
        negotiation: PodNegotiation,
        op: Binding,
    ) -> Iterator[tuple[Label, World]]:
        """S6 and S7: each claim is reserved, or seen to be; then the pod is bound."""
        who, cache = at[0], world.caches[at[0]]
        new = world.copy()
        if op.write is not None:
            code, key, version = self._carry_out(new, op.write)
            del new.ops[at]
            if isinstance(op.write, Bind):
                self._landed(new, at, code, key, version, op.write)
                if code == 409:
                    new.ops[at] = Awaiting(key, int(op.version or 0) + 1)
                    self._settle_await(new, who, at)
            elif code == 200:
                new.ops[at] = Binding(op.version, (*op.sure, op.about))
            else:
                self._landed(new, at, code, key, version, op.write)
            yield (*label, "lands"), new
            return
        node = next(
            (n for n in cache[NODES_SEEN] if all(reaches(p.claim, n) for p in negotiation.parties)),
            "",
        )
        faults = [
            unusable_reason(p, p.claim, bool(node) and reaches(p.claim, node))
            for p in negotiation.parties
        ]
        if negotiation.missing or any(faults) or not node:
            del new.ops[at]
            yield (*label, "gives up"), new
            return
        for party in negotiation.parties:
            if party.key in op.sure:
                continue
            if party.claim.is_reserved_for(negotiation.pod.metadata.uid):
                write = no_op_patch(party.claim, "status")
                if not self._has("S7"):
                    new.ops[at] = Binding(op.version, (*op.sure, party.key))
                    yield (*label, "believes"), new
                    return
            else:
                write = reservation_patch(party.claim, negotiation.pod)
                if not self._has("S6"):
                    write = msgspec.structs.replace(write, resource_version="")
            new.ops[at] = Binding(op.version, op.sure, write, party.key)
            yield (*label, "reserves"), new
            return
        meta = negotiation.pod.metadata
        bind = Bind(0, "default", meta.name, meta.uid, node, op.version)
        new.ops[at] = Binding(op.version, op.sure, bind)
        yield (*label, "binds"), new

    def _settle_await(self, new: World, who: str, at: tuple[str, str]) -> None:
        op = new.ops[at]
        known = new.caches[who].get(op.key)
        if known is None or int(known.metadata.resource_version) >= op.version:
            del new.ops[at]

    # A driver

    def _free(self, world: World, driver: str, node: str) -> int:
        entries = world.ledgers[driver].values()
        return self.setup.devices[driver].get(node, 0) - sum(e.node == node for e in entries)

    def _driver(self, world: World, driver: str) -> Iterator[tuple[Label, World]]:
        at = (driver, "")
        op = world.ops.get(at)
        if isinstance(op, Awaiting):
            yield from self._waits_no_more(world, at, op)
            return
        if isinstance(op, Doing):
            yield from self._driver_lands(world, driver, at, op)
            return
        cache, ledger = world.caches[driver], world.ledgers[driver]
        view = _View(cache, self.classes)

        def examine(
            pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
        ) -> frozenset[str]:
            own = {claim.metadata.uid for claim in claims}
            here = [e.node for e in ledger.values() if e.uid in own]
            return frozenset(
                n
                for n in nodes
                if self._free(world, driver, n) + here.count(n)
                < (len(claims) if self._has("D5") else 1)
            )

        for name in self.setup.claims:
            actions = pod_actions(
                view, driver, f"default/{name}", ledger, examine, self.driver_rules
            )
            yield from self._acts(world, driver, at, actions, (driver, "pod", name))
        for name, own in self.setup.drivers.items():
            if own != driver:
                continue
            key = f"default/{name}"
            actions = claim_actions(view, driver, key, ledger, self.driver_rules)
            entries = {u: e for u, e in ledger.items() if e.name == name}
            actions = actions or [*free_abandoned(view, entries)]
            yield from self._acts(world, driver, at, actions, (driver, "claim", name))

    def _acts(
        self, world: World, driver: str, at: tuple[str, str], actions: Sequence[Any], label: Label
    ) -> Iterator[tuple[Label, World]]:
        if not actions:
            return
        action, new = actions[0], world.copy()
        if isinstance(action, Free):
            new.ledgers[driver] = {
                uid: e for uid, e in world.ledgers[driver].items() if uid != action.entry.uid
            }
            yield (*label, "frees"), new
        elif isinstance(action, Write):
            new.ops[at] = Doing(action.patch)
            yield (*label, "writes"), new
        elif isinstance(action, Take):
            assert action.on is not None
            if self._has("D5get"):
                new.ops[at] = Doing(no_op_patch(action.on, "status"), (action,), "verify")
                yield (*label, "verifies"), new
            else:
                yield from self._takes(new, driver, at, action, label)

    def _takes(
        self, new: World, driver: str, at: tuple[str, str], take: Take, label: Label
    ) -> Iterator[tuple[Label, World]]:
        """One transaction of the ledger: all of them or none."""
        ledger = new.ledgers[driver]
        fresh = [c for c in take.claims if c.metadata.uid not in ledger]
        new.ops.pop(at, None)
        if len(fresh) <= self._free(new, driver, take.node):
            given = Allocation([("r", take.node, driver)], [take.node]).status(driver)
            new.ledgers[driver] = ledger | {
                c.metadata.uid: Entry(c.metadata.uid, "default", c.metadata.name, take.node, given)
                for c in fresh
            }
            entries = new.ledgers[driver]
            writes = [allocation_patch(c, entries[c.metadata.uid], take.pod) for c in take.claims]
            if not self._has("D6"):
                writes = [msgspec.structs.replace(w, resource_version="") for w in writes]
            if writes:
                new.ops[at] = Doing(writes[0], tuple(writes[1:]))
            yield (*label, "takes"), new
        else:
            yield (*label, "refuses"), new

    def _driver_lands(
        self, world: World, driver: str, at: tuple[str, str], op: Doing
    ) -> Iterator[tuple[Label, World]]:
        new = world.copy()
        label = (driver, "lands")
        write = op.write
        code, key, version = self._carry_out(new, write)
        del new.ops[at]
        if op.kind == "verify" and code == 200:
            yield from self._takes(new, driver, at, op.then[0], label)
            return
        if op.kind == "write" and op.then:
            new.ops[at] = Doing(op.then[0], op.then[1:])
        else:
            self._landed(new, at, code, key, version, write)
        yield label, new

    # Faults

    def _is_selected(self, world: World, name: str) -> bool:
        said = world.server.get(("said", name))
        return said is not None and said.spec.selected_node != ""

    def _faults(self, world: World) -> Iterator[tuple[Label, World]]:
        for i, fault in enumerate(world.faults):
            left = world.faults[:i] + world.faults[i + 1 :]
            what, _, whom = fault.partition(" ")
            if what == "restart":
                new = world.copy()
                new.faults = left
                for at, op in world.ops.items():
                    if at[0] == whom:
                        del new.ops[at]
                        sent = op.write if isinstance(op, Doing | Binding) else None
                        if isinstance(op, Doing) and op.kind == "verify":
                            sent = None
                        if sent is not None:
                            new.ghosts = (*new.ghosts, sent)
                new.caches[whom] = self._all(world, whom)
                yield ("!restart", whom), new
            elif what == "late" and self._is_selected(world, whom):
                new = world.copy()
                new.faults = (*left, f"is-late {whom}")
                yield ("!late", whom), new
            elif what == "delete-pod" and ("pod", whom) in world.server:
                new = world.copy()
                new.faults = left
                self._drop(new, ("pod", whom))
                yield ("!delete-pod", whom), new
            elif what == "make-pod" and ("pod", whom) not in world.server:
                new = world.copy()
                new.faults = left
                self._put(new, ("pod", whom), self._pod(whom, 2))
                yield ("!make-pod", whom), new
            elif what == "delete-claim" and ("claim", whom) in world.server:
                new = world.copy()
                new.faults = left
                claim = world.server["claim", whom]
                if claim.metadata.finalizers:
                    meta = msgspec.structs.replace(claim.metadata, deletion_timestamp="then")
                    self._put(new, ("claim", whom), msgspec.structs.replace(claim, metadata=meta))
                else:
                    self._drop(new, ("claim", whom))
                yield ("!delete-claim", whom), new
            elif what == "make-claim" and ("claim", whom) not in world.server:
                new = world.copy()
                new.faults = left
                self._put(new, ("claim", whom), self._claim(whom, 2))
                yield ("!make-claim", whom), new
            elif what == "lose" and whom in world.nodes:
                new = world.copy()
                new.faults = left
                new.nodes = tuple(n for n in world.nodes if n != whom)
                self._spread(new, NODES_SEEN)
                yield ("!lose", whom), new

    # Laws

    def check(self, world: World) -> None:
        """Raises Violation for a state that must not be."""
        for (kind, name), pod in world.server.items():
            if kind != "pod" or not pod.spec.node_name:
                continue
            for ref in claim_refs(pod):
                claim = world.server.get(("claim", ref.name or ""))
                if claim is None or claim.status.allocation is None:
                    raise Violation(f"{name} is bound, {ref.name} is not allocated")
                if not claim.is_reserved_for(pod.metadata.uid):
                    raise Violation(f"{name} is bound, {ref.name} is not reserved for it")
                if not reaches(claim, pod.spec.node_name):
                    raise Violation(f"{name} is bound where {ref.name} is not")
        for (kind, name), claim in world.server.items():
            if kind == "claim" and self.setup.keeps and flag_of(claim) is not None:
                raise Violation(f"{name} was allocated for nothing")
            if kind != "claim" or claim.status.allocation is None:
                continue
            entry = world.ledgers[self.setup.drivers[name]].get(claim.metadata.uid)
            users = claim.status.reserved_for or ()
            if users and entry is None:
                raise Violation(f"{name} is reserved, and its device is not taken")
            if users and entry is not None and not reaches(claim, entry.node):
                raise Violation(f"{name} is reserved, and its device is elsewhere")

    def ends_well(self, world: World) -> str:
        """Why a state in which nothing can happen any more is not a good end; "" where it is."""
        for driver, ledger in world.ledgers.items():
            for entry in ledger.values():
                claim = world.server.get(("claim", entry.name))
                if claim is None or claim.metadata.uid != entry.uid:
                    return f"{driver} has a device of {entry.name}, which is gone"
                if claim.status.allocation is None:
                    return f"{driver} has a device of {entry.name}, which is not allocated"
        for (kind, name), pod in world.server.items():
            if kind != "pod" or pod.spec.node_name:
                continue
            claims = [world.server.get(("claim", ref.name or "")) for ref in claim_refs(pod)]
            if any(claim is None for claim in claims):
                continue
            for claim in claims:
                users = {user.uid for user in claim.status.reserved_for or ()}
                if users == {pod.metadata.uid}:
                    return f"{name} is not bound and has {claim.metadata.name} for itself"
            if any(self._would_do(world, node, claims) for node in world.nodes):
                return f"{name} is not bound, and could be"
        return ""

    def _would_do(self, world: World, node: str, claims: Sequence[Any]) -> bool:
        needed: dict[str, int] = {}
        for claim in claims:
            driver = self.setup.drivers[claim.metadata.name]
            if claim.metadata.deletion_timestamp:
                return False
            if claim.status.allocation is None:
                needed[driver] = needed.get(driver, 0) + 1
            elif not reaches(claim, node):
                users = {user.uid for user in claim.status.reserved_for or ()}
                pods = (o for (kind, _), o in world.server.items() if kind == "pod")
                unbound = {pod.metadata.uid for pod in pods if not pod.spec.node_name}
                is_lost = not any(reaches(claim, name) for name in world.nodes)
                if users and not (is_lost and users <= unbound):
                    return False
                needed[driver] = needed.get(driver, 0) + 1
        return all(self._free(world, d, node) >= n for d, n in needed.items())

    # States that are the same

    def key(self, world: World) -> Any:
        """Equal for states that differ in nothing but the numbers of their versions."""
        found: list[Any] = [world.nodes, world.faults]
        refs: list[tuple[Key, int]] = []

        def part(obj: Any) -> None:
            template, own = self._part(obj)
            found.append(template)
            refs.extend(own)

        for key in sorted(world.server):
            found.append(key)
            part(world.server[key])
        for process in self.setup.stale:
            cache = world.caches[process]
            for key in sorted(cache):
                if key == NODES_SEEN:
                    found.append(cache[key])
                elif cache[key] is not world.server.get(key):
                    found.append((process, key))
                    part(cache[key])
            found.append([k for k in sorted(world.server) if k not in cache])
        for at in sorted(world.ops):
            op = world.ops[at]
            found.append((at, type(op).__name__))
            if isinstance(op, Awaiting):
                found.append((op.key, op.is_selection))
                refs.append((op.key, op.version))
            elif isinstance(op, Doing):
                found.append(op.kind)
                part(op.write)
                for then in op.then:
                    if isinstance(then, Take):
                        found.append(then.node)
                        for obj in (*then.claims, then.pod, then.on):
                            part(obj)
                    else:
                        part(then)
            else:
                found.append((op.sure, op.about))
                refs.append((("pod", at[1]), int(op.version or 0)))
                if op.write is not None:
                    part(op.write)
        for ghost in world.ghosts:
            part(ghost)
        for driver in self.setup.devices:
            found.append(
                tuple((e.uid, e.node) for e in sorted(world.ledgers[driver].values(), key=_uid))
            )
        versions: dict[Key, set[int]] = {}
        for key, version in refs:
            versions.setdefault(key, set()).add(version)
        ranks = {key: {v: i for i, v in enumerate(sorted(vs))} for key, vs in versions.items()}
        found.append(tuple((key, ranks[key][version]) for key, version in refs))
        return msgspec.msgpack.encode(found)

    def _part(self, obj: Any) -> tuple[int, tuple[tuple[Key, int], ...]]:
        known = self._parts.get(id(obj))
        if known is not None:
            return known
        self._kept.append(obj)  # so that its id stays its own
        refs: list[tuple[Key, int]] = []
        if isinstance(obj, Pod | PodScheduling | ResourceClaim):
            own = (KIND[type(obj)], obj.metadata.name)
            text = type(obj).__name__ + msgspec.json.encode(obj).decode()
        else:
            view = getattr(obj, "view", Pod)
            own = (KIND[view], obj.name)
            fields = {f: getattr(obj, f) for f in obj.__struct_fields__ if f != "view"}
            body = {f: value for f, value in fields.items() if value is not msgspec.UNSET}
            text = type(obj).__name__ + msgspec.json.encode(body).decode()

        def version(match: re.Match[str]) -> str:
            refs.append((own, int(match[2] or 0)))
            return f"{match[1]}#"

        def mark(match: re.Match[str]) -> str:
            refs.append((("flag", match[1]), int(match[3])))
            return f"{match[1]}{match[2]}#"

        def own_mark(match: re.Match[str]) -> str:
            refs.append((("flag", own[1]), int(match[1])))
            return "[#]"

        def of_round(match: re.Match[str]) -> str:
            refs.append((("round", own[1]), int(match[2])))
            return f"{match[1]}#"

        text = VERSION.sub(version, text)
        text = MARK.sub(mark, text)
        text = OWN_MARK.sub(own_mark, text)
        text = ROUND.sub(of_round, text)
        text = ATTEMPT.sub('"attempt":1', text)
        template = self._templates.setdefault(text.encode(), len(self._templates))
        result = self._parts[id(obj)] = (template, tuple(refs))
        return result


VERSION: Final = re.compile(r'("(?:resourceVersion|resource_version)":)"(\d*)"')
MARK: Final = re.compile(r"default/(\w+)( [^\"\[]*)\[(\d+)\]")
ROUND: Final = re.compile(r'("(?:round|observedRound)":)(\d+)')
# Only whether there was one before makes a difference.
ATTEMPT: Final = re.compile(r'"attempt":[1-9]\d*')
OWN_MARK: Final = re.compile(r"\[(\d+)\]")


def _uid(entry: Entry) -> str:
    return entry.uid


class Found(NamedTuple):
    """What an exploration came to. `fault`: what is wrong, with the way to it; "" for nothing."""

    states: int
    is_complete: bool
    fault: str = ""
    way: tuple[Label, ...] = ()


def explore(setup: Setup, states_max: int = 1 << 62, progress: bool = True) -> Found:
    """Every state, breadth first; then, where that was all of them, that each ends well."""
    model = Model(setup)
    first = model.first()
    numbers: dict[Any, int] = {model.key(first): 0}
    came: list[tuple[int, Label]] = [(-1, ())]
    edges: list[list[tuple[Label, int]]] = [[]]
    queue = deque([(0, first)])
    while queue:
        number, world = queue.popleft()
        try:
            model.check(world)
        except Violation as violation:
            return Found(len(numbers), False, str(violation), _way(came, number))
        is_end = True
        for label, new in model.moves(world):
            is_end &= label[0].startswith("!")
            key = model.key(new)
            known = numbers.get(key)
            if known is None:
                if len(numbers) >= states_max:
                    return Found(len(numbers), False)
                known = numbers[key] = len(came)
                came.append((number, label))
                edges.append([])
                queue.append((known, new))
            edges[number].append((label, known))
        if is_end and progress:
            why = model.ends_well(world)
            if why:
                return Found(len(numbers), False, f"a bad end: {why}", _way(came, number))
    cycle = _fair_cycle(edges) if progress else None
    if cycle is not None:
        return Found(
            len(numbers), True, f"a fair cycle of {len(cycle)} states", _way(came, cycle[0])
        )
    return Found(len(numbers), True)


def _way(came: Sequence[tuple[int, Label]], number: int) -> tuple[Label, ...]:
    way = []
    while number > 0:
        number, label = came[number]
        way.append(label)
    return tuple(reversed(way))


def _fair_cycle(edges: Sequence[Sequence[tuple[Label, int]]]) -> list[int] | None:
    """A strongly connected set of states in which everybody who can go on all the time does: they
    could stay in it for ever. None where there is none."""
    for component in _components(edges):
        inside = set(component)
        taken = {
            _who(label)
            for state in component
            for label, to in edges[state]
            if to in inside and not label[0].startswith("!")
        }
        if not taken:
            continue
        always: set[tuple[str, ...]] | None = None
        for state in component:
            enabled = {_who(label) for label, _ in edges[state] if not label[0].startswith("!")}
            always = enabled if always is None else always & enabled
        if (always or set()) <= taken:
            return component
    return None


def _who(label: Label) -> Label:
    """Who does it: each pod's part of a scheduler, each driver, the delivery of each object."""
    return label if label[0] == "deliver" else label[:2]


def _components(edges: Sequence[Sequence[tuple[Label, int]]]) -> Iterator[list[int]]:
    """Strongly connected components that have an edge within (Tarjan, without recursion), faults
    left out."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    serial = count()

    def nexts(state: int) -> Iterator[int]:
        return iter([to for label, to in edges[state] if not label[0].startswith("!")])

    for root in range(len(edges)):
        if root in order:
            continue
        work = [(root, nexts(root))]
        order[root] = low[root] = next(serial)
        stack.append(root)
        on_stack.add(root)
        while work:
            state, rest = work[-1]
            for to in rest:
                if to not in order:
                    order[to] = low[to] = next(serial)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, nexts(to)))
                    break
                if to in on_stack:
                    low[state] = min(low[state], order[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == order[state]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == state:
                            break
                    within = len(component) > 1 or any(
                        to == state for label, to in edges[state] if not label[0].startswith("!")
                    )
                    if within:
                        yield component
