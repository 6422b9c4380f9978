"""Reads the days of a hub: a table, JupyterHub's event log or its list of users, or a recording.

Sources of the forms: https://jupyterhub.readthedocs.io/en/stable/reference/server-actions.html (one
JSON object a line: action start or stop, username, servername, __timestamp__) and the REST API's
GET /users (servers with started and last_activity).
"""

import csv
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from stower.framework.events import Event, Listed, Observed, WatchType
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import Packing
from stower.model.resources import parse_list
from stower.model.times import SECOND_NS, time_ns
from stower.sim.hub_day import EPOCH_NS, Day, User, draw_nodes

HOUR_S: Final = 3600.0
DAYS_MAX: Final = 31
LAST_S: Final = 7_258_118_400  # 2200-01-01
USERS_MAX: Final = 200_000
# Columns of a table: seconds since any moment, or RFC 3339 times.
ARRIVALS: Final = ("arrival", "arrival_s", "start", "started")
ENDS: Final = ("end", "end_s", "stop", "stopped")
LIVES: Final = ("life_s",)
ACTIVE: Final = ("last_activity", "active_s")
RESOURCES: Final = ("cpu", "memory")
COLUMNS: Final = f"columns {ARRIVALS[0]} and {ENDS[0]} (seconds, or RFC 3339 times)"


class Session(msgspec.Struct, frozen=True):
    """One server of a user, in seconds since the epoch, or since any moment; `end_s` infinite: it
    still runs; `active_s`: for how long it was active, infinite where it is not known."""

    start_s: float
    end_s: float = math.inf
    active_s: float = math.inf
    requests: tuple[tuple[str, str], ...] = ()


def read_table(lines: Iterable[str]) -> list[Session]:
    """Sessions of a CSV table with a header. Raises InvalidObject with line and column."""
    reader = csv.DictReader(lines)
    try:
        return [*_table_sessions(reader)]
    except csv.Error as error:
        raise InvalidObject(f"line {reader.line_num}", str(error), "a CSV table") from None


def _table_sessions(reader: "csv.DictReader[str]") -> Iterator[Session]:
    names = reader.fieldnames or []
    start, end = _column(names, ARRIVALS), _column(names, (*ENDS, *LIVES))
    if not start or not end:
        raise InvalidObject("line 1", ",".join(names), COLUMNS)
    active = _column(names, ACTIVE)
    moments = [c for c in (start, end, active) if c and c not in (*LIVES, "active_s")]
    form: bool | None = None  # whether times are seconds
    for count, row in enumerate(reader, 1):
        at = f"line {reader.line_num}"
        if count > USERS_MAX:
            raise InvalidObject(at, count, f"at most {USERS_MAX:,} sessions")
        start_s = _moment(row, start, at)
        end_s = _moment(row, end, at) if row.get(end) else math.inf
        end_s += start_s if end in LIVES else 0
        active_s = _moment(row, active, at) if row.get(active) else math.inf
        active_s -= start_s if active == "last_activity" else 0
        for column in moments:
            if text := row.get(column):
                is_number = _number(text) is not None
                form = is_number if form is None else form
                if form != is_number:
                    want = "seconds, as before" if form else "an RFC 3339 time, as before"
                    raise InvalidObject(f"{at}, {column}", text, want)
        if end_s < start_s:
            raise InvalidObject(f"{at}, {end}", row[end], f"a time after {start}")
        requests = tuple((name, text) for name in RESOURCES if (text := row.get(name)))
        for name, quantity in parse_list(dict(requests), at).items():
            if quantity.sign < 0:
                raise InvalidObject(f"{at}, {name}", row[name], "a quantity of at least 0")
        yield Session(start_s, end_s, max(0.0, active_s), requests)


def read_event_log(lines: Iterable[bytes]) -> list[Session]:
    """Sessions of JupyterHub's server-action events, one JSON object a line; other events are left
    out, and lines may be in any order. A stop without a start began when the log begins; a start of
    a server that runs says that it had ended by itself. Raises InvalidObject with the line."""
    events: list[tuple[float, bool, tuple[str, str]]] = []
    for number, line in enumerate(lines, 1):
        event = _object(line, f"line {number}")
        schema = str(event.get("__schema__") or event.get("schema_id") or "")
        if not schema.rstrip("/").endswith("server-action"):
            continue
        at_s = _time_s(event.get("__timestamp__"), f"line {number}, __timestamp__")
        who = str(event.get("username", "")), str(event.get("servername", ""))
        action = event.get("action")
        if action not in ("start", "stop"):
            raise InvalidObject(f"line {number}, action", action, "start or stop")
        events.append((at_s, action == "start", who))
    events.sort(key=lambda event: event[:2])  # who stops and starts in one second stops first
    starts = {(at_s, who) for at_s, is_start, who in events if is_start}
    begun: dict[tuple[str, str], float] = {}
    found: list[Session] = []
    for at_s, is_start, who in events:
        if is_start and (at_s, who) not in starts:
            continue  # it stopped in the same second
        if is_start:
            if who in begun:
                found.append(Session(begun[who], at_s))
            begun[who] = at_s
        elif who not in begun and (at_s, who) in starts:
            found.append(Session(at_s, at_s))
            starts.remove((at_s, who))
        else:
            found.append(Session(begun.pop(who, events[0][0]), at_s))
    return [*found, *(Session(at_s) for at_s in begun.values())]


def read_users(document: bytes, cull_seconds: int = Packing().cull_seconds) -> list[Session]:
    """Sessions of the servers that run by JupyterHub's list of users: until they are culled. Who
    came more than a day before the newest counts as come then. Raises InvalidObject."""
    try:
        users = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidObject("users", str(error), "the JSON of GET /hub/api/users") from None
    if isinstance(users, dict):  # a page of them, or one
        page = users.get("_pagination")
        if isinstance(page, dict) and page.get("next"):
            want = "all users: ask for GET /hub/api/users?limit=N with a larger N"
            raise InvalidObject("_pagination", f"a page of {page.get('total')} users", want)
        users = users.get("users") or users.get("items") or [users]
    if not isinstance(users, list):
        raise InvalidObject("users", users, "the JSON of GET /hub/api/users")
    found = []
    for i, user in enumerate(users):
        if not isinstance(user, dict):
            raise InvalidObject(f"[{i}]", user, "a user")
        servers = user.get("servers") or {}
        for name, server in servers.items() if isinstance(servers, dict) else ():
            at = f"[{i}].servers[{name!r}]"
            if not isinstance(server, dict) or not server.get("started"):
                continue
            start_s = _time_s(server["started"], f"{at}.started")
            last = server.get("last_activity") or server["started"]
            active_s = max(0.0, _time_s(last, f"{at}.last_activity") - start_s)
            found.append(Session(start_s, start_s + active_s + cull_seconds, active_s))
    first_s = max((one.start_s + one.active_s for one in found), default=0.0) - 24 * HOUR_S
    return [_from(one, first_s) for one in found if one.end_s > first_s]


def _from(session: Session, first_s: float) -> Session:
    """Of the session what is after that."""
    before_s = max(0.0, first_s - session.start_s)
    active_s = max(0.0, session.active_s - before_s)
    return msgspec.structs.replace(session, start_s=session.start_s + before_s, active_s=active_s)


def read_recorded(
    events: Iterable[tuple[int, Event]], is_user: Callable[[Pod], bool]
) -> list[Session]:
    """Sessions of the pods of users in events with their times in ns. Who is there when they begin
    came then, unless the pod says since when it is there."""
    begun: dict[str, float] = {}
    found: dict[str, Session] = {}
    for at_ns, event in events:
        at_s = at_ns / SECOND_NS
        if isinstance(event, Listed):
            changes = [(obj, False) for obj in event.objects]
            there = {obj.metadata.uid for obj in event.objects if isinstance(obj, Pod)}
            gone = [uid for uid in begun if uid not in there]
        elif isinstance(event, Observed):
            changes, gone = [(event.object, event.type is WatchType.DELETED)], []
        else:
            continue
        for obj, is_deleted in changes:
            if not isinstance(obj, Pod):
                continue
            uid = obj.metadata.uid
            if is_deleted or obj.is_terminal:
                gone.append(uid)
            elif uid not in found and is_user(obj):
                made_ns = time_ns(obj.metadata.creation_timestamp)
                begun.setdefault(uid, at_s if made_ns is None else made_ns / SECOND_NS)
        for uid in gone:
            if uid in begun:
                found[uid] = Session(begun.pop(uid), at_s)
    return [*found.values(), *(Session(at_s) for at_s in begun.values())]


def day_of(sessions: Sequence[Session], seed: int) -> Day:
    """A day with these sessions, which begins with the hour of the first. Who still runs at the end
    runs on. Boot and pull times of nodes are drawn by the seed. Raises InvalidObject."""
    if not sessions:
        raise InvalidObject("DAY", "no sessions", "at least one user who comes")
    first_s = min(session.start_s for session in sessions) // HOUR_S * HOUR_S
    ends = [s.end_s for s in sessions if math.isfinite(s.end_s)]
    last_s = max([*ends, *(s.start_s for s in sessions)])
    if last_s >= LAST_S:
        raise InvalidObject("DAY", f"{last_s:.0f} s", "times before the year 2200")
    length_s = max(HOUR_S, math.ceil((last_s - first_s) / HOUR_S) * HOUR_S)
    if length_s > DAYS_MAX * 24 * HOUR_S:
        raise InvalidObject("DAY", f"{length_s / 86_400:.0f} days", f"at most {DAYS_MAX} days")
    users = [
        User(s.start_s - first_s, min(s.end_s - s.start_s, 2 * length_s), False, s.active_s,
             s.requests)
        for s in sorted(sessions, key=lambda one: one.start_s)
    ]  # fmt: skip
    starts_ns = EPOCH_NS if first_s * SECOND_NS < EPOCH_NS else int(first_s) * SECOND_NS
    nodes = draw_nodes(random.Random(f"{seed}:nodes"))
    return Day(seed, tuple(users), nodes, (), starts_ns, length_s)


def _column(names: Iterable[str], wanted: Sequence[str]) -> str:
    return next((name for name in wanted if name in names), "")


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _moment(row: Mapping[str, str], column: str, at: str) -> float:
    text = row[column]
    found = _number(text)
    if found is None:
        return _time_s(text, f"{at}, {column}")
    if not 0 <= found < 1e11:
        raise InvalidObject(f"{at}, {column}", text, "seconds of at least 0, or an RFC 3339 time")
    return found


def _time_s(text: object, at: str) -> float:
    """JupyterHub writes times without a zone, too: they are UTC."""
    known = text if isinstance(text, str) else ""
    found = time_ns(known)
    if found is None:
        found = time_ns(f"{known}Z")
    if found is None:
        raise InvalidObject(at, text, "seconds, or an RFC 3339 time")
    return found / SECOND_NS


def _object(line: bytes, at: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidObject(at, line[:80].decode("utf-8", "replace"), "a JSON object")
    return found


def is_event_log(head: Iterator[bytes]) -> bool:
    """Whether the first line is an event of JupyterHub."""
    first = next(head, b"")
    try:
        return "__timestamp__" in _object(first, "")
    except InvalidObject:
        return False
