"""PendingClass: the class of a pod's explanation as a condition of the pod."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import Hold, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, PatchPodStatus, Write
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject, Pod
from stower.model.times import SECOND_NS, time_text
from stower.plugins.pending_class import CONDITION, MESSAGE_MAX
from stower.sim.changes import patched
from tests.builders import make_node, make_pod

START_NS = 1_800_000_000 * SECOND_NS
GONE = "2027-01-15T07:00:00Z"


def built(after_seconds: Any = 30) -> Engine:
    """An engine with the plugin."""
    enabled = {"multiPoint": {"enabled": [{"name": "PendingClass"}]}}
    given = [{"name": "PendingClass", "args": {"afterSeconds": after_seconds}}]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": enabled, "pluginConfig": given}],
    }
    return build_engine(document)


class World:
    """An engine whose writes about pods are carried out at once."""

    def __init__(self, *objects: ApiObject) -> None:
        self.now_ns = START_NS
        self.engine = built()
        self.pods = {o.metadata.uid: o for o in objects if isinstance(o, Pod)}
        self.told: list[PatchPodStatus] = []
        self.failing = 0  # writes of conditions that are refused
        self.step(Listed(objects))

    def step(self, event: Any) -> None:
        """The engine takes an event, and the answers to what it writes."""
        for write in self.engine.step(event, self.now_ns):
            self._carry_out(write)

    def _carry_out(self, write: Write) -> None:
        if isinstance(write, PatchPodStatus):
            types = [write.condition.type] if write.condition else []
            if CONDITION in (*types, *write.removed_conditions):
                self.told.append(write)
                if self.failing:
                    self.failing -= 1
                    self.step(WriteFailed(write.id, 500, "no"))
                    return
        self.step(WriteOk(write.id))
        pod = self.pods.get(getattr(write, "uid", ""))
        if pod is not None and isinstance(write, PatchPodStatus):
            self.put(patched(pod, write))
        elif pod is not None and isinstance(write, Bind):
            spec = msgspec.structs.replace(pod.spec, node_name=write.node_name)
            self.put(msgspec.structs.replace(pod, spec=spec))

    def put(self, pod: Pod) -> None:
        """The pod is another one from now on."""
        self.pods[pod.metadata.uid] = pod
        self.step(Observed(WatchType.MODIFIED, pod))

    def advance(self, seconds: float) -> None:
        """Time passes, with what is due in it."""
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        while (due_ns := self.engine.next_wake_ns) is not None and due_ns <= end_ns:
            self.now_ns = max(due_ns, self.now_ns)
            self.step(Tick())
        self.now_ns = end_ns
        self.step(Tick())

    def condition(self, name: str) -> tuple[str, str] | None:
        """Reason and message of the pod's condition."""
        pod = next(pod for pod in self.pods.values() if pod.metadata.name == name)
        found = pod.condition(CONDITION)
        return None if found is None else (found.reason, found.message)


def pending(name: str, cpu: str = "8", **more: Any) -> Pod:
    """A pod that was made at the start."""
    pod = make_pod(name, cpu=cpu, uid=name, **more)
    meta = msgspec.structs.replace(pod.metadata, creation_timestamp=time_text(START_NS))
    return msgspec.structs.replace(pod, metadata=meta)


def test_a_pod_that_waits_gets_its_class_and_loses_it_with_its_node() -> None:
    """Once for all time, as long as nothing changes; and not before its time."""
    world = World(make_node("n1", cpu="4"), pending("large"), pending("small", "1"))
    world.advance(29)
    assert world.condition("large") is None
    world.advance(1)
    reason, message = world.condition("large") or ("", "")
    assert "Never" == reason
    assert "8 requested, a node has 4 at most" in message
    assert world.condition("small") is None, "it has a node"
    world.advance(300)
    assert 1 == len(world.told), "nothing new was said"
    world.step(Observed(WatchType.ADDED, make_node("n2", cpu="16")))
    world.advance(10)
    assert "n2" == world.pods["large"].spec.node_name
    assert world.condition("large") is None


def test_the_class_follows_the_cluster_within_a_minute() -> None:
    """Blocked by a pod, and waiting once that pod is being deleted."""
    other = pending("other", "4", node="n1")
    world = World(make_node("n1", cpu="4"), other, pending("next", "4"))
    world.advance(31)
    assert "Blocked" == (world.condition("next") or [""])[0]
    meta = msgspec.structs.replace(other.metadata, deletion_timestamp=GONE)
    world.put(msgspec.structs.replace(other, metadata=meta))
    world.advance(60)
    reason, message = world.condition("next") or ("", "")
    assert "Waiting" == reason
    assert "default/other" in message


def test_a_restart_says_nothing_again() -> None:
    """Pods show what was said, and for how long they have waited."""
    world = World(make_node("n1", cpu="4"), pending("large"), pending("later"))
    world.advance(30)
    assert 1 == len(world.told), "one in a second"
    world.told.clear()
    world.engine = built()
    world.step(Listed((make_node("n1", cpu="4"), *world.pods.values())))
    world.advance(5)
    assert ["later"] == [write.name for write in world.told]


def test_a_condition_that_could_not_be_written_is_written_later() -> None:
    """With the next explanation; and one that stayed goes with the pod's next event."""
    world = World(make_node("n1", cpu="4"), pending("large"))
    world.failing = 1
    world.advance(31)
    assert world.condition("large") is None
    world.advance(60)
    assert "Never" == (world.condition("large") or [""])[0]
    world.failing = 1
    world.step(Observed(WatchType.ADDED, make_node("n2", cpu="16")))
    world.advance(10)
    assert world.condition("large") is not None
    world.put(world.pods["large"])
    assert world.condition("large") is None


def test_pods_of_other_schedulers_and_deleted_pods_are_left_alone() -> None:
    """Nobody else's pods are touched."""
    foreign = pending("foreign", schedulerName="elsewhere")
    deleted = pending("deleted")
    world = World(make_node("n1", cpu="4"), foreign, deleted)
    world.step(Observed(WatchType.DELETED, deleted))
    world.advance(200)
    assert [] == world.told


def test_long_texts_are_cut() -> None:
    """Many different nodes, each with a taint of its own."""
    names = [f"{'k' * 50}{i}" for i in range(100)]
    taints = [[{"key": name, "value": "v", "effect": "NoSchedule"}] for name in names]
    nodes = [make_node(f"n{i}", taints=taint) for i, taint in enumerate(taints)]
    world = World(*nodes, pending("pod", "1"))
    world.advance(31)
    message = (world.condition("pod") or ("", ""))[1]
    assert len(message) <= MESSAGE_MAX


def test_gates_are_named() -> None:
    world = World(make_node("n1"), pending("held", "1", schedulingGates=[{"name": "a.b/c"}]))
    world.advance(31)
    expected = ("Blocked", "waits for scheduling gates to be removed: a.b/c")
    assert expected == world.condition("held")


def test_nothing_is_due_while_the_scheduler_is_held() -> None:
    """It would be woken again and again."""
    world = World(make_node("n1", cpu="4"), pending("large"))
    world.step(Hold(True))
    world.advance(60)
    assert [] == world.told
    wake_ns = world.engine.next_wake_ns
    assert wake_ns is None or wake_ns > world.now_ns
    world.step(Hold(False))
    world.advance(1)
    assert 1 == len(world.told)


@pytest.mark.parametrize("value", [-1, "30s", 86_401])
def test_wrong_arguments_are_named(value: Any) -> None:
    """At the door."""
    with pytest.raises(InvalidObject, match="afterSeconds"):
        built(value)
