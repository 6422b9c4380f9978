"""Unknown and repeated fields: which are told of, and in which order."""

import json

import pytest

from stower.api.requests import JSON_PATCH, MERGE_PATCH
from tests.unit.api.one_client import PODS, Client, pod

MAPS = "/api/v1/namespaces/default/configmaps"


def strict(body: str, path: str = MAPS) -> list[str]:
    answer = Client().ask("POST", f"{path}?fieldValidation=Strict", body.encode())
    assert 400 == answer.status
    message: str = json.loads(answer.body)["message"]
    return message.partition("strict decoding error: ")[2].split(", ")


def test_faults_are_told_in_the_order_of_the_text() -> None:
    body = (
        '{"metadata": {"odd": {"odd": 1, "odd": 2}, "name": "a", "name": "b"}, "data": '
        '{"k": "1", "k": "2", "k": "3"}, "bad": 1, "data": {}, "bad": 2}'
    )
    assert [
        'unknown field "metadata.odd"', 'duplicate field "metadata.name"',
        'duplicate field "data.k"', 'unknown field "bad"', 'duplicate field "data"',
    ] == strict(body)  # fmt: skip


def test_items_of_lists_have_an_index() -> None:
    container = '{"name": "c", "image": "i", "odd": 1, "image": "j"}'
    body = f'{{"metadata": {{"name": "p"}}, "spec": {{"containers": [{container}]}}}}'
    at = "spec.containers[0]"
    assert [f'unknown field "{at}.odd"', f'duplicate field "{at}.image"'] == strict(body, PODS)


def test_a_hundred_faults_are_told() -> None:
    fields = ", ".join(f'"x{number}": 1' for number in range(150))
    assert 100 == len(strict(f'{{"metadata": {{"name": "a"}}, {fields}}}'))


def test_a_lenient_reader_is_warned() -> None:
    body = b'{"metadata": {"name": "a"}, "odd": 1, "data": {"a": "", "a": ""}}'
    answer = Client().ask("POST", MAPS, body)
    assert 201 == answer.status
    assert ('unknown field "odd"', 'duplicate field "data.a"') == answer.warnings


@pytest.mark.parametrize(
    ("form", "patch", "faults"),
    [
        (MERGE_PATCH, '{"data": {"a": "1", "a": "2"}, "odd": 1}',
         'duplicate field "data.a", unknown field "odd"'),
        (JSON_PATCH, '[{"op": "add", "odd": 1, "path": "/data/a", "op": "add", "value": "1"}]',
         'json patch unknown field "[0].odd", json patch duplicate field "[0].op"'),
    ],
)  # fmt: skip
def test_faults_of_a_patch_come_before_those_of_its_result(
    form: str, patch: str, faults: str
) -> None:
    client = Client()
    client.send("POST", MAPS, {"metadata": {"name": "m"}, "data": {"b": "c"}})
    answer = client.ask("PATCH", f"{MAPS}/m?fieldValidation=Strict", patch.encode(), form)
    assert 422 == answer.status
    assert json.loads(answer.body)["message"].endswith(f"strict decoding error: {faults}")


def test_a_message_quotes_the_patched_object_as_go_writes_it() -> None:
    """Maps that the patch has gone through are sorted, all else has the order of its type."""
    client = Client()
    body = pod("p", nodeName="n", restartPolicy="Never")
    body["metadata"]["annotations"] = {"b": "1", "a": "<"}
    client.send("POST", PODS, body)
    patch = b'[{"op": "add", "path": "/spec/odd", "value": {"z": 1, "a": 2}}]'
    answer = client.ask("PATCH", f"{PODS}/p?fieldValidation=Strict", patch, JSON_PATCH)
    quoted = json.loads(answer.body)["details"]["causes"][0]["message"]
    text = json.loads(quoted.removeprefix("Invalid value: ").rpartition(": strict")[0])
    assert text.startswith('{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":')
    assert '"annotations":{"a":"\\u003c","b":"1"},"managedFields":[{"manager":' in text
    assert '"odd":{"z":1,"a":2},"preemptionPolicy"' in text
    container = '"containers":[{"name":"c","image":"i","resources":{},"terminationMessagePath"'
    assert container in text
    spec = list(json.loads(text)["spec"])
    assert spec == sorted(spec)
