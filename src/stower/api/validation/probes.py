"""Validates probes and lifecycle hooks of containers.

Source: validateProbe, validateLifecycle and validateHandler in pkg/apis/core/validation, Kubernetes
1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.rules import (
    Object,
    forbidden,
    invalid,
    named,
    not_negative,
    port,
    required,
)
from stower.model import names

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
NUMBERS: Final = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
HOOK_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
SCHEMES: Final = ("HTTP", "HTTPS")


def probes(path: str, container: Object, grace_seconds: int | None) -> Iterator[FieldError]:
    """Hooks and probes of a container. `grace_seconds`: the pod's, which bounds sleeps."""
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            at = f"{path}.lifecycle.{hook}"
            yield from _handler(at, lifecycle[hook], HOOK_HANDLERS, grace_seconds)
    for name in PROBES:
        if name in container:
            yield from _probe(f"{path}.{name}", name, container[name])


def _probe(path: str, name: str, probe: Object) -> Iterator[FieldError]:
    yield from _handler(path, probe, PROBE_HANDLERS, None)
    for field in NUMBERS:
        yield from not_negative(f"{path}.{field}", probe.get(field))
    grace = probe.get("terminationGracePeriodSeconds")
    at = f"{path}.terminationGracePeriodSeconds"
    if grace is not None and grace <= 0:
        yield invalid(at, grace, "must be greater than 0")
    if name == "readinessProbe":
        if grace is not None:
            yield invalid(at, grace, "must not be set for readinessProbes")
    elif probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(
    path: str, given: Object, kinds: tuple[str, ...], grace_seconds: int | None
) -> Iterator[FieldError]:
    """What a probe or hook does: exactly one thing."""
    found = [kind for kind in kinds if kind in given]
    if not found:
        yield required(path, "must specify a handler type")
        return
    first = found[0]
    at, action = f"{path}.{first}", given[first]
    if first == "exec" and not action.get("command"):
        yield required(f"{at}.command")
    elif first == "httpGet":
        yield from _http(at, action)
    elif first in ("tcpSocket", "grpc"):
        yield from port(f"{at}.port", action.get("port", 0))
    elif first == "sleep" and grace_seconds is not None:
        seconds = action.get("seconds", 0)
        if not 0 <= seconds <= grace_seconds:
            text = (
                "must be non-negative and less than terminationGracePeriodSeconds "
                f"({grace_seconds})"
            )
            yield invalid(at, seconds, text)
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")


def _http(path: str, action: Object) -> Iterator[FieldError]:
    if not action.get("path"):
        yield required(f"{path}.path")
    yield from port(f"{path}.port", action.get("port", 0))
    if action.get("scheme", "") not in SCHEMES:
        yield unsupported(f"{path}.scheme", action.get("scheme", ""), SCHEMES)
    for header in action.get("httpHeaders") or ():
        yield from named(f"{path}.httpHeaders", header.get("name", ""), names.http_header_faults)
