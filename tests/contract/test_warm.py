"""Warm pools on an API server over HTTP: kubectl's columns, placeholders, users, `stower warm`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from tests.contract.faulty import Faults, faulty
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import add_nodes, scheduler
from tests.contract.test_up import stower

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "warm"
POOLS = "/apis/stower.dev/v1/namespaces/jhub/warmpools"
PODS = "/api/v1/namespaces/jhub/pods"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "WarmPool": POOLS,
}
Object = dict[str, Any]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        yield client


def documents() -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLES / "pool.yaml").read_text()))


def placed(pods: dict[str, Object]) -> list[str]:
    """Names of those that have a node."""
    return sorted(name for name, pod in pods.items() if pod["spec"].get("nodeName"))


@pytest.mark.behaviour("S1.1", "S1.30", "S1.33")
def test_a_pool_holds_room_and_users_come_first(served: Client) -> None:
    for document in documents():
        code, told = served.call("POST", PATHS[document["kind"]], document)
        assert 201 == code, told
    kubeconfig = str(served.kubeconfig)
    actors = Command("actors", "--kubeconfig", kubeconfig, "--nodes", "2")
    config = ("--config", str(EXAMPLES / "scheduler.yaml"))
    try:
        with scheduler(served.kubeconfig, "--no-leader-elect", *config):
            pods = until(served, PODS, lambda found: len(placed(found)) == 3)
            names = [f"users-placeholder-{i}" for i in range(3)]
            assert names == placed(pods)
            one = pods[names[0]]
            assert (-10, 0, "WarmPool") == (
                one["spec"]["priority"], one["spec"]["terminationGracePeriodSeconds"],
                one["metadata"]["ownerReferences"][0]["kind"],
            )  # fmt: skip
            user: Object = {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "jupyter-a", "labels": {"component": "singleuser-server"}},
                "spec": {"schedulerName": "jhub-user-scheduler", "containers": [
                    {"name": "notebook", "image": "hub.example.com/user:1"}]},
            }  # fmt: skip
            assert 201 == served.call("POST", PODS, user)[0]
            until(served, PODS, lambda found: "jupyter-a" in placed(found))
            pools = until(
                served, POOLS, lambda found: (found["users"].get("status") or {}).get("users") == 1
            )
            status = pools["users"]["status"]
            assert (3, 3, 2) == tuple(status[name] for name in ("wanted", "placed", "nodes"))
            code, told, error = stower("warm", "users", "--kubeconfig", kubeconfig, "-o", "json")
            assert (0, "") == (code, error)
            (pool,) = json.loads(told)
            assert (1, 3) == (pool["users"], pool["placed"])
    finally:
        actors.kill()


def test_columns_of_pools(served: Client) -> None:
    for document in documents():
        served.call("POST", PATHS[document["kind"]], document)
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    shown = json.loads(served.raw("GET", POOLS, None, headers)[2])
    names = [column["name"] for column in shown["columnDefinitions"]]
    expected = ["Name", "Nodes", "Ready", "Users", "Waiting", "Wanted", "Placed", "Pending",
                "Expected", "Age"]  # fmt: skip
    assert expected == names


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("users",), None, "spec.users"),
        (("placeholders", "replicas"), -1, "spec.placeholders.replicas"),
        (("placeholders", "placement"), "Pack", "spec.placeholders.placement"),
        (
            ("placeholders", "lectures"),
            [{"start": "25:00", "enrolment": 3}],
            "lectures[0].start: Invalid",
        ),
        (("repositioning",), {"mode": "Always"}, "spec.repositioning.mode"),
        (("images", "waitSeconds"), 90_000, "spec.images.waitSeconds"),
    ],
)
def test_what_is_wrong_is_told_at_the_door(
    served: Client, path: tuple[str, ...], value: object, told: str
) -> None:
    namespace, *_, pool = documents()
    served.call("POST", PATHS["Namespace"], namespace)
    part = pool["spec"]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    if value is None:
        del part[path[-1]]
    code, answer = served.call("POST", POOLS, pool)
    assert (422, True) == (code, told in answer["message"]), answer["message"]


@pytest.mark.behaviour("S1.32")
def test_rights_in_one_namespace_are_enough_to_keep_placeholders() -> None:
    folder = ROOT / "deploy" / "warm"
    own = yaml.safe_load((folder / "placeholders-rbac.yaml").read_text())
    assert [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}] == own["rules"]
    whole, _ = yaml.safe_load_all((folder / "scheduler-rbac.yaml").read_text())
    created = [rule for rule in whole["rules"] if "create" in rule["verbs"]]
    patched = {r for rule in whole["rules"] if "patch" in rule["verbs"] for r in rule["resources"]}
    assert ([], {"warmpools/status", "nodes"}) == (created, patched)


@pytest.mark.behaviour("S1.32")
@pytest.mark.parametrize(
    ("status", "gates"), [(404, ""), (403, ""), (403, "WarmPools=false"), (404, "WarmPools=false")]
)
def test_a_cluster_without_warm_pools_is_scheduled_all_the_same(
    served: Client, tmp_path: Path, status: int, gates: str
) -> None:
    """The chart's own rights say nothing of stower.dev; old clusters have no definitions of it."""
    asked = []

    def answers(method: str, path: str) -> tuple[int, bytes] | None:
        if "/stower.dev/" not in path:
            return None
        asked.append(path)
        return status, b'{"kind":"Status","message":"no"}'

    add_nodes(served, 1)
    proxied = tmp_path / "proxied"
    config = ("--config", str(EXAMPLES / "scheduler.yaml"))
    with (
        faulty(served.kubeconfig, proxied, Faults(answers=answers)),
        scheduler(proxied, "--no-leader-elect", *config, "--feature-gates", gates) as command,
    ):
        container = {"name": "c", "image": "i"}
        spec = {"schedulerName": "jhub-user-scheduler", "containers": [container]}
        path = "/api/v1/namespaces/default/pods"
        assert 201 == served.call("POST", path, {"metadata": {"name": "a"}, "spec": spec})[0]
        until(served, path, lambda found: placed(found) == ["a"])
        assert 0 == command.stop()
    assert bool(gates) != any("warmpools" in path for path in asked)
