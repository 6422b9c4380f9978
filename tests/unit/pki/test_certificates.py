"""stower.pki.certificates: an authority, and the certificates that the authority signs."""

import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stower.pki.certificates import make_certificates, make_self_signed

HOSTS = ("127.0.0.1", "localhost")
FILES = {f"{name}.{kind}" for name in ("ca", "server", "admin") for kind in ("crt", "key")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def names(of: x509.Certificate) -> tuple[list[str], list[str]]:
    """DNS names and IP addresses of a certificate."""
    found = of.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = found.get_values_for_type(x509.IPAddress)
    return found.get_values_for_type(x509.DNSName), [str(address) for address in addresses]


def purposes(of: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(of.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder in which all certificates have just been made."""
    folder = tmp_path / "new" / "pki"
    make_certificates(folder, HOSTS)
    return folder


def test_authority_signs_the_certificates_of_server_and_client(made: Path) -> None:
    authority, server, admin = (certificate(made, name) for name in ("ca", "server", "admin"))
    for signed in (server, admin):
        signed.verify_directly_issued_by(authority)
    basic = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (True, 0) == (basic.ca, basic.path_length)
    assert [ExtendedKeyUsageOID.SERVER_AUTH] == purposes(server)
    assert [ExtendedKeyUsageOID.CLIENT_AUTH] == purposes(admin)
    assert (["localhost"], ["127.0.0.1"]) == names(server)
    subject = {part.oid: part.value for part in admin.subject}
    assert {
        NameOID.ORGANIZATION_NAME: "system:masters",
        NameOID.COMMON_NAME: "admin",
    } == subject


def test_only_the_owner_can_read_folder_and_keys(made: Path) -> None:
    assert FILES == set(contents(made))
    assert 0o700 == made.stat().st_mode & 0o777
    for name in ("ca", "server", "admin"):
        assert 0o600 == (made / f"{name}.key").stat().st_mode & 0o777


def test_certificates_that_exist_are_kept(made: Path) -> None:
    before = contents(made)
    make_certificates(made, HOSTS)
    make_certificates(made, HOSTS[:1])
    assert before == contents(made)


def test_new_host_replaces_the_certificate_of_the_server_alone(made: Path) -> None:
    before = contents(made)
    make_certificates(made, (*HOSTS, "::1", "api.example.com"))
    after = contents(made)
    changed = {name for name in FILES if before[name] != after[name]}
    assert {"server.crt", "server.key"} == changed
    assert (["localhost", "api.example.com"], ["127.0.0.1", "::1"]) == names(
        certificate(made, "server")
    )


def test_server_certificate_without_names_is_replaced(made: Path) -> None:
    """The certificate of the client has no subjectAltName."""
    (made / "server.crt").write_bytes((made / "admin.crt").read_bytes())
    make_certificates(made, HOSTS)
    assert (["localhost"], ["127.0.0.1"]) == names(certificate(made, "server"))


@pytest.mark.parametrize("lost", ["ca.key", "ca.crt"])
def test_half_of_an_authority_makes_everything_anew(made: Path, lost: str) -> None:
    before = contents(made)
    (made / lost).unlink()
    make_certificates(made, HOSTS)
    after = contents(made)
    assert [] == [name for name in FILES if before[name] == after[name]]
    for name in ("server", "admin"):
        certificate(made, name).verify_directly_issued_by(certificate(made, "ca"))


def test_lost_certificate_of_the_client_is_made_again(made: Path) -> None:
    before = contents(made)
    (made / "admin.crt").unlink()
    make_certificates(made, HOSTS)
    after = contents(made)
    changed = {name for name in FILES if before[name] != after[name]}
    assert {"admin.crt", "admin.key"} == changed


def test_client_that_trusts_the_authority_accepts_the_server(made: Path) -> None:
    """A TLS handshake in memory, with the host name checked."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(made / "server.crt", made / "server.key")
    trusting = ssl.create_default_context(cafile=str(made / "ca.crt"))
    assert handshake(serving, trusting, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example\.com"):
        handshake(serving, trusting, "other.example.com")


def handshake(serving: ssl.SSLContext, trusting: ssl.SSLContext, host: str) -> bool:
    """Completes a TLS handshake without sockets."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        trusting.wrap_bio(to_client, to_server, server_hostname=host),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    return not waiting


def test_self_signed_certificate_is_its_own_issuer_and_no_authority() -> None:
    pem = make_self_signed("stower", ("::1", "example.com"))
    found = x509.load_pem_x509_certificate(pem)
    assert found.issuer == found.subject
    found.verify_directly_issued_by(found)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (["example.com"], [str(ip_address("::1"))]) == names(found)
    assert b"BEGIN PRIVATE KEY" in pem
