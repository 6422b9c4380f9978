"""A hub on an engine and a server without delay: nodes of a few slots, as the seed draws them.

`U` is a user, `P` a placeholder, `+` room; states are written as `PPP++ UU+++`.
"""

from collections import deque
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.framework.events import Event, Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.plugin import Features
from stower.framework.writes import AgentAnswer, CallExtender, CreateEvent, Write
from stower.model.kinds import Node, Pod, WarmPool
from stower.model.times import SECOND_NS, time_text
from stower.plugins.warm_capacity import find_warm_controller
from stower.sim.hub_policies import Z2JH_FIT, Z2JH_SCORE
from stower.sim.server import OK, Change, Server
from stower.warm.controller import WarmCapacity
from stower.warm.pools import Pool

START_NS = 1_800_000_000 * SECOND_NS // (10 * SECOND_NS) * (10 * SECOND_NS)
BEGUN_NS = 70 * SECOND_NS  # who begins moves nobody for a minute: that is over at START_NS
IMAGE = "hub.example.com/user:1"
USER = {"component": "singleuser-server"}
PLACEHOLDER = {"component": "user-placeholder"}
PULLER = {"component": "continuous-image-puller"}
POOL: dict[str, Any] = {
    "users": {"matchLabels": USER},
    "images": {"names": [IMAGE]},
    "placeholders": {"selector": {"matchLabels": PLACEHOLDER}},
}
TEMPLATE = {
    "metadata": {"labels": PLACEHOLDER},
    "spec": {
        "schedulerName": "hub",
        "priority": -10,
        "containers": [{"name": "pause", "image": "pause:1",
                        "resources": {"requests": {"cpu": "1"}}}],
    },
}  # fmt: skip


def merged(spec: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """The settings with others in them."""
    found = dict(spec)
    for name, value in more.items():
        is_part = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if is_part else value
    return found


class Hub:
    """See the module. Nothing happens but what is told, and what the engine writes."""

    def __init__(self, **more: Any) -> None:
        """`more`: settings of the pool beside POOL's."""
        self.now_ns = START_NS - BEGUN_NS
        self.server = Server(lambda: self.now_ns)
        self.server.tell.append(self._happened)
        self.writes: list[Write] = []
        self.events: list[CreateEvent] = []
        self._inbox: deque[Event] = deque()
        self._is_stepping = False
        self._made = 0
        spec = merged(POOL, more)
        document = {
            "metadata": {"name": "users", "namespace": "default", "uid": "pool"},
            "spec": spec,
        }
        self.engine = self.built()
        self._take(Listed(()))
        self.server.put(msgspec.convert(document, WarmPool))
        self.advance(BEGUN_NS / SECOND_NS)
        self.writes.clear()

    def built(self) -> Any:
        """An engine with z2jh's rules."""
        profile = {
            "schedulerName": "hub",
            "plugins": {"score": Z2JH_SCORE},
            "pluginConfig": [
                Z2JH_FIT,
                {"name": "WarmCapacity", "args": {"nodeLabels": ["example.com/*", "hub/warm"]}},
            ],
        }
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
        return build_engine(document, features=Features(warm_pools=True))

    def add_pool(self, name: str, **more: Any) -> None:
        """One more, for the same nodes; `more`: settings beside POOL's."""
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": merged(POOL, more),
        }
        self.server.put(msgspec.convert(document, WarmPool))

    def restart(self) -> None:
        """A new engine, which knows what the server has."""
        self.engine = self.built()
        self._take(Listed(tuple(self.server.list_objects())))

    # What there is

    def node(self, name: str, slots: int = 5, ready: bool = True) -> None:
        """A node, with its images or without."""
        room = {"cpu": str(slots), "memory": "64Gi", "pods": "110"}
        images = {"images": [{"names": [IMAGE], "sizeBytes": 3 << 30}]} if ready else {}
        document = {
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name},
                         "creationTimestamp": time_text(self.now_ns)},
            "status": {"allocatable": room, "capacity": room, **images},
        }  # fmt: skip
        self.server.put(msgspec.convert(document, Node))

    def pulled(self, name: str, *names: str) -> None:
        """The node has its images now, or others."""
        node = self.server.get(Node, name)
        images = [{"names": list(names or (IMAGE,)), "sizeBytes": 3 << 30}]
        status = msgspec.convert({"images": images}, type(node.status))
        status = msgspec.structs.replace(node.status, images=status.images)
        self.server.put(msgspec.structs.replace(node, status=status))

    def pod(
        self,
        name: str,
        labels: dict[str, str],
        node: str = "",
        cpu: str = "1",
        image: str = IMAGE,
        **meta: Any,
    ) -> Pod:
        """A pod; with a node, it runs there. Its uid, where none is given, is one of its own."""
        self._made += 1
        priority = -10 if labels == PLACEHOLDER else 0
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": f"{name}-{self._made}",
                         "labels": labels, "creationTimestamp": time_text(self.now_ns), **meta},
            "spec": {"schedulerName": "hub", "nodeName": node, "priority": priority,
                     "containers": [{"name": "main", "image": image,
                                     "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running" if node else "Pending",
                       **({"startTime": time_text(self.now_ns)} if node else {})},
        }  # fmt: skip
        pod = msgspec.convert(document, Pod)
        self.server.put(pod)
        return pod

    def drawn(self, state: str) -> None:
        """Nodes n1, n2, ... of a state, which were there before anybody came."""
        for i, slots in enumerate(state.split()):
            for j, what in enumerate(slots):
                if what in "UP":
                    labels = USER if what == "U" else PLACEHOLDER
                    self.pod(f"{what.lower()}{i + 1}{j}", labels, f"n{i + 1}")
            self.node(f"n{i + 1}", len(slots))

    def user(self, name: str = "new", **more: Any) -> str:
        """One comes. The node that it was given, "" for none yet."""
        self.pod(name, USER, **more)
        return self.where(name)

    def placeholder(self, name: str = "p-new", **more: Any) -> str:
        """The same for a placeholder."""
        self.pod(name, PLACEHOLDER, **more)
        return self.where(name)

    def where(self, name: str) -> str:
        """The node of a pod, "" where it has none, or is not there."""
        pod = self.server.get(Pod, f"default/{name}")
        return pod.spec.node_name if pod is not None else ""

    def gone(self, name: str) -> None:
        """A pod ends."""
        self.server.remove(self.server.get(Pod, f"default/{name}"))

    def state(self) -> str:
        """As the seed draws it."""
        drawn = []
        for name, node in sorted(self.server.all(Node).items()):
            here = self.server.pods_on(name).values()
            slots = int(node.status.allocatable["cpu"])
            letters = sorted(
                "P" if p.metadata.labels["component"] == "user-placeholder" else "U"
                for p in here
                if p.metadata.labels["component"] != "continuous-image-puller"
            )
            drawn.append("".join(letters).ljust(slots, "+"))
        return " ".join(drawn)

    def names(self, labels: dict[str, str]) -> list[str]:
        """Of pods that are there."""
        pods = self.server.all(Pod).values()
        component = labels["component"]
        return sorted(p.metadata.name for p in pods
                      if (p.metadata.labels or {}).get("component") == component)  # fmt: skip

    @property
    def warm(self) -> WarmCapacity:
        """What the engine knows of pools."""
        found = find_warm_controller(self.engine.state)
        assert found is not None
        return found

    @property
    def pool(self) -> Pool:
        """The one pool."""
        return self.warm.pools["default/users"]

    @property
    def status(self) -> dict[str, Any]:
        """What the pool says of itself."""
        found: dict[str, Any] = msgspec.to_builtins(
            self.server.get(WarmPool, "default/users").status
        )
        return found

    # Time and the API

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until_ns = self.now_ns + int(seconds * SECOND_NS)
        while (due_ns := self.engine.next_wake_ns) is not None and due_ns <= until_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self._take(Tick())
        self.now_ns = until_ns
        self._take(Tick())

    def _happened(self, change: Change) -> None:
        _, kind, obj = change
        self._take(Observed(kind, obj))

    def _take(self, event: Event) -> None:
        self._inbox.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        while self._inbox:
            for write in self.engine.step(self._inbox.popleft(), self.now_ns):
                self._carry_out(write)
        self._is_stepping = False

    def _carry_out(self, write: Write) -> None:
        assert not isinstance(write, CallExtender | AgentAnswer)
        if isinstance(write, CreateEvent):
            self.events.append(write)
            self._inbox.append(WriteOk(write.id))
            return
        self.writes.append(write)
        code, version = self.refuse(write) or self.server.carry_out(write)
        done = WriteOk(write.id, version) if code == OK else WriteFailed(write.id, code, "refused")
        self._inbox.append(done)

    def refuse(self, write: Write) -> tuple[int, str] | None:
        """For tests to override: an answer in place of what would be done."""
        return None
