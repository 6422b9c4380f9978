"""Builders of pod groups, their trees, and nodes in racks."""

from typing import Any

import msgspec

from stower.model.kinds import CompositePodGroup, Node, Pod, PodGroup
from tests.builders import make_node, make_pod

RACK, BLOCK = "rack", "block"


def make_group(name: str = "g1", least: int | None = 1, **fields: Any) -> PodGroup:
    """A group of pods; `least`: its minCount, None for the basic policy. fields: see _made."""
    made: PodGroup = _made(PodGroup, "minCount", name, least, **fields)
    return made


def make_composite(name: str = "c1", least: int | None = 1, **fields: Any) -> CompositePodGroup:
    """A group of groups; `least`: its minGroupCount, None for the basic policy."""
    made: CompositePodGroup = _made(CompositePodGroup, "minGroupCount", name, least, **fields)
    return made


def _made(
    view: type[Any],
    count: str,
    name: str,
    least: int | None,
    *,
    parent: str = "",
    key: str = "",
    priority: int | None = None,
    workload: str = "",
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Any:
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {count: least}}
    data = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{view.__name__}-{name}",
            "creationTimestamp": created,
            "annotations": spec.pop("annotations", {}),
        },
        "spec": {
            "schedulingPolicy": policy,
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
            **({"priority": priority} if priority is not None else {}),
            **({"workloadRef": {"workloadName": workload}} if workload else {}),
            **spec,
        },
    }
    return msgspec.convert(data, view)


def members(of: str, count: int, **fields: Any) -> list[Pod]:
    """Pods of a group."""
    first = fields.pop("first", 0)
    group = {"podGroupName": of}
    return [
        make_pod(f"{of}-{i}", schedulingGroup=group, **fields) for i in range(first, first + count)
    ]


def racks(**blocks: tuple[int, ...]) -> list[Node]:
    """Per block, racks with so many nodes of one pod each: a=(3, 5) is block a with two racks."""
    return [
        make_node(f"{block}{r}-{i}", cpu="1", pods="1", labels={BLOCK: block, RACK: f"{block}{r}"})
        for block, counts in blocks.items()
        for r, count in enumerate(counts, 1)
        for i in range(count)
    ]
