"""An outage is told of once, in words without Python's."""

import asyncio
import errno
import logging
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from stower.live import outages
from stower.live.outages import Outages, error_text
from tests.virtual_loop import VirtualLoop


def test_what_repeats_is_told_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing answers, whatever was asked for; an answer is about its resource."""
    loop = VirtualLoop()

    async def story() -> None:
        met = Outages()
        met.end("/pods", "cannot list")
        for path in ("/pods", "/nodes", "/pods"):
            met.meet("cannot list", path, "Connection refused")
        met.meet("cannot watch", "/pods", "Connection refused", level=logging.INFO)
        for path in ("/pods", "/nodes", "/pods"):
            met.meet("cannot list", path, "not you", 403)
        loop.call_later(3, met.end, "/pods", "cannot list")
        await asyncio.sleep(4)
        met.end("/nodes", "cannot list")
        met.end("/nodes", "cannot list")
        met.meet("cannot list", "/pods", "Connection refused")

    with caplog.at_level(logging.INFO, "stower.live.outages"):
        task = loop.create_task(story())
        loop.advance(5)
        loop.run(task)
    loop.end()
    assert [
        ("WARNING", "cannot list /pods: Connection refused"),
        ("INFO", "cannot watch /pods: Connection refused"),
        ("WARNING", "cannot list /pods: 403 not you"),
        ("WARNING", "cannot list /nodes: 403 not you"),
        ("INFO", "cannot list /pods: over after 3.0 s"),
        ("INFO", "cannot list /nodes: over after 4.0 s"),
        ("INFO", "cannot list /nodes: over after 4.0 s"),
        ("WARNING", "cannot list /pods: Connection refused"),
    ] == [(r.levelname, r.message) for r in caplog.records if r.name == "stower.live.outages"]


def test_only_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "OPEN_MAX", 3)

    async def story() -> None:
        met = Outages()
        for i in range(9):
            met.meet("cannot list", f"/{i}", "no", 500)
        assert 3 == len(met._open)

    asyncio.run(story())


CERTIFICATE = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate ...")
CERTIFICATE.verify_message = "self-signed certificate"
KEY: Any = SimpleNamespace(host="h", port=1, is_ssl=True, ssl=True)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
         "Connection refused"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, "Connect call failed")),
         "Connection refused"),
        (aiohttp.ServerDisconnectedError(), "the server closed the connection"),
        (aiohttp.ClientPayloadError("not completed: <TransferEncodingError: 400, message='x'>"),
         "the answer ended in its middle"),
        (aiohttp.SocketTimeoutError("Timeout on reading data"), "no answer in time"),
        (TimeoutError(), "no answer in time"),
        (CERTIFICATE, "the server's certificate is not valid: self-signed certificate"),
        (aiohttp.ClientConnectorCertificateError(KEY, CERTIFICATE),
         "the server's certificate is not valid: self-signed certificate"),
        (OSError("odd: <object at 0x1>"), "odd"),
        (ValueError("<object at 0x1>"), "ValueError"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_errors_are_told_in_words(error: BaseException, text: str) -> None:
    assert text == error_text(error)
