"""Reads the plain trace format: tables of nodes and pods, CSV or Parquet, as JSON documents.

One row is one node or pod; docs/traces.md lists the columns. A column whose name has a slash, and
the columns of OTHER_RESOURCES, are further resources. Quantities are those of Kubernetes. An empty
cell means not specified.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.model.errors import InvalidObject
from stower.sim.arrivals import LONGEST_S
from stower.sim.openb import PODS_PER_NODE, TraceLine
from stower.sim.workload import RUN

Json = dict[str, Any]

NODE: Final = "node"
POD: Final = "pod"
NODE_COLUMNS: Final = (NODE, "cpu", "memory", "pods", "labels", "taints")
POD_COLUMNS: Final = (
    POD, "namespace", "arrives", "ends", "lasts", "cpu", "memory", "priority", "labels",
    "nodeSelector", "tolerations", "image", "schedulerName",
)  # fmt: skip
OTHER_RESOURCES: Final = ("ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
_PRIORITY: Final = re.compile("-?[0-9]{1,10}", re.ASCII)
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def is_header(columns: Iterable[str]) -> bool:
    """Whether a table of these columns is a trace."""
    return bool({NODE, POD} & {*columns})


def read_rows(columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[TraceLine]:
    """The nodes or pods of a table. Raises InvalidObject with row and column."""
    known = NODE_COLUMNS if NODE in columns else POD_COLUMNS
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidObject("line 1", column, "each column once")
        if column not in known and column not in OTHER_RESOURCES and "/" not in column:
            want = f"one of {', '.join((*known, *OTHER_RESOURCES))}, or a resource with a slash"
            raise InvalidObject("line 1", column, want)
    to_line = _node if NODE in columns else _pod
    for number, row in enumerate(rows, 2):
        try:
            cells = {name: _text(name, row[name]) for name in columns}
            yield to_line(number, cells)
        except InvalidObject as error:
            raise InvalidObject(f"line {number}, {error.path}", error.got, error.want) from None


def _text(column: str, value: Any) -> str:
    """A cell as text; a Parquet file has numbers too."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidObject(column, value, "text or a number")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _node(number: int, cells: dict[str, str]) -> TraceLine:
    name = _name(cells, NODE)
    room = {"pods": str(PODS_PER_NODE), **_resources(cells, (*NODE_COLUMNS[1:4],))}
    labels = {"kubernetes.io/hostname": name, **_pairs(cells, "labels")}
    spec = {"taints": [*_taints(cells)]} if cells.get("taints") else {}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node/{name}", "labels": labels},
        "spec": spec,
        "status": {"capacity": room, "allocatable": room},
    }
    return TraceLine(number, msgspec.json.encode(document))


def _pod(number: int, cells: dict[str, str]) -> TraceLine:
    name, namespace = _name(cells, POD), cells.get("namespace") or "default"
    requests = _resources(cells, ("cpu", "memory"))
    container = {"name": "main", "image": cells.get("image") or "trace",
                 "resources": {"requests": requests}}  # fmt: skip
    spec: Json = {"containers": [container]}
    if cells.get("priority"):
        spec["priority"] = _priority(cells)
    if cells.get("nodeSelector"):
        spec["nodeSelector"] = _pairs(cells, "nodeSelector")
    if cells.get("tolerations"):
        spec["tolerations"] = [*_tolerations(cells)]
    if cells.get("schedulerName"):
        spec["schedulerName"] = cells["schedulerName"]
    meta: Json = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}",
                  "labels": _pairs(cells, "labels")}  # fmt: skip
    lasts_s = _seconds(cells, "lasts")
    if lasts_s is not None:
        meta["annotations"] = {RUN: f"{lasts_s}"}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return TraceLine(
        number,
        msgspec.json.encode(document),
        _seconds(cells, "arrives") or 0.0,
        _seconds(cells, "ends"),
    )


def _name(cells: dict[str, str], column: str) -> str:
    if not cells[column]:
        raise InvalidObject(column, "", "a name")
    return cells[column]


def _resources(cells: dict[str, str], own: tuple[str, ...]) -> dict[str, str]:
    """What is said of resources; whether these are quantities is seen where all objects are."""
    return {
        name: value
        for name, value in cells.items()
        if value and (name in own or name in OTHER_RESOURCES or "/" in name)
    }


def _pairs(cells: dict[str, str], column: str) -> dict[str, str]:
    """a=b;c=d"""
    found = {}
    for part in filter(None, cells.get(column, "").split(";")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise InvalidObject(column, part, "KEY=VALUE pairs, separated by ;")
        found[key.strip()] = value.strip()
    return found


def _taints(cells: dict[str, str]) -> Iterator[Json]:
    """key=value:NoSchedule;..."""
    for part in filter(None, cells["taints"].split(";")):
        rest, colon, effect = part.rpartition(":")
        key, _, value = rest.partition("=")
        if not colon or effect not in EFFECTS or not key:
            raise InvalidObject(
                "taints", part, f"KEY=VALUE:EFFECT with an effect of {', '.join(EFFECTS)}"
            )
        yield {"key": key.strip(), "value": value.strip(), "effect": effect}


def _tolerations(cells: dict[str, str]) -> Iterator[Json]:
    """key, key=value, or either with :Effect; several with ; between them."""
    for part in filter(None, cells["tolerations"].split(";")):
        rest, colon, effect = part.rpartition(":")
        if not colon:
            rest, effect = part, ""
        if effect and effect not in EFFECTS:
            raise InvalidObject("tolerations", part, f"one of the effects {', '.join(EFFECTS)}")
        key, equals, value = rest.partition("=")
        toleration = {"key": key.strip(), "operator": "Equal" if equals else "Exists"}
        toleration |= {"value": value.strip()} if equals else {}
        yield {**toleration, **({"effect": effect} if effect else {})}


def _priority(cells: dict[str, str]) -> int:
    text = cells["priority"]
    if not _PRIORITY.fullmatch(text):
        raise InvalidObject("priority", text, "a whole number")
    return int(text)


def _seconds(cells: dict[str, str], column: str) -> float | None:
    text = cells.get(column, "")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_S:
        raise InvalidObject(column, text, "seconds since the start of the trace, such as 12.5")
    return seconds
