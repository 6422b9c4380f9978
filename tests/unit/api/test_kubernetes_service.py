"""The Service default/kubernetes, its Endpoints and its EndpointSlice come back as they were."""

import pytest

from stower.api.kubernetes_service import KubernetesService
from tests.unit.api.one_client import SECOND, Client, Object

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
ALL = (SERVICE, ENDPOINTS, SLICE)


class Published:
    def __init__(self) -> None:
        self.client = Client()
        self.service = KubernetesService(self.client.api, "127.0.0.1", 6443)
        self.reconcile()

    def reconcile(self) -> None:
        self.service.reconcile(self.client.now_s * SECOND)

    def get(self, path: str) -> Object:
        status, answer = self.client.send("GET", path)
        assert 200 == status, answer
        return answer


@pytest.fixture(name="published")
def make_published() -> Published:
    return Published()


def test_the_three_objects_lead_to_the_server(published: Published) -> None:
    service, endpoints, slice = map(published.get, ALL)
    assert {"component": "apiserver", "provider": "kubernetes"} == service["metadata"]["labels"]
    assert "SingleStack" == service["spec"]["ipFamilyPolicy"]
    assert {"endpointslice.kubernetes.io/skip-mirror": "true"} == endpoints["metadata"]["labels"]
    assert [
        {"addresses": [{"ip": "127.0.0.1"}],
         "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}
    ] == endpoints["subsets"]  # fmt: skip
    assert {"kubernetes.io/service-name": "kubernetes"} == slice["metadata"]["labels"]
    assert [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}] == slice["endpoints"]


@pytest.mark.parametrize("path", ALL)
def test_what_is_deleted_is_made_again(published: Published, path: str) -> None:
    before = published.get(path)
    assert 200 == published.client.send("DELETE", path)[0]
    published.reconcile()
    after = published.get(path)
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert "metadata" == "".join(field for field in before if before[field] != after[field])


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (ENDPOINTS, "subsets", []),
        (ENDPOINTS, "subsets", [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1}]}]),
        (SLICE, "endpoints", [{"addresses": ["10.1.2.3"]}]),
        (SLICE, "ports", []),
    ],
)
def test_other_addresses_and_ports_are_reset(
    published: Published, path: str, field: str, value: Object
) -> None:
    before = published.get(path)
    status, answer = published.client.send("PUT", path, {**before, field: value})
    assert 200 == status, answer
    published.reconcile()
    after = published.get(path)
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert before[field] == after[field]


def test_labels_are_reset_as_upstream_does(published: Published) -> None:
    form = "application/merge-patch+json"
    for path in ALL:
        before = published.get(path)["metadata"]["labels"]
        labels = dict.fromkeys(before) | {"own": "x"}
        published.client.send("PATCH", path, {"metadata": {"labels": labels}}, form)
    published.reconcile()
    found = [published.get(path)["metadata"]["labels"] for path in ALL]
    assert [
        {"own": "x"},
        {"own": "x", "endpointslice.kubernetes.io/skip-mirror": "true"},
        {"kubernetes.io/service-name": "kubernetes"},
    ] == found


def test_a_server_that_listens_elsewhere_has_the_same_objects(published: Published) -> None:
    before = [published.get(path)["metadata"]["uid"] for path in ALL]
    published.service = KubernetesService(published.client.api, "::", 7443)
    published.reconcile()
    service, endpoints, slice = map(published.get, ALL)
    assert before[:2] == [service["metadata"]["uid"], endpoints["metadata"]["uid"]]
    assert [{"ip": "::1"}] == endpoints["subsets"][0]["addresses"]
    assert ("IPv6", 7443) == (slice["addressType"], slice["ports"][0]["port"])


def test_nothing_is_written_where_all_is_as_it_should_be(published: Published) -> None:
    revision = published.client.api.store.revision
    published.reconcile()
    assert revision == published.client.api.store.revision
