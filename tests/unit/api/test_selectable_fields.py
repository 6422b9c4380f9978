"""Lists and watches of custom resources by fields that their definition names."""

from typing import Any, Final

import pytest

from stower.api.requests import Request
from stower.api.watches import Watch
from tests.unit.api.custom_cluster import DEFINITIONS, CustomCluster, definition, version

THINGS: Final = "/apis/example.com/v1/things"
OTHERS: Final = "/apis/example.com/v2/things"
TEXT: Final = {"type": "string"}


def fields(*paths: str) -> Any:
    return {"selectableFields": [{"jsonPath": path} for path in paths]}


@pytest.fixture
def cluster() -> CustomCluster:
    made = CustomCluster()
    spec = {"type": "object", "properties": {"n": {"type": "integer"}, "on": {"type": "boolean"}}}
    one = {**version("v1", {"a": TEXT, "spec": spec}), **fields(".a", ".spec.n", ".spec.on")}
    other = {**version("v2", {"a": TEXT}, storage=False), **fields(".a")}
    made.define(definition(versions=[one, other]))
    for name, value, number in (("t", "x", 1), ("u", "y", 2), ("v", "x", 2)):
        body = {"metadata": {"name": name}, "a": value, "spec": {"n": number, "on": number == 2}}
        made.make(THINGS, body)
    return made


def names(cluster: CustomCluster, selector: str, path: str = THINGS) -> list[str]:
    items = cluster.get(f"{path}?fieldSelector={selector}")["items"]
    return [item["metadata"]["name"] for item in items]


def test_lists_are_selected_by_text_number_and_flag(cluster: CustomCluster) -> None:
    assert ["t", "v"] == names(cluster, "a=x") == names(cluster, "a=x", OTHERS)
    assert ["v"] == names(cluster, "a=x,spec.n=2")
    assert ["u", "v"] == names(cluster, "spec.on=true")
    assert ["u"] == names(cluster, "a!=x")
    cluster.make(THINGS, {"metadata": {"name": "w"}})
    assert ["w"] == names(cluster, "a=")


def test_other_fields_are_refused(cluster: CustomCluster) -> None:
    for path, field in ((THINGS, "spec.other"), (OTHERS, "spec.n"), (THINGS, "metadata.namespace")):
        code, body = cluster.ask("GET", f"{path}?fieldSelector={field}=1")
        assert (400, f"field label not supported: {field}") == (code, body["message"])


def test_watches_and_deletions_are_selected_too(cluster: CustomCluster) -> None:
    query = (("watch", "true"), ("fieldSelector", "a=x"))
    watch = cluster.api.handle(Request("GET", THINGS, cluster.now_ns, query))
    assert isinstance(watch, Watch)
    assert 200 == cluster.ask("DELETE", f"{THINGS}?fieldSelector=spec.n=1")[0]
    assert ["u", "v"] == names(cluster, "")
    found = cluster.get(f"{THINGS}/v")
    assert 200 == cluster.ask("PUT", f"{THINGS}/v", {**found, "a": "z"})[0]
    assert [] == names(cluster, "a=x")


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ((".z",), "is an invalid path: does not refer to a valid field"),
        (("a",), "is an invalid path: expected [ or . but got: a"),
        ((".metadata.name",), "must not point to fields in metadata"),
        ((".spec",), "must point to a field of type string, boolean or integer."),
        ((".a", ".a"), "Duplicate value"),
    ],
)
def test_a_path_to_no_scalar_is_refused(paths: tuple[str, ...], text: str) -> None:
    meta = {"type": "object", "properties": {"name": TEXT}}
    properties = {"a": TEXT, "spec": {"type": "object"}, "metadata": meta}
    body = definition(versions=[{**version("v1", properties), **fields(*paths)}])
    code, answer = CustomCluster().ask("POST", DEFINITIONS, body)
    assert (422, True) == (code, text in answer["message"])
