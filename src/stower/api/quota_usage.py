"""Computes what objects use of ResourceQuotas: which names of a quota count a kind, what one object
uses of them, and which objects are in a quota's scopes.

Admission and the controller of quotas share this rule. Source: pkg/quota/v1/evaluator/core,
apiserver pkg/quota/v1/generic, Kubernetes 1.36 with its default gates.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from stower.api.qos import qos_class
from stower.model.kinds import Pod
from stower.model.kinds.resource_claim import EXTENDED_RESOURCE_CLAIM
from stower.model.quantity import Quantity, quantity_of
from stower.model.resources import (
    CLASS_PREFIX,
    HUGE_PAGES,
    is_class_resource,
    is_pod_level,
    pod_requests,
)
from stower.model.storage_class import BETA_CLASS
from stower.model.times import SECOND_NS, time_ns

Object = dict[str, Any]
Amounts = dict[str, Quantity]
Key = tuple[str, str]  # group and plural

ZERO: Final = Quantity.of(0)
ONE: Final = Quantity.of(1)
PODS: Final = ("", "pods")
SERVICES: Final = ("", "services")
VOLUME_CLAIMS: Final = ("", "persistentvolumeclaims")
CLAIMS: Final = ("resource.k8s.io", "resourceclaims")
QUOTAS: Final = ("", "resourcequotas")
# Kinds that are counted by their plural too, and no more than that.
ALIASED: Final = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
IGNORED: Final = (("", "events"), ("events.k8s.io", "events"), ("", "bindings"))
COUNT: Final = "count/"
REQUESTS: Final = "requests."
LIMITS: Final = "limits."
COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
POD_NAMES: Final = frozenset(
    ["pods", *COMPUTE, *(f"{part}{name}" for part in (REQUESTS, LIMITS) for name in COMPUTE)]
)
MUST_SPECIFY: Final = frozenset(
    f"{part}{name}" for part in ("", REQUESTS, LIMITS) for name in ("cpu", "memory")
)
SERVICE_NAMES: Final = frozenset(["services", "services.nodeports", "services.loadbalancers"])
VOLUME_CLAIM_NAMES: Final = ("persistentvolumeclaims", "requests.storage")
STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
DEVICE_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
IMPLICIT_CLASS: Final = f"{REQUESTS}{CLASS_PREFIX}"
DEVICES_MAX: Final = 32  # AllocationResultsMaxSize: what a request for all devices may get


class RelatedObjects(Protocol):
    """What else the usage of ResourceClaims depends on."""

    def device_classes(self) -> Iterable[Object]:
        """All DeviceClasses."""

    def find_pod(self, namespace: str, name: str) -> Object | None:
        """A pod by its name."""

    def claims_in(self, namespace: str) -> Iterable[Object]:
        """The ResourceClaims of a namespace."""


def count_name(key: Key) -> str:
    """The name that counts the objects of a kind."""
    group, plural = key
    return f"{COUNT}{plural}.{group}" if group else f"{COUNT}{plural}"


def kinds_of_name(name: str, related: RelatedObjects) -> tuple[Key, ...]:
    """Group and plural of the kinds that are counted by a name of a quota."""
    if name.startswith(COUNT):
        plural, _, group = name.removeprefix(COUNT).partition(".")
        return ((group, plural),) if (group, plural) not in IGNORED else ()
    if name in SERVICE_NAMES:
        return (SERVICES,)
    if name in ALIASED:
        return (("", name),)
    if name in VOLUME_CLAIM_NAMES or name.endswith(
        tuple(f"{STORAGE_CLASS}{own}" for own in VOLUME_CLAIM_NAMES)
    ):
        return (VOLUME_CLAIMS,)
    if name.endswith(DEVICE_CLASS):
        return (CLAIMS,)
    if name in POD_NAMES or name.startswith((HUGE_PAGES, f"{REQUESTS}{HUGE_PAGES}")):
        return (PODS,)
    if not _is_extended(name):
        return ()
    return (PODS, CLAIMS) if _is_counted_by_claims(name, related) else (PODS,)


def tracked_names(key: Key, names: Iterable[str], related: RelatedObjects) -> list[str]:
    """Those of the names of a quota that count objects of a kind, sorted."""
    return sorted(name for name in names if key in kinds_of_name(name, related))


def _is_extended(name: str) -> bool:
    """Source: isExtendedResourceNameForQuota."""
    is_native = "/" not in name or "kubernetes.io/" in name
    return name.startswith(IMPLICIT_CLASS) or (name.startswith(REQUESTS) and not is_native)


def _is_counted_by_claims(name: str, related: RelatedObjects) -> bool:
    """Whether devices of a class are given out for the extended resource."""
    if name.startswith(IMPLICIT_CLASS):
        own = name.removeprefix(IMPLICIT_CLASS)
        return any(found["metadata"]["name"] == own for found in related.device_classes())
    return name.removeprefix(REQUESTS) in _extended_resources(related).values()


def _extended_resources(related: RelatedObjects) -> dict[str, str]:
    """By device class: the extended resource that it gives out; none where it has no name."""
    return {
        found["metadata"]["name"]: extended
        for found in related.device_classes()
        if (extended := (found.get("spec") or {}).get("extendedResourceName"))
    }


# Usage


def usage_of(key: Key, item: Object, related: RelatedObjects, now_ns: int) -> Amounts:
    """What an object uses, of all names that there may be."""
    found: Amounts = {count_name(key): ONE}
    if key == PODS:
        if is_charged(item, now_ns):
            found |= _pod_usage(item)
    elif key == SERVICES:
        found |= _service_usage(item["spec"])
    elif key == VOLUME_CLAIMS:
        found |= _volume_claim_usage(item)
    elif key == CLAIMS:
        found |= _claim_usage(item, related, now_ns)
    elif key[1] in ALIASED and not key[0]:
        found[key[1]] = ONE
    return found


def is_charged(pod: Object, now_ns: int) -> bool:
    """Whether a pod counts as more than an object: it has not ended, and its deletion is not
    overdue, as on a node that is lost."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    due_ns = release_ns(pod)
    return due_ns is None or now_ns <= due_ns


def release_ns(pod: Object) -> int | None:
    """When the deletion of a pod is overdue; None where it is not being deleted."""
    meta = pod["metadata"]
    at_ns, grace_s = time_ns(meta.get("deletionTimestamp")), meta.get("deletionGracePeriodSeconds")
    return None if at_ns is None or grace_s is None else at_ns + int(grace_s) * SECOND_NS


def _pod_usage(item: Object) -> Amounts:
    found: Amounts = {"pods": ONE}
    for name, value in pod_requests(_pod_view(item, "requests"), use_status=True).items():
        if name in COMPUTE or name.startswith(HUGE_PAGES):
            found[name] = found[f"{REQUESTS}{name}"] = value
        elif is_class_resource(name):
            found[f"{REQUESTS}{name}"] = value
    for name, value in _pod_limits(item).items():
        if name in COMPUTE:
            found[f"{LIMITS}{name}"] = value
    return found


def _pod_limits(item: Object) -> Amounts:
    """The limits of a pod as a whole. Source: component-helpers resource/helpers.go, PodLimits."""
    spec = item["spec"]
    found = pod_requests(_pod_view(item, "limits"), use_status=True, pod_level=False)
    for name, text in ((spec.get("resources") or {}).get("limits") or {}).items():
        if is_pod_level(name):
            found[name] = quantity_of(text)
    for name, text in (spec.get("overhead") or {}).items():
        if name in found and not found[name].is_zero:
            found[name] = found[name].add(quantity_of(text))
    return found


def _pod_view(item: Object, field: str) -> Pod:
    """The pod with its limits, or its requests, as its requests; the limits without overhead."""
    spec, status = item["spec"], item.get("status") or {}
    parts: Object = {
        name: [_resources_only(part, field) for part in spec.get(name) or ()]
        for name in ("containers", "initContainers")
    }
    statuses: Object = {
        name: [_resources_only(part, field) for part in status.get(name) or ()]
        for name in ("containerStatuses", "initContainerStatuses")
    }
    if field == "requests":
        parts |= {name: spec[name] for name in ("resources", "overhead") if name in spec}
        kept = ("conditions", "resources", "allocatedResources")
        statuses |= {name: status[name] for name in kept if name in status}
    else:
        statuses["conditions"] = status.get("conditions") or []
    return msgspec.convert({"metadata": {}, "spec": parts, "status": statuses}, Pod)


def _resources_only(part: Object, field: str) -> Object:
    found: Object = {"name": part.get("name", "")}
    if "restartPolicy" in part:
        found["restartPolicy"] = part["restartPolicy"]
    if part.get("resources") is not None:
        found["resources"] = {"requests": part["resources"].get(field) or {}}
    if field == "requests" and part.get("allocatedResources"):
        found["allocatedResources"] = part["allocatedResources"]
    return found


def _service_usage(spec: Object) -> Amounts:
    found, ports = {"services": ONE}, spec.get("ports") or ()
    if spec.get("type") == "LoadBalancer":
        found["services.loadbalancers"] = ONE
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        found["services.nodeports"] = Quantity.of(len(ports))
    return found


def _volume_claim_usage(item: Object) -> Amounts:
    found = {"persistentvolumeclaims": ONE}
    storage = _storage(item)
    if storage is not None:
        found["requests.storage"] = storage
    annotations = item["metadata"].get("annotations") or {}
    own = annotations.get(BETA_CLASS, item["spec"].get("storageClassName"))
    if own:
        found |= {f"{own}{STORAGE_CLASS}{name}": value for name, value in found.items()}
    return found


def _storage(item: Object) -> Quantity | None:
    """The requested storage in whole bytes, or what is allocated, if that is more."""
    asked = ((item["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        return None
    found = quantity_of(asked)
    allocated = ((item.get("status") or {}).get("allocatedResources") or {}).get("storage")
    if allocated is not None and quantity_of(allocated).cmp(found) > 0:
        found = quantity_of(allocated)
    whole = Quantity.of(found.round_up(0), found.format)
    return found if whole.cmp(found) == 0 else whole


def _claim_usage(claim: Object, related: RelatedObjects, now_ns: int) -> Amounts:
    found: Amounts = {}
    for request in ((claim["spec"].get("devices") or {}).get("requests")) or ():
        most: dict[str, int] = {}  # of alternatives, the most of each class
        for part in request.get("firstAvailable") or (request.get("exactly"),):
            if part is not None:
                name = f"{part.get('deviceClassName', '')}{DEVICE_CLASS}"
                most[name] = max(most.get(name, 0), _device_count(part))
        for name, count in most.items():
            found[name] = found.get(name, ZERO).add(Quantity.of(count))
    pod_usage = _usage_of_owner(claim, related, now_ns)
    extended = _extended_resources(related)
    for name, value in tuple(found.items()):
        own = name.removesuffix(DEVICE_CLASS)
        names = [f"{IMPLICIT_CLASS}{own}"]
        if own in extended:
            names.append(f"{REQUESTS}{extended[own]}")
        for other in names:
            rest = value.sub(pod_usage[other]) if other in pod_usage else value
            if rest.sign > 0:
                found[other] = rest
    return found


def _device_count(part: Object) -> int:
    mode = part.get("allocationMode", "ExactCount")
    if mode == "All":
        return DEVICES_MAX
    return int(part.get("count", 1)) if mode == "ExactCount" else 0


def _usage_of_owner(claim: Object, related: RelatedObjects, now_ns: int) -> Amounts:
    """What the pod for whose extended resources a claim was made uses, as it is counted already.
    Source: getVerifiedPodUsage."""
    meta = claim["metadata"]
    if (meta.get("annotations") or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return {}
    owner: Object = next((r for r in meta.get("ownerReferences") or () if r.get("controller")), {})
    if (owner.get("apiVersion"), owner.get("kind")) != ("v1", "Pod"):
        return {}
    namespace = meta.get("namespace", "")
    pod = related.find_pod(namespace, owner["name"])
    if pod is None or pod["metadata"]["uid"] != owner["uid"]:
        return {}
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if told is not None:
        is_first = told.get("resourceClaimName") == meta["name"]
    else:
        own = (meta.get("creationTimestamp") or "", meta["name"])
        is_first = all(
            own <= (other["metadata"].get("creationTimestamp") or "", other["metadata"]["name"])
            for other in related.claims_in(namespace)
            if _is_extended_claim_of(other, owner["uid"])
        )
    return usage_of(PODS, pod, related, now_ns) if is_first else {}


def _is_extended_claim_of(claim: Object, uid: str) -> bool:
    meta = claim["metadata"]
    return (meta.get("annotations") or {}).get(EXTENDED_RESOURCE_CLAIM) == "true" and any(
        reference.get("controller") and reference["uid"] == uid
        for reference in meta.get("ownerReferences") or ()
    )


# Scopes


def is_in_scope(spec: Object, key: Key, item: Object) -> bool:
    """Whether an object is in all scopes of a quota."""
    scopes = [(scope, "Exists", ()) for scope in spec.get("scopes") or ()]
    selector = spec.get("scopeSelector") or {}
    scopes += [
        (e.get("scopeName"), e.get("operator"), tuple(e.get("values") or ()))
        for e in selector.get("matchExpressions") or ()
    ]
    if not scopes:
        return True
    if key == PODS:
        return all(_takes_pod(scope, item["spec"]) for scope in scopes)
    return key == VOLUME_CLAIMS and all(_takes_volume_claim(scope, item) for scope in scopes)


def is_terminating(pod: Object) -> bool:
    """Whether a pod is one that ends by itself after a time."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return seconds is not None and int(seconds) >= 0


def _takes_pod(scope: tuple[Any, Any, tuple[str, ...]], spec: Object) -> bool:
    name, operator, values = scope
    if name in ("Terminating", "NotTerminating"):
        return is_terminating({"spec": spec}) is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") is (name == "BestEffort")
    if name == "PriorityClass":
        own = spec.get("priorityClassName", "")
        return _selects(operator, values, {own} if own else set())
    if name == "CrossNamespacePodAffinity":
        return _has_cross_namespace_affinity(spec.get("affinity") or {})
    return False


def _takes_volume_claim(scope: tuple[Any, Any, tuple[str, ...]], item: Object) -> bool:
    name, operator, values = scope
    return name == "VolumeAttributesClass" and _selects(
        operator, values, volume_attributes_classes(item)
    )


def volume_attributes_classes(item: Object) -> set[str]:
    """The names of the VolumeAttributesClasses that a claim has, had or is to have."""
    status = item.get("status") or {}
    names = (
        item["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in names if name}


def _selects(operator: Any, values: tuple[str, ...], own: set[str]) -> bool:
    """Whether a requirement takes an object with these names; NotIn takes one without any."""
    if operator == "Exists":
        return bool(own)
    if operator == "DoesNotExist":
        return not own
    if operator == "In":
        return any(name in values for name in own)
    return bool(operator == "NotIn") and (not own or any(name not in values for name in own))


def _has_cross_namespace_affinity(affinity: Object) -> bool:
    for part in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(part) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(w.get("podAffinityTerm") or {} for w in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


# Constraints


def missing_amounts(names: Iterable[str], pod: Object) -> str:
    """What containers must specify for a quota that counts these names, in upstream's words; ""
    where nothing is missing. A pod with resources as a whole need not."""
    spec = pod["spec"]
    own = spec.get("resources") or {}
    if any(is_pod_level(n) for field in ("requests", "limits") for n in own.get(field) or ()):
        return ""
    missing: dict[str, list[str]] = {}
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    for name in sorted(MUST_SPECIFY.intersection(names)):
        field = "limits" if name.startswith(LIMITS) else "requests"
        resource = name.rpartition(".")[2]
        for container in containers:
            if resource not in ((container.get("resources") or {}).get(field) or {}):
                missing.setdefault(name, []).append(container.get("name", ""))
    return "; ".join(f"{name} for: {','.join(sorted(set(c)))}" for name, c in missing.items())
