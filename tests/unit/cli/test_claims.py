"""Pods with claims of their own, from templates in files and in dumps."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests.unit.cli.test_cluster_inputs import node

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
DEVICES = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}


def slice_of(name: str) -> dict[str, Any]:
    """A node's one GPU."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def claiming(name: str, **fields: Any) -> dict[str, Any]:
    """A pod with a claim from the template."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [entry]}
    meta = {"name": name, "uid": name, **fields.pop("meta", {})}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta,
        "spec": spec | fields.pop("spec", {}), **fields,
    }  # fmt: skip


CLASS = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
TEMPLATE = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "one-gpu"},
            "spec": {"spec": {"devices": DEVICES}}}  # fmt: skip


def ask(verb: str, tmp_path: Path, objects: list[Any], *more: str) -> Any:
    """What the verb says of a cluster of these objects."""
    path = tmp_path / "cluster.json"
    path.write_text("\n".join(json.dumps(each) for each in objects))
    run = CliRunner().invoke(app, [*verb.split(), str(path), *more, "--output", "json"])
    assert 0 == run.exit_code, run.stderr
    return json.loads(run.stdout)


def test_each_pod_gets_a_claim_from_its_template(tmp_path: Path) -> None:
    nodes = [node("n1"), node("n2"), slice_of("n1"), slice_of("n2"), CLASS]
    pods = [claiming(f"p{i}") for i in range(3)]
    found = ask("simulate", tmp_path, [*nodes, TEMPLATE, *pods])
    (report,) = found["reports"]
    assert ({}, 2, 1) == (found["skipped"], report["placed"], report["pending"])


def test_without_its_template_a_pod_waits_for_its_claim(tmp_path: Path) -> None:
    found = ask("simulate", tmp_path, [node("n1"), slice_of("n1"), CLASS, claiming("p")])
    (report,) = found["reports"]
    assert 1 == report["pending"]


@pytest.fixture
def running(tmp_path: Path) -> list[Any]:
    """A pod of a controller that runs on a GPU of n1; n2 has one as well."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs",
             "controller": True}  # fmt: skip
    made = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}},
              "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]}  # fmt: skip
    claim = {"apiVersion": API, "kind": "ResourceClaim", "status": status,
             "metadata": {"name": "p-gpu-x", "ownerReferences": [made]},
             "spec": {"devices": DEVICES}}  # fmt: skip
    names = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}
    pod = claiming("p", meta={"ownerReferences": [owner]}, spec={"nodeName": "n1"}, status=names)
    return [node("n1"), node("n2"), slice_of("n1"), slice_of("n2"), CLASS, claim, pod]


def test_what_is_made_in_the_place_of_a_pod_has_a_claim_of_its_own(
    tmp_path: Path, running: list[Any]
) -> None:
    found = ask("what-if", tmp_path, running, "--remove-node", "n1")
    assert [("default/p", "n1", "n2")] == [
        (each["pod"], each["before"], each["after"]) for each in found["moved"]
    ]


def test_a_copy_of_a_node_has_its_devices(tmp_path: Path, running: list[Any]) -> None:
    waiting = [TEMPLATE, claiming("q1"), claiming("q2")]
    cluster = [each for each in running if each["metadata"]["name"] != "n2"]
    found = ask("what-if", tmp_path, [*cluster, *waiting], "--add-nodes", "2")
    assert ["n1-copy-1", "n1-copy-2"] == sorted(each["after"] for each in found["newlyPlaced"])


def test_devices_of_a_pod_that_is_deleted_are_free(tmp_path: Path, running: list[Any]) -> None:
    cluster = [each for each in running if each["metadata"]["name"] != "n2"]
    cluster += [TEMPLATE, claiming("q")]
    found = ask("what-if", tmp_path, cluster, "--delete", "pod/default/p")
    assert [("default/q", "n1")] == [(e["pod"], e["after"]) for e in found["newlyPlaced"]]


def test_what_comes_again_after_an_eviction_claims_again(
    tmp_path: Path, running: list[Any]
) -> None:
    first = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
             "metadata": {"name": "first"}}  # fmt: skip
    cluster = [each for each in running if each["metadata"]["name"] != "n2"]
    added = tmp_path / "added.json"
    added.write_text(json.dumps(claiming("urgent", spec={"priorityClassName": "first"})))
    found = ask("what-if", tmp_path, [*cluster, first, TEMPLATE], "--add", str(added))
    assert (["default/p"], ["default/urgent"]) == (
        found["evicted"], [each["pod"] for each in found["added"] if each["after"]],
    )  # fmt: skip
    (waits,) = found["newlyPending"]
    assert "cannot allocate all claims" in waits["why"]


def test_each_copy_that_fits_has_a_claim_of_its_own(tmp_path: Path, running: list[Any]) -> None:
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(claiming("more")))
    found = ask(f"fit {pod}", tmp_path, [*running, TEMPLATE])
    assert (1, {"n2": 1}) == (found["fits"], found["byNode"])


def test_a_drained_pod_claims_again(tmp_path: Path, running: list[Any]) -> None:
    found = ask("drain-check n1", tmp_path, running)
    assert ({"default/p": "n2"}, {}) == (found["moves"], found["stuck"])


def changed(obj: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**obj, "spec": {**obj["spec"], **spec}}


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (
            changed(slice_of("n1"), devices=[{"name": "d", "capacity": {"m": {"value": "much"}}}]),
            "spec.devices.capacity.m.value: quantities must match",
        ),
        (changed(CLASS, selectors=[{"cel": {"expression": "device."}}]), "Syntax error"),
        (
            changed(TEMPLATE, spec={"devices": {"requests": [{"name": "r"}]}}),
            "spec.spec.devices.requests[0]: Required value",
        ),
        ({**TEMPLATE, "metadata": {}}, 'metadata.name: got "", want a name'),
    ],
)
def test_what_no_api_server_would_take_is_refused(
    tmp_path: Path, obj: dict[str, Any], said: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(obj) + "\n" + json.dumps(node("n1")))
    run = CliRunner().invoke(app, ["simulate", str(path)])
    assert (2, True) == (run.exit_code, f"{path}: " in run.stderr), run.stderr
    assert said in run.stderr


def test_a_template_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text("\n".join(json.dumps(each) for each in (TEMPLATE, TEMPLATE, node("n1"))))
    run = CliRunner().invoke(app, ["simulate", str(path)])
    assert (2, True) == (run.exit_code, "want a name that is not in" in run.stderr)


@pytest.mark.parametrize("mode", ["fgd", "dgf"])
def test_explain_tells_the_node_that_packing_would_take(tmp_path: Path, mode: str) -> None:
    """What pods ask for is learned before it is told."""
    config = tmp_path / "scheduler.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Fragmentation, weight: 1000}]}},"
        f" pluginConfig: [{{name: Fragmentation, args: {{mode: {mode}}}}}]}}]\n"
    )
    nodes = [slice_of(f"n{i}") for i in range(1, 4)]
    for i, each in enumerate(nodes):
        each["spec"]["devices"] = [{"name": f"gpu-{j}"} for j in range(i + 1)]
    cluster = [*(node(f"n{i}") for i in range(1, 4)), *nodes, CLASS, TEMPLATE, claiming("p")]
    placed = ask("simulate", tmp_path, cluster, "--config", str(config))
    told = ask("explain pod p", tmp_path, cluster, "--config", str(config))
    assert {"default/p": told["node"]} == placed["reports"][0]["assignments"]
    assert all("Fragmentation" in score["parts"] for score in told["scores"])
