"""Devices with binding conditions that fail, or are not met in time: others are taken."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.limits import SECOND_NS
from stower.framework.writes import PatchObject
from stower.model.kinds import ResourceClaim
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.unit.engine.test_devices import given

TIMEOUT = 10
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [
        {"name": "DynamicResources", "args": {"bindingTimeout": f"{TIMEOUT}s"}}
    ]}],
}  # fmt: skip


def kind(name: str, **fields: Any) -> dict[str, Any]:
    return device(name, attributes={"kind": {"string": name.partition("-")[0]}}, **fields)


def unready(name: str) -> dict[str, Any]:
    """A device that has to get ready before it can be used."""
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    return kind(name, bindsToNode=True, **conditions)


def of_kind(name: str) -> dict[str, Any]:
    """What asks for a device of that kind, as one of several alternatives."""
    expression = f'device.attributes["{GPU}"].kind == "{name}"'
    asked: dict[str, Any] = request(name, selectors=[{"cel": {"expression": expression}}])
    return {"name": name, **asked["exactly"]}


def either(*names: str) -> ResourceClaim:
    """A claim for a device of the first of these kinds that there is."""
    return resource_claim("c1", {"name": "r", "firstAvailable": [of_kind(n) for n in names]})


def started(claim: ResourceClaim, *devices: dict[str, Any]) -> Agreeing:
    return Agreeing(
        build_engine(CONFIG), make_node("n1"), device_class(), device_slice("n1", *devices),
        claim, claiming("p1", "c1"),
    )  # fmt: skip


def allocations(api: Agreeing) -> list[str]:
    """The devices that were allocated, one after another."""
    found = []
    for write in api.writes:
        allocation = write.patch.get("status", {}).get("allocation") if isinstance(
            write, PatchObject
        ) else None  # fmt: skip
        if allocation and allocation.get("devices"):
            found.append(allocation["devices"]["results"][0]["device"])
    return found


def test_after_a_timeout_the_next_alternative_is_taken() -> None:
    claim = either("whole", "left")
    api = started(claim, unready("whole"), kind("left"))
    assert (["n1/whole"], {}) == (given(api.get(claim)), api.bound)
    for _ in range(TIMEOUT + 15):
        api.wait(1)
    assert (["n1/left"], {"p1": "n1"}) == (given(api.get(claim)), api.bound)
    assert ["whole", "left"] == allocations(api)


def test_after_a_timeout_another_device_is_taken() -> None:
    claim = resource_claim("c1")
    api = started(claim, unready("gpu-0"), unready("gpu-1"), kind("gpu-2"))
    for _ in range(2 * TIMEOUT + 30):
        api.wait(1)
    assert {"p1": "n1"} == api.bound
    assert len({*allocations(api)}) == len(allocations(api))


def test_a_condition_that_says_failed_counts_at_once() -> None:
    claim = either("whole", "left")
    api = started(claim, unready("whole"), kind("left"))
    found = api.get(claim)
    failed = {"driver": GPU, "pool": "n1", "device": "whole", "conditions": [
        {"type": "failed", "status": "True", "reason": "Broken", "message": "it is broken",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]}  # fmt: skip
    whole = msgspec.to_builtins(found)
    whole["status"]["devices"] = [failed]
    api.put(msgspec.convert(whole, ResourceClaim))
    for _ in range(5):
        api.wait(1)
    assert {"p1": "n1"} == api.bound
    assert ["whole", "left"] == allocations(api)


def test_the_only_device_is_tried_again_less_and_less_often() -> None:
    api = started(resource_claim("c1"), unready("gpu-0"))
    counts = []
    for _ in range(3):
        before = len(allocations(api))
        for _ in range(600):
            api.wait(1)
        counts.append(len(allocations(api)) - before)
    assert counts[0] >= 3
    assert counts[0] > counts[1] >= counts[2] >= 0


def test_another_claim_may_have_the_device() -> None:
    claim = either("whole", "left")
    api = started(claim, unready("whole"), kind("left"))
    for _ in range(TIMEOUT + 15):
        api.wait(1)
    other = resource_claim("c2", {"name": "r", "firstAvailable": [of_kind("whole")]})
    api.put(other)
    api.put(claiming("p2", "c2"))
    assert ["n1/whole"] == given(api.get(other))


@pytest.mark.parametrize("seconds", [0, 15])
def test_after_a_restart_the_failure_is_seen_in_the_claim(seconds: int) -> None:
    """Before the timeout, or after it."""
    claim = either("whole", "left")
    api = started(claim, unready("whole"), kind("left"))
    api.refuses = lambda write: 503 if seconds and isinstance(write, PatchObject) else 0
    api.wait(seconds)
    again = Agreeing(build_engine(CONFIG))
    again.now_ns = api.now_ns
    for obj in api.objects.values():
        again.put(obj)
    for _ in range(TIMEOUT + 20):
        again.wait(1)
    assert "left" == allocations(again)[-1]
    assert {"p1": "n1"} == again.bound
    assert again.now_ns < 100 * SECOND_NS


def test_a_claim_for_all_devices_takes_them_again() -> None:
    """There are no others."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "All"}
    claim = resource_claim("c1", {"name": "r", "exactly": exactly})
    api = started(claim, unready("gpu-0"), kind("gpu-1"))
    for _ in range(TIMEOUT + 25):
        api.wait(1)
    assert ["n1/gpu-0", "n1/gpu-1"] == given(api.get(claim))
    assert len(allocations(api)) > 1
