"""The lines of a recording: how engines were built, their events, their writes.

Each line is one JSON object. `Engine` lines state how an engine was built; `Object` lines are the
objects of the next Listed event; `Step` lines hold one event, its time, and all writes of that
step. Lines name their engine, because several engines may be recorded into one file
(docs/recordings.md).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.framework.events import (
    AgentAsked,
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Solved,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.plugin import Features
from stower.framework.writes import Solve, Write
from stower.model.errors import InvalidObject
from stower.model.kinds import KIND_BY_NAME, KIND_BY_VIEW, ApiObject
from stower.model.raw import decode

FORMAT: Final = 1
CYCLES_MAX: Final = 1_000_000
# What kubectl keeps of a manifest: the whole of it, environments and all.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
CHANGES: Final = tuple(kind.value for kind in WatchType)


class Engine(msgspec.Struct, frozen=True, tag=True, rename="camel", forbid_unknown_fields=True):
    """An engine was built, and this is all that it was built from."""

    engine: str
    format: int
    seed: int
    cycles_per_step_max: int
    features: Features
    configuration: dict[str, Any] | None


class Object(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    """An object of the next list."""

    api_version: str
    kind: str
    object: msgspec.Raw


class Step(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    """An event, and the writes that came of it, as JSON."""

    engine: str
    at_ns: int
    event: msgspec.Raw
    writes: msgspec.Raw


Line = Engine | Object | Step


class _Observed(msgspec.Struct, frozen=True, tag="Observed", rename="camel"):
    change: str
    api_version: str
    kind: str
    object: msgspec.Raw


class _Listed(msgspec.Struct, frozen=True, tag="Listed"):
    objects: int


class _WriteOk(msgspec.Struct, frozen=True, tag="WriteOk", omit_defaults=True):
    id: int
    resource_version: str = ""


class _WriteFailed(msgspec.Struct, frozen=True, tag="WriteFailed"):
    id: int
    code: int
    message: str


class _ExtenderAnswered(msgspec.Struct, frozen=True, tag="ExtenderAnswered"):
    id: int
    body: bytes
    error: str


class _Solved(msgspec.Struct, frozen=True, tag="Solved"):
    id: int
    body: bytes
    error: str


class _AgentAsked(msgspec.Struct, frozen=True, tag="AgentAsked"):
    id: int
    method: str
    body: bytes


class _Tick(msgspec.Struct, frozen=True, tag="Tick"):
    pass


class _Hold(msgspec.Struct, frozen=True, tag="Hold", rename="camel"):
    is_on: bool


_AnyEvent = (
    _Observed | _Listed | _WriteOk | _WriteFailed | _ExtenderAnswered | _Solved | _AgentAsked
    | _Tick | _Hold
)  # fmt: skip


def _view_name(view: Any) -> str:
    """What a write says of the kind that it changes."""
    kind = KIND_BY_VIEW[view]
    return f"{kind.api_version}/{kind.name}"


_encoder: Final = msgspec.json.Encoder(enc_hook=_view_name)
_line: Final = msgspec.json.Decoder(Line)
_event: Final = msgspec.json.Decoder(_AnyEvent)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# Writing


def engine_line(
    engine: str,
    seed: int,
    cycles_per_step_max: int,
    features: Features,
    configuration: Mapping[str, Any] | None,
) -> bytes:
    """The line of an engine that was built."""
    document = None if configuration is None else _without_keys(configuration)
    return _encoder.encode(Engine(engine, FORMAT, seed, cycles_per_step_max, features, document))


def _without_keys(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without what extenders are shown to prove who asks."""
    document = dict(configuration)
    extenders = document.get("extenders")
    if isinstance(extenders, list):
        document["extenders"] = [
            {k: v for k, v in each.items() if k != "tlsConfig"} if isinstance(each, dict) else each
            for each in extenders
        ]
    return document


def step_lines(engine: str, now_ns: int, event: Event, writes: Iterable[Write]) -> Iterator[bytes]:
    """The line of a step, those of the objects that it lists before it."""
    if isinstance(event, Listed):
        for obj in event.objects:
            yield _encoder.encode(Object(*_typed(obj)))
    told = _event_json(event)
    yield _encoder.encode(Step(engine, now_ns, msgspec.Raw(told), msgspec.Raw(writes_json(writes))))


def writes_json(writes: Iterable[Write]) -> bytes:
    """The writes as they stand in a recording: equal writes are equal bytes."""
    return b"[" + b",".join(map(_write_json, writes)) + b"]"


def _write_json(write: Write) -> bytes:
    if isinstance(write, Solve):  # megabytes, from what the recording has
        digest = hashlib.blake2b(write.message, digest_size=16).hexdigest().encode()
        write = msgspec.structs.replace(write, message=digest)
    return b'{"write":"%s",%s' % (type(write).__name__.encode(), _encoder.encode(write)[1:])


def _typed(obj: ApiObject) -> tuple[str, str, msgspec.Raw]:
    kind, annotations = KIND_BY_VIEW[type(obj)], obj.metadata.annotations
    if annotations and LAST_APPLIED in annotations:
        rest = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
        meta = msgspec.structs.replace(obj.metadata, annotations=rest)
        obj = msgspec.structs.replace(obj, metadata=meta)
    return kind.api_version, kind.name, msgspec.Raw(_encoder.encode(obj))


def _event_json(event: Event) -> bytes:
    told: _AnyEvent
    match event:
        case Observed(change, obj):
            told = _Observed(change.value, *_typed(obj))
        case Listed(objects):
            told = _Listed(len(objects))
        case WriteOk(id, resource_version):
            told = _WriteOk(id, resource_version)
        case WriteFailed(id, code, message):
            told = _WriteFailed(id, code, message)
        case ExtenderAnswered(id, body, error):
            told = _ExtenderAnswered(id, body, error)
        case Solved(id, body, error):
            told = _Solved(id, body, error)
        case AgentAsked(id, method, body):
            told = _AgentAsked(id, method, body)
        case Hold(is_on):
            told = _Hold(is_on)
        case Tick():
            told = _Tick()
    return _encoder.encode(told)


# Reading


def read_line(data: bytes) -> Line:
    """One line. Raises InvalidObject."""
    try:
        line: Line = _line.decode(data)
        if isinstance(line, Step):
            str(line.writes, "utf-8")  # nothing else reads them before they are shown
    except _UNREADABLE as error:
        shown = data[:60].decode("utf-8", "replace")
        raise InvalidObject("$", shown, f"a line of a recording ({error})") from None
    if isinstance(line, Engine):
        if line.format != FORMAT:
            want = f"{FORMAT}: the recording is from another version of stower"
            raise InvalidObject("format", line.format, want)
        if not -(2**63) <= line.seed < 2**63:
            raise InvalidObject("seed", line.seed, "a 64-bit number")
        if not 0 < line.cycles_per_step_max <= CYCLES_MAX:
            want = f"1 to {CYCLES_MAX:,}"
            raise InvalidObject("cyclesPerStepMax", line.cycles_per_step_max, want)
    return line


def read_object(api_version: str, kind: str, data: bytes) -> ApiObject:
    """An object's typed view. Raises InvalidObject."""
    found = KIND_BY_NAME.get((api_version, kind))
    if found is None:
        raise InvalidObject("kind", f"{kind} ({api_version})", "a kind that the scheduler reads")
    obj: ApiObject = decode(data, found.view)
    return obj


def read_event(step: Step, listed: list[ApiObject]) -> Event:
    """The event of a step; `listed`: the objects of the lines before it. Raises InvalidObject."""
    try:
        told = _event.decode(step.event)
    except _UNREADABLE as error:
        shown = bytes(step.event)[:60].decode("utf-8", "replace")
        raise InvalidObject("event", shown, f"an event ({error})") from None
    match told:
        case _Observed():
            if told.change not in CHANGES:
                raise InvalidObject("change", told.change, f"one of {', '.join(CHANGES)}")
            obj = read_object(told.api_version, told.kind, bytes(told.object))
            return Observed(WatchType(told.change), obj)
        case _Listed():
            if told.objects != len(listed):
                raise InvalidObject(
                    "objects", len(listed), f"{told.objects} Object lines before the Listed event"
                )
            return Listed(tuple(listed))
        case _WriteOk():
            return WriteOk(told.id, told.resource_version)
        case _WriteFailed():
            return WriteFailed(told.id, told.code, told.message)
        case _ExtenderAnswered():
            return ExtenderAnswered(told.id, told.body, told.error)
        case _Solved():
            return Solved(told.id, told.body, told.error)
        case _AgentAsked():
            return AgentAsked(told.id, told.method, told.body)
        case _Hold():
            return Hold(told.is_on)
    return Tick()
