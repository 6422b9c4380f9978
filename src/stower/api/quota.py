"""ResourceQuota: rejects objects beyond the quotas of a namespace, and counts what is written.

A quota applies once its status has limits: a controller fills in the usage when the quota is
created, from then on every write adds its own. What objects use is said in quota_usage.py.
Source: apiserver pkg/admission/plugin/resourcequota, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any

from stower.api.calls import Call
from stower.api.quota_usage import (
    CLAIMS,
    IGNORED,
    PODS,
    QUOTAS,
    SERVICES,
    VOLUME_CLAIMS,
    ZERO,
    Amounts,
    is_in_scope,
    is_terminating,
    missing_amounts,
    tracked_names,
    usage_of,
    volume_attributes_classes,
)
from stower.model.quantity import quantity_of

Object = dict[str, Any]
Usage = dict[str, Amounts]  # key of the quota -> what is added to it


def check(call: Call, item: Object, old: Object | None) -> Usage:
    """What the object adds to each quota. Raises ApiError 403 where that is too much."""
    quotas = call.context.store.collection(QUOTAS)
    kind = call.resource.key
    if not quotas.records or not call.resource.namespaced or kind in IGNORED:
        return {}
    if old is not None and not _is_counted_update(call, item, old):
        return {}
    related = _Stored(call)
    stored: dict[str, Object] = {}
    for key in quotas.keys_in(call.namespace):
        quota = quotas.records[key].decode()
        hard = (quota.get("status") or {}).get("hard") or {}
        names = tracked_names(kind, hard, related) if hard else []
        if names and is_in_scope(quota["spec"], kind, item):
            _check_known(call, item, quota, names)
            stored[key] = quota
    if not stored:
        return {}
    now_ns = call.request.now_ns
    used = usage_of(kind, item, related, now_ns)
    before = usage_of(kind, old, related, now_ns) if old is not None else {}
    found: Usage = {}
    for key, quota in stored.items():
        counted = old is not None and is_in_scope(quota["spec"], kind, old)
        added = {
            name: more
            for name, value in used.items()
            if name in quota["status"]["hard"]
            and (more := value.sub(before.get(name, ZERO)) if counted else value).sign > 0
        }
        if added:
            if call.subresource != "status":
                _check_room(call, item, quota, added)
            found[key] = added
    return found


def _is_counted_update(call: Call, new: Object, old: Object) -> bool:
    """Whether an update may change what the object uses."""
    kind, part = call.resource.key, call.subresource
    if kind == PODS:
        return part == "resize" or (not part and is_terminating(new) != is_terminating(old))
    if kind == VOLUME_CLAIMS and part == "status":
        statuses = [(item.get("status") or {}).get("allocatedResources") for item in (new, old)]
        return statuses[0] != statuses[1] or (
            volume_attributes_classes(new) != volume_attributes_classes(old)
        )
    return not part and kind in (SERVICES, VOLUME_CLAIMS, CLAIMS)


def _check_known(call: Call, item: Object, quota: Object, names: list[str]) -> None:
    """The object must say what it uses, and the quota how much is used."""
    name, used = quota["metadata"]["name"], quota["status"].get("used") or {}
    if call.resource.key == PODS and (missing := missing_amounts(names, item)):
        raise call.forbidden(_name(item), f"failed quota: {name}: must specify {missing}")
    if not all(tracked in used for tracked in names):
        text = f"status unknown for quota: {name}, resources: {','.join(names)}"
        raise call.forbidden(_name(item), text)


def _check_room(call: Call, item: Object, quota: Object, added: Amounts) -> None:
    used, hard = quota["status"]["used"], quota["status"]["hard"]
    over = [
        name
        for name, value in sorted(added.items())
        if quantity_of(used.get(name, "0")).add(value).cmp(quantity_of(hard[name])) > 0
    ]
    if over:
        parts = (
            ("requested", {n: str(added[n]) for n in over}),
            ("used", {n: used.get(n, "0") for n in over}),
            ("limited", hard),
        )
        shown = ", ".join(f"{w}: " + ",".join(f"{n}={v[n]}" for n in over) for w, v in parts)
        text = f"exceeded quota: {quota['metadata']['name']}, {shown}"
        raise call.forbidden(_name(item), text)


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def book(call: Call, usage: Usage) -> None:
    """Add what was written to the quotas' status."""
    quotas = call.context.store.collection(QUOTAS)
    for key, added in usage.items():
        record = quotas.records.get(key)
        if record is None:
            continue
        stored = record.decode()
        used = stored["status"].setdefault("used", {})
        for name, value in added.items():
            used[name] = str(quantity_of(used.get(name, "0")).add(value))
        call.context.store.put(quotas, key, stored)


class _Stored:
    """Objects of the store that the usage of claims depends on."""

    def __init__(self, call: Call) -> None:
        self._store = call.context.store

    def device_classes(self) -> Iterator[Object]:
        """All DeviceClasses."""
        records = self._store.collection(("resource.k8s.io", "deviceclasses")).records
        return (record.decode() for record in records.values())

    def find_pod(self, namespace: str, name: str) -> Object | None:
        """A pod by its name."""
        record = self._store.collection(PODS).records.get(f"{namespace}/{name}")
        return None if record is None else record.decode()

    def claims_in(self, namespace: str) -> Iterator[Object]:
        """The ResourceClaims of a namespace."""
        collection = self._store.collection(CLAIMS)
        return (collection.records[key].decode() for key in collection.keys_in(namespace))
