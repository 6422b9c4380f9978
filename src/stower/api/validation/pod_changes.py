"""Validates changes of pods: of the spec, the status, resources (resize), ephemeral containers."""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.qos import qos_class
from stower.api.validation import pods, scheduling
from stower.api.validation.containers import image_text
from stower.api.validation.rules import (
    INT32_MAX,
    Faults,
    Object,
    forbidden,
    invalid,
    label_key,
    named,
    required,
)
from stower.model import names

UPDATABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
IMMUTABLE: Final = f"pod updates may not change fields other than {UPDATABLE}\n"
RESIZABLE: Final = ("cpu", "memory")
TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def update(new: Object, old: Object) -> Faults:
    """A change of a pod's spec."""
    own = list(pods.pod(new, pods.compares(old["spec"])))
    return [*own, *_annotations(new, old), *_changes(new["spec"], old["spec"])]


def _annotations(new: Object, old: Object) -> Iterator[FieldError]:
    now = new["metadata"].get("annotations") or {}
    before = old["metadata"].get("annotations") or {}
    for key in sorted({*now, *before}):
        if now.get(key) == before.get(key):
            continue
        verb = "remove or update" if key in before else "add"
        at = f"metadata.annotations[{key}]"
        if key.startswith(pods.APP_ARMOR):
            yield forbidden(at, f"may not {verb} AppArmor annotations")
        if key == pods.MIRROR:
            yield forbidden(at, f"may not {verb} mirror pod annotation")


def _changes(new: Object, old: Object) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        now, before = new.get(field) or [], old.get(field) or []
        if len(now) != len(before):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
        for i, container in enumerate(now):
            if not container.get("image"):
                yield required(f"spec.{field}[{i}].image")
            yield from image_text(f"spec.{field}[{i}]", container)
    seconds, before_seconds = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    at = "spec.activeDeadlineSeconds"
    if seconds is not None:
        if not 0 <= seconds <= INT32_MAX:
            yield invalid(at, seconds, f"must be between 0 and {INT32_MAX}, inclusive")
            return
        if before_seconds is not None and before_seconds < seconds:
            yield invalid(at, seconds, "must be less than or equal to previous value")
            return
    elif before_seconds is not None:
        yield invalid(at, None, "must not update from a positive integer to nil value")
    yield from _check_only_added(new.get("tolerations") or [], old.get("tolerations") or [])
    known = {g.get("name") for g in old.get("schedulingGates") or ()}
    for i, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = (
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            )
            yield forbidden(f"spec.schedulingGates[{i}].name", text)
    if new != old:
        yield from _rest(new, old)


def _check_only_added(new: list[Object], old: list[Object]) -> Iterator[FieldError]:
    def bare(toleration: Object) -> Object:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    now = [bare(t) for t in new]
    if any(bare(t) not in now for t in old):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)
        return
    before = pods.compares({"tolerations": old})
    yield from scheduling.tolerations("spec.tolerations", new, before)


def _rest(new: Object, old: Object) -> Iterator[FieldError]:
    """What may not change at all, once what may is put back."""
    same = dict(new)
    for field in ("containers", "initContainers"):
        if field in same:
            same[field] = [
                {**c, "image": before.get("image")} if "image" in before else c
                for c, before in zip(same[field], old[field], strict=True)
            ]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(same, old, field)
    grace = old.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and same.get("terminationGracePeriodSeconds") == 1:
        same["terminationGracePeriodSeconds"] = grace
    if old.get("schedulingGates"):
        if same.get("nodeSelector") != old.get("nodeSelector"):
            now, before = same.get("nodeSelector") or {}, old.get("nodeSelector") or {}
            if any(now.get(k) != v for k, v in before.items()):
                text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
                yield invalid("spec.nodeSelector", now, text)
            _put_back(same, old, "nodeSelector")
        yield from _node_affinity(same, old)
    if same != old:
        yield forbidden("spec", IMMUTABLE)


def _put_back(item: Object, old: Object, field: str) -> None:
    item.pop(field, None)
    if field in old:
        item[field] = old[field]


def _node_affinity(same: Object, old: Object) -> Iterator[FieldError]:
    now = (same.get("affinity") or {}).get("nodeAffinity")
    before = (old.get("affinity") or {}).get("nodeAffinity")
    if now == before:
        return
    path = f"spec.affinity.nodeAffinity.{TERMS}.nodeSelectorTerms"
    if before is not None and TERMS in before:
        old_terms = before[TERMS].get("nodeSelectorTerms") or []
        new_terms = ((now or {}).get(TERMS) or {}).get("nodeSelectorTerms") or []
        if old_terms and len(old_terms) != len(new_terms):
            text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
            yield invalid(path, new_terms, text)
        else:
            for i, term in enumerate(old_terms):
                if not _has_only_additions(new_terms[i], term):
                    text = "only additions are allowed (no mutations or deletions)"
                    yield invalid(f"{path}[{i}]", new_terms[i], text)
    affinity = dict(same.get("affinity") or {})
    affinity.pop("nodeAffinity", None)
    if before is not None:
        affinity["nodeAffinity"] = before
    if affinity or "affinity" in old:
        same["affinity"] = affinity
    else:
        same.pop("affinity", None)


def _has_only_additions(new: Object, old: Object) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return not new.get("matchExpressions") and not new.get("matchFields")
    for field in ("matchExpressions", "matchFields"):
        before, now = old.get(field) or [], new.get(field) or []
        if before != now[: len(before)]:
            return False
    return True


# Status


def status(new: Object, old: Object) -> Faults:
    """A change of a pod's status."""
    return [*_annotations(new, old), *_status(new, old)]


def _status(new: Object, old: Object) -> Iterator[FieldError]:
    now, before = new["status"], old.get("status") or {}
    spec = old["spec"]
    for i, condition in enumerate(now.get("conditions") or ()):
        at = f"status.conditions[{i}]"
        if condition.get("observedGeneration", 0) < 0:
            text = "must be a non-negative integer"
            yield invalid(f"{at}.observedGeneration", condition["observedGeneration"], text)
        kind = condition.get("type", "")
        if kind not in ("PodScheduled", "Ready", "Initialized"):
            yield from label_key(f"{at}.Type", kind)
    nominated = now.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from named("status.nominatedNodeName", nominated, names.subdomain_faults)
        if spec.get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            yield forbidden("status.nominatedNodeName", text)
    if now.get("observedGeneration", 0) < 0:
        text = "must be a non-negative integer"
        yield invalid("status.observedGeneration", now["observedGeneration"], text)
    if now.get("qosClass") != before.get("qosClass"):
        yield invalid("status.qosClass", now.get("qosClass", ""), "field is immutable")
    for field, restarts in (
        ("containerStatuses", spec.get("restartPolicy") == "Always"),
        ("initContainerStatuses", True),
    ):
        yield from _transitions(field, now, before, spec, restarts)
    yield from _claims(now, new["spec"])
    yield from _extended_claim(now, new["spec"])
    yield from _addresses(now, before, "podIPs", "podIP")
    yield from _addresses(now, before, "hostIPs", "hostIP")


def _transitions(
    field: str, now: Object, before: Object, spec: Object, restarts: bool
) -> Iterator[FieldError]:
    """A container that ended and does not restart stays ended."""
    source = "containers" if field == "containerStatuses" else "initContainers"
    known = {c.get("name"): c for c in spec.get(source) or ()}
    current = {c.get("name"): c for c in now.get(field) or ()}
    for i, status_before in enumerate(before.get(field) or ()):
        ended = (status_before.get("state") or {}).get("terminated")
        found = current.get(status_before.get("name"))
        if ended is None or found is None:
            continue
        if (found.get("state") or {}).get("terminated") is not None:
            continue
        container = known.get(status_before.get("name")) or {}
        if _restarts(container, spec, ended.get("exitCode", 0), source):
            continue
        text = "may not be transitioned to non-terminated state"
        yield forbidden(f"status.{field}[{i}].state", text)


def _restarts(container: Object, spec: Object, code: int, source: str) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if (code in (codes.get("values") or ())) == (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    if source == "initContainers" and policy == "Always" and "restartPolicy" not in container:
        return code != 0
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _claims(now: Object, spec: Object) -> Iterator[FieldError]:
    known = {c.get("name") for c in spec.get("resourceClaims") or ()}
    for i, claim in enumerate(now.get("resourceClaimStatuses") or ()):
        at = f"status.resourceClaimStatuses[{i}]"
        name = claim.get("name", "")
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{at}.name", name, text)
        if claim.get("resourceClaimName"):
            where = f"{at}.resourceClaimName"
            yield from named(where, claim["resourceClaimName"], names.subdomain_faults)


def _extended_claim(now: Object, spec: Object) -> Iterator[FieldError]:
    given = now.get("extendedResourceClaimStatus")
    if given is None:
        return
    path = "status.extendedResourceClaimStatus"
    name = given.get("resourceClaimName", "")
    if not name:
        yield required(f"{path}.resourceClaimName")
    else:
        yield from named(f"{path}.resourceClaimName", name, names.subdomain_faults)
    mappings = given.get("requestMappings") or ()
    if not mappings:
        yield required(f"{path}.requestMappings")
    known = {
        c.get("name"): (c.get("resources") or {}).get("requests") or {}
        for field in ("containers", "initContainers")
        for c in spec.get(field) or ()
    }
    for i, mapping in enumerate(mappings):
        at = f"{path}.requestMappings[{i}]"
        container, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
        if container not in known:
            text = (
                "must match the name of an entry in spec.initContainers.name or "
                "spec.containers.name"
            )
            yield invalid(f"{at}.containerName", container, text)
        elif resource not in known[container]:
            text = "must match the extended resource name of an entry in the container's requests"
            yield invalid(f"{at}.resourceName", resource, text)
        request = mapping.get("requestName", "")
        if not request:
            yield required(f"{at}.requestName")
        else:
            yield from named(f"{at}.requestName", request, names.label_faults)


_PART: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_PLAIN_ADDRESS: Final = re.compile(rf"{_PART}(?:\.{_PART}){{3}}", re.ASCII)


def _addresses(now: Object, before: Object, field: str, single: str) -> Iterator[FieldError]:
    given = now.get(field) or []
    path = f"status.{field}"
    known = {a.get("ip") for a in before.get(field) or ()}
    families = []
    seen: set[str] = set()
    for i, address in enumerate(given):
        text = address.get("ip", "")
        faults = [] if text in known else list(_address(f"{path}[{i}]", text))
        yield from faults
        families.append(":" in text)
        if text in seen and field == "podIPs":
            yield FieldError("FieldValueDuplicate", f"{path}[{i}]", {"ip": text})
        seen.add(text)
    if len(given) > 1 and (len(given) > 2 or families[0] == families[1]):
        shown = [a.get("ip", "") for a in given]
        yield invalid(path, shown, "may specify no more than one IP for each IP family")
    first = given[0].get("ip", "") if given else ""
    if field == "hostIPs" and given and first != now.get(single, ""):
        yield invalid(f"{path}[0].ip", first, f"must be equal to `{single}`")


def _address(path: str, text: str) -> Iterator[FieldError]:
    if _PLAIN_ADDRESS.fullmatch(text):
        return
    if re.fullmatch(r"\d+(\.\d+){3}", text) and any(
        len(part) > 1 and part.startswith("0") for part in text.split(".")
    ):
        yield invalid(path, text, "must not have leading 0s")
        return
    for fault in names.ip_faults(text):
        yield invalid(path, text, fault)


# Resize and ephemeral containers


def resize(new: Object, old: Object) -> Faults:
    """A change of resources in place."""
    faults = list(pods.pod(new, pods.compares(old["spec"])))
    spec, before = new["spec"], old["spec"]
    annotations = old["metadata"].get("annotations") or {}
    if pods.MIRROR in annotations:
        return [forbidden("", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    quality = (old.get("status") or {}).get("qosClass") or qos_class(before)
    if quality != qos_class(spec):
        text = "Pod QOS Class may not change as a result of resizing"
        faults.append(invalid("spec", quality, text))
    faults += _check_supported(old)
    same = dict(spec)
    faults += _pod_level(spec, before, same)
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        text = "pods with node allocatable resource claims cannot be resized"
        faults.append(forbidden("spec", text))
    order = list(_order(spec, before))
    if order:
        return faults + order
    for field in ("initContainers", "containers"):
        for i, container in enumerate(before.get(field) or ()):
            if field == "initContainers" and container.get("restartPolicy") != "Always":
                continue
            now = spec[field][i]
            at = f"spec.{field}[{i}].resources"
            faults += _no_removal(
                at, now.get("resources") or {}, container.get("resources") or {}, "resource"
            )
    faults += _check_only_compute(same, before)
    if not faults and same != before:
        faults.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return faults


def _check_supported(old: Object) -> Faults:
    """A running container that tells no resources is on a node that cannot resize."""
    for container in (old.get("status") or {}).get("containerStatuses") or ():
        if "running" in (container.get("state") or {}):
            if "resources" not in container:
                return [forbidden("spec", "Pod running on node without support for resize")]
            return []
    return []


def _pod_level(new: Object, old: Object, same: Object) -> Iterator[FieldError]:
    """Pod-level resources: cpu and memory change, nothing goes."""
    now, before = new.get("resources") or {}, old.get("resources") or {}
    had = bool(before.get("requests") or before.get("limits"))
    has = bool(now.get("requests") or now.get("limits"))
    if not had and not has:
        return
    if had and not has:
        yield forbidden("spec.resources", "pod-level resources cannot be removed")
    yield from _no_removal("spec.resources", now, before, "pod-level resource")
    same["resources"] = _without_compute(now, before)
    if not same["resources"] and "resources" not in old:
        del same["resources"]
    if same.get("resources", {}) != before and same.get("resources") is not None:
        if _without_compute(now, before) != before:
            yield forbidden(
                "spec.resources", "only cpu and memory resources are mutable at pod-level"
            )


def _order(new: Object, old: Object) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        now, before = new.get(field) or [], old.get(field) or []
        if len(now) != len(before):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for i, container in enumerate(before):
            if now[i].get("name") != container.get("name"):
                text = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{i}].name", text)


def _no_removal(path: str, new: Object, old: Object, what: str) -> Iterator[FieldError]:
    for field in ("requests", "limits"):
        if any(name not in (new.get(field) or {}) for name in old.get(field) or {}):
            yield forbidden(f"{path}.{field}", f"{what} {field} cannot be removed")


def _without_compute(new: Object, old: Object) -> Object:
    """The new resources with cpu and memory as they were."""
    made: Object = {k: v for k, v in new.items() if k not in ("requests", "limits")}
    for field in ("requests", "limits"):
        kept = {k: v for k, v in (new.get(field) or {}).items() if k not in RESIZABLE}
        before = old.get(field) or {}
        kept |= {k: v for k, v in before.items() if k in RESIZABLE}
        if kept:
            made[field] = kept
    return made


def _check_only_compute(same: Object, old: Object) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        made = []
        for i, (now, before) in enumerate(
            zip(same.get(field) or (), old.get(field) or (), strict=True)
        ):
            kept: Any = now
            sidecar = now.get("restartPolicy") == "Always"
            if field == "containers" or sidecar:
                was = before.get("resources") or {}
                kept = {**now, "resources": _without_compute(now.get("resources") or {}, was)}
                if "resizePolicy" in now or "resizePolicy" in before:
                    kept.pop("resizePolicy", None)
                    if "resizePolicy" in before:
                        kept["resizePolicy"] = before["resizePolicy"]
                if kept != before and field == "containers":
                    yield forbidden("spec", "only cpu and memory resources are mutable")
                elif kept != before:
                    text = (
                        "only cpu and memory resources for init or sidecar containers are mutable"
                    )
                    yield forbidden(f"spec.{field}[{i}]", text)
            elif now != before:
                yield forbidden("spec", "resources for non-sidecar init containers are immutable")
            made.append(kept)
        if field in same:
            same[field] = made


def ephemeral(new: Object, old: Object) -> Faults:
    """Ephemeral containers come, and stay as they are."""
    faults = [*pods.pod(new), *_annotations(new, old)]
    if pods.MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    now = {c.get("name"): c for c in new["spec"].get("ephemeralContainers") or ()}
    path = "spec.ephemeralContainers"
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in now:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            faults.append(forbidden(path, text))
        elif now[name] != container:
            text = f'existing ephemeral containers "{name}" may not be changed\n'
            faults.append(forbidden(path, text))
    return faults
