"""ResourceQuota controller: fills in the limits and the usage in the status of quotas.

Admission adds what is created; this controller counts anew when objects are deleted or use less,
when the limits change and when somebody else writes the status. What objects use is the rule of
admission (stower.api.quota_usage). Source: pkg/controller/resourcequota, pkg/quota/v1/install.

Upstream counts all quotas anew each five minutes, and so heals what changed otherwise; here a
change of the status or a new object leads to another count after RECOUNT_NS.
"""

from collections.abc import Iterable
from typing import Final

from stower.api.quota_usage import (
    CLAIMS,
    PODS,
    ZERO,
    Amounts,
    Key,
    is_charged,
    is_in_scope,
    is_terminating,
    kinds_of_name,
    release_ns,
    usage_of,
)
from stower.controllers.objects import (
    RESOURCES,
    Object,
    ObjectStore,
    key_of,
    namespace_of,
    uid_of,
    version_of,
)
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.quantity import Quantity, quantity_of
from stower.model.times import SECOND_NS

# Objects that use less are counted after so long: the quota may have been seen before an object
# that it counts, as each kind has a watch of its own.
RELEASE_NS: Final = SECOND_NS // 10
RECOUNT_NS: Final = SECOND_NS
# A count of many objects is not repeated at once: some hundredths of the time go into counting.
REST_NS: Final = 200_000  # for each object
_Usage = tuple[tuple[str, str], ...]  # names of the quota, each with the amount
BUILT_IN: Final = {
    (r.api_version.rpartition("/")[0], r.plural): r.plural
    for r in RESOURCES.values()
    if r.namespaced
}
KEY_OF: Final = {kind: key for key, kind in BUILT_IN.items()}


class ResourceQuotaController(BaseController):
    """One quota is one key."""

    name = "resourcequota-controller"
    kinds = (*BUILT_IN.values(), "deviceclasses")
    has_custom_kinds = True

    def __init__(self) -> None:
        self._delays: dict[str, int] = {}  # what was seen since the last look: how long to wait
        self._due_ns: dict[str, int] = {}  # when to count
        self._rested_ns: dict[str, int] = {}  # when the next count may be
        # By quota: the names that it limits and, by uid, the version of an object and what it uses
        # of these.
        self._usages: dict[str, tuple[list[str], dict[str, tuple[int, _Usage]]]] = {}

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The quota, or those that count the object."""
        if kind == "deviceclasses":
            return self._wake((key_of(quota) for quota in seen.all("resourcequotas")), RECOUNT_NS)
        quotas = seen.list_namespace("resourcequotas", namespace_of(obj))
        found: list[str] = []
        if quotas and (delay_ns := _delay(kind, old, obj)):
            counted = KEY_OF.get(kind) or _key_of_custom(kind)
            related = _Seen(seen)
            found = [
                key_of(quota)
                for quota in quotas
                if any(counted in kinds_of_name(name, related) for name in _hard(quota))
            ]
            self._wake(found, delay_ns)
        if kind == "resourcequotas":
            found += self._wake((key_of(obj),), RECOUNT_NS)
        return found

    def custom_kind_keys(self, seen: ObjectStore, kind: str) -> Iterable[str]:
        """The quotas that count objects of a kind that was not known before."""
        key, related = _key_of_custom(kind), _Seen(seen)
        return self._wake(
            (
                key_of(quota)
                for quota in seen.all("resourcequotas")
                if any(key in kinds_of_name(name, related) for name in _hard(quota))
            ),
            RELEASE_NS,
        )

    def _wake(self, keys: Iterable[str], delay_ns: int) -> list[str]:
        found = list(keys)
        for key in found:
            self._delays[key] = min(delay_ns, self._delays.get(key, delay_ns))
        return found

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Counts, if it is time to."""
        quota = seen.get("resourcequotas", key)
        delay_ns = self._delays.pop(key, None)
        if quota is None:
            for known in (self._due_ns, self._rested_ns, self._usages):
                known.pop(key, None)
            return
        if _is_incomplete(seen, quota):
            self._due_ns[key] = todo.now_ns
        elif delay_ns is not None:
            due_ns = max(todo.now_ns + delay_ns, self._rested_ns.get(key, 0))
            self._due_ns[key] = min(due_ns, self._due_ns.get(key, due_ns))
        due_ns = self._due_ns.get(key, 0)
        if not due_ns:
            return
        if due_ns > todo.now_ns:
            todo.requeue_at(due_ns)
            return
        del self._due_ns[key]
        self._write(quota, self._count(seen, quota, todo), todo)

    def _write(self, quota: Object, used: Amounts, todo: ReconcileResult) -> None:
        hard, status = _hard(quota), quota.get("status") or {}
        before = status.get("used") or {}
        # Of a name that nobody counts, what is known stays.
        texts = {name: text for name, text in before.items() if name in hard}
        texts |= {name: str(value) for name, value in sorted(used.items())}
        if _is_same(hard, status.get("hard") or {}) and _is_same(texts, before):
            return
        todo.update("resourcequotas", {**quota, "status": {"hard": hard, "used": texts}}, "status")

    def _count(self, seen: ObjectStore, quota: Object, todo: ReconcileResult) -> Amounts:
        """What the objects of the namespace use, of those names that are counted."""
        key, namespace, related = key_of(quota), namespace_of(quota), _Seen(seen)
        names_of: dict[Key, list[str]] = {}
        for name in _hard(quota):
            for counted in kinds_of_name(name, related):
                names_of.setdefault(counted, []).append(name)
        total: Amounts = {}
        limited, known = self._usages.get(key, ([], {}))
        if limited != list(_hard(quota)):
            known = {}
        usages: dict[str, tuple[int, _Usage]] = {}
        numbers: dict[_Usage, int] = {}  # of objects with equal usages
        count = 0
        for counted, names in names_of.items():
            kind = _kind_of(seen, counted)
            if kind is None:
                continue
            for name in names:
                total.setdefault(name, ZERO)
            for obj in seen.list_namespace(kind, namespace):
                count += 1
                if not is_in_scope(quota["spec"], counted, obj):
                    continue
                uid, version = uid_of(obj), version_of(obj)
                cached = known.get(uid)
                if cached is None or cached[0] != version or not _is_constant(counted, obj):
                    amounts = usage_of(counted, obj, related, todo.now_ns)
                    used = tuple((n, str(amounts[n])) for n in names if n in amounts)
                    cached = version, used
                usages[uid] = cached
                numbers[cached[1]] = numbers.get(cached[1], 0) + 1
                if counted == PODS and (due_ns := release_ns(obj)) is not None:
                    self._count_again(key, due_ns + 1, todo)
        for used, number in numbers.items():
            for name, text in used:
                total[name] = total[name].add(quantity_of(text).mul(Quantity.of(number)))
        self._usages[key] = list(_hard(quota)), usages
        self._rested_ns[key] = todo.now_ns + count * REST_NS
        return total

    def _count_again(self, key: str, due_ns: int, todo: ReconcileResult) -> None:
        """Counts again then, when the deletion of a pod is overdue."""
        if due_ns > todo.now_ns:
            self._due_ns[key] = min(due_ns, self._due_ns.get(key, due_ns))
            todo.requeue_at(due_ns)


def _delay(kind: str, old: Object | None, obj: Object) -> int:
    """How long a count may wait after a change of an object; 0: it changes nothing."""
    if old is obj:
        return RELEASE_NS
    if old is None:
        return RECOUNT_NS
    if kind == "pods":
        changed = (
            _has_ended(old) != _has_ended(obj)
            or is_terminating(old) != is_terminating(obj)
            or "deletionTimestamp" in obj["metadata"]
            or _amounts(old) != _amounts(obj)
        )
        return RELEASE_NS if changed else 0
    if kind in ("services", "persistentvolumeclaims"):
        return RELEASE_NS
    return 0


def _has_ended(pod: Object) -> bool:
    return not is_charged({**pod, "metadata": {}}, 0)


def _amounts(pod: Object) -> list[Object | None]:
    spec, status = pod["spec"], pod.get("status") or {}
    parts = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for name in ("containerStatuses", "initContainerStatuses"):
        parts += status.get(name) or ()
    return [part.get("resources") for part in (spec, status, *parts)]


def _hard(quota: Object) -> Object:
    return (quota.get("spec") or {}).get("hard") or {}


def _is_incomplete(seen: ObjectStore, quota: Object) -> bool:
    """Whether the status lacks limits, or the usage of one that is counted."""
    status, hard = quota.get("status") or {}, _hard(quota)
    used = status.get("used") or {}
    if not _is_same(hard, status.get("hard") or {}):
        return True
    related = _Seen(seen)
    return any(
        name not in used
        and any(_kind_of(seen, key) is not None for key in kinds_of_name(name, related))
        for name in hard
    )


def _is_same(one: Object, other: Object) -> bool:
    """Whether the same amounts are written, in whatever way."""
    return one == other or (
        one.keys() == other.keys()
        and all(quantity_of(one[name]).cmp(quantity_of(other[name])) == 0 for name in one)
    )


def _key_of_custom(kind: str) -> Key:
    plural, _, group = kind.partition(".")
    return group, plural


def _kind_of(seen: ObjectStore, key: Key) -> str | None:
    """The kind to count, where its objects are known."""
    group, plural = key
    custom = f"{plural}.{group}"
    if custom in seen.custom:
        return custom if custom not in seen.unlisted else None
    return BUILT_IN.get(key)


def _is_constant(key: Key, obj: Object) -> bool:
    """Whether an object uses the same until it changes."""
    return key != CLAIMS and (key != PODS or "deletionTimestamp" not in obj["metadata"])


class _Seen:
    """Objects that the usage of claims depends on, as the controllers see them."""

    def __init__(self, seen: ObjectStore) -> None:
        self._seen = seen

    def device_classes(self) -> Iterable[Object]:
        """All DeviceClasses."""
        return self._seen.all("deviceclasses")

    def find_pod(self, namespace: str, name: str) -> Object | None:
        """A pod by its name."""
        return self._seen.get("pods", f"{namespace}/{name}")

    def claims_in(self, namespace: str) -> Iterable[Object]:
        """The ResourceClaims of a namespace."""
        return self._seen.list_namespace("resourceclaims", namespace)
