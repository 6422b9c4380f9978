"""Endpoints and EndpointSlices of Services that select their pods."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object, pools

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def service(name: str = "s", port: int | str = 80, **spec: Any) -> Object:
    ports = [{"name": "http", "port": 80, "targetPort": port}]
    return {"metadata": {"name": name, "labels": {"own": "label"}},
            "spec": {"selector": {"app": "x"}, "ports": ports, **spec}}  # fmt: skip


def pod(name: str, port: int = 8080, **spec: Any) -> Object:
    container = {"name": "c", "image": "i",
                 "ports": [{"name": "web", "containerPort": port}]}  # fmt: skip
    return {"metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def with_pods(*names: str) -> Cluster:
    cluster = Cluster(pools(2, zones=["a", "b"]))
    for name in names:
        cluster.create("pods", pod(name))
    cluster.advance(5)
    return cluster


def slices(cluster: Cluster, name: str = "s") -> list[Object]:
    cluster.advance(2)
    label = f"kubernetes.io/service-name={name}"
    status, answer = cluster.ask("GET", SLICES, query=(("labelSelector", label),))
    assert 200 == status
    return list(answer["items"])


def endpoints(cluster: Cluster) -> Object:
    cluster.advance(2)
    return cluster.one("endpoints", "s")


def test_a_service_has_its_pods_as_endpoints() -> None:
    cluster = with_pods("p", "q")
    cluster.create("services", service())
    (found,) = slices(cluster)
    assert [{"name": "http", "port": 80, "protocol": "TCP"}] == found["ports"]
    assert {"own": "label", "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"} == (
        found["metadata"]["labels"]
    )  # fmt: skip
    assert "Service" == found["metadata"]["ownerReferences"][0]["kind"]
    pods = cluster.all("pods")
    shown = {e["targetRef"]["name"]: e for e in found["endpoints"]}
    assert {"p", "q"} == set(shown)
    for name, endpoint in shown.items():
        node = pods[name]["spec"]["nodeName"]
        assert [pods[name]["status"]["podIP"]] == endpoint["addresses"]
        assert {"ready": True, "serving": True, "terminating": False} == endpoint["conditions"]
        assert (node, {"node-1": "a", "node-2": "b"}[node]) == (
            endpoint["nodeName"], endpoint["zone"]
        )  # fmt: skip
    (subset,) = endpoints(cluster)["subsets"]
    assert sorted(p["status"]["podIP"] for p in pods.values()) == sorted(
        address["ip"] for address in subset["addresses"]
    )
    assert found["ports"] == subset["ports"]


def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = with_pods("p", "q")
    cluster.create("pods", pod("late", readinessGates=[{"conditionType": "example.com/up"}]))
    cluster.create("services", service(port="web", clusterIP="None"))
    assert 3 == len(slices(cluster)[0]["endpoints"])
    requests = len(cluster.requests)
    for name in ("p", "q", "late"):
        cluster.patch("pods", name, {"metadata": {"annotations": {"a": "b"}}})
        cluster.patch("pods", name, {"metadata": {"labels": {"other": "label"}}})
    cluster.advance(30)
    assert not [r for r in cluster.requests[requests:] if "endpoint" in r[1]]


def test_pods_come_and_go() -> None:
    cluster = with_pods("p")
    cluster.create("services", service())
    cluster.create("pods", pod("q"))
    (before,) = slices(cluster)
    assert 2 == len(before["endpoints"])
    cluster.patch("pods", "p", {"metadata": {"labels": {"app": "other"}}})
    cluster.delete("pods", "q", gracePeriodSeconds=0)
    (after,) = slices(cluster)
    assert not after.get("endpoints")
    assert not endpoints(cluster).get("subsets")
    cluster.delete("services", "s")
    assert [] == slices(cluster)
    assert {} == cluster.all("endpoints")


def test_a_pod_that_is_not_ready_is_no_ready_address() -> None:
    cluster = with_pods("p")
    cluster.create("pods", pod("late", readinessGates=[{"conditionType": "example.com/up"}]))
    cluster.create("services", service())
    (found,) = slices(cluster)
    ready = {e["targetRef"]["name"]: e["conditions"]["ready"] for e in found["endpoints"]}
    assert {"p": True, "late": False} == ready
    (subset,) = endpoints(cluster)["subsets"]
    assert ["p"] == [a["targetRef"]["name"] for a in subset["addresses"]]
    assert ["late"] == [a["targetRef"]["name"] for a in subset["notReadyAddresses"]]
    cluster.patch("services", "s", {"spec": {"publishNotReadyAddresses": True}})
    (subset,) = endpoints(cluster)["subsets"]
    assert 2 == len(subset["addresses"])


def test_named_ports_are_those_of_each_pod() -> None:
    cluster = with_pods("p")
    cluster.create("pods", pod("q", 9090))
    cluster.create("services", service(port="web"))
    found = slices(cluster)
    assert [8080, 9090] == sorted(f["ports"][0]["port"] for f in found)
    assert [8080, 9090] == sorted(s["ports"][0]["port"] for s in endpoints(cluster)["subsets"])


def test_slices_have_a_hundred_endpoints_at_most() -> None:
    cluster = Cluster(scheduler=False)
    for number in range(105):
        cluster.ask("POST", "/api/v1/namespaces/default/pods", pod(f"p{number}", nodeName="node-1"))
    cluster.advance(5)
    cluster.create("services", service())
    assert [5, 100] == sorted(len(found["endpoints"]) for found in slices(cluster))


@pytest.mark.parametrize(
    "spec", [{"selector": None}, {"type": "ExternalName", "externalName": "example.com"}]
)
def test_other_services_are_left_alone(spec: Object) -> None:
    cluster = with_pods("p")
    cluster.create("services", service(**spec))
    assert [] == slices(cluster)
    assert {} == cluster.all("endpoints")


def test_a_headless_service_says_so_and_needs_no_ports() -> None:
    cluster = with_pods()
    cluster.create("pods", pod("p", hostname="h", subdomain="s"))
    cluster.create("services", service(clusterIP="None", ports=[]))
    (found,) = slices(cluster)
    assert "" == found["metadata"]["labels"]["service.kubernetes.io/headless"]
    assert "h" == found["endpoints"][0]["hostname"]
    assert not found.get("ports")
    assert "h" == endpoints(cluster)["subsets"][0]["addresses"][0]["hostname"]


def test_a_service_without_pods_has_a_slice_without_endpoints() -> None:
    cluster = with_pods()
    cluster.create("services", service())
    (found,) = slices(cluster)
    assert not found.get("endpoints")
    assert not endpoints(cluster).get("subsets")
    requests = len(cluster.requests)
    cluster.advance(30)
    assert not [r for r in cluster.requests[requests:] if "endpoint" in r[1]]
