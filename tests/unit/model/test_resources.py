"""What a pod asks for in all, and which resources count."""

import json
from typing import Any

import pytest

from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.raw import decode
from stower.model.resources import (
    NON_ZERO_CPU_MILLI,
    NON_ZERO_MEMORY_BYTES,
    Quantities,
    amounts,
    host_ports,
    is_counted,
    is_extended,
    is_scalar,
    non_zero_requests,
    normalized_image,
    parse_list,
    pod_requests,
)


def pod_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Pod:
    data = {"metadata": {"name": "p"}, "spec": spec, "status": status or {}}
    return decode(json.dumps(data).encode(), Pod)


def asks(*, name: str = "", sidecar: bool = False, **requests: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    return container | ({"restartPolicy": "Always"} if sidecar else {})


def texts(quantities: Quantities) -> dict[str, str]:
    return {name: quantity.canonical() for name, quantity in quantities.items()}


def given(*, name: str, allocated: dict[str, str], **actual: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": actual}, "allocatedResources": allocated}


def test_containers_add_up_resource_by_resource() -> None:
    spec = {"containers": [asks(cpu="100m", memory="1Gi"), asks(cpu="1"), asks()]}
    assert {"cpu": "1100m", "memory": "1Gi"} == texts(pod_requests(pod_of(spec)))


def test_init_containers_run_alone_so_the_largest_counts() -> None:
    spec = {
        "initContainers": [asks(cpu="2"), asks(cpu="3", memory="1Mi")],
        "containers": [asks(cpu="1", memory="4Mi")],
    }
    assert {"cpu": "3", "memory": "4Mi"} == texts(pod_requests(pod_of(spec)))


def test_sidecars_add_to_the_containers_and_to_later_init_containers() -> None:
    """An init container runs beside the sidecars that stand before it, not those after it."""
    early = [asks(cpu="1", sidecar=True), asks(cpu="4")]
    late = [asks(cpu="4"), asks(cpu="1", sidecar=True)]
    containers = [asks(cpu="2")]
    assert {"cpu": "5"} == texts(
        pod_requests(pod_of({"initContainers": early, "containers": containers}))
    )
    assert {"cpu": "4"} == texts(
        pod_requests(pod_of({"initContainers": late, "containers": containers}))
    )


def test_sidecars_and_containers_together_can_be_the_most() -> None:
    init = [asks(cpu="1", sidecar=True), asks(cpu="1"), asks(cpu="2", sidecar=True)]
    spec = {"initContainers": init, "containers": [asks(cpu="2")]}
    assert {"cpu": "5"} == texts(pod_requests(pod_of(spec)))


def test_overhead_adds_to_everything_even_to_what_no_container_asks_for() -> None:
    spec = {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m", "memory": "10Mi"}}
    assert {"cpu": "1250m", "memory": "10Mi"} == texts(pod_requests(pod_of(spec)))


def test_pod_level_requests_replace_the_sum_of_the_containers() -> None:
    """Only cpu, memory and huge pages may be asked for by the pod; overhead still adds."""
    spec = {
        "containers": [asks(cpu="1", memory="1Gi", **{"example.com/gpu": "1"})],
        "resources": {"requests": {"cpu": "500m", "hugepages-2Mi": "4Mi", "example.com/gpu": "9"}},
        "overhead": {"cpu": "100m"},
    }
    expected = {"cpu": "600m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"}
    assert expected == texts(pod_requests(pod_of(spec)))
    without = pod_requests(pod_of(spec), pod_level=False)
    assert {"cpu": "1100m", "memory": "1Gi", "example.com/gpu": "1"} == texts(without)


@pytest.mark.parametrize(
    ("asked", "allocated", "actual", "reason", "counts"),
    [
        ("1", "2", "3", "", "3"),
        ("1", "4", "3", "", "4"),
        ("5", "4", "3", "", "5"),
        ("5", "4", "3", "Deferred", "5"),
        ("5", "4", "3", "Infeasible", "4"),
        ("5", "2", "3", "Infeasible", "3"),
    ],
)
def test_a_resize_counts_as_the_most_of_asked_allocated_and_actual(
    asked: str, allocated: str, actual: str, reason: str, counts: str
) -> None:
    """An infeasible one never comes, so what it asks for does not count."""
    status = {
        "containerStatuses": [given(name="c", allocated={"cpu": allocated}, cpu=actual)],
        "conditions": [{"type": "PodResizePending", "reason": reason}] if reason else [],
    }
    pod = pod_of({"containers": [asks(name="c", cpu=asked)]}, status)
    assert {"cpu": counts} == texts(pod_requests(pod, use_status=True))
    assert {"cpu": asked} == texts(pod_requests(pod))


def test_a_status_without_resources_leaves_the_request_as_it_is() -> None:
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "9"}}]}
    pod = pod_of({"containers": [asks(name="c", cpu="1")]}, status)
    assert {"cpu": "1"} == texts(pod_requests(pod, use_status=True))


def test_sidecars_are_resizable_and_other_init_containers_are_not() -> None:
    init = [asks(name="s", cpu="1", sidecar=True), asks(name="i", cpu="1")]
    both = [given(name=name, allocated={}, cpu="3") for name in ("s", "i")]
    pod = pod_of({"initContainers": init, "containers": []}, {"initContainerStatuses": both})
    assert {"cpu": "4"} == texts(pod_requests(pod, use_status=True))


def test_a_pod_level_resize_counts_as_the_most_as_well() -> None:
    status = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
    pod = pod_of({"resources": {"requests": {"cpu": "1"}}}, status)
    assert {"cpu": "3"} == texts(pod_requests(pod, use_status=True))
    assert {"cpu": "1"} == texts(pod_requests(pod))


def test_an_infeasible_pod_level_resize_counts_as_what_the_pod_has() -> None:
    status = {
        "resources": {"requests": {"cpu": "2"}},
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
    }
    pod = pod_of({"resources": {"requests": {"cpu": "5", "memory": "1Gi"}}}, status)
    assert {"cpu": "2", "memory": "0"} == texts(pod_requests(pod, use_status=True))


def scored(pod: Pod) -> tuple[int, int]:
    return non_zero_requests(pod, pod_requests(pod, use_status=True))


def test_a_container_without_requests_counts_a_little_when_nodes_are_scored() -> None:
    pod = pod_of({"containers": [asks(), asks(cpu="1")]})
    assert (1000 + NON_ZERO_CPU_MILLI, 2 * NON_ZERO_MEMORY_BYTES) == scored(pod)


def test_a_request_of_zero_is_taken_at_its_word() -> None:
    assert (0, 0) == scored(pod_of({"containers": [asks(cpu="0", memory="0")]}))


def test_init_containers_get_the_stand_in_too() -> None:
    init = [asks(sidecar=True), asks()]
    pod = pod_of({"initContainers": init, "containers": [asks()]})
    assert (2 * NON_ZERO_CPU_MILLI, 2 * NON_ZERO_MEMORY_BYTES) == scored(pod)


def test_pod_level_requests_need_no_stand_in_for_what_they_name() -> None:
    """Where the pod names cpu and no container names memory, only memory is stood in for."""
    spec = {"containers": [asks(), asks()], "resources": {"requests": {"cpu": "300m"}}}
    assert (300, 2 * NON_ZERO_MEMORY_BYTES) == scored(pod_of(spec))
    spec = {
        "containers": [asks(memory="5"), asks()],
        "resources": {"requests": {"cpu": "300m"}},
    }
    assert (300, 5) == scored(pod_of(spec))


def test_a_pod_level_request_for_something_else_changes_no_stand_in() -> None:
    spec = {"containers": [asks()], "resources": {"requests": {"example.com/gpu": "1"}}}
    assert (NON_ZERO_CPU_MILLI, NON_ZERO_MEMORY_BYTES) == scored(pod_of(spec))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {"containers": [asks(), asks(cpu="1.5x")]},
            "spec.containers[1].resources.requests.cpu",
        ),
        (
            {"initContainers": [asks(memory="?")]},
            "spec.initContainers[0].resources.requests.memory",
        ),
        ({"overhead": {"cpu": "one"}}, "spec.overhead.cpu"),
        ({"resources": {"requests": {"cpu": "one"}}}, "spec.resources.requests.cpu"),
    ],
)
def test_what_is_no_quantity_is_named_with_its_path(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidObject) as error:
        pod_requests(pod_of(spec))
    assert path == error.value.path
    assert "want a quantity such as" in str(error.value)


@pytest.mark.parametrize(
    ("name", "extended", "scalar", "counted"),
    [
        ("cpu", False, False, True),
        ("memory", False, False, True),
        ("ephemeral-storage", False, False, True),
        ("pods", False, False, False),
        ("storage", False, False, False),
        ("gpu", False, False, False),
        ("nvidia.com/gpu", True, True, True),
        ("example.com/a.b_c", True, True, True),
        ("hugepages-2Mi", False, True, True),
        ("attachable-volumes-csi-x", False, True, True),
        ("kubernetes.io/batch-cpu", False, True, True),
        ("node.kubernetes.io/x", False, True, True),
        ("requests.example.com/gpu", False, False, False),
        ("example.com/", False, False, False),
        ("example.com/a/b", False, False, False),
        ("example.com/-gpu", False, False, False),
        ("Example.com/gpu", False, False, False),
        (f"{'a' * 244}/gpu", True, True, True),
        (f"{'a' * 245}/gpu", False, False, False),
    ],
)
def test_a_resource_counts_by_its_name(
    name: str, extended: bool, scalar: bool, counted: bool
) -> None:
    """An extended name must still be a qualified one with `requests.` put before it."""
    assert (extended, scalar, counted) == (is_extended(name), is_scalar(name), is_counted(name))


def test_amounts_are_thousandths_of_cpu_and_whole_units_of_all_else() -> None:
    listed = parse_list(
        {"cpu": "1500m", "memory": "1Ki", "example.com/gpu": 2, "pods": "5", "disk": "1"}
    )
    assert {"cpu": 1500, "memory": 1024, "example.com/gpu": 2} == amounts(listed)


def test_amounts_round_up() -> None:
    assert {"cpu": 1, "memory": 1} == amounts(parse_list({"cpu": "1u", "memory": "1m"}))


def test_no_resource_list_is_an_empty_one() -> None:
    assert {} == parse_list(None) == parse_list({})


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    """An ordinary init container is gone before the pod runs, and its ports with it."""
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"}]
    pod = pod_of(
        {
            "initContainers": [
                {"restartPolicy": "Always", "ports": [{"hostPort": 1, "hostIP": "10.0.0.1"}]},
                {"ports": [{"hostPort": 2}]},
            ],
            "containers": [{"ports": ports}, {}],
        }
    )
    assert {("TCP", 1, "10.0.0.1"), ("UDP", 8081, "0.0.0.0")} == set(host_ports(pod))


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1.27", "nginx:1.27"),
        ("reg:5000/nginx", "reg:5000/nginx:latest"),
        ("reg:5000/nginx:1", "reg:5000/nginx:1"),
        ("nginx@sha256:abc", "nginx@sha256:abc"),
        ("", ":latest"),
    ],
)
def test_an_image_without_a_tag_means_the_latest(name: str, normal: str) -> None:
    assert normal == normalized_image(name)
