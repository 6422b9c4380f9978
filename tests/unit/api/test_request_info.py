"""RequestInfo: what a request asks for."""

import pytest

from stower.api.request_info import RequestInfo, read_request_info

PODS = "/api/v1/namespaces/default/pods"
Query = tuple[tuple[str, str], ...]


def read(method: str, target: str) -> RequestInfo:
    path, _, query = target.partition("?")
    pairs: Query = tuple((k, v) for k, _, v in (p.partition("=") for p in query.split("&") if p))
    return read_request_info(method, path, pairs)


def resource(verb: str, plural: str, **more: str) -> dict[str, str]:
    return {"verb": verb, "version": "v1", "resource": plural, **more}


@pytest.mark.parametrize(
    ("method", "target", "want"),
    [
        ("GET", "/api/v1/pods", resource("list", "pods")),
        ("GET", "/api/v1/pods/", resource("list", "pods")),
        ("GET", "/api/v1/pods?watch=1", resource("watch", "pods")),
        ("GET", "/api/v1/pods?watch=False", resource("list", "pods")),
        ("GET", "/api/v1/pods?watch=0&watch=1", resource("list", "pods")),
        ("HEAD", "/api/v1/pods", resource("list", "pods")),
        ("OPTIONS", "/api/v1/pods", resource("", "pods")),
        ("GET", f"{PODS}/a", resource("get", "pods", namespace="default", name="a")),
        ("GET", f"{PODS}/a?watch=1", resource("get", "pods", namespace="default", name="a")),
        (
            "POST",
            f"{PODS}/a/binding",
            resource("create", "pods", subresource="binding", namespace="default", name="a"),
        ),
        ("DELETE", PODS, resource("deletecollection", "pods", namespace="default")),
        (
            "DELETE",
            f"{PODS}?fieldSelector=metadata.name=a",
            resource("deletecollection", "pods", namespace="default"),
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=spec.nodeName=n,metadata.name==a",
            resource("list", "pods", namespace="default", name="a"),
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name!=a",
            resource("list", "pods", namespace="default"),
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name=a/b",
            resource("list", "pods", namespace="default"),
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=(",
            resource("list", "pods", namespace="default"),
        ),
        ("GET", "/api/v1/watch/nodes", resource("watch", "nodes")),
        (
            "POST",
            "/api/v1/watch/namespaces/x/pods/a",
            resource("watch", "pods", namespace="x", name="a"),
        ),
        (
            "PUT",
            "/api/v1/namespaces/x/finalize",
            resource("update", "namespaces", subresource="finalize", namespace="x", name="x"),
        ),
        ("GET", "/api/v1/namespaces/x", resource("get", "namespaces", namespace="x", name="x")),
        (
            "GET",
            "/apis/apps/v1/namespaces/x/deployments",
            resource("list", "deployments", group="apps", namespace="x"),
        ),
    ],
)
def test_a_path_of_a_resource(method: str, target: str, want: dict[str, str]) -> None:
    info = read(method, target)
    assert RequestInfo(**want) == info._replace(in_namespace=False)  # type: ignore[arg-type]
    assert info.in_namespace == ("/namespaces/" in target and info.resource != "namespaces")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/apis/apps/v1"), ("POST", "/metrics"), ("GET", "/"), ("GET", "/api/v1/")],
)
def test_a_path_of_no_resource(method: str, path: str) -> None:
    assert RequestInfo(method.lower(), path=path, is_resource=False) == read(method, path)


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/pods", "/api//pods", "/api/v1/namespaces//pods", f"{PODS}/a/status/more",
        "/api/v1/watch", "/api/v1/watch/namespaces/x/serviceaccounts/s/token",
        "/api/v1/proxy/namespaces/x/pods/a/log",
    ],
)  # fmt: skip
def test_a_path_that_no_resource_has(path: str) -> None:
    assert read("GET", path).is_malformed
