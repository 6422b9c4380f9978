"""MemoryApi: the API server of one process, with its handler and a client, without sockets."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from stower.api.registry import Registry
from stower.api.server import Api
from stower.apiserver.audit import Audit
from stower.apiserver.authentication import Access
from stower.apiserver.database import FILE, Committer, Database, WriteError
from stower.apiserver.handler import Handler
from stower.apiserver.tables import load_registry
from tests.unit.apiserver.memory import MemoryServer
from tests.wire import Wire

Object = dict[str, Any]
NOW_NS: Final = 1_790_000_000 * 10**9
TOKEN: Final = "secret-token"
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
REGISTRY: Final[Registry] = load_registry()


def config_map(name: str, **data: str) -> bytes:
    """Returns a ConfigMap as JSON."""
    return json.dumps({"metadata": {"name": name}, "data": data}).encode()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks the database of a state directory, so that all other writes to the database fail."""
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


class MemoryApi(MemoryServer):
    """An API server and the connection of one client, `wire`. With a database, a write is on disk
    before it is answered; without a database, objects exist in memory alone."""

    def __init__(
        self,
        by_roles: bool = False,
        audit: Path | None = None,
        database: Database | None = None,
    ) -> None:
        self.api = Api(REGISTRY, seed=1, secret="signs tokens", by_roles=by_roles)
        self.now_ns = NOW_NS
        self.audit = Audit(audit) if audit is not None else None
        self.handler = Handler(self.api, Access(TOKEN), lambda: self.now_ns, self.audit)
        super().__init__(self.handler, TOKEN, self.handler.admit)
        self.committer = self.loop.run(self._commit(database))
        self.handler.committer = self.committer
        self.api.bootstrap(self.now_ns)
        self.flush()
        self.wire = self.connect()

    async def _commit(self, database: Database | None) -> Committer:
        return Committer(self.api.store, database, self.handler.show)

    def flush(self) -> str:
        """Waits until all writes are on disk. Returns the reason if a write has failed, else ""."""
        try:
            self.loop.run(self.committer.flush())
        except WriteError as failure:
            return str(failure)
        finally:
            self.loop.turns()
        return ""

    def raw(
        self, method: str, path: str, body: bytes = b"", headers: Object | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and body of the answer to a request."""
        lines = {"Content-Length": len(body), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.wire.send(f"{method} {path} HTTP/1.1\r\n{head}", body)
        self.flush()
        return self.wire.answer()

    def call(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, Any]:
        """Returns status and JSON of the answer to a request. `kind`: the type of the body."""
        headers = {"Content-Type": kind or "application/json"} if body else {}
        status, _, answer = self.raw(method, path, body, headers)
        return status, json.loads(answer)

    def watch(self, query: str = "", path: str = CONFIG_MAPS) -> Wire:
        """Returns a connection on which the server sends the events of a watch."""
        wire = self.connect()
        wire.send(f"GET {path}?watch=1{query and '&'}{query} HTTP/1.1\r\n")
        status, headers, _ = wire.answer()
        assert (200, "chunked") == (status, headers["transfer-encoding"])
        return wire

    def end(self) -> None:
        """Closes all connections and the loop."""
        self.handler.close()
        if self.audit is not None:
            self.audit.close()
        self.flush()
        self.loop.run(self.committer.close())
        super().end()


def events(chunk: bytes) -> list[tuple[str, str]]:
    """Returns the type of each event in a chunk, and the name of the event's object."""
    found = [json.loads(line) for line in chunk.splitlines()]
    return [(one["type"], one["object"]["metadata"].get("name", "")) for one in found]
