"""Small clusters for scenarios: who has how many devices where, and drivers that are a test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stower.driver import Allocation
from stower.framework.writes import PatchObject, Write, patch_of
from stower.model.kinds import Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.resource_claim import DEALLOCATION_REQUESTED
from tests.negotiation.keeping import Keeper, delete
from tests.negotiation.laws import Laws
from tests.negotiation_cluster import Cluster, Counting, nodes

SCHEDULER = "default-scheduler"


def configured(**arguments: str) -> dict[str, Any]:
    """A configuration with these arguments of NegotiatedResources."""
    config = [{"name": "NegotiatedResources", "args": arguments}]
    return {"profiles": [{"schedulerName": SCHEDULER, "pluginConfig": config}]}


class Scene(Cluster):
    """A cluster that runs: nodes, drivers with so many devices on them, a scheduler, and whoever
    looks after claims. Laws are watched, unless the test is a driver itself."""

    def __init__(
        self,
        *names: str,
        configuration: Mapping[str, Any] | None = None,
        node_fields: Mapping[str, Any] | None = None,
        laws: bool = True,
        **devices: Mapping[str, int],
    ) -> None:
        super().__init__(nodes(*names, **(node_fields or {})), configuration)
        self.keeper = Keeper(self)
        self.seen: list[Any] = []  # each version of each object, in order
        self.server.tell.append(lambda change: self.seen.append(change[2]))
        for driver, counts in devices.items():
            self.add_driver(Counting(f"{driver}.example.com", counts))
        self.start()
        if laws:
            Laws(self)
        self.others.append(self.keeper.work)

    def driver(self, name: str = "fabric") -> Counting:
        """The driver, as its author wrote it."""
        found = self.drivers[f"{name}.example.com"].driver
        assert isinstance(found, Counting)
        return found

    def class_of(self, driver: str, **fields: Any) -> None:
        """A class whose driver is the test."""
        meta = {"name": driver, "uid": driver}
        self.put(ResourceClass, {"metadata": meta, "driverName": f"{driver}.example.com", **fields})

    # What drivers do, one write at a time

    def answer(self, pod: str, entry: str, *unsuitable: str, round: int | None = None) -> None:
        """Say which nodes will not do for one claim of the pod."""
        said = self.said(pod)
        assert said is not None
        others = [a for a in said.status.resource_claims or () if a.name != entry]
        own = {"name": entry, "unsuitableNodes": [*unsuitable] or None,
               "observedRound": said.spec.round if round is None else round}  # fmt: skip
        status = {"resourceClaims": [*msgspec.to_builtins(others), own]}
        self.write(patch_of(said, {"status": status}, "status"))

    def allocate(
        self, claim: str, node: str, *users: str, driver: str = "fabric.example.com"
    ) -> None:
        """The finalizer; then the device and its users."""
        found = self.has(claim)
        self.write(patch_of(found, {"metadata": {"finalizers": [f"{driver}/allocated"]}}))
        allocation = Allocation([("device", node, claim)], [node]).status(driver)
        status: dict[str, Any] = {"allocation": allocation}
        if users:
            status["reservedFor"] = [
                {"resource": "pods", "name": u, "uid": f"uid-of-default-{u}"} for u in users
            ]
        self.write(patch_of(self.has(claim), {"status": status}, "status"))

    def flag(self, claim: str) -> None:
        """Somebody wants the devices back."""
        note = {"annotations": {DEALLOCATION_REQUESTED: "for the test"}}
        self.write(patch_of(self.has(claim), {"metadata": note}))

    # What people do

    def delete(self, view: type[Any], name: str) -> None:
        """Delete an object, if there is one."""
        key = f"default/{name}" if view in (Pod, ResourceClaim, PodScheduling) else name
        found = self.server.get(view, key)
        if found is not None:
            delete(self, found)

    # What has come of it

    def flagged(self) -> list[str]:
        """The claims that were flagged at some time, in that order."""
        found = [
            obj.metadata.name
            for obj in self.seen
            if isinstance(obj, ResourceClaim)
            and DEALLOCATION_REQUESTED in (obj.metadata.annotations or {})
        ]
        return list(dict.fromkeys(found))

    def allocated(self) -> list[str]:
        """The claims that have devices."""
        claims = self.server.all(ResourceClaim).values()
        return sorted(c.metadata.name for c in claims if c.status.allocation is not None)

    def pool(self, claim: str) -> str:
        """Where the claim's device is, "" for nowhere."""
        allocation = self.has(claim).status.allocation
        results = allocation.devices.results if allocation is not None else None
        return results[0].pool if results else ""

    def users(self, claim: str) -> list[str]:
        """The pods for which the claim is reserved."""
        return [user.name for user in self.has(claim).status.reserved_for or ()]

    def spec_writes(self, pod: str) -> list[Write]:
        """What came of what the scheduler wrote about the pod's PodScheduling."""
        return [
            write
            for write in self.scheduler.done
            if getattr(write, "view", None) is PodScheduling and write.name == pod
        ]

    def rest(self) -> tuple[list[str], list[str], list[str]]:
        """What is left over: entries of ledgers, allocated claims, PodSchedulings."""
        entries = [e.name for p in self.drivers.values() for e in p.ledger.entries.values()]
        said = [said.metadata.name for said in self.server.all(PodScheduling).values()]
        return sorted(entries), self.allocated(), said


def merged(writes: Sequence[Write]) -> list[dict[str, Any]]:
    """What patches of a spec say."""
    return [w.patch["spec"] for w in writes if isinstance(w, PatchObject) and "spec" in w.patch]


def at_each_step(make: Callable[[], Scene], start: int = 0) -> Iterator[tuple[int, Scene]]:
    """The scene after no step, one, two, and so on, until it is settled."""
    for count in range(start, 10_000):
        scene = make()
        goes_on = scene.run(count)
        yield count, scene
        if not goes_on:
            return
    raise AssertionError("it goes on and on")


def owner_of(pod: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-of-default-{pod}",
            "controller": True}  # fmt: skip


def select(scene: Cluster, pod: str, **spec: Any) -> PodScheduling:
    """What a scheduler writes."""
    meta = {"name": pod, "namespace": "default", "uid": f"ps-{pod}",
            "ownerReferences": [owner_of(pod)]}  # fmt: skip
    said: PodScheduling = scene.put(PodScheduling, {"metadata": meta, "spec": spec})
    return said
