"""Fills in the defaults of built-in types: one function per type that has defaults.

The functions run when a value of the type is read. They must not look beyond that value; defaults
that depend on other objects (priority classes, limit ranges) belong to admission. Source:
pkg/apis/*/v1/defaults.go, Kubernetes 1.36.
"""

import copy
import re
from collections.abc import Callable
from typing import Any, Final

from stower.api.container_totals import container_totals
from stower.model.resources import CPU, MEMORY, is_pod_level

Object = dict[str, Any]
Default = Callable[[Object], None]

HUGE: Final = "hugepages-"
# Annotations that took the place of a field once; kubelets must not read them any more.
INIT_CONTAINERS: Final = tuple(
    f"pod.{stage}.kubernetes.io/init-container{what}"
    for stage in ("alpha", "beta")
    for what in ("s", "-statuses")
)
IMAGE_PATH_MAX: Final = 255  # beyond that a name is none, and its policy that of none
_DIGEST: Final = re.compile(r"[a-f0-9]{64}\Z")
_REFERENCE: Final = re.compile(
    r"(?P<name>(?:(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])(?:\.[A-Za-z0-9-]+)*(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[A-Za-z][A-Za-z0-9+.-_]*:[0-9A-Fa-f]{32,})?\Z"
)


def _fill(values: Object) -> Default:
    """A default that only fills in values."""
    plain = all(not isinstance(v, dict | list) for v in values.values())

    def default(item: Object) -> None:
        for name, value in values.items():
            if name not in item:
                item[name] = value if plain else copy.deepcopy(value)

    return default


_SINGLE: Final = _fill({"disruptionMode": {"single": {}}})


def _path_of(name: str) -> str:
    """An image's name without the host that it comes from. Source: splitDockerDomain."""
    first, slash, rest = name.partition("/")
    known = first == "localhost" or any(c in ".:" for c in first) or first != first.lower()
    if slash and known:
        is_hub = first in ("docker.io", "index.docker.io") and "/" not in rest
        return f"library/{rest}" if is_hub else rest
    return name if slash else f"library/{name}"


def pull_policy(image: str) -> str:
    """The policy for an image: what is tagged latest, or not at all, is pulled always."""
    found = _REFERENCE.match(image)
    if found is None or len(_path_of(found["name"])) > IMAGE_PATH_MAX or _DIGEST.match(image):
        return "IfNotPresent"
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _container(item: Object) -> None:
    if "imagePullPolicy" not in item:
        item["imagePullPolicy"] = pull_policy(item.get("image", ""))
    item.setdefault("terminationMessagePath", "/dev/termination-log")
    item.setdefault("terminationMessagePolicy", "File")


def _volume(item: Object) -> None:
    if (len(item) == 1 and "name" in item) or not item:
        item["emptyDir"] = {}
    image = item.get("image")
    if image is not None and "pullPolicy" not in image:
        image["pullPolicy"] = pull_policy(image.get("reference", ""))


def _pod_spec(item: Object) -> None:
    item.setdefault("dnsPolicy", "ClusterFirst")
    item.setdefault("restartPolicy", "Always")
    item.setdefault("securityContext", {})
    item.setdefault("terminationGracePeriodSeconds", 30)
    item.setdefault("schedulerName", "default-scheduler")
    # Two names of one field; the older one is kept up for old clients.
    account = item.get("serviceAccountName") or item.get("serviceAccount")
    if account:
        item["serviceAccountName"] = item["serviceAccount"] = account


def _pod(item: Object) -> None:
    spec = item["spec"]
    if spec["terminationGracePeriodSeconds"] < 0:  # as older versions of Kubernetes took it
        spec["terminationGracePeriodSeconds"] = 1
    if annotations := item["metadata"].get("annotations"):
        for name in INIT_CONTAINERS:
            annotations.pop(name, None)
    both = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    for container in both:
        resources = container["resources"]
        limits = resources.get("limits")
        if limits:
            requests = resources.setdefault("requests", {})
            for name, value in limits.items():
                requests.setdefault(name, value)
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if spec.get("resources"):
        _pod_level(item, spec["resources"])
    spec.setdefault("enableServiceLinks", True)


def _pod_level(item: Object, own: Object) -> None:
    """Limits of huge pages, and requests, of the pod itself where it has some already.

    Source: defaultHugePagePodLimits and defaultPodRequests.
    """
    spec = item["spec"]
    given = own.get("requests") or {}
    if own.get("limits") or given:
        totals = container_totals(spec, "limits")
        huge = {n: str(v) for n, v in totals.items() if n.startswith(HUGE) and n not in given}
        if limits := {**huge, **(own.get("limits") or {})}:
            own["limits"] = limits
    bounds = own.get("limits")
    if bounds:
        asked = container_totals(spec, "requests")
        requests = {name: limit for name, limit in bounds.items() if is_pod_level(name)}
        requests.update({name: str(asked[name]) for name in (CPU, MEMORY) if name in asked})
        requests.update(given)
        own["requests"] = requests


def _replication_controller(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("replicas", 1)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        spec.setdefault("selector", dict(labels))
        item["metadata"].setdefault("labels", dict(labels))
    spec.setdefault("replicas", 1)


def _service(item: Object) -> None:
    spec = item["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", 10800)
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]
    if kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _node_spec(item: Object) -> None:
    """Two fields for one thing; where they differ, the older one counts."""
    cidr, cidrs = item.get("podCIDR"), item.get("podCIDRs")
    if cidr and (not cidrs or cidrs[0] != cidr):
        item["podCIDRs"] = [cidr]
    elif cidrs:
        item["podCIDR"] = cidrs[0]


def _pod_status(item: Object) -> None:
    address, addresses = item.get("podIP"), item.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        item["podIPs"] = [{"ip": address}]
    elif addresses and addresses[0].get("ip"):
        item["podIP"] = addresses[0]["ip"]


def _secret(item: Object) -> None:
    item.setdefault("type", "Opaque")


def _namespace(item: Object) -> None:
    name = item["metadata"].get("name")
    if name:
        item["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    item["status"].setdefault("phase", "Active")


def _node_status(item: Object) -> None:
    if "capacity" in item:
        item.setdefault("allocatable", dict(item["capacity"]))


def _phase(phase: str) -> Default:
    def default(item: Object) -> None:
        item["status"].setdefault("phase", phase)

    return default


def _persistent_volume(item: Object) -> None:
    item["status"].setdefault("phase", "Pending")
    item["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
    item["spec"].setdefault("volumeMode", "Filesystem")


def _limit_range_item(item: Object) -> None:
    if item.get("type") != "Container":
        return
    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    if limits:
        item["default"] = limits
    if requests:
        item["defaultRequest"] = requests


def _deployment(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec["strategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _daemon_set(item: Object) -> None:
    spec = item["spec"]
    strategy = spec["updateStrategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _stateful_set(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec["updateStrategy"]
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")


def _job(item: Object) -> None:
    spec = item["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    labels = spec["template"].get("metadata", {}).get("labels")
    if labels:
        item["metadata"].setdefault("labels", dict(labels))
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    failed = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if failed else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    _failure_policy(spec)


def _failure_policy(job_spec: Object) -> None:
    for rule in (job_spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"


def _cron_job(item: Object) -> None:
    spec = item["spec"]
    _failure_policy((spec.get("jobTemplate") or {}).get("spec") or {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _csi_driver(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])


def _device_request(item: Object) -> None:
    if item.setdefault("allocationMode", "ExactCount") == "ExactCount":
        item.setdefault("count", 1)


def _device(item: Object) -> None:
    """A share of a node's own resources is one to one where nothing else is said."""
    for mapping in (item.get("nodeAllocatableResourceMappings") or {}).values():
        mapping.setdefault("allocationMultiplier", "1")


def _role_reference(item: Object) -> None:
    item["roleRef"]["apiGroup"] = item["roleRef"].get("apiGroup") or "rbac.authorization.k8s.io"


def _subject(item: Object) -> None:
    if item.get("kind") in ("User", "Group"):
        item.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _network_policy(item: Object) -> None:
    spec = item["spec"]
    if "policyTypes" not in spec:
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(item: Object) -> None:
    parameters = item["spec"].get("parameters")
    if parameters is not None:
        parameters.setdefault("scope", "Cluster")


def _horizontal_pod_autoscaler_v1(item: Object) -> None:
    item["spec"].setdefault("minReplicas", 1)


def _horizontal_pod_autoscaler(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _volume_claim_spec(item: Object) -> None:
    item.setdefault("volumeMode", "Filesystem")


_MODE: Final = _fill({"defaultMode": 420})
_EMPTY_TEXT: Final = _fill({"type": ""})
_TCP: Final = _fill({"protocol": "TCP"})

DEFAULTS: Final[dict[str, Default]] = {
    "apps.v1.DaemonSet": _daemon_set,
    "apps.v1.Deployment": _deployment,
    "apps.v1.ReplicaSetSpec": _fill({"replicas": 1}),
    "apps.v1.StatefulSet": _stateful_set,
    "autoscaling.v1.HorizontalPodAutoscaler": _horizontal_pod_autoscaler_v1,
    "autoscaling.v2.HorizontalPodAutoscaler": _horizontal_pod_autoscaler,
    "batch.v1.CronJob": _cron_job,
    "batch.v1.Job": _job,
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": _fill({"status": "True"}),
    "core.v1.ConfigMapVolumeSource": _MODE,
    "core.v1.Container": _container,
    "core.v1.ContainerPort": _TCP,
    "core.v1.DownwardAPIVolumeSource": _MODE,
    "core.v1.EndpointPort": _TCP,
    "core.v1.EphemeralContainer": _container,
    "core.v1.GRPCAction": _fill({"service": ""}),
    "core.v1.HTTPGetAction": _fill({"path": "/", "scheme": "HTTP"}),
    "core.v1.HostPathVolumeSource": _EMPTY_TEXT,
    "core.v1.ISCSIPersistentVolumeSource": _fill({"iscsiInterface": "default"}),
    "core.v1.ISCSIVolumeSource": _fill({"iscsiInterface": "default"}),
    "core.v1.AzureDiskVolumeSource": _fill(
        {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"}
    ),
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeSpec": _node_spec,
    "core.v1.NodeStatus": _node_status,
    "core.v1.ObjectFieldSelector": _fill({"apiVersion": "v1"}),
    "core.v1.PersistentVolume": _persistent_volume,
    "core.v1.PersistentVolumeClaim": _phase("Pending"),
    "core.v1.PersistentVolumeClaimSpec": _volume_claim_spec,
    "core.v1.Pod": _pod,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.PodStatus": _pod_status,
    "core.v1.Probe": _fill(
        {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    ),
    "core.v1.ProjectedVolumeSource": _MODE,
    "core.v1.RBDPersistentVolumeSource": _fill(
        {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}
    ),
    "core.v1.RBDVolumeSource": _fill(
        {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}
    ),
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ScaleIOVolumeSource": _fill({"storageMode": "ThinProvisioned", "fsType": "xfs"}),
    "core.v1.Secret": _secret,
    "core.v1.SecretVolumeSource": _MODE,
    "core.v1.Service": _service,
    "core.v1.ServiceAccountTokenProjection": _fill({"expirationSeconds": 3600}),
    "core.v1.Volume": _volume,
    "discovery.v1.EndpointPort": _fill({"name": "", "protocol": "TCP"}),
    "networking.v1.IngressClass": _ingress_class,
    "networking.v1.NetworkPolicy": _network_policy,
    "networking.v1.NetworkPolicyPort": _TCP,
    "rbac.v1.ClusterRoleBinding": _role_reference,
    "rbac.v1.RoleBinding": _role_reference,
    "rbac.v1.Subject": _subject,
    "resource.v1.Device": _device,
    "resource.v1.DeviceSubRequest": _device_request,
    "resource.v1.DeviceToleration": _fill({"operator": "Equal"}),
    "resource.v1.ExactDeviceRequest": _device_request,
    "scheduling.v1.PriorityClass": _fill({"preemptionPolicy": "PreemptLowerPriority"}),
    "scheduling.v1alpha2.PodGroupSpec": _fill({"disruptionMode": "Pod"}),
    "scheduling.v1alpha3.CompositePodGroupSpec": _SINGLE,
    "scheduling.v1alpha3.PodGroupSpec": _SINGLE,
    "scheduling.v1beta1.PodGroupSpec": _SINGLE,
    "storage.v1.CSIDriver": _csi_driver,
    "storage.v1.StorageClass": _fill({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
}


# Defaults that are times: of whole objects, by resource, run after all others.


def _slice_times(item: Object, now: str) -> None:
    for device in item["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _rule_times(item: Object, now: str) -> None:
    item["spec"]["taint"].setdefault("timeAdded", now)


TIMED: Final[dict[tuple[str, str], Callable[[Object, str], None]]] = {
    ("resource.k8s.io", "devicetaintrules"): _rule_times,
    ("resource.k8s.io", "resourceslices"): _slice_times,
}
