"""stower.pki.server_certificate: the TLS context of a server, and new certificates of its files."""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from stower.pki.certificates import make_self_signed
from stower.pki.server_certificate import LOOK_SECONDS, Serving, ServingError
from tests.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


def shown(context: ssl.SSLContext) -> x509.Certificate:
    """The certificate that a server with the context presents."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


class Files:
    """Certificate and key of a server, in one file each."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.age_ns = 0
        self.write("first")

    def write(self, name: str) -> None:
        """Replaces both by a certificate for the name; the times of the files advance."""
        pem = make_self_signed(name, ("localhost",))
        at = pem.index(b"-----BEGIN PRIVATE KEY")
        self.put(pem[:at], pem[at:])

    def put(self, certificate: bytes, key: bytes) -> None:
        self.age_ns += 10**9
        for path, data in ((self.certificate, certificate), (self.key, key)):
            path.write_bytes(data)
            os.utime(path, ns=(self.age_ns, self.age_ns))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def name(context: ssl.SSLContext) -> str:
    return shown(context).subject.rfc4514_string()


def test_server_without_files_presents_a_certificate_for_its_hosts(loop: VirtualLoop) -> None:
    serving = Serving(None, None, ("127.0.0.1", "here.example.com"))
    assert ssl.TLSVersion.TLSv1_2 == serving.context.minimum_version
    found = shown(serving.context)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ["here.example.com"] == names.get_values_for_type(x509.DNSName)
    loop.run(serving.keep_fresh())  # returns: there are no files to look at


def test_changed_files_are_presented_after_the_next_look(
    loop: VirtualLoop, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    serving = Serving(files.certificate, files.key, ())
    assert "CN=first" == name(serving.context)
    loop.create_task(serving.keep_fresh())
    loop.advance(LOOK_SECONDS)
    assert [] == caplog.messages
    files.write("second")
    loop.advance(LOOK_SECONDS)
    assert "CN=second" == name(serving.context)
    assert [f"reloaded the certificate {files.certificate}"] == caplog.messages


def test_unusable_files_leave_the_previous_certificate_in_place(
    loop: VirtualLoop, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that does not belong to the certificate, then no files at all."""
    serving = Serving(files.certificate, files.key, ())
    loop.create_task(serving.keep_fresh())
    certificate = files.certificate.read_bytes()
    files.write("second")
    files.put(certificate, files.key.read_bytes())
    loop.advance(LOOK_SECONDS)
    (message,) = caplog.messages
    assert message.startswith(f"cannot reload the certificate {files.certificate}, still serving")
    caplog.clear()
    files.key.unlink()
    loop.advance(LOOK_SECONDS)
    assert ([], "CN=first") == (caplog.messages, name(serving.context))
    files.write("third")
    loop.advance(LOOK_SECONDS)
    assert "CN=third" == name(serving.context)


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_files_that_cannot_be_loaded_are_an_error_at_the_start(
    files: Files, content: bytes | None
) -> None:
    if content is None:
        files.certificate.unlink()
    else:
        files.certificate.write_bytes(content)
    with pytest.raises(ServingError, match=f"cannot load {files.certificate} and {files.key}: "):
        Serving(files.certificate, files.key, ())


def test_a_look_that_is_cancelled_ends(loop: VirtualLoop, files: Files) -> None:
    task = loop.create_task(Serving(files.certificate, files.key, ()).keep_fresh(0.5))
    loop.advance(2.0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
