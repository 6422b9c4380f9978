"""/healthz, /livez and /readyz."""

import json

import pytest

from tests.unit.api.one_client import Client

WARNED = 'warn: some health checks cannot be excluded: no matches for "a", "b"\n'


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize(
    ("rest", "status", "text"),
    [
        ("", 200, "ok"),
        ("/ping", 200, "ok"),
        ("?exclude=ping", 200, "ok"),
        ("?verbose", 200, "[+]ping ok\n{} check passed\n"),
        ("?verbose=false", 200, "[+]ping ok\n{} check passed\n"),
        ("?verbose&exclude=ping", 200, "[+]ping excluded: ok\n{} check passed\n"),
        ("?verbose&exclude=b&exclude=a", 200, f"[+]ping ok\n{WARNED}{{}} check passed\n"),
        ("/foo", 404, "404 page not found\n"),
        ("/ping/foo", 404, "404 page not found\n"),
        ("/", 404, "404 page not found\n"),
    ],
)
def test_checks(path: str, rest: str, status: int, text: str) -> None:
    response = Client().ask("GET", f"{path}{rest}")
    assert (status, text.format(path[1:])) == (response.status, response.body.decode())
    assert "text/plain; charset=utf-8" == response.content_type


def test_the_paths_of_checks_are_listed() -> None:
    paths = json.loads(Client().ask("GET", "/").body)["paths"]
    assert {"/healthz/ping", "/livez/ping", "/readyz/ping", "/readyz"} <= {*paths}
