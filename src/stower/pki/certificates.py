"""Makes a certificate authority, and the certificates of one server and one client signed by it."""

import datetime
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stower.pki.files import write_file, write_private

YEARS: Final = 10
USER: Final = "admin"
GROUP: Final = "system:masters"


def make_certificates(folder: Path, hosts: tuple[str, ...]) -> None:
    """Make ca, server and admin as .crt and .key where they are missing; keys are private.

    The server's is made anew when it does not stand for one of the hosts.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "ca.crt").exists() or not (folder / "ca.key").exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stower-ca")])
        certificate = _builder(name, name, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256())  # fmt: skip
        for other in ("server", "admin"):
            (folder / f"{other}.crt").unlink(missing_ok=True)
        _write(folder, "ca", certificate, key)
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    if not _stands_for(folder / "server.crt", hosts):
        names = [_general_name(host) for host in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stower-apiserver")])
        _sign(folder, "server", subject, authority, signer, ExtendedKeyUsageOID.SERVER_AUTH, names)
    if not (folder / "admin.crt").exists():
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, GROUP),
                x509.NameAttribute(NameOID.COMMON_NAME, USER),
            ]
        )
        _sign(folder, "admin", subject, authority, signer, ExtendedKeyUsageOID.CLIENT_AUTH, [])


def make_self_signed(name: str, hosts: tuple[str, ...]) -> bytes:
    """A certificate for these hosts that nobody else vouches for, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + _pem(key)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(
    folder: Path,
    name: str,
    subject: x509.Name,
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    purpose: x509.ObjectIdentifier,
    names: list[x509.GeneralName],
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write(folder, name, builder.sign(signer, hashes.SHA256()), key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _stands_for(path: Path, hosts: tuple[str, ...]) -> bool:
    if not path.exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    known = {str(n) for n in names.get_values_for_type(x509.IPAddress)}
    known |= set(names.get_values_for_type(x509.DNSName))
    return set(hosts) <= known


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    """Writes the certificate last: where it is, the key belongs to it, whenever we are killed."""
    (folder / f"{name}.crt").unlink(missing_ok=True)
    write_private(folder / f"{name}.key", _pem(key))
    write_file(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
