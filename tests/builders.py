"""Builders of small objects for tests: everything that does not matter has a default."""

import json
from typing import Any

from stower.model.kinds import Node, Pod
from stower.model.raw import decode


def make_node(
    name: str = "n1",
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    images: dict[str, int] | None = None,
    **extended: str,
) -> Node:
    """A node; `extended` are further resources, with __ for / and _ for . or -."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    allocatable |= {key.replace("__", "/").replace("_", "."): v for key, v in extended.items()}
    data: dict[str, Any] = {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels or {}},
        "spec": {"unschedulable": unschedulable, "taints": taints or []},
        "status": {
            "allocatable": allocatable,
            "images": [{"names": [k], "sizeBytes": v} for k, v in (images or {}).items()],
        },
    }
    return decode(json.dumps(data).encode(), Node)


def make_pod(
    name: str = "p1",
    *,
    cpu: str | None = "100m",
    memory: str | None = "128Mi",
    node: str = "",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    priority: int = 0,
    nominated: str = "",
    phase: str = "",
    uid: str = "",
    ports: list[int] | None = None,
    image: str = "",
    requests: dict[str, str] | None = None,
    deletion: str | None = None,
    conditions: list[dict[str, str]] | None = None,
    **spec: Any,
) -> Pod:
    """A pod with one container; further keywords go into its spec."""
    asked = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v is not None}
    container = {
        "name": "main",
        "image": image,
        "resources": {"requests": asked | (requests or {})},
        "ports": [{"containerPort": p, "hostPort": p} for p in ports or ()],
    }
    data = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-of-{namespace}-{name}",
            "labels": labels or {},
            "deletionTimestamp": deletion,
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeName": node,
            "priority": priority,
            "containers": [container],
            **spec,
        },
        "status": {
            "phase": phase,
            "nominatedNodeName": nominated,
            "conditions": conditions or [],
        },
    }
    return decode(json.dumps(data).encode(), Pod)
