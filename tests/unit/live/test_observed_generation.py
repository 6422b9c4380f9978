"""Conditions that the scheduler writes tell which generation of the object they are about
(KEP-5067): a controller that changed a pod knows whether the scheduler has seen it."""

import asyncio
from typing import Any

from stower.live.client import Response
from stower.live.scheduler import Options
from tests.unit.live.fake_api import PODS, FakeApi, until
from tests.unit.live.test_availability import install
from tests.unit.live.test_scheduler import running

Object = dict[str, Any]
GROUPS = "/apis/stower.dev/v1/namespaces/default/podgroups"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def condition(fake: FakeApi, path: str, type: str) -> Object | None:
    """A condition of an object, None if it has none of the type."""
    found = fake.call("GET", path).get("status", {}).get("conditions") or ()
    return next((one for one in found if one["type"] == type), None)


def test_an_unschedulable_pod_and_the_same_after_a_change() -> None:
    def told(fake: FakeApi) -> tuple[str, int]:
        found = condition(fake, f"{PODS}/big", "PodScheduled") or {}
        return found.get("message", ""), found.get("observedGeneration", 0)

    async def story() -> None:
        fake = FakeApi()
        fake.add_node(cpu="1")
        fake.add_pod("big", cpu="2", schedulingGates=[{"name": "g"}])
        async with running(fake):
            fake.call("PATCH", f"{PODS}/big", {"spec": {"schedulingGates": None}},
                      "application/merge-patch+json")  # fmt: skip
            await until(lambda: told(fake)[0].startswith("0/1"))
            generation = fake.call("GET", f"{PODS}/big")["metadata"]["generation"]
            assert 2 == generation
            assert ("0/1 nodes are available: 1 Insufficient cpu", 2) == (
                told(fake)[0].partition(".")[0], told(fake)[1]
            )  # fmt: skip

    asyncio.run(story())


def test_a_victim_of_preemption() -> None:
    async def story() -> None:
        fake = FakeApi()
        fake.add_node(cpu="1")
        fake.call("POST", CLASSES, {"metadata": {"name": "high"}, "value": 10})
        async with running(fake):
            fake.add_pod("low")
            await until(lambda: fake.node_of("low"))
            fake.add_pod("high", priorityClassName="high")
            await until(lambda: condition(fake, f"{PODS}/low", "DisruptionTarget"))
            found = condition(fake, f"{PODS}/low", "DisruptionTarget") or {}
            assert ("PreemptionByScheduler", 1) == (found["reason"], found["observedGeneration"])
            await until(lambda: condition(fake, f"{PODS}/high", "PodScheduled"))
            assert (
                1 == (condition(fake, f"{PODS}/high", "PodScheduled") or {})["observedGeneration"]
            )

    asyncio.run(story())


def test_a_group_that_is_placed() -> None:
    """One of a definition, as Kubernetes 1.36 gives its own no generation."""
    type = "PodGroupInitiallyScheduled"

    def hidden(method: str, path: str) -> Response | None:
        return Response(404, b"{}") if path.startswith("/apis/scheduling.k8s.io/") else None

    async def story() -> None:
        fake = FakeApi(hidden)
        install(fake, "groups/crds")
        fake.add_node(cpu="4")
        gang = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        fake.call("POST", GROUPS, {"metadata": {"name": "gang"}, "spec": gang})
        async with running(fake, Options("me", groups=True)):
            pod = {"metadata": {"name": "a", "labels": {"stower.dev/pod-group": "gang"}},
                   "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
            fake.call("POST", PODS, pod)
            await until(lambda: condition(fake, f"{GROUPS}/gang", type))
            found = condition(fake, f"{GROUPS}/gang", type) or {}
            assert ("True", 1) == (found["status"], found["observedGeneration"])

    asyncio.run(story())
