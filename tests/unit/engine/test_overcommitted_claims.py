"""Devices that another scheduler has allocated at the same time, through the engine's one entry."""

from collections import deque
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.devices.overcommits import GIVEN_BACK, mark_of
from stower.devices.overview import overview
from stower.engine.engine import Engine
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, CreateObject, PatchObject, PatchPodStatus, Write
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.pod import PodCondition
from stower.model.times import SECOND_NS
from stower.sim.changes import bound, merged, patched
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)

NAMES = ("default-scheduler", "other")
OTHER = {"schedulerName": "other"}


class Rivals:
    """One API, and a scheduler for each of NAMES: each is shown all changes in their order, when it
    is asked to `look`."""

    def __init__(self, *objects: Any) -> None:
        self.objects: dict[str, Any] = {obj.metadata.uid: obj for obj in objects}
        self.version = 100
        self.now_ns = 0
        self.writes: list[Write] = []
        self._sent: dict[str, deque[Write]] = {}
        self._behind: dict[str, deque[Event]] = {}
        self.engines: dict[str, Engine] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """The scheduler starts, and lists; what it had sent before is lost."""
        self.engines[name] = build_engine({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": name}],
        })  # fmt: skip
        self._sent[name], self._behind[name] = deque(), deque()
        self._step(name, Listed(tuple(self.objects.values())))

    def put(self, obj: Any) -> None:
        """Somebody writes an object."""
        kind = WatchType.MODIFIED if obj.metadata.uid in self.objects else WatchType.ADDED
        self.version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        obj = msgspec.structs.replace(obj, metadata=meta)
        self.objects[obj.metadata.uid] = obj
        for behind in self._behind.values():
            behind.append(Observed(kind, obj))

    def look(self, name: str) -> None:
        """The scheduler is shown all that has changed."""
        while self._behind[name]:
            self._step(name, self._behind[name].popleft())

    def serve(self, name: str) -> None:
        """What the scheduler has sent is carried out and answered."""
        while self._sent[name]:
            write = self._sent[name].popleft()
            self._step(name, self._carry_out(write))

    def settle(self, seconds: int = 0) -> None:
        """Everything takes its course."""
        self.now_ns += seconds * SECOND_NS
        for name in NAMES:
            self._step(name, Tick())
        while any(self._sent.values()) or any(self._behind.values()):
            for name in NAMES:
                self.serve(name)
            for name in NAMES:
                self.look(name)

    def _step(self, name: str, event: Event) -> None:
        writes = self.engines[name].step(event, self.now_ns)
        known = (Bind, PatchObject, PatchPodStatus, CreateObject)
        self._sent[name] += [write for write in writes if isinstance(write, known)]
        self.writes += writes

    def _carry_out(self, write: Any) -> Event:
        found = self.objects.get(write.uid)
        if found is None:
            return WriteFailed(write.id, 404, "not found")
        meta = found.metadata
        if write.resource_version not in ("", meta.resource_version):
            return WriteFailed(write.id, 409, "conflict")
        if isinstance(write, PatchObject):
            changed: Any = merged(found, write)
        else:
            changed = bound(found, write) if isinstance(write, Bind) else patched(found, write)
        if changed != found:
            self.put(changed)
        return WriteOk(write.id, self.objects[write.uid].metadata.resource_version)

    def get(self, obj: Any) -> Any:
        """The object as it is now."""
        return self.objects[obj.metadata.uid]

    def nodes(self, *pods: Pod) -> list[str]:
        """Where these pods are, "" for nowhere."""
        return [self.get(pod).spec.node_name for pod in pods]

    def allocated(self, *claims: ResourceClaim) -> list[bool]:
        """Which of these claims have devices."""
        return [self.get(claim).status.allocation is not None for claim in claims]


GPUS = device_slice("n1", device("gpu-0"))
CARD = {"counterSet": "card", "counters": {"cores": {"value": "5"}}}
PARTS = device_slice(
    "n1", device("a", consumesCounters=[CARD]), device("b", consumesCounters=[CARD])
)
COUNTERS = device_slice(
    "n1", sharedCounters=[{"name": "card", "counters": {"cores": {"value": "8"}}}]
)
SHARED = device_slice("n1", device("gpu-0", memory="10Gi", shared=True))


def touches(api: Rivals) -> list[tuple[str, str]]:
    """The pods that were touched before a claim was given back, with the mark of the claim."""
    patches = (write for write in api.writes if isinstance(write, PatchPodStatus))
    return [
        (patch.name, patch.condition.message)
        for patch in patches
        if patch.condition is not None and patch.condition.type == GIVEN_BACK
    ]


def of_two_slices(*slices: Any) -> list[Any]:
    """Slices of one pool."""
    found = []
    for i, each in enumerate(slices):
        meta = msgspec.structs.replace(each.metadata, name=f"s{i}", uid=f"s{i}")
        pool = msgspec.structs.replace(each.spec.pool, resource_slice_count=len(slices))
        spec = msgspec.structs.replace(each.spec, pool=pool)
        found.append(msgspec.structs.replace(each, metadata=meta, spec=spec))
    return found


@pytest.mark.parametrize(
    ("slices", "asked"),
    [
        ([GPUS], request()),
        ([SHARED], request(memory="6Gi")),
        (of_two_slices(PARTS, COUNTERS), request(selectors=[
            {"cel": {"expression": f'device.driver == "{GPU}"'}}])),
    ],
    ids=["whole", "share", "counters"],
)  # fmt: skip
def test_of_two_that_allocate_at_once_the_later_gives_back(slices: list[Any], asked: Any) -> None:
    claims = [resource_claim(f"c{i}", asked) for i in range(2)]
    pods = [claiming("p0", "c0"), claiming("p1", "c1", **OTHER)]
    api = Rivals(make_node("n1"), device_class(), *slices, *claims, *pods)
    for name in NAMES:  # both have decided before they see anything of each other
        api.serve(name)
        for key in NAMES:
            if key == name:
                api.look(key)
    api.settle()
    assert [True, False] == api.allocated(*claims)
    assert ["n1", ""] == api.nodes(*pods)
    assert [0, 1] == [e.binding.overcommitted.given_back_count for e in api.engines.values()]
    api.settle(30)
    assert all(engine.is_settled for engine in api.engines.values())


def test_nothing_more_is_written_where_nobody_competes() -> None:
    claim, pod = resource_claim("c0"), claiming("p0", "c0")
    api = Rivals(make_node("n1"), device_class(), GPUS, claim, pod)
    api.settle()
    assert ["n1"] == api.nodes(pod)
    kinds = [type(write) for write in api.writes if not hasattr(write, "note")]
    assert sorted(kinds, key=str) == [Bind, PatchObject, PatchObject, PatchPodStatus]


def allocated(name: str, *users: Pod) -> ResourceClaim:
    """A claim that has gpu-0."""
    results = [{"request": "r", "driver": GPU, "pool": "n1", "device": "gpu-0"}]
    reserved = [
        {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in users
    ]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return resource_claim(name, status=status)


def test_after_a_restart_nobody_is_bound_on_what_may_have_been_second() -> None:
    """Which of the two was first is unknown: it is given back, after the pod was touched."""
    pods = [claiming("p0", "c0"), claiming("p1", "c1", schedulerName="a third one")]
    claims = [allocated("c0", pods[0]), allocated("c1", pods[1])]
    api = Rivals(make_node("n1"), device_class(), GPUS, *claims, *pods)
    mark = mark_of(claims[0])
    api.settle()
    assert [False, True] == api.allocated(*claims)
    assert ["", ""] == api.nodes(*pods)
    assert [("p0", mark)] == touches(api)
    assert api.get(pods[0]).condition(GIVEN_BACK) is None, "it no longer holds"


def test_a_bound_pod_keeps_what_it_has() -> None:
    """Though another scheduler has not looked, and bound its own: that is shown."""
    pods = [claiming("p0", "c0", node="n1"), claiming("p1", "c1", node="n1", **OTHER)]
    claims = [allocated("c0", pods[0]), allocated("c1", pods[1])]
    api = Rivals(make_node("n1"), device_class(), GPUS, *claims, *pods)
    api.settle(30)
    assert [True, True] == api.allocated(*claims)
    state = api.engines["other"].state
    found = overview(state.devices, [node for node in state.nodes if node is not None])
    assert found is not None
    assert [True] == [each.overcommitted for each in found.devices]


def test_a_pod_waits_for_a_shared_claim_that_is_second_to_another() -> None:
    """It belongs to nobody of ours: it is left alone, and nobody is bound on it."""
    foreign = claiming("f", "c0", schedulerName="a third one")
    pods = [claiming("p0", "c1"), claiming("p1", "c1")]
    api = Rivals(make_node("n1"), device_class(), GPUS, allocated("c0", foreign), foreign)
    shared = allocated("c1", foreign)
    api.put(shared)
    for pod in pods:
        api.put(pod)
    api.settle(30)
    assert ["", ""] == api.nodes(*pods)
    assert [True] == api.allocated(shared)
    (message,) = {api.get(pod).condition("PodScheduled").message for pod in pods}
    assert "device gpu.example.com/n1/gpu-0 was allocated to claim default/c0 before" in message


def test_all_pods_of_a_claim_are_touched_before_it_is_given_back() -> None:
    pods = [claiming("p0", "c1"), claiming("p1", "c1")]
    first = claiming("f", "c0", schedulerName="a third one")
    api = Rivals(make_node("n1"), device_class(), GPUS, allocated("c0", first), first, *pods)
    shared = allocated("c1", *pods)
    api.put(shared)
    api.settle()
    assert [False] == api.allocated(shared)
    assert ["p0", "p1"] == [name for name, _ in touches(api)]
    assert [None, None] == [api.get(pod).condition(GIVEN_BACK) for pod in pods]


def test_a_claim_that_was_about_to_be_given_back_is_so_after_a_restart() -> None:
    """The other one has gone meanwhile; but the request may still be on its way."""
    pod = claiming("p0", "c0")
    claim = allocated("c0", pod)
    condition = PodCondition(GIVEN_BACK, "True", "DeviceOvercommitted", mark_of(claim))
    status = msgspec.structs.replace(pod.status, conditions=(condition,))
    api = Rivals(
        make_node("n1"), device_class(), GPUS, claim, msgspec.structs.replace(pod, status=status)
    )
    assert not [write for write in api.writes if isinstance(write, Bind)]
    api.settle()
    api.settle(30)
    assert 1 == api.engines["default-scheduler"].binding.overcommitted.given_back_count
    assert ["n1"] == api.nodes(pod)


def test_a_list_is_looked_at_as_a_whole() -> None:
    """Two allocations come with one list: none of them counts as the first."""
    pods = [claiming("p0", "c0"), claiming("p1", "c1", **OTHER)]
    claims = [resource_claim("c0"), resource_claim("c1")]
    api = Rivals(make_node("n1"), device_class(), GPUS, *claims, *pods)
    for name in NAMES:
        api.serve(name)  # finalizers
        api.look(name)
        api.serve(name)  # allocations
    engine = api.engines["default-scheduler"]
    writes = engine.step(Listed(tuple(api.objects.values())), api.now_ns)
    assert not [write for write in writes if isinstance(write, Bind)]


def test_a_pod_that_goes_elsewhere_is_bound_without_a_condition_that_no_longer_holds() -> None:
    """The write comes after the binding, and again where a restart has lost it."""
    pod = claiming("p0", "c1")
    first = claiming("f", "c0", schedulerName="a third one")
    more = [make_node("n1"), make_node("n2"), device_class(), GPUS]
    api = Rivals(*more, device_slice("n2", device("gpu-0")), allocated("c0", first), first, pod)
    second = allocated("c1", pod)
    api.put(second)
    api.settle()
    api.settle(1)
    assert ["n2"] == api.nodes(pod)
    assert ["p0"] == [name for name, _ in touches(api)]
    assert api.get(pod).condition(GIVEN_BACK) is None
    condition = PodCondition(GIVEN_BACK, "True", "DeviceOvercommitted", mark_of(second))
    found = api.get(pod)
    api.put(patched(found, PatchPodStatus(0, "default", "p0", found.metadata.uid, condition)))
    api.start(NAMES[0])
    api.settle()
    assert api.get(pod).condition(GIVEN_BACK) is None
