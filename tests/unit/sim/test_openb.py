"""sim/openb.py: CSV lines become the objects that they stand for, and no line is guessed at."""

from typing import Any

import msgspec
import pytest

from stower.model.errors import InvalidObject
from stower.sim.openb import is_node_header, is_pod_header, read_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)


def documents(*lines: str) -> list[dict[str, Any]]:
    """The objects of a trace with these lines."""
    return [msgspec.json.decode(line.data) for line in read_trace(lines)]


def fault(*lines: str) -> str:
    """What the reader says of a trace that it refuses."""
    with pytest.raises(InvalidObject) as caught:
        list(read_trace(lines))
    return str(caught.value)


def requests(pod: dict[str, Any]) -> dict[str, str]:
    """What the one container of a pod asks for."""
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_node_has_its_capacity_its_gpus_and_the_label_of_their_model() -> None:
    """Whole GPUs and thousandths of them are two resources of one node."""
    (node,) = documents(NODES, "n-1,4000,8192,2,T4\n")
    room = {
        "cpu": "4000m",
        "memory": "8192Mi",
        "pods": "1000",
        "nvidia.com/gpu": "2",
        "stower.dev/gpu-milli": "2000",
    }
    assert ("Node", "n-1") == (node["kind"], node["metadata"]["name"])
    assert {"capacity": room, "allocatable": room} == node["status"]
    labels = {"kubernetes.io/hostname": "n-1", "nvidia.com/gpu.product": "T4"}
    assert labels == node["metadata"]["labels"]


def test_node_without_gpus_has_no_gpu_resources() -> None:
    """A resource that a node has not is missing, not 0."""
    (node,) = documents(NODES, "n-1,4000,8192,0,\n")
    assert ["cpu", "memory", "pods"] == sorted(node["status"]["allocatable"])
    assert ["kubernetes.io/hostname"] == sorted(node["metadata"]["labels"])


def test_pod_with_whole_gpus_asks_for_both_gpu_resources() -> None:
    """Two whole GPUs are 2 and 2,000 milli."""
    (pod,) = documents(PODS, "p,500,64,2,1000,,LS,Running,5,9,6\n")
    expected = {
        "cpu": "500m",
        "memory": "64Mi",
        "nvidia.com/gpu": "2",
        "stower.dev/gpu-milli": "2000",
    }
    assert expected == requests(pod)
    assert {"qos": "LS"} == pod["metadata"]["labels"]


def test_pod_with_a_share_of_a_gpu_asks_for_thousandths_only() -> None:
    """A share is no whole device."""
    (pod,) = documents(PODS, "p,500,64,1,300,,,Running,5,9,6\n")
    assert {"cpu": "500m", "memory": "64Mi", "stower.dev/gpu-milli": "300"} == requests(pod)
    assert "labels" not in pod["metadata"]


def test_gpu_spec_becomes_a_required_node_affinity_over_its_models() -> None:
    """A|B means either model."""
    (pod,) = documents(PODS, "p,500,64,1,300,T4|P100,,Running,5,9,6\n")
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    expected = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["T4", "P100"]}
    assert [expected] == term["matchExpressions"]


def test_pod_carries_its_times_and_an_empty_end_is_none() -> None:
    """Times are seconds of the trace's own clock."""
    rows = ("a,1,1,0,0,,,Running,5,9,6\n", "b,1,1,0,0,,,Running,7,,\n")
    times = [(line.created_s, line.deleted_s) for line in read_trace((PODS, *rows))]
    assert [(5, 9), (7, None)] == times


def test_lines_are_numbered_as_in_the_file_over_blank_ones() -> None:
    """What an editor shows is what an error says."""
    lines = (NODES, "\n", "n-1,1,1,0,\n", "\n", "n-2,1,1,0,\n")
    assert [3, 5] == [line.number for line in read_trace(lines)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("n,1.5,1,0,\n", 'line 2, cpu_milli: got "1.5", want a whole number of at most 18 digits'),
        ("n,-1,1,0,\n", 'line 2, cpu_milli: got "-1", want a whole number of at most 18 digits'),
        ("n,1,,0,\n", 'line 2, memory_mib: got "", want a whole number of at most 18 digits'),
        ("n,1,1,٣,\n", 'line 2, gpu: got "٣", want a whole number of at most 18 digits'),
        ("n,1,1\n", "line 2, columns: got 3, want 5"),
        ("n,1,1,0,,9,9\n", "line 2, columns: got 7, want 5"),
    ],
)
def test_bad_line_is_refused_with_line_and_column(line: str, expected: str) -> None:
    """A line that was cut short, or whose field is no number, is never read as something else."""
    assert expected == fault(NODES, line)


def test_number_too_long_to_convert_is_refused() -> None:
    """Thousands of digits are an error of the file, not of the program."""
    said = fault(NODES, f"n,{'9' * 5_000},1,0,\n")
    assert said.endswith("want a whole number of at most 18 digits")


def test_other_header_is_refused() -> None:
    """A CSV file of something else is told apart by its first line."""
    expected = 'line 1: got "a,b", want the header of an OpenB node or pod list'
    assert expected == fault("a,b\n", "1,2\n")


def test_headers_are_known_by_their_columns_in_any_order() -> None:
    """Further columns do not matter."""
    assert (True, False) == (is_node_header(NODES), is_pod_header(NODES))
    assert (False, True) == (is_node_header(PODS), is_pod_header(PODS))
    assert is_node_header("model,gpu,extra,memory_mib,cpu_milli,sn\n")
