"""What a server serves of what the scheduler uses, and which servers are too old."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from stower.live.access import AccessError
from stower.live.client import Response
from stower.live.discovery import (
    AGGREGATED_DISCOVERY,
    FeatureReport,
    check_features,
    get_served_resources,
)
from stower.live.shell import ShellError
from stower.live.version import check_version
from stower.model.kinds import CompositePodGroup, PodGroup, ResourceClaim, WarmPool
from stower.model.kinds.warm_pool import Placeholders, WarmPoolSpec

Object = dict[str, Any]
ALL = {
    "resource.k8s.io/v1": ["resourceclaims"],
    "resource.k8s.io/v1beta2": ["devicetaintrules"],
    "scheduling.k8s.io/v1alpha2": ["podgroups"],
    "scheduling.k8s.io/v1alpha3": ["compositepodgroups"],
    "stower.dev/v1": ["resourceclasses", "podschedulings", "warmpools"],
    "vm.neon.tech/v1": ["virtualmachines", "virtualmachinemigrations"],
}


class Server:
    """Answers discovery with these resources by apiVersion, and other paths as it is told."""

    class access:
        server = "https://api.test"

    def __init__(self, resources: dict[str, list[str]], **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "/api": grouped({"v1": ["pods"]}), "/apis": grouped(resources), **answers,
        }  # fmt: skip
        self.accepted: dict[str, str] = {}

    async def request(self, method: str, path: str, accept: str = "") -> Response:
        self.accepted[path] = accept
        answer = self.answers.get(path, Response(404, b"{}"))
        if isinstance(answer, Exception):
            raise answer
        return (
            answer if isinstance(answer, Response) else Response(200, msgspec.json.encode(answer))
        )

    async def get_with_retry(self, path: str) -> Response:
        return await self.request("GET", path)


def grouped(resources: dict[str, list[str]]) -> Object:
    """An APIGroupDiscoveryList."""
    items = []
    for api_version, plurals in resources.items():
        group, _, version = api_version.rpartition("/")
        versions = [{"version": version, "resources": [{"resource": p} for p in plurals]}]
        items.append({"metadata": {"name": group}, "versions": versions})
    return {"items": items}


def report(server: Server, required: Iterable[type] = ()) -> FeatureReport:
    client: Any = server

    async def check() -> FeatureReport:
        return await check_features(client, await get_served_resources(client), required)

    return asyncio.run(check())


def test_features_need_all_of_their_kinds() -> None:
    assert ((), ()) == report(Server(ALL))[1:]
    assert 7 == len(report(Server(ALL)).served)
    some = {**ALL, "stower.dev/v1": ["podschedulings", "warmpools"]}
    found = report(Server(some))
    assert ("negotiated devices",) == found.missing
    assert () == found.problems, "nothing relies on it"


def test_a_kind_may_be_served_in_another_version() -> None:
    assert "pod groups" in report(Server({"stower.dev/v1": ["podgroups"]})).served
    assert "pod groups" in report(Server({"scheduling.k8s.io/v9": ["podgroups"]})).missing


def test_discovery_is_asked_for_in_its_aggregated_form() -> None:
    server = Server(ALL)
    report(server)
    assert AGGREGATED_DISCOVERY == server.accepted["/api"] == server.accepted["/apis"]


@pytest.mark.parametrize(
    ("required", "problem"),
    [
        (
            WarmPool,
            "warm pools: the API server does not serve warmpools.stower.dev/v1: "
            "kubectl apply -k deploy/warm/crds",
        ),
        (
            ResourceClaim,
            "devices (ResourceClaims): the API server does not serve "
            "resourceclaims.resource.k8s.io/v1: use a newer server, or enable the API",
        ),
    ],
)
def test_a_missing_kind_that_the_configuration_needs_is_a_problem(
    required: type, problem: str
) -> None:
    """The line says what to do."""
    assert (problem,) == report(Server({}), [required]).problems
    assert () == report(Server(ALL), [required, PodGroup, CompositePodGroup]).problems


@pytest.mark.parametrize(
    "answer", [Response(403, b"{}"), Response(200, b"no JSON"), {"groups": []}, AccessError("no")]
)
def test_a_server_without_aggregated_discovery_has_an_empty_report(answer: Any) -> None:
    assert FeatureReport((), (), ()) == report(Server(ALL, **{"/apis": answer}), [WarmPool])


def openapi(**properties: Any) -> Object:
    schema = {"properties": {"metadata": {}, **properties}}
    return {"components": {"schemas": {"dev.stower.v1.WarmPool": schema}}}


def problems(document: Any, resources: dict[str, list[str]] = ALL) -> tuple[str, ...]:
    server = Server(resources, **{"/openapi/v3/apis/stower.dev/v1": document})
    return report(server).problems


def test_a_definition_that_lacks_fields_is_a_problem() -> None:
    (problem,) = problems(openapi(spec={"properties": {"images": {}}}))
    assert problem.startswith("the definition of warmpools.stower.dev is outdated and lacks spec.")
    assert problem.endswith(": kubectl apply -k deploy/warm/crds")
    assert 2 == problem.count(", "), "the first three"


def test_a_schema_that_keeps_unknown_fields_lacks_none() -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    assert () == problems(openapi(spec=anything, status=anything))
    (problem,) = problems(openapi(spec=anything))
    assert "lacks status: kubectl" in problem


def test_fields_in_the_items_of_a_list_are_compared() -> None:
    """The lectures of a pool are a list."""
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    spec = {field.encode_name: anything for field in msgspec.structs.fields(WarmPoolSpec)}
    assert () == problems(openapi(status=anything, spec={"properties": spec}))
    parts = {field.encode_name: anything for field in msgspec.structs.fields(Placeholders)}
    parts["lectures"] = {"items": {"properties": {"start": {}}}}
    spec["placeholders"] = {"properties": parts}
    (problem,) = problems(openapi(status=anything, spec={"properties": spec}))
    at = "spec.placeholders.lectures"
    assert f"lacks {at}.enrolment, {at}.percent, {at}.leadSeconds: kubectl" in problem


@pytest.mark.parametrize(
    "document", [{"components": {}}, {}, Response(404, b""), Response(200, b"")]
)
def test_definitions_that_are_not_published_are_not_compared(document: Any) -> None:
    assert () == problems(document)


def test_a_definition_that_is_not_served_is_not_compared() -> None:
    assert () == problems(openapi(), {})


@pytest.mark.parametrize(
    "version",
    [{"major": "1", "minor": "26"}, {"major": "1", "minor": "33+"}, {"major": "2", "minor": "0"}],
)
def test_a_server_of_a_known_version_is_good(version: Object) -> None:
    client: Any = Server({}, **{"/version": version})
    asyncio.run(check_version(client))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"major": "1", "minor": "25"}, "got version "),
        ({"major": "1"}, "want Kubernetes 1.26 or newer"),
        (Response(200, b"<html>\n hello"), "got version <html> hello, want"),
        (
            Response(403, b'{"message": "not you"}'),
            "https://api.test refuses the request for its version: 403 not you",
        ),
        (Response(0, b"Connection refused"), "cannot reach https://api.test: Connection refused"),
        (AccessError("no token"), "^no token$"),
    ],
)
def test_another_server_is_refused_in_one_line(answer: Any, text: str) -> None:
    client: Any = Server({}, **{"/version": answer})
    with pytest.raises(ShellError, match=text):
        asyncio.run(check_version(client))
