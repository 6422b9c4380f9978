"""What is particular to single kinds when their objects are written: preparation and validation.

One Hooks for a resource; most need none. A new kind is one row in HOOKS. Source: each kind's
pkg/registry/*/strategy.go, Kubernetes 1.36.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from stower.api import pods
from stower.api.calls import Call
from stower.api.errors import FieldError
from stower.api.registry import Resource

Object = dict[str, Any]
Prepare = Callable[[Call, Object], None]
Change = Callable[[Call, Object, Object], None]


@dataclass(frozen=True)
class Hooks:
    """What a kind does besides what all do."""

    prepare_create: Prepare | None = None
    prepare_update: Change | None = None
    prepare_status: Change | None = None
    validate_create: Callable[[Call, Object], list[FieldError]] | None = None
    validate_update: Callable[[Call, Object, Object], list[FieldError]] | None = None
    validate_status: Callable[[Call, Object, Object], list[FieldError]] | None = None
    warnings: Callable[[Call, Object], list[str]] | None = None
    counted: Callable[[Object], Any] | None = None  # what a generation counts changes of
    after: Callable[[Call, Object | None], None] | None = None  # it is stored; None: it is gone


def _new_secret(call: Call, item: Object) -> None:
    _merge_string_data(item)


def _merge_string_data(item: Object) -> None:
    """stringData is written to data, and never kept."""
    from base64 import b64encode

    plain = item.pop("stringData", None)
    if plain:
        data = item.setdefault("data", {})
        for name, value in plain.items():
            data[name] = b64encode(value.encode()).decode()


def _changed_secret(call: Call, new: Object, old: Object) -> None:
    _merge_string_data(new)
    new.setdefault("type", old.get("type", "Opaque"))


def _new_namespace(call: Call, item: Object) -> None:
    meta, spec = item["metadata"], item["spec"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    finalizers = spec.get("finalizers") or []
    spec["finalizers"] = [*finalizers, *(["kubernetes"] if "kubernetes" not in finalizers else [])]
    item["status"] = {"phase": "Active"}


def _changed_namespace(call: Call, new: Object, old: Object) -> None:
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"][
        "name"
    ]
    new["spec"] = dict(old.get("spec") or {})


def _phase(phase: str) -> Prepare:
    def prepare(call: Call, item: Object) -> None:
        item["status"] = {"phase": phase}

    return prepare


def _pending_volume(call: Call, item: Object) -> None:
    item["status"] = {"phase": "Pending", "lastPhaseTransitionTime": call.now}


def _changed_volume_status(call: Call, new: Object, old: Object) -> None:
    status, before = new["status"], old.get("status") or {}
    if status.get("phase") != before.get("phase"):
        status["lastPhaseTransitionTime"] = call.now
    elif "lastPhaseTransitionTime" in before:
        status.setdefault("lastPhaseTransitionTime", before["lastPhaseTransitionTime"])


def _new_service(call: Call, item: Object) -> None:
    item["status"] = {"loadBalancer": {}}
    _addresses(call, item, None)


def _changed_service(call: Call, new: Object, old: Object) -> None:
    _addresses(call, new, old)


def _addresses(call: Call, item: Object, old: Object | None) -> None:
    """Cluster addresses and node ports: kept from before, else the next free ones."""
    spec = item["spec"]
    kind = spec.get("type")
    before = old["spec"] if old is not None else {}
    if kind == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(name, None)
        return
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if name in before and name not in spec:
            spec[name] = before[name]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if not spec.get("clusterIP") and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    if not spec.get("clusterIP"):
        taken = {s["spec"].get("clusterIP") for s in _services(call)}
        spec["clusterIP"] = next(a for a in _cluster_addresses() if a not in taken)
    spec["clusterIPs"] = [spec["clusterIP"]]
    if kind in ("NodePort", "LoadBalancer"):
        taken_ports = {
            p.get("nodePort") for s in _services(call) for p in s["spec"].get("ports") or ()
        }
        kept = {p["port"]: p.get("nodePort") for p in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = kept.get(port["port"]) or next(
                    n for n in range(30000, 32768) if n not in taken_ports
                )
            taken_ports.add(port["nodePort"])


def _services(call: Call) -> list[Object]:
    records = call.api.store.collection(("", "services")).records
    return [r.decode() for r in records.values() if r.key != call.key(call.name or "?")]


def _cluster_addresses() -> Any:
    """10.96.0.10 upwards: the range of kubeadm, its first addresses left to the cluster itself."""
    return (f"10.96.{n >> 8}.{n & 255}" for n in range(10, 65535))


def _new_priority_class(call: Call, item: Object) -> None:
    item.setdefault("value", 0)


def _new_budget(call: Call, item: Object) -> None:
    item["status"] = call.resource.type.fields["status"].type.empty()  # type: ignore[union-attr]


def _new_job(call: Call, item: Object) -> None:
    """A selector of its own, and the labels that it looks for."""
    spec, meta = item["spec"], item["metadata"]
    if spec.get("manualSelector"):
        return
    own = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **own}
    selector = spec.setdefault("selector", {})
    uid = {"batch.kubernetes.io/controller-uid": meta["uid"]}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **uid}


def _changed_job(call: Call, new: Object, old: Object) -> None:
    if not new["spec"].get("selector"):
        new["spec"]["selector"] = old["spec"].get("selector")


def _new_daemon_set(call: Call, item: Object) -> None:
    annotations = item["metadata"].setdefault("annotations", {})
    annotations.setdefault("deprecated.daemonset.template.generation", "1")


def _changed_daemon_set(call: Call, new: Object, old: Object) -> None:
    name = "deprecated.daemonset.template.generation"
    number = int((old["metadata"].get("annotations") or {}).get(name, "1"))
    if new["spec"]["template"] != old["spec"]["template"]:
        number += 1
    new["metadata"].setdefault("annotations", {})[name] = str(number)


HOOKS: Final[dict[tuple[str, str], Hooks]] = {
    ("", "pods"): Hooks(
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        prepare_status=pods.prepare_status,
        counted=lambda item: item["spec"],
    ),
    ("", "namespaces"): Hooks(prepare_create=_new_namespace, prepare_update=_changed_namespace),
    ("", "persistentvolumeclaims"): Hooks(prepare_create=_phase("Pending")),
    ("", "persistentvolumes"): Hooks(
        prepare_create=_pending_volume, prepare_status=_changed_volume_status
    ),
    ("", "secrets"): Hooks(prepare_create=_new_secret, prepare_update=_changed_secret),
    ("", "services"): Hooks(prepare_create=_new_service, prepare_update=_changed_service),
    ("apps", "daemonsets"): Hooks(
        prepare_create=_new_daemon_set, prepare_update=_changed_daemon_set
    ),
    ("batch", "jobs"): Hooks(prepare_create=_new_job, prepare_update=_changed_job),
    ("policy", "poddisruptionbudgets"): Hooks(prepare_create=_new_budget),
    ("scheduling.k8s.io", "priorityclasses"): Hooks(prepare_create=_new_priority_class),
}
NONE: Final = Hooks()


def hooks_of(resource: Resource) -> Hooks:
    """The hooks of a resource."""
    if resource.custom is not None:
        found: Hooks = resource.custom.hooks
        return found
    return HOOKS.get(resource.key, NONE)
