"""Owners and dependents: of custom kinds, in a circle, with several owners."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/example.com/v1/namespaces/default/toys"


def definition(group: str = "example.com", plural: str = "toys", **spec: Any) -> Object:
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title()}
    names["listKind"] = f"{names['kind']}List"
    meta = {"name": f"{plural}.{group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": meta, "spec": {"group": group, "scope": "Namespaced", "names": names,
                                       "versions": [version], **spec}}  # fmt: skip


def make(cluster: Cluster, path: str, name: str, *owners: Object) -> Object:
    """Creates an object, a ConfigMap or a Toy, and lets everybody act on it."""
    meta: Object = {"name": name}
    if owners:
        meta["ownerReferences"] = list(owners)
    body: Object = {"metadata": meta}
    if path == TOYS:
        body |= {"apiVersion": "example.com/v1", "kind": "Toy"}
    status, answer = cluster.ask("POST", path, body)
    assert 201 == status, answer
    cluster.settle()
    return answer


def owner(obj: Object, block: bool = True) -> Object:
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"],
            "uid": meta["uid"], "blockOwnerDeletion": block}  # fmt: skip


def drop(cluster: Cluster, path: str, name: str, policy: str) -> None:
    status, answer = cluster.ask("DELETE", f"{path}/{name}", {"propagationPolicy": policy})
    assert status in (200, 202), answer
    cluster.settle()


def names(cluster: Cluster, path: str) -> list[str]:
    items = cluster.get(path)["items"]
    return [item["metadata"]["name"] for item in items]


def with_toys() -> Cluster:
    cluster = Cluster(scheduler=False)
    assert 201 == cluster.ask("POST", DEFINITIONS, definition())[0]
    cluster.settle()
    return cluster


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
@pytest.mark.parametrize(("above", "below"), [(TOYS, MAPS), (MAPS, TOYS), (TOYS, TOYS)])
def test_what_a_custom_resource_owns_goes_with_it(policy: str, above: str, below: str) -> None:
    cluster = with_toys()
    first = make(cluster, above, "owner")
    make(cluster, below, "dependent", owner(first))
    assert "dependent" in names(cluster, below)
    drop(cluster, above, "owner", policy)
    assert "dependent" not in names(cluster, below)
    assert "owner" not in names(cluster, above)


def test_an_orphaned_custom_resource_stays_without_its_owner() -> None:
    cluster = with_toys()
    make(cluster, TOYS, "dependent", owner(make(cluster, TOYS, "owner")))
    drop(cluster, TOYS, "owner", "Orphan")
    assert ["dependent"] == names(cluster, TOYS)
    assert "ownerReferences" not in cluster.get(f"{TOYS}/dependent")["metadata"]


def test_a_dependent_waits_for_the_definition_of_its_owner() -> None:
    """Nobody knows whether an owner of an unknown kind is there."""
    cluster = Cluster(scheduler=False)
    unknown = {"apiVersion": "example.com/v1", "kind": "Toy", "name": "x", "uid": "gone"}
    make(cluster, MAPS, "dependent", unknown)
    cluster.advance(60)
    assert "dependent" in names(cluster, MAPS)
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    assert "dependent" not in names(cluster, MAPS)


def test_nothing_is_watched_once_a_definition_is_gone() -> None:
    cluster = with_toys()
    make(cluster, MAPS, "dependent", owner(make(cluster, TOYS, "owner")))
    assert "toys.example.com" in cluster.watches
    assert 200 == cluster.ask("DELETE", f"{DEFINITIONS}/toys.example.com")[0]
    cluster.advance(60)
    assert "toys.example.com" not in cluster.watches
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    assert "dependent" not in names(cluster, MAPS), "the owner went with its definition"


def test_foreground_deletion_waits_until_custom_kinds_are_listed() -> None:
    """A finalizer that went before would leave dependents without an owner."""
    cluster = Cluster(scheduler=False)
    cluster.lagging.add("toys.example.com")
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    first = make(cluster, MAPS, "owner")
    make(cluster, TOYS, "dependent", owner(first))
    drop(cluster, MAPS, "owner", "Foreground")
    cluster.advance(5)
    assert "owner" in names(cluster, MAPS)
    cluster.lagging.clear()
    cluster.advance(5)
    assert "owner" not in names(cluster, MAPS)
    assert [] == names(cluster, TOYS)


def test_a_kind_that_cannot_be_listed_blocks_no_deletion_for_ever() -> None:
    cluster = Cluster(scheduler=False)
    cluster.lagging.add("toys.example.com")
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    make(cluster, MAPS, "owner")
    drop(cluster, MAPS, "owner", "Foreground")
    cluster.advance(40)
    assert "owner" not in names(cluster, MAPS)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_owners_in_a_circle_do_not_wait_for_each_other(policy: str) -> None:
    cluster = Cluster(scheduler=False)
    first = make(cluster, MAPS, "a")
    second = make(cluster, MAPS, "b", owner(first))
    third = make(cluster, MAPS, "c", owner(second))
    patch = {"metadata": {"ownerReferences": [owner(third)]}}
    cluster.patch("configmaps", "a", patch)
    drop(cluster, MAPS, "a", policy)
    assert not {"a", "b", "c"} & set(names(cluster, MAPS))


def test_a_dependent_with_another_owner_stays_and_blocks_nobody() -> None:
    """Foreground deletion of one of two owners takes away the reference to it."""
    cluster = Cluster(scheduler=False)
    going, staying = make(cluster, MAPS, "going"), make(cluster, MAPS, "staying")
    make(cluster, MAPS, "dependent", owner(going), owner(staying))
    drop(cluster, MAPS, "going", "Foreground")
    assert "going" not in names(cluster, MAPS)
    left = cluster.get(f"{MAPS}/dependent")["metadata"]["ownerReferences"]
    assert ["staying"] == [reference["name"] for reference in left]


def test_an_owner_in_another_namespace_is_none_and_is_told() -> None:
    cluster = Cluster(scheduler=False)
    cluster.create("namespaces", {"metadata": {"name": "other"}}, "")
    first = make(cluster, "/api/v1/namespaces/other/configmaps", "owner")
    make(cluster, MAPS, "dependent", owner(first))
    cluster.advance(5)
    assert "dependent" not in names(cluster, MAPS)
    assert "owner" in names(cluster, "/api/v1/namespaces/other/configmaps")
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    make(cluster, roles, "everywhere", owner(first))
    cluster.advance(60)
    assert "everywhere" in names(cluster, roles), "nobody can tell which owner is meant"
    told = [
        (e["involvedObject"]["name"], e["type"], e["reason"], e["message"], e["source"])
        for e in cluster.get("/api/v1/namespaces/default/events")["items"]
    ]
    uid = first["metadata"]["uid"]
    assert [
        (name, "Warning", "OwnerRefInvalidNamespace",
         f"ownerRef [v1/ConfigMap, namespace: {namespace}, name: owner, uid: {uid}] "
         f'does not exist in namespace "{namespace}"',
         {"component": "garbage-collector-controller"})
        for name, namespace in (("dependent", "default"), ("everywhere", ""))
    ] == told  # fmt: skip
