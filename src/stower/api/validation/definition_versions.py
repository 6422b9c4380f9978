"""Validates the versions of CustomResourceDefinitions: schemas, subresources, printer columns and
selectable fields.

What all versions have in common is validated once, under the path of the version of the API that
had it at the top level. Source: apiextensions-apiserver
pkg/apis/apiextensions/validation/validation.go and v1/conversion.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from stower.api.custom_rules import BadPathError, field_path
from stower.api.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_MANY,
    FieldError,
)
from stower.api.schema import Type
from stower.api.validation.go_values import go_value, go_values
from stower.api.validation.openapi_schemas import Lenience
from stower.api.validation.schema_defaults import (
    default_faults,
    default_rule_faults,
    has_unknown_fields,
)
from stower.api.validation.schema_rules import part_faults
from stower.api.validation.structural_schemas import (
    size_faults,
    structural_faults,
    unsupported_text,
)
from stower.model import names as name_rules

Object = dict[str, Any]
SELECTABLE_MAX: Final = 8
COLUMN_TYPES: Final = "boolean,date,integer,number,string"
COLUMN_FORMATS: Final = "byte,date,date-time,double,float,int32,int64,password"
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
NOT_SELECTABLE: Final = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings "
    "with formats are allowed."
)


WARNING_BYTES_MAX: Final = 256
_LIFTED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_NOT_PRINTABLE: Final = "must only contain printable UTF-8 characters; non-printable character"
_NO_SCHEMA: Final = {
    "schema": "may only be set when `version.schema.openAPIV3Schema` is not included",
    "validation": "may only be set when validations.schema is included",
}
# Where status is a subresource, as its schema is used by itself.
ROOT_FIELDS: Final = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems",
    "multipleOf", "required", "items", "properties", "externalDocs", "example",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
)  # fmt: skip
_NO_OBJECT: Final = (
    'only "object" is allowed as the type at the root of the schema if the status subresource is '
    "enabled"
)
_NOT_AT_ROOT: Final = (
    "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum "
    "MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items "
    "Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at "
    "the root of the schema if the status subresource is enabled"
)


class _Before(NamedTuple):
    """What was stored before: the schemas by the name of the version, and the rules that they break
    already. `meta`: the type of metadata."""

    meta: Type
    schemas: dict[str, Object]
    lenience: Lenience
    allows_unknown: bool


def _before(old: Object | None, meta: Type) -> _Before:
    versions = old["spec"].get("versions") or () if old is not None else ()
    schemas = {version["name"]: _schema_of(version) or {} for version in versions}
    allows_unknown = any(map(has_unknown_fields, schemas.values()))
    return _Before(meta, schemas, Lenience.of(schemas.values()), allows_unknown)


def _schema_of(version: Object) -> Object | None:
    found: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return found


def _has_status(version: Object) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def version_faults(
    item: Object, old: Object | None, meta: Type
) -> tuple[list[FieldError], list[FieldError]]:
    """Returns what is wrong with each version of a definition by itself, and with what all versions
    have in common. `old`: the definition as it was; `meta`: the type of metadata."""
    versions: list[Object] = item["spec"].get("versions") or []
    before, first = _before(old, meta), versions[0] if versions else {}
    common = {
        name: first.get(name)
        for name in _LIFTED
        if all((version.get(name) or None) == (first.get(name) or None) for version in versions)
    }
    rests = [{k: v for k, v in version.items() if k not in common} for version in versions]
    own: list[FieldError] = []
    for i, version in enumerate(versions):
        if _schema_of(version) is None:
            own.append(FieldError(REQUIRED, f"spec.versions[{i}].schema.openAPIV3Schema"))
    for i, version in enumerate(versions):
        at, name = f"spec.versions[{i}]", version.get("name") or ""
        texts = [*name_rules.label_1035_faults(name)]
        if texts:
            own.append(FieldError(INVALID, f"{at}.name", name, ",".join(texts)))
        own += _deprecation_faults(version, f"{at}.deprecationWarning")
        own += _part_faults(rests[i], at, "schema", _has_status(version), before)
    own += _name_faults(versions, rests)
    whole = {"name": first.get("name"), **common}
    has_status = any(map(_has_status, versions))
    return own, list(_part_faults(whole, "spec", "validation", has_status, before))


def _name_faults(versions: list[Object], rests: list[Object]) -> Iterator[FieldError]:
    """`rests`: the versions without what all have in common."""
    names = [version.get("name") or "" for version in versions]
    shown = go_values("CustomResourceDefinitionVersion", rests) or []
    if len(set(names)) < len(names):
        yield FieldError(INVALID, "spec.versions", shown, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield FieldError(INVALID, "spec.versions", shown, text)
    texts = [*name_rules.label_1035_faults(names[0])] if names and names[0] else []
    if texts:
        yield FieldError(INVALID, "spec.version", names[0], ",".join(texts))


def _deprecation_faults(version: Object, at: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield FieldError(INVALID, at, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > WARNING_BYTES_MAX:
        yield FieldError(INVALID, at, text, f"must be <= {WARNING_BYTES_MAX} characters long")
    if not text:
        yield FieldError(INVALID, at, text, "must not be an empty string")
    for i, character in enumerate(text):
        if not character.isprintable():
            index = len(text[:i].encode())
            yield FieldError(INVALID, at, text, f"{_NOT_PRINTABLE} found at index {index}")
            return


def _part_faults(
    version: Object, at: str, word: str, has_status: bool, before: _Before
) -> Iterator[FieldError]:
    """Yields what is wrong with the schema and what goes with it. `word`: what holds the schema."""
    schema = _schema_of(version)
    if schema is not None:
        is_known = before.schemas.get(version.get("name") or "") == schema
        where = f"{at}.{word}.openAPIV3Schema"
        yield from _schema_faults(schema, where, has_status, before, is_known)
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale_faults(scale, f"{at}.subresources.scale")
    columns = version.get("additionalPrinterColumns") or []
    yield from _column_faults(columns, f"{at}.additionalPrinterColumns")
    paths = [field.get("jsonPath") or "" for field in version.get("selectableFields") or ()]
    if paths and schema is None:
        yield FieldError(INVALID, f"{at}.selectableFields", "", _NO_SCHEMA[word])
    elif paths and schema is not None and unsupported_text(schema) is None:
        yield from _selectable_faults(paths, schema, f"{at}.selectableFields")


def _schema_faults(
    schema: Object, at: str, has_status: bool, before: _Before, is_known: bool
) -> list[FieldError]:
    """Returns what is wrong with the schema of a resource. `is_known`: whether it is as before."""
    found = [*_root_faults(schema, at, has_status)]
    if too_large := size_faults(schema, at):
        return found + too_large
    text = unsupported_text(schema)
    wrong: list[FieldError] = []
    if text is None:
        wrong = structural_faults(schema, at)
        wrong = wrong or default_faults(schema, at, before.meta, before.allows_unknown)
    compiles = None if wrong or text is not None else is_known
    found += wrong + part_faults(schema, at, before.lenience, compiles)
    if not found and text is not None:
        return [FieldError(INVALID, at, "", text)]
    return found or default_rule_faults(schema, at)


def _root_faults(schema: Object, at: str, has_status: bool) -> Iterator[FieldError]:
    form = schema.get("type") or ""
    if has_status and form != "object":
        yield FieldError(INVALID, f"{at}.type", form, _NO_OBJECT)
    elif has_status and any(
        value not in (None, False, "") and name not in ROOT_FIELDS for name, value in schema.items()
    ):
        yield FieldError(INVALID, at, go_value("JSONSchemaProps", schema), _NOT_AT_ROOT)
    if schema.get("nullable"):
        yield FieldError(FORBIDDEN, f"{at}.nullable", None, "nullable cannot be true at the root")


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
