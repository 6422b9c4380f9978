"""Validates changes of a pod's spec and of its ephemeral containers.

Source: ValidatePodUpdate and ValidatePodEphemeralContainersUpdate in pkg/apis/core/validation,
Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.equality import same, same_at
from stower.api.errors import FieldError
from stower.api.schema import Type
from stower.api.validation import pod_annotations, pods, scheduling
from stower.api.validation.allowances import allowed_before
from stower.api.validation.containers import image_text
from stower.api.validation.go_values import go_value, go_values
from stower.api.validation.pod_annotations import APP_ARMOR, MIRROR
from stower.api.validation.rules import (
    INT32_MAX,
    WHOLE,
    Allowed,
    Faults,
    Object,
    forbidden,
    invalid,
    required,
)

UPDATABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
IMMUTABLE: Final = f"pod updates may not change fields other than {UPDATABLE}\n"
TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def update(kind: Type, new: Object, old: Object) -> Faults:
    """A change of a pod's spec. `kind`: the type of pods, by which values are compared."""
    allowed = allowed_before(old)
    own = list(pods.pod(new, allowed))
    own += annotation_changes(new, old, allowed)
    return [*own, *_changes(kind.fields["spec"].type, new["spec"], old["spec"], allowed)]


def annotation_changes(new: Object, old: Object, allowed: Allowed) -> Iterator[FieldError]:
    """Annotations that may not change, and those that mean something."""
    now = new["metadata"].get("annotations") or {}
    before = old["metadata"].get("annotations") or {}
    path = "metadata.annotations"
    for key in (*before, *(k for k in now if k not in before)):
        if key in now and key in before and now[key] == before[key]:
            continue
        verb = "remove or update" if key in before else "add"
        if key.startswith(APP_ARMOR):
            yield forbidden(f"{path}[{key}]", f"may not {verb} AppArmor annotations")
        if key == MIRROR:
            yield forbidden(f"{path}[{key}]", f"may not {verb} mirror pod annotation")
    yield from pod_annotations.annotations(path, now, new["spec"], allowed)


def _changes(kind: Type, new: Object, old: Object, allowed: Allowed) -> Iterator[FieldError]:
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
    yield from _check_only_added(
        new.get("tolerations") or [], old.get("tolerations") or [], allowed
    )
    known = {g.get("name") for g in old.get("schedulingGates") or ()}
    for i, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = (
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            )
            yield forbidden(f"spec.schedulingGates[{i}].name", text)
    if not same(kind, new, old):
        yield from _rest(kind, new, old)


def _check_only_added(
    new: list[Object], old: list[Object], allowed: Allowed
) -> Iterator[FieldError]:
    def bare(toleration: Object) -> Object:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    now = [bare(t) for t in new]
    if any(bare(t) not in now for t in old):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)
        return
    yield from scheduling.tolerations("spec.tolerations", new, allowed.comparisons)


def _rest(kind: Type, new: Object, old: Object) -> Iterator[FieldError]:
    """What may not change at all, once what may is put back."""
    kept = dict(new)
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [
                {**c, "image": before.get("image", "")}
                for c, before in zip(kept[field], old[field], strict=True)
            ]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(kept, old, field)
    grace = old.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and kept.get("terminationGracePeriodSeconds") == 1:
        kept["terminationGracePeriodSeconds"] = grace
    if old.get("schedulingGates"):
        if kept.get("nodeSelector") != old.get("nodeSelector"):
            now, before = kept.get("nodeSelector") or {}, old.get("nodeSelector") or {}
            if any(now.get(k) != v for k, v in before.items()):
                text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
                yield invalid("spec.nodeSelector", now or None, text)
            _put_back(kept, old, "nodeSelector")
        yield from _node_affinity(kept, old)
    if not same(kind, kept, old):
        yield forbidden("spec", IMMUTABLE)


def _put_back(item: Object, old: Object, field: str) -> None:
    item.pop(field, None)
    if field in old:
        item[field] = old[field]


def _node_affinity(kept: Object, old: Object) -> Iterator[FieldError]:
    now = (kept.get("affinity") or {}).get("nodeAffinity")
    before = (old.get("affinity") or {}).get("nodeAffinity")
    if now == before:
        return
    path = f"spec.affinity.nodeAffinity.{TERMS}.nodeSelectorTerms"
    if before is not None and TERMS in before:
        old_terms = before[TERMS].get("nodeSelectorTerms") or []
        new_terms = ((now or {}).get(TERMS) or {}).get("nodeSelectorTerms") or []
        if old_terms and len(old_terms) != len(new_terms):
            text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
            yield invalid(path, go_values("NodeSelectorTerm", new_terms), text)
        else:
            for i, term in enumerate(old_terms):
                if not _has_only_additions(new_terms[i], term):
                    text = "only additions are allowed (no mutations or deletions)"
                    yield invalid(f"{path}[{i}]", go_value("NodeSelectorTerm", new_terms[i]), text)
    affinity = dict(kept.get("affinity") or {})
    affinity.pop("nodeAffinity", None)
    if before is not None:
        affinity["nodeAffinity"] = before
    if affinity or "affinity" in old:
        kept["affinity"] = affinity
    else:
        kept.pop("affinity", None)


def _has_only_additions(new: Object, old: Object) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return not new.get("matchExpressions") and not new.get("matchFields")
    for field in ("matchExpressions", "matchFields"):
        before, now = old.get(field) or [], new.get(field) or []
        if before != now[: len(before)]:
            return False
    return True


def ephemeral(kind: Type, new: Object, old: Object) -> Faults:
    """Ephemeral containers are added, and stay as they are."""
    allowed = allowed_before(old)
    faults = [*pods.pod(new, allowed), *annotation_changes(new, old, allowed)]
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden(WHOLE, "static pods do not support ephemeral containers")]
    now = {c.get("name"): c for c in new["spec"].get("ephemeralContainers") or ()}
    path = "spec.ephemeralContainers"
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in now:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            faults.append(forbidden(path, text))
        elif not same_at(kind, [now[name]], [container], "spec", "ephemeralContainers"):
            text = f'existing ephemeral containers "{name}" may not be changed\n'
            faults.append(forbidden(path, text))
    return faults
