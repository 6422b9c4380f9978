"""The inventory: what it remembers of devices, and for how long."""

import gc
from typing import Any

import pytest

from stower.devices import inventory as inventory_module
from stower.devices.fit_cache import FitCache, Rules
from stower.devices.inventory import Content, Inventory
from stower.framework.device_gates import DeviceGates
from stower.state.cluster import ClusterState
from tests.builders import make_node
from tests.device_builders import device, device_class, device_slice, resource_claim

RULES = Rules(DeviceGates(), 10_000, None)


def serials(state: ClusterState) -> list[int]:
    """Of the contents of all devices, in order."""
    inventory = state.devices.extension(Inventory)
    inventory.refresh()
    return [record.content.serial for record in inventory.all_records()]


def count(kind: type[Any]) -> int:
    """How many objects of a kind there are."""
    gc.collect()
    return sum(isinstance(obj, kind) for obj in gc.get_objects())


def warm(degrees: int) -> dict[str, Any]:
    """A device that says how warm it is."""
    return device("d", attributes={"degrees": {"int": degrees}})


def test_what_devices_have_been_is_forgotten() -> None:
    """A driver may write some measurement into a slice again and again."""
    before = count(Content)
    state = ClusterState()
    state.set_node(make_node("n1"))
    state.devices.put(device_class())
    for degrees in range(50):
        state.devices.put(device_slice("n1", warm(degrees)))
        state.devices.extension(FitCache).column([resource_claim()], state, RULES)
    assert before + 1 == count(Content)


def test_a_serial_number_stands_for_one_content_for_ever() -> None:
    state = ClusterState()
    seen = []
    for degrees in (1, 2, 1, 3):
        state.devices.put(device_slice("n1", warm(degrees)))
        seen += serials(state)
    assert len(seen) == len({*seen})


def test_equal_devices_keep_their_content_while_one_is_left() -> None:
    state = ClusterState()
    state.devices.put(device_slice("n1", warm(1)))
    state.devices.put(device_slice("n2", warm(1)))
    (first, second) = serials(state)
    state.devices.put(device_slice("n1", warm(2)))
    assert [first + 1, second] == serials(state)
    state.devices.put(device_slice("n1", warm(1)))
    assert [first, second] == serials(state)


def test_a_device_forgets_old_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_module, "MATCHES_MAX", 3)
    state = ClusterState()
    state.devices.put(device_slice("n1", warm(5)))
    serials(state)
    (record,) = state.devices.extension(Inventory).all_records()
    of = 'device.attributes["gpu.example.com"].degrees'
    for degrees in (4, 5, 6, 7, 5):
        assert (degrees == 5) == record.content.match(f"{of} == {degrees}", True)
    assert len(record.content._matches) <= 3


def test_nodes_that_are_gone_are_forgotten() -> None:
    state = ClusterState()
    state.devices.put(device_class())
    state.devices.put(device_slice("n1", warm(1)))
    for number in range(20):
        state.set_node(make_node(f"n{number}"))
    fits = state.devices.extension(FitCache)
    fits.column([resource_claim()], state, RULES)
    for number in range(20):
        if number != 7:
            state.remove_node(f"n{number}")
    fits.column([resource_claim()], state, RULES)
    assert [state.row_of("n7")] == [*fits._alike[True]._views]
