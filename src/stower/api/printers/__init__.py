"""Computes the cells of printed columns: what `kubectl get` shows of an object of each kind.

Source: pkg/printers/internalversion/printers.go, Kubernetes 1.36. The columns' names, types and
descriptions come from the tables.
"""

from collections.abc import Callable
from typing import Any, Final

from stower.api.printers import workloads
from stower.api.printers.parts import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    conditions_of,
    format_age,
    is_true,
    join_first,
    labels_text,
    selector_text,
)
from stower.api.printers.pods import pod
from stower.api.registry import Resource
from stower.model.storage_class import BETA_CLASS, is_default_class
from stower.model.times import age

Cells = Callable[[Object, int], list[Any]]


def columns_of(resource: Resource) -> list[Object]:
    """The definitions of the resource's columns."""
    if resource.custom is not None:
        found: list[Object] = resource.custom.columns
        return found
    return resource.columns


def row_of(resource: Resource, item: Object, now_ns: int) -> list[Any]:
    """The cells of one object."""
    if resource.custom is not None:
        cells: list[Any] = resource.custom.row(item, now_ns)
        return cells
    printer = PRINTERS.get(resource.key)
    name = item["metadata"].get("name", "")
    if printer is not None:
        return printer(item, now_ns)
    if len(resource.columns) == 2 and resource.columns[1]["name"] == "Created At":
        return [name, item["metadata"].get("creationTimestamp")]
    return [name, *[""] * (len(resource.columns) - 2), format_age(item, now_ns)]


def _node(item: Object, now_ns: int) -> list[Any]:
    conditions, status = conditions_of(item), item.get("status") or {}
    shown = ["Unknown"]
    if "Ready" in conditions:
        shown = ["Ready" if is_true(conditions, "Ready") else "NotReady"]
    if item["spec"].get("unschedulable"):
        shown.append("SchedulingDisabled")
    roles = set()
    for key, value in (item["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        item["metadata"]["name"],
        ",".join(shown),
        ",".join(sorted(r for r in roles if r)) or NONE,
        format_age(item, now_ns),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Object, kind: str) -> str:
    found = (a.get("address", "") for a in status.get("addresses") or () if a.get("type") == kind)
    return next(found, NONE)


def _service(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    ports = []
    for port in spec.get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    kind = spec.get("type", "")
    external = ",".join(spec.get("externalIPs") or ())
    if kind == "LoadBalancer":
        balancer = (item.get("status") or {}).get("loadBalancer") or {}
        given = [i.get("ip") or i.get("hostname", "") for i in balancer.get("ingress") or ()]
        external = ",".join([*given, *(spec.get("externalIPs") or ())]) or "<pending>"
    elif kind == "ExternalName":
        external = spec.get("externalName", "")
    return [
        item["metadata"]["name"],
        kind,
        (spec.get("clusterIPs") or [NONE])[0],
        external or NONE,
        ",".join(ports) or NONE,
        format_age(item, now_ns),
        labels_text(spec.get("selector")),
    ]


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _class(item: Object) -> str:
    annotations = item["metadata"].get("annotations") or {}
    old = annotations.get(BETA_CLASS)
    return str(old if old is not None else item["spec"].get("storageClassName", ""))


def _volume_phase(item: Object) -> str:
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((item.get("status") or {}).get("phase", ""))


def _volume(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    claim = spec.get("claimRef")
    return [
        item["metadata"]["name"],
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _volume_phase(item),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "",
        _class(item),
        spec.get("volumeAttributesClassName", UNSET),
        (item.get("status") or {}).get("reason", ""),
        format_age(item, now_ns),
        spec.get("volumeMode", UNSET),
    ]


def _claim(item: Object, now_ns: int) -> list[Any]:
    spec, status = item["spec"], item.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        item["metadata"]["name"],
        _volume_phase(item),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _class(item),
        spec.get("volumeAttributesClassName", UNSET),
        format_age(item, now_ns),
        spec.get("volumeMode", UNSET),
    ]


def _event(item: Object, now_ns: int) -> list[Any]:
    first = age(now_ns, item.get("firstTimestamp") or item.get("eventTime"))
    last = age(now_ns, item["lastTimestamp"]) if item.get("lastTimestamp") else first
    count = item.get("count") or 1
    if series := item.get("series"):
        last = age(now_ns, series.get("lastObservedTime"))
        count = series.get("count", 0)
    about = item.get("involvedObject") or {}
    target = about.get("kind", "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    source = item.get("source") or {}
    component = source.get("component") or item.get("reportingComponent", "")
    host = source.get("host") or item.get("reportingInstance", "")
    return [
        last,
        item.get("type", ""),
        item.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        item.get("message", "").strip(),
        first,
        count,
        item["metadata"]["name"],
    ]


def _quota(item: Object, now_ns: int) -> list[Any]:
    status = item.get("status") or {}
    used = status.get("used") or {}
    columns: tuple[list[str], list[str]] = ([], [])
    for name, hard in sorted((status.get("hard") or {}).items()):
        columns[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard}")
    return [
        item["metadata"]["name"],
        ", ".join(columns[0]),
        ", ".join(columns[1]),
        format_age(item, now_ns),
    ]


def _binding(item: Object, now_ns: int) -> list[Any]:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in item.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.get(subject.get("kind", ""), []).append(name)
    role = item["roleRef"]
    return [
        item["metadata"]["name"],
        f"{role.get('kind', '')}/{role.get('name', '')}",
        format_age(item, now_ns),
        *(", ".join(names) for names in subjects.values()),
    ]


def _priority_class(item: Object, now_ns: int) -> list[Any]:
    return [
        item["metadata"]["name"],
        item.get("value", 0),
        item.get("globalDefault", False),
        format_age(item, now_ns),
        item.get("preemptionPolicy", ""),
    ]


def _storage_class(item: Object, now_ns: int) -> list[Any]:
    is_default = is_default_class(item["metadata"].get("annotations"))
    return [
        item["metadata"]["name"] + (" (default)" if is_default else ""),
        item.get("provisioner", ""),
        item.get("reclaimPolicy", "Delete"),
        item.get("volumeBindingMode", "Immediate"),
        item.get("allowVolumeExpansion", False),
        format_age(item, now_ns),
    ]


def _csi_driver(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    tokens = spec.get("tokenRequests")
    return [
        item["metadata"]["name"],
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        ",".join(t.get("audience", "") for t in tokens) if tokens is not None else UNSET,
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        format_age(item, now_ns),
    ]


def _attachment(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    return [
        item["metadata"]["name"],
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        (item.get("status") or {}).get("attached", False),
        format_age(item, now_ns),
    ]


def _resource_claim(item: Object, now_ns: int) -> list[Any]:
    deleted = "deletionTimestamp" in item["metadata"]
    status = item.get("status") or {}
    states = ["deleted"] if deleted else []
    if "allocation" in status:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [item["metadata"]["name"], ",".join(states), format_age(item, now_ns)]


def _slice(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    return [
        item["metadata"]["name"],
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        format_age(item, now_ns),
    ]


def _taint_rule(item: Object, now_ns: int) -> list[Any]:
    taint = item["spec"]["taint"]
    since = taint.get("timeAdded")
    return [
        item["metadata"]["name"],
        taint.get("key", ""),
        taint.get("value", ""),
        taint.get("effect", ""),
        age(now_ns, since) if since else "",
        format_age(item, now_ns),
    ]


# Of a PodGroup in v1alpha2 and since, and of a CompositePodGroup.
_SCHEDULED: Final = (
    "PodGroupScheduled", "PodGroupInitiallyScheduled", "CompositePodGroupInitiallyScheduled",
)  # fmt: skip


def _pod_group(item: Object, now_ns: int) -> list[Any]:
    spec, conditions = item["spec"], conditions_of(item)
    state = "Pending"
    for condition in _SCHEDULED:
        if condition in conditions:
            state = "Scheduled" if is_true(conditions, condition) else "Unschedulable"
    if "DisruptionTarget" in conditions:
        state = conditions["DisruptionTarget"].get("reason", "")
    reference = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload")
    workload = reference.get("workloadName", "") if reference is not None else NONE
    return [
        item["metadata"]["name"],
        "Gang" if "gang" in (spec.get("schedulingPolicy") or {}) else "Basic",
        workload,
        state,
        format_age(item, now_ns),
    ]


def _endpoints(item: Object, now_ns: int) -> list[Any]:
    found: list[str] = []
    for subset in item.get("subsets") or ():
        addresses = [a.get("ip", "") for a in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        found += [f"{a}:{p['port']}" for p in ports for a in addresses] if ports else addresses
    return [item["metadata"]["name"], join_first(found), format_age(item, now_ns)]


def _endpoint_slice(item: Object, now_ns: int) -> list[Any]:
    ports = [str(p.get("port", p.get("name", "*"))) for p in item.get("ports") or ()]
    addresses = [a for e in item.get("endpoints") or () for a in e.get("addresses") or ()]
    return [
        item["metadata"]["name"],
        item.get("addressType", ""),
        join_first(ports) if ports else UNSET,
        join_first(addresses) if addresses else UNSET,
        format_age(item, now_ns),
    ]


def _ingress(item: Object, now_ns: int) -> list[Any]:
    spec = item["spec"]
    hosts = [r["host"] for r in spec.get("rules") or () if r.get("host")]
    balancer = (item.get("status") or {}).get("loadBalancer") or {}
    given = [i.get("ip") or i.get("hostname", "") for i in balancer.get("ingress") or ()]
    return [
        item["metadata"]["name"],
        spec.get("ingressClassName", NONE),
        join_first(hosts) if hosts else "*",
        ",".join(given),
        "80, 443" if spec.get("tls") else "80",
        format_age(item, now_ns),
    ]


def _namespace(item: Object, now_ns: int) -> list[Any]:
    phase = (item.get("status") or {}).get("phase", "")
    return [item["metadata"]["name"], phase, format_age(item, now_ns)]


def _config_map(item: Object, now_ns: int) -> list[Any]:
    count = len(item.get("data") or ()) + len(item.get("binaryData") or ())
    return [item["metadata"]["name"], count, format_age(item, now_ns)]


def _secret(item: Object, now_ns: int) -> list[Any]:
    count = len(item.get("data") or ())
    return [item["metadata"]["name"], item.get("type", ""), count, format_age(item, now_ns)]


def _csi_node(item: Object, now_ns: int) -> list[Any]:
    drivers = (item.get("spec") or {}).get("drivers") or ()
    return [item["metadata"]["name"], len(drivers), format_age(item, now_ns)]


def _lease(item: Object, now_ns: int) -> list[Any]:
    holder = item["spec"].get("holderIdentity", "")
    return [item["metadata"]["name"], holder, format_age(item, now_ns)]


def _policy(item: Object, now_ns: int) -> list[Any]:
    selector = selector_text(item["spec"].get("podSelector"))
    return [item["metadata"]["name"], selector, format_age(item, now_ns)]


def _runtime_class(item: Object, now_ns: int) -> list[Any]:
    return [item["metadata"]["name"], item.get("handler", ""), format_age(item, now_ns)]


def _plain(item: Object, now_ns: int) -> list[Any]:
    return [item["metadata"]["name"], format_age(item, now_ns)]


PRINTERS: Final[dict[tuple[str, str], Cells]] = {
    ("", "configmaps"): _config_map,
    ("", "endpoints"): _endpoints,
    ("", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "pods"): pod,
    ("", "podtemplates"): workloads.template,
    ("", "replicationcontrollers"): workloads.replicas,
    ("", "resourcequotas"): _quota,
    ("", "secrets"): _secret,
    ("", "serviceaccounts"): _plain,
    ("", "services"): _service,
    ("apps", "controllerrevisions"): workloads.revision,
    ("apps", "daemonsets"): workloads.daemon_set,
    ("apps", "deployments"): workloads.deployment,
    ("apps", "replicasets"): workloads.replicas,
    ("apps", "statefulsets"): workloads.stateful_set,
    ("autoscaling", "horizontalpodautoscalers"): workloads.autoscaler,
    ("batch", "cronjobs"): workloads.cron_job,
    ("batch", "jobs"): workloads.job,
    ("coordination.k8s.io", "leases"): _lease,
    ("discovery.k8s.io", "endpointslices"): _endpoint_slice,
    ("networking.k8s.io", "ingresses"): _ingress,
    ("networking.k8s.io", "networkpolicies"): _policy,
    ("node.k8s.io", "runtimeclasses"): _runtime_class,
    ("policy", "poddisruptionbudgets"): workloads.budget,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _binding,
    ("rbac.authorization.k8s.io", "rolebindings"): _binding,
    ("resource.k8s.io", "deviceclasses"): _plain,
    ("resource.k8s.io", "devicetaintrules"): _taint_rule,
    ("resource.k8s.io", "resourceclaims"): _resource_claim,
    ("resource.k8s.io", "resourceclaimtemplates"): _plain,
    ("resource.k8s.io", "resourceslices"): _slice,
    ("scheduling.k8s.io", "compositepodgroups"): _pod_group,
    ("scheduling.k8s.io", "podgroups"): _pod_group,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
    ("scheduling.k8s.io", "workloads"): _plain,
    ("storage.k8s.io", "csidrivers"): _csi_driver,
    ("storage.k8s.io", "csinodes"): _csi_node,
    ("storage.k8s.io", "storageclasses"): _storage_class,
    ("storage.k8s.io", "volumeattachments"): _attachment,
}
