"""Extenders over HTTP: what they are sent, and what is made of their answers."""

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from stower.framework.events import ExtenderAnswered
from stower.framework.extenders import Extender, ExtenderTls
from stower.framework.writes import CallExtender
from stower.live import extenders as module
from stower.live.access import AccessError
from stower.live.client import Response
from stower.live.extenders import ExtenderError, HTTPExtenders
from stower.pki.certificates import make_certificates
from tests.unit.live.fake_api import FakeApi, serving, until

VERBS = {"filter_verb": "filter", "prioritize_verb": "score", "preempt_verb": "preempt",
         "bind_verb": "bind"}  # fmt: skip


def call(verb: str, nodes: tuple[str, ...] = ("n1",), **more: Any) -> CallExtender:
    return CallExtender(7, 0, verb, "default", "p", "uid-p", nodes, **more)


def answered(
    write: CallExtender, reply: Any, fake: FakeApi | None = None, tls: Any = None, **options: Any
) -> tuple[ExtenderAnswered, list[tuple[str, Any]]]:
    """The event, and path and body of the extender's requests."""

    async def story() -> tuple[ExtenderAnswered, list[tuple[str, Any]]]:
        requests: list[tuple[str, Any]] = []
        answers: list[ExtenderAnswered] = []
        api: Any = fake or FakeApi()

        async def handle(request: web.Request) -> Any:
            requests.append((request.path, await request.json()))
            return await reply(request) if callable(reply) else reply

        if fake is None:
            api.add_pod("p", cpu="1")
        async with serving(handle, tls) as url:
            extender = Extender(f"{url}/ext/", **{**VERBS, **options})
            extenders = HTTPExtenders((extender,), api, answers.append)
            extenders.send(write)
            await until(lambda: answers)
            await extenders.close()
        return answers[0], requests

    return asyncio.run(story())


def json_reply(text: str = "{}") -> web.Response:
    return web.Response(text=text)


def test_a_filter_gets_the_pod_and_the_nodes_in_full() -> None:
    fake = FakeApi()
    for name in ("n1", "n2", "n3"):
        fake.add_node(name)
    fake.add_pod("p")
    write = call("filter", ("n1", "n3"))
    answer, ((path, body),) = answered(write, json_reply('{"NodeNames": ["n1"]}'), fake)
    assert ExtenderAnswered(7, b'{"NodeNames": ["n1"]}') == answer
    assert "/ext/filter" == path
    assert "p" == body["Pod"]["metadata"]["name"]
    assert ["n1", "n3"] == [node["metadata"]["name"] for node in body["Nodes"]["items"]]
    assert body["NodeNames"] is None


def test_an_extender_with_a_cache_gets_names_alone() -> None:
    _, ((path, body),) = answered(
        call("prioritize", ("n1", "n2")), json_reply(), node_cache_capable=True
    )
    assert "/ext/score" == path
    assert (None, ["n1", "n2"]) == (body["Nodes"], body["NodeNames"])


def test_a_binding_names_pod_and_node() -> None:
    _, ((path, body),) = answered(call("bind"), json_reply())
    assert "/ext/bind" == path
    assert {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"} == body


@pytest.mark.parametrize("has_cache", [False, True])
def test_victims_are_sent_in_full_or_by_uid(has_cache: bool) -> None:
    """A victim that is gone from its node is left out of the full form."""
    fake = FakeApi()
    fake.add_pod("p")
    victim = fake.add_pod("victim", nodeName="n1")["metadata"]["uid"]
    victims = {"n1": ([victim, "gone"], 2)}
    _, ((_, body),) = answered(
        call("preempt", victims=victims), json_reply(), fake, node_cache_capable=has_cache
    )
    if has_cache:
        assert body["NodeNameToVictims"] is None
        uids = [{"UID": victim}, {"UID": "gone"}]
        assert {"n1": {"Pods": uids, "NumPDBViolations": 2}} == body["NodeNameToMetaVictims"]
    else:
        assert body["NodeNameToMetaVictims"] is None
        (pod,) = body["NodeNameToVictims"]["n1"]["Pods"]
        assert ("victim", 2) == (
            pod["metadata"]["name"], body["NodeNameToVictims"]["n1"]["NumPDBViolations"],
        )  # fmt: skip


async def never(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    raise AssertionError


async def redirect(request: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (never, "filter: no answer within 0.02 s"),
        (redirect, "status 302, want 200"),
        (web.Response(status=500), "status 500, want 200"),
        (broken, "filter: "),
        (web.Response(body=b"x" * 200), "more than 100 bytes"),
    ],
)
def test_an_answer_that_is_none_becomes_an_error(
    reply: Any, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 100)
    timeout = "20ms" if reply is never else "5s"
    answer, _ = answered(call("filter"), reply, http_timeout=timeout, node_cache_capable=True)
    assert b"" == answer.body
    assert error in answer.error


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (
            Response(404, b'{"message": "no pod"}'),
            "GET /api/v1/namespaces/default/pods/p: 404 no pod",
        ),
        (AccessError("no token"), "filter: no token"),
        (KeyError("oh"), "filter: KeyError: 'oh'"),
    ],
)
def test_objects_that_cannot_be_fetched_become_an_error(
    fault: Any, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: without an answer the pod would never be tried again."""

    def answer(method: str, path: str) -> Response:
        if isinstance(fault, Exception):
            raise fault
        return fault

    found, requests = answered(call("filter"), json_reply(), FakeApi(answer))
    assert [] == requests
    assert error in found.error
    assert ("the call to extender" in caplog.text) is isinstance(fault, KeyError)


def test_closing_ends_calls_without_an_answer() -> None:
    async def story() -> list[ExtenderAnswered]:
        answers: list[ExtenderAnswered] = []
        api: Any = FakeApi()
        begun = asyncio.Event()

        async def handle(request: web.Request) -> web.Response:
            begun.set()
            return await never(request)

        async with serving(handle) as url:
            extenders = HTTPExtenders((Extender(url, **VERBS),), api, answers.append)
            extenders.send(call("bind"))
            await begun.wait()
            await extenders.close()
            await asyncio.sleep(0)
        return answers

    assert [] == asyncio.run(story())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    make_certificates(folder, ("127.0.0.1",))
    return folder


def test_a_certificate_is_checked_unless_that_is_switched_off(certificates: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")

    def error(config: ExtenderTls | None) -> str:
        answer, _ = answered(
            call("bind"), json_reply(), tls=tls, tls_config=config, node_cache_capable=True
        )
        return answer.error

    authority = (certificates / "ca.crt").read_bytes()
    assert "CERTIFICATE_VERIFY_FAILED" in error(None)
    assert "CERTIFICATE_VERIFY_FAILED" in error(ExtenderTls())
    assert "" == error(ExtenderTls(insecure=True))
    assert "" == error(ExtenderTls(ca_file=str(certificates / "ca.crt")))
    assert "" == error(ExtenderTls(ca_data=base64.b64encode(authority).decode()))


@pytest.mark.parametrize("is_file", [False, True])
def test_an_extender_may_want_a_certificate(certificates: Path, is_file: bool) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    tls.load_verify_locations(certificates / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    ca, cert, key = (certificates / name for name in ("ca.crt", "admin.crt", "admin.key"))
    if is_file:
        config = ExtenderTls(ca_file=str(ca), cert_file=str(cert), key_file=str(key))
    else:
        ca_data, cert_data, key_data = (
            base64.b64encode(path.read_bytes()).decode() for path in (ca, cert, key)
        )
        config = ExtenderTls(ca_data=ca_data, cert_data=cert_data, key_data=key_data)
    answer, _ = answered(call("bind"), json_reply(), tls=tls, tls_config=config)
    assert "" == answer.error
    refused, _ = answered(
        call("bind"), json_reply(), tls=tls, tls_config=ExtenderTls(ca_file=str(ca))
    )
    assert refused.error


@pytest.mark.parametrize(
    "config",
    [
        ExtenderTls(ca_file="/nowhere"),
        ExtenderTls(ca_data="%"),
        ExtenderTls(cert_data="AAAA", key_data="AAAA"),
    ],
)
def test_a_certificate_that_is_none_is_refused_at_the_start(config: ExtenderTls) -> None:
    client: Any = None
    with pytest.raises(ExtenderError, match='extender "https://x": tlsConfig: '):
        HTTPExtenders((Extender("https://x", tls_config=config),), client, lambda answer: None)
