"""Validates containers, init containers and ephemeral containers."""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import TOO_MANY, FieldError, unsupported
from stower.api.validation.amounts import requirements
from stower.api.validation.rules import (
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    missing,
    named,
    not_negative,
    one_of,
    port,
    required,
)
from stower.model import names

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
RESTARTS: Final = ("Always", "Never", "OnFailure")
ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"
EPHEMERAL_FIELDS: Final = (
    "name", "image", "command", "args", "workingDir", "envFrom", "env", "resources", "volumeMounts",
    "volumeDevices", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy",
    "securityContext", "stdin", "stdinOnce", "tty", "targetContainerName", "restartPolicyRules",
)  # fmt: skip
FIELD_PATHS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
RESOURCE_FIELDS: Final = re.compile(
    r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)\Z"
)
RULES_MAX: Final = 20
VALUES_MAX: Final = 255


class Context:
    """What of the pod the rules for its containers need."""

    __slots__ = ("claims", "restart_policy", "volumes")

    def __init__(self, spec: Object, volumes: dict[str, Object]) -> None:
        self.volumes = volumes
        self.restart_policy = spec.get("restartPolicy", "")
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
        yield from _probes(at, container)
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
        yield from _restarts(at, container)
        name = container.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        elif name:
            seen.add(name)
        yield from host_ports(path, [container])
        if container.get("restartPolicy") == "Always":
            yield from _probes(at, container)
            continue
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in container:
                yield forbidden(f"{at}.{field}", ONLY_SIDECARS)
        for j, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
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
        for field, value in container.items():
            if field not in EPHEMERAL_FIELDS or (field == "resources" and value):
                yield forbidden(f"{at}.{field}", "cannot be set for an Ephemeral Container")
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    text = "cannot be set for an Ephemeral Container"
                    yield forbidden(f"{at}.volumeMounts[{j}].{field}", text)


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
        if "." in name and not name.strip("."):
            yield invalid(f"{path}.name", name, "must not contain dots")
    if not container.get("image"):
        yield required(f"{path}.image")
    policy = container.get("terminationMessagePolicy")
    yield from one_of(f"{path}.terminationMessagePolicy", policy, ("File", "FallbackToLogsOnError"))
    yield from _ports(f"{path}.ports", container.get("ports") or ())
    yield from _env(f"{path}.env", container.get("env") or ())
    yield from _env_from(f"{path}.envFrom", container.get("envFrom") or ())
    yield from _mounts(path, container, context)
    yield from one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    yield from requirements(f"{path}.resources", container.get("resources"), context.claims)
    yield from _resize(f"{path}.resizePolicy", container.get("resizePolicy") or (), context)
    if "securityContext" in container:
        yield from _security(f"{path}.securityContext", container["securityContext"])


def _ports(path: str, given: Any) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, one in enumerate(given):
        at = f"{path}[{i}]"
        name = one.get("name", "")
        if name:
            faults = named(f"{at}.name", name, names.port_name_faults)
            if not faults and name in seen:
                faults = [duplicate(f"{at}.name", name)]
            yield from faults
            seen.add(name)
        if not one.get("containerPort"):
            yield required(f"{at}.containerPort")
        else:
            yield from port(f"{at}.containerPort", one["containerPort"])
        if one.get("hostPort"):
            yield from port(f"{at}.hostPort", one["hostPort"])
        yield from one_of(f"{at}.protocol", one.get("protocol"), PROTOCOLS)
        if one.get("hostIP"):
            yield from named(f"{at}.hostIP", one["hostIP"], names.ip_faults)


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


def _env(path: str, given: Any) -> Iterator[FieldError]:
    for i, variable in enumerate(given):
        at = f"{path}[{i}]"
        if not variable.get("name"):
            yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", variable["name"], names.env_name_faults)
        source = variable.get("valueFrom")
        if source is None:
            continue
        at = f"{at}.valueFrom"
        kinds = [k for k in source if k != "optional"]
        if not kinds:
            yield invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, "
                                  "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")  # fmt: skip
            continue
        if variable.get("value"):
            yield invalid(at, "", "may not be specified when `value` is not empty")
        if len(kinds) > 1:
            yield invalid(at, "", "may not have more than one field specified at a time")
        if "fieldRef" in source:
            yield from _field_reference(f"{at}.fieldRef", source["fieldRef"])
        if "resourceFieldRef" in source:
            yield from _resource_reference(f"{at}.resourceFieldRef", source["resourceFieldRef"])
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if kind in source:
                yield from _key_reference(f"{at}.{kind}", source[kind])


def _field_reference(path: str, given: Object) -> Iterator[FieldError]:
    where = given.get("fieldPath", "")
    if not given.get("apiVersion"):
        yield required(f"{path}.apiVersion")
    elif not where:
        yield required(f"{path}.fieldPath")
    elif re.fullmatch(r"metadata\.(annotations|labels)\['.*'\]", where):
        yield from ()
    elif where in ("metadata.annotations", "metadata.labels") or where not in FIELD_PATHS:
        if where.startswith(("metadata.", "spec.", "status.")) and where in (
            *FIELD_PATHS, "metadata.annotations", "metadata.labels",
        ):  # fmt: skip
            yield unsupported(f"{path}.fieldPath", where, sorted(FIELD_PATHS))
        else:
            yield invalid(f"{path}.fieldPath", where, f"error converting fieldPath: {where}")


def _resource_reference(path: str, given: Object) -> Iterator[FieldError]:
    resource = given.get("resource", "")
    if not resource:
        yield required(f"{path}.resource")
    elif not RESOURCE_FIELDS.match(resource):
        words = [f"{k}.{r}" for k in ("limits", "requests") for r in ("cpu", "memory")]
        yield unsupported(f"{path}.resource", resource, words)


def _key_reference(path: str, given: Object) -> Iterator[FieldError]:
    if not given.get("name"):
        yield required(f"{path}.name")
    else:
        yield from named(f"{path}.name", given["name"], names.subdomain_faults)
    if not given.get("key"):
        yield required(f"{path}.key")
    else:
        yield from named(f"{path}.key", given["key"], names.config_key_faults)


def _env_from(path: str, given: Any) -> Iterator[FieldError]:
    for i, source in enumerate(given):
        at = f"{path}[{i}]"
        if source.get("prefix"):
            yield from named(f"{at}.prefix", source["prefix"], names.env_name_faults)
        kinds = [k for k in ("configMapRef", "secretRef") if k in source]
        for kind in kinds:
            if not source[kind].get("name"):
                yield required(f"{at}.{kind}.name")
        if not kinds:
            yield invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(at, "", "may not have more than one field specified at a time")


def _mounts(path: str, container: Object, context: Context) -> Iterator[FieldError]:
    mounts = container.get("volumeMounts") or ()
    devices = container.get("volumeDevices") or ()
    device_paths = {d.get("devicePath") for d in devices}
    seen: set[str] = set()
    for i, mount in enumerate(mounts):
        at = f"{path}.volumeMounts[{i}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{at}.name")
        if name not in context.volumes:
            yield missing(f"{at}.name", name)
        if not where:
            yield required(f"{at}.mountPath")
        if where in seen:
            yield invalid(f"{at}.mountPath", where, "must be unique")
        seen.add(where)
        if where and where in device_paths:
            yield invalid(
                f"{at}.mountPath", where, "must not already exist as a path in volumeDevices"
            )
        if mount.get("subPath"):
            yield from _local_path(f"{at}.subPath", mount["subPath"])
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                yield invalid(f"{at}.subPathExpr", mount["subPathExpr"],
                              "subPathExpr and subPath are mutually exclusive")  # fmt: skip
            yield from _local_path(f"{at}.subPathExpr", mount["subPathExpr"])
        if "mountPropagation" in mount:
            words = ("Bidirectional", "HostToContainer", "None")
            if mount["mountPropagation"] not in words:
                yield unsupported(f"{at}.mountPropagation", mount["mountPropagation"], words)
            elif mount["mountPropagation"] == "Bidirectional" and not (
                (container.get("securityContext") or {}).get("privileged")
            ):
                yield forbidden(f"{at}.mountPropagation", "Bidirectional mount propagation is "
                                "available only to privileged containers")  # fmt: skip
    paths: set[str] = set()
    for i, device in enumerate(devices):
        at = f"{path}.volumeDevices[{i}]"
        name, where = device.get("name", ""), device.get("devicePath", "")
        if not name:
            yield required(f"{at}.name")
        volume = context.volumes.get(name)
        if volume is None:
            yield missing(f"{at}.name", name)
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block "
                "mode"
            )
            yield invalid(f"{at}.name", name, text)
        if not where:
            yield required(f"{at}.devicePath")
        if where in paths:
            yield invalid(f"{at}.devicePath", where, "must be unique")
        paths.add(where)


def _local_path(path: str, value: str) -> Faults:
    faults = []
    if value.startswith("/"):
        faults.append(invalid(path, value, "must be a relative path"))
    if ".." in value.split("/"):
        faults.append(invalid(path, value, "must not contain '..'"))
    return faults


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


def _restarts(path: str, container: Object) -> Iterator[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        if rules:
            text = "must specify restartPolicy when restart rules are used"
            yield required(f"{path}.restartPolicy", text)
    elif policy not in RESTARTS:
        yield unsupported(f"{path}.restartPolicy", policy, RESTARTS)
    if len(rules) > RULES_MAX:
        text = f"must have at most {RULES_MAX} items"
        yield FieldError(TOO_MANY, f"{path}.restartPolicyRules", len(rules), text)
    for i, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{i}]"
        if rule.get("action") not in ("Restart", "RestartAllContainers"):
            yield unsupported(f"{at}.action", rule.get("action", ""), ("Restart",))
        codes = rule.get("exitCodes")
        if codes is None:
            yield required(f"{at}.exitCodes", "must be specified")
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            operator = codes.get("operator", "")
            yield unsupported(f"{at}.exitCodes.operator", operator, ("In", "NotIn"))
        if len(codes.get("values") or ()) > VALUES_MAX:
            count = len(codes["values"])
            text = f"must have at most {VALUES_MAX} items"
            yield FieldError(TOO_MANY, f"{at}.exitCodes.values", count, text)


def _security(path: str, given: Object) -> Iterator[FieldError]:
    for field in ("runAsUser", "runAsGroup"):
        value = given.get(field)
        if value is not None and not 0 <= value <= 2**31 - 1:
            yield invalid(f"{path}.{field}", value, "must be between 0 and 2147483647, inclusive")
    capabilities = (given.get("capabilities") or {}).get("add") or ()
    if given.get("allowPrivilegeEscalation") is False:
        if given.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(path, given, text)
        if any(c in ("CAP_SYS_ADMIN", "SYS_ADMIN") for c in capabilities):
            text = (
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "
                "CAP_SYS_ADMIN"
            )
            yield invalid(path, given, text)
    if "procMount" in given:
        yield from one_of(f"{path}.procMount", given["procMount"], ("Default", "Unmasked"))
    yield from profile(f"{path}.seccompProfile", given.get("seccompProfile"))
    yield from profile(f"{path}.appArmorProfile", given.get("appArmorProfile"))


def profile(path: str, given: Object | None) -> Iterator[FieldError]:
    """A seccomp or AppArmor profile."""
    if given is None:
        return
    kind, local = given.get("type", ""), given.get("localhostProfile")
    yield from one_of(f"{path}.type", kind, ("Localhost", "RuntimeDefault", "Unconfined"))
    if kind == "Localhost" and not local:
        yield required(f"{path}.localhostProfile", "must be set when type is Localhost")
    elif kind != "Localhost" and local is not None:
        text = "can only be set when type is Localhost"
        yield invalid(f"{path}.localhostProfile", local, text)


def _probes(path: str, container: Object) -> Iterator[FieldError]:
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            yield from handler(f"{path}.lifecycle.{hook}", lifecycle[hook])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        at = f"{path}.{name}"
        yield from handler(at, probe)
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds",
                      "successThreshold", "failureThreshold"):  # fmt: skip
            yield from not_negative(f"{at}.{field}", probe.get(field))
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None and grace <= 0:
            yield invalid(f"{at}.terminationGracePeriodSeconds", grace, "must be greater than 0")
        if name == "readinessProbe" and grace is not None:
            text = "must not be set for readinessProbes"
            yield invalid(f"{at}.terminationGracePeriodSeconds", grace, text)
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield invalid(f"{at}.successThreshold", probe["successThreshold"], "must be 1")


HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def handler(path: str, given: Object) -> Iterator[FieldError]:
    """What a probe or hook does: exactly one thing."""
    kinds = [k for k in HANDLERS if k in given]
    if not kinds:
        yield required(path, "must specify a handler type")
    for extra in kinds[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if kinds[:1] == ["exec"] and not given["exec"].get("command"):
        yield required(f"{path}.exec.command")
    if kinds[:1] == ["httpGet"]:
        action = given["httpGet"]
        if not action.get("path"):
            yield required(f"{path}.httpGet.path")
        yield from port(f"{path}.httpGet.port", action.get("port", 0))
        yield from one_of(f"{path}.httpGet.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
        for i, header in enumerate(action.get("httpHeaders") or ()):
            name = header.get("name", "")
            if not re.fullmatch(r"[-A-Za-z0-9]+", name):
                text = (
                    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                    "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
                )
                yield invalid(f"{path}.httpGet.httpHeaders[{i}].name", name, text)
    if kinds[:1] == ["tcpSocket"]:
        yield from port(f"{path}.tcpSocket.port", given["tcpSocket"].get("port", 0))
    if kinds[:1] == ["grpc"]:
        yield from port(f"{path}.grpc.port", given["grpc"].get("port", 0))
