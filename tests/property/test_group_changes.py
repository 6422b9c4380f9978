"""Pods, labels, groups, parents and gates come, change and go in any order: who waits with whom is
what the objects say at any moment, and nothing is left behind."""

import random
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.queue.entities import Place
from stower.framework.writes import Write
from stower.model.kinds import CompositePodGroup, Pod, PodGroup
from stower.model.kinds.pod import POD_GROUP
from stower.state.groups import GroupKey
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing
from tests.group_builders import RACK, make_composite, make_group


def check(api: Agreeing) -> None:
    """The engine's view against one that is made anew from the objects."""
    groups = api.engine.state.groups
    members: dict[str, set[str]] = {}
    for uid, entry in api.engine.state.pods.items():
        if entry.pod.group_name:
            members.setdefault(f"default/{entry.pod.group_name}", set()).add(uid)
    assert members == {key: set(pods) for key, pods in groups.members.items()}
    for queued in api.engine.queue.pods():
        name = queued.pod.group_name
        if queued.tree is None:
            assert not name or queued.place is Place.IN_FLIGHT
        else:
            assert groups.root(GroupKey(False, f"default/{name}")) == queued.tree.root
            assert queued.tree.members[queued.uid] is queued


class World:
    """Someone who does anything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.api = Agreeing(build_engine())
        self.made = 0
        for _ in range(self.chance.randint(1, 4)):
            self.node()

    def act(self) -> None:
        """One thing, more often the first ones."""
        acts = (
            self.pod, self.pod, self.pod, self.relabel, self.relabel, self.group, self.group,
            self.composite, self.forget, self.delete, self.wait, self.node, self.trouble,
        )  # fmt: skip
        self.chance.choice(acts)()
        check(self.api)

    def some(self, *views: type[Any]) -> Any:
        found = [obj for obj in self.api.objects.values() if isinstance(obj, views)]
        return self.api.get(self.chance.choice(found)) if found else None

    def node(self) -> None:
        number = self.chance.randint(0, 5)
        labels = {RACK: f"r{number % 2}"}
        cpu = str(self.chance.randint(1, 6))
        self.api.put(make_node(f"n{number}", cpu=cpu, pods="10", labels=labels))

    def pod(self) -> None:
        self.made += 1
        of = f"g{self.chance.randint(0, 3)}"
        links: list[dict[str, Any]] = [
            {}, {"schedulingGroup": {"podGroupName": of}}, {"labels": {POD_GROUP: of}},
        ]  # fmt: skip
        fields = self.chance.choice(links)
        if self.chance.random() < 0.2:
            fields["schedulingGates"] = [{"name": "example.com/wait"}]
        cpu, priority = str(self.chance.randint(1, 3)), self.chance.choice((0, 0, 0, 5))
        self.api.put(make_pod(f"p{self.made}", cpu=cpu, priority=priority, **fields))

    def relabel(self) -> None:
        """To another group or none; its gates may be opened at the same time."""
        pod = self.some(Pod)
        if pod is None:
            return
        labels = dict(pod.metadata.labels or {})
        labels.pop(POD_GROUP, None)
        if self.chance.random() < 0.7:
            labels[POD_GROUP] = f"g{self.chance.randint(0, 3)}"
        meta = msgspec.structs.replace(pod.metadata, labels=labels)
        gates = pod.spec.scheduling_gates if self.chance.random() < 0.5 else None
        spec = msgspec.structs.replace(pod.spec, scheduling_gates=gates)
        self.api.put(msgspec.structs.replace(pod, metadata=meta, spec=spec))

    def group(self) -> None:
        mode = self.chance.choice(({"all": {}}, {"single": {}}))
        least = self.chance.choice((None, 1, 2, 3))
        parent, key = self.chance.choice(("", "", "c0", "c1")), self.chance.choice(("", RACK))
        name = f"g{self.chance.randint(0, 3)}"
        self._once(make_group(name, least, parent=parent, key=key, disruptionMode=mode))

    def composite(self) -> None:
        """Which may be its own ancestor."""
        parent = self.chance.choice(("", "", "c0", "c1"))
        name, least = f"c{self.chance.randint(0, 1)}", self.chance.choice((None, 1, 2))
        self._once(make_composite(name, least, parent=parent))

    def _once(self, obj: Any) -> None:
        if obj.metadata.uid not in self.api.objects:
            self.api.put(obj)

    def forget(self) -> None:
        self._remove(self.some(PodGroup, CompositePodGroup))

    def delete(self) -> None:
        self._remove(self.some(Pod))

    def _remove(self, obj: Any) -> None:
        if obj is not None:
            self.api.remove(obj)

    def wait(self) -> None:
        self.api.wait(self.chance.choice((1, 5, 20, 70)))

    def trouble(self) -> None:
        """Some writes are refused from now on, or none."""
        codes = self.chance.choice(((0,), (0, 0, 409, 500, 504)))

        def refuses(write: Write) -> int:
            return self.chance.choice(codes)

        self.api.refuses = refuses


def run(seed: int) -> None:
    world = World(seed)
    for _ in range(world.chance.randint(20, 70)):
        world.act()
    world.api.refuses = lambda write: 0
    for _ in range(12):
        world.api.wait(60)
        check(world.api)
    for pod in [obj for obj in world.api.objects.values() if isinstance(obj, Pod)]:
        world.api.remove(pod)
        check(world.api)
    assert ([], {}) == (world.api.engine.queue.pods(), world.api.engine.state.groups.members)


@pytest.mark.behaviour("S3.19", "S3.20")
@pytest.mark.parametrize("first", range(0, 100, 50))
def test_who_waits_with_whom_is_what_objects_say(first: int) -> None:
    for seed in range(first, first + 50):
        run(seed)


@pytest.mark.more
def test_who_waits_with_whom_is_what_objects_say_more() -> None:
    for seed in range(100, 1_500):
        run(seed)
