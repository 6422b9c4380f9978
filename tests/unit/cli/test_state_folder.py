"""The folder of a cluster: held by one process, written to by one user."""

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stower.cli import state_folder
from stower.cli.state_folder import LOCK, UpError, check_trusted, hold_state, is_held, read_holder

ME = os.geteuid()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are held are seen at once."""
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    yield tmp_path
    tmp_path.chmod(0o700)


def test_a_new_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with hold_state(tmp_path / "a" / "b"):
            pass
    finally:
        os.umask(old)
    assert 0o700 == (tmp_path / "a" / "b").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "a" / "b" / LOCK).stat().st_mode & 0o777


def test_the_holder_is_the_process_that_has_the_lock(folder: Path) -> None:
    assert read_holder(folder) is None
    with hold_state(folder):
        assert os.getpid() == read_holder(folder)
        assert is_held(folder)
        assert os.getpid() == read_holder(folder), "looking changes nothing"
    assert read_holder(folder) is None
    (folder / LOCK).write_text("1\n")
    assert read_holder(folder) is None, "nobody has the lock"


def test_a_lock_is_not_followed_to_another_file(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (folder / LOCK).symlink_to(other)
    with pytest.raises(UpError, match="symbolic links"):
        hold_state(folder).__enter__()
    assert "kept" == other.read_text()


@pytest.mark.parametrize("name", ["", "kubeconfig", "pki"])
def test_what_everybody_can_write_to_is_not_trusted(folder: Path, name: str) -> None:
    path = folder / name
    if name == "pki":
        path.mkdir()
    elif name:
        path.touch()
    path.chmod(0o702)
    with pytest.raises(UpError) as caught:
        check_trusted(folder)
    what = name or "the folder"
    assert f"other users can write to {what}; take that away with `chmod go-w {path}`" in str(
        caught.value
    )
    path.chmod(0o755)
    check_trusted(folder)


def groups(monkeypatch: pytest.MonkeyPatch, name: str, *members: str) -> None:
    """Has the user me, whose main group is of a name and has more members."""

    def group_of(gid: int) -> Any:
        return SimpleNamespace(gr_name=name, gr_gid=gid, gr_mem=[*members])

    gid = os.getegid()
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me", pw_gid=gid))
    monkeypatch.setattr(grp, "getgrgid", group_of)


@pytest.mark.parametrize(
    ("group", "members", "is_trusted"),
    [("me", (), True), ("me", ("me",), True), ("me", ("me", "eve"), False), ("staff", (), False)],
)
def test_a_group_that_can_write_is_trusted_if_it_is_the_users_own(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    members: tuple[str, ...],
    is_trusted: bool,
) -> None:
    groups(monkeypatch, group, *members)
    folder.chmod(0o770)
    if is_trusted:
        check_trusted(folder)
    else:
        with pytest.raises(UpError, match="other users can write"):
            check_trusted(folder)


def test_a_folder_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "up.json").touch()
    monkeypatch.setattr(os, "geteuid", lambda: ME + 1000)
    if ME == 0:
        check_trusted(folder)  # root may write everywhere anyway
        return
    with pytest.raises(UpError, match="the folder belongs to"):
        check_trusted(folder)


def test_a_file_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "up.json").touch()
    whole = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        found = whole(path)
        return os.stat_result((*found[:4], 4711, *found[5:]))

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(UpError, match=r"up\.json belongs to user 4711"):
        check_trusted(folder)


def test_a_folder_that_does_not_exist_is_no_fault(tmp_path: Path) -> None:
    check_trusted(tmp_path / "none")
    assert read_holder(tmp_path / "none") is None
