"""Validates annotations that mean something on pods and pod templates.

Source: ValidatePodSpecificAnnotations and what it calls in pkg/apis/core/validation, Kubernetes
1.36.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.go_json import decoding_error
from stower.api.validation import paths, scheduling
from stower.api.validation.rules import Allowed, Faults, Object, forbidden, invalid
from stower.api.validation.security_contexts import containers_of
from stower.model.integers import parse_signed

MIRROR: Final = "kubernetes.io/config.mirror"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
LOCAL: Final = "localhost/"
UNCONFINED: Final = "unconfined"
DEFAULT: Final = "runtime/default"
SECCOMP_WORDS: Final = (DEFAULT, "docker/default", UNCONFINED)
# What the annotation says for a profile of the type of the field.
ANNOTATED: Final = {"Unconfined": (UNCONFINED,), "RuntimeDefault": (DEFAULT,)}
ANNOTATED_SECCOMP: Final = {**ANNOTATED, "RuntimeDefault": (DEFAULT, "docker/default")}
_NO_PLUS: Final = re.compile(r"-|0\Z|[1-9]")


def is_deletion_cost(text: str) -> bool:
    """Whether the text is a number of 32 bits, without a plus sign or zeros in front."""
    return _NO_PLUS.match(text) is not None and parse_signed(text, bits=32) is not None


def annotations(path: str, given: Object, spec: Object, allowed: Allowed) -> Iterator[FieldError]:
    """Annotations of a pod or of a template."""
    if MIRROR in given and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"{path}[{MIRROR}]", given[MIRROR], text)
    if given.get(TOLERATIONS):
        yield from _tolerations(path, given[TOLERATIONS], allowed)
    cost = given.get(DELETION_COST)
    if cost is not None and not allowed.deletion_cost and not is_deletion_cost(cost):
        yield invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
    for key, value in sorted(given.items(), key=lambda item: (item[0] != SECCOMP, item[0])):
        if key == SECCOMP or key.startswith(SECCOMP_CONTAINER):
            yield from _seccomp(f"{path}.{key}", value)
    for key, value in sorted(given.items()):
        if key.startswith(APP_ARMOR):
            yield from _app_armor(f"{path}[{key}]", key.removeprefix(APP_ARMOR), value, spec)


def _tolerations(path: str, text: str, allowed: Allowed) -> Iterator[FieldError]:
    found, why = _decode(text)
    if why:
        yield invalid(path, TOLERATIONS, why)
        return
    yield from scheduling.tolerations(f"{path}.{TOLERATIONS}", found, allowed.comparisons)


def _decode(text: str) -> tuple[list[Object], str]:
    """The tolerations of an annotation, or why there are none, in the words of Go's decoder."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return [], decoding_error(text.encode())
    if value is None:
        return [], ""
    if not isinstance(value, list):
        word = {dict: "object", str: "string", bool: "bool"}.get(type(value), "number")
        return [], f"json: cannot unmarshal {word} into Go value of type []core.Toleration"
    if not all(isinstance(item, dict) for item in value):
        return [], "json: cannot unmarshal into Go value of type core.Toleration"
    return [{k[:1].lower() + k[1:]: v for k, v in item.items()} for item in value], ""


def _seccomp(path: str, value: str) -> Faults:
    if value in SECCOMP_WORDS:
        return []
    if value.startswith(LOCAL):
        return paths.local(path, value.removeprefix(LOCAL))
    return [invalid(path, value, "must be a valid seccomp profile")]


def _app_armor(path: str, name: str, value: str, spec: Object) -> Iterator[FieldError]:
    if all(name != container.get("name", "") for _, container in containers_of("", spec)):
        yield invalid(path, name, "container not found")
    if value and value not in (DEFAULT, UNCONFINED) and not value.startswith(LOCAL):
        yield invalid(path, value, f'invalid AppArmor profile name: "{value}"')


def check_fields(path: str, given: Object, spec: Object) -> Iterator[FieldError]:
    """Annotations about profiles of a new pod or a template say what the fields say. `path`: of
    the spec."""
    own = spec.get("securityContext") or {}
    if "seccompProfile" in own and SECCOMP in given:
        at = f"{path}.securityContext.seccompProfile"
        yield from _mismatch(at, own["seccompProfile"], given[SECCOMP], seccomp=True)
    for at, container in containers_of(path, spec):
        context = container.get("securityContext") or {}
        key = SECCOMP_CONTAINER + container.get("name", "")
        if "seccompProfile" in context and key in given:
            where = f"{at}.securityContext.seccompProfile"
            yield from _mismatch(where, context["seccompProfile"], given[key], seccomp=True)
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for at, container in containers_of(path, spec):
        context = container.get("securityContext") or {}
        profile = context.get("appArmorProfile", own.get("appArmorProfile"))
        key = APP_ARMOR + container.get("name", "")
        if profile is not None and key in given:
            where = f"{at}.securityContext.appArmorProfile"
            yield from _mismatch(where, profile, given[key], seccomp=False)


def _mismatch(path: str, profile: Object, text: str, *, seccomp: bool) -> Faults:
    word = "seccomp" if seccomp else "apparmor"
    known = (ANNOTATED_SECCOMP if seccomp else ANNOTATED).get(profile.get("type", ""))
    is_local = profile.get("type") == "Localhost"
    if (known is not None and text not in known) or (is_local and not text.startswith(LOCAL)):
        return [forbidden(f"{path}.type", f"{word} type in annotation and field must match")]
    if is_local and text.removeprefix(LOCAL) != profile.get("localhostProfile"):
        fault = f"{word} profile in annotation and field must match"
        return [forbidden(f"{path}.localhostProfile", fault)]
    return []
