"""The suite `validation`: objects that Kubernetes 1.36 took or refused.

A case agrees if ours is as valid or invalid as theirs. `report` tells more, by kind: how often the
set of (type, field) is the same, and the stored object.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from stower.api import kinds
from stower.api.bodies import clean_again
from stower.api.calls import Call
from stower.api.defaults import TIMED
from stower.api.errors import ApiError, FieldError
from stower.api.metadata import new_metadata_errors, update_metadata_errors
from stower.api.optional_kinds import serve_device_taint_rules
from stower.api.registry import Resource
from stower.api.requests import Request
from stower.api.schema import BadValueError
from stower.api.server import Api
from stower.api.writes import _has_spec_change, _keep_other_half, _reset_status, keep_server_fields
from stower.apiserver.tables import load_registry
from stower.model.quantity import QuantityError, quantity_of

Object = dict[str, Any]
KINDS = ("Pod", "Node", "PodDisruptionBudget", "PriorityClass", "Lease", "ResourceClaim",
         "ResourceClaimTemplate", "DeviceClass", "ResourceSlice", "DeviceTaintRule", "Workload",
         "PodGroup")  # fmt: skip
# Ours are served with the gates of groups on.
WITH_ALL_GATES = ("Workload", "PodGroup")
NAMESPACES: dict[str, dict[str, str]] = {
    "default": {}, "admin": {"resource.kubernetes.io/admin-access": "true"},
}  # fmt: skip
NOW_NS = 1_790_000_000_000_000_000
counts: Counter[tuple[str, str]] = Counter()


@cache
def api() -> Api:
    """One API for all cases; only the namespaces that they are in are kept in it."""
    made = Api(load_registry())
    serve_device_taint_rules(made.registry)
    namespaces = made.store.collection(("", "namespaces"))
    for name, labels in NAMESPACES.items():
        made.store.put(
            namespaces, name, {"metadata": {"name": name, "uid": name, "labels": labels}}
        )
    return made


def resource_of(case: Object) -> Resource:
    """The resource of a case."""
    group, _, version = case["apiVersion"].rpartition("/")
    found = api().registry.by_kind(group, version, case["kind"])
    assert found is not None
    return found


def cleaned(call: Call, item: Object) -> Object:
    """An object as the server reads it."""
    kind = call.resource.type
    assert kind is not None
    made = clean_again(kind, item)
    if (timed := TIMED.get(call.resource.key)) is not None:
        timed(made, call.now)
    return made


def outcome(case: Object) -> tuple[list[FieldError], Object | None]:
    """Our faults, and the object as it would be stored."""
    resource = resource_of(case)
    operation = case["operation"]
    sub = operation if operation in ("status", "resize") else ""
    item = case["object"]
    name = (item.get("metadata") or {}).get("name") or ""
    namespace = (item.get("metadata") or {}).get("namespace") or "default"
    call = Call(api().context, Request("POST", "", NOW_NS), resource, namespace, name, sub)
    hooks = kinds.hooks_of(resource)
    new = cleaned(call, item)
    meta = new["metadata"]
    if case["kind"] == "Pod":  # recorded with the gate of groups off, which is on in ours
        before = (case.get("old") or {}).get("spec") or {}
        if "schedulingGroup" not in before:
            new["spec"].pop("schedulingGroup", None)
    if operation == "create":
        meta.update(uid="u", creationTimestamp=call.now)
        if call.strategy.generation or call.strategy.generation_once:
            meta["generation"] = 1
        _reset_status(call, new)
        if hooks.prepare_create is not None:
            hooks.prepare_create(call, new)
        faults = hooks.validate_create(call, new) if hooks.validate_create is not None else []
        if not faults or not call.strategy.metadata_last:
            faults += new_metadata_errors(meta, resource.namespaced, call.strategy.name_faults)
        return faults, new
    old = cleaned(call, case["old"])
    keep_server_fields(old["metadata"], meta)
    _keep_other_half(call, new, old, sub == "status")
    prepare = hooks.prepare_status if sub == "status" else hooks.prepare_update
    if prepare is not None:
        prepare(call, new, old)
    if call.strategy.generation and sub != "status" and _has_spec_change(call, new, old):
        meta["generation"] = old["metadata"].get("generation", 0) + 1
    faults = update_metadata_errors(meta, old["metadata"], call.resource.key, sub)
    validate = hooks.validate_status if sub == "status" else hooks.validate_update
    if validate is not None:
        faults += validate(call, new, old)
    return faults, new


def plain(value: Any, key: str = "") -> Any:
    """A value without what is empty or the time of recording, quantities as numbers."""
    if isinstance(value, dict):
        made = {k: plain(v, k) for k, v in value.items() if k != "timeAdded"}
        return {k: v for k, v in made.items() if v not in (None, {}, [])}
    if isinstance(value, list):
        return [plain(v, key) for v in value]
    if isinstance(value, str) and value[:1].isdigit():
        try:
            return quantity_of(value).milli_value()
        except QuantityError:
            return value
    return value


def validation(case: Object) -> Iterator[str]:
    """Differences of one case; cases of other kinds have none."""
    kind = case["kind"]
    if kind not in KINDS:
        return
    try:
        faults, stored = outcome(case)
    except (BadValueError, ApiError) as error:
        faults, stored = [FieldError("FieldValueInvalid", "", str(error))], None
    ours = {(f.type, f.field) for f in faults}
    expect, kept = case["expect"], case.get("stored")
    if kind in WITH_ALL_GATES:
        expect, kept = case.get("expectAllGates", expect), case.get("storedAllGates", kept)
    theirs = {(e["type"], e["field"]) for e in expect}
    counts[kind, "cases"] += 1
    counts[kind, "fields"] += ours == theirs
    if not theirs:
        counts[kind, "valid"] += 1
        same = stored is not None and not faults and same_stored(stored, kept)
        counts[kind, "stored"] += same
    if bool(ours) != bool(theirs):
        word = "valid" if not ours else "invalid"
        yield f"{kind} {case['operation']}: ours {word} {sorted(ours - theirs)}, " \
              f"theirs {sorted(theirs - ours)}"  # fmt: skip


def same_stored(ours: Object, theirs: Object) -> bool:
    """Whether the objects are the same but for what the server makes up."""

    def bare(item: Object) -> Any:
        meta = {
            k: v for k, v in (item.get("metadata") or {}).items()
            if k not in ("uid", "creationTimestamp", "resourceVersion", "managedFields")
        }  # fmt: skip
        rest = {k: v for k, v in item.items() if k not in ("kind", "apiVersion")}
        return plain({**rest, "metadata": meta})

    return bool(bare(ours) == bare(theirs))


def report() -> Iterator[str]:
    """A line for each kind."""
    for kind in KINDS:
        if total := counts[kind, "cases"]:
            yield (
                f"{kind}: same (type, field) {counts[kind, 'fields']}/{total}, "
                f"same stored object {counts[kind, 'stored']}/{counts[kind, 'valid']}"
            )
