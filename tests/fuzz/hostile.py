"""A user who may create pods, groups, claims and pools in one namespace, with the worst that there
is, and pods of another namespace that come meanwhile, of the same priority,
    for which there is room.

Time is counted: each function of Python that a step calls takes CALL_NS of virtual time, and
nothing else takes any. So how long a pod waits says how much was done for others,
    and is the same each time.
"""

import cProfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from stower.assembly import build_engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.plugin import Features, read_features
from stower.framework.writes import AgentAnswer, Bind, CreateEvent
from stower.model.kinds import (
    CompositePodGroup,
    DeviceClass,
    Pod,
    PodGroup,
    ResourceClaim,
    ResourceSlice,
    WarmPool,
)
from stower.model.raw import decode
from stower.sim.server import OK, Change, Server
from tests.builders import make_node, make_pod
from tests.fuzz.mutants import text_of

NODES: Final = 20
CALL_NS: Final = 1_000  # more than it takes
STEPS_MAX: Final = 20_000
CHANGE_NS: Final = SECOND_NS // 100  # between two changes that the user makes
CYCLES_PER_STEP: Final = 20  # as a shell that reads between them
FEATURES, _ = read_features("AllAlpha=true,WarmPools=true", Features())
Document = dict[str, Any]


class Wait(NamedTuple):
    """How a pod of the other namespace waited: steps, functions called, virtual seconds."""

    steps: int
    calls: int
    seconds: float


def made(view: type[Any], name: str, **fields: Any) -> Any:
    """An object of the hostile namespace."""
    meta = {"name": name, "namespace": "hostile", "uid": f"{view.__name__}-{name}"}
    meta |= fields.pop("metadata", {})
    return decode(text_of({**fields, "metadata": meta}), view)


def pod(name: str, cpu: str = "100m", labels: Document | None = None, **spec: Any) -> Pod:
    """A pod of the hostile namespace."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "default-scheduler", "containers": [container], **spec}
    found: Pod = made(Pod, name, metadata={"labels": labels or {}}, spec=spec)
    return found


def not_in(number: int) -> Document:
    """A selector of everything, unlike all others."""
    term = {"key": f"k{number}", "operator": "NotIn", "values": ["x"]}
    return {"matchExpressions": [term]}


def affinities(count: int, terms: int) -> list[Any]:
    """Pods that keep away from all pods of all namespaces, each in terms of its own."""
    found = []
    for i in range(count):
        away = [
            {"labelSelector": not_in(i * terms + j), "topologyKey": "zone", "namespaceSelector": {}}
            for j in range(terms)
        ]  # fmt: skip
        required = {"requiredDuringSchedulingIgnoredDuringExecution": away}
        # There is no such node: none of them is ever placed where it keeps others away.
        found.append(
            pod(f"p{i}", nodeSelector={"none": "x"}, affinity={"podAntiAffinity": required})
        )
    return found


def spreads(count: int, constraints: int) -> list[Any]:
    """Pods with many constraints, none of which can be met."""
    return [
        pod(f"p{i}", topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "none", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": not_in(i * constraints + j)}
            for j in range(constraints)
        ])
        for i in range(count)
    ]  # fmt: skip


def too_large(count: int) -> list[Any]:
    """Pods of unlike sizes that fit nowhere, and would preempt."""
    return [pod(f"p{i}", cpu=f"{1000 + i}") for i in range(count)]


def ports(count: int) -> list[Any]:
    """Pods that want a hundred ports of their node each, of which one is taken everywhere."""
    many = [{"containerPort": 1, "hostPort": 7_000 + i} for i in range(100)]
    found: list[Any] = []
    for i in range(count):
        one = pod(f"p{i}")
        container = {"name": "c", "ports": many}
        spec = {"schedulerName": "default-scheduler", "containers": [container]}
        found.append(made(Pod, one.metadata.name, spec=spec))
    return found


def terms(count: int) -> list[Any]:
    """Pods with a thousand terms about nodes and a thousand tolerations each."""
    found = []
    for i in range(count):
        nodes = [
            {"matchExpressions": [{"key": f"l{i}-{j}", "operator": "Exists"}]} for j in range(1_000)
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": nodes}}
        tolerations = [{"key": f"t{i}-{j}", "operator": "Exists"} for j in range(1_000)]
        found.append(pod(f"p{i}", affinity={"nodeAffinity": required}, tolerations=tolerations))
    return found


def trees(groups: int, each: int) -> list[Any]:
    """A tree of groups of unlike pods that cannot all be placed, each in one domain."""
    top = {"schedulingPolicy": {"gang": {"minGroupCount": groups}}}
    found = [made(CompositePodGroup, "top", spec=top)]
    for i in range(groups):
        spec = {"parentCompositePodGroupName": "top",
            "schedulingPolicy": {"gang": {"minCount": each}},
                "schedulingConstraints": {"topology": [{"key": ("zone",
                    "rack")[i % 2]}]}}  # fmt: skip
        found.append(made(PodGroup, f"g{i}", spec=spec))
        for j in range(each):
            cpu = f"{700 + 37 * i + 11 * j}m"
            found.append(pod(f"g{i}-{j}", cpu, schedulingGroup={"podGroupName": f"g{i}"}))
    return found


def gangs(count: int) -> list[Any]:
    """Many trees, one pod missing in each."""
    found: list[Any] = []
    for i in range(count):
        gang = {"gang": {"minCount": 4}}
        found.append(made(PodGroup, f"g{i}", spec={"schedulingPolicy": gang}))
        found += [
            pod(f"g{i}-{j}", "7", schedulingGroup={"podGroupName": f"g{i}"}) for j in range(4)
        ]
    return found


def claims(count: int) -> list[Any]:
    """Claims of four devices that must be alike and are not, with a costly selector."""
    inner = "[1,2,3,4,5,6,7,8,9,10]"
    selector = f"{inner}.all(a, {inner}.all(b, {inner}.all(c, a + b + c < 100)))"
    found: list[Any] = []
    for i in range(count):
        text = f"{selector} && {i} == {i}"
        requests = [
            {"name": f"r{j}", "exactly": {
                "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{"cel": {"expression": text}}]}}
            for j in range(4)
        ]  # fmt: skip
        spec = {"devices": {"requests": requests, "constraints": [{"matchAttribute": "d/a"}]}}
        found.append(made(ResourceClaim, f"c{i}", spec=spec))
        found.append(pod(f"p{i}", resourceClaims=[{"name": "c", "resourceClaimName": f"c{i}"}]))
    return found


def pools(count: int) -> list[Any]:
    """Pools that want thousands of placeholders which fit nowhere."""
    container = {"name": "c", "resources": {"requests": {"cpu": "500"}}}
    found = []
    for i in range(count):
        template = {
            "metadata": {"labels": {"hold": f"{i}"}},
            "spec": {"schedulerName": "default-scheduler", "containers": [container]},
        }
        placeholders = {
            "selector": {"matchLabels": {"hold": f"{i}"}}, "template": template,
            "replicas": 500, "replicasMax": 500,
        }  # fmt: skip
        spec = {"users": {"matchLabels": {"user": f"{i}"}}, "placeholders": placeholders}
        found.append(made(WarmPool, f"w{i}", spec=spec))
    return found


def small_pools(count: int) -> list[Any]:
    """Pools without placeholders, whose images are changed all the time (see HostileUser)."""
    spec = {"users": {"matchLabels": {"user": "x"}}, "placeholders": {"selector": {}}}
    return [made(WarmPool, f"w{i}", spec=spec) for i in range(count)]


def gated(count: int) -> list[Any]:
    """Pods that wait for others, and are changed all the time (see HostileUser)."""
    return [pod(f"p{i}", cpu=f"{1000 + i}", schedulingGates=[{"name": "g"}]) for i in range(count)]


SCENES: Final[dict[str, Callable[[], list[Any]]]] = {
    "300 pods with 50 anti-affinity terms about everybody": lambda: affinities(300, 50),
    "300 pods with 30 spread constraints": lambda: spreads(300, 30),
    "1,000 pods of unlike sizes that are too large": lambda: too_large(1_000),
    "500 pods with 100 ports of the host": lambda: ports(500),
    "50 pods with 1,000 terms and tolerations": lambda: terms(50),
    "a tree of 12 unlike groups in domains": lambda: trees(12, 3),
    "200 gangs that do not fit": lambda: gangs(200),
    "4 claims with a costly selector": lambda: claims(4),
    "4 pools of 500 placeholders": lambda: pools(4),
    "300 pools that are changed all the time": lambda: small_pools(300),
    "300 pods whose gates are changed all the time": lambda: gated(300),
}


def world() -> Iterator[Any]:
    """Nodes with room for the others, with 8 unlike devices each."""
    for i in range(NODES):
        labels = {"zone": f"z{i % 4}", "rack": f"r{i % 7}", "kubernetes.io/hostname": f"n{i}"}
        yield make_node(f"n{i}", cpu="8", labels=labels)
        devices = [
            {"name": f"d{j}", "attributes": {"a": {"string": f"{j}"}, "u": {"string": f"{i}-{j}"}}}
            for j in range(8)
        ]  # fmt: skip
        pool = {"name": f"n{i}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d", "nodeName": f"n{i}", "pool": pool, "devices": devices}
        yield made(ResourceSlice, f"s{i}", spec=spec)
    yield made(DeviceClass, "any", spec={})


class HostileUser:
    """A cluster in which the objects of a scene are created, and one of its pods, or of its pools
    without placeholders, is changed each CHANGE_NS; an API server that carries out all writes at
    once."""

    def __init__(self, scene: list[Any]) -> None:
        self.now_ns = SECOND_NS
        self.engine = build_engine(None, features=FEATURES, cycles_per_step_max=CYCLES_PER_STEP)
        self.server = Server(lambda: self.now_ns)
        self.server.tell.append(self._hear)
        self.steps = self.calls = self.longest = 0
        self.bound: dict[str, None] = {}
        self._scene = scene
        self._turn = 0
        self._change_ns = 0
        self._inbox: deque[Any] = deque()
        self._counter = cProfile.Profile(subcalls=False, builtins=False)
        for obj in world():
            self.server.put(obj)
        self._inbox.clear()
        self.step(Listed(tuple(self.server.list_objects())))

    def _hear(self, change: Change) -> None:
        self._inbox.append(Observed(change[1], change[2]))

    def step(self, event: Any) -> None:
        """One event; all that is written is carried out, and shown with the next steps."""
        self._counter.enable()
        try:
            writes = self.engine.step(event, self.now_ns)
        finally:
            self._counter.disable()
        calls = sum(one.callcount for one in self._counter.getstats())
        self._counter.clear()
        self.engine.drain()
        self.steps += 1
        self.calls += calls
        self.longest = max(self.longest, calls)
        self.now_ns += calls * CALL_NS
        if self.engine.errors.counts:
            raise AssertionError(f"internal errors: {dict(self.engine.errors.counts)}")
        for write in writes:
            if isinstance(write, Bind):
                self.bound[write.uid] = None
            if not isinstance(write, AgentAnswer):
                self._inbox.append(write)

    def advance(self) -> None:
        """What comes next: an event, an answer, or a tick when the engine wants one."""
        self._change_objects()
        if self._inbox:
            one = self._inbox.popleft()
            if isinstance(one, Observed):
                self.step(one)
                return
            status = OK if isinstance(one, CreateEvent) else self.server.carry_out(one)[0]
            self.step(WriteOk(one.id) if status == OK else WriteFailed(one.id, status, "no"))
            return
        wake_ns = self.engine.next_wake_ns
        later_ns = self.now_ns + CHANGE_NS
        self.now_ns = max(self.now_ns, min(wake_ns or later_ns, later_ns))
        self.step(Tick())

    def create(self, objects: list[Any]) -> None:
        """The user's objects, all at once."""
        for obj in objects:
            self.server.put(obj)

    def _change_objects(self) -> None:
        """Labels and gates of the user's pods, and images of pools, change one after the other."""
        changing = [obj for obj in self._scene if _is_changing(obj)]
        while changing and self._change_ns <= self.now_ns:
            self._change_ns = max(self._change_ns, self.now_ns - SECOND_NS) + CHANGE_NS
            self._turn += 1
            obj = changing[self._turn % len(changing)]
            found = self.server.get(type(obj), obj.metadata.key)
            if isinstance(found, WarmPool):
                images = msgspec.structs.replace(found.spec.images, names=(f"i{self._turn}",))
                spec = msgspec.structs.replace(found.spec, images=images)
                self.server.put(msgspec.structs.replace(found, spec=spec))
            elif found is not None and not found.spec.node_name:
                labels = {**(found.metadata.labels or {}), "turn": f"{self._turn}"}
                meta = msgspec.structs.replace(found.metadata, labels=labels)
                spec = msgspec.structs.replace(found.spec, scheduling_gates=None)
                self.server.put(msgspec.structs.replace(found, metadata=meta, spec=spec))

    def wait_of(self, number: int) -> Wait:
        """A pod of the other namespace comes; how long until it is bound."""
        victim = make_pod_of_others(number)
        steps, calls, began_ns = self.steps, self.calls, self.now_ns
        self.server.put(victim)
        while victim.metadata.uid not in self.bound:
            if self.steps - steps > STEPS_MAX:
                raise AssertionError(f"{victim.key} waits for more than {STEPS_MAX:,} steps")
            self.advance()
        return Wait(self.steps - steps, self.calls - calls, (self.now_ns - began_ns) / SECOND_NS)


def _is_changing(obj: Any) -> bool:
    is_small_pool = isinstance(obj, WarmPool) and obj.spec.placeholders.template is None
    return isinstance(obj, Pod) or is_small_pool


def make_pod_of_others(number: int) -> Pod:
    """A small plain pod."""
    return make_pod(f"v{number}", namespace="others", cpu="10m", memory="1Mi")


def waits(name: str, count: int = 5) -> tuple[list[Wait], int]:
    """How the pods of others waited that came one after the other,
        the first with the scene; and the
    most calls of a step."""
    scene = SCENES[name]()
    user = HostileUser(scene)
    user.create(scene)
    found = []
    for number in range(count):
        found.append(user.wait_of(number))
        until_ns = user.now_ns + 4 * SECOND_NS
        while user.now_ns < until_ns:
            user.advance()
    return found, user.longest
