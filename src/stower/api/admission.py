"""Runs admission plugins: they change a written object, or reject it by rules about other objects.

On by default: Priority, DefaultTolerationSeconds, RuntimeClass, DefaultStorageClass, LimitRanger,
ResourceQuota, PersistentVolumeClaimResize, protection of volumes in use and the life cycle of
namespaces; ServiceAccount and TaintNodesByCondition on request. Source: plugin/pkg/admission,
Kubernetes 1.36.
"""

from collections.abc import Callable
from typing import Any, Final

from stower.api import limits, quota
from stower.api.calls import Call
from stower.api.errors import Object, not_found
from stower.model.quantity import Quantity, parse_quantity
from stower.model.storage_class import BETA_CLASS, default_class

OPTIONAL: Final = ("ServiceAccount", "TaintNodesByCondition")
PROTECTED: Final = ("default", "kube-system", "kube-public")
NOT_READY: Final = "node.kubernetes.io/not-ready"
EVICTING: Final = (NOT_READY, "node.kubernetes.io/unreachable")
TOLERATION_SECONDS: Final = 300
Usage = quota.Usage
# What can be in a group.
GROUPED: Final = (
    ("", "pods"), ("scheduling.k8s.io", "podgroups"), ("scheduling.k8s.io", "compositepodgroups"),
)  # fmt: skip


def check_namespace(call: Call, name: str) -> None:
    """Nothing new (of this name) in a namespace that is missing or ends."""
    if not call.resource.namespaced:
        return
    namespaces = call.context.store.collection(("", "namespaces"))
    record = namespaces.records.get(call.namespace)
    if record is None:
        raise not_found("", "namespaces", call.namespace)
    if record.fields.get("status.phase") == "Terminating":
        text = (
            f"unable to create new content in namespace {call.namespace} because it is being "
            "terminated"
        )
        error = call.forbidden(name, text)
        assert error.details is not None
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error


def check_delete(call: Call) -> None:
    """Some namespaces stay."""
    if call.resource.key == ("", "namespaces") and call.name in PROTECTED:
        raise call.forbidden(call.name, "this namespace may not be deleted")


def mutate_new(call: Call, item: Object) -> None:
    """What admission changes of a new object."""
    for mutate in MUTATIONS.get(call.resource.key, ()):
        mutate(call, item)


def mutate_update(call: Call, new: Object, old: Object) -> None:
    """What admission changes or refuses of a changed object before it is validated."""
    if call.resource.key == ("", "pods"):
        _tolerations(call, new)
        for name in ("priority", "preemptionPolicy"):  # taken over where they are not sent
            if name in old["spec"]:
                new["spec"].setdefault(name, old["spec"][name])
    if call.resource.key == ("scheduling.k8s.io", "priorityclasses"):
        _check_priority_class(call, new)


def check_new(call: Call, item: Object) -> Usage:
    """What admission refuses of a new object; what it will use of quotas."""
    limits.check(call, item)
    _check_group(call, item)
    return quota.check(call, item, None)


def _check_group(call: Call, item: Object) -> None:
    """Nobody comes into a group that is being deleted. Source: plugin/pkg/admission/scheduling/
    podgroupprotection, Kubernetes 1.37."""
    spec = item.get("spec") or {}
    if call.resource.key == ("", "pods"):
        around, kind = (spec.get("schedulingGroup") or {}).get("podGroupName"), "PodGroup"
    else:
        around, kind = spec.get("parentCompositePodGroupName"), "CompositePodGroup"
    if not around or call.resource.key not in GROUPED:
        return
    key = ("scheduling.k8s.io", f"{kind.lower()}s")
    record = call.context.store.collection(key).records.get(f"{call.namespace}/{around}")
    if record is not None and "deletionTimestamp" in record.decode()["metadata"]:
        what = call.resource.kind
        text = f'cannot create {what} referencing {kind} "{around}" because it is being deleted'
        raise call.forbidden(_name(item), text)


def check_update(call: Call, new: Object, old: Object) -> Usage:
    """What admission refuses of a changed object; what more it will use of quotas."""
    if call.resource.plural == "persistentvolumeclaims" and not call.subresource:
        _check_growth(call, new, old)
    return quota.check(call, new, old)


def settle(call: Call, usage: Usage | None) -> None:
    """The write is done: book what it uses."""
    if usage:
        quota.book(call, usage)


# Pods


def _name(item: Object) -> str:
    return str(item["metadata"].get("name") or item["metadata"].get("generateName", ""))


def _class_of(call: Call, item: Object) -> Object | None:
    """The PriorityClass that an object names, or the default one; None where there is none."""
    classes = call.context.store.collection(("scheduling.k8s.io", "priorityclasses"))
    name = item["spec"].get("priorityClassName", "")
    if name:
        record = classes.records.get(name)
        if record is None:
            raise call.forbidden(_name(item), f"no PriorityClass with name {name} was found")
        found: Object = record.decode()
        return found
    defaults = [r.decode() for r in classes.records.values() if b'"globalDefault":true' in r.raw]
    if not defaults:
        return None
    return min(defaults, key=lambda c: (c.get("value", 0), c["metadata"]["name"]))


def _group_priority(call: Call, item: Object) -> None:
    """The same for a group. Where there is no class, none is set and its pods' priority is the
    group's: upstream would set 0, and refuse to place pods of any other."""
    spec, found = item["spec"], _class_of(call, item)
    value, given = (found or {}).get("value", 0), spec.get("priority")
    if given is not None and given != value:
        what = "composite pod group" if call.resource.kind == "CompositePodGroup" else "pod group"
        text = (
            f"priority set in the {what} ({given}) must match the priority computed ({value}) "
            "based on the priority class set in the spec"
        )
        raise call.forbidden(_name(item), text)
    if found is None:
        return
    spec["priorityClassName"], spec["priority"] = found["metadata"]["name"], value
    if call.resource.version != "v1alpha2":
        spec["preemptionPolicy"] = _preemption_policy(call, item, found, "pod group spec")


def _preemption_policy(call: Call, item: Object, found: Object | None, where: str) -> str:
    """What the PriorityClass says, which the object itself may only repeat."""
    policy = str((found or {}).get("preemptionPolicy") or "PreemptLowerPriority")
    given = item["spec"].get("preemptionPolicy")
    if given is not None and given != policy:
        text = (
            f"the string value of PreemptionPolicy ({given}) must not be provided in {where}; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise call.forbidden(_name(item), text)
    return policy


def _priority(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/priority."""
    spec, found = item["spec"], _class_of(call, item)
    value = 0
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        value = found.get("value", 0)
    given = spec.get("priority")
    if given is not None and given != value:
        text = (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name"
        )
        raise call.forbidden(_name(item), text)
    spec["priority"] = value
    spec["preemptionPolicy"] = _preemption_policy(call, item, found, "pod spec")


def _tolerations(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/defaulttolerationseconds."""
    tolerations = item["spec"].get("tolerations") or []
    missing = [
        key
        for key in EVICTING
        if not any(
            t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "")
            for t in tolerations
        )
    ]
    if missing:
        item["spec"]["tolerations"] = tolerations + [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            }
            for key in missing
        ]


def _runtime_class(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/runtimeclass."""
    spec = item["spec"]
    name = spec.get("runtimeClassName")
    found: Object = {}
    if name is not None:
        classes = call.context.store.collection(("node.k8s.io", "runtimeclasses"))
        record = classes.records.get(name)
        if record is None:
            text = f'pod rejected: RuntimeClass "{name}" not found'
            raise call.forbidden(_name(item), text)
        found = record.decode()
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") and spec["overhead"] != overhead:
            text = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise call.forbidden(_name(item), text)
        spec["overhead"] = overhead
    elif spec.get("overhead"):
        text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise call.forbidden(_name(item), text)
    scheduling = found.get("scheduling") or {}
    for key, value in sorted((scheduling.get("nodeSelector") or {}).items()):
        selector = spec.setdefault("nodeSelector", {})
        if selector.setdefault(key, value) != value:
            text = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise call.forbidden(_name(item), text)
    if scheduling.get("tolerations"):
        everything = [*(spec.get("tolerations") or []), *scheduling["tolerations"]]
        spec["tolerations"] = _merged_tolerations(everything)


def _merged_tolerations(tolerations: list[Object]) -> list[Object]:
    """Those that no other one covers. Source: pkg/util/tolerations MergeTolerations."""
    kept: list[Object] = []
    for i, one in enumerate(tolerations):
        covered = any(_covers(other, one) for other in kept) or any(
            other != one and _covers(other, one) for other in tolerations[i + 1 :]
        )
        if not covered:
            kept.append(one)
    return kept


def _covers(wide: Object, narrow: Object) -> bool:
    """Whether whatever the narrow one tolerates, the wide one does too."""

    def get_pair(name: str) -> tuple[Any, Any]:
        return wide.get(name) or "", narrow.get(name) or ""

    if wide == narrow:
        return True
    (key, other_key), (effect, other_effect) = get_pair("key"), get_pair("effect")
    exists = wide.get("operator") == "Exists"
    if key != other_key and (key or not exists):
        return False
    if effect and effect != other_effect:
        return False
    seconds, other_seconds = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None:
        if other_seconds is None or seconds < other_seconds:
            return False
    value, other_value = get_pair("value")
    return exists or (narrow.get("operator") != "Exists" and value == other_value)


def _service_account(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/serviceaccount. Only where it is switched on."""
    if "ServiceAccount" not in call.context.admission_plugins:
        return
    spec = item["spec"]
    name = spec.get("serviceAccountName") or "default"
    accounts = call.context.store.collection(("", "serviceaccounts"))
    if f"{call.namespace}/{name}" not in accounts.records:
        text = f"error looking up service account {call.namespace}/{name}: serviceaccount "
        error = call.forbidden(_name(item), f'{text}"{name}" not found')
        error.may_end = name == "default"  # which a new namespace gets in a moment
        raise error
    spec["serviceAccountName"] = spec["serviceAccount"] = name


# Others


def _finalizer(name: str) -> Callable[[Call, Object], None]:
    """Source: plugin/pkg/admission/storage/storageobjectinuseprotection."""

    def mutate(call: Call, item: Object) -> None:
        finalizers = item["metadata"].get("finalizers") or []
        if name not in finalizers:
            item["metadata"]["finalizers"] = [*finalizers, name]

    return mutate


def _storage_class(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/storage/storageclass/setdefault."""
    annotations = item["metadata"].get("annotations") or {}
    if "storageClassName" in item["spec"] or BETA_CLASS in annotations:
        return
    classes = call.context.store.collection(("storage.k8s.io", "storageclasses")).records.values()
    metas = (record.decode()["metadata"] for record in classes)
    name = default_class(
        (meta["name"], meta["creationTimestamp"], meta.get("annotations")) for meta in metas
    )
    if name:
        item["spec"]["storageClassName"] = name


def _check_growth(call: Call, new: Object, old: Object) -> None:
    """A claim asks for more only where its class lets it grow; validation has seen that it is
    bound. Source: plugin/pkg/admission/storage/persistentvolume/resize."""
    if _storage_of(new) <= _storage_of(old):
        return
    classes = call.context.store.collection(("storage.k8s.io", "storageclasses")).records
    record = classes.get(_class_name(new)) if _class_name(new) == _class_name(old) else None
    if record is None or not record.decode().get("allowVolumeExpansion"):
        text = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions "
            "the pvc must support resize"
        )
        raise call.forbidden(_name(new), text)


def _storage_of(claim: Object) -> Quantity:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(str(requests.get("storage") or "0"))


def _class_name(claim: Object) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(BETA_CLASS) or claim["spec"].get("storageClassName") or "")


def _check_priority_class(call: Call, item: Object) -> None:
    """At most one class is the default of all pods."""
    if not item.get("globalDefault"):
        return
    for record in call.collection.records.values():
        other = record.decode()
        name = other["metadata"]["name"]
        if other.get("globalDefault") and name != item["metadata"].get("name"):
            text = f"PriorityClass {name} is already marked as default. Only one default can exist"
            raise call.forbidden(_name(item), text)


def _taint_not_ready(call: Call, item: Object) -> None:
    """Source: plugin/pkg/admission/nodetaint. Only where it is switched on."""
    if "TaintNodesByCondition" not in call.context.admission_plugins:
        return
    taints = item["spec"].setdefault("taints", [])
    if not any(t.get("key") == NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})


MUTATIONS: Final[dict[tuple[str, str], tuple[Callable[[Call, Object], None], ...]]] = {
    ("", "pods"): (limits.fill, _service_account, _tolerations, _priority, _runtime_class),
    ("", "nodes"): (_taint_not_ready,),
    ("", "persistentvolumeclaims"): (_storage_class, _finalizer("kubernetes.io/pvc-protection")),
    ("", "persistentvolumes"): (_finalizer("kubernetes.io/pv-protection"),),
    ("scheduling.k8s.io", "compositepodgroups"): (_group_priority,),
    ("scheduling.k8s.io", "podgroups"): (_group_priority,),
    ("scheduling.k8s.io", "priorityclasses"): (_check_priority_class,),
}
