"""Decisions of another scheduler that are not bindings yet: of pods that wait for volumes, and of
pods whose claims come late."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stower.engine.explain.agreement import Judgement
from stower.live import reflector, scheduler, shadow
from stower.live.scheduler import Options, Scheduler
from stower.live.shadow import ShadowComparer
from tests.unit.live.fake_api import MERGE, PODS, FakeApi, until
from tests.unit.live.test_scheduler import running

Object = dict[str, Any]
CORE = "/api/v1/namespaces/default"
CLAIMS, VOLUMES = f"{CORE}/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
SPEC = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
        "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "REORDER_DELAY_NS", 1_000_000)
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(scheduler, "CATCH_UP_SECONDS", 0.01)


class Other:
    """Another scheduler, as the API shows it, and how it is judged."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.judged: list[Judgement] = []
        self.comparer = ShadowComparer(self.judged.append)
        for name in ("n1", "n2"):
            self.api.add_node(name)
        self.api.call("POST", CLASSES, {
            "metadata": {"name": "late"}, "provisioner": "x.example.com",
            "volumeBindingMode": "WaitForFirstConsumer"})  # fmt: skip
        self.claim("data")

    def claim(self, name: str) -> None:
        self.api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": SPEC})

    def pod(self, name: str, cpu: str, claim: str = "") -> None:
        source = {"persistentVolumeClaim": {"claimName": claim}}
        more = {"volumes": [{"name": "v", **source}]} if claim else {}
        self.api.add_pod(name, cpu, **more)

    def select(self, node: str | None, claim: str = "data") -> None:
        patch = {"metadata": {"annotations": {SELECTED: node}}}
        self.api.call("PATCH", f"{CLAIMS}/{claim}", patch, MERGE)

    def say(self, pod: str, **status: Any) -> None:
        self.api.call("PATCH", f"{PODS}/{pod}/status", {"status": status}, MERGE)

    def provision(self, claim: str = "data") -> None:
        source = {"driver": "x.example.com", "volumeHandle": claim}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "late", "csi": source,
                "claimRef": {"namespace": "default", "name": claim}}  # fmt: skip
        self.api.call("POST", VOLUMES, {"metadata": {"name": f"pv-{claim}"}, "spec": spec})
        patch = {"metadata": {"annotations": {BOUND: "yes"}},
                 "spec": {"volumeName": f"pv-{claim}"}}  # fmt: skip
        self.api.call("PATCH", f"{CLAIMS}/{claim}", patch, MERGE)

    def bind(self, pod: str, node: str) -> None:
        target = {"target": {"kind": "Node", "apiVersion": "v1", "name": node}}
        self.api.call("POST", f"{PODS}/{pod}/binding", {"metadata": {"name": pod}, **target})

    async def verdict(self, pod: str) -> str:
        """Waits for the judgement of a pod; its node and verdict."""
        await until(lambda: any(one.pod == f"default/{pod}" for one in self.judged))
        (found,) = (one for one in self.judged if one.pod == f"default/{pod}")
        return f"{found.node} {found.verdict}"

    def tell(self, story: Callable[[Scheduler], Awaitable[None]]) -> None:
        async def run() -> None:
            async with running(self.api, Options("shadow", shadow=self.comparer)) as made:
                await until(lambda: made.engine)
                await story(made)

        asyncio.run(run())

    def row_of(self, made: Scheduler, pod: str) -> int:
        """The row of a pod's node in the engine; -1 without."""
        assert made.engine is not None
        entries = made.engine.state.pods.values()
        return next((one.row for one in entries if one.pod.metadata.name == pod), -2)


@pytest.mark.parametrize("sign", ["claim", "nomination", "both"])
def test_a_pod_that_waits_for_its_volume_is_judged_when_its_node_was_chosen(sign: str) -> None:
    """And counts there from then on; its binding is not judged once more."""
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "2", "data")
        if sign != "claim":
            other.say("a", nominatedNodeName="n1")
        if sign != "nomination":
            other.select("n1")
        assert "n1 agrees" == await other.verdict("a")
        other.pod("fills", "3")
        other.bind("fills", "n2")
        assert "n2 agrees" == await other.verdict("fills")
        other.pod("beside", "1")
        other.bind("beside", "n1")
        assert "n1 agrees" == await other.verdict("beside"), "2 of 4 are taken there, 3 on n2"
        other.provision()
        other.bind("a", "n1")
        other.pod("last", "10m")
        other.bind("last", "n2")
        assert "n2 agrees" == await other.verdict("last")
        assert 0 <= other.row_of(made, "a")

    other.tell(story)
    assert {"agrees": 4} == other.comparer.verdicts
    assert {"GET"} == {method for method, path in other.api.sent if "reviews" not in path}


@pytest.mark.parametrize("sign", ["condition", "nomination", "node"])
def test_a_binding_that_fails_frees_the_room(sign: str) -> None:
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "3", "data")
        if sign == "condition":
            other.select("n1")
        else:
            other.say("a", nominatedNodeName="n1")
        await other.verdict("a")
        await until(lambda: other.row_of(made, "a") >= 0)
        if sign == "condition":
            condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError",
                         "message": "binding volumes: timed out"}  # fmt: skip
            other.say("a", conditions=[condition])
        elif sign == "nomination":
            other.say("a", nominatedNodeName=None)
        else:
            other.provision()
            other.bind("a", "n2")
            await until(lambda: len(other.judged) == 2)
        await until(lambda: (other.row_of(made, "a") == -1) == (sign != "node"))
        other.pod("big", "4")
        other.bind("big", "n1")
        assert "n1 agrees" == await other.verdict("big")

    other.tell(story)


def test_a_nomination_with_a_reason_is_a_preemption_and_no_decision() -> None:
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "9")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": "0/2 nodes are available: 2 Insufficient cpu."}  # fmt: skip
        other.say("a", conditions=[condition], nominatedNodeName="n1")
        assert " agrees" == await other.verdict("a")
        assert -1 == other.row_of(made, "a")

    other.tell(story)


def test_a_claim_of_two_pods_does_not_say_whose_node_it_was() -> None:
    """Their bindings are judged."""
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "1", "data")
        other.pod("b", "1", "data")
        other.select("n1")
        other.provision()
        other.bind("a", "n1")
        assert "n1 agrees" == await other.verdict("a")

    other.tell(story)


def test_what_was_decided_is_kept_over_a_new_list() -> None:
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "2", "data")
        other.select("n1")
        await other.verdict("a")
        other.api.inject("/api/v1/pods", {"type": "ERROR", "object": {"code": 410}})
        await until(lambda: made.reflectors.pods.relist_count)
        await until(lambda: made.inbox_size == 0)
        assert 0 <= other.row_of(made, "a")
        other.provision()
        other.bind("a", "n1")
        other.pod("b", "1")
        other.bind("b", "n1")
        await other.verdict("b")

    other.tell(story)
    assert 2 == sum(other.comparer.verdicts.values())


def test_a_pod_whose_claim_comes_late_is_a_race() -> None:
    """As where the watch of claims is behind: the pod is bound, so its claim was there."""
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "1", "missing")
        other.bind("a", "n1")
        other.pod("unbound", "1", "data")
        other.bind("unbound", "n1")  # though its claim has no volume here
        await until(lambda: other.comparer.verdicts["race"] == 2)
        assert [] == other.judged

    other.tell(story)


def test_a_claim_that_is_missing_for_both_is_no_race() -> None:
    other = Other()

    async def story(made: Scheduler) -> None:
        other.pod("a", "1", "missing")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": 'persistentvolumeclaim "missing" not found'}  # fmt: skip
        other.say("a", conditions=[condition])
        assert " agrees" == await other.verdict("a")

    other.tell(story)
    assert {"agrees": 1} == other.comparer.verdicts
