"""CustomResourceDefinitions: from the definition to objects that kubectl works with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.kubectl import Kubectl
from tests.contract.servers import Client, in_thread
from tests.contract.test_kubectl import kubectl, pytestmark

__all__ = ["kubectl", "pytestmark"]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MACHINES = "/apis/vm.example.com/v1/namespaces/default/machines"
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["cpus"],
            "properties": {
                "cpus": {"type": "integer", "minimum": 1, "maximum": 64},
                "mode": {"type": "string", "enum": ["fast", "safe"], "default": "safe"},
                "replicas": {"type": "integer", "default": 1},
                "disks": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "size": {"type": "string"}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}},
        },
    },
}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "machines.vm.example.com"},
    "spec": {
        "group": "vm.example.com",
        "scope": "Namespaced",
        "names": {"plural": "machines", "kind": "Machine", "shortNames": ["mc"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "CPUs", "type": "integer", "jsonPath": ".spec.cpus"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                ],
            }
        ],
    },
}
MACHINE = {
    "apiVersion": "vm.example.com/v1",
    "kind": "Machine",
    "metadata": {"name": "m"},
    "spec": {"cpus": 4, "free": {"x": 1}, "disks": [{"name": "a"}]},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path)) as (_, made):
        assert 201 == made.call("POST", CRDS, CRD)[0]
        yield made


def test_definition_is_established_and_discovered(client: Client) -> None:
    _, found = client.call("GET", f"{CRDS}/machines.vm.example.com")
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert {"NamesAccepted": "True", "Established": "True"} == conditions
    _, resources = client.call("GET", "/apis/vm.example.com/v1")
    names = {r["name"] for r in resources["resources"]}
    assert {"machines", "machines/status", "machines/scale"} == names
    _, groups = client.call("GET", "/apis")
    assert "vm.example.com" in {g["name"] for g in groups["groups"]}


def test_objects_are_pruned_defaulted_and_validated(client: Client) -> None:
    item = {**MACHINE, "spec": {**MACHINE["spec"], "bogus": 1}}  # type: ignore[dict-item]
    status, made = client.call("POST", MACHINES, item)
    assert 201 == status
    want = {"cpus": 4, "mode": "safe", "replicas": 1, "free": {"x": 1}, "disks": [{"name": "a"}]}
    assert want == made["spec"]
    assert 1 == made["metadata"]["generation"]
    status, refused = client.call("POST", f"{MACHINES}?fieldValidation=Strict", item)
    assert (400, True) == (status, 'unknown field "spec.bogus"' in refused["message"])
    for change, field, reason in (
        ({"cpus": "x"}, "spec.cpus", "FieldValueTypeInvalid"),
        ({"cpus": 65}, "spec.cpus", "FieldValueInvalid"),
        ({"cpus": None}, "spec.cpus", "FieldValueRequired"),
        ({"mode": "odd"}, "spec.mode", "FieldValueNotSupported"),
        ({"disks": [{"name": "a"}, {"name": "a"}]}, "spec.disks[1]", "FieldValueDuplicate"),
    ):
        bad = {**MACHINE, "spec": {**MACHINE["spec"], **change}}  # type: ignore[dict-item]
        status, refused = client.call("POST", MACHINES, bad)
        assert 422 == status
        assert (field, reason) in {(c["field"], c["reason"]) for c in refused["details"]["causes"]}


def test_status_is_apart_and_generation_counts_the_spec(client: Client) -> None:
    client.call("POST", MACHINES, {**MACHINE, "status": {"phase": "set too early"}})
    _, made = client.call("GET", f"{MACHINES}/m")
    assert "status" not in made
    merge = "application/merge-patch+json"
    _, changed = client.call(
        "PATCH", f"{MACHINES}/m/status", {"status": {"phase": "Up"}, "spec": {"cpus": 8}}, merge
    )
    assert ("Up", 4, 1) == (
        changed["status"]["phase"], changed["spec"]["cpus"], changed["metadata"]["generation"],
    )  # fmt: skip
    _, changed = client.call("PATCH", f"{MACHINES}/m", {"spec": {"cpus": 8}}, merge)
    assert 2 == changed["metadata"]["generation"]
    _, scale = client.call("PATCH", f"{MACHINES}/m/scale", {"spec": {"replicas": 3}}, merge)
    assert 3 == scale["spec"]["replicas"]
    strategic = "application/strategic-merge-patch+json"
    assert 415 == client.call("PATCH", f"{MACHINES}/m", {}, strategic)[0]


def test_server_side_apply_merges_lists_by_key(client: Client) -> None:
    apply = "application/apply-patch+yaml"
    for manager, name in (("one", "a"), ("two", "b")):
        item = {**MACHINE, "spec": {"cpus": 4, "disks": [{"name": name}]}}
        status, made = client.call(
            "PATCH", f"{MACHINES}/m?fieldManager={manager}&force=true", item, apply
        )
        assert status in (200, 201)
    assert [{"name": "a"}, {"name": "b"}] == made["spec"]["disks"]


def test_who_manages_the_status_is_kept(client: Client) -> None:
    client.call("POST", MACHINES, {**MACHINE, "status": {"phase": "set too early"}})
    path, apply = f"{MACHINES}/m/status?fieldManager=one", "application/apply-patch+yaml"
    head = {name: MACHINE[name] for name in ("apiVersion", "kind", "metadata")}
    _, made = client.call("PATCH", path, {**head, "status": {"phase": "Up"}}, apply)
    managers = {m["manager"]: m["fieldsV1"] for m in made["metadata"]["managedFields"]}
    assert {"f:status": {"f:phase": {}}} == managers.pop("one")
    assert not any("f:status" in fields for fields in managers.values())
    _, made = client.call("PATCH", path, head, apply)
    assert "phase" not in made.get("status", {})


def test_definitions_outlive_a_restart_and_go_with_their_objects(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path)) as (_, client):
        client.call("POST", CRDS, CRD)
        client.call("POST", MACHINES, MACHINE)
    with in_thread(Options(tmp_path)) as (_, client):
        assert 200 == client.call("GET", f"{MACHINES}/m")[0]
        assert 200 == client.call("DELETE", f"{CRDS}/machines.vm.example.com")[0]
        assert 404 == client.raw("GET", MACHINES)[0]
        client.call("POST", CRDS, CRD)
        assert [] == client.call("GET", MACHINES)[1]["items"]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("metadata", "name"), "other.vm.example.com", "metadata.name"),
        (("spec", "scope"), "World", "spec.scope"),
        (("spec", "group"), "nodots", "spec.group"),
        (("spec", "versions", 0, "storage"), False, "spec.versions"),
        (
            ("spec", "versions", 0, "schema", "openAPIV3Schema"), {"properties": {}},
            "spec.validation.openAPIV3Schema.type",
        ),
    ],
)  # fmt: skip
def test_bad_definitions_are_refused(
    client: Client, path: tuple[Any, ...], value: Any, field: str
) -> None:
    bad = json.loads(json.dumps(CRD))
    bad["metadata"]["name"] = "machines.vm.example.com"
    place = bad
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    status, refused = client.call("POST", CRDS, bad)
    assert 422 == status
    assert field in {c["field"] for c in refused["details"]["causes"]}


def test_kubectl_works_with_them(kubectl: Kubectl) -> None:
    kubectl("create", "-f", kubectl.file(CRD))
    assert "condition met" in kubectl(
        "wait", "--for=condition=Established", "crd/machines.vm.example.com", "--timeout=10s"
    )
    assert "created" in kubectl("apply", "-f", kubectl.file(MACHINE))
    assert "unchanged" in kubectl("apply", "-f", kubectl.file(MACHINE))
    labelled = {**MACHINE, "metadata": {"name": "m", "labels": {"a": "b"}}}
    assert "configured" in kubectl("apply", "-f", kubectl.file(labelled))
    rows = [row.split() for row in kubectl("get", "mc").splitlines()]
    assert [["NAME", "CPUS", "PHASE"], ["m", "4"]] == rows
    assert "cpus" in kubectl("explain", "machine.spec")
    assert "scaled" in kubectl("scale", "machine", "m", "--replicas=2")
    assert "deleted" in kubectl("delete", "machine", "m")
