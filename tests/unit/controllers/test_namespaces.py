"""The end of a namespace: pods first, and conditions that say what is left."""

from tests.unit.controllers.cluster import Cluster, Object
from tests.unit.controllers.test_garbage import DEFINITIONS, definition

NAMESPACE = "/api/v1/namespaces/q"
FINALIZER = "example.com/stay"


def with_namespace() -> Cluster:
    cluster = Cluster()
    cluster.create("namespaces", {"metadata": {"name": "q"}})
    return cluster


def pod(finalizers: list[str] | None = None, seconds: str = "0") -> Object:
    meta = {"name": "p", "finalizers": finalizers or [],
            "annotations": {"stower.dev/stop-seconds": seconds}}  # fmt: skip
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def config_map(*finalizers: str) -> Object:
    return {"metadata": {"name": "c", "finalizers": list(finalizers)}}


def bad_conditions(cluster: Cluster) -> dict[str, tuple[str, str]]:
    conditions = cluster.get(NAMESPACE)["status"]["conditions"]
    assert 5 == len(conditions)
    return {c["type"]: (c["reason"], c["message"]) for c in conditions if c["status"] == "True"}


def release(cluster: Cluster, kind: str, name: str) -> None:
    cluster.patch(kind, name, {"metadata": {"finalizers": None}}, "q")


def test_pods_go_before_all_others() -> None:
    cluster = with_namespace()
    cluster.create("pods", pod([FINALIZER]), "q")
    cluster.create("configmaps", config_map(), "q")
    cluster.advance(2)
    cluster.delete("namespaces", "q")
    cluster.advance(20)
    assert "deletionTimestamp" in cluster.one("pods", "p", "q")["metadata"]
    assert "c" in cluster.all("configmaps", "q")
    assert "Terminating" == cluster.get(NAMESPACE)["status"]["phase"]
    assert {} == bad_conditions(cluster), "a pod with a finalizer is nothing unusual"
    release(cluster, "pods", "p")
    cluster.advance(3)
    assert "q" not in cluster.all("namespaces")


def test_what_is_left_is_counted_by_kind_and_finalizer() -> None:
    cluster = with_namespace()
    cluster.create("configmaps", config_map(FINALIZER, "example.com/too"), "q")
    cluster.create("secrets", config_map(FINALIZER), "q")
    cluster.delete("namespaces", "q")
    cluster.advance(3)
    assert {
        "NamespaceContentRemaining": (
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances, "
            "secrets. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            f"{FINALIZER} in 2 resource instances, example.com/too in 1 resource instances",
        ),
    } == bad_conditions(cluster)
    release(cluster, "configmaps", "c")
    cluster.advance(3)
    _, message = bad_conditions(cluster)["NamespaceContentRemaining"]
    assert "Some resources are remaining: secrets. has 1 resource instances" == message
    release(cluster, "secrets", "c")
    cluster.advance(3)
    assert "q" not in cluster.all("namespaces")


def test_custom_resources_are_left_over_with_their_group() -> None:
    cluster = with_namespace()
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", **config_map(FINALIZER)}
    assert 201 == cluster.ask("POST", "/apis/example.com/v1/namespaces/q/toys", toy)[0]
    cluster.delete("namespaces", "q")
    cluster.advance(3)
    _, message = bad_conditions(cluster)["NamespaceContentRemaining"]
    assert "Some resources are remaining: toys.example.com has 1 resource instances" == message


def test_a_pod_that_does_not_end_in_time_is_a_failure() -> None:
    cluster = with_namespace()
    cluster.create("nodes", {"metadata": {"name": "foreign"}})  # nobody runs pods there
    cluster.create("pods", {**pod(), "spec": {**pod()["spec"], "nodeName": "foreign"}}, "q")
    cluster.delete("namespaces", "q")
    cluster.advance(20)
    assert {} == bad_conditions(cluster)
    cluster.advance(30)
    assert {
        "NamespaceDeletionContentFailure": (
            "ContentDeletionFailed",
            "Failed to delete all resource types, 1 remaining: failed to delete pods for "
            "namespace: q, err: unexpected items still remain in namespace: q for gvr: /v1, "
            "Resource=pods",
        )
    } == bad_conditions(cluster)


def test_a_collection_that_cannot_be_deleted_is_tried_again() -> None:
    cluster = with_namespace()
    cluster.create("secrets", config_map(), "q")
    cluster.failing.append(("DELETE", f"{NAMESPACE}/secrets"))
    cluster.delete("namespaces", "q")
    assert "q" in cluster.all("namespaces")
    cluster.advance(5)
    assert "q" not in cluster.all("namespaces")


def test_replication_controllers_leave_no_orphans() -> None:
    """Their pods are not orphaned, as they would be where nobody says how to delete."""
    cluster = with_namespace()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"a": "b"}, "template": template}
    cluster.create("replicationcontrollers", {"metadata": {"name": "r"}, "spec": spec}, "q")
    cluster.advance(3)
    cluster.delete("namespaces", "q")
    cluster.advance(5)
    assert "q" not in cluster.all("namespaces")
