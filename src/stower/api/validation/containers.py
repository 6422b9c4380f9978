"""Validates containers, init containers and ephemeral containers.

Source: validateContainers, validateInitContainers and validateEphemeralContainers in
pkg/apis/core/validation, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation import environment, mounts, security_contexts
from stower.api.validation.amounts import requirements
from stower.api.validation.probes import probes
from stower.api.validation.rules import (
    Allowed,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    missing,
    named,
    one_of,
    port,
    required,
    too_many,
)
from stower.model import names

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
RESTARTS: Final = ("Always", "Never", "OnFailure")
RULE_ACTIONS: Final = ("Restart", "RestartAllContainers")
ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"
NOT_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
# In upstream's order: what an ephemeral container does not have.
NOT_EPHEMERAL_FIELDS: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe",
    "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
RULES_MAX: Final = 20
VALUES_MAX: Final = 255


class Context:
    """What of the pod the rules for its containers need."""

    __slots__ = ("allowed", "claims", "grace_seconds", "host_users", "restart_policy", "volumes")

    def __init__(self, spec: Object, volumes: dict[str, Object], allowed: Allowed) -> None:
        self.volumes = volumes
        self.allowed = allowed
        self.restart_policy = spec.get("restartPolicy", "")
        self.grace_seconds = spec.get("terminationGracePeriodSeconds")
        self.host_users = spec.get("hostUsers") is not False
        given = spec.get("resourceClaims") or ()
        self.claims = frozenset(c["name"] for c in given if c.get("name"))


def containers(path: str, given: list[Object] | None, context: Context) -> Iterator[FieldError]:
    """The containers of a pod."""
    if not given:
        yield required(path)
        return
    seen: set[str] = set()
    for i, container in enumerate(given):
        at = f"{path}[{i}]"
        yield from _common(at, container, context)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        yield from probes(at, container, context.grace_seconds)
        yield from _restarts(at, container)
    yield from host_ports(path, given)


def init_containers(
    path: str, given: list[Object] | None, regular: list[Object] | None, context: Context
) -> Iterator[FieldError]:
    """The init containers of a pod, sidecars among them."""
    seen = {c.get("name", "") for c in regular or ()}
    for i, container in enumerate(given or ()):
        at = f"{path}[{i}]"
        yield from _common(at, container, context)
        if container.get("restartPolicy") is None:
            yield from _missing_policy(at, container)
        else:
            yield from _restarts(at, container)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        elif name:
            seen.add(name)
        yield from host_ports(path, [container])
        if container.get("restartPolicy") == "Always":
            yield from probes(at, container, context.grace_seconds)
            continue
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in container:
                yield forbidden(f"{at}.{field}", ONLY_SIDECARS)
        for j, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer" and not context.allowed.restarting:
                text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                where = f"{at}.resizePolicy[{j}].restartPolicy"
                yield invalid(where, policy["restartPolicy"], text)


def ephemeral_containers(path: str, spec: Object, context: Context) -> Iterator[FieldError]:
    """The ephemeral containers of a pod."""
    others = {
        c.get("name", "")
        for c in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    }
    seen = set(others)
    for i, container in enumerate(spec.get("ephemeralContainers") or ()):
        at = f"{path}[{i}]"
        yield from _common(at, container, context)
        yield from image_text(at, container)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield missing(f"{at}.targetContainerName", target)
        for field in NOT_EPHEMERAL_FIELDS:
            if container.get(field) or (field in container and field != "resources"):
                yield forbidden(f"{at}.{field}", NOT_EPHEMERAL)
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    yield forbidden(f"{at}.volumeMounts[{j}].{field}", NOT_EPHEMERAL)


def image_text(path: str, container: Object) -> Faults:
    """No space around the image's name."""
    image = container.get("image", "")
    if image != image.strip():
        text = "must not have leading or trailing whitespace"
        return [invalid(f"{path}.image", image, text)]
    return []


def _common(path: str, container: Object, context: Context) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from named(f"{path}.name", name, names.label_faults)
    if not container.get("image"):
        yield required(f"{path}.image")
    policy = container.get("terminationMessagePolicy")
    yield from one_of(f"{path}.terminationMessagePolicy", policy, ("File", "FallbackToLogsOnError"))
    yield from _ports(f"{path}.ports", container.get("ports") or ())
    yield from environment.variables(f"{path}.env", container.get("env") or ())
    yield from environment.sources(f"{path}.envFrom", container.get("envFrom") or ())
    yield from mounts.mounts(f"{path}.volumeMounts", container, context.volumes)
    yield from mounts.devices(f"{path}.volumeDevices", container, context.volumes)
    yield from one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    asked, any_page = container.get("resources"), context.allowed.huge_pages
    yield from requirements(f"{path}.resources", asked, context.claims, any_page=any_page)
    yield from _resize(f"{path}.resizePolicy", container.get("resizePolicy") or (), context)
    if "securityContext" in container:
        at, own = f"{path}.securityContext", container["securityContext"]
        yield from security_contexts.of_container(at, own, context.host_users)


def _ports(path: str, given: Any) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, one in enumerate(given):
        at = f"{path}[{i}]"
        name = one.get("name", "")
        if name:
            faults = named(f"{at}.name", name, names.port_name_faults)
            if not faults and name in seen:
                faults = [duplicate(f"{at}.name", name)]
            elif not faults:
                seen.add(name)
            yield from faults
        if not one.get("containerPort"):
            yield required(f"{at}.containerPort")
        else:
            yield from port(f"{at}.containerPort", one["containerPort"])
        if one.get("hostPort"):
            yield from port(f"{at}.hostPort", one["hostPort"])
        yield from one_of(f"{at}.protocol", one.get("protocol"), PROTOCOLS)


def host_ports(path: str, given: list[Object]) -> Iterator[FieldError]:
    """No two containers take the same port of the host."""
    seen: set[str] = set()
    for i, container in enumerate(given):
        for j, one in enumerate(container.get("ports") or ()):
            if one.get("hostPort"):
                text = f"{one.get('protocol', '')}/{one.get('hostIP', '')}/{one['hostPort']}"
                if text in seen:
                    yield duplicate(f"{path}[{i}].ports[{j}].hostPort", text)
                seen.add(text)


def _resize(path: str, given: Any, context: Context) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, policy in enumerate(given):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(f"{path}[{i}]", name)
        seen.add(name)
        yield from one_of(path, name, ("cpu", "memory"))
        yield from one_of(path, restart, ("NotRequired", "RestartContainer"))
        if context.restart_policy == "Never" and restart != "NotRequired":
            text = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield invalid(path, restart, text)


def _missing_policy(path: str, container: Object) -> Faults:
    if not container.get("restartPolicyRules"):
        return []
    text = "must specify restartPolicy when restart rules are used"
    return [required(f"{path}.restartPolicy", text)]


def _restarts(path: str, container: Object) -> Iterator[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        yield from _missing_policy(path, container)
    elif policy not in RESTARTS:
        yield unsupported(f"{path}.restartPolicy", policy, RESTARTS)
    if len(rules) > RULES_MAX:
        yield too_many(f"{path}.restartPolicyRules", len(rules), RULES_MAX)
    for i, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{i}]"
        if rule.get("action") not in RULE_ACTIONS:
            yield unsupported(f"{at}.action", rule.get("action", ""), RULE_ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            yield required(f"{at}.exitCodes", "must be specified")
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            operator = codes.get("operator", "")
            yield unsupported(f"{at}.exitCodes.operator", operator, ("In", "NotIn"))
        if len(codes.get("values") or ()) > VALUES_MAX:
            yield too_many(f"{at}.exitCodes.values", len(codes["values"]), VALUES_MAX)
