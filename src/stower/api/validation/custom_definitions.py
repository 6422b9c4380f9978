"""Validates CustomResourceDefinitions.

Source: apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.custom_rules import BadPathError, field_path
from stower.api.custom_schema import pattern_faults
from stower.api.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_MANY,
    FieldError,
    unsupported,
)
from stower.api.validation.schema_rules import rule_faults
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
DEPTH_MAX: Final = 60
SELECTABLE_MAX: Final = 8
COLUMN_TYPES: Final = "boolean,date,integer,number,string"
COLUMN_FORMATS: Final = "byte,date,date-time,double,float,int32,int64,password"
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
NOT_SELECTABLE: Final = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings "
    "with formats are allowed."
)


def new_faults(item: Object) -> Iterator[FieldError]:
    """What is wrong with a new definition."""
    yield from _faults(item, None)
    yield from _approval_faults(item, None)
    if item["spec"].get("preserveUnknownFields"):
        yield FieldError(INVALID, "spec.preserveUnknownFields", True, KEEPS_UNKNOWN)


def _faults(item: Object, old: Object | None) -> Iterator[FieldError]:
    spec = item["spec"]
    names = spec.get("names") or {}
    group = spec.get("group", "")
    wanted = f"{names.get('plural', '')}.{group}"
    if item["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield FieldError(INVALID, "metadata.name", item["metadata"].get("name", ""), text)
    if not group:
        yield FieldError(REQUIRED, "spec.group")
    elif "." not in group:
        text = "should be a domain with at least one dot"
        yield FieldError(INVALID, "spec.group", group, text)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield FieldError(REQUIRED, f"spec.names.{field}")
    yield from _name_faults(names, "spec.names")
    yield from _version_faults(spec.get("versions") or [], _schemas(old))
    yield from _conversion_faults(spec)
    yield from _stored_version_faults(item)


def update_faults(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a changed definition."""
    return list(_update_faults(new, old))


def _update_faults(new: Object, old: Object) -> Iterator[FieldError]:
    yield from _faults(new, old)
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


def _schemas(item: Object | None) -> dict[str, Object]:
    versions = item["spec"].get("versions") or () if item is not None else ()
    schemas = {v["name"]: v.get("schema") or {} for v in versions}
    return {name: schema.get("openAPIV3Schema") or {} for name, schema in schemas.items()}


def _version_faults(versions: list[Object], known: dict[str, Object]) -> Iterator[FieldError]:
    """`known`: the schemas that were stored before, by the name of the version."""
    names = [version.get("name") or "" for version in versions]
    for i, version in enumerate(versions):
        at = f"spec.versions[{i}].name"
        for text in name_rules.label_1035_faults(names[i]):
            yield FieldError(INVALID, at, names[i], text)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        at = f"spec.versions[{i}].schema.openAPIV3Schema"
        if schema is None:
            yield FieldError(REQUIRED, at)
        else:
            structural = list(_structural(schema, at))
            yield from structural
            if not structural:  # which bounds the depth
                yield from pattern_faults(schema, at)
                yield from rule_faults(schema, at, known.get(names[i]) == schema)
            scale = (version.get("subresources") or {}).get("scale")
            if scale is not None:
                yield from _scale_faults(scale, f"spec.versions[{i}].subresources.scale")
            columns = version.get("additionalPrinterColumns") or []
            yield from _column_faults(columns, f"spec.versions[{i}].additionalPrinterColumns")
            paths = [field.get("jsonPath") or "" for field in version.get("selectableFields") or ()]
            yield from _selectable_faults(paths, schema, f"spec.versions[{i}].selectableFields")
    if len(set(names)) < len(names):
        yield FieldError(INVALID, "spec.versions", names, "must contain unique version names")
    if sum(bool(v.get("storage")) for v in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield FieldError(INVALID, "spec.versions", names, text)


def _selectable_faults(paths: list[str], schema: Object, at: str) -> Iterator[FieldError]:
    for i, path in enumerate(paths):
        where = f"{at}[{i}].jsonPath"
        if not path:
            yield FieldError(REQUIRED, where)
            continue
        try:
            if "[" in path:
                raise BadPathError("array notation is not allowed")
            field_path(path, schema)
        except BadPathError as error:
            yield FieldError(INVALID, where, path, f"is an invalid path: {error}")
            continue
        inner = schema
        for name in path[1:].split("."):
            inner = (inner.get("properties") or {}).get(name) or inner["additionalProperties"]
        if path.startswith(".metadata"):
            yield FieldError(INVALID, where, path, "must not point to fields in metadata")
        if inner.get("type") not in SELECTABLE_TYPES:
            yield FieldError(INVALID, where, path, NOT_SELECTABLE)
        if path in paths[:i]:
            yield FieldError(DUPLICATE, where, path)
    if len(set(paths)) > SELECTABLE_MAX:
        text = f"must have at most {SELECTABLE_MAX} items"
        yield FieldError(TOO_MANY, at, len(set(paths)), text)


def _conversion_faults(spec: Object) -> Iterator[FieldError]:
    conversion = spec.get("conversion") or {}
    at, strategy = "spec.conversion", conversion.get("strategy", "")
    if not strategy:
        yield FieldError(REQUIRED, f"{at}.strategy")
    elif strategy not in (NONE, WEBHOOK):
        yield unsupported(f"{at}.strategy", strategy, (NONE, WEBHOOK))
    webhook = conversion.get("webhook")
    if strategy != WEBHOOK:
        if webhook is not None:
            text = "should not be set when strategy is not set to Webhook"
            yield FieldError(FORBIDDEN, f"{at}.webhookClientConfig", None, text)
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
                text = f"service {field} is required"
                yield FieldError(REQUIRED, f"{at}.webhookClientConfig.service.{field}", "", text)
    yield from _review_version_faults((webhook or {}).get("conversionReviewVersions") or [], at)


def _review_version_faults(versions: list[str], at: str) -> Iterator[FieldError]:
    at = f"{at}.conversionReviewVersions"
    if not versions:
        yield FieldError(REQUIRED, at)
    for i, version in enumerate(versions):
        if version in versions[:i]:
            yield FieldError(INVALID, f"{at}[{i}]", version, "duplicate version")
    if versions and not set(REVIEW_VERSIONS).intersection(versions):
        text = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        yield FieldError(INVALID, at, versions, text)


def _stored_version_faults(item: Object) -> Iterator[FieldError]:
    stored = (item.get("status") or {}).get("storedVersions") or []
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


def _column_faults(columns: list[Object], at: str) -> Iterator[FieldError]:
    for i, column in enumerate(columns):
        where = f"{at}[{i}]"
        if not column.get("name"):
            yield FieldError(REQUIRED, f"{where}.name")
        kind, form = column.get("type"), column.get("format")
        if not kind:
            yield FieldError(REQUIRED, f"{where}.type", "", f"must be one of {COLUMN_TYPES}")
        elif kind not in COLUMN_TYPES.split(","):
            yield FieldError(INVALID, f"{where}.type", kind, f"must be one of {COLUMN_TYPES}")
        if form and form not in COLUMN_FORMATS.split(","):
            yield FieldError(INVALID, f"{where}.format", form, f"must be one of {COLUMN_FORMATS}")
        if not column.get("jsonPath"):
            yield FieldError(REQUIRED, f"{where}.JSONPath")
        else:
            yield from _path_faults(column["jsonPath"], f"{where}.JSONPath", ())


def _scale_faults(scale: Object, at: str) -> Iterator[FieldError]:
    for field, roots, is_required in (
        ("specReplicasPath", (".spec",), True),
        ("statusReplicasPath", (".status",), True),
        ("labelSelectorPath", (".spec", ".status"), False),
    ):
        path = scale.get(field)
        if path:
            yield from _path_faults(path, f"{at}.{field}", roots)
        elif is_required:
            yield FieldError(REQUIRED, f"{at}.{field}")


def _path_faults(path: str, at: str, roots: tuple[str, ...]) -> Iterator[FieldError]:
    """What is wrong with a simple JSONPath, which is below one of the roots, if there are any."""
    if not path.startswith("."):
        yield FieldError(INVALID, at, path, "must be a simple json path starting with .")
    elif roots and not path.startswith(tuple(f"{root}." for root in roots)):
        either = f"either {roots[0]} or {roots[-1]}" if len(roots) > 1 else roots[0]
        yield FieldError(INVALID, at, path, f"should be a json path under {either}")


def _structural(schema: Object, path: str, depth: int = 0) -> Iterator[FieldError]:
    """Every part of a schema has a type, unless it keeps anything."""
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if not schema.get("type") and not free:
        text = "must not be empty for specified object fields"
        yield FieldError(REQUIRED, f"{path}.type", "", text)
    if schema.get("type") == "array" and schema.get("items") is None:
        yield FieldError(REQUIRED, f"{path}.items", "", "must be specified")
    if depth > DEPTH_MAX:
        text = f"must not be nested more than {DEPTH_MAX} levels deep"
        yield FieldError(FORBIDDEN, path, None, text)
        return
    for name, inner in (schema.get("properties") or {}).items():
        if depth == 0 and name in ("metadata", "kind", "apiVersion"):
            continue
        yield from _structural(inner, f"{path}.properties[{name}]", depth + 1)
    for field in ("items", "additionalProperties"):
        inner = schema.get(field)
        if isinstance(inner, dict):
            yield from _structural(inner, f"{path}.{field}", depth + 1)
        elif inner is not None and not (field == "additionalProperties" and inner is True):
            yield FieldError(FORBIDDEN, f"{path}.{field}", None, f"{field} must be a schema object")
