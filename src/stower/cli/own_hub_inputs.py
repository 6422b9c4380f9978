"""Reads a hub's own pool, users, configuration and days for `stower hub --pool`.

Ends the program with an error that names the file and the field.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from stower.cli.configuration_files import InputError
from stower.cli.documents import DocumentError, read_documents
from stower.cli.output import bad_input, progress
from stower.cli.scheduler_configuration import read_scheduler_configuration
from stower.cli.text_stream import TextError, limit_bytes, read_chunks, unpack
from stower.framework.events import Event
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject, Pod, PriorityClass, WarmPool
from stower.model.kinds.warm_pool import pool_faults
from stower.model.raw import decode_object
from stower.record.reader import RecordedEvent, is_recording, read_recording
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub_activity import (
    Session,
    day_of,
    is_event_log,
    read_event_log,
    read_recorded,
    read_table,
    read_users,
)
from stower.sim.hub_day import Day
from stower.sim.hub_policies import Policy
from stower.sim.own_hub import OwnHub
from stower.warm.pools import Role

PACKINGS = ("gz", "zst")
BYTES_MAX = 1 << 30  # of a file of days, unpacked
WANTED = (
    "a CSV table of users (columns arrival and end), JupyterHub's event log, the JSON of its "
    "GET /hub/api/users, or a recording"
)


def read_own_hub(
    pool: Path,
    user: Path | None,
    config: Path | None,
    ignores_unknown: bool,
    groups: tuple[NodeGroup, ...],
    slots: int,
) -> OwnHub:
    """The hub of these files."""
    objects = [*_objects(pool, "--pool")]
    pools = [obj for obj in objects if isinstance(obj, WarmPool)]
    if len(pools) != 1:
        raise bad_input(f"--pool {pool}: {len(pools)} WarmPools, want one")
    for field, value, text in pool_faults(pools[0].spec, pools[0].metadata.name):
        at = field if field.startswith("metadata.") else f"spec.{field}"
        raise bad_input(f"--pool {pool}: {at}: {value!r}: {text}")
    beside = [*_objects(user, "--user")] if user else []
    users = [obj for obj in beside if isinstance(obj, Pod)]
    if user and len(users) != 1:
        raise bad_input(f"--user {user}: {len(users)} pods, want one")
    classes = [obj for obj in (*objects, *beside) if isinstance(obj, PriorityClass)]
    priorities = {obj.metadata.name: obj.value for obj in classes}
    try:
        configuration = None
        if config is not None:
            configuration = read_scheduler_configuration(str(config), ignores_unknown)
    except InputError as error:
        raise bad_input(f"--config {error}") from None
    own = OwnHub(pools[0], users[0] if users else None, configuration, groups, slots, priorities)
    checks = (
        (own.check, f"--user {user}" if user else f"--pool {pool}"),
        (own.check_configuration, f"--config {config}"),
        (own.check_groups, "--node-groups" if groups else f"--pool {pool}"),
    )
    for check, what in checks:
        try:
            check()
        except InvalidObject as error:
            raise bad_input(f"{what}: {error}") from None
    return own


def read_own_days(inputs: list[str], own: OwnHub, seeds: range) -> dict[int, Day]:
    """The day in the file, by seed: what differs is how long nodes take to boot and to pull."""
    if len(inputs) != 1:
        raise bad_input(f"DAYS: got {' '.join(inputs) or 'nothing'!r}, want one file: {WANTED}")
    path = Path(inputs[0])
    try:
        with progress("reading"):
            sessions = _sessions(path, own)
        days = {seed: day_of(sessions, seed) for seed in seeds}
        first = days[seeds[0]]
        make_user = own.setup(Policy("check", "stower", 0), first).make_user
        for i, session in enumerate(first.users):
            if session.requests and not own.fits(make_user(i, session, "")):
                want = "requests that a node of one of the groups takes"
                raise InvalidObject("cpu, memory", dict(session.requests), want)
    except InvalidObject as error:
        raise bad_input(f"{path}: {error}") from None
    except TextError as error:
        hint = "if the file was cut off, copy it again"
        raise bad_input(f"{path}: {error}; {hint}; want {WANTED}") from None
    except (OSError, UnicodeDecodeError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise bad_input(f"{path}: {text}; want {WANTED}") from None
    return days


def _sessions(path: Path, own: OwnHub) -> list[Session]:
    if is_recording(path):
        pool = own.known_pool()
        found = read_recorded(_events(path), lambda pod: pool.role_of(pod) is Role.USER)
        if not found:
            what = f"no pod of namespace {own.namespace} that spec.users of the pool selects"
            raise InvalidObject("the recording", what, "users who come")
        return found
    data = _unpacked(path).removeprefix(BOM_UTF8)
    head = data.lstrip()[:1]
    if head not in (b"{", b"["):
        return read_table(data.decode().splitlines())
    lines = [line for line in data.splitlines() if line.strip()]
    if is_event_log(iter(lines)):
        return read_event_log(lines)
    return read_users(data, own.pool.spec.packing.cull_seconds)


def _events(path: Path) -> Iterator[tuple[int, Event]]:
    for one in read_recording(path):
        if isinstance(one, RecordedEvent):
            yield one.at_ns, one.event


def _unpacked(path: Path) -> bytes:
    """Returns the bytes of the file, decompressed. Raises TextError."""
    with path.open("rb") as file:
        chunks = limit_bytes(read_chunks(file), BYTES_MAX)
        packing = path.suffix.removeprefix(".")
        if packing in PACKINGS:
            chunks = limit_bytes(unpack(chunks, packing), BYTES_MAX)
        return b"".join(chunks)


def _objects(path: Path, option: str) -> Iterator[ApiObject]:
    try:
        for document in read_documents([str(path)]):
            found = decode_object(document.data)
            if found is not None:
                yield found
    except DocumentError as error:
        raise bad_input(f"{option}: {error}") from None
    except InvalidObject as error:
        raise bad_input(f"{option} {path}: {error}") from None
