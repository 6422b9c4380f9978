"""Validates Jobs and CronJobs. Source: pkg/apis/batch/validation, pkg/registry/batch, 1.36."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import msgspec

from stower.api.errors import OMITTED, FieldError, unsupported
from stower.api.validation.go_values import go_value
from stower.api.validation.job_indexes import IndexFault, count_indexes
from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    byte_count,
    duplicate,
    invalid,
    label_key,
    label_selector,
    named,
    not_negative,
    required,
    too_long,
    too_many,
)
from stower.api.validation.workloads import template
from stower.model import names
from stower.model.cron import Schedule, zone_fault
from stower.model.selectors import LabelSelector

INDEXED: Final = "Indexed"
PARALLELISM_MAX: Final = 100_000  # of an Indexed Job
COMPLETIONS_MANY: Final = 100_000  # above it, failed indexes are limited
PARALLELISM_MAX_FOR_MANY: Final = 10_000
FAILED_MAX_FOR_MANY: Final = 10_000
RULES_MAX: Final = 20
EXIT_CODES_MAX: Final = 255
CONDITIONS_MAX: Final = 20
MANAGER_MAX: Final = 63
INDEXES_TEXT_MAX: Final = 64 * 1024
CRON_NAME_MAX: Final = 52  # 11 less than a label's, for what is added to it
ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS: Final = ("In", "NotIn")
STATUSES: Final = ("False", "True", "Unknown")
RESTARTS: Final = ("OnFailure", "Never")
REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
NOT_INDEXED: Final = "requires indexed completion mode"
MANY: Final = f"completions are above {COMPLETIONS_MANY} and used with backoff limit per index"
PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+\Z")
PATH_TEXT: Final = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"
ZONE_PART: Final = re.compile(r"[A-Za-z.\-_0-9+]{1,14}\Z")
COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
    "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
LABELS: Final = (
    ("controller-uid", "uid"), ("job-name", "name"),
    ("batch.kubernetes.io/controller-uid", "uid"), ("batch.kubernetes.io/job-name", "name"),
)  # fmt: skip


# Jobs


def job(item: Object, has_prefixes: bool = True) -> Faults:
    """A Job as it is stored, with its selector. `has_prefixes`: its template must have the labels
    with a prefix, too."""
    spec, meta = item["spec"], item["metadata"]
    faults = list(_generated(item, has_prefixes))
    faults += _whole_spec(spec)
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == INDEXED and completions > 0:
        last = f"{meta.get('name', '')}-{completions - 1}"
        if any(names.label_faults(last)):
            text = f"will not able to create pod with invalid DNS label: {last}"
            faults.append(invalid("metadata.name", meta.get("name", ""), text))
    return faults


def unstored_job(item: Object) -> Faults:
    """A Job of a file: the API server will give it a selector."""
    return list(job_spec("spec", item["spec"]))


def _generated(item: Object, has_prefixes: bool) -> Iterator[FieldError]:
    """The labels that the API server gives to a template, unless the user has said others."""
    spec, meta = item["spec"], item["metadata"]
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    found = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    labels = LABELS if has_prefixes else LABELS[:2]
    wanted = {label: meta.get(field, "") for label, field in labels}
    for label, value in wanted.items():
        at = f"spec.template.metadata.labels[{label}]"
        if label not in found:
            yield required(at, f"must be '{value}'")
        elif found[label] != value:
            yield invalid(at, dict(sorted(found.items())), f"must be '{value}'")
    if not _matches(selector, wanted):
        yield invalid("spec.selector", selector, "`selector` not auto-generated")


def _matches(selector: Object | None, labels: Object) -> bool:
    """Whether the selector takes the labels; true of one that is not well-formed."""
    if selector is None:
        return False
    if any(label_selector("", selector)):
        return True
    return msgspec.convert(selector, LabelSelector).matches(labels)


def _whole_spec(spec: Object) -> Iterator[FieldError]:
    yield from job_spec("spec", spec)
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    yield from label_selector("spec.selector", selector)
    found = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not _matches(selector, found):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", dict(sorted(found.items())) or None, text)


def job_spec(path: str, spec: Object) -> Iterator[FieldError]:
    """The spec of a Job, but for its selector."""
    for field in COUNTS:
        yield from not_negative(f"{path}.{field}", spec.get(field))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "managedBy" in spec:
        yield from _manager(f"{path}.managedBy", spec["managedBy"])
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", INDEXED):
        yield unsupported(f"{path}.completionMode", mode, ("NonIndexed", INDEXED))
    if mode == INDEXED:
        yield from _indexed(path, spec)
    elif mode == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if field in spec:
                yield invalid(f"{path}.{field}", spec[field], NOT_INDEXED)
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy(f"{path}.podFailurePolicy.rules", spec)
    success = spec.get("successPolicy")
    if success is not None and mode != INDEXED:
        shown = go_value("SuccessPolicy", success)
        yield invalid(f"{path}.successPolicy", shown, NOT_INDEXED)
    elif success is not None:
        yield from _success_policy(f"{path}.successPolicy.rules", spec)
    yield from _replacement(f"{path}.podReplacementPolicy", spec)
    yield from template(f"{path}.template", spec.get("template"))
    yield from _restarts(f"{path}.template.spec.restartPolicy", spec)


def _manager(path: str, name: str) -> Iterator[FieldError]:
    """A path with a domain before it."""
    host, _, rest = name.partition("/")
    if not name:
        yield required(path)
    elif not host or not rest:
        yield invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from named(path, host, names.subdomain_faults)
        if not PATH.match(rest):
            yield invalid(path, rest, PATH_TEXT)
    if byte_count(name) > MANAGER_MAX:
        yield too_long(path, MANAGER_MAX)


def _indexed(path: str, spec: Object) -> Iterator[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    failed = spec.get("maxFailedIndexes")
    at, at_failed = f"{path}.parallelism", f"{path}.maxFailedIndexes"
    most = "must be less than or equal to"
    if completions is None:
        yield required(f"{path}.completions", f"when completion mode is {INDEXED}")
    if parallelism > PARALLELISM_MAX:
        text = f"{most} {PARALLELISM_MAX} when completion mode is {INDEXED}"
        yield invalid(at, parallelism, text)
    if completions is not None and failed is not None and failed > completions:
        yield invalid(at_failed, failed, f"{most} completions")
    if failed is not None and failed > PARALLELISM_MAX:
        yield invalid(at_failed, failed, f"{most} {PARALLELISM_MAX}")
    if (completions or 0) > COMPLETIONS_MANY and "backoffLimitPerIndex" in spec:
        if failed is None:
            text = f"must be specified when completions is above {COMPLETIONS_MANY}"
            yield required(at_failed, text)
        if parallelism > PARALLELISM_MAX_FOR_MANY:
            yield invalid(at, parallelism, f"{most} {PARALLELISM_MAX_FOR_MANY} when {MANY}")
        if failed is not None and failed > FAILED_MAX_FOR_MANY:
            yield invalid(at_failed, failed, f"{most} {FAILED_MAX_FOR_MANY} when {MANY}")


def _restarts(path: str, spec: Object) -> Iterator[FieldError]:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in RESTARTS:
        yield unsupported(path, policy, RESTARTS)
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        yield invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _replacement(path: str, spec: Object) -> Iterator[FieldError]:
    policy = spec.get("podReplacementPolicy")
    supported = REPLACEMENTS if spec.get("podFailurePolicy") is None else ("Failed",)
    if policy is not None and policy not in supported:
        yield unsupported(path, policy, supported)


# Policies


def _failure_policy(path: str, spec: Object) -> Iterator[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    if len(rules) > RULES_MAX:
        yield too_many(path, len(rules), RULES_MAX)
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        c.get("name", "") for f in ("containers", "initContainers") for c in pod.get(f) or ()
    }
    for i, rule in enumerate(rules):
        at = f"{path}[{i}]"
        action = rule.get("action", "")
        if not action:
            yield required(f"{at}.action", f"valid values: {_listed(ACTIONS)}")
        elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            text = "requires the backoffLimitPerIndex to be set"
            yield invalid(f"{at}.action", action, text)
        elif action not in ACTIONS:
            yield unsupported(f"{at}.action", action, ACTIONS)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            yield from _exit_codes(f"{at}.onExitCodes", codes, containers)
        if conditions:
            yield from _pod_conditions(f"{at}.onPodConditions", conditions)
        both = "OnExitCodes and OnPodConditions is"
        if codes is not None and conditions:
            yield invalid(at, OMITTED, f"specifying both {both} not supported")
        if codes is None and not conditions:
            yield invalid(at, OMITTED, f"specifying one of {both} required")


def _listed(words: tuple[str, ...]) -> str:
    """A list as Go's %q writes it."""
    return "[" + " ".join(f'"{word}"' for word in words) + "]"


def _exit_codes(path: str, given: Object, containers: set[str]) -> Iterator[FieldError]:
    operator, values = given.get("operator", ""), given.get("values") or []
    if not operator:
        yield required(f"{path}.operator", f"valid values: {_listed(OPERATORS)}")
    elif operator not in OPERATORS:
        yield unsupported(f"{path}.operator", operator, OPERATORS)
    container, at = given.get("containerName"), f"{path}.values"
    if container is not None and container not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", container, text)
    if not values:
        yield invalid(at, values or None, "at least one value is required")
    elif len(values) > EXIT_CODES_MAX:
        yield too_many(at, len(values), EXIT_CODES_MAX)
    seen: set[int] = set()
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{at}[{i}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{at}[{i}]", value)
        seen.add(value)
    if values != sorted(values):
        yield invalid(at, values, "must be ordered")


def _pod_conditions(path: str, given: list[Object]) -> Iterator[FieldError]:
    if len(given) > CONDITIONS_MAX:
        yield too_many(path, len(given), CONDITIONS_MAX)
    for i, pattern in enumerate(given):
        yield from label_key(f"{path}[{i}].type", pattern.get("type", ""))
        status = pattern.get("status", "")
        if not status:
            yield required(f"{path}[{i}].status", f"valid values: {_listed(STATUSES)}")
        elif status not in STATUSES:
            yield unsupported(f"{path}[{i}].status", status, STATUSES)


def _success_policy(path: str, spec: Object) -> Iterator[FieldError]:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions") or 0
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        yield required(path, text)
    if len(rules) > RULES_MAX:
        yield too_many(path, len(rules), RULES_MAX)
    for i, rule in enumerate(rules):
        at = f"{path}[{i}]"
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        total = 0
        if indexes is None and count is None:
            text = "at least one of succeededCount or succeededIndexes must be specified"
            yield required(at, text)
        if indexes is not None:
            if byte_count(indexes) > INDEXES_TEXT_MAX:
                yield too_long(f"{at}.succeededIndexes", INDEXES_TEXT_MAX)
            try:
                total = count_indexes(indexes, completions)
            except IndexFault as fault:
                text = f"error parsing succeededIndexes: {fault}"
                yield invalid(f"{at}.succeededIndexes", indexes, text)
        if count is None:
            continue
        most = f"{at}.succeededCount", count
        yield from not_negative(*most)
        if count > completions:
            text = f"{completions} (the number of specified completions)"
            yield invalid(*most, f"must be less than or equal to {text}")
        if indexes is not None and count > total:
            text = f"{total} (the number of indexes in the specified succeededIndexes field)"
            yield invalid(*most, f"must be less than or equal to {text}")


# Changes of Jobs


def job_update(new: Object, old: Object) -> Faults:
    """A change of a Job. Upstream looks at the spec twice, and so names its faults twice."""
    now, before = new["spec"], old["spec"]
    known = ((before.get("template") or {}).get("metadata") or {}).get("labels") or {}
    has_prefixes = all(label in known for label, _ in LABELS)
    faults = [*job(new, has_prefixes), *_whole_spec(now), *_completions(now, before)]
    faults += _immutable("selector", now, before)
    faults += _template(new, old)
    for field, kind in (("completionMode", ""), ("podFailurePolicy", "PodFailurePolicy"),
                        ("backoffLimitPerIndex", ""), ("managedBy", ""),
                        ("successPolicy", "SuccessPolicy")):  # fmt: skip
        faults += _immutable(field, now, before, kind)
    return faults


def _immutable(field: str, now: Object, before: Object, kind: str = "") -> Faults:
    """`kind`: of a struct that is shown."""
    value = now.get(field)
    if value == before.get(field):
        return []
    shown = go_value(kind, value) if kind and value is not None else value
    return [invalid(f"spec.{field}", shown, IMMUTABLE)]


def _completions(now: Object, before: Object) -> Faults:
    """Those of an Indexed Job change together with its parallelism; others do not."""
    if now.get("completionMode") != INDEXED:
        return _immutable("completions", now, before)
    value = now.get("completions")
    if value in (None, before.get("completions"), now.get("parallelism")):
        return []
    return [
        invalid("spec.completions", value, "can only be modified in tandem with spec.parallelism")
    ]


def _template(new: Object, old: Object) -> Faults:
    """Of a suspended Job without pods, directives for the scheduler and resources may change."""
    now, before = new["spec"].get("template") or {}, deepcopy(old["spec"].get("template") or {})
    if not _is_at_rest(old):
        return [] if now == before else [invalid("spec.template", now, IMMUTABLE)]
    wanted, known = now.get("spec") or {}, before.get("spec") or {}
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        _take(known, wanted, field)
    affinity = {k: v for k, v in (known.get("affinity") or {}).items() if k != "nodeAffinity"}
    given = (wanted.get("affinity") or {}).get("nodeAffinity")
    if given is not None:
        affinity["nodeAffinity"] = given
    if affinity or wanted.get("affinity") is not None:
        known["affinity"] = affinity
    else:
        known.pop("affinity", None)
    for field in ("containers", "initContainers"):
        ours, theirs = wanted.get(field) or (), known.get(field) or ()
        for one, other in zip(ours, theirs) if len(ours) == len(theirs) else ():
            if one.get("name") == other.get("name"):
                _take(other, one, "resources")
    return [] if wanted == known else [invalid("spec.template.spec", wanted, IMMUTABLE)]


def _is_at_rest(old: Object) -> bool:
    """The Job is suspended, has not begun or has said so, and none of its pods is active."""
    status = old.get("status") or {}
    rests = any(
        c.get("type") == "Suspended" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    is_new = not status.get("startTime")
    return bool(old["spec"].get("suspend")) and (is_new or rests) and not status.get("active")


def _take(known: Object, wanted: Object, field: str) -> None:
    known.pop(field, None)
    if field in wanted:
        known[field] = wanted[field]


# CronJobs


def cron_job(item: Object, old: Object | None = None) -> Faults:
    """A CronJob. `old`: before it was changed."""
    faults = list(_cron_spec(item["spec"], None if old is None else old["spec"]))
    name = item["metadata"].get("name") or ""
    if old is None and len(name) > CRON_NAME_MAX:
        text = f"must be no more than {CRON_NAME_MAX} characters"
        faults.append(invalid("metadata.name", name, text))
    return faults


def _cron_spec(spec: Object, old: Object | None) -> Iterator[FieldError]:
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    at = "spec.schedule"
    if not schedule:
        yield required(at)
    else:
        try:
            Schedule(schedule)
        except ValueError as error:
            yield invalid(at, schedule, str(error))
        had_zone = old is not None and "TZ" in old.get("schedule", "")
        if "TZ" in schedule and not had_zone:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            yield invalid(at, schedule, text)
        elif "TZ" in schedule and zone is not None:
            text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            yield invalid(at, schedule, text)
    yield from not_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if zone is not None and (old is None or old.get("timeZone") != zone):
        yield from _zone("spec.timeZone", zone)
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        yield required("spec.concurrencyPolicy")
    elif policy not in CONCURRENCY:
        yield unsupported("spec.concurrencyPolicy", policy, CONCURRENCY)
    yield from _job_template("spec.jobTemplate.spec", (spec.get("jobTemplate") or {}).get("spec"))
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from not_negative(f"spec.{field}", spec.get(field))


def _zone(path: str, zone: str) -> Iterator[FieldError]:
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not ZONE_PART.match(part):
            yield invalid(path, zone, f"unknown time zone {zone}")
            return
    if zone.lower() == "local":
        text = (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
        yield invalid(path, zone, text)
    if zone_fault(zone) and zone != "Local":  # which Go knows
        yield invalid(path, zone, zone_fault(zone))


def _job_template(path: str, spec: Any) -> Iterator[FieldError]:
    spec = spec or {}
    yield from job_spec(path, spec)
    if spec.get("selector") is not None:
        yield invalid(f"{path}.selector", spec["selector"], "`selector` will be auto-generated")
    if spec.get("manualSelector"):
        yield unsupported(f"{path}.manualSelector", True, ("nil", "false"))
