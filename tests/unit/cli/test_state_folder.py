"""The folder of a cluster: held by one process, written to by one user."""

import grp
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stower.cli import state_folder
from stower.cli.state_folder import (
    LOCK,
    UpError,
    check_trusted,
    hold_state,
    is_held,
    read_holder,
    stop_holder,
)
from stower.pki.trust import ACCESS_LIST

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


@pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("text", ["{pid}", "-1", "0", "1e3", "", "9" * 19])
def test_a_process_that_does_not_have_the_lock_is_not_the_holder(folder: Path, text: str) -> None:
    """Of an earlier holder the id may be left, which may be another process's by now."""
    with subprocess.Popen(["sleep", "60"]) as bystander, hold_state(folder):
        (folder / LOCK).write_text(text.format(pid=bystander.pid))
        assert is_held(folder)
        assert read_holder(folder) is None
        stop_holder(folder, bystander.pid)
        assert bystander.poll() is None
        bystander.kill()


def test_the_process_that_has_the_lock_is_stopped(folder: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from stower.cli.state_folder import hold_state\n"
        "with hold_state(Path(sys.argv[1])):\n print(flush=True)\n time.sleep(60)"
    )
    command = [sys.executable, "-c", code, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert holder.pid == read_holder(folder)
        stop_holder(folder, holder.pid)
        assert -signal.SIGTERM == holder.wait()
    stop_holder(folder, holder.pid)  # it has gone


def test_a_lock_is_not_followed_to_another_file(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (folder / LOCK).symlink_to(other)
    with pytest.raises(UpError, match="symbolic links"):
        hold_state(folder).__enter__()
    assert "kept" == other.read_text()


@pytest.mark.parametrize("name", ["", "kubeconfig", "pki", "pki/token", "logs/up.log"])
def test_what_everybody_can_write_to_is_not_trusted(folder: Path, name: str) -> None:
    path = folder / name
    if name == "pki":
        path.mkdir()
    elif name:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    path.chmod(0o702)
    with pytest.raises(UpError) as caught:
        check_trusted(folder)
    assert f"other users can write to {path}; take that away with `chmod go-w {path}`" in str(
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


def test_a_folder_whose_access_list_names_others_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of the group are then what those may do at most."""
    groups(monkeypatch, "me")
    folder.chmod(0o770)
    monkeypatch.setattr(os, "listxattr", lambda path: [ACCESS_LIST], raising=False)
    with pytest.raises(UpError, match="other users can write"):
        check_trusted(folder)
    folder.chmod(0o750)
    check_trusted(folder)


def test_a_folder_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "up.json").touch()
    monkeypatch.setattr(os, "geteuid", lambda: ME + 1000)
    if ME == 0:
        check_trusted(folder)  # root may write everywhere anyway
        return
    with pytest.raises(UpError, match=f"{folder} belongs to"):
        check_trusted(folder)


def test_a_file_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "up.json").touch()
    give_away(monkeypatch, folder / "up.json")
    with pytest.raises(UpError, match=r"up\.json belongs to user 4711"):
        check_trusted(folder)


def test_a_file_that_goes_meanwhile_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kubeconfig").touch()
    give_away(monkeypatch, folder / "kubeconfig")
    listed = [folder / "gone", folder / "kubeconfig"]
    monkeypatch.setattr(Path, "iterdir", lambda path: iter(listed))
    with pytest.raises(UpError, match="kubeconfig belongs to user 4711"):
        check_trusted(folder)


@pytest.mark.parametrize("link", ["cluster", "lab/cluster"])
def test_a_link_of_somebody_else_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """It may lead to another cluster of ours, which `stower down --delete` would delete."""
    (folder / "ours" / "cluster").mkdir(parents=True)
    (folder / "lab").symlink_to(folder / "ours")
    (folder / "cluster").symlink_to(folder / "ours" / "cluster")
    check_trusted(folder / link)
    give_away(monkeypatch, folder / link.partition("/")[0])
    with pytest.raises(UpError, match="belongs to user 4711"):
        check_trusted(folder / link)


def give_away(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """The path, but not what it leads to, belongs to somebody else."""
    whole = Path.lstat

    def lstat(asked: Path) -> os.stat_result:
        found = whole(asked)
        return os.stat_result((*found[:4], 4711, *found[5:])) if asked == path else found

    monkeypatch.setattr(Path, "lstat", lstat)


def test_a_folder_that_does_not_exist_is_no_fault(tmp_path: Path) -> None:
    check_trusted(tmp_path / "none")
    assert read_holder(tmp_path / "none") is None


def test_a_link_that_a_link_leads_to_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "real").mkdir()
    (folder / "between").symlink_to("real")
    (folder / "mine").symlink_to(folder / "real" / ".." / "between")
    check_trusted(folder / "mine")
    give_away(monkeypatch, folder / "between")
    with pytest.raises(UpError, match="between belongs to user 4711"):
        check_trusted(folder / "mine")


def test_links_without_an_end_are_an_error(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(UpError, match="too many links"):
        check_trusted(folder / "a")


def test_a_folder_of_keys_that_is_a_link_is_not_trusted(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "pki").symlink_to("elsewhere")
    with pytest.raises(UpError, match="pki is a link, want a folder"):
        check_trusted(folder)


@pytest.mark.parametrize("error", [OSError(38, "not implemented"), PermissionError(1, "sandbox")])
def test_a_kernel_without_descriptors_of_processes_will_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(pid: int) -> int:
        raise error

    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "pidfd_open", fail)
    monkeypatch.setattr(os, "kill", lambda *args: signals.append(args))
    with hold_state(folder):
        stop_holder(folder, os.getpid())
    assert [(os.getpid(), signal.SIGTERM)] == signals
