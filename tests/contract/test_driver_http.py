"""The examples of docs/drivers-http.md, in their order: this test is the driver."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.contract.servers import Client
from tests.contract.test_drivers import eventually
from tests.contract.test_up import opened, stower

PAGE = Path(__file__).parents[2] / "docs" / "drivers-http.md"
NAME = re.compile(r"\{([a-z0-9-]+)\}")
NODES = {
    "apiVersion": "stower.dev/v1",
    "kind": "Cluster",
    "pools": [{"name": "node", "count": 2}],
}


class Example(NamedTuple):
    """One request and what is shown of its response."""

    method: str
    path: str
    kind: str
    body: Any
    status: int
    response: Any


def examples() -> Iterator[Example]:
    """Yields the examples of the page."""
    for text in re.findall(r"^```http\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        request, _, response = text.partition("HTTP/1.1 ")
        head, _, body = request.partition("\n\n")
        line, *headers = head.splitlines()
        method, path = line.split()
        kind = next((h.partition(": ")[2] for h in headers if h.startswith("Content-Type")), "")
        status, _, shown = response.partition("\n\n")
        yield Example(
            method,
            path,
            kind,
            json.loads(body) if body.strip() else None,
            int(status[:3]),
            json.loads(shown) if shown.strip() else {},
        )


def filled(what: Any, known: dict[str, str]) -> Any:
    """Returns what is sent: each name is replaced by what was read before."""
    text = json.dumps(what)
    return json.loads(NAME.sub(lambda match: known[match[1]], text))


def is_shown(shown: Any, found: Any, read: dict[str, str]) -> bool:
    """Returns whether what the page shows is a part of what was found. Adds values to `read` that
    the page names for the first time."""
    if isinstance(shown, dict):
        found = found or {}
        return all(is_shown(value, found.get(key), read) for key, value in shown.items())
    if isinstance(shown, list):
        same = isinstance(found, list) and len(found) == len(shown)
        return same and all(is_shown(a, b, read) for a, b in zip(shown, found, strict=True))
    name = NAME.fullmatch(shown) if isinstance(shown, str) else None
    if name is not None and isinstance(found, str):
        return found == read.setdefault(name[1], found)
    return bool(shown == found)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("http")
    (folder / "cluster.yaml").write_text(yaml.safe_dump(NODES))
    state = folder / "state"
    arguments = ("--state", str(state), "--cluster", str(folder / "cluster.yaml"))
    code, _, error = stower("up", "--port", "0", "--detach", *arguments)
    assert 0 == code, error
    yield opened(state)
    stower("down", "--state", str(state))


def carry_out(client: Client, example: Example, known: dict[str, str]) -> None:
    """Sends the request, and adds what its response shows to `known`. A read is repeated, as the
    scheduler and the controllers go on meanwhile."""
    path = NAME.sub(lambda match: known[match[1]], example.path)
    body = filled(example.body, known) if example.body is not None else None
    found: list[Any] = []

    def is_as_shown() -> bool:
        found[:] = client.call(example.method, path, body, example.kind)
        read = dict(known)
        if found[0] != example.status or not is_shown(example.response, found[1], read):
            return False
        known.update(read)
        return True

    if example.method == "GET":
        eventually(is_as_shown, f"{path}: {example.response} with {known}")
    else:
        assert is_as_shown(), f"{example.method} {path}: {found}"


@pytest.mark.behaviour("S0.10", "S0.20", "S0.26")
def test_the_examples_run_as_they_stand(client: Client) -> None:
    known: dict[str, str] = {}
    methods = []
    for example in examples():
        carry_out(client, example, known)
        methods.append(example.method)
    assert {"GET", "POST", "PATCH", "DELETE"} == {*methods}
    assert known["node"] != known["other-node"]
