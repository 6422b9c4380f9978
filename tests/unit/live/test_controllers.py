"""Controllers on an API server in this process: their requests and their errors."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stower.controllers.garbage import GarbageCollector
from stower.controllers.replica_set import ReplicaSetController
from stower.controllers.runtime import ControllerManager
from stower.live import controllers as module
from stower.live import reflector
from stower.live.access import AccessError
from stower.live.client import Response
from stower.live.controllers import (
    ControllerShell,
    ServerFacts,
    discover_deletable_resources,
    run_controllers,
)
from stower.live.shell import ShellError
from tests.unit.live.fake_api import PODS, FakeApi, cluster, until

Object = dict[str, Any]
SETS = "/apis/apps/v1/namespaces/default/replicasets"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def running(fake: FakeApi, *controllers: Any) -> AsyncIterator[ControllerShell]:
    client: Any = fake
    shell = ControllerShell(client, ControllerManager(controllers or (ReplicaSetController(),)))
    stop = asyncio.Event()
    task = asyncio.create_task(shell.run(stop))
    try:
        yield shell
    finally:
        stop.set()
        await task


def replica_set(replicas: int) -> Object:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "a"}, "spec": spec}


def pods(fake: FakeApi) -> list[Object]:
    return list(fake.call("GET", PODS)["items"])


def test_a_replica_set_gets_its_pods_and_keeps_them() -> None:
    async def story() -> FakeApi:
        fake = FakeApi()
        fake.call("POST", SETS, replica_set(3))
        async with running(fake):
            await until(lambda: len(pods(fake)) == 3)
            name = pods(fake)[0]["metadata"]["name"]
            fake.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            await until(lambda: len(pods(fake)) == 3)
            await until(lambda: fake.call("GET", f"{SETS}/a")["status"].get("replicas") == 3)
        return fake

    fake = asyncio.run(story())
    assert 4 == fake.sent.count(("POST", PODS))


def test_a_request_that_fails_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    """One that is invalid for good is worth a warning."""
    statuses = [422, 503]

    def fault(method: str, path: str) -> Response | None:
        if (method, path) == ("POST", PODS) and statuses:
            return Response(statuses.pop(0), b'{"message": "no"}')
        return None

    async def story() -> None:
        fake = FakeApi(fault)
        fake.call("POST", SETS, replica_set(1))
        async with running(fake):
            await until(lambda: pods(fake))

    with caplog.at_level(logging.INFO, "stower.live.controllers"):
        asyncio.run(story())
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert {f"POST {PODS}: 422 no": "WARNING", f"POST {PODS}: 503 no": "INFO"} == levels


def test_an_error_of_a_controller_is_logged_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ReplicaSetController):
        def reconcile(self, *_: Any) -> Any:
            raise RuntimeError("oh")

    async def story() -> None:
        fake = FakeApi()
        fake.call("POST", SETS, replica_set(1))
        async with running(fake, Broken(), ReplicaSetController()):
            await until(lambda: pods(fake) and caplog.messages)

    asyncio.run(story())
    assert "oh" in caplog.messages[0]


def test_queries_of_requests_are_sent() -> None:
    """What a deleted owner leaves behind is collected."""

    async def story() -> FakeApi:
        fake = FakeApi()
        made = fake.call("POST", SETS, replica_set(1))
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a",
                 "uid": made["metadata"]["uid"], "controller": True}  # fmt: skip
        orphan = fake.add_pod("orphan")
        fake.call("PATCH", f"{PODS}/orphan", {"metadata": {"ownerReferences": [owner]}},
                  "application/merge-patch+json")  # fmt: skip
        assert orphan
        async with running(fake, GarbageCollector(("pods", "replicasets"))):
            fake.call("DELETE", f"{SETS}/a?propagationPolicy=Background")
            await until(lambda: not pods(fake) or "deletionTimestamp" in pods(fake)[0]["metadata"])
        return fake

    assert ("DELETE", f"{PODS}/orphan") in asyncio.run(story()).sent


def test_a_long_step_lets_the_loop_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every step is too long."""
    monkeypatch.setattr(module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(module, "KEYS_PER_STEP", 1)

    async def story() -> None:
        fake = FakeApi()
        for name in ("a", "b", "c"):
            made = replica_set(2)
            made["metadata"]["name"] = name
            fake.call("POST", SETS, made)
        async with running(fake):
            await until(lambda: len(pods(fake)) == 6)

    asyncio.run(story())


def test_resources_that_can_be_emptied_are_found_in_all_versions() -> None:
    """Those of the core group first; the preferred version of each group before its others."""
    versions = [{"groupVersion": "g/v1"}, {"groupVersion": "g/v2"}]
    groups = {"groups": [{"preferredVersion": {"groupVersion": "g/v2"}, "versions": versions}]}
    verbs = ["deletecollection"]
    resources = {
        "/api/v1": [{"name": "pods", "namespaced": True, "verbs": verbs},
                    {"name": "nodes", "namespaced": False, "verbs": verbs},
                    {"name": "bindings", "namespaced": True, "verbs": ["create"]}],
        "/apis/g/v1": [{"name": "old", "namespaced": True, "verbs": verbs}],
        "/apis/g/v2": [{"name": "new", "namespaced": True, "verbs": verbs}],
    }  # fmt: skip

    def answer(method: str, path: str) -> Response:
        body = groups if path == "/apis" else {"resources": resources[path]}
        return Response(200, msgspec.json.encode(body))

    client: Any = FakeApi(answer)
    found = asyncio.run(discover_deletable_resources(client))
    assert [("v1", "pods"), ("g/v2", "new"), ("g/v1", "old")] == found


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            Response(403, b'{"message": "not you"}'),
            "cannot get /apis from https://api.test: 403 not you",
        ),
        (Response(0, b"refused"), "cannot get /apis from https://api.test: refused"),
        (AccessError("no token"), "^no token$"),
    ],
)
def test_a_server_that_does_not_say_what_it_serves_is_refused(answer: Any, text: str) -> None:
    def fault(method: str, path: str) -> Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client: Any = FakeApi(fault)
    with pytest.raises(ShellError, match=text):
        asyncio.run(discover_deletable_resources(client))


def run_from(kubeconfig: Path, stop_at: str = "") -> tuple[list[Any], list[str]]:
    """What `build` gets, and the servers of `on_ready`. `stop_at`: when the stop comes."""
    built: list[Any] = []
    ready: list[str] = []

    async def story() -> None:
        stop = asyncio.Event()
        if stop_at == "start":
            stop.set()

        def build(facts: ServerFacts) -> ControllerManager:
            built.append(facts.resources)
            return ControllerManager((ReplicaSetController(),))

        def on_ready(server: str) -> None:
            ready.append(server)
            stop.set()

        await run_controllers(kubeconfig, "", build, on_ready, lambda: stop)

    asyncio.run(story())
    return built, ready


def test_controllers_run_from_a_kubeconfig_until_they_are_stopped(tmp_path: Path) -> None:
    async def story() -> tuple[list[Any], list[str]]:
        async with cluster(FakeApi(), tmp_path) as kubeconfig:
            return await asyncio.to_thread(run_from, kubeconfig)

    (resources,), (server,) = asyncio.run(story())
    assert ("v1", "pods") in resources
    assert ("v1", "nodes") not in resources
    assert server.startswith("https://127.0.0.1:")


def test_controllers_that_are_stopped_before_they_start_build_nothing(tmp_path: Path) -> None:
    async def story() -> tuple[list[Any], list[str]]:
        async with cluster(FakeApi(), tmp_path) as kubeconfig:
            return await asyncio.to_thread(run_from, kubeconfig, "start")

    assert ([], []) == asyncio.run(story())


def test_controllers_without_a_server_end_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(ShellError, match="no such file"):
        run_from(tmp_path / "missing")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"clusters": [], "contexts": []}))
    with pytest.raises(ShellError, match="current-context is not set"):
        run_from(path)


def test_custom_kinds_are_followed_while_they_are_defined() -> None:
    """A reflector starts with the definition, and stops with it."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    toys, maps = "/apis/example.com/v1/toys", "/api/v1/namespaces/default/configmaps"
    in_default = "/apis/example.com/v1/namespaces/default/toys"
    names = {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    body = {"metadata": {"name": "toys.example.com"}, "spec": spec}

    async def story() -> None:
        fake = FakeApi()
        async with running(fake, GarbageCollector()) as shell:
            await until(lambda: all(r.has_synced for r in shell.reflectors.values()))
            assert ("GET", toys) not in fake.sent
            fake.call("POST", definitions, body)
            toy = fake.call("POST", in_default, {"apiVersion": "example.com/v1", "kind": "Toy",
                                                 "metadata": {"name": "owner"}})  # fmt: skip
            owner = {"apiVersion": "example.com/v1", "kind": "Toy", "name": "owner",
                     "uid": toy["metadata"]["uid"]}  # fmt: skip
            meta = {"name": "dependent", "ownerReferences": [owner]}
            fake.call("POST", maps, {"metadata": meta})
            await until(lambda: "toys.example.com" in shell.reflectors)
            await until(lambda: shell.reflectors["toys.example.com"].has_synced)
            fake.call("DELETE", f"{in_default}/owner")
            await until(lambda: not fake.call("GET", maps)["items"])
            fake.call("DELETE", f"{definitions}/toys.example.com")
            await until(lambda: "toys.example.com" not in shell.reflectors)

    asyncio.run(story())
