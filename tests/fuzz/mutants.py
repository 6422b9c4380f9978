"""Objects of all kinds, made from their types, and what becomes of JSON that something went wrong
with: values of other types, far too large or small, fields that are gone or twice, bytes that are
no JSON.

What is drawn is small (which object, where, what), so that a failure shrinks to one change.
"""

import copy
import functools
import json
import random
import types
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from stower.model.kinds import KINDS, Kind, Node, Pod

VARIANTS: Final = 24  # of each kind
DEPTH_MAX: Final = 9
NAMES = ("a", "b", "n1", "n2", "default", "gpu", "users", "root", "default-scheduler")
KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "app", "example.com/x", "a")
QUANTITIES = ("0", "1", "2", "100m", "1Gi", "64Mi", "1e3", "0.5", "1n", "9223372036854775807")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2026-06-30T23:59:60Z")
CEL = (
    "true", "device.driver == 'gpu'", "device.attributes['gpu'].model == 'a'",
    "device.capacity['gpu'].memory.compareTo(quantity('1Gi')) >= 0", "1/0 == 1",
    "[1,2,3].all(x, [1,2,3].all(y, x*y < 10))", "'a'.matches('(a*)*b')", "device.",
)  # fmt: skip
# By a field's name, whatever its type says beyond text.
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"),
    "key": KEYS, "topologyKey": KEYS, "expression": CEL, "resource": ("cpu", "pods"),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "phase": ("Pending", "Running", "Succeeded", "Failed", "Bound", "Available", "Terminating"),
    "preemptionPolicy": ("Never", "PreemptLowerPriority"), "protocol": ("TCP", "UDP"),
    "volumeBindingMode": ("Immediate", "WaitForFirstConsumer"), "schedulerName": NAMES[-1:],
    "nodeName": ("", "n1", "n2"), "nominatedNodeName": ("", "n1"), "namespace": ("default", "a"),
    "creationTimestamp": TIMES, "deletionTimestamp": TIMES, "timeAdded": TIMES,
    "lastTransitionTime": TIMES, "start": ("08:15", "23:59"), "status": ("True", "False"),
    "allocationMode": ("ExactCount", "All"), "apiVersion": ("v1",), "uid": ("u1", "u2", "u3"),
    "resourceVersion": ("1", "17"), "minAvailable": ("1", "50%"), "maxUnavailable": ("1", "0%"),
}  # fmt: skip
HAVE: Final = ("allocatable", "capacity")
AMOUNTS: Final = (
    "requests", "limits", "allocatable", "capacity", "overhead", "resources", "consumedCapacity",
)  # fmt: skip
ROOM: Final = ("4", "16", "8Gi", "64Gi", "110")  # what there is, against what is asked for
ASKED: Final = ("0", "1m", "100m", "1", "64Mi", "1Gi")
# Without these there is next to nothing to an object.
NEEDED: Final = ("name", "key", "operator", "topologyKey", "type", "metadata", "spec", "containers",
                 "status", "podName", "driver", "pool", "devices", "requests")  # fmt: skip
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")
TEXTS = (*NAMES, *KEYS, *QUANTITIES, *TIMES, "", "*")
# What stands where something else should.
WRONG: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, 0.1, "", " ", "a" * 300,
    "\x00", "\ud7ff\uffff", "é" * 64, "1" * 400, "-1Gi", "1e99999", "a/b/c", "../..", "%s%n",
    [], [None], [[]], {}, {"": ""}, {"a": None}, {"a": {"a": {"a": 1}}}, ["a"] * 300,
    "{{", "' or 1=1", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "300000d", *CEL,
)  # fmt: skip


def made(kind: Any, name: str, chance: random.Random, depth: int = 0) -> Any:
    """Some JSON that reads as the type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = {f.name: f for f in msgspec.structs.fields(kind)}
        found = {}
        for field in hints.values():
            if field.encode_name in NEEDED or chance.random() < (0.75 if depth < 3 else 0.4):
                found[field.encode_name] = made(field.type, field.encode_name, chance, depth + 1)
        return found
    origin, parameters = get_origin(kind), get_args(kind)
    if origin is Literal:
        return chance.choice(parameters)
    if origin in (Union, types.UnionType):
        return made(chance.choice(parameters), name, chance, depth)
    if hasattr(kind, "__metadata__"):  # Annotated
        return made(kind.__origin__, name, chance, depth)
    if origin in (list, tuple):
        count = 0 if depth > DEPTH_MAX else chance.choice((0, 1, 1, 2, 3))
        return [made(parameters[0], name, chance, depth + 1) for _ in range(count)]
    if origin is dict or kind is dict:
        keys = RESOURCES if name in AMOUNTS else KEYS
        count = 0 if depth > DEPTH_MAX else chance.choice((0, 1, 2, 3))
        inner = parameters[1] if parameters else str
        return {
            chance.choice(keys): chance.choice(ROOM if name in HAVE else ASKED)
            if inner is str and name in AMOUNTS and chance.random() < 0.9
            else made(inner, "", chance, depth + 1)
            for _ in range(count)
        }
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.choice((0, 1, 2, 3, 10, 100))
    if kind is float:
        return chance.choice((0.0, 0.5, 1.0))
    if kind is type(None):
        return None
    return chance.choice(WORDS.get(name, TEXTS))


def whole(kind: Kind, chance: random.Random) -> dict[str, Any]:
    """Some object of the kind, with its name and type."""
    obj = made(kind.view, "", chance)
    meta = obj.get("metadata") or {}
    meta |= {"name": chance.choice(NAMES), "uid": f"uid-{chance.randrange(99)}"}
    if kind.namespaced:
        meta["namespace"] = "default"
    if kind.view is Pod and chance.random() < 0.7:  # one that waits, and may fit somewhere
        meta.pop("deletionTimestamp", None)
        obj.pop("status", None)
        spec = obj["spec"]
        for name in ("nodeName", "schedulingGates", "nodeSelector", "affinity"):
            if name == "nodeName" or chance.random() < 0.7:
                spec.pop(name, None)
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}


@functools.cache
def corpus(kind: Kind) -> tuple[dict[str, Any], ...]:
    """Objects of a kind, always the same."""
    chance = random.Random(kind.name)
    return tuple(whole(kind, chance) for _ in range(VARIANTS))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place of a document: what holds it, and by which key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


class Change(NamedTuple):
    """Something goes wrong at one place: numbers, taken modulo what there is."""

    place: int
    what: int
    value: int


def changed(document: Any, changes: list[Change]) -> Any:
    """A copy of a document in which this went wrong."""
    document = copy.deepcopy(document)
    for change in changes:
        found = list(places(document))
        if not found:
            break
        holder, key = found[change.place % len(found)]
        wrong = copy.deepcopy(WRONG[change.value % len(WRONG)])
        what = change.what % 5
        if what == 0:
            holder[key] = wrong
        elif what == 1:
            del holder[key]
        elif what == 2:  # what stands elsewhere
            other, there = found[change.value % len(found)]
            holder[key] = copy.deepcopy(other[there])
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]) if what == 3 else wrong)
        elif isinstance(wrong, str):
            holder[wrong] = holder.pop(key) if what == 3 else holder[key]
        else:
            holder[key] = [holder[key]] if what == 3 else {"a": holder[key]}
    return document


def damaged(data: bytes, changes: list[Change]) -> bytes:
    """Bytes of which some are others, gone or more."""
    text = bytearray(data)
    for change in changes:
        at = change.place % (len(text) + 1)
        what = change.what % 4
        piece = b'"{}[],:\x00\xff\\u0eE-9.'
        if what == 0:
            text[at : at + 1] = piece[change.value % len(piece) :][:1]
        elif what == 1:
            del text[at : at + 1 + change.value % 20]
        elif what == 2:
            text[at:at] = text[at : at + 50]
        else:
            text[at:at] = b"[" * (1 + change.value % 5000)
    return bytes(text)


CHANGES = st.lists(
    st.builds(Change, st.integers(0, 999), st.integers(0, 9), st.integers(0, 999)),
    min_size=0,
    max_size=3,
)
MANY = (*KINDS, *(kind for kind in KINDS if kind.view in (Pod, Node) for _ in range(6)))
OBJECTS = st.builds(
    lambda kind, variant, changes: (kind, changed(corpus(kind)[variant], changes)),
    st.sampled_from(MANY), st.integers(0, VARIANTS - 1), CHANGES,
)  # fmt: skip


def text_of(document: Any) -> bytes:
    """As JSON; a half of a surrogate pair goes as an escape."""
    return json.dumps(document).encode()
