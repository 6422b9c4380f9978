"""Device taint eviction controller: evicts pods that use devices with a NoExecute taint.

Also reports in the status of each DeviceTaintRule which pods the rule evicts, or would evict. The
time that a toleration allows counts from when the taint was added. A taint is tolerated by the
tolerations that the claim was allocated with, if they name NoExecute.

Source: pkg/controller/devicetainteviction, Kubernetes 1.36 (KEP-5055).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from stower.controllers.claims import used_by
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import condition, evict
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.taints import Taint, Toleration, tolerates
from stower.model.times import SECOND_NS, time_ns, time_text

NO_EXECUTE: Final = "NoExecute"
IN_PROGRESS: Final = "EvictionInProgress"
PAUSE_NS: Final = 10 * SECOND_NS  # between two changes of what a rule tells

PoolID = tuple[str, str]
Taints = dict[str, list[Object]]  # of a slice that evict, by device
Hit = tuple[int, str]  # when, and the rule that does it, "" for a taint of the slice


class DeviceTaintEvictionController(BaseController):
    """Keys: pod/NAMESPACE/NAME and rule/NAME."""

    name = "device-taint-eviction-controller"
    kinds = ("pods", "resourceclaims", "resourceslices", "devicetaintrules")

    def __init__(self) -> None:
        self._pools: dict[PoolID, dict[str, tuple[int, Taints]]] = {}  # by slice name
        self._evicted: dict[str, dict[str, None]] = {}  # uids of pods by rule, since this started

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """A pod that runs on devices; the pods of claims whose devices have other taints now."""
        if kind == "pods":
            uses = obj["spec"].get("nodeName") and used_by(obj)
            return (f"pod/{key_of(obj)}",) if uses else ()
        if kind == "resourceclaims":
            return _pods(obj)
        if kind == "devicetaintrules":
            if old is obj:  # it is gone
                self._evicted.pop(name_of(obj), None)
            if old is not None and old is not obj and old["spec"] == obj["spec"]:
                return ()
            claims = seen.all("resourceclaims")
            return (*(key for claim in claims for key in _pods(claim)), f"rule/{name_of(obj)}")
        if not self._read(obj, is_gone=old is obj):
            return ()
        pool = _pool_of(obj)
        using = (
            c
            for c in seen.all("resourceclaims")
            if any(_id(r)[:2] == pool for r in _list_results(c))
        )
        return tuple(key for claim in using for key in _pods(claim))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Evict what is due; tell what a rule does."""
        what, _, of = key.partition("/")
        if what == "pod":
            pod = seen.get("pods", of)
            if pod is not None and not is_ending(pod):
                self._evict(seen, pod, todo)
        else:
            rule = seen.get("devicetaintrules", of)
            if rule is not None:
                self._update_condition(seen, rule, todo)

    # Slices

    def _read(self, slice_: Object, is_gone: bool) -> bool:
        """Whether the taints of its pool have changed."""
        pool, name = _pool_of(slice_), name_of(slice_)
        parts = self._pools.setdefault(pool, {})
        before = self._taints(pool)
        if is_gone:
            parts.pop(name, None)
        else:
            taints = {
                device["name"]: found
                for device in slice_["spec"].get("devices") or ()
                if (found := [t for t in device.get("taints") or () if t["effect"] == NO_EXECUTE])
            }
            parts[name] = (slice_["spec"]["pool"]["generation"], taints)
        changed = before != self._taints(pool)
        if not parts:
            del self._pools[pool]
        return changed

    def _taints(self, pool: PoolID) -> Taints:
        """Those of the newest generation."""
        parts = self._pools.get(pool, {})
        newest = max((generation for generation, _ in parts.values()), default=0)
        found: Taints = {}
        for _, (generation, taints) in sorted(parts.items()):
            if generation == newest:
                found |= taints
        return found

    # Evictions

    def _evict(self, seen: ObjectStore, pod: Object, todo: ReconcileResult) -> None:
        hits = [*self._hits(seen, pod, _list_evicting(seen))]
        if not hits:
            return
        for _, rule in hits:
            if rule:
                todo.requeue_key_at(f"rule/{rule}", todo.now_ns + PAUSE_NS)
        due_ns = min(when_ns for when_ns, _ in hits)
        if due_ns > todo.now_ns:
            todo.requeue_at(due_ns)
        elif evict(pod, "DeletionByDeviceTaintManager", "Device Taint manager", todo):
            for _, rule in hits:
                if rule:
                    # By uid: what fails is tried again, and is not to be counted twice.
                    self._evicted.setdefault(rule, {})[uid_of(pod)] = None

    def _hits(self, seen: ObjectStore, pod: Object, rules: list[Object]) -> Iterator[Hit]:
        """What ends the pod, and when."""
        if not pod["spec"].get("nodeName"):
            return
        for key in used_by(pod):
            claim = seen.get("resourceclaims", key)
            if claim is None or all(c["uid"] != uid_of(pod) for c in _consumers(claim)):
                continue
            for result in _list_results(claim):
                driver, pool, device = _id(result)
                own = self._taints((driver, pool)).get(device, ())
                for taint in own:
                    yield from _list_hits(taint, result, "")
                for rule in rules:
                    if _is_selected(rule, result):
                        yield from _list_hits(rule["spec"]["taint"], result, name_of(rule))

    # Rules

    def _update_condition(self, seen: ObjectStore, rule: Object, todo: ReconcileResult) -> None:
        known = condition(rule, IN_PROGRESS)
        generation = rule["metadata"].get("generation", 0)
        if known is not None and known.get("observedGeneration") == generation:
            again_ns = (time_ns(known.get("lastTransitionTime")) or 0) + PAUSE_NS
            if again_ns > todo.now_ns:
                todo.requeue_at(again_ns)
                return
        told = self._make_condition(seen, rule)
        if known is not None and all(known.get(name) == told[name] for name in told):
            return
        told |= {"type": IN_PROGRESS, "lastTransitionTime": time_text(todo.now_ns),
                 "observedGeneration": generation}  # fmt: skip
        todo.patch("devicetaintrules", rule, {"status": {"conditions": [told]}}, "status")

    def _make_condition(self, seen: ObjectStore, rule: Object) -> Object:
        effect = rule["spec"]["taint"]["effect"]
        evicted = len(self._evicted.get(name_of(rule), ()))
        since = f"{_count(evicted, 'pod')} evicted since starting the controller." * bool(evicted)
        if effect == "None":
            return _condition("False", "NoEffect", self._preview(seen, rule), since)
        if effect != NO_EXECUTE:
            text = "Eviction only happens for the NoExecute effect."
            return _condition("False", "OtherEffect", text, since)
        pending = self._list_pending(seen, rule)
        if pending:
            verb = "needs" if len(pending) == 1 else "need"
            text = f"{_count(len(pending), 'pod')} {verb} to be evicted in {_namespaces(pending)}."
            return _condition("True", "PodsPendingEviction", text, since)
        return _condition("False", "Completed" if evicted else "NotStarted", "", since)

    def _list_pending(self, seen: ObjectStore, rule: Object) -> list[Object]:
        """The pods that the rule evicts, or would."""
        acting = {**rule, "spec": {**rule["spec"], "taint": {**rule["spec"]["taint"],
                                                             "effect": NO_EXECUTE}}}  # fmt: skip
        return [
            pod
            for pod in seen.all("pods")
            if not is_ending(pod)
            and any(name == name_of(rule) for _, name in self._hits(seen, pod, [acting]))
        ]

    def _preview(self, seen: ObjectStore, rule: Object) -> str:
        published = sum(
            _is_selected(rule, {"driver": s["spec"]["driver"], "pool": s["spec"]["pool"]["name"],
                            "device": device["name"]})
            for s in seen.all("resourceslices")
            if s["spec"]["pool"]["generation"] == self._newest(_pool_of(s))
            for device in s["spec"].get("devices") or ()
        )  # fmt: skip
        claims = seen.all("resourceclaims")
        allocated = sum(
            _is_selected(rule, result) for claim in claims for result in _list_results(claim)
        )
        pods = self._list_pending(seen, rule)
        return (
            f"{_count(published, 'published device')} selected. "
            f"{_count(allocated, 'allocated device')} selected. "
            f"{_count(len(pods), 'pod')} would be evicted in {_namespaces(pods)} if the effect was "
            "NoExecute. This information will not be updated again. Recreate the DeviceTaintRule "
            "to trigger an update."
        )

    def _newest(self, pool: PoolID) -> int:
        return max((generation for generation, _ in self._pools.get(pool, {}).values()), default=0)


def _list_evicting(seen: ObjectStore) -> list[Object]:
    rules = seen.all("devicetaintrules")
    found = [rule for rule in rules if rule["spec"]["taint"]["effect"] == NO_EXECUTE]
    return sorted(found, key=name_of)


def _list_hits(taint: Object, result: Object, rule: str) -> Iterator[Hit]:
    """When the taint ends who has the device: never, where a toleration bears it for ever."""
    given = msgspec.convert(taint, Taint)
    seconds: list[int] = []
    for toleration in result.get("tolerations") or ():
        mine = msgspec.convert(toleration, Toleration)
        if mine.effect != NO_EXECUTE or not tolerates(mine, given):
            continue
        if mine.toleration_seconds is None:
            return
        seconds.append(max(0, mine.toleration_seconds))
    added_ns = time_ns(taint.get("timeAdded")) or 0
    yield added_ns + min(seconds, default=0) * SECOND_NS, rule


def _is_selected(rule: Object, result: Object) -> bool:
    """Whether a rule is about a device; one without a selector is about none."""
    selector = rule["spec"].get("deviceSelector")
    return selector is not None and all(
        selector.get(name) in (None, result[name]) for name in ("driver", "pool", "device")
    )


def _condition(status: str, reason: str, text: str, since: str) -> Object:
    message = " ".join(part for part in (text, since) if part)
    return {"status": status, "reason": reason, "message": message}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _namespaces(pods: list[Object]) -> str:
    namespaces = len({namespace_of(pod) for pod in pods})
    return "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"


def _pool_of(slice_: Object) -> PoolID:
    return slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]


def _id(result: Object) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]


def _list_results(claim: Object) -> list[Any]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Any] = (allocation.get("devices") or {}).get("results") or []
    return found


def _consumers(claim: Object) -> list[Any]:
    return (claim.get("status") or {}).get("reservedFor") or []


def _pods(claim: Object) -> tuple[str, ...]:
    return tuple(
        f"pod/{namespace_of(claim)}/{consumer['name']}"
        for consumer in _consumers(claim)
        if consumer.get("resource") == "pods"
    )
