"""In which form answers go out, and what is said where none will do."""

import json
from collections.abc import Iterator

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread

MAPS = "/api/v1/namespaces/default/configmaps"
META = "g=meta.k8s.io"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    options = Options(tmp_path_factory.mktemp("state"), memory=True)
    with in_thread(options) as (_, made):
        data = {"n": "1", "text": "a\nb\n", "plain": "x"}
        made.call("POST", MAPS, {"metadata": {"name": "m"}, "data": data})
        yield made


@pytest.mark.parametrize(
    ("path", "accept", "status", "text"),
    [
        (f"{MAPS}/m", "text/html", 406, "406: Not Acceptable"),
        (MAPS, "application/xml", 406, "application/json;stream=watch"),
        (f"{MAPS}/nobody", "text/html", 406, "406: Not Acceptable"),
        (f"{MAPS}/m", "application/json;stream=odd", 406, "only the following media types"),
        (f"{MAPS}/m", f"application/json;v=v1;{META}", 406, "only the following media types"),
        (f"{MAPS}?watch=1", "application/yaml", 406, "application/json;stream=watch"),
        (MAPS, f"application/json;as=PartialObjectMetadata;v=v1;{META}", 406,
         "the requested object is a list (*core.ConfigMapList)"),
        (f"{MAPS}/m", f"application/json;as=PartialObjectMetadataList;v=v1;{META}", 406,
         "the requested object is not a list (*core.ConfigMap)"),
        (f"{MAPS}?includeObject=Odd", f"application/json;as=Table;v=v1;{META}", 400,
         'includeObject: Invalid value: "Odd"'),
    ],
)  # fmt: skip
def test_forms_that_are_refused(
    client: Client, path: str, accept: str, status: int, text: str
) -> None:
    found, _, body = client.raw("GET", path, headers={"Accept": accept})
    said = body.decode() if "yaml" in accept else json.loads(body)["message"]
    assert (status, True) == (found, text in said), body


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_tables_and_metadata_have_the_version_that_was_asked_for(
    client: Client, version: str
) -> None:
    for path, name in ((MAPS, "Table"), (f"{MAPS}/m", "PartialObjectMetadata")):
        accept = {"Accept": f"application/json;as={name};v={version};{META}"}
        answer = json.loads(client.raw("GET", path, headers=accept)[2])
        assert (name, f"meta.k8s.io/{version}") == (answer["kind"], answer["apiVersion"])
        rows = answer.get("rows", ())
        assert all(r["object"]["apiVersion"] == f"meta.k8s.io/{version}" for r in rows)


def test_yaml_is_as_go_writes_it(client: Client) -> None:
    accept = {"Accept": "application/yaml"}
    text = client.raw("GET", f"{MAPS}/m", headers=accept)[2].decode()
    assert 'data:\n  "n": "1"\n  plain: x\n  text: |\n    a\n    b\nkind: ConfigMap\n' in text
    assert ["apiVersion:", "data:", "kind:", "metadata:"] == [
        line.split()[0] for line in text.splitlines() if line[:1].isalpha()
    ]


@pytest.mark.parametrize("path", ["/nope", "/apis/nope.k8s.io", "/apis/nope.k8s.io/v1/foos/x"])
def test_paths_that_nobody_knows(client: Client, path: str) -> None:
    status, headers, body = client.raw("GET", path)
    assert (404, b"404 page not found\n") == (status, body)
    assert "text/plain; charset=utf-8" == headers["content-type"]


def test_known_groups_answer_with_a_status(client: Client) -> None:
    for path in ("/api/v1/nope", "/apis/apps/v1/nope", "/apis/apps/v9"):
        assert "NotFound" == client.call("GET", path)[1]["reason"]
    assert 405 == client.call("POST", "/version", {})[0]
    assert "/apis/apps/v1" in client.call("GET", "/")[1]["paths"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b'{"kind":"ConfigMap","metadata":{"name":"a1"}}', 201, ""),
        (b'{"apiVersion":"v1","metadata":{"name":"a2"}}', 201, ""),
        (b"not json, by any means whatever", 400, "(6e6f74206a736f6e2c20627920616e79206d65616e732"),
        (b"[]", 400, "json: cannot unmarshal array into Go value of type struct"),
        (b"null", 422, "name or generateName is required"),
        (b'{"apiVersion":"a/b/c","kind":"x"}', 400, "unexpected GroupVersion string: a/b/c"),
        (b'{"apiVersion":"v1","kind":"Pod"}', 400,
         "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        (b'{"apiVersion":"v1","kind":"Odd"}', 400, 'no kind "Odd" is registered'),
    ],
)  # fmt: skip
def test_bodies_and_their_kinds(client: Client, body: bytes, status: int, text: str) -> None:
    found, _, answer = client.raw("POST", MAPS, body, {"Content-Type": "application/json"})
    assert (status, True) == (found, text in json.loads(answer).get("message", "")), answer


def test_names_that_are_made_and_taken(client: Client) -> None:
    twice = {"metadata": {"name": "taken", "generateName": "taken-"}}
    assert 201 == client.call("POST", MAPS, twice)[0]
    body = json.dumps(twice).encode()
    status, headers, answer = client.raw("POST", MAPS, body, {"Content-Type": "application/json"})
    found = json.loads(answer)
    assert (409, "1", 1) == (status, headers["retry-after"], found["details"]["retryAfterSeconds"])
    assert "was not able to generate a unique name" in found["message"]


def test_page_that_is_full_says_that_there_may_be_more(client: Client) -> None:
    """Whether what follows is selected is not known yet."""
    for name, labels in (("l1", {"x": "1"}), ("l2", {"x": "1"}), ("l3", {})):
        client.call("POST", MAPS, {"metadata": {"name": name, "labels": labels}})
    first = client.call("GET", f"{MAPS}?labelSelector=x=1&limit=2")[1]
    assert ["l1", "l2"] == [i["metadata"]["name"] for i in first["items"]]
    token = first["metadata"]["continue"]
    rest = client.call("GET", f"{MAPS}?labelSelector=x=1&limit=2&continue={token}")[1]
    assert ([], None) == (rest["items"], rest["metadata"].get("continue"))
