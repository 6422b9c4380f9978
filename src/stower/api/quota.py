"""ResourceQuota: rejects objects beyond the quotas of a namespace, and counts what is written.

A quota applies once its status has limits: a controller fills in the usage when the quota is
created, from then on every write adds its own. Source: apiserver pkg/quota,
pkg/quota/v1/evaluator/core, plugin resourcequota, Kubernetes 1.36.
"""

from typing import Any, Final

import msgspec

from stower.api.calls import Call
from stower.api.limits import total
from stower.api.qos import qos_class
from stower.model.kinds import Pod
from stower.model.quantity import Quantity, quantity_of
from stower.model.resources import pod_requests

Object = dict[str, Any]
Amounts = dict[str, Quantity]
Usage = dict[str, Amounts]  # key of the quota -> what is added to it

ONE: Final = Quantity.of(1)
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = ("pods", "services", "replicationcontrollers", "resourcequotas", "secrets",
                   "configmaps", "persistentvolumeclaims")  # fmt: skip


def check(call: Call, item: Object, old: Object | None) -> Usage:
    """What the object adds to each quota. Raises ApiError 403 where that is too much."""
    quotas = call.context.store.collection(("", "resourcequotas"))
    if not quotas.records or not call.resource.namespaced:
        return {}
    found: Usage = {}
    wanted: Amounts | None = None
    for key in quotas.keys_in(call.namespace):
        if call.resource.key == ("", "resourcequotas"):
            break
        stored = quotas.records[key].decode()
        hard = (stored.get("status") or {}).get("hard") or {}
        if not hard or not _in_scope(stored["spec"], call, item):
            continue
        if wanted is None:
            wanted = _usage(call, item)
            before = _usage(call, old) if old is not None else {}
            wanted = {n: v.sub(before[n]) if n in before else v for n, v in wanted.items()}
            wanted = {n: v for n, v in wanted.items() if v.sign > 0}
        _check_named(call, item, stored, hard)
        added = {name: value for name, value in wanted.items() if name in hard}
        if added:
            _check_room(call, item, stored, added)
            found[key] = added
    return found


def _check_room(call: Call, item: Object, stored: Object, added: Amounts) -> None:
    status = stored["status"]
    used = status.get("used") or {}
    over = []
    for name, value in sorted(added.items()):
        if name not in used:
            text = f"status unknown for quota: {stored['metadata']['name']}, resources: {name}"
            raise call.forbidden(_name(item), text)
        if quantity_of(used[name]).add(value).cmp(quantity_of(status["hard"][name])) > 0:
            over.append(name)
    if over:
        parts = (
            ("requested", {n: str(added[n]) for n in over}),
            ("used", used),
            ("limited", status["hard"]),
        )
        shown = ", ".join(f"{w}: " + ",".join(f"{n}={v[n]}" for n in over) for w, v in parts)
        text = f"exceeded quota: {stored['metadata']['name']}, {shown}"
        raise call.forbidden(_name(item), text)


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def book(call: Call, usage: Usage) -> None:
    """Add what was written to the quotas' status."""
    quotas = call.context.store.collection(("", "resourcequotas"))
    for key, added in usage.items():
        record = quotas.records.get(key)
        if record is None:
            continue
        stored = record.decode()
        used = stored["status"].setdefault("used", {})
        for name, value in added.items():
            used[name] = str(quantity_of(used[name]).add(value))
        call.context.store.put(quotas, key, stored)


def _check_named(call: Call, item: Object, stored: Object, hard: Object) -> None:
    """Each container must say how much of a counted resource it takes."""
    if call.resource.key != ("", "pods"):
        return
    missing: dict[str, list[str]] = {}
    spec = item["spec"]
    own = spec.get("resources") or {}
    for name in sorted(hard):
        field, resource = _field_of(name)
        if resource not in ("cpu", "memory"):
            continue
        if resource in (own.get(field) or {}):
            continue
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            if resource not in (container["resources"].get(field) or {}):
                missing.setdefault(name, []).append(container.get("name", ""))
    if missing:
        shown = "; ".join(f"{n} for: {','.join(sorted(c))}" for n, c in missing.items())
        text = f"failed quota: {stored['metadata']['name']}: must specify {shown}"
        raise call.forbidden(_name(item), text)


def _field_of(name: str) -> tuple[str, str]:
    if name.startswith("limits."):
        return "limits", name.removeprefix("limits.")
    return "requests", name.removeprefix("requests.")


def _usage(call: Call, item: Object) -> Amounts:
    group, plural = call.resource.key
    count = f"count/{plural}.{group}" if group else f"count/{plural}"
    found: Amounts = {count: ONE}
    if not group and plural in _COUNTED:
        found[plural] = ONE
    if (group, plural) == ("", "pods"):
        found |= _pod_usage(item)
    elif (group, plural) == ("", "persistentvolumeclaims"):
        storage = ((item["spec"].get("resources") or {}).get("requests") or {}).get("storage")
        own = item["spec"].get("storageClassName")
        if storage:
            found["requests.storage"] = quantity_of(storage)
        if own:
            prefix = f"{own}.storageclass.storage.k8s.io"
            found[f"{prefix}/persistentvolumeclaims"] = ONE
            if storage:
                found[f"{prefix}/requests.storage"] = quantity_of(storage)
    elif (group, plural) == ("", "services"):
        ports = item["spec"].get("ports") or ()
        if item["spec"].get("type") in ("NodePort", "LoadBalancer"):
            found["services.nodeports"] = Quantity.of(len(ports))
        if item["spec"].get("type") == "LoadBalancer":
            found["services.loadbalancers"] = ONE
    return found


def _pod_usage(item: Object) -> Amounts:
    spec = item["spec"]
    found: Amounts = {}
    asked = pod_requests(msgspec.convert({"metadata": {}, "spec": spec}, Pod))
    for name, value in asked.items():
        if name in _COMPUTE:
            found[name] = value
        found[f"requests.{name}"] = value
    for name, text in total(spec, "limits").items():
        found[f"limits.{name}"] = quantity_of(text)
    return found


def _in_scope(spec: Object, call: Call, item: Object) -> bool:
    scopes = [(s, "Exists", ()) for s in spec.get("scopes") or ()]
    selector = spec.get("scopeSelector") or {}
    scopes += [
        (e.get("scopeName"), e.get("operator"), tuple(e.get("values") or ()))
        for e in selector.get("matchExpressions") or ()
    ]
    if not scopes:
        return True
    if call.resource.key != ("", "pods"):
        return False
    return all(_scope_takes(scope, item["spec"]) for scope in scopes)


def _scope_takes(scope: tuple[Any, Any, tuple[str, ...]], spec: Object) -> bool:
    name, operator, values = scope
    if name in ("Terminating", "NotTerminating"):
        return bool((spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        return bool((qos_class(spec) == "BestEffort") == (name == "BestEffort"))
    if name == "PriorityClass":
        own = spec.get("priorityClassName", "")
        if operator in ("Exists", "DoesNotExist"):
            return (own != "") is (operator == "Exists")
        return bool((own in values) == (operator == "In"))
    return False
