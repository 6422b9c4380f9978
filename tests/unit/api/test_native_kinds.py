"""The kinds of stower.dev, served without being defined: to clients they are custom resources."""

import copy
import json
from typing import Any

import pytest

from stower.api.definitions import DEFINITIONS
from stower.api.requests import APPLY_PATCH, JSON, MERGE_PATCH, Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry
from tests.unit.api.test_negotiation_rules import (
    CLASSES,
    OWNER,
    SCHEDULINGS,
    STOWER,
    resource_class,
    scheduling,
)

Object = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ONE = f"{SCHEDULINGS}/p"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
STRATEGIC = "application/strategic-merge-patch+json"
DAY_NS = 86_400_000_000_000


class Client:
    """One API, whose clock stands still."""

    def __init__(self) -> None:
        self.api = Api(load_registry(), seed=1)
        self.api.bootstrap(0)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        form: str = "",
        accept: str = "",
        **query: str,
    ) -> tuple[int, Object]:
        """Status and answer of one request."""
        form = form or (MERGE_PATCH if method == "PATCH" else JSON)
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, DAY_NS, tuple(query.items()), data, form, accept)
        response = self.api.handle(request)
        assert isinstance(response, Response)
        return response.status, json.loads(response.body)

    def made(self, path: str, body: Object) -> Object:
        """A new object."""
        status, answer = self("POST", path, body)
        assert 201 == status, answer
        return answer

    def version(self, path: str = ONE) -> str:
        """The resourceVersion of an object."""
        version: str = self("GET", path)[1]["metadata"]["resourceVersion"]
        return version


def claims(*names: str, **fields: Any) -> Object:
    return {"status": {"resourceClaims": [{"name": name, **fields} for name in names]}}


def applied(**fields: Any) -> Object:
    return {"apiVersion": "stower.dev/v1", "kind": "PodScheduling", "metadata": {"name": "p"},
            **fields}  # fmt: skip


# What they are


def test_they_are_discovered() -> None:
    client = Client()
    _, found = client("GET", STOWER)
    resources = {r["name"]: (r["kind"], r["namespaced"]) for r in found["resources"]}
    assert {
        "podschedulings": ("PodScheduling", True),
        "podschedulings/status": ("PodScheduling", True),
        "resourceclasses": ("ResourceClass", False),
        "warmpools": ("WarmPool", True),
        "warmpools/status": ("WarmPool", True),
    } == resources
    _, groups = client("GET", "/apis")
    assert "stower.dev" in {group["name"] for group in groups["groups"]}


def test_they_are_explained() -> None:
    client = Client()
    _, document = client("GET", f"/openapi/v3{STOWER}")
    schema = document["components"]["schemas"]["dev.stower.v1.PodScheduling"]
    spec = schema["properties"]["spec"]["properties"]
    want = "The candidate nodes that drivers must check, best first."
    assert want == spec["potentialNodes"]["description"]
    _, document = client("GET", "/openapi/v2")
    assert {"dev.stower.v1.PodScheduling", "dev.stower.v1.ResourceClass"} <= {
        *document["definitions"]
    }


def test_strategic_patches_are_not_offered() -> None:
    _, document = Client()("GET", f"/openapi/v3{STOWER}")
    for path in (f"{STOWER}/resourceclasses/{{name}}", f"{SCHEDULINGS}/{{name}}"):
        operations = document["paths"][path.replace("default", "{namespace}")]
        offered = operations["patch"]["requestBody"]["content"]
        assert (True, False) == (MERGE_PATCH in offered, STRATEGIC in offered)


def test_tables_have_columns_of_their_own() -> None:
    client = Client()
    client.made(CLASSES, resource_class())
    spec: Object = {"selectedNode": "n1", "potentialNodes": ["n1", "n2"], "round": 3}
    client.made(SCHEDULINGS, scheduling(**spec))
    _, table = client("GET", CLASSES, accept=TABLE)
    assert ["Name", "Driver", "Age"] == [c["name"] for c in table["columnDefinitions"]]
    assert ["gpu", "gpu.example.com", "0s"] == table["rows"][0]["cells"]
    _, table = client("GET", SCHEDULINGS, accept=TABLE)
    assert [
        ("Name", 0), ("Selected", 0), ("Round", 0), ("Attempt", 0), ("Candidates", 1), ("Age", 0),
    ] == [(c["name"], c["priority"]) for c in table["columnDefinitions"]]  # fmt: skip
    assert ["p", "n1", 3, None, '["n1","n2"]', "0s"] == table["rows"][0]["cells"]


def test_unknown_fields_are_dropped_or_refused() -> None:
    client = Client()
    body = resource_class(parameters={"any": {"thing": 1}}, bogus=1)
    status, refused = client("POST", CLASSES, body, fieldValidation="Strict")
    assert (400, True) == (status, 'unknown field "bogus"' in refused["message"])
    made = client.made(CLASSES, body)
    assert ({"any": {"thing": 1}}, False) == (made["parameters"], "bogus" in made)


def test_status_is_apart_from_the_rest() -> None:
    client = Client()
    made = client.made(SCHEDULINGS, {**scheduling(round=1), **claims("a")})
    assert (1, False) == (made["metadata"]["generation"], "status" in made)
    change = {"spec": {"round": 9}, "metadata": {"labels": {"a": "b"}}, **claims("a")}
    _, found = client("PATCH", f"{ONE}/status", change)
    assert (1, 1, False) == (
        found["metadata"]["generation"], found["spec"]["round"], "labels" in found["metadata"],
    )  # fmt: skip
    assert [{"name": "a"}] == found["status"]["resourceClaims"]
    _, found = client("PATCH", ONE, {"spec": {"round": 2}, "status": None})
    assert (2, [{"name": "a"}]) == (
        found["metadata"]["generation"], found["status"]["resourceClaims"],
    )  # fmt: skip


# Writes


@pytest.mark.parametrize("path", [ONE, f"{ONE}/status"])
def test_patch_that_changes_nothing_leaves_the_version(path: str) -> None:
    client = Client()
    client.made(SCHEDULINGS, scheduling(selectedNode="n", potentialNodes=["n"], round=1))
    change = {"spec": {"selectedNode": "n", "round": 1, "attempt": None}}
    if path != ONE:
        change = claims("a", unsuitableNodes=["n"], observedRound=1)
        assert 200 == client("PATCH", path, change, fieldManager="driver")[0]
    version = client.version()
    for manager in ("driver", "other"):
        for patch in (change, {}):
            status, found = client("PATCH", path, patch, fieldManager=manager)
            assert (200, version) == (status, found["metadata"]["resourceVersion"])
    status, found = client("PUT", path, client("GET", ONE)[1], fieldManager="third")
    assert (200, version) == (status, found["metadata"]["resourceVersion"])
    assert version == client.version()


@pytest.mark.parametrize("path", [ONE, f"{ONE}/status"])
def test_patch_may_ask_for_the_version_that_it_was_made_on(path: str) -> None:
    client = Client()
    first = client.made(SCHEDULINGS, scheduling())["metadata"]["resourceVersion"]

    def change(version: str, round: int) -> int:
        body = {"metadata": {"resourceVersion": version}, "spec": {"round": round}}
        return client("PATCH", path, {**body, **claims("a", observedRound=round)})[0]

    assert (200, 409) == (change(first, 1), change(first, 2))
    assert 200 == change(client.version(), 2)
    body = {"metadata": {"resourceVersion": client.version(), "uid": "another"}}
    assert client("PATCH", ONE, body)[0] in (409, 422)


def test_strategic_patches_are_not_for_custom_resources() -> None:
    client = Client()
    client.made(SCHEDULINGS, scheduling())
    assert 415 == client("PATCH", ONE, {}, STRATEGIC)[0]


def test_drivers_apply_each_its_own_answer() -> None:
    client = Client()
    client.made(SCHEDULINGS, scheduling())

    def apply(driver: str, body: Object, force: str = "false") -> tuple[int, Object]:
        whole = applied(**body)
        return client(
            "PATCH", f"{ONE}/status", whole, APPLY_PATCH, fieldManager=driver, force=force
        )

    assert 200 == apply("d0", claims("a", observedRound=1))[0]
    _, found = apply("d1", claims("b", unsuitableNodes=["n"]))
    assert ["a", "b"] == [c["name"] for c in found["status"]["resourceClaims"]]
    version = client.version()
    assert (
        version == apply("d1", claims("b", unsuitableNodes=["n"]))[1]["metadata"]["resourceVersion"]
    )
    assert 409 == apply("d1", claims("a", observedRound=2))[0]
    _, found = apply("d0", applied())
    assert ["b"] == [c["name"] for c in found["status"]["resourceClaims"]]
    managers = {m["manager"]: m["subresource"] for m in found["metadata"]["managedFields"]
                if m["operation"] == "Apply"}  # fmt: skip
    assert "status" == managers["d1"]


def test_objects_are_applied_and_applied_again() -> None:
    client = Client()
    meta = {"name": "p", "ownerReferences": [OWNER]}
    body = applied(metadata=meta, spec={"potentialNodes": ["a", "b"], "round": 1})
    status, first = client("PATCH", ONE, body, APPLY_PATCH, fieldManager="s")
    assert 201 == status, first
    status, again = client("PATCH", ONE, body, APPLY_PATCH, fieldManager="s")
    assert (200, first) == (status, again)
    body["spec"] = {"potentialNodes": ["b", "c"], "round": 2}
    _, changed = client("PATCH", ONE, body, APPLY_PATCH, fieldManager="s")
    assert {"potentialNodes": ["b", "c"], "round": 2} == changed["spec"]


# Definitions of the same kinds


def test_definitions_change_nothing_and_take_nothing_with_them() -> None:
    client = Client()
    client.made(CLASSES, resource_class())
    client.made(SCHEDULINGS, scheduling(round=1))
    for definition in DEFINITIONS:
        other = copy.deepcopy(definition)
        other["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object"}
        made = client.made(CRDS, other)
        accepted = {c["type"]: c["status"] for c in made["status"]["conditions"]}
        assert {"NamesAccepted": "True", "Established": "True"} == accepted
    assert 1 == client("GET", ONE)[1]["spec"]["round"]
    assert 422 == client("PATCH", ONE, {"spec": {"round": 0}})[0]
    for definition in DEFINITIONS:
        assert 200 == client("DELETE", f"{CRDS}/{definition['metadata']['name']}")[0]
    assert 1 == client("GET", ONE)[1]["spec"]["round"]
    assert "gpu.example.com" == client("GET", f"{CLASSES}/gpu")[1]["driverName"]


def test_definitions_that_were_stored_are_not_served_instead() -> None:
    client = Client()
    for definition in DEFINITIONS:
        client.made(CRDS, definition)
    client.api.restore()
    wrong = scheduling(round=-1)
    assert 422 == client("POST", SCHEDULINGS, wrong)[0]


def test_other_kinds_of_the_group_come_and_go() -> None:
    client = Client()
    other = copy.deepcopy(DEFINITIONS[0])
    other["metadata"]["name"] = "things.stower.dev"
    other["spec"]["names"] = {"plural": "things", "kind": "Thing"}
    client.made(CRDS, other)
    assert 200 == client("GET", f"{STOWER}/things")[0]
    assert 200 == client("DELETE", f"{CRDS}/things.stower.dev")[0]
    assert 404 == client("GET", f"{STOWER}/things")[0]
    assert 200 == client("GET", CLASSES)[0]
