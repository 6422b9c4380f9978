"""Builds the objects of the benchmarks, as the JSON that an API server would send."""

from typing import Any

import msgspec

from stower.bench.workloads import BenchWorkload

ZONES = 3


def scheduler_name(i: int) -> str:
    """The name of profile i."""
    return f"scheduler-{i}" if i else "default-scheduler"


def node_bytes(i: int, workload: BenchWorkload) -> bytes:
    """Node i: 32 cores, 64 GiB, 110 pods, in one of three zones."""
    name = f"node-{i:05}"
    room = {"cpu": "32", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    taints = []
    if i < workload.soft_tainted * workload.nodes:
        taints.append({"key": "bench", "value": "soft", "effect": "PreferNoSchedule"})
    elif i < (workload.soft_tainted + workload.tainted) * workload.nodes:
        taints.append({"key": "bench", "value": "hard", "effect": "NoSchedule"})
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"11111111-0000-4000-8000-{i:012}",
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": f"zone-{i % ZONES}",
                },
            },
            "spec": {"taints": taints} if taints else {},
            "status": {"capacity": room, "allocatable": room},
        }
    )


def _add_pod_terms(spec: dict[str, Any], workload: BenchWorkload, selector: dict[str, Any]) -> None:
    """What the pods of a group want of each other."""
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": action,
            "labelSelector": selector,
        }
        for keys, action in (
            (workload.hard_spread, "DoNotSchedule"),
            (workload.soft_spread, "ScheduleAnyway"),
        )
        for key in keys
    ]
    if spread:
        spec["topologySpreadConstraints"] = spread
    affinity: dict[str, Any] = spec.get("affinity", {})
    required, preferred = (f"{w}DuringSchedulingIgnoredDuringExecution"
                           for w in ("required", "preferred"))  # fmt: skip

    def terms(keys: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"topologyKey": key, "labelSelector": selector} for key in keys]

    near: dict[str, Any] = {}
    if workload.near:
        near[required] = terms(workload.near)
    if workload.near_preferred:
        near[preferred] = [
            {"weight": 10, "podAffinityTerm": term} for term in terms(workload.near_preferred)
        ]
    if near:
        affinity["podAffinity"] = near
    if workload.away:
        affinity["podAntiAffinity"] = {required: terms(workload.away)}
    if affinity:
        spec["affinity"] = affinity


def pod_bytes(i: int, workload: BenchWorkload, node_name: str = "", cpu_milli: int = 0) -> bytes:
    """Returns pod i as JSON, with the fields that a real pod carries along: some 2 kB."""
    shape = i % workload.shapes
    group = f"group-{i % workload.groups}"
    labels = {"app": "bench", "pod-template-hash": f"{shape:010}"}
    if workload.label_each:
        labels["index"] = str(i)
    labels["group"] = group
    milli = cpu_milli or (workload.existing_milli if node_name else workload.arriving_milli)
    spec = _spec(i, shape, milli or 100 + shape)
    spec["schedulerName"] = scheduler_name(i % workload.profiles)
    spec["priority"] = 0 if node_name else workload.priority
    if workload.affinity:
        spec["affinity"] = {"nodeAffinity": _ZONE_AFFINITY}
    _add_pod_terms(spec, workload, {"matchLabels": {"group": group}})
    status: dict[str, object] = {"phase": "Pending", "qosClass": "Burstable"}
    if node_name:
        spec["nodeName"] = node_name
        status = _RUNNING
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(i, shape, labels),
            "spec": spec,
            "status": status,
        }
    )


def _metadata(i: int, shape: int, labels: dict[str, str]) -> dict[str, object]:
    """Returns the metadata of pod i of the ReplicaSet of its shape."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"bench-{shape:010}",
        "uid": f"33333333-0000-4000-8000-{shape:012}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": f"bench-{shape:010}-{i:06}",
        "generateName": f"bench-{shape:010}-",
        "namespace": "default",
        "uid": f"22222222-0000-4000-8000-{i:012}",
        "resourceVersion": str(1_000_000 + i),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
        "annotations": {"bench.example/checksum": f"{i * 7919:064}"},
        "ownerReferences": [owner],
    }


def _spec(i: int, shape: int, cpu_milli: int) -> dict[str, Any]:
    """Returns the spec of pod i, in which the caller sets `schedulerName` and `priority`."""
    return {
        "schedulerName": "",
        "serviceAccountName": "default",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "securityContext": {},
        "containers": [_container(i, shape, cpu_milli)],
        "volumes": [_token_volume(i)],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{what}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for what in ("not-ready", "unreachable")
        ],
    }


def _container(i: int, shape: int, cpu_milli: int) -> dict[str, object]:
    return {
        "name": "main",
        "image": "registry.example/bench:1.0",
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": {"cpu": f"{cpu_milli}m", "memory": f"{128 + shape}Mi"},
            "limits": {"memory": f"{256 + shape}Mi"},
        },
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {
                "name": f"kube-api-access-{i:05}",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ],
    }


def _token_volume(i: int) -> dict[str, object]:
    """Returns the volume with the service account's token, which every pod gets."""
    return {
        "name": f"kube-api-access-{i:05}",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt"}},
            ],
        },
    }


_RUNNING: dict[str, object] = {
    "phase": "Running",
    "qosClass": "Burstable",
    "hostIP": "10.0.0.1",
    "podIP": "10.1.0.1",
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [
        {"type": type, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
}


def _zone(operator: str, *values: str) -> dict[str, object]:
    return {"key": "topology.kubernetes.io/zone", "operator": operator, "values": list(values)}


_ZONE_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [_zone("In", "zone-0", "zone-1")]}]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [_zone("In", "zone-1")]}}
    ],
}
