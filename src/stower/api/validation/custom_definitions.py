"""Validates CustomResourceDefinitions.

Source: apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FORBIDDEN, INVALID, REQUIRED, FieldError, unsupported
from stower.api.schema import Type
from stower.api.validation.definition_versions import version_faults
from stower.model import names as name_rules

Object = dict[str, Any]
NONE: Final = "None"
WEBHOOK: Final = "Webhook"
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
PROTECTED_GROUPS: Final = (".k8s.io", ".kubernetes.io")
APPROVED: Final = "api-approved.kubernetes.io"
APPROVAL_TEXT: Final = f'protected groups must have approval annotation "{APPROVED}"'
APPROVAL_LINK: Final = ", see https://github.com/kubernetes/enhancements/pull/1111"
KEEPS_UNKNOWN: Final = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
    "spec.versions[*].schema instead"
)
IMMUTABLE: Final = "field is immutable"


def new_faults(item: Object, meta: Type) -> Iterator[FieldError]:
    """What is wrong with a new definition. `meta`: the type of metadata."""
    yield from _faults(item, None, meta)
    yield from _approval_faults(item, None)
    if item["spec"].get("preserveUnknownFields"):
        yield FieldError(INVALID, "spec.preserveUnknownFields", True, KEEPS_UNKNOWN)


def _faults(item: Object, old: Object | None, meta: Type) -> Iterator[FieldError]:
    spec = item["spec"]
    names = spec.get("names") or {}
    group = spec.get("group", "")
    wanted = f"{names.get('plural', '')}.{group}"
    if item["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield FieldError(INVALID, "metadata.name", item["metadata"].get("name", ""), text)
    if not group:
        yield FieldError(REQUIRED, "spec.group")
    elif texts := [*name_rules.subdomain_faults(group)]:
        yield FieldError(INVALID, "spec.group", group, ",".join(texts))
    elif "." not in group:
        text = "should be a domain with at least one dot"
        yield FieldError(INVALID, "spec.group", group, text)
    if not spec.get("scope"):
        yield FieldError(REQUIRED, "spec.scope")
    elif spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    own, common = version_faults(item, old, meta)
    yield from own
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield FieldError(REQUIRED, f"spec.names.{field}")
    yield from _name_faults(names, "spec.names")
    yield from common
    yield from _conversion_faults(spec)
    yield from _stored_version_faults(item)


def update_faults(new: Object, old: Object, meta: Type) -> Iterator[FieldError]:
    """What is wrong with a changed definition. `meta`: the type of metadata."""
    yield from _faults(new, old, meta)
    yield from _approval_faults(new, old)
    spec, before = new["spec"], old["spec"]
    if spec.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
        yield FieldError(INVALID, "spec.preserveUnknownFields", True, KEEPS_UNKNOWN)
    fixed = [(("group",), True), (("names", "plural"), True)]
    established = is_established(old)
    fixed += [(("scope",), established), (("names", "kind"), established)]
    for path, applies in fixed:
        value, was = _at(spec, path), _at(before, path)
        if applies and value != was:
            yield FieldError(INVALID, ".".join(("spec", *path)), value, IMMUTABLE)


def is_protected(item: Object) -> bool:
    """Whether the group of a definition is one of Kubernetes."""
    return f".{item['spec'].get('group', '')}".endswith(PROTECTED_GROUPS)


def approval(item: Object) -> tuple[str, str, str]:
    """The condition of a definition in a group of Kubernetes: status, reason and message."""
    value = (item["metadata"].get("annotations") or {}).get(APPROVED) or ""
    scheme, colon, rest = value.partition("://")
    if not value:
        return "False", "MissingAnnotation", APPROVAL_TEXT + APPROVAL_LINK
    if value.startswith("unapproved"):
        return "False", "UnapprovedAnnotation", f'not approved: "{value}"'
    if scheme and colon and rest.partition("/")[0] and " " not in value:
        return "True", "ApprovedAnnotation", f"approved in {value}"
    text = f'{APPROVAL_TEXT} with either a URL or a reason starting with "unapproved"'
    return "False", "InvalidAnnotation", text + APPROVAL_LINK


def _approval_faults(new: Object, old: Object | None) -> Iterator[FieldError]:
    if not is_protected(new):
        return
    _, reason, text = approval(new)
    if old is not None and approval(old)[1] == reason:
        return
    at = f"metadata.annotations[{APPROVED}]"
    if reason == "MissingAnnotation":
        yield FieldError(REQUIRED, at, "", text)
    elif reason == "InvalidAnnotation":
        yield FieldError(INVALID, at, new["metadata"]["annotations"][APPROVED], text)


def is_established(item: Object) -> bool:
    """Whether the names of a definition were accepted once."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def _conversion_faults(spec: Object) -> Iterator[FieldError]:
    conversion = spec.get("conversion") or {}
    at, strategy = "spec.conversion", conversion.get("strategy", "")
    if not strategy:
        yield FieldError(REQUIRED, f"{at}.strategy")
    elif strategy not in (NONE, WEBHOOK):
        yield unsupported(f"{at}.strategy", strategy, (NONE, WEBHOOK))
    webhook = conversion.get("webhook")
    if strategy != WEBHOOK:
        text = "should not be set when strategy is not set to Webhook"
        if (webhook or {}).get("clientConfig") is not None:
            yield FieldError(FORBIDDEN, f"{at}.webhookClientConfig", None, text)
        if (webhook or {}).get("conversionReviewVersions"):
            yield FieldError(FORBIDDEN, f"{at}.conversionReviewVersions", None, text)
        return
    if spec.get("preserveUnknownFields"):
        text = "must be None if spec.preserveUnknownFields is true"
        yield FieldError(INVALID, f"{at}.strategy", strategy, text)
    config = (webhook or {}).get("clientConfig")
    if config is None:
        text = "required when strategy is set to Webhook"
        yield FieldError(REQUIRED, f"{at}.webhookClientConfig", "", text)
    elif (config.get("url") is None) == (config.get("service") is None):
        text = "exactly one of url or service is required"
        yield FieldError(REQUIRED, f"{at}.webhookClientConfig", "", text)
    elif config.get("service") is not None:
        for field in ("name", "namespace"):
            if not config["service"].get(field):
                yield FieldError(REQUIRED, f"{at}.webhookClientConfig.service.{field}")
    yield from _review_version_faults((webhook or {}).get("conversionReviewVersions") or [], at)


def _review_version_faults(versions: list[str], at: str) -> Iterator[FieldError]:
    at = f"{at}.conversionReviewVersions"
    if not versions:
        yield FieldError(REQUIRED, at)
    for i, version in enumerate(versions):
        if version in versions[:i]:
            yield FieldError(INVALID, f"{at}[{i}]", version, "duplicate version")
            continue
        for text in name_rules.label_1035_faults(version):
            yield FieldError(INVALID, f"{at}[{i}]", version, text)
    if versions and not set(REVIEW_VERSIONS).intersection(versions):
        text = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        yield FieldError(INVALID, at, versions, text)


def _stored_version_faults(item: Object) -> Iterator[FieldError]:
    stored = (item.get("status") or {}).get("storedVersions") or []
    if not stored:
        text = "must have at least one stored version"
        yield FieldError(INVALID, "status.storedVersions", None, text)
    known = {version.get("name") for version in item["spec"].get("versions") or ()}
    for i, name in enumerate(stored):
        if name not in known:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            yield FieldError(INVALID, f"status.storedVersions[{i}]", name, text)


def status_faults(item: Object) -> Iterator[FieldError]:
    """What is wrong with the status of a definition."""
    names = (item.get("status") or {}).get("acceptedNames") or {}
    yield from _name_faults(names, "status.acceptedNames")


def _name_faults(names: Object, at: str) -> Iterator[FieldError]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = names.get(field) or ""
        is_kind = field in ("kind", "listKind")
        texts = [*name_rules.label_1035_faults(name.lower() if is_kind else name)]
        if name and texts:
            hint = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield FieldError(INVALID, f"{at}.{field}", name, hint + ",".join(texts))
    for field in ("shortNames", "categories"):
        for i, name in enumerate(names.get(field) or ()):
            texts = [*name_rules.label_1035_faults(name)]
            if texts:
                yield FieldError(INVALID, f"{at}.{field}[{i}]", name, ",".join(texts))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield FieldError(INVALID, f"{at}.listKind", names["listKind"], text)
