"""The public Python clients `kubernetes` and `lightkube`, unmodified: list, watch, patch, bind."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import msgspec
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod, PodBinding
from lightkube.types import PatchType

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        yield client


@pytest.fixture
def core(server: Client) -> Iterator[Any]:
    api = kubernetes.config.new_client_from_config(config_file=str(server.kubeconfig))
    yield kubernetes.client.CoreV1Api(api)
    api.close()


@pytest.fixture
def light(server: Client) -> Iterator[lightkube.Client]:
    config = KubeConfig.from_file(server.kubeconfig)
    with contextlib.closing(lightkube.Client(config=config, field_manager="test")) as client:
        yield client


def test_kubernetes_lists_patches_binds_and_deletes(core: Any) -> None:
    for name in ("a", "b", "c"):
        core.create_namespaced_pod("default", pod(name))
    found = core.list_namespaced_pod("default", label_selector="app=x", limit=2)
    assert ["a", "b"] == [p.metadata.name for p in found.items]
    rest = core.list_namespaced_pod("default", limit=2, _continue=found.metadata._continue)
    assert ["c"] == [p.metadata.name for p in rest.items]
    for body, kind in (
        ({"metadata": {"labels": {"two": "2"}}}, "application/strategic-merge-patch+json"),
        ([{"op": "add", "path": "/metadata/labels/three", "value": "3"}], None),
    ):
        patched = core.patch_namespaced_pod(
            "a", "default", body, **({"_content_type": kind} if kind else {})
        )
    assert {"app": "x", "two": "2", "three": "3"} == patched.metadata.labels
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    # Its model of a Binding refuses the Status that every server answers with.
    core.create_namespaced_pod_binding("a", "default", binding, _preload_content=False)
    assert "n" == core.read_namespaced_pod("a", "default").spec.node_name
    assert ["a"] == [
        p.metadata.name
        for p in core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n").items
    ]
    core.delete_namespaced_pod("b", "default", grace_period_seconds=0)
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_pod("b", "default")
    assert (404, "Not Found") == (refused.value.status, refused.value.reason)


def test_kubernetes_watches_from_a_list(core: Any) -> None:
    core.create_namespaced_pod("default", pod("a"))
    version = core.list_namespaced_pod("default").metadata.resource_version
    core.create_namespaced_pod("default", pod("b"))
    core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"app": "y"}}})
    core.delete_namespaced_pod("b", "default", grace_period_seconds=0)
    seen = []
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=30
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 4:
            watch.stop()
    # A pod that is deleted at once is marked first, as on every server.
    want = [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert want == seen


def test_lightkube_lists_patches_binds_and_watches(light: lightkube.Client) -> None:
    for name in ("a", "b"):
        light.create(Pod.from_dict(pod(name)))
    listed = light.list(Pod, namespace="default", labels={"app": "x"}, chunk_size=1)
    assert ["a", "b"] == [p.metadata.name for p in listed]
    changes = (
        (PatchType.STRATEGIC, {"metadata": {"labels": {"one": "1"}}}),
        (PatchType.MERGE, {"metadata": {"labels": {"two": "2"}}}),
        (PatchType.JSON, [{"op": "add", "path": "/metadata/labels/three", "value": "3"}]),
    )
    for kind, body in changes:
        patched = light.patch(Pod, "a", body, patch_type=kind)
    assert {"app": "x", "one": "1", "two": "2", "three": "3"} == patched.metadata.labels
    target, name = ObjectReference(kind="Node", name="n"), ObjectMeta(name="a")
    # Its model of a Binding cannot read the Status that every server answers with.
    with pytest.raises(msgspec.ValidationError, match="target"):
        light.create(PodBinding(target=target, metadata=name), name="a")
    assert "n" == light.get(Pod, "a").spec.nodeName
    watched = light.watch(Pod, namespace="default", server_timeout=30)
    first = [next(watched) for _ in range(2)]
    assert [("ADDED", "a"), ("ADDED", "b")] == [(t, p.metadata.name) for t, p in first]
    light.delete(Pod, "b", grace_period=0)
    last = [next(watched) for _ in range(2)]
    watched.close()
    assert [("MODIFIED", "b"), ("DELETED", "b")] == [(t, p.metadata.name) for t, p in last]
    with pytest.raises(ApiError) as refused:
        light.get(Pod, "b")
    assert ("NotFound", 404) == (refused.value.status.reason, refused.value.status.code)


def test_lightkube_applies_on_the_server(light: lightkube.Client) -> None:
    light.apply(Pod.from_dict(pod("a")), namespace="default")
    item = {**pod("a"), "metadata": {"name": "a", "labels": {"app": "y"}}}
    with pytest.raises(ApiError) as refused:
        light.apply(Pod.from_dict(item), namespace="default", field_manager="other")
    assert (409, "Conflict") == (refused.value.status.code, refused.value.status.reason)
    made = light.apply(Pod.from_dict(item), namespace="default", field_manager="other", force=True)
    assert {"app": "y"} == made.metadata.labels
