"""Validates pods and pod templates: new ones, and the state of a pod after a change."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.api.byte_cache import ByteCache, encode
from stower.api.container_totals import container_totals
from stower.api.errors import FieldError, unsupported
from stower.api.validation import (
    amounts,
    containers,
    environment,
    pod_annotations,
    scheduling,
    security_contexts,
    volumes,
)
from stower.api.validation.pod_annotations import MIRROR
from stower.api.validation.rules import (
    INT32_MAX,
    NONE_ALLOWED,
    Allowed,
    Faults,
    Object,
    forbidden,
    invalid,
    label_key,
    labels,
    named,
    one_of,
    required,
    too_long,
)
from stower.model import names
from stower.model.quantity import Quantity, quantity_of

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
SYSTEMS: Final = ("linux", "windows")
NAMESERVERS_MAX: Final = 3
SEARCHES_MAX: Final = 32
SEARCH_BYTES_MAX: Final = 2048  # of all search domains and the spaces between them
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
    given = item["metadata"].get("annotations") or {}
    if given:
        faults += pod_annotations.check_fields("spec", given, spec)
    return faults


def pod(item: Object, allowed: Allowed = NONE_ALLOWED) -> Iterator[FieldError]:
    """Annotations and spec of a pod. `allowed`: what a changed pod may keep."""
    spec = item["spec"]
    given = item["metadata"].get("annotations") or {}
    yield from pod_annotations.annotations("metadata.annotations", given, spec, allowed)
    yield from pod_spec("spec", item, allowed)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes") or ()):
            for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    at = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    text = "must not be specified when serviceAccountName is not set"
                    yield forbidden(at, text)
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield from containers.image_text(f"spec.{field}[{i}]", container)


def pod_spec(path: str, item: Object, allowed: Allowed = NONE_ALLOWED) -> Iterator[FieldError]:
    """The spec of a pod, or of a template (an item with spec and metadata)."""
    spec = item["spec"]
    if "terminationGracePeriodSeconds" not in spec:
        yield required(f"{path}.terminationGracePeriodSeconds")
    found, faults = volumes.volumes(f"{path}.volumes", item, allowed)
    yield from faults
    own = (item.get("metadata") or {}).get("annotations") or {}
    static = MIRROR in own and not allowed.of_template
    claims = spec.get("resourceClaims")
    yield from scheduling.resource_claims(f"{path}.resourceClaims", claims, static)
    context = containers.Context(spec, found, allowed)
    regular = spec.get("containers")
    yield from containers.containers(f"{path}.containers", regular, context)
    inits = spec.get("initContainers")
    yield from containers.init_containers(f"{path}.initContainers", inits, regular, context)
    yield from containers.ephemeral_containers(f"{path}.ephemeralContainers", spec, context)
    yield from _pod_level(path, spec, context)
    if spec.get("hostNetwork"):
        yield from _host_ports(f"{path}.containers", regular or (), allowed)
    yield from one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    yield from one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), DNS_POLICIES)
    yield from labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from security_contexts.of_pod(f"{path}.securityContext", spec, allowed)
    yield from scheduling.affinity(f"{path}.affinity", spec.get("affinity"), allowed)
    yield from _dns(f"{path}.dnsConfig", spec)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        at = f"{path}.readinessGates[{i}].conditionType"
        yield from label_key(at, gate.get("conditionType", ""))
    yield from scheduling.scheduling_gates(f"{path}.schedulingGates", spec.get("schedulingGates"))
    spread = spec.get("topologySpreadConstraints")
    yield from scheduling.topology_spread(f"{path}.topologySpreadConstraints", spread, allowed)
    yield from security_contexts.host_processes(path, spec)
    yield from _host_users(path, spec, allowed)
    yield from _rest(path, spec, allowed)


def _rest(path: str, spec: Object, allowed: Allowed) -> Iterator[FieldError]:
    """What comes last: names, deadlines, tolerations, the system, the group."""
    yield from _hostname_override(path, spec)
    yield from _names(path, spec, ("serviceAccountName", "nodeName"))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= INT32_MAX:
        text = f"must be between 1 and {INT32_MAX}, inclusive"
        yield invalid(f"{path}.activeDeadlineSeconds", seconds, text)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from named(f"{path}.{field}", spec[field], names.label_faults)
    given = spec.get("tolerations")
    yield from scheduling.tolerations(f"{path}.tolerations", given, allowed.comparisons)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{i}]"
        yield from named(f"{at}.ip", alias.get("ip", ""), names.ip_faults)
        for j, name in enumerate(alias.get("hostnames") or ()):
            yield from named(f"{at}.hostnames[{j}]", name, names.subdomain_faults)
    yield from _names(path, spec, ("priorityClassName", "runtimeClassName"))
    if "preemptionPolicy" in spec:
        words = ("PreemptLowerPriority", "Never")
        yield from one_of(f"{path}.preemptionPolicy", spec["preemptionPolicy"], words)
    if spec.get("overhead"):
        limits = {"limits": spec["overhead"]}
        at, any_page = f"{path}.overhead", allowed.huge_pages
        yield from amounts.requirements(at, limits, frozenset(), any_page=any_page)
    yield from _system(path, spec)
    group = spec.get("schedulingGroup")
    if group is not None:
        at = f"{path}.schedulingGroup.podGroupName"
        if (name := group.get("podGroupName")) is None:
            yield invalid(at, None, "must specify one of: `podGroupName`")
        else:
            yield from named(at, name, names.subdomain_faults)
    yield from environment.file_volumes(path, spec)


def _names(path: str, spec: Object, fields: tuple[str, ...]) -> Iterator[FieldError]:
    for field in fields:
        if spec.get(field) or (field == "runtimeClassName" and field in spec):
            yield from named(f"{path}.{field}", spec[field], names.subdomain_faults)


def _hostname_override(path: str, spec: Object) -> Iterator[FieldError]:
    override = spec.get("hostnameOverride")
    if override is None:
        return
    at = f"{path}.hostnameOverride"
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(at, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield forbidden(at, "may not be specified when hostNetwork is true")
    if len(override) > HOSTNAME_MAX:
        yield too_long(at, HOSTNAME_MAX)
    yield from named(at, override, names.subdomain_faults)


def _host_ports(path: str, given: Any, allowed: Allowed) -> Iterator[FieldError]:
    for i, container in enumerate(given):
        for j, one in enumerate(container.get("ports") or ()):
            port = one.get("hostPort", 0)
            if port != one.get("containerPort", 0) and (port or not allowed.of_template):
                text = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(f"{path}[{i}].ports[{j}].hostPort", port, text)


def _host_users(path: str, spec: Object, allowed: Allowed) -> Iterator[FieldError]:
    """Users of its own, which do not go with other namespaces of the host."""
    if spec.get("hostUsers") is not False:
        return
    text = "when `hostUsers` is false"
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"),
                         ("hostIPC", "HostIPC")):  # fmt: skip
        if spec.get(field):
            yield forbidden(f"{path}.{shown}", text)
    if allowed.user_namespace_devices:
        return
    for at, container in security_contexts.containers_of(path, spec):
        if container.get("volumeDevices"):
            yield forbidden(f"{at}.volumeDevices", text)


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
        yield from security_contexts.windows(path, spec)
    else:
        yield from security_contexts.linux(path, spec)


def _dns(path: str, spec: Object) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{path}.nameservers", text)
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > NAMESERVERS_MAX:
        text = f"must not have more than {NAMESERVERS_MAX} nameservers"
        yield invalid(f"{path}.nameservers", servers, text)
    for i, server in enumerate(servers):
        yield from named(f"{path}.nameservers[{i}]", server, names.ip_faults)
    if len(searches) > SEARCHES_MAX:
        text = f"must not have more than {SEARCHES_MAX} search paths"
        yield invalid(f"{path}.searches", searches, text)
    if len(" ".join(searches)) > SEARCH_BYTES_MAX:
        text = (
            f"must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the "
            "search list"
        )
        yield invalid(f"{path}.searches", searches, text)
    for i, search in enumerate(searches):
        if search != ".":
            domain = search.removesuffix(".")
            yield from named(f"{path}.searches[{i}]", domain, names.search_domain_faults)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{i}]", "must not be empty")


def _pod_level(path: str, spec: Object, context: containers.Context) -> Iterator[FieldError]:
    """Resources of the pod as a whole, against those of its containers."""
    given = spec.get("resources")
    if given is None:
        return
    at = f"{path}.resources"
    if (spec.get("os") or {}).get("name") == "windows":
        yield forbidden(at, "may not be set for a windows pod")
        return
    if given.get("claims") is not None:
        yield forbidden(f"{at}.claims", "claims may not be set for Resources at pod-level")
    yield from amounts.requirements(
        at, given, context.claims, amounts.pod_name, context.allowed.huge_pages
    )
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    for name, total in _total(spec, "requests").items():
        if name in requests and total.cmp(quantity_of(requests[name])) > 0:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(f"{at}.requests[{name}]", requests[name], text)
    for name, total in _total(spec, "limits").items():
        if not name.startswith(amounts.HUGE) or name not in limits:
            continue
        if total.cmp(quantity_of(limits[name])) > 0:
            text = f"must be greater than or equal to aggregate container limits of {total}"
            yield invalid(f"{at}.limits[{name}]", limits[name], text)
    for i, container in enumerate(spec.get("containers") or ()):
        bounds = (container.get("resources") or {}).get("limits") or {}
        for name, value in bounds.items():
            if name in limits and quantity_of(value).cmp(quantity_of(limits[name])) > 0:
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{at}.containers[{i}][{name}].limits", value, text)


def _total(spec: Object, field: str) -> Mapping[str, Quantity]:
    try:
        return container_totals(spec, field)
    except msgspec.ValidationError:  # what is wrong with them has its own faults
        return {}
