"""stower vms says what VMs lack that should leave a full node."""

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.builders import make_node
from tests.contract.in_process import stower_in_process
from tests.vms.rig import virtual_machine, vm_pod


def dumped(path: Path, sizes: dict[str, list[float]]) -> str:
    """A file with nodes of 10 CPUs, and VMs of so many CPUs on each."""
    objects: list[tuple[str, str, Any]] = []
    for node, cpus in sizes.items():
        objects.append(("v1", "Node", make_node(node, cpu="10", memory="100Gi")))
        for i, size in enumerate(cpus):
            name = f"{node}-{i}"
            objects.append(("vm.neon.tech/v1", "VirtualMachine", virtual_machine(name)))
            pod = vm_pod(name, node=node, use=(size, 1), moves=True, created=i)
            objects.append(("v1", "Pod", pod))
    items = [
        {"apiVersion": version, "kind": kind, **msgspec.to_builtins(obj)}
        for version, kind, obj in objects
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def notes(path: str, *more: str) -> dict[str, str]:
    code, out, error = stower_in_process("vms", "all", path, *more, "-o", "json")
    assert 0 == code, error
    return {vm["vm"]: vm.get("message", "") for vm in json.loads(out)}


def test_what_vms_lack_that_should_leave_is_told(tmp_path: Path) -> None:
    path = dumped(tmp_path / "cluster.json", {"n1": [2, 2, 2, 2, 1.7], "n2": [2, 2, 2, 2]})
    found = notes(path)
    stuck = "nowhere to go from a node above its watermark: needs CPU 2, at most 1 is free below"
    assert found["default/n1-0"].startswith(stuck)
    assert "" == found["default/n2-0"], "its node is below"
    assert {""} == {*notes(path, "--watermark", "0.98").values()}


def test_a_vm_with_somewhere_to_go_has_no_note(tmp_path: Path) -> None:
    path = dumped(tmp_path / "cluster.json", {"n1": [4, 3, 1.5, 1], "n2": [8]})
    found = notes(path)
    assert "needs CPU 4" in found["default/n1-0"]
    assert "" == found["default/n1-3"]
