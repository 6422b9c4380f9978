"""A namespace keeps a bounded number of bytes in large objects; others are not concerned."""

import tracemalloc

import pytest

from stower.api import store
from stower.api.store import LARGE_BYTES, OBJECT_BYTES_MAX, Store, TooLargeError
from tests.unit.api.role_cluster import PODS, RoleCluster

MAPS = "/api/v1/namespaces/default/configmaps"
SIZE = 700_000


@pytest.fixture
def cluster() -> RoleCluster:
    """Has three ConfigMaps in one namespace, and room for no fourth."""
    cluster = RoleCluster()
    cluster.api.store.large_bytes_max = 2_200_000
    assert [201] * 3 == [create(cluster, f"m{i}")[0] for i in range(3)]
    return cluster


def create(cluster: RoleCluster, name: str, size: int = SIZE, path: str = MAPS) -> tuple[int, str]:
    code, answer = cluster.ask(
        "POST", path, {"metadata": {"name": name}, "data": {"a": "x" * size}}
    )
    return code, answer.get("message", "")


def make_pod(size: int) -> dict[str, object]:
    """Without a namespace that has service accounts, it needs none."""
    return {"metadata": {"name": "p", "annotations": {"a": "x" * size}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip


def patch(cluster: RoleCluster, name: str, body: dict[str, object]) -> int:
    content = "application/merge-patch+json"
    return cluster.ask("PATCH", f"{MAPS}/{name}", body, content_type=content)[0]


def test_creates_are_bounded_for_each_namespace(cluster: RoleCluster) -> None:
    code, message = create(cluster, "m3")
    assert 403 == code
    assert message == (
        "namespace 'default' would have 2703 KiB in objects of more than 8 KiB each, beyond that "
        "size: limit is 2148 KiB; delete some, or start the server with a higher "
        "--large-objects-max"
    )
    assert (code, message) == create(cluster, "m3", path=f"{MAPS}?dryRun=All")
    assert 201 == create(cluster, "small", LARGE_BYTES - 1_000)[0]
    assert 201 == create(cluster, "m3", path="/api/v1/namespaces/kube-public/configmaps")[0]
    rule = {"apiGroups": [""], "resources": ["x" * SIZE], "verbs": ["get"]}
    for i in range(4):
        cluster.role(f"of-the-cluster-{i}", [rule])


def test_what_is_there_grows_somewhat_more_and_may_always_go(cluster: RoleCluster) -> None:
    grown = {"data": {"b": "x" * 300_000}}
    assert [200, 200, 403] == [patch(cluster, f"m{i}", grown) for i in range(3)]
    assert 200 == patch(cluster, "m0", {"metadata": {"finalizers": ["example.com/kept"]}})
    assert 200 == cluster.ask("DELETE", f"{MAPS}/m0")[0]
    assert 403 == create(cluster, "m3", 300_000)[0]
    assert 200 == patch(cluster, "m0", {"metadata": {"finalizers": None}})
    assert 200 == cluster.ask("DELETE", f"{MAPS}/m1")[0]
    assert [201, 201] == [create(cluster, f"m{i}")[0] for i in (3, 4)]


@pytest.mark.parametrize("size", [10, LARGE_BYTES - 1_000, 3 * LARGE_BYTES])
def test_pods_of_a_full_namespace_come_to_their_end(cluster: RoleCluster, size: int) -> None:
    assert 201 == cluster.ask("POST", PODS, make_pod(size))[0]
    full = {"data": {"b": "x" * 300_000}}
    assert [200, 200] == [patch(cluster, f"m{i}", full) for i in range(2)]
    cluster.api.store.large_bytes_max = 0
    content = "application/strategic-merge-patch+json"
    target = {"kind": "Node", "name": "n1"}
    assert (
        201
        == cluster.ask("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": target})[
            0
        ]
    )
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                 "message": "x" * 1_000}  # fmt: skip
    change: dict[str, object] = {"status": {"conditions": [condition]}}
    assert 200 == cluster.ask("PATCH", f"{PODS}/p/status", change, content_type=content)[0]
    done: dict[str, object] = {"status": {"phase": "Succeeded"}}
    assert 200 == cluster.ask("PATCH", f"{PODS}/p/status", done, content_type=content)[0]
    assert 200 == cluster.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")[0]


def test_statuses_of_a_full_namespace_do_not_grow_for_ever(
    cluster: RoleCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STATUSES_BYTES", 10_000)
    assert 201 == cluster.ask("POST", PODS, make_pod(LARGE_BYTES))[0]
    kept = cluster.api.store
    kept.large_bytes_max = int(kept.large_bytes["default"] / store.UPDATES_FACTOR)
    content = "application/merge-patch+json"
    found = []
    for size in (3_000, 6_000, 9_000, 12_000, 15_000):
        change: dict[str, object] = {"status": {"message": "x" * size}}
        code, _ = cluster.ask("PATCH", f"{PODS}/p/status", change, content_type=content)
        found.append(code)
    assert found[0] == 200
    assert found[-1] == 403


def test_an_object_of_the_largest_size_can_go() -> None:
    kept = Store(lambda key: None)
    things = kept.collection(("", "things"))
    item = {"metadata": {"uid": "u"}, "text": ""}
    item["text"] = "x" * (OBJECT_BYTES_MAX - len(kept.put(things, "a/b", item).raw))
    kept.put(things, "a/b", item, allowance=0)
    with pytest.raises(TooLargeError):
        kept.put(things, "a/b", {**item, "more": "x"}, allowance=0)
    deleted = {"uid": "u", "deletionTimestamp": "2026-11-27T09:00:00Z"}
    assert kept.put(things, "a/b", {**item, "metadata": deleted}).revision == kept.revision


def test_nothing_is_kept_of_what_was_refused() -> None:
    cluster = RoleCluster()
    assert 201 == create(cluster, "m", 10)[0]
    tracemalloc.start()
    try:
        for i in range(20):
            entry = {"manager": f"{i}{'x' * SIZE}", "operation": "Update", "apiVersion": "v1"}
            changed = {"metadata": {"name": "m", "managedFields": [entry]}}
            assert 422 == cluster.ask("PUT", f"{MAPS}/m", changed)[0]
        assert tracemalloc.get_traced_memory()[0] < 5 * SIZE
    finally:
        tracemalloc.stop()
