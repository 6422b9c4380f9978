"""Requests and watches over HTTP: what a server may answer, and what the network may do."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from stower.live import client as module
from stower.live.access import Access, AccessError
from stower.live.client import (
    NOT_SENT,
    Client,
    Response,
    WatchInterrupted,
    WatchStatusError,
    collection_path,
)
from stower.live.connection import Connection, ConnectionLost, ConnectionPool
from stower.live.credentials import Credentials
from stower.model.kinds import KIND_BY_VIEW, Node, Pod, PodGroup
from tests.unit.live.fake_api import plain_access, raw_server, serving

Handler = Callable[[web.Request], Any]


def bearer(token: str) -> Credentials:
    return Credentials(headers={"Authorization": token})


def answered(handler: Handler, *requests: tuple[Any, ...], **more: Any) -> list[Response]:
    """The responses of a server to requests, one after the other."""

    async def story() -> list[Response]:
        async with serving(handler) as url, Client(plain_access(url), "tests") as client:
            return [await client.request(*request, **more) for request in requests]

    return asyncio.run(story())


def test_a_request_has_its_body_and_its_headers() -> None:
    seen = []

    async def handle(request: web.Request) -> web.Response:
        names = ("User-Agent", "Accept", "Content-Type")
        headers = [request.headers.get(name) for name in names]
        seen.append((request.method, request.path_qs, headers, await request.read()))
        return web.Response(status=201, text="made", headers={"Retry-After": "7"})

    first, second = answered(
        handle, ("POST", "/a?b=c", b"{}", "text/x"), ("GET", "/d", None, "", "application/y")
    )
    assert Response(201, b"made", 7.0) == first
    assert second == first
    assert [
        ("POST", "/a?b=c", ["tests", "application/json", "text/x"], b"{}"),
        ("GET", "/d", ["tests", "application/y", None], b""),
    ] == seen


def test_a_body_that_comes_in_parts_is_put_together() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b"one ", b"two"):
            await response.write(part)
            await asyncio.sleep(0.001)
        return response

    assert [Response(200, b"one two")] == answered(handle, ("GET", "/"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"message": "it\\n is   full"}', "it is full"),
        (b"no JSON", "no JSON"),
        (b'{"reason": "x"}', '{"reason": "x"}'),
        (b"[1]", "[1]"),
        (b"x" * 1000, "x" * 300),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_message_is_one_line_whatever_the_body(body: bytes, message: str) -> None:
    assert message == Response(500, body).message


def test_a_request_that_may_no_longer_be_sent_is_not_sent() -> None:
    async def handle(request: web.Request) -> web.Response:
        raise AssertionError

    (response,) = answered(handle, ("GET", "/"), may_send=lambda: False)
    assert Response(NOT_SENT, b"") == response


def test_a_server_that_is_not_there_is_an_answer_of_status_0() -> None:
    async def story() -> tuple[Response, list[tuple[str, int]]]:
        seen: list[tuple[str, int]] = []
        async with Client(plain_access("http://127.0.0.1:1"), "tests") as client:
            client.on_request = lambda method, status, took_s: seen.append((method, status))
            return await client.request("GET", "/"), seen

    response, seen = asyncio.run(story())
    assert (0, "Connection refused") == (response.status, response.message)
    assert [("GET", 0)] == seen


def test_a_401_is_tried_once_more_with_new_credentials() -> None:
    """A server that refuses these too has the last word."""
    tokens = []

    async def handle(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return web.Response(status=200 if tokens[-1] == "good" else 401)

    async def story(*again: str) -> Response:
        async with serving(handle) as url:
            found = iter(again)

            async def reload() -> Any:
                return bearer(next(found))

            now_s = iter(range(0, 1000, 100))
            access = Access(url, bearer("old"), reload, clock=lambda: float(next(now_s)))
            async with Client(access, "tests") as client:
                return await client.request("GET", "/")

    assert 200 == asyncio.run(story("good")).status
    assert 401 == asyncio.run(story("bad", "good")).status
    assert ["old", "good", "old", "bad"] == tokens


def test_new_tls_settings_get_new_connections() -> None:
    peers = []

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response()

    async def story() -> None:
        async with serving(handle) as url:
            now_s = iter(range(0, 1000, 100))
            access = Access(url, Credentials(), reload, clock=lambda: float(next(now_s)))
            async with Client(access, "tests") as client:
                for renews in (False, False, True):
                    if renews:
                        await access.renew()
                    assert 200 == (await client.request("GET", "/")).status

    async def reload() -> Credentials:
        return Credentials(ssl.create_default_context())

    asyncio.run(story())
    first, second, third = peers
    assert first == second
    assert second != third


@pytest.mark.parametrize("break_", ["\r", "\n"])
def test_a_token_with_a_line_break_is_refused(break_: str) -> None:
    async def story() -> None:
        access = Access("http://127.0.0.1:1", bearer(f"a{break_}X-Evil: 1"))
        async with Client(access, "tests") as client:
            await client.request("GET", "/")

    with pytest.raises(AccessError, match="Authorization: a header cannot have line breaks"):
        asyncio.run(story())


def test_a_first_contact_is_tried_again_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)

    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections > 2:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def story() -> list[Response]:
        responses = []
        async with raw_server(serve) as url:
            for server in ("http://127.0.0.1:1", url):
                async with Client(plain_access(server), "tests") as client:
                    responses.append(await client.get_with_retry("/"))
        return responses

    absent, present = asyncio.run(story())
    assert (0, Response(200, b"ok")) == (absent.status, present)
    assert 3 == connections


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"", "the server closed the connection"),
        (b"nonsense\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "the server closed the connection"),
    ],
)
def test_an_answer_that_is_not_whole_is_lost(reply: bytes, text: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    with pytest.raises(ConnectionLost, match=text):
        asyncio.run(one_reply(serve))


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nall of it")
        await writer.drain()
        writer.close()

    assert b"all of it" == asyncio.run(one_reply(serve))


def test_a_body_that_is_too_long_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stower.live.connection.BODY_BYTES_MAX", 10)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world")
        writer.close()

    with pytest.raises(ConnectionLost, match="the answer is not HTTP"):
        asyncio.run(one_reply(serve))


def test_a_server_that_speaks_without_a_request_loses_its_connection() -> None:
    """What it says could be taken for the answer to the next request."""

    class Transport:
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    connection, transport = Connection(), Transport()
    connection.connection_made(transport)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (True, False) == (transport.is_aborted, connection.is_open)


def test_a_path_of_the_server_goes_before_the_path_of_a_request() -> None:
    paths = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response()

    async def story() -> None:
        async with (
            serving(handle) as url,
            Client(plain_access(f"{url}/clusters/c1/"), "tests") as client,
        ):
            await client.request("GET", "/api/v1/nodes")

    asyncio.run(story())
    assert ["/clusters/c1/api/v1/nodes"] == paths


async def one_reply(serve: Any) -> bytes:
    """The body that a pool makes of a server's bytes."""
    async with raw_server(serve) as url:
        pool = ConnectionPool(url, None)
        try:
            reply = await pool.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return b"".join(reply.body)
        finally:
            pool.close()


def watched(handler: Handler, access: Callable[[str], Access] = plain_access) -> list[list[bytes]]:
    """The lines that a watch yields."""

    async def story() -> list[list[bytes]]:
        async with serving(handler) as url, Client(access(url), "tests") as client:
            return [lines async for lines in client.watch("/pods", {"a": "b"})]

    return asyncio.run(story())


def test_the_lines_of_a_watch_come_whole() -> None:
    queries = []

    async def handle(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"one":', b'1}\n{"two":2}\n\n', b'{"half'):
            await response.write(part)
            await asyncio.sleep(0.005)
        return response

    begin, *lines = watched(handle)
    assert [] == begin
    assert [b'{"one":1}', b'{"two":2}'] == [line for some in lines for line in some]
    assert [{"a": "b", "watch": "1"}] == queries


@pytest.mark.parametrize(("header", "after_s"), [({}, 0.0), ({"Retry-After": "3"}, 3.0)])
def test_a_refused_watch_says_why(header: dict[str, str], after_s: float) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"message": "too old"}, status=410, headers=header)

    with pytest.raises(WatchStatusError, match="too old") as found:
        watched(handle)
    assert (410, after_s) == (found.value.status, found.value.retry_after_s)


def test_credentials_that_a_watch_is_refused_with_are_renewed() -> None:
    renewals = []

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=401)

    def access(url: str) -> Access:
        async def reload() -> Any:
            renewals.append(1)
            return bearer("new")

        now_s = iter(range(0, 1000, 100))
        return Access(url, bearer("old"), reload, clock=lambda: float(next(now_s)))

    with pytest.raises(WatchStatusError):
        watched(handle, access)
    assert [1] == renewals


def test_a_watch_whose_connection_breaks_is_interrupted() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return response

    with pytest.raises(WatchInterrupted):
        watched(handle)


@pytest.mark.parametrize(
    ("view", "namespace", "version", "path"),
    [
        (Node, "", "", "/api/v1/nodes"),
        (Pod, "a", "", "/api/v1/namespaces/a/pods"),
        (PodGroup, "", "x.y/v2", "/apis/x.y/v2/podgroups"),
    ],
)
def test_the_path_of_a_kind(view: type, namespace: str, version: str, path: str) -> None:
    assert path == collection_path(KIND_BY_VIEW[view], namespace, version)
