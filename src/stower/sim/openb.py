"""Reads the OpenB trace (cluster-trace-gpu-v2023): CSV files of nodes and pods, as JSON documents.

GPUs become two extended resources. `nvidia.com/gpu` counts whole GPUs, requested by pods that use
whole GPUs; `stower.dev/gpu-milli` counts thousandths, requested by every pod with a GPU. Shares are
not assigned to individual GPUs, so two pods of 600 milli may fit by the numbers although no GPU has
room for both; only shared devices model that.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.model.errors import InvalidObject

NODE_FIELDS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_FIELDS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time",
    "deletion_time",
)  # fmt: skip

GPU: Final = "nvidia.com/gpu"
GPU_MILLI: Final = "stower.dev/gpu-milli"
# The label that GPU feature discovery sets.
GPU_MODEL: Final = "nvidia.com/gpu.product"
# The trace does not say how many pods a node takes; this is the kubelet's default, and its nodes
# are far larger than what the default is meant for, so that cpu is what runs out.
PODS_PER_NODE: Final = 1_000
# Longest number that is read: more than any node has, and it fits 64 bits.
DIGITS_MAX: Final = 18


class TraceLine(msgspec.Struct, frozen=True):
    """One line of a trace as a JSON document; times in seconds, None for nodes and for no end."""

    number: int
    data: bytes
    created_s: float | None = None
    deleted_s: float | None = None


def is_node_header(line: str) -> bool:
    """Whether this is the first line of a node list."""
    return set(NODE_FIELDS) <= set(line.strip().split(","))


def is_pod_header(line: str) -> bool:
    """Whether this is the first line of a pod list."""
    return set(POD_FIELDS) <= set(line.strip().split(","))


def read_trace(lines: Iterable[str]) -> Iterator[TraceLine]:
    """The nodes or pods of a CSV file. Raises InvalidObject with line and column."""
    reader = csv.DictReader(lines)
    fields = reader.fieldnames or ()
    if set(NODE_FIELDS) <= set(fields):
        to_document = _node
    elif set(POD_FIELDS) <= set(fields):
        to_document = _pod
    else:
        raise InvalidObject("line 1", ",".join(fields), "the header of an OpenB node or pod list")
    for row in reader:
        try:
            _check_columns(row, len(fields))
            yield to_document(reader.line_num, row)
        except InvalidObject as error:
            at = f"line {reader.line_num}, {error.path}"
            raise InvalidObject(at, error.got, error.want) from None


def whole_rows(reader: "csv.DictReader[str]", columns: int) -> Iterator[Mapping[str, Any]]:
    """The rows of a CSV file, each with a cell for each column. Raises InvalidObject."""
    for row in reader:
        try:
            _check_columns(row, columns)
        except InvalidObject as error:
            at = f"line {reader.line_num}, {error.path}"
            raise InvalidObject(at, error.got, error.want) from None
        yield row


def _check_columns(row: Mapping[Any, Any], want: int) -> None:
    """A line that was cut short, or runs on, is not guessed at."""
    # csv.DictReader: what is missing is None, what is too much is a list under None.
    got = sum(value is not None for name, value in row.items() if name is not None)
    got += len(row.get(None, ()))
    if got != want:
        raise InvalidObject("columns", got, str(want))


def _node(number: int, row: dict[str, str]) -> TraceLine:
    name, gpus = row["sn"], number_in(row, "gpu")
    room = {
        "cpu": f"{number_in(row, 'cpu_milli')}m",
        "memory": f"{number_in(row, 'memory_mib')}Mi",
        "pods": str(PODS_PER_NODE),
    }
    labels = {"kubernetes.io/hostname": name}
    if gpus:
        room |= {GPU: str(gpus), GPU_MILLI: str(1000 * gpus)}
        labels[GPU_MODEL] = row["model"]
    return _line(
        number,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room},
        },
    )


def _pod(number: int, row: dict[str, str]) -> TraceLine:
    gpus, share = number_in(row, "num_gpu"), number_in(row, "gpu_milli")
    requests = {
        "cpu": f"{number_in(row, 'cpu_milli')}m",
        "memory": f"{number_in(row, 'memory_mib')}Mi",
    }
    if gpus:
        requests[GPU_MILLI] = str(gpus * share)
        if share == 1000:
            requests[GPU] = str(gpus)
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "trace", "resources": {"requests": requests}}]
    }
    if row["gpu_spec"]:
        models = row["gpu_spec"].split("|")
        term = {"matchExpressions": [{"key": GPU_MODEL, "operator": "In", "values": models}]}
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    metadata = {"name": row["name"], "namespace": "openb", "uid": row["name"]}
    if row["qos"]:
        metadata["labels"] = {"qos": row["qos"]}  # type: ignore[assignment]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    ends = row["deletion_time"]
    return _line(
        number,
        document,
        number_in(row, "creation_time"),
        number_in(row, "deletion_time") if ends else None,
    )


def _line(
    number: int, document: object, created_s: int | None = None, deleted_s: int | None = None
) -> TraceLine:
    return TraceLine(number, msgspec.json.encode(document), created_s, deleted_s)


def number_in(row: Mapping[str, Any], field: str) -> int:
    """The number in a field of a row. Raises InvalidObject."""
    text = row.get(field) or ""
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise InvalidObject(field, text, f"a whole number of at most {DIGITS_MAX} digits")
    return int(text)
