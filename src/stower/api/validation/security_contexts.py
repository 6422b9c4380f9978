"""Validates security contexts of pods and containers.

Source: ValidateSecurityContext, validatePodSpecSecurityContext, validateLinux and validateWindows
in pkg/apis/core/validation, Kubernetes 1.36.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation import paths
from stower.api.validation.go_values import go_value
from stower.api.validation.rules import (
    INT32_MAX,
    Allowed,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    named,
    required,
    too_long,
)
from stower.model import names

PROC_MOUNTS: Final = ("Default", "Unmasked")
PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
GROUP_POLICIES: Final = ("Merge", "Strict")
CHANGE_POLICIES: Final = ("Always", "OnRootMismatch")
SELINUX_POLICIES: Final = ("MountOption", "Recursive")
LOCAL_PROFILE_BYTES_MAX: Final = 4095
SYSCTL_MAX: Final = 253
SYSCTL_FORM: Final = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL: Final = re.compile(SYSCTL_FORM.removesuffix("$") + r"\Z")
IPC_SYSCTLS: Final = (
    "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.sem",
    "kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
)  # fmt: skip
NOT_ON_WINDOWS: Final = "cannot be set for a windows pod"
NOT_ON_LINUX: Final = "windows options cannot be set for a linux pod"


def containers_of(path: str, spec: Object) -> Iterator[tuple[str, Object]]:
    """The path and value of each container, in the order in which upstream visits them."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{i}]", container


def identity(path: str, value: int | None) -> Faults:
    """The number of a user or group."""
    if value is None or 0 <= value <= INT32_MAX:
        return []
    return [invalid(path, value, f"must be between 0 and {INT32_MAX}, inclusive")]


def of_container(path: str, given: Object, host_users: bool) -> Iterator[FieldError]:
    """The security context of a container. `host_users`: the pod has no users of its own."""
    yield from identity(f"{path}.runAsUser", given.get("runAsUser"))
    yield from identity(f"{path}.runAsGroup", given.get("runAsGroup"))
    if "procMount" in given:
        word = given["procMount"]
        if word not in PROC_MOUNTS:
            yield unsupported(f"{path}.procMount", word, PROC_MOUNTS)
        if host_users and word == "Unmasked":
            text = "`hostUsers` must be false to use `Unmasked`"
            yield invalid(f"{path}.procMount", word, text)
    yield from _seccomp(f"{path}.seccompProfile", given.get("seccompProfile"))
    if given.get("allowPrivilegeEscalation") is False:
        start = "cannot set `allowPrivilegeEscalation` to false and"
        if given.get("privileged"):
            yield invalid(path, given, f"{start} `privileged` to true")
        for capability in (given.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                yield invalid(path, given, f"{start} `capabilities.Add` CAP_SYS_ADMIN")
    yield from _windows_options(f"{path}.windowsOptions", given.get("windowsOptions"))
    yield from _app_armor(f"{path}.appArmorProfile", given.get("appArmorProfile"))


def of_pod(path: str, spec: Object, allowed: Allowed) -> Iterator[FieldError]:
    """The security context of a pod."""
    given = spec.get("securityContext") or {}
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from identity(f"{path}.{field}", given.get(field))
    for i, group in enumerate(given.get("supplementalGroups") or ()):
        yield from identity(f"{path}.supplementalGroups[{i}]", group)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, text)
    yield from _sysctls(f"{path}.sysctls", spec, allowed)
    yield from _word(f"{path}.fsGroupChangePolicy", given, CHANGE_POLICIES)
    yield from _seccomp(f"{path}.seccompProfile", given.get("seccompProfile"))
    yield from _windows_options(f"{path}.windowsOptions", given.get("windowsOptions"))
    yield from _app_armor(f"{path}.appArmorProfile", given.get("appArmorProfile"))
    yield from _word(f"{path}.supplementalGroupsPolicy", given, GROUP_POLICIES)
    policies = SELINUX_POLICIES if allowed.selinux_policies else ("Recursive",)
    yield from _word(f"{path}.seLinuxChangePolicy", given, policies)


def _word(path: str, given: Object, supported: tuple[str, ...]) -> Faults:
    value = given.get(path.rpartition(".")[2])
    return [] if value is None or value in supported else [unsupported(path, value, supported)]


def _sysctls(path: str, spec: Object, allowed: Allowed) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, sysctl in enumerate((spec.get("securityContext") or {}).get("sysctls") or ()):
        at, name = f"{path}[{i}].name", sysctl.get("name", "")
        if not name:
            yield required(at)
        elif len(name) > SYSCTL_MAX or not _SYSCTL.match(name):
            text = f"must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_FORM}"
            yield invalid(at, name, text)
        elif name in seen:
            yield duplicate(at, name)
        if not allowed.sysctls and (shared := host_namespace(name, spec)):
            yield invalid(at, name, f"may not be specified when '{shared}' is true")
        seen.add(name)


def host_namespace(sysctl: str, spec: Object) -> str:
    """The field that shares the namespace of a sysctl with the host, or "" where none does."""
    name = sysctl
    first = next((c for c in name if c in "./"), ".")
    if first == "/":  # slashes for dots, dots for slashes
        name = name.translate(str.maketrans("./", "/."))
    name = name.partition("*")[0]
    if spec.get("hostNetwork") and name.startswith("net."):
        return "hostNetwork"
    if spec.get("hostIPC") and (name in IPC_SYSCTLS or name.startswith("fs.mqueue.")):
        return "hostIPC"
    return ""


def _seccomp(path: str, given: Object | None) -> Iterator[FieldError]:
    if given is None:
        return
    kind, local = given.get("type", ""), given.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in PROFILES:
        yield unsupported(f"{path}.type", kind, PROFILES)
    at = f"{path}.localhostProfile"
    if kind != "Localhost":
        if local is not None:
            shown = go_value("SeccompProfile", given)
            yield invalid(at, shown, "can only be set when seccomp type is Localhost")
    elif local is None:
        yield required(at, "must be set when seccomp type is Localhost")
    else:
        yield from paths.local(at, local)


def app_armor_faults(given: Object) -> Faults:
    """What is wrong with an AppArmor profile."""
    return list(_app_armor("", given))


def _app_armor(path: str, given: Object | None) -> Iterator[FieldError]:
    if given is None:
        return
    kind, local = given.get("type", ""), given.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if not kind:
        yield required(f"{path}.type", "type is required when appArmorProfile is set")
    elif kind not in PROFILES:
        yield unsupported(f"{path}.type", kind, PROFILES)
    elif kind != "Localhost":
        if local is not None:
            yield invalid(at, local, "can only be set when AppArmor type is Localhost")
    elif local is None:
        yield required(at, "must be set when AppArmor type is Localhost")
    else:
        if local.strip() != local:
            yield invalid(at, local, "must not be padded with whitespace")
        elif not local:
            yield required(at, "must be set when AppArmor type is Localhost")
        if len(local) > LOCAL_PROFILE_BYTES_MAX:
            yield too_long(at, LOCAL_PROFILE_BYTES_MAX)


# Windows

CREDENTIALS_KIB_MAX: Final = 64
DOMAIN_BYTES_MAX: Final = 256
USER_BYTES_MAX: Final = 104
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}\Z')
_DOMAIN_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*\Z")
_USER_CHARACTERS: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')


def _windows_options(path: str, given: Object | None) -> Iterator[FieldError]:
    if given is None:
        return
    name, credentials = given.get("gmsaCredentialSpecName"), given.get("gmsaCredentialSpec")
    if name is not None:
        yield from named(f"{path}.gmsaCredentialSpecName", name, names.subdomain_faults)
    if credentials is not None:
        at = f"{path}.gmsaCredentialSpec"
        if not credentials:
            yield invalid(at, credentials, "gmsaCredentialSpec cannot be an empty string")
        elif len(credentials) > CREDENTIALS_KIB_MAX * 1024:
            text = f"gmsaCredentialSpec size must be under {CREDENTIALS_KIB_MAX} KiB"
            yield invalid(at, credentials, text)
    if "runAsUserName" in given:
        at, value = f"{path}.runAsUserName", given["runAsUserName"]
        for text in _user_faults(value):
            yield invalid(at, value, f"runAsUserName{text}")


def _user_faults(value: str) -> Iterator[str]:
    """What keeps the text from being a user of Windows, with or without a domain."""
    if not value:
        yield " cannot be an empty string"
        return
    if _CONTROL.search(value):
        yield " cannot contain control characters"
        return
    if value.count("\\") > 1:
        yield " cannot contain more than one backslash"
        return
    domain, backslash, user = value.rpartition("\\")
    if len(domain) >= DOMAIN_BYTES_MAX:
        yield f"'s Domain length must be under {DOMAIN_BYTES_MAX} characters"
    if backslash and not _NET_BIOS.match(domain) and not _DOMAIN.match(domain):
        yield "'s Domain doesn't match the NetBios nor the DNS format"
    if not user:
        yield "'s User cannot be empty"
    elif len(user) > USER_BYTES_MAX:
        yield f"'s User length must not be longer than {USER_BYTES_MAX} characters"
    if user and not user.strip(". "):
        yield "'s User cannot contain only periods or spaces"
    if _USER_CHARACTERS.search(user):
        yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def host_processes(path: str, spec: Object) -> Iterator[FieldError]:
    """Containers of Windows that run as processes of the host: all of a pod, or none."""

    def of(item: Object) -> Any:
        options = (item.get("securityContext") or {}).get("windowsOptions") or {}
        return options.get("hostProcess")

    own = of(spec)
    count = total = 0
    for at, container in containers_of(path, spec):
        total += 1
        word = of(container)
        if own is not None and word is not None and own != word:
            text = "pod hostProcess value must be identical if both are specified, was "
            where = f"{at}.securityContext.windowsOptions.hostProcess"
            yield invalid(where, word, f"{text}{'true' if own else 'false'}")
        count += bool(word if word is not None else own)
    if not count:
        return
    if count != total:
        text = (
            "If pod contains any hostProcess containers then all containers must be HostProcess "
            "containers"
        )
        yield invalid(path, "", text)
    if not spec.get("hostNetwork"):
        text = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(f"{path}.hostNetwork", False, text)


POD_FIELDS: Final = (  # of a pod on Windows: fields of its spec (True) and of its context
    (False, "appArmorProfile"), (False, "seLinuxOptions"), (True, "hostUsers"), (True, "hostPID"),
    (True, "hostIPC"), (False, "seccompProfile"), (False, "fsGroup"),
    (False, "fsGroupChangePolicy"), (False, "sysctls"), (True, "shareProcessNamespace"),
    (False, "runAsUser"), (False, "runAsGroup"), (False, "supplementalGroups"),
    (False, "supplementalGroupsPolicy"), (False, "seLinuxChangePolicy"),
)  # fmt: skip
CONTAINER_FIELDS: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities",
    "readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount", "runAsUser",
    "runAsGroup",
)  # fmt: skip
SET_WHERE_TRUE: Final = ("hostPID", "hostIPC")


def windows(path: str, spec: Object) -> Iterator[FieldError]:
    """What a pod on Windows cannot have."""
    context = spec.get("securityContext") or {}
    for of_spec, field in POD_FIELDS:
        value = (spec if of_spec else context).get(field)
        if value or (value is not None and value != [] and field not in SET_WHERE_TRUE):
            where = f"{path}.{field}" if of_spec else f"{path}.securityContext.{field}"
            yield forbidden(where, NOT_ON_WINDOWS)
    for at, container in containers_of(path, spec):
        own = container.get("securityContext") or {}
        for field in CONTAINER_FIELDS:
            if field in own:
                yield forbidden(f"{at}.securityContext.{field}", NOT_ON_WINDOWS)


def linux(path: str, spec: Object) -> Iterator[FieldError]:
    """What a pod on Linux cannot have."""
    for at, item in ((path, spec), *containers_of(path, spec)):
        if "windowsOptions" in (item.get("securityContext") or {}):
            yield forbidden(f"{at}.securityContext.windowsOptions", NOT_ON_LINUX)
