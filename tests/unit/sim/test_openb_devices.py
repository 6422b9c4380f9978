"""sim/openb_devices.py: CSV lines become nodes, GPUs that can be shared, and claims for them."""

from typing import Any

import msgspec
import pytest

from stower.model.errors import InvalidObject
from stower.sim.openb_devices import (
    DRIVER,
    Machine,
    Maker,
    Task,
    Trace,
    device_class,
    node_of,
    read_list,
    slice_of,
)

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def machine(*lines: str) -> Machine:
    """The one node of these lines."""
    (found,), tasks = read_list((NODES, *lines))
    assert not tasks
    return found


def task(line: str) -> Task:
    """The pod of this line."""
    machines, (found,) = read_list((PODS, line))
    assert not machines
    return found


def fault(*lines: str) -> str:
    """What the reader says of a list that it refuses."""
    with pytest.raises(InvalidObject) as caught:
        read_list(lines)
    return str(caught.value)


def plain(obj: object) -> Any:
    """An object as its API has it."""
    return msgspec.to_builtins(obj)


def test_nodes_without_gpus_are_left_out() -> None:
    """The published list of all nodes will do as well as that of nodes with GPUs."""
    expected = Machine("b", 4000, 8192, 2, "T4")
    assert expected == machine("a,4000,8192,0,\n", "b,4000,8192,2,T4\n")


def test_node_has_cpu_and_memory_and_its_gpus_are_in_a_slice_of_its_own() -> None:
    """GPUs are no extended resource: each is a device of 1,000 milli that many may share."""
    found = machine("n,4000,8192,2,T4\n")
    room = {"cpu": "4000m", "memory": "8192Mi", "pods": "1000"}
    assert room == node_of(found).status.allocatable
    published = plain(slice_of(found))["spec"]
    device = {
        "attributes": {"model": {"string": "T4"}},
        "capacity": {"milli": {"value": "1000"}},
        "allowMultipleAllocations": True,
    }
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = ({"name": "gpu-000", **device}, {"name": "gpu-001", **device})
    expected = {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": devices}
    assert expected == published


def test_class_chooses_the_drivers_devices() -> None:
    """All of them; models are the matter of claims."""
    (selector,) = plain(device_class())["spec"]["selectors"]
    assert f'device.driver == "{DRIVER}"' == selector["cel"]["expression"]


def test_claim_asks_for_so_much_of_so_many_gpus_and_goes_with_its_pod() -> None:
    """The pod names it, and owns it."""
    pod, claim = Maker().make(task("p,500,64,2,1000,\n"), "q")
    assert claim is not None
    assert ("q", "openb", "openb") == (
        pod.metadata.name, pod.metadata.namespace, claim.metadata.namespace
    )  # fmt: skip
    assert {"cpu": "500m", "memory": "64Mi"} == pod.spec.containers[0].resources.requests
    (entry,) = pod.spec.resource_claims or ()
    assert claim.metadata.name == entry.resource_claim_name
    (owner,) = claim.metadata.owner_references or ()
    assert (True, pod.metadata.uid) == (owner.controller, owner.uid)
    (request,) = claim.spec.devices.requests or ()
    exactly = request.exactly
    assert exactly is not None
    assert (2, "gpu", None) == (exactly.count, exactly.device_class_name, exactly.selectors)
    assert exactly.capacity is not None
    assert {"milli": "1000"} == exactly.capacity.requests


def test_gpu_spec_becomes_a_selector_by_the_model() -> None:
    """Models that are named twice, or in another order, make no other claim."""
    found = task("p,500,64,1,300,V100M32|T4|V100M32\n")
    assert found == task("q,500,64,1,300,T4|V100M32\n")
    _, claim = Maker().make(found, "q")
    assert claim is not None
    (request,) = claim.spec.devices.requests or ()
    assert request.exactly is not None
    (selector,) = request.exactly.selectors or ()
    assert selector.cel is not None
    expected = f'device.attributes["{DRIVER}"].model in ["T4", "V100M32"]'
    assert expected == selector.cel.expression


def test_pod_without_gpus_has_no_claim() -> None:
    """Whatever else its line says of GPUs."""
    pod, claim = Maker().make(task("p,500,64,0,0,T4\n"), "q")
    assert (None, None) == (claim, pod.spec.resource_claims)


def test_pods_of_equal_tasks_differ_in_their_names_alone() -> None:
    """The second is made from the first."""
    maker, one = Maker(), task("p,500,64,1,300,\n")
    first, second = maker.make(one, "a"), maker.make(one, "b")
    fresh = Maker().make(one, "b")
    assert fresh == second
    assert first != second


def test_list_without_model_column_for_pods_is_read() -> None:
    """One of the published lists ends with the shares."""
    _, tasks = read_list(("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "p,500,64,1,300\n"))
    assert [Task(500, 64, 1, 300)] == tasks


def test_capacity_is_that_of_all_gpus() -> None:
    """In thousandths."""
    machines = tuple(Machine(name, 1, 1, gpus, "T4") for name, gpus in (("a", 2), ("b", 8)))
    assert 10_000 == Trace(machines, ()).capacity_milli


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p,1,1,1,0,\n", "line 2, gpu_milli: got 0, want 1 to 1000"),
        ("p,1,1,1,1001,\n", "line 2, gpu_milli: got 1001, want 1 to 1000"),
        ("p,1,1,129,1000,\n", "line 2, num_gpu: got 129, want at most 128"),
        ("p,1,1,x,1000,\n", 'line 2, num_gpu: got "x", want a whole number of at most 18 digits'),
        ("p,1,1\n", "line 2, columns: got 3, want 6"),
    ],
)
def test_bad_line_is_refused_with_line_and_column(line: str, expected: str) -> None:
    """No GPU has more than it has."""
    assert expected == fault(PODS, line)


def test_other_header_is_refused() -> None:
    """A list of something else."""
    expected = 'line 1: got "a,b", want the header of an OpenB node or pod list'
    assert expected == fault("a,b\n", "1,2\n")
