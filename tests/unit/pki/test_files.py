"""A kill at any moment while files are written: the next start makes what is missing."""

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from stower.apiserver.server_process import _token
from stower.cli.serving_options import token_of
from stower.pki.certificates import make_certificates
from stower.pki.files import new_path, write_file, write_private

HOSTS = ("127.0.0.1",)
MORE_HOSTS = (*HOSTS, "example.com")
NAMES = ("ca", "server", "admin")
# Ends the process at the n-th operation on a file, as kill -9 would: before each operation, and
# after each opening for writing, when the file is there and empty.
KILLED = """
import os, pathlib, sys
from {module} import {name}
left, inside = int(sys.argv[2]), False
def kill(event, arguments):
    global left, inside
    if inside or event not in ("open", "os.remove", "os.rename", "os.mkdir"):
        return
    if sys.argv[1] not in str(arguments[0]):
        return
    left -= 1
    if left < 0:
        os._exit(9)
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        left -= 1
        if left < 0:
            inside = True
            os.open(arguments[0], arguments[2], 0o600)
            os._exit(9)
sys.addaudithook(kill)
{name}(pathlib.Path(sys.argv[1]){more})
"""
OPERATIONS_MAX = 60


def kill_everywhere(
    folder: Callable[[int], Path], module: str, name: str, more: str = ""
) -> list[Path]:
    """Runs a function that is killed at its first operation, its second, until it ends whole;
    returns the folder of each run."""
    found = []
    program = KILLED.format(module=module, name=name, more=more)
    for count in range(OPERATIONS_MAX):
        found.append(folder(count))
        command = [sys.executable, "-c", program, str(found[-1]), str(count)]
        if subprocess.run(command, check=False).returncode == 0:
            return found
    raise AssertionError(f"{name} has not ended after {OPERATIONS_MAX} operations")


def check_certificates(folder: Path, hosts: tuple[str, ...]) -> None:
    """Every key belongs to its certificate, and the authority has signed it."""
    make_certificates(folder, hosts)
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    for name in NAMES:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        certificate = x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert 0o600 == (folder / f"{name}.key").stat().st_mode & 0o777


@pytest.mark.parametrize("before", [(), HOSTS], ids=["new", "renewed"])
def test_certificates_fit_after_a_kill_at_any_moment(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    def folder(count: int) -> Path:
        path = tmp_path / str(count)
        if before:
            make_certificates(path, before)
        return path

    module = "stower.pki.certificates"
    folders = kill_everywhere(folder, module, "make_certificates", f", {MORE_HOSTS!r}")
    assert len(folders) > (4 if before else 10)
    for path in folders:
        check_certificates(path, MORE_HOSTS)


def test_authority_whose_key_is_gone_is_replaced_whole(tmp_path: Path) -> None:
    """Also where that is killed half-way."""

    def folder(count: int) -> Path:
        path = tmp_path / str(count)
        make_certificates(path, HOSTS)
        (path / "ca.key").unlink()
        return path

    module = "stower.pki.certificates"
    for path in kill_everywhere(folder, module, "make_certificates", f", {HOSTS!r}"):
        check_certificates(path, HOSTS)


@pytest.mark.parametrize("place", ["server", "dashboard"])
def test_token_is_whole_after_a_kill_at_any_moment(tmp_path: Path, place: str) -> None:
    """An empty one would let in whoever has none."""

    def folder(count: int) -> Path:
        path = tmp_path / str(count)
        path.mkdir()
        return path if place == "server" else path / "token"

    function = _token if place == "server" else token_of
    for path in kill_everywhere(folder, function.__module__, function.__name__):
        token = function(path)
        assert len(token) > 30
        assert token == function(path)


def test_private_file_replaces_a_file_that_others_could_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (b"new", 0o600) == (path.read_bytes(), path.stat().st_mode & 0o777)
    assert ["token"] == os.listdir(tmp_path)


def test_file_that_a_kill_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    new_path(path).write_text("half")
    write_file(path, b"whole")
    assert b"whole" == path.read_bytes()
    assert ["up.json"] == os.listdir(tmp_path)
