"""Database and Committer: the contents of a state directory, refused files, results of commits."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stower.api.store import Collection, Event, Store
from stower.apiserver import database as database_module
from stower.apiserver.database import (
    BATCH_MAX,
    FILE,
    Committer,
    Database,
    StateError,
    WriteError,
)
from tests.unit.apiserver.memory_api import locked

KIND = ("", "configmaps")


def make_store() -> Store:
    return Store(lambda name: None)


def put(store: Store, name: str, **fields: Any) -> int:
    """Stores an object. Returns its revision."""
    item = {"metadata": {"name": name, "uid": f"uid-of-{name}"}, **fields}
    return store.put(store.collection(KIND), f"default/{name}", item).revision


def remove(store: Store, name: str) -> int:
    collection = store.collection(KIND)
    key = f"default/{name}"
    return store.remove(collection, key, collection.records[key].decode()).revision


def names(store: Store) -> list[str]:
    return [key.partition("/")[2] for key in store.collection(KIND).keys]


def kept(folder: Path) -> list[str]:
    """Returns the names of the objects in a state directory that no server uses."""
    database, store = Database(folder), make_store()
    assert database.load(store) == len(names(store))
    database.close()
    return names(store)


def taken(store: Store) -> list[tuple[Collection, Event]]:
    return store.take_pending(1_000)


# The state directory


def test_objects_and_revision_survive_a_restart(tmp_path: Path) -> None:
    store, database = make_store(), Database(tmp_path / "new" / "folder")
    store.durable = True
    put(store, "a", data={"k": "old"})
    put(store, "gone")
    database.commit(taken(store))
    put(store, "a", data={"k": "new"})
    remove(store, "gone")
    put(store, "short")
    last = remove(store, "short")
    database.commit(taken(store))
    database.close()
    again, database = make_store(), Database(tmp_path / "new" / "folder")
    assert 1 == database.load(again)
    assert ["a"] == names(again)
    assert {"k": "new"} == again.collection(KIND).records["default/a"].decode()["data"]
    assert (last, last) == (again.revision, again.visible)
    assert again.collection(KIND).events_after(last - 1) is None, "history is forgotten"
    database.close()


def test_a_new_state_directory_is_private_and_empty(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    database, store = Database(folder), make_store()
    assert 0 == database.load(store)
    assert 1 == store.revision
    assert (0o700, 0o600) == (
        folder.stat().st_mode & 0o777, (folder / FILE).stat().st_mode & 0o777
    )  # fmt: skip
    database.close()


def test_a_state_directory_has_one_server_at_a_time(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(StateError, match="another stower apiserver uses this state directory"):
        Database(tmp_path)
    database.close()
    Database(tmp_path).close()


def test_values_beside_the_objects_survive_a_restart(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.set_value("a", "1")
    database.set_value("a", "2")
    database.close()
    database = Database(tmp_path)
    assert ("2", None) == (database.value("a"), database.value("b"))
    database.close()


def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    before = b"this is no database" * 1000
    (tmp_path / FILE).write_bytes(before)
    for _ in range(2):  # the first attempt leaves no lock
        with pytest.raises(StateError, match="not a database; nothing was changed"):
            Database(tmp_path)
    assert before == (tmp_path / FILE).read_bytes()


def test_a_damaged_page_is_found_before_anything_is_served(tmp_path: Path) -> None:
    store, database = make_store(), Database(tmp_path)
    store.durable = True
    for number in range(200):
        put(store, f"m{number}", text="x" * 200)
    database.commit(taken(store))
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    data[8192 * 2 : 8192 * 3] = b"\xff" * 8192
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(StateError, match="nothing was changed"):
        Database(tmp_path)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.set_value("format", "99")
    database.close()
    for _ in range(2):
        with pytest.raises(StateError, match="format 99 is not supported, want 1"):
            Database(tmp_path)


@pytest.mark.parametrize(
    ("key", "data"), [("no-slashes", b"{}"), ("/configmaps/a", b"no JSON"), ("/configmaps/a", b"1")]
)
def test_an_unreadable_object_is_a_state_error(tmp_path: Path, key: str, data: bytes) -> None:
    database = Database(tmp_path)
    database.connection.execute("INSERT INTO obj (key, rv, data) VALUES (?, 1, ?)", (key, data))
    with pytest.raises(StateError, match="cannot read the objects"):
        database.load(make_store())
    database.close()


def test_a_batch_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    store, database = make_store(), Database(tmp_path)
    store.durable = True
    put(store, "before")
    database.commit(taken(store))
    pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
    database.connection.execute(f"PRAGMA max_page_count = {pages}")  # the disk is full
    put(store, "small")
    put(store, "big", text="x" * 500_000)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        database.commit(taken(store))
    assert not database.connection.in_transaction
    database.close()
    assert ["before"] == kept(tmp_path)


def test_a_commit_that_raises_leaves_no_open_transaction(tmp_path: Path) -> None:
    store, database = make_store(), Database(tmp_path)
    store.durable = True
    store.revision = 2**63  # more than SQLite can store
    put(store, "a")
    with pytest.raises(OverflowError):
        database.commit(taken(store))
    assert not database.connection.in_transaction
    database.close()


# Commits


class Told:
    """The calls that a Committer has made: the number of `shown`, and each answer."""

    def __init__(self) -> None:
        self.shown = 0
        self.answers: list[tuple[int, str]] = []

    def show(self) -> None:
        self.shown += 1

    def answer(self, revision: int) -> Callable[[str], None]:
        return lambda failure: self.answers.append((revision, failure))


def run(
    folder: Path | None, work: Callable[[Store, Committer, Told], Awaitable[None]]
) -> list[str]:
    """Runs the work with a Committer, which has a database if there is a folder. Returns the names
    of the objects in the store at the end."""

    async def main() -> list[str]:
        database = Database(folder) if folder is not None else None
        store, told = make_store(), Told()
        committer = Committer(store, database, told.show)
        try:
            async with asyncio.timeout(60):
                await work(store, committer, told)
        finally:
            await committer.close()
            if database is not None:
                database.close()
        return names(store)

    return asyncio.run(main())


def ask(committer: Committer, told: Told, revisions: Iterable[int]) -> None:
    for revision in revisions:
        committer.call_when_durable(revision, told.answer(revision))


def test_writes_without_a_database_are_visible_at_once() -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        committer.on_write()
        first = told.shown
        put(store, "a")
        put(store, "b")
        committer.on_write()
        committer.on_write()
        assert first + 1 == told.shown, "once for both"
        assert committer.is_durable(store.revision)
        await committer.flush()

    assert ["a", "b"] == run(None, work)


def test_a_write_is_visible_and_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        before = store.visible
        revision = put(store, "a")
        ask(committer, told, [revision])
        committer.on_write()
        assert not committer.is_durable(revision)
        assert (before, 0, []) == (store.visible, told.shown, told.answers)
        await committer.flush()
        assert committer.is_durable(revision)
        assert (revision, 1, [(revision, "")]) == (store.visible, told.shown, told.answers)

    run(tmp_path, work)
    assert ["a"] == kept(tmp_path)


def test_writes_during_a_commit_are_part_of_the_next_commit(tmp_path: Path) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        first = put(store, "first")
        committer.on_write()
        await asyncio.sleep(0)  # the writer takes the first alone
        later = [put(store, f"m{number}") for number in range(BATCH_MAX + 10)]
        ask(committer, told, [first, *later])
        committer.on_write()
        await committer.flush()
        assert [(revision, "") for revision in (first, *later)] == told.answers
        assert 3 == told.shown, "the first, then the largest batch, then the rest"

    run(tmp_path, work)
    assert BATCH_MAX + 11 == len(kept(tmp_path))


def test_writes_that_come_together_are_one_commit(tmp_path: Path) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        for name in ("a", "b", "c"):  # as requests that one turn of the loop carries out
            put(store, name)
            committer.on_write()
        await committer.flush()
        assert 1 == told.shown

    run(tmp_path, work)
    assert ["a", "b", "c"] == kept(tmp_path)


def test_after_a_slow_commit_the_writer_waits_for_a_larger_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SLOW_COMMIT_S", -1.0)  # every commit is slow
    monkeypatch.setattr(database_module, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(database_module, "WAIT_MAX_S", 3600.0)

    async def work(store: Store, committer: Committer, told: Told) -> None:
        shown = asyncio.Event()
        for name in ("a", "b"):
            put(store, name)
        ask(committer, told, [store.revision])
        committer.call_when_durable(store.revision, lambda _: shown.set())
        committer.on_write()
        await asyncio.sleep(0)
        put(store, "c")  # comes while the writer is busy
        await shown.wait()
        committer.on_write()
        assert not committer.is_durable(store.revision), "one write is too few"
        put(store, "d")
        committer.on_write()
        assert 2 == len(store.pending)
        put(store, "e")
        committer.on_write()
        assert [] == store.pending, "three writes are 1.5 times the last batch"
        await committer.flush()
        assert 2 == told.shown

    run(tmp_path, work)
    assert ["a", "b", "c", "d", "e"] == kept(tmp_path)


def test_after_a_slow_commit_a_small_batch_is_written_when_the_wait_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SLOW_COMMIT_S", -1.0)

    async def work(store: Store, committer: Committer, told: Told) -> None:
        for name in ("a", "b"):
            put(store, name)
        committer.on_write()
        await asyncio.sleep(0)
        for number, name in enumerate(("c", "d"), 2):
            put(store, name)
            await committer.flush()
            assert number == told.shown

    run(tmp_path, work)
    assert ["a", "b", "c", "d"] == kept(tmp_path)


def test_a_failed_commit_undoes_its_writes_and_all_later_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        put(store, "before")
        await committer.flush()
        visible = store.visible
        for attempt in range(3):
            with locked(tmp_path):
                revision = put(store, "lost")
                committer.on_write()
                later = put(store, "later")  # not part of the failed commit
                ask(committer, told, [revision, later])
                with pytest.raises(WriteError, match="database is locked"):
                    await committer.flush()
            why = "database is locked"
            assert [(revision, why), (later, why)] == told.answers[2 * attempt :]
            assert (visible, visible) == (store.revision, store.visible)
        assert ["before"] == names(store)
        put(store, "after")
        await committer.flush()

    with caplog.at_level(logging.INFO):
        assert ["after", "before"] == run(tmp_path, work)
    assert ["after", "before"] == kept(tmp_path)
    failed = "cannot commit to the database; writes are rolled back and get status 500"
    messages = [record.message for record in caplog.records]
    assert [f"{failed}: database is locked", "commits to the database succeed again"] == messages


def test_other_answers_are_given_when_one_answer_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        def bad(failure: str) -> None:
            raise KeyError("a fault")

        revision = put(store, "a")
        committer.call_when_durable(revision, bad)
        ask(committer, told, [revision])
        with caplog.at_level(logging.ERROR):
            await committer.flush()
        assert [(revision, "")] == told.answers
        assert "cannot send the response to a write" in caplog.text

    run(tmp_path, work)


def test_closing_a_committer_writes_all_pending_objects(tmp_path: Path) -> None:
    async def work(store: Store, committer: Committer, told: Told) -> None:
        put(store, "a")
        committer.on_write()
        put(store, "b")

    run(tmp_path, work)
    assert ["a", "b"] == kept(tmp_path)
