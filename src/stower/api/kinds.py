"""Registers the hooks of each built-in kind: functions that prepare and validate its objects.

Each resource has at most one Hooks; most need none. A new kind is one row in HOOKS. Source: each
kind's pkg/registry/*/strategy.go, Kubernetes 1.36.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from stower.api import custom_definitions, devices, escalation, pods
from stower.api.calls import Call
from stower.api.errors import FieldError
from stower.api.hooks import Hooks, Prepare
from stower.api.rbac import GROUP as RBAC
from stower.api.registry import Resource
from stower.api.schema import Type
from stower.api.validation import (
    cluster_kinds,
    device_classes,
    group_trees,
    job_status,
    jobs,
    nodes,
    pod_changes,
    pod_groups,
    pod_resize,
    pod_status,
    resource_claims,
    resource_slices,
    roles,
    storage,
    warnings,
    workloads,
)
from stower.api.validation import custom_definitions as definition_rules
from stower.api.validation import pods as rules
from stower.model.integers import parse_decimal

Object = dict[str, Any]


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
    if meta.get("name"):
        meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    finalizers = spec.get("finalizers") or []
    spec["finalizers"] = [*finalizers, *(["kubernetes"] if "kubernetes" not in finalizers else [])]
    item["status"] = {"phase": "Active"}


def _changed_namespace(call: Call, new: Object, old: Object) -> None:
    meta = new["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta.get("name", "")
    if call.subresource == "finalize":
        new["status"] = dict(old.get("status") or {})
    else:
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


def _same_labels(call: Call, new: Object, old: Object) -> None:
    """A status update of a Deployment keeps its labels."""
    new["metadata"].pop("labels", None)
    if "labels" in old["metadata"]:
        new["metadata"]["labels"] = old["metadata"]["labels"]


def _same_metadata(call: Call, new: Object, old: Object) -> None:
    """A status update that changes nothing of the metadata. Source: ResetObjectMetaForStatus."""
    meta = new["metadata"]
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]


def _changed_claim_status(call: Call, new: Object, old: Object) -> None:
    _same_metadata(call, new, old)
    devices.drop_deallocated(new, old)


def _new_limit_range(call: Call, item: Object) -> None:
    meta = item["metadata"]
    if not meta.get("name"):
        meta["name"] = call.context.identifiers.new_uid()


def _without_strategy(item: Object) -> None:
    """Coordinated election is behind a gate that is off: its fields are dropped."""
    for field in ("strategy", "preferredHolder"):
        item["spec"].pop(field, None)


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
    if old is not None and kind == "ClusterIP" and before.get("type") != kind:
        # What only the old type had goes with it, unless the client changed it. Source:
        # dropTypeDependentFields.
        kept_ports = {p["port"]: p.get("nodePort") for p in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            if port.get("nodePort") == kept_ports.get(port["port"]):
                port.pop("nodePort", None)
        for name in ("externalTrafficPolicy", "allocateLoadBalancerNodePorts"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
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
    wants_ports = kind == "NodePort" or (
        kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    if wants_ports:
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
    records = call.context.store.collection(("", "services")).records
    return [r.decode() for r in records.values() if r.key != call.key(call.name or "?")]


def _cluster_addresses() -> Any:
    """10.96.0.10 upwards: the range of kubeadm, its first addresses left to the cluster itself."""
    return (f"10.96.{n >> 8}.{n & 255}" for n in range(10, 65535))


def _new_priority_class(call: Call, item: Object) -> None:
    item.setdefault("value", 0)


def _new_budget(call: Call, item: Object) -> None:
    item["status"] = call.resource.type.fields["status"].type.empty()  # type: ignore[union-attr]


def _new_job(call: Call, item: Object) -> None:
    """A selector of its own, and the labels that it looks for; what the user has said stays."""
    spec, meta = item["spec"], item["metadata"]
    if spec.get("manualSelector"):
        return
    own = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta.get("name", ""),
        "controller-uid": meta["uid"],
        "job-name": meta.get("name", ""),
    }
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**own, **(template.get("labels") or {})}
    selector = spec.setdefault("selector", {})
    uid = {"batch.kubernetes.io/controller-uid": meta["uid"]}
    selector["matchLabels"] = {**uid, **(selector.get("matchLabels") or {})}


def _changed_job(call: Call, new: Object, old: Object) -> None:
    if not new["spec"].get("selector"):
        new["spec"]["selector"] = old["spec"].get("selector")


def _new_node(call: Call, item: Object) -> None:
    """Where kubelets have their configuration from is no field any more."""
    item["spec"].pop("configSource", None)
    (item.get("status") or {}).pop("config", None)


def _changed_node(call: Call, new: Object, old: Object) -> None:
    if "configSource" not in old["spec"]:
        new["spec"].pop("configSource", None)


def _changed_node_status(call: Call, new: Object, old: Object) -> None:
    if "config" not in (old.get("status") or {}):
        (new.get("status") or {}).pop("config", None)


def _new_daemon_set(call: Call, item: Object) -> None:
    annotations = item["metadata"].setdefault("annotations", {})
    annotations.setdefault("deprecated.daemonset.template.generation", "1")


def _changed_daemon_set(call: Call, new: Object, old: Object) -> None:
    name = "deprecated.daemonset.template.generation"
    text = (old["metadata"].get("annotations") or {}).get(name, "1")
    number = parse_decimal(text) or 0
    if new["spec"]["template"] != old["spec"]["template"]:
        number += 1
    new["metadata"].setdefault("annotations", {})[name] = str(number)


Rule = Callable[[Object], Iterable[FieldError]]
ChangeRule = Callable[[Object, Object], Iterable[FieldError]]


def _rule(rule: Rule) -> Callable[[Call, Object], list[FieldError]]:
    """A rule that looks at the object alone."""
    return lambda call, item: [*rule(item)]


def _change(rule: ChangeRule) -> Callable[[Call, Object, Object], list[FieldError]]:
    """A rule that looks at the object before and after."""
    return lambda call, new, old: [*rule(new, old)]


def _is_v1alpha2(call: Call) -> bool:
    """Of groups of pods, Kubernetes 1.36 serves this version alone, and 1.37 others."""
    return call.resource.version == "v1alpha2"


def _of_groups(old_rule: Rule, rule: Rule) -> Callable[[Call, Object], list[FieldError]]:
    return lambda call, item: [*(old_rule if _is_v1alpha2(call) else rule)(item)]


def _changed_groups(
    old_rule: ChangeRule, rule: ChangeRule
) -> Callable[[Call, Object, Object], list[FieldError]]:
    return lambda call, new, old: [*(old_rule if _is_v1alpha2(call) else rule)(new, old)]


def _typed_change(
    rule: Callable[[Type, Object, Object], list[FieldError]],
) -> Callable[[Call, Object, Object], list[FieldError]]:
    """A rule that compares the object before and after with its type's eyes."""

    def validate(call: Call, new: Object, old: Object) -> list[FieldError]:
        kind = call.resource.type
        assert kind is not None
        return rule(kind, new, old)

    return validate


def _pod_change(call: Call, new: Object, old: Object) -> list[FieldError]:
    kind = call.resource.type
    assert kind is not None
    parts = {"resize": pod_resize.resize, "ephemeralcontainers": pod_changes.ephemeral}
    return parts.get(call.subresource, pod_changes.update)(kind, new, old)


def _new_event(call: Call, item: Object) -> list[FieldError]:
    is_new = call.resource.group == "events.k8s.io"
    return cluster_kinds.new_event(item) if is_new else cluster_kinds.event(item)


def _storage(kind: str) -> Hooks:
    return Hooks(
        validate_create=_rule(storage.CREATE[kind]), validate_update=_change(storage.UPDATE[kind])
    )


def _role_hooks(rule: Callable[[Object], list[FieldError]]) -> Hooks:
    return Hooks(
        prepare_create=escalation.check_new_role,
        prepare_update=escalation.check_changed_role,
        validate_create=_rule(rule),
        validate_update=lambda call, new, old: rule(new),
    )


def _binding_hooks(rule: Callable[[Object], list[FieldError]]) -> Hooks:
    return Hooks(
        prepare_create=escalation.check_new_binding,
        prepare_update=escalation.check_changed_binding,
        validate_create=_rule(rule),
        validate_update=lambda call, new, old: [
            *rule(new), *escalation.role_reference_errors(call, new, old)
        ],
    )  # fmt: skip


HOOKS: Final[dict[tuple[str, str], Hooks]] = {
    (RBAC, "clusterroles"): _role_hooks(roles.cluster_role),
    (RBAC, "roles"): _role_hooks(roles.role),
    (RBAC, "clusterrolebindings"): _binding_hooks(roles.cluster_role_binding),
    (RBAC, "rolebindings"): _binding_hooks(roles.role_binding),
    ("", "pods"): Hooks(
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        prepare_status=pods.prepare_status,
        warnings=lambda call, item: warnings.pod(item),
        validate_create=_rule(rules.new_pod),
        validate_update=_pod_change,
        validate_status=_change(pod_status.status),
        counted=lambda item: item["spec"],
    ),
    ("", "configmaps"): Hooks(
        validate_create=_rule(cluster_kinds.config_map),
        validate_update=_change(cluster_kinds.config_map_update),
    ),
    ("", "events"): Hooks(validate_create=_new_event),
    ("", "limitranges"): Hooks(
        prepare_create=_new_limit_range, validate_create=_rule(cluster_kinds.limit_range)
    ),
    ("", "nodes"): Hooks(
        prepare_create=_new_node,
        prepare_update=_changed_node,
        prepare_status=_changed_node_status,
        validate_create=_rule(nodes.node),
        validate_update=_change(nodes.node_update),
        validate_status=_change(nodes.node_status),
    ),
    ("", "replicationcontrollers"): Hooks(
        validate_create=_rule(workloads.controller),
        validate_update=_change(workloads.controller_update),
        validate_status=_change(workloads.replica_set_status),
        warnings=lambda call, item: warnings.workload(item),
    ),
    ("apps", "controllerrevisions"): Hooks(
        validate_create=_rule(workloads.revision),
        validate_update=_change(workloads.revision_update),
    ),
    ("apps", "deployments"): Hooks(
        prepare_status=_same_labels,
        validate_create=_rule(workloads.deployment),
        validate_update=_change(workloads.deployment_update),
        validate_status=_change(workloads.deployment_status),
        warnings=lambda call, item: warnings.workload(item),
        counted=lambda item: (item["spec"], item["metadata"].get("annotations") or {}),
    ),
    ("networking.k8s.io", "servicecidrs"): Hooks(prepare_status=_same_metadata),
    ("resource.k8s.io", "deviceclasses"): Hooks(
        validate_create=_rule(device_classes.device_class),
        validate_update=_typed_change(device_classes.device_class_update),
    ),
    ("resource.k8s.io", "devicetaintrules"): Hooks(
        prepare_update=devices.changed_rule,
        prepare_status=_same_metadata,
        validate_create=_rule(device_classes.taint_rule),
        validate_update=_change(device_classes.taint_rule_update),
        validate_status=_change(device_classes.taint_rule_status),
    ),
    ("resource.k8s.io", "resourceclaims"): Hooks(
        prepare_status=_changed_claim_status,
        validate_create=devices.new_claim,
        validate_update=_typed_change(resource_claims.claim_update),
        validate_status=devices.claim_status,
    ),
    ("resource.k8s.io", "resourceclaimtemplates"): Hooks(
        validate_create=devices.new_template,
        validate_update=_typed_change(resource_claims.template_update),
    ),
    ("resource.k8s.io", "resourceslices"): Hooks(
        prepare_create=devices.new_slice,
        prepare_update=devices.changed_slice,
        validate_create=_rule(resource_slices.resource_slice),
        validate_update=_typed_change(resource_slices.resource_slice_update),
        warnings=devices.slice_warnings,
    ),
    ("scheduling.k8s.io", "podgroups"): Hooks(
        prepare_status=_same_metadata,
        validate_create=_of_groups(pod_groups.pod_group, group_trees.pod_group),
        validate_update=_changed_groups(pod_groups.pod_group_update, group_trees.pod_group_update),
        validate_status=_change(pod_groups.pod_group_status),
    ),
    ("scheduling.k8s.io", "compositepodgroups"): Hooks(
        prepare_status=_same_metadata,
        validate_create=_rule(group_trees.composite),
        validate_update=_change(group_trees.composite_update),
        validate_status=_change(group_trees.composite_status),
    ),
    ("scheduling.k8s.io", "workloads"): Hooks(
        validate_create=_of_groups(pod_groups.workload, group_trees.workload),
        validate_update=_changed_groups(pod_groups.workload_update, group_trees.workload_update),
    ),
    ("storage.k8s.io", "csidrivers"): _storage("csidrivers"),
    ("storage.k8s.io", "csinodes"): _storage("csinodes"),
    ("storage.k8s.io", "csistoragecapacities"): _storage("csistoragecapacities"),
    ("storage.k8s.io", "storageclasses"): _storage("storageclasses"),
    ("storage.k8s.io", "volumeattachments"): replace(
        _storage("volumeattachments"), prepare_status=_same_metadata
    ),
    ("node.k8s.io", "runtimeclasses"): Hooks(
        validate_create=_rule(cluster_kinds.runtime_class),
        validate_update=_change(cluster_kinds.runtime_class_update),
    ),
    ("apps", "replicasets"): Hooks(
        validate_create=_rule(workloads.replica_set),
        validate_update=_change(workloads.replica_set_update),
        validate_status=_change(workloads.replica_set_status),
        warnings=lambda call, item: warnings.workload(item),
    ),
    ("apps", "statefulsets"): Hooks(
        validate_create=_rule(workloads.stateful_set),
        validate_update=_typed_change(workloads.stateful_set_update),
        validate_status=_change(workloads.stateful_set_status),
        warnings=lambda call, item: warnings.stateful_set(item),
    ),
    ("batch", "cronjobs"): Hooks(
        validate_create=_rule(jobs.cron_job),
        validate_update=lambda call, new, old: jobs.cron_job(new, old),
        warnings=lambda call, item: warnings.cron_job(item),
    ),
    ("coordination.k8s.io", "leases"): Hooks(
        prepare_create=lambda call, item: _without_strategy(item),
        prepare_update=lambda call, new, old: _without_strategy(new),
        validate_create=_rule(cluster_kinds.lease),
        validate_update=_change(cluster_kinds.lease_update),
    ),
    ("", "namespaces"): Hooks(
        prepare_create=_new_namespace,
        prepare_update=_changed_namespace,
        validate_create=_rule(cluster_kinds.namespace),
        validate_update=_change(cluster_kinds.namespace_update),
        validate_status=_change(cluster_kinds.namespace_status),
    ),
    ("", "persistentvolumeclaims"): Hooks(
        prepare_create=_phase("Pending"),
        validate_create=_rule(cluster_kinds.claim),
        validate_update=_change(cluster_kinds.claim_update),
    ),
    ("", "persistentvolumes"): Hooks(
        prepare_create=_pending_volume, prepare_status=_changed_volume_status
    ),
    ("", "secrets"): Hooks(
        prepare_create=_new_secret,
        prepare_update=_changed_secret,
        validate_create=_rule(cluster_kinds.secret),
        validate_update=_change(cluster_kinds.secret_update),
    ),
    ("", "services"): Hooks(prepare_create=_new_service, prepare_update=_changed_service),
    custom_definitions.KEY: Hooks(
        prepare_create=custom_definitions.prepare,
        prepare_update=custom_definitions.prepare_update,
        validate_create=custom_definitions.new_faults,
        validate_update=custom_definitions.changed_faults,
        validate_status=lambda call, new, old: list(definition_rules.status_faults(new)),
        warnings=custom_definitions.warnings,
        after=custom_definitions.on_definition_change,
    ),
    ("apps", "daemonsets"): Hooks(
        prepare_create=_new_daemon_set,
        prepare_update=_changed_daemon_set,
        validate_create=_rule(workloads.daemon_set),
        validate_update=_change(workloads.daemon_set_update),
        validate_status=_change(workloads.daemon_set_status),
        warnings=lambda call, item: warnings.warn_template(item),
    ),
    ("batch", "jobs"): Hooks(
        prepare_create=_new_job,
        prepare_update=_changed_job,
        validate_create=_rule(jobs.job),
        validate_update=_change(jobs.job_update),
        validate_status=_change(job_status.job_status),
        warnings=lambda call, item: warnings.job(item),
    ),
    ("policy", "poddisruptionbudgets"): Hooks(
        prepare_create=_new_budget,
        validate_create=_rule(cluster_kinds.budget),
        validate_update=_change(cluster_kinds.budget_update),
        validate_status=_change(cluster_kinds.budget_status),
    ),
    ("scheduling.k8s.io", "priorityclasses"): Hooks(
        prepare_create=_new_priority_class,
        validate_create=_rule(cluster_kinds.priority_class),
        validate_update=_change(cluster_kinds.priority_class_update),
    ),
}
NONE: Final = Hooks()


def hooks_of(resource: Resource) -> Hooks:
    """The hooks of a resource."""
    if resource.custom is not None:
        found: Hooks = resource.custom.hooks
        return found
    return HOOKS.get(resource.key, NONE)
