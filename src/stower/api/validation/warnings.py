"""Finds valid but probably unintended fields of pods and templates: texts for Warning headers.

Source: pkg/api/pod/warnings.go, pkg/api/node/util.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.byte_cache import ByteCache, encode
from stower.model import names
from stower.model.quantity import quantity_of

Object = dict[str, Any]
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use '
    '"topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use '
    '"topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use '
    '"node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and "
    "Tolerations instead",
}  # fmt: skip
_SYSCTLS: Final = 'non-functional in v1.11+; use the "sysctls" field instead'
ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": "non-functional in v1.16+; use the "
    '"priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": _SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _SYSCTLS,
}
_GONE_IN_25: Final = "deprecated in v1.22, non-functional in v1.25+"
VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": _GONE_IN_25,
    "storageos": _GONE_IN_25,
    "quobyte": _GONE_IN_25,
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
MANY_INDEXES: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
    "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)
SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_TEXT: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
ENDLESS_HISTORY: Final = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is "
    "recommended"
)
_known: Final = ByteCache()
NO_POD: Final = "a null labelSelector results in matching no pod"


def pod(item: Object) -> list[str]:
    """Warnings about a pod."""
    annotations = item["metadata"].get("annotations")
    key = encode((item.get("spec"), annotations))
    found = _known.get(key)
    if found is None:
        found = list(_of(item, ""))
        _known.put(key, found)
    return [*_hostname(item, "the Pod's hostname"), *found]


def workload(item: Object) -> list[str]:
    """Warnings about what makes pods of a template."""
    found = _of(item["spec"].get("template") or {}, "spec.template.")
    return [*_hostname(item, "Pod names and hostnames"), *found]


def job(item: Object) -> list[str]:
    """Warnings about a Job."""
    return [*_hostname(item, "Pod names and hostnames"), *_job_spec(item["spec"], "spec")]


def cron_job(item: Object) -> list[str]:
    """Warnings about a CronJob."""
    spec = (item["spec"].get("jobTemplate") or {}).get("spec") or {}
    found = _job_spec(spec, "spec.jobTemplate.spec")
    return [*_hostname(item, "Pod names and hostnames"), *found]


def _job_spec(spec: Object, path: str) -> Iterator[str]:
    if spec.get("completionMode") == "Indexed":
        if (spec.get("completions") or 0) > 10**5 and (spec.get("parallelism") or 0) > 10**4:
            yield f"{path}: {MANY_INDEXES}"
    yield from _of(spec.get("template") or {}, f"{path}.template.")


def warn_template(item: Object) -> list[str]:
    """Warnings about a template alone."""
    return list(_of(item["spec"].get("template") or {}, "spec.template."))


def stateful_set(item: Object) -> list[str]:
    """Warnings about a StatefulSet."""
    found = warn_template(item)
    if item["spec"].get("revisionHistoryLimit", 0) < 0:
        found.append(ENDLESS_HISTORY)
    return found


def _hostname(item: Object, where: str) -> Iterator[str]:
    faults = list(names.label_faults(item["metadata"].get("name", "")))
    if faults:
        yield (
            f"metadata.name: this is used in {where}, which can result in surprising behavior; a "
            f"DNS label is recommended: [{' '.join(faults)}]"
        )


def _of(item: Object, path: str) -> Iterator[str]:
    spec = item.get("spec") or {}
    annotations = (item.get("metadata") or {}).get("annotations") or {}
    yield from _node_labels(spec, f"{path}spec")
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        at = f"{path}spec.topologySpreadConstraints[{i}]"
        if (key := constraint.get("topologyKey")) in LABELS:
            yield f"{at}.topologyKey: {key} is {LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{at}.labelSelector: {NO_POD}"
    for key in sorted(annotations.keys() & ANNOTATIONS.keys()):
        yield f"{path}metadata.annotations[{key}]: {ANNOTATIONS[key]}"
    for i, volume in enumerate(spec.get("volumes") or ()):
        for source in volume.keys() & VOLUMES.keys():
            yield f"{path}spec.volumes[{i}].{source}: {VOLUMES[source]}"
    yield from _warn_duplicates(spec, "hostAliases", "ip", f"{path}spec")
    yield from _warn_duplicates(spec, "imagePullSecrets", "name", f"{path}spec")
    for i, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}spec.imagePullSecrets[{i}].name: invalid empty name ""'
    yield from _fractions(spec.get("overhead"), f"{path}spec.overhead")
    if SECCOMP in annotations and not (spec.get("securityContext") or {}).get("seccompProfile"):
        yield f"{path}metadata.annotations[{SECCOMP}]: {SECCOMP_TEXT}"
    for field in CONTAINERS:
        for i, container in enumerate(spec.get(field) or ()):
            at = f"{path}spec.{field}[{i}]"
            for part in ("limits", "requests"):
                amounts = (container.get("resources") or {}).get(part)
                yield from _fractions(amounts, f"{at}.resources.{part}")
            yield from _warn_hidden(container.get("env") or (), f"{at}.env")
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield (
            f"{path}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid "
            "and will be treated as 1"
        )
    yield from _affinity(spec.get("affinity") or {}, f"{path}spec.affinity")


def _node_labels(spec: Object, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or {}:
        if key in LABELS:
            yield f"{path}.nodeSelector[{key}]: {LABELS[key]}"
    wanted = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    at = f"{path}.affinity.nodeAffinity"
    required = wanted.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        (f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]", term)
        for i, term in enumerate(required.get("nodeSelectorTerms") or ())
    ]
    preferred = wanted.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms += [
        (f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{i}].preference", t["preference"])
        for i, t in enumerate(preferred)
    ]
    for where, term in terms:
        for i, expression in enumerate(term.get("matchExpressions") or ()):
            if (key := expression.get("key")) in LABELS:
                yield f"{where}.matchExpressions[{i}].key: {key} is {LABELS[key]}"


def _affinity(affinity: Object, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        wanted = affinity.get(kind) or {}
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        for i, term in enumerate(wanted.get(name) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{name}[{i}].labelSelector: {NO_POD}"
        name = "preferredDuringSchedulingIgnoredDuringExecution"
        for i, weighted in enumerate(wanted.get(name) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{name}[{i}].podAffinityTerm.labelSelector: {NO_POD}"


def _warn_duplicates(spec: Object, field: str, key: str, path: str) -> Iterator[str]:
    seen = set()
    for i, item in enumerate(spec.get(field) or ()):
        value = item.get(key, "")
        if value in seen:
            yield f'{path}.{field}[{i}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _fractions(amounts: Object | None, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        value = (amounts or {}).get(name)
        if value is not None and quantity_of(value).milli_value() % 1000:
            yield f'{path}[{name}]: fractional byte value "{value}" is invalid, must be an integer'


def _warn_hidden(env: Any, path: str) -> Iterator[str]:
    """A variable that is set again, and not from what it was."""
    seen = set()
    for i, item in enumerate(env):
        name, value = item.get("name", ""), item.get("value", "")
        reference = f"$({name})"
        if name in seen:
            if item.get("valueFrom") or value == reference or reference not in value:
                text = f'hides previous definition of "{name}", which may be dropped when using '
                yield f"{path}[{i}]: {text}apply"
        seen.add(name)
