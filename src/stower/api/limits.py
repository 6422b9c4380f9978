"""LimitRanger: fills in and bounds the requests and limits of containers, pods and claims.

Source: plugin/pkg/admission/limitranger, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.api.calls import Call
from stower.model.kinds import Pod
from stower.model.quantity import Quantity, quantity_of
from stower.model.resources import pod_requests

Object = dict[str, Any]
ANNOTATION: Final = "kubernetes.io/limit-ranger"


def _items(call: Call) -> Iterator[Object]:
    ranges = call.context.store.collection(("", "limitranges"))
    if ranges.records:
        for key in ranges.keys_in(call.namespace):
            yield from (ranges.records[key].decode()["spec"].get("limits")) or ()


def fill(call: Call, pod: Object) -> None:
    """Requests and limits that containers leave out."""
    requests: Object = {}
    bounds: Object = {}
    for item in _items(call):
        if item.get("type") == "Container":
            for name, value in (item.get("defaultRequest") or {}).items():
                requests.setdefault(name, value)
            for name, value in (item.get("default") or {}).items():
                bounds.setdefault(name, value)
    if not requests and not bounds:
        return
    notes = []
    spec = pod["spec"]
    for kind, containers in (
        ("container", spec.get("containers") or ()),
        ("init container", spec.get("initContainers") or ()),
    ):
        for container in containers:
            resources = container["resources"]
            for word, field, defaults in (
                ("request", "requests", requests),
                ("limit", "limits", bounds),
            ):
                given = resources.get(field) or {}
                added = sorted(n for n in defaults if n not in given)
                if added:
                    resources[field] = {**given, **{n: defaults[n] for n in added}}
                    name = container.get("name", "")
                    notes.append(f"{', '.join(added)} {word} for {kind} {name}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)


def check(call: Call, item: Object) -> None:
    """Refuse what is out of bounds."""
    if call.resource.key == ("", "pods"):
        faults = [f for limit in _items(call) for f in _pod_faults(limit, item)]
    elif call.resource.key == ("", "persistentvolumeclaims"):
        faults = [
            fault
            for limit in _items(call)
            if limit.get("type") == "PersistentVolumeClaim"
            for fault in _faults(limit, (item["spec"].get("resources") or {}).get("requests"), None)
        ]
    else:
        return
    if faults:
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        raise call.forbidden(item["metadata"]["name"], text)


def _pod_faults(limit: Object, pod: Object) -> Iterator[str]:
    spec = pod["spec"]
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    if limit.get("type") == "Container":
        for container in containers:
            resources = container["resources"]
            yield from _faults(limit, resources.get("requests"), resources.get("limits"))
    elif limit.get("type") == "Pod":
        asked = total(spec, "requests")
        yield from _faults(limit, asked, total(spec, "limits"))


def total(spec: Object, field: str) -> Object:
    """The sum over containers of requests or limits, as requests of a pod are summed."""
    swapped = {**spec}
    swapped.pop("resources", None)
    for name in ("containers", "initContainers"):
        swapped[name] = [
            {**c, "resources": {"requests": (c.get("resources") or {}).get(field) or {}}}
            for c in spec.get(name) or ()
        ]
    total = pod_requests(msgspec.convert({"metadata": {}, "spec": swapped}, Pod))
    return {name: str(value) for name, value in total.items()}


def _faults(limit: Object, requests: Object | None, bounds: Object | None) -> Iterator[str]:
    asked = {n: quantity_of(v) for n, v in (requests or {}).items()}
    bound = {n: quantity_of(v) for n, v in (bounds or {}).items()}
    kind = limit.get("type", "")
    claim = bounds is None
    for name, value in sorted((limit.get("min") or {}).items()):
        least = quantity_of(value)
        head = f"minimum {name} usage per {kind} is {value}"
        if name not in asked:
            yield f"{head}.  No request is specified"
        elif asked[name].cmp(least) < 0:
            yield f"{head}, but request is {asked[name]}"
        elif name in bound and bound[name].cmp(least) < 0:
            yield f"{head}, but limit is {bound[name]}"
    for name, value in sorted((limit.get("max") or {}).items()):
        most = quantity_of(value)
        head = f"maximum {name} usage per {kind} is {value}"
        if claim:
            if name in asked and asked[name].cmp(most) > 0:
                yield f"{head}, but request is {asked[name]}"
        elif name not in bound:
            yield f"{head}.  No limit is specified"
        elif bound[name].cmp(most) > 0:
            yield f"{head}, but limit is {bound[name]}"
        elif name in asked and asked[name].cmp(most) > 0:
            yield f"{head}, but request is {asked[name]}"
    for name, value in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        yield from _ratio(name, kind, value, asked.get(name), bound.get(name))


def _ratio(
    name: str, kind: str, value: str, asked: Quantity | None, bound: Quantity | None
) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {kind} is {value}"
    if asked is None or asked.milli_value() == 0:
        yield f"{head}, but no request is specified or request is 0"
    elif bound is None or bound.is_zero:
        yield f"{head}, but no limit is specified or limit is 0"
    else:
        found = bound.milli_value() / asked.milli_value()
        if found > quantity_of(value).milli_value() / 1000:
            yield f"{head}, but provided ratio is {found:f}"
