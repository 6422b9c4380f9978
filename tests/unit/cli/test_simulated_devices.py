"""Devices in `stower simulate`: what is searched for, for how long, and what is written back."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_simulate import HEADER, lines, node, pod, priority_class, reports

Json = dict[str, Any]

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
EXTENDED = "example.com/gpu"
GPU_CLASS = {
    "apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": EXTENDED},
}  # fmt: skip


def device_slice(name: str, count: int) -> Json:
    """The devices of a node; no two nodes are alike."""
    devices = [
        {"name": f"d{i}", "attributes": {"id": {"string": f"{name}-{i}"}}} for i in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def asked(expression: str = "") -> Json:
    exactly: Json = {"deviceClassName": "gpu"}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def claim(name: str, spec: Json) -> Json:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def with_claim(name: str, claim_name: str, **spec: Any) -> Json:
    claims = [{"name": "a", "resourceClaimName": claim_name}]
    return pod(name, resourceClaims=claims, **spec)


@pytest.mark.parametrize("is_pinned", [False, True])
def test_pods_whose_selectors_are_slow_are_placed(is_pinned: bool) -> None:
    """Nothing is searched on nodes that a pod cannot go to; what an attempt cannot finish is
    finished by later ones, as in a live scheduler."""
    slow = f"[{', '.join(map(str, range(60)))}].all(x, x != {{}})"
    inputs: list[Json] = [GPU_CLASS]
    for i in range(60):
        inputs += [node(f"n{i}", **{"kubernetes.io/hostname": f"n{i}"}), device_slice(f"n{i}", 16)]
    for i in range(12):
        chosen = {"nodeSelector": {"kubernetes.io/hostname": f"n{i}"}} if is_pinned else {}
        inputs.append(claim(f"c{i}", asked(slow.format(100 + i))))
        inputs.append(with_claim(f"p{i}", f"c{i}", **chosen))
    (found,) = reports("-", stdin=lines(*inputs))
    assert (12, 0) == (found["placed"], found["pending"])
    assert is_pinned == (found["attempts"] == 12)
    if is_pinned:
        assert {f"default/p{i}": f"n{i}" for i in range(12)} == found["assignments"]


def test_objects_keep_allocations(tmp_path: Path) -> None:
    """Those of claims that were given, of claims made from templates, and of those that the
    scheduler makes for extended resources."""
    inputs: list[Json] = [GPU_CLASS]
    for name in ("n0", "n1", "n2"):
        inputs += [node(name, cpu="32"), device_slice(name, 2)]
    meta = {"name": "t", "namespace": "default"}
    inputs.append({"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": meta,
                   "spec": {"spec": asked()}})  # fmt: skip
    inputs += [claim("c0", asked()), with_claim("own", "c0")]
    templates = [{"name": "a", "resourceClaimTemplateName": "t"}]
    extended = {"requests": {EXTENDED: "1"}, "limits": {EXTENDED: "1"}}
    inputs += [pod(f"t{i}", resourceClaims=templates) for i in range(4)]
    inputs += [pod(f"e{i}", extended) for i in range(4)]
    files = [tmp_path / "first.ndjson", tmp_path / "second.ndjson"]
    (first,) = reports("-", "--objects", files[0], stdin=lines(*inputs))
    (second,) = reports(files[0], "--objects", files[1])
    assert (6, 3) == (first["placed"], first["pending"])
    assert (0, 3, first["use"]) == (second["placed"], second["pending"], second["use"])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_objects_leave_out_what_was_evicted(tmp_path: Path) -> None:
    """Its claim is free again."""
    taken = with_claim("low", "c0")
    target = tmp_path / "objects.ndjson"
    inputs = [GPU_CLASS, node(cpu="1"), device_slice("n", 1), claim("c0", asked()), taken]
    reports("-", "--objects", target, stdin=lines(*inputs))
    high = lines(priority_class("high", 100), pod("high", priorityClassName="high"))
    (found,) = reports("-", "--objects", target, stdin=target.read_bytes() + high)
    assert (1, 1) == (found["placed"], found["evictions"])
    text = target.read_text()
    assert '"low"' not in text
    assert '"allocation"' not in text
    (again,) = reports(target)
    assert found["use"] == again["use"]


def one_of_two(**devices: int) -> list[Json]:
    """Nodes with so many devices, the first with more room, and a pod with a claim that may go to
    n1 alone."""
    inputs: list[Json] = [GPU_CLASS]
    for name, count in devices.items():
        inputs.append(
            node(name, cpu=str(4 + 28 // len(inputs)), **{"kubernetes.io/hostname": name})
        )
        inputs.append(device_slice(name, count))
    chosen = {"kubernetes.io/hostname": "n1"}
    return [*inputs, claim("c0", asked()), with_claim("p0", "c0", nodeSelector=chosen)]


def test_where_node_affinity_does_not_filter_all_nodes_are_searched(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        HEADER + "profiles:\n- plugins:\n    filter: {disabled: [{name: NodeAffinity}]}\n"
    )
    inputs = one_of_two(n0=0, n1=1)
    (found,) = reports("-", "--config", config, stdin=lines(*inputs))
    assert {"default/p0": "n1"} == found["assignments"]
    full = one_of_two(n0=1, n1=0)
    (found,) = reports("-", "--config", config, stdin=lines(*full))
    assert {"default/p0": "n0"} == found["assignments"]


def test_devices_that_take_of_a_node_are_not_asked_for_elsewhere(tmp_path: Path) -> None:
    """What they take is found by an allocation, which other nodes have no devices for."""
    inputs = one_of_two(n0=2, n1=1)
    for document in inputs:
        for each in document.get("spec", {}).get("devices", []) if "pool" in str(document) else []:
            each["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": "1"}}
    inputs.append(claim("c1", asked()))
    inputs.append(with_claim("p1", "c1", nodeSelector={"kubernetes.io/hostname": "n0"}))
    for document in inputs:
        for container in document.get("spec", {}).get("containers", ()):
            container["resources"]["claims"] = [{"name": "a"}]
    target = tmp_path / "objects.ndjson"
    gate = ("--feature-gates", "DRANodeAllocatableResources=true", "--objects", target)
    (found,) = reports("-", *gate, stdin=lines(*inputs))
    assert {"default/p0": "n1", "default/p1": "n0"} == found["assignments"]
    assert 2 == target.read_text().count('"nodeAllocatableResourceClaimStatuses"')
