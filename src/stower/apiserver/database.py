"""Stores objects on disk: SQLite in WAL mode, synchronous FULL, one writer thread, group commit.

The writer commits everything that is queued at once; see Committer for the time of a commit.
Writes of a commit are answered in the order of revisions. A commit that fails rolls back its
batch and all later writes.
"""

import asyncio
import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stower.api.store import DELETED, Collection, Event, Store
from stower.pki.files import create_private

log = logging.getLogger(__name__)

Batch = list[tuple[Collection, Event]]

FILE: Final = "stower.db"
LOCK: Final = "lock"
LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
BATCH_MAX: Final = 256
PAGE_BYTES: Final = 8192
CHECKPOINT_PAGES: Final = 1000  # 4000 pauses for 25 ms
SLOW_COMMIT_S: Final = 0.0008
WAIT_SHARE: Final = 0.3  # of the last commit's duration, to let a batch gather
WAIT_MAX_S: Final = 0.004

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS obj (id INTEGER PRIMARY KEY, key TEXT UNIQUE, rv INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
UPSERT: Final = (
    "INSERT INTO obj (key, rv, data) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET rv = excluded.rv, data = excluded.data"
)
FORMAT: Final = "1"


class StateError(Exception):
    """The state directory cannot be used; the message says why and what to do."""


class Database:
    """The file of one state directory, held by one server."""

    def __init__(self, folder: Path) -> None:
        """Open or make it. Raises StateError."""
        self.path = folder / FILE
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / LOCK, LOCK_FLAGS, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StateError(
                f"{folder}: another stower apiserver uses this state directory; stop it, or give "
                "--state another directory"
            ) from None
        try:
            self._open()
        except sqlite3.Error as error:
            os.close(self._lock)
            raise StateError(
                f"{self.path}: {error}; nothing was changed. Move the file away to start with an "
                "empty cluster, or restore it from a copy"
            ) from None
        except StateError:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        create_private(self.path)
        self.connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=0
        )
        found = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if found[0] != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged: {found[0]}")
        self.connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StateError(
                f"{self.path}: SQLite cannot use a write-ahead log on this file system (journal "
                f"mode {mode}); give --state a directory on another file system"
            )
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self.connection.executescript(SCHEMA)
        stored = self.value("format")
        if stored is None:
            self.set_value("format", FORMAT)
        elif stored != FORMAT:
            raise StateError(
                f"{self.path}: format {stored} is not supported, want {FORMAT}; the file is from "
                "another version of stower"
            )

    def value(self, name: str) -> str | None:
        """A value beside the objects."""
        found = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def set_value(self, name: str, value: str) -> None:
        """Keep a value beside the objects."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def load(self, store: Store) -> int:
        """Give all objects to the store; how many they are. Raises StateError."""
        count = 0
        try:
            for key, revision, data in self.connection.execute("SELECT key, rv, data FROM obj"):
                group, plural, rest = key.split("/", 2)
                collection = store.collection((group, plural))
                store.load(collection, rest, bytes(data), revision)
                count += 1
            stored = self.value("revision")
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.path}: cannot read the objects: {error}; nothing was changed"
            ) from None
        store.finish_load(max(1, int(stored or 1)))
        return count

    def commit(self, batch: Batch) -> None:
        """Make a batch durable, all of it or nothing. Raises sqlite3.Error."""
        last: dict[str, tuple[int, bytes | None]] = {}
        for collection, event in batch:
            group, plural = collection.name
            key = f"{group}/{plural}/{event.record.key}"
            gone = event.type == DELETED
            last[key] = (event.revision, None if gone else event.record.raw)
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            kept = [(key, rv, raw) for key, (rv, raw) in last.items() if raw is not None]
            lost = [(key,) for key, (_, raw) in last.items() if raw is None]
            if kept:
                self.connection.executemany(UPSERT, kept)
            if lost:
                self.connection.executemany("DELETE FROM obj WHERE key = ?", lost)
            self.set_value("revision", str(batch[-1][1].revision))
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file and let another server have it."""
        self.connection.close()
        os.close(self._lock)


class Committer:
    """Brings the store's writes to disk, and tells who waits for them.

    An idle writer takes all that is queued, once the requests that came together are carried out:
    a commit of one write costs as much as one of twenty. Refilling at once would split clients that
    wait for answers into alternating halves, so after a slow commit it waits a little, or until one
    and a half times the last batch has come.
    """

    def __init__(self, store: Store, database: Database | None, shown: Callable[[], None]) -> None:
        """`shown` is called when the store may show more."""
        self.store = store
        self.database = database
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._busy = False
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[int, Callable[[str], None]]] = deque()
        self._last_size = 0
        self._last_duration = 0.0
        self._thread: threading.Thread | None = None
        if database is not None:
            store.durable = True
            self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
            self._thread.start()

    def on_write(self) -> None:
        """The store may have new writes."""
        store = self.store
        if self.database is None:
            if store.visible > self._told:
                self._told = store.visible
                self._shown()
            return
        if self._busy or not store.pending:
            return
        if self._timer is not None:
            if len(store.pending) >= self._last_size * 1.5:
                self._timer.cancel()
                self._start()
            return
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._start)

    _told = 0

    def _start(self) -> None:
        self._timer = None
        self._is_due = False
        if self._busy or not self.store.pending:
            return
        self._busy = True
        self._jobs.put(self.store.take_pending(BATCH_MAX))

    def _write(self) -> None:
        assert self.database is not None
        while (batch := self._jobs.get()) is not None:
            began = time.monotonic()
            failure: BaseException | None = None
            try:
                self.database.commit(batch)
            except Exception as error:
                failure = error
            duration = time.monotonic() - began
            try:
                self._loop.call_soon_threadsafe(self._on_batch_end, batch, failure, duration)
            except RuntimeError:  # the loop has ended
                return

    def _on_batch_end(self, batch: Batch, failure: BaseException | None, duration: float) -> None:
        self._busy = False
        self._last_size, self._last_duration = len(batch), duration
        revision = batch[-1][1].revision
        self._report(failure)
        if failure is None:
            self.store.publish(revision)
            self._answer(revision, "")
            self._shown()
        else:
            self.store.undo(batch)
            self._answer(1 << 62, str(failure) or type(failure).__name__)
        if not self.store.pending:
            return
        full = len(self.store.pending) >= self._last_size * 1.5
        if duration > SLOW_COMMIT_S and not full:
            delay = min(WAIT_SHARE * duration, WAIT_MAX_S)
            self._timer = self._loop.call_later(delay, self._start)
        else:
            self._start()

    def _report(self, failure: BaseException | None) -> None:
        """Say so once when commits begin to fail, and when they no longer do."""
        if failure is not None and not self._failing:
            log.error(
                "cannot commit to the database; writes are rolled back and get status 500: %s",
                failure,
            )
        elif failure is None and self._failing:
            log.warning("commits to the database succeed again")
        self._failing = failure is not None

    _failing = False

    def _answer(self, revision: int, failure: str) -> None:
        waiting, due = self._waiting, []
        while waiting and waiting[0][0] <= revision:
            due.append(waiting.popleft()[1])
        # Whoever is told may write at once, and waits for another commit than this.
        for told in due:
            try:
                told(failure)
            except Exception:  # the others must hear of it all the same
                log.exception("cannot send the response to a write")

    def is_durable(self, revision: int) -> bool:
        """Whether everything up to the revision is on disk."""
        return revision <= self.store.visible or not (self._busy or self.store.pending)

    def call_when_durable(self, revision: int, told: Callable[[str], None]) -> None:
        """Call with nothing when all up to this revision is on disk, or with why it never will be.

        Revisions must not go down from one call to the next.
        """
        self._waiting.append((revision, told))

    async def flush(self) -> None:
        """Wait until all that was written is on disk. Raises WriteError."""
        self.on_write()
        if self.is_durable(self.store.revision):
            return
        future: asyncio.Future[str] = self._loop.create_future()
        self.call_when_durable(self.store.revision, future.set_result)
        if failure := await future:
            raise WriteError(failure)

    async def close(self) -> None:
        """Finish what is queued, then end the writer."""
        while self._busy or self.store.pending:
            self._start()
            await asyncio.sleep(0.001)
        self._jobs.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)


class WriteError(Exception):
    """What was written is not durable, and was taken back."""
