"""Devices that are published no more while claims have them: they keep what they hold."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.devices.overview import overview
from tests.builders import make_node
from tests.device_builders import (
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.unit.engine.test_devices import given


def part(name: str, units: int, **fields: Any) -> dict[str, Any]:
    """A partition that takes so many of eight units."""
    counters = {"units": {"value": str(units)}}
    return device(name, consumesCounters=[{"counterSet": "gpu", "counters": counters}], **fields)


def published(*devices: dict[str, Any], generation: int = 1) -> list[Any]:
    """The slices of a pool: its counters, and its devices."""
    sets = [{"name": "gpu", "counters": {"units": {"value": "8"}}}]
    found = []
    for i, each in enumerate(
        (device_slice("n1", sharedCounters=sets), device_slice("n1", *devices))
    ):
        meta = msgspec.structs.replace(each.metadata, name=f"s{i}", uid=f"s{i}")
        pool = msgspec.structs.replace(
            each.spec.pool, resource_slice_count=2, generation=generation
        )
        spec = msgspec.structs.replace(each.spec, pool=pool)
        found.append(msgspec.structs.replace(each, metadata=meta, spec=spec))
    return found


def named(name: str) -> Any:
    """A request for the device of that name, by an attribute."""
    expression = f'device.attributes["gpu.example.com"].name == "{name}"'
    return request(selectors=[{"cel": {"expression": expression}}])


def tagged(name: str, units: int) -> dict[str, Any]:
    return part(name, units, attributes={"name": {"string": name}})


@pytest.fixture
def api() -> Agreeing:
    """One pod has a partition of three units, which is published no more."""
    first = resource_claim("c0", named("three"))
    found = Agreeing(
        build_engine(), make_node("n1"), device_class(),
        *published(tagged("three", 3), tagged("six", 6), tagged("five", 5)),
        first, claiming("p0", "c0"),
    )  # fmt: skip
    assert {"p0": "n1"} == found.bound
    for each in published(tagged("six", 6), tagged("five", 5), generation=2):
        found.put(each)
    return found


def test_what_it_holds_is_not_given_to_others(api: Agreeing) -> None:
    api.put(resource_claim("c1", named("six")))
    api.put(claiming("p1", "c1"))
    assert {"p0": "n1"} == api.bound
    api.remove(api.get(claiming("p0", "c0")))
    api.put(msgspec.structs.replace(api.get(resource_claim("c0")), status=resource_claim().status))
    api.wait(10)
    assert "n1" == api.bound["p1"]


def test_what_is_left_is_given_to_others(api: Agreeing) -> None:
    claim = resource_claim("c1", named("five"))
    api.put(claim)
    api.put(claiming("p1", "c1"))
    assert "n1" == api.bound["p1"]
    assert ["n1/five"] == given(api.get(claim))


def test_of_one_that_was_never_seen_nobody_knows_what_it_holds(api: Agreeing) -> None:
    """As after a restart: nothing of its pool's counters is given."""
    again = Agreeing(build_engine(), *api.objects.values())
    again.put(resource_claim("c1", named("five")))
    again.put(claiming("p1", "c1"))
    assert "p1" not in again.bound
    found = overview(again.engine.state.devices, [])
    assert found is not None
    assert "no longer published" in [each.blocked for each in found.devices]
    assert "0" == found.pools[0].counters["gpu/units"].left
