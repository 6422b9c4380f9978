"""Validates pods and pod templates: new ones, and the state of a pod after a change."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.api.byte_cache import ByteCache, encode
from stower.api.errors import TOO_LONG, FieldError, unsupported
from stower.api.validation import amounts, containers, scheduling, volumes
from stower.api.validation.rules import (
    INT32_MAX,
    Faults,
    Object,
    forbidden,
    invalid,
    label_key,
    labels,
    named,
    one_of,
    required,
)
from stower.model import names
from stower.model.kinds import Pod
from stower.model.quantity import quantity_of
from stower.model.resources import pod_requests

MIRROR: Final = "kubernetes.io/config.mirror"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
SYSTEMS: Final = ("linux", "windows")
NAMESERVERS_MAX: Final = 3
HOSTNAME_MAX: Final = 64

_valid: Final = ByteCache()  # names are looked at by other rules


def new_pod(item: Object) -> Faults:
    """A pod that is to be made. What was found valid lately is not looked through again."""
    meta, spec = item["metadata"], item["spec"]
    if any("ephemeral" in volume for volume in spec.get("volumes") or ()):
        return _new_pod(item)  # whose claim is named after the pod
    key = encode((spec, meta.get("annotations"), meta.get("labels")))
    if _valid.get(key):
        return []
    faults = _new_pod(item)
    if not faults:
        _valid.put(key, True)
    return faults


def _new_pod(item: Object) -> Faults:
    faults = list(pod(item))
    spec = item["spec"]
    if spec.get("ephemeralContainers"):
        faults.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        faults.append(forbidden("spec.nodeName", text))
    return faults


def compares(spec: Object) -> bool:
    """Whether a toleration compares numbers."""
    return any(t.get("operator") in ("Lt", "Gt") for t in spec.get("tolerations") or ())


def pod(item: Object, comparisons: bool = False) -> Iterator[FieldError]:
    """Annotations and spec of a pod; `comparisons`: see scheduling.tolerations."""
    spec = item["spec"]
    yield from annotations(item["metadata"].get("annotations") or {}, spec)
    yield from pod_spec("spec", item, comparisons)
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield from containers.image_text(f"spec.{field}[{i}]", container)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes") or ()):
            for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    at = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    text = "must not be specified when serviceAccountName is not set"
                    yield forbidden(at, text)


def annotations(given: Object, spec: Object) -> Iterator[FieldError]:
    """Annotations that mean something."""
    path = "metadata.annotations"
    if MIRROR in given and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"{path}[{MIRROR}]", given[MIRROR], text)
    cost = given.get(DELETION_COST)
    if cost is not None and not _is_int32(cost):
        yield invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
    for key, value in given.items():
        is_profile = value in ("runtime/default", "docker/default", "unconfined")
        if key == SECCOMP or key.startswith(SECCOMP_CONTAINER):
            if not is_profile and not value.startswith("localhost/"):
                yield invalid(f"{path}[{key}]", value, "must be a valid seccomp profile")
        if key.startswith(APP_ARMOR):
            name = key.removeprefix(APP_ARMOR)
            everyone = (
                c.get("name")
                for field in ("containers", "initContainers", "ephemeralContainers")
                for c in spec.get(field) or ()
            )
            if name not in everyone:
                yield invalid(f"{path}[{key}]", name, "container not found")
            if (
                value
                and value not in ("runtime/default", "unconfined")
                and not (value.startswith("localhost/"))
            ):
                yield invalid(f"{path}[{key}]", value, "invalid AppArmor profile name")


def _is_int32(text: str) -> bool:
    try:
        number = int(text)
    except ValueError:
        return False
    plain = str(number) == text or (text.startswith("+") is False and text == str(number))
    return plain and -INT32_MAX - 1 <= number <= INT32_MAX


def pod_spec(path: str, item: Object, comparisons: bool = False) -> Iterator[FieldError]:
    """The spec of a pod, or of a template (an item with spec and metadata)."""
    spec = item["spec"]
    found, faults = volumes.volumes(f"{path}.volumes", item)
    yield from faults
    context = containers.Context(spec, found)
    static = MIRROR in ((item.get("metadata") or {}).get("annotations") or {})
    if static and spec.get("resourceClaims"):
        yield forbidden("", "static pods do not support resource claims")
    else:
        yield from scheduling.resource_claims(f"{path}.resourceClaims", spec.get("resourceClaims"))
    regular = spec.get("containers")
    yield from containers.containers(f"{path}.containers", regular, context)
    inits = spec.get("initContainers")
    yield from containers.init_containers(f"{path}.initContainers", inits, regular, context)
    yield from containers.ephemeral_containers(f"{path}.ephemeralContainers", spec, context)
    yield from _pod_level(path, spec)
    if spec.get("hostNetwork"):
        yield from _host_ports(f"{path}.containers", regular or ())
    yield from one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    yield from one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), DNS_POLICIES)
    yield from labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from _security(f"{path}.securityContext", spec)
    yield from scheduling.affinity(f"{path}.affinity", spec.get("affinity"))
    yield from _dns(f"{path}.dnsConfig", spec)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        at = f"{path}.readinessGates[{i}].conditionType"
        yield from label_key(at, gate.get("conditionType", ""))
    yield from scheduling.scheduling_gates(f"{path}.schedulingGates", spec.get("schedulingGates"))
    spread = spec.get("topologySpreadConstraints")
    yield from scheduling.topology_spread(f"{path}.topologySpreadConstraints", spread)
    yield from _names(path, spec)
    given_tolerations = spec.get("tolerations")
    yield from scheduling.tolerations(f"{path}.tolerations", given_tolerations, comparisons)
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= INT32_MAX:
        text = f"must be between 1 and {INT32_MAX}, inclusive"
        yield invalid(f"{path}.activeDeadlineSeconds", seconds, text)
    if "preemptionPolicy" in spec:
        words = ("PreemptLowerPriority", "Never")
        yield from one_of(f"{path}.preemptionPolicy", spec["preemptionPolicy"], words)
    if spec.get("overhead"):
        given = {"limits": spec["overhead"]}
        yield from amounts.requirements(f"{path}.overhead", given, frozenset())
    yield from _system(path, spec)
    group = spec.get("schedulingGroup")
    if group is not None:
        name = group.get("podGroupName")
        if name is None:
            text = "must specify one of: `podGroupName`"
            yield invalid(f"{path}.schedulingGroup.podGroupName", None, text)
        else:
            at = f"{path}.schedulingGroup.podGroupName"
            yield from named(at, name, names.subdomain_faults)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{i}]"
        yield from named(f"{at}.ip", alias.get("ip", ""), names.ip_faults)
        for name in alias.get("hostnames") or ():
            yield from named(f"{at}.hostnames", name, names.subdomain_faults)


def _names(path: str, spec: Object) -> Iterator[FieldError]:
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(field) or (field == "runtimeClassName" and field in spec):
            yield from named(f"{path}.{field}", spec[field], names.subdomain_faults)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from named(f"{path}.{field}", spec[field], names.label_faults)
    override = spec.get("hostnameOverride")
    if override is not None:
        at = f"{path}.hostnameOverride"
        if spec.get("setHostnameAsFQDN"):
            yield forbidden(at, "may not be specified when setHostnameAsFQDN is true")
        if spec.get("hostNetwork"):
            yield forbidden(at, "may not be specified when hostNetwork is true")
        if len(override) > HOSTNAME_MAX:
            yield FieldError(TOO_LONG, at, "", f"may not be more than {HOSTNAME_MAX} bytes")
        yield from named(at, override, names.subdomain_faults)


def _host_ports(path: str, given: Any) -> Iterator[FieldError]:
    for i, container in enumerate(given):
        for j, one in enumerate(container.get("ports") or ()):
            if one.get("hostPort", 0) != one.get("containerPort", 0):
                text = "must match `containerPort` when `hostNetwork` is true"
                at = f"{path}[{i}].ports[{j}].hostPort"
                yield invalid(at, one.get("hostPort", 0), text)


def _system(path: str, spec: Object) -> Iterator[FieldError]:
    system = spec.get("os")
    if system is None:
        return
    name = system.get("name", "")
    if not name:
        yield required(f"{path}.os.name")
    elif name not in SYSTEMS:
        yield unsupported(f"{path}.os", name, SYSTEMS)
    elif name == "windows":
        for field in ("hostPID", "hostIPC", "hostNetwork", "shareProcessNamespace"):
            if spec.get(field):
                yield forbidden(f"{path}.{field}", f"cannot be set for a {name} pod")
    elif "windowsOptions" in (spec.get("securityContext") or {}):
        at = f"{path}.securityContext.windowsOptions"
        yield forbidden(at, "windows options cannot be set for a linux pod")


def _security(path: str, spec: Object) -> Iterator[FieldError]:
    given = spec.get("securityContext") or {}
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = given.get(field)
        if value is not None and not 0 <= value <= INT32_MAX:
            yield invalid(f"{path}.{field}", value, f"must be between 0 and {INT32_MAX}, inclusive")
    for i, value in enumerate(given.get("supplementalGroups") or ()):
        if not 0 <= value <= INT32_MAX:
            at = f"{path}.supplementalGroups[{i}]"
            yield invalid(at, value, f"must be between 0 and {INT32_MAX}, inclusive")
    if "fsGroupChangePolicy" in given:
        words = ("Always", "OnRootMismatch")
        if given["fsGroupChangePolicy"] not in words:
            yield unsupported(f"{path}.fsGroupChangePolicy", given["fsGroupChangePolicy"], words)
    yield from containers.profile(f"{path}.seccompProfile", given.get("seccompProfile"))
    yield from containers.profile(f"{path}.appArmorProfile", given.get("appArmorProfile"))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path.rpartition('.')[0]}.shareProcessNamespace", True, text)
    if spec.get("hostUsers") is False:
        for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"),
                             ("hostIPC", "HostIPC")):  # fmt: skip
            if spec.get(field):
                yield forbidden(f"{path.rpartition('.')[0]}.{shown}", "when `hostUsers` is false")


def _dns(path: str, spec: Object) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{path}.nameservers", text)
    servers = (config or {}).get("nameservers") or ()
    if len(servers) > NAMESERVERS_MAX:
        text = f"must not have more than {NAMESERVERS_MAX} nameservers"
        yield invalid(f"{path}.nameservers", list(servers), text)
    for i, server in enumerate(servers):
        yield from named(f"{path}.nameservers[{i}]", server, names.ip_faults)
    for i, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{i}]", "must not be empty")


def _pod_level(path: str, spec: Object) -> Iterator[FieldError]:
    given = spec.get("resources")
    if given is None:
        return
    at = f"{path}.resources"
    if given.get("claims"):
        yield forbidden(f"{at}.claims", "claims may not be set for Resources at pod-level")
    yield from amounts.requirements(at, {**given, "claims": []}, frozenset(), amounts.pod_name)
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    bare = {k: v for k, v in spec.items() if k not in ("resources", "overhead")}
    try:
        asked = pod_requests(msgspec.convert({"metadata": {}, "spec": bare}, Pod))
    except msgspec.ValidationError:
        return
    for name, total in asked.items():
        if name in requests and total.cmp(quantity_of(requests[name])) > 0:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(f"{at}.requests[{name}]", requests[name], text)
    for i, container in enumerate(spec.get("containers") or ()):
        bounds = (container.get("resources") or {}).get("limits") or {}
        for name, value in bounds.items():
            if name in limits and quantity_of(value).cmp(quantity_of(limits[name])) > 0:
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{at}.containers[{i}][{name}].limits", value, text)
