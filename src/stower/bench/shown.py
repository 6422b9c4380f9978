"""Builds the objects of the benchmarks as watches show them, with uid and resourceVersion."""

import json
from typing import Any

from stower.bench.server import pod_body
from stower.bench.up import node_body


def shown_pod(name: str, requests: dict[str, str], version: int = 1, **spec: Any) -> bytes:
    """A pod as Deployments create them, with these requests and fields of its spec."""
    item: dict[str, Any] = json.loads(pod_body(name))
    item["metadata"] |= {
        "uid": name, "namespace": "default", "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    item["spec"] |= {"schedulerName": "default-scheduler", **spec}
    item["spec"]["containers"][0]["resources"] = {"requests": requests}
    return json.dumps(item).encode()


def shown_node(
    number: int, version: int, heartbeat: str = "", labels: dict[str, str] | None = None
) -> bytes:
    """A node; `heartbeat`: when its kubelet was heard of last; `labels`: in addition to its own."""
    item: dict[str, Any] = json.loads(node_body(number))
    item["metadata"] |= {"uid": f"node-{number}", "resourceVersion": str(version)}
    item["metadata"]["labels"] |= labels or {}
    if heartbeat:
        item["status"]["conditions"][0]["lastHeartbeatTime"] = heartbeat
    return json.dumps(item).encode()
