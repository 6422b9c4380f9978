"""sim/cluster_generator.py: clusters from a seed."""

from typing import Any

import msgspec

from stower.model.kinds import Node, Pod
from stower.model.raw import decode
from stower.model.resources import parse_list, pod_requests
from stower.sim.cluster_generator import cluster


def made(nodes: int, pods: int, seed: int = 0) -> list[dict[str, Any]]:
    """The decoded documents of a cluster."""
    documents = [msgspec.json.decode(data) for data in cluster(nodes, pods, seed)]
    return [document for document in documents if document["kind"] != "PriorityClass"]


def test_cluster_has_as_many_nodes_and_pods_as_asked_for_nodes_first() -> None:
    """Not one more, although pods come in groups of one template."""
    kinds = [document["kind"] for document in made(7, 23)]
    assert ["Node"] * 7 + ["Pod"] * 23 == kinds


def test_empty_cluster_has_no_documents() -> None:
    """0 is a number of nodes and of pods."""
    assert [] == made(0, 0)


def test_equal_seeds_give_equal_bytes() -> None:
    """The seed alone decides."""
    assert list(cluster(20, 100, 3)) == list(cluster(20, 100, 3))


def test_other_seeds_give_other_clusters() -> None:
    """The seed does decide."""
    assert list(cluster(20, 100, 3)) != list(cluster(20, 100, 4))


def test_names_and_uids_are_unique() -> None:
    """The simulator refuses duplicates, so that none may be made."""
    metadata = [document["metadata"] for document in made(50, 500)]
    keys = {(m.get("namespace"), m["name"]) for m in metadata}
    assert (550, 550) == (len(keys), len({m["uid"] for m in metadata}))


def test_every_document_reads_as_its_kind_with_valid_quantities() -> None:
    """A generated cluster takes the way of a real one."""
    documents = list(cluster(30, 300))
    nodes = [decode(data, Node) for data in documents[:30]]
    pods = [decode(data, Pod) for data in documents[31:]]
    assert all(parse_list(node.status.allocatable)["cpu"].sign > 0 for node in nodes)
    assert all(pod_requests(pod)["memory"].sign > 0 for pod in pods)


def test_gpu_nodes_are_tainted_and_gpu_pods_tolerate_it() -> None:
    """Pods without a GPU stay off the nodes that have some."""
    documents = made(60, 600)
    for document in documents[:60]:
        has_gpu = "nvidia.com/gpu" in document["status"]["allocatable"]
        assert has_gpu == ("taints" in document["spec"])
    for document in documents[60:]:
        resources = document["spec"]["containers"][0]["resources"]
        assert ("nvidia.com/gpu" in resources["requests"]) == ("tolerations" in document["spec"])


def test_a_pods_class_comes_before_it() -> None:
    """As an API server, which resolves priorities, needs it."""
    kinds = [msgspec.json.decode(data)["kind"] for data in cluster(2, 50)]
    assert ["Node", "Node", "PriorityClass"] == kinds[:3]
    assert {"Pod"} == set(kinds[3:])
    database = [
        d for d in made(2, 2000) if d["metadata"].get("labels", {}).get("app") == "database"
    ]
    assert {("database", 1000)} == {
        (d["spec"]["priorityClassName"], d["spec"]["priority"]) for d in database
    }
