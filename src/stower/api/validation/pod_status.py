"""Validates changes of a pod's status.

Source: ValidatePodStatusUpdate in pkg/apis/core/validation, Kubernetes 1.36 with its default gates.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.allowances import allowed_before
from stower.api.validation.amounts import is_native, quantity
from stower.api.validation.containers import RESTARTS, RULE_ACTIONS
from stower.api.validation.go_values import go_values
from stower.api.validation.pod_changes import annotation_changes
from stower.api.validation.rules import (
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    label_key,
    named,
    required,
    too_long,
)
from stower.api.validation.security_contexts import NOT_ON_WINDOWS, identity
from stower.model import names

SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
NOT_NEGATIVE: Final = "must be a non-negative integer"
HEALTHS: Final = ("Healthy", "Unhealthy", "Unknown")
HEALTH_MESSAGE_BYTES_MAX: Final = 1024
CLAIM: Final = "claim:"
SOURCES: Final = {"containerStatuses": "containers", "initContainerStatuses": "initContainers"}
STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def status(new: Object, old: Object) -> Faults:
    """A change of a pod's status."""
    faults: list[FieldError] = []
    if new["metadata"].get("annotations") or old["metadata"].get("annotations"):
        faults += annotation_changes(new, old, allowed_before(old))
    return [*faults, *_status(new, old)]


def _status(new: Object, old: Object) -> Iterator[FieldError]:
    now, before = new["status"], old.get("status") or {}
    spec = old["spec"]
    yield from _conditions("status.conditions", now)
    nominated = now.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from named("status.nominatedNodeName", nominated, names.subdomain_faults)
        if spec.get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            yield forbidden("status.nominatedNodeName", text)
    if now.get("observedGeneration", 0) < 0:
        yield invalid("status.observedGeneration", now["observedGeneration"], NOT_NEGATIVE)
    if now.get("qosClass", "") != before.get("qosClass", ""):
        yield invalid("status.qosClass", now.get("qosClass", ""), "field is immutable")
    for field in STATUSES:
        if before.get(field):
            yield from _transitions(field, now, before, spec)
    if now.get("resourceClaimStatuses"):
        yield from _claims(now, new["spec"])
    if now.get("extendedResourceClaimStatus") is not None:
        yield from _extended_claim(now, new["spec"])
    if now.get("nodeAllocatableResourceClaimStatuses"):
        yield from _node_claims(now, new["spec"])
    if now.get("podIPs"):
        yield from _addresses(now, before, "podIPs")
    if now.get("hostIPs"):
        first = now["hostIPs"][0].get("ip", "")
        if first != now.get("hostIP", ""):
            yield invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`")
        yield from _addresses(now, before, "hostIPs")
    for field in STATUSES:
        if now.get(field):
            yield from _users(field, now, new["spec"])
    for field, source in SOURCES.items():
        if now.get(field):
            yield from _health(field, now, new["spec"].get(source) or ())
    for i, container in enumerate(now.get("ephemeralContainerStatuses") or ()):
        if container.get("allocatedResourcesStatus"):
            at = f"status.ephemeralContainerStatuses[{i}].allocatedResourcesStatus"
            yield forbidden(at, "must not be specified in container status")


def _conditions(path: str, now: Object) -> Iterator[FieldError]:
    for i, condition in enumerate(now.get("conditions") or ()):
        at = f"{path}[{i}]"
        if condition.get("observedGeneration", 0) < 0:
            yield invalid(f"{at}.observedGeneration", condition["observedGeneration"], NOT_NEGATIVE)
        if condition.get("type", "") not in SYSTEM_CONDITIONS:
            yield from label_key(f"{at}.Type", condition.get("type", ""))


def _transitions(field: str, now: Object, before: Object, spec: Object) -> Iterator[FieldError]:
    """A container that ended and does not restart stays ended."""
    if not any("terminated" in (one.get("state") or {}) for one in before[field]):
        return
    source = SOURCES.get(field)
    if source is not None and _may_restart_all(spec):
        return
    known = {c.get("name"): c for c in (spec.get(source) if source else None) or ()}
    current: dict[str, Object] = {}
    for one in now.get(field) or ():
        if "terminated" not in (one.get("state") or {}):
            current.setdefault(one.get("name", ""), one)
    for i, ended in enumerate(before[field]):
        state = (ended.get("state") or {}).get("terminated")
        if state is None or ended.get("name", "") not in current:
            continue
        container = known.get(ended.get("name"))
        if container is None or not _restarts(container, spec, state.get("exitCode", 0)):
            text = "may not be transitioned to non-terminated state"
            yield forbidden(f"status.{field}[{i}].state", text)


def _may_restart_all(spec: Object) -> bool:
    """Whether a rule of some container restarts all of the pod."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for source in SOURCES.values()
        for container in spec.get(source) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _restarts(container: Object, spec: Object, code: int) -> bool:
    """Whether a container that ended with the code starts again. Source: ContainerShouldRestart."""
    own = container.get("restartPolicy")
    if own is not None:
        for rule in container.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes")
            if codes is not None:
                listed = code in (codes.get("values") or ())
                if listed == (codes.get("operator") == "In"):
                    if rule.get("action") in RULE_ACTIONS:
                        return True
                    break
    for policy in (own, spec.get("restartPolicy")):
        if policy in RESTARTS:
            return policy == "Always" or (policy == "OnFailure" and code != 0)
    return True


def _claims(now: Object, spec: Object) -> Iterator[FieldError]:
    known = {c.get("name") for c in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for i, claim in enumerate(now["resourceClaimStatuses"]):
        at = f"status.resourceClaimStatuses[{i}]"
        name = claim.get("name", "")
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{at}.name", name, text)
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        if "resourceClaimName" in claim:
            where = f"{at}.resourceClaimName"
            yield from named(where, claim["resourceClaimName"], names.subdomain_faults)


def _extended_claim(now: Object, spec: Object) -> Iterator[FieldError]:
    given = now["extendedResourceClaimStatus"]
    path = "status.extendedResourceClaimStatus"
    mappings = given.get("requestMappings") or ()
    if not mappings:
        yield required(f"{path}.requestMappings", "at least one request mapping is required")
    known = {
        c.get("name"): (c.get("resources") or {}).get("requests") or {}
        for field in ("initContainers", "containers")
        for c in spec.get(field) or ()
    }
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        at = f"{path}.requestMappings[{i}]"
        fields = ("containerName", "resourceName", "requestName")
        container, resource, request = key = tuple(mapping.get(field, "") for field in fields)
        if container not in known:
            text = (
                "must match the name of an entry in spec.initContainers.name or "
                "spec.containers.name"
            )
            yield invalid(f"{at}.containerName", container, text)
        elif resource not in known[container]:
            text = (
                "must match the extended resource name of an entry in "
                "spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            yield invalid(f"{at}.resourceName", resource, text)
        yield from named(f"{path}.requestName", request, names.label_faults)
        if key in seen:
            for field in fields:
                yield duplicate(f"{at}.{field}", mapping.get(field, ""))
        seen.add(key)
    name = given.get("resourceClaimName", "")
    if not name:
        yield required(f"{path}.resourceClaimName")
    else:
        yield from named(f"{path}.resourceClaimName", name, names.subdomain_faults)


def _node_claims(now: Object, spec: Object) -> Iterator[FieldError]:
    """What claims take of the node's own resources."""
    claims = (*(spec.get("resourceClaims") or ()), *(now.get("resourceClaimStatuses") or ()))
    known = {claim.get("resourceClaimName") for claim in claims}
    for i, one in enumerate(now["nodeAllocatableResourceClaimStatuses"]):
        at = f"status.nodeAllocatableResourceClaimStatuses[{i}]"
        name = one.get("resourceClaimName", "")
        if not name:
            yield required(f"{at}.resourceClaimName", "must not be empty")
        if name not in known:
            yield invalid(f"{at}.resourceClaimName", name, "no mapping found in pod reference")
        for field in ("containers", "resources"):
            if not one.get(field):
                yield required(f"{at}.{field}", "must not be empty")
        for resource, amount in (one.get("resources") or {}).items():
            where = f"{at}.resources[{resource}]"
            if not is_native(resource):
                yield invalid(where, resource, "must be a node allocatable resource name")
            if quantity(amount).sign < 0:
                yield invalid(where, amount, "must be non-negative")


def _addresses(now: Object, before: Object, field: str) -> Iterator[FieldError]:
    """Addresses of a pod or its host: one of each family at most. Known ones stay as they are."""
    given = [address.get("ip", "") for address in now[field]]
    path = f"status.{field}"
    known = {address.get("ip", "") for address in before.get(field) or ()}
    for i, text in enumerate(given):
        if text not in known:
            yield from named(f"{path}[{i}]", text, names.ip_faults)
    if len(given) < 2:
        return
    families = [names.ip_family(text) for text in given]
    if None in families:
        at = families.index(None)
        text = f"failed to check for dual stack with error:invalid IP[{at}]: {given[at]}"
        yield FieldError("InternalError", path, None, text)
    if len(given) > 2 or set(families) != {4, 6}:
        shown = go_values("PodIP", now[field])
        yield invalid(path, shown, "may specify no more than one IP for each IP family")


def _users(field: str, now: Object, spec: Object) -> Iterator[FieldError]:
    """The users that containers run as."""
    system = (spec.get("os") or {}).get("name", "linux") if "os" in spec else "linux"
    for i, container in enumerate(now[field]):
        user = (container.get("user") or {}).get("linux")
        if user is None:
            continue
        at = f"status.{field}[{i}].user.linux"
        if system == "windows":
            yield forbidden(at, NOT_ON_WINDOWS)
        elif system == "linux":
            yield from identity(f"{at}.uid", user.get("uid", 0))
            yield from identity(f"{at}.gid", user.get("gid", 0))
            for j, group in enumerate(user.get("supplementalGroups") or ()):
                yield from identity(f"{at}.supplementalGroups[{j}]", group)


def _health(field: str, now: Object, containers: Any) -> Iterator[FieldError]:
    """The health of devices that containers have."""
    if not any(container.get("allocatedResourcesStatus") for container in now[field]):
        return
    known = {c.get("name", ""): c.get("resources") or {} for c in containers}
    for i, container in enumerate(now[field]):
        for j, allocated in enumerate(container.get("allocatedResourcesStatus") or ()):
            at = f"status.{field}[{i}].allocatedResourcesStatus[{j}]"
            resources = known.get(container.get("name", ""))
            if resources is not None:
                yield from _allocated_name(f"{at}.name", allocated.get("name", ""), resources)
            seen: set[str] = set()
            for k, one in enumerate(allocated.get("resources") or ()):
                yield from _device_health(f"{at}.resources[{k}]", one)
                identifier = one.get("resourceID", "")
                if identifier in seen:
                    yield duplicate(f"{at}.resources[{k}].resourceID", identifier)
                seen.add(identifier)


def _allocated_name(path: str, name: str, resources: Object) -> Faults:
    if not name.startswith(CLAIM):
        if name in (resources.get("requests") or {}):
            return []
        return [invalid(path, name, "must match one of the container's resource requests")]
    for claim in resources.get("claims") or ():
        parts = [claim.get("name", ""), *filter(None, [claim.get("request")])]
        if name == CLAIM + "/".join(parts):
            return []
    text = (
        "must match one of the container's resource claims in a format "
        "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
    )
    return [invalid(path, name, text)]


def _device_health(path: str, given: Object) -> Iterator[FieldError]:
    if given.get("health", "") not in HEALTHS:
        yield unsupported(f"{path}.health", given.get("health", ""), HEALTHS)
    message = given.get("message")
    if message is not None and not message:
        yield required(f"{path}.message", "must be non-empty if specified")
    elif message is not None and len(message) > HEALTH_MESSAGE_BYTES_MAX:
        yield too_long(f"{path}.message", HEALTH_MESSAGE_BYTES_MAX)
