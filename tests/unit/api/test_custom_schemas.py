"""Schemas of CustomResourceDefinitions that are refused: apiextensions-apiserver
pkg/apis/apiextensions/validation and pkg/apiserver/schema say the same."""

import time
from typing import Any, Final

import pytest

from tests.unit.api.custom_cluster import DEFINITIONS, CustomCluster, Object, definition, version

AT: Final = "spec.validation.openAPIV3Schema"
TEXT: Final = {"type": "string"}
INT: Final = {"type": "integer"}
OBJECT: Final = {"type": "object"}
LIST_TYPE: Final = "x-kubernetes-list-type"
KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
EITHER: Final = "x-kubernetes-int-or-string"
RULES: Final = "x-kubernetes-validations"
FORBIDDEN: Final = "Forbidden: "
REQUIRED: Final = "Required value: "


def struct(*required: str, **properties: Object) -> Object:
    return {**OBJECT, "properties": properties, **({"required": [*required]} if required else {})}


def array(items: Object | None = None, **more: Any) -> Object:
    return {"type": "array", **({} if items is None else {"items": items}), **more}


def of_map(items: Object, *keys: str) -> Object:
    return array(items, **{LIST_TYPE: "map", KEYS: [*keys]})


def resource(**properties: Object) -> Object:
    return {**struct(**properties), EMBEDDED: True}


@pytest.fixture
def cluster() -> CustomCluster:
    return CustomCluster()


def define(cluster: CustomCluster, *versions: Object, **spec: Any) -> list[tuple[str, str]]:
    """Creates a definition, or returns field and message of what is wrong with it."""
    code, body = cluster.ask("POST", DEFINITIONS, definition(versions=[*versions], **spec))
    if code == 201:
        return []
    return [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]


def wrong(cluster: CustomCluster, **properties: Object) -> list[tuple[str, str]]:
    found = define(cluster, version("v1", properties))
    return [(field.removeprefix(f"{AT}.properties[n]").lstrip("."), text) for field, text in found]


ONE_TYPE: Final = "additionalProperties and properties are mutual exclusive"
STRUCTURAL: Final = "must be empty to be structural"
SCALAR: Final = "must be a scalar type if parent array's x-kubernetes-list-type is map"
IN_KEYS: Final = f"this property is in {KEYS}, so it"


@pytest.mark.parametrize(
    ("schema", "field", "text"),
    [
        (array(TEXT, uniqueItems=True), "uniqueItems",
         FORBIDDEN + "uniqueItems cannot be set to true since the runtime complexity becomes "
         "quadratic"),
        ({"type": "foo"}, "type",
         'Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", '
         '"object", "string"'),
        ({**struct(a=TEXT), "additionalProperties": TEXT}, "additionalProperties",
         FORBIDDEN + ONE_TYPE),
        ({**struct(a=TEXT), "additionalProperties": False}, "additionalProperties",
         FORBIDDEN + ONE_TYPE),
        ({**OBJECT, KEEPS: False}, KEEPS, "Invalid value: false: must be true or undefined"),
        ({**OBJECT, "definitions": {"a": TEXT}}, "definitions",
         FORBIDDEN + "definitions is not supported"),
        ({**TEXT, "$ref": "a"}, "$ref", FORBIDDEN + "$ref is not supported"),
        (array([TEXT]), "items", FORBIDDEN + "items must be a schema object and not an array"),
        (array(), "items", REQUIRED + "must be specified"),
        (array({}), "items.type", REQUIRED + "must not be empty for specified array items"),
        ({}, "type", REQUIRED + "must not be empty for specified object fields"),
        # The kinds of lists and maps.
        (array(TEXT, **{LIST_TYPE: "foo"}), LIST_TYPE,
         'Unsupported value: "foo": supported values: "atomic", "set", "map"'),
        ({**TEXT, LIST_TYPE: "set"}, "type",
         'Invalid value: "string": must be array if x-kubernetes-list-type is specified'),
        ({**OBJECT, MAP_TYPE: "foo"}, MAP_TYPE,
         'Unsupported value: "foo": supported values: "atomic", "granular"'),
        ({**TEXT, MAP_TYPE: "atomic"}, "type",
         'Invalid value: "string": must be object if x-kubernetes-map-type is specified'),
        (array(struct(a=TEXT), **{LIST_TYPE: "set"}), f"items.{MAP_TYPE}",
         "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"),
        (array(array(TEXT, **{LIST_TYPE: "set"}), **{LIST_TYPE: "set"}), f"items.{LIST_TYPE}",
         'Invalid value: "set": must be atomic as item of a list with x-kubernetes-list-type=set'),
        (array(TEXT, **{LIST_TYPE: "set", KEYS: ["a"]}), LIST_TYPE,
         'Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty'),
        (of_map(struct(a=TEXT)), KEYS,
         REQUIRED + "must not be empty if x-kubernetes-list-type is map"),
        (of_map(struct(a=TEXT), "a"), "items.properties[a].default",
         REQUIRED + f"{IN_KEYS} must have a default or be a required property"),
        (of_map(struct(a=TEXT), "b"), KEYS,
         'Invalid value: ["b"]: entries must all be names of item properties'),
        (of_map(struct("a", a=TEXT), "a", "a"), KEYS,
         'Invalid value: ["a","a"]: must not contain duplicate entries'),
        (of_map(struct("a", a=OBJECT), "a"), "items.properties[a].type",
         f'Invalid value: "object": {SCALAR}'),
        (of_map(struct("a", a={**TEXT, "nullable": True}), "a"), "items.properties[a].nullable",
         FORBIDDEN + f"{IN_KEYS} cannot be nullable"),
        (of_map({**struct("a", a=TEXT), "nullable": True}, "a"), "items.nullable",
         FORBIDDEN + "cannot be nullable when x-kubernetes-list-type is map"),
        (of_map(TEXT, "a"), "items.type",
         "Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is "
         "map"),
        # What constrains values says nothing of types.
        ({**TEXT, "oneOf": [{"type": "string"}]}, "oneOf[0].type", FORBIDDEN + STRUCTURAL),
        ({EITHER: True, "anyOf": [{"pattern": "a"}, {"type": "string"}]}, "anyOf[1].type",
         FORBIDDEN + STRUCTURAL),
        ({**TEXT, "not": {"default": "a"}}, "not.default",
         FORBIDDEN + "must be undefined to be structural"),
        ({**INT, "allOf": [{RULES: [{"rule": "self > 1"}]}]}, f"allOf[0].{RULES}",
         FORBIDDEN + STRUCTURAL),
        ({**struct(a=TEXT), "anyOf": [{"properties": {"metadata": {}}}]},
         "anyOf[0].properties[metadata]", FORBIDDEN + "must not be specified in a nested context"),
        # Resources in resources.
        ({EMBEDDED: True, KEEPS: True}, "type",
         REQUIRED + "must be object if x-kubernetes-embedded-resource is true"),
        ({**OBJECT, EMBEDDED: True}, "properties",
         REQUIRED + "must not be empty if x-kubernetes-embedded-resource is true without "
         "x-kubernetes-preserve-unknown-fields"),
        ({**OBJECT, EMBEDDED: True, KEEPS: True, "additionalProperties": TEXT},
         "additionalProperties",
         FORBIDDEN + "must not be used if x-kubernetes-embedded-resource is set"),
        (resource(kind=INT), "properties[kind].type",
         'Invalid value: "integer": must be string'),
        (resource(metadata=struct(labels={**OBJECT, "additionalProperties": {
            **TEXT, "default": "a"}})),
         "properties[metadata].properties[labels].additionalProperties.default",
         FORBIDDEN + "must not be set inside additionalProperties applying to object metadata"),
        ({KEEPS: True, EITHER: True}, KEEPS,
         "Invalid value: true: must be false if x-kubernetes-int-or-string is true"),
        # Defaults.
        ({**INT, "default": "x"}, "default",
         'Invalid value: "string":  in body must be of type integer: "string"'),
        ({**struct(a=INT), "default": {"a": "x"}}, "default.a",
         'Invalid value: "string": a in body must be of type integer: "string"'),
        ({**struct(a=INT), "default": {"b": 1}}, "default",
         'Invalid value: {"b":1}: must not have unknown fields'),
        ({**struct("a", a=INT), "default": {}}, "default.a", "Required value"),
        (array({**TEXT, "enum": ["a"], "default": "b"}), "items.default",
         'Unsupported value: "b": supported values: "a"'),
        ({**INT, "default": 1, RULES: [{"rule": "self > 1"}]}, "default",
         "Invalid value: 1: failed rule: self > 1"),
        ({**INT, "default": 1, RULES: [{"rule": "self == oldSelf.orValue(2)",
                                        "optionalOldSelf": True}]}, "default",
         "Invalid value: 1: failed rule: self == oldSelf.orValue(2)"),
        ({**resource(spec=OBJECT), "default": {"kind": "Pod"}}, "default.apiVersion",
         "Required value"),
        (resource(metadata=struct(name={**TEXT, "default": "a/b"})),
         "properties[metadata].properties[name].default",
         "Invalid value: \"a/b\": must result in valid metadata: metadata.name: Invalid value: "
         "\"a/b\": may not contain '/'"),
    ],
)  # fmt: skip
def test_a_schema_that_means_nothing_is_refused(
    cluster: CustomCluster, schema: Object, field: str, text: str
) -> None:
    assert [(field, text)] == wrong(cluster, n=schema)


@pytest.mark.parametrize(
    "schema",
    [
        {**OBJECT, "additionalProperties": False},
        {**struct(a=TEXT), "additionalProperties": True},
        {EITHER: True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        {EITHER: True, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
        array({**struct(a=TEXT), MAP_TYPE: "atomic"}, **{LIST_TYPE: "set"}),
        of_map(struct(a={**TEXT, "default": "a"}), "a"),
        {**struct(a=TEXT), "anyOf": [{"properties": {"b": {"minLength": 1}}}]},
        {**TEXT, "nullable": True, "default": None},
        {**resource(spec=OBJECT), KEEPS: True,
         "default": {"kind": "Pod", "apiVersion": "v1", "metadata": {"unknown": 1}}},
    ],
)  # fmt: skip
def test_a_schema_that_looks_wrong_is_accepted(cluster: CustomCluster, schema: Object) -> None:
    assert [] == wrong(cluster, n=schema)


@pytest.mark.parametrize(
    ("schema", "field", "text"),
    [
        ({"type": "string"}, "type", 'Invalid value: "string": must be object at the root'),
        ({}, "type", REQUIRED + "must not be empty at the root"),
        ({**OBJECT, "additionalProperties": TEXT}, "additionalProperties",
         FORBIDDEN + "must not be used at the root"),
        ({**OBJECT, "nullable": True}, "nullable",
         FORBIDDEN + "nullable cannot be true at the root"),
        (struct(metadata=struct(labels=OBJECT)), "properties[metadata]",
         FORBIDDEN + "must not specify anything other than name and generateName, but metadata is "
         "implicitly specified"),
        (struct(metadata=struct(name={**TEXT, "default": "a"})),
         "properties[metadata].properties[name].default",
         FORBIDDEN + "must not be set in top-level metadata"),
        ({**OBJECT, "anyOf": [{"properties": {"a": {"minimum": 1}}}]}, "properties[a]",
         REQUIRED + f"because it is defined in {AT}.anyOf[0].properties[a]"),
    ],
)  # fmt: skip
def test_a_root_that_is_no_resource_is_refused(
    cluster: CustomCluster, schema: Object, field: str, text: str
) -> None:
    found = {**version("v1", {}), "schema": {"openAPIV3Schema": schema}}
    assert [(f"{AT}.{field}", text)] == define(cluster, found)


def test_a_root_with_a_status_has_few_fields(cluster: CustomCluster) -> None:
    found = version("v1", {"a": TEXT}, minProperties=1)
    ((field, text),) = define(cluster, {**found, "subresources": {"status": {}}})
    assert AT == field
    assert text.startswith('Invalid value: {"ID":"","Schema":"","Ref":null,"Description":"",')
    assert '"MinProperties":1,"Required":null,' in text
    assert "] fields are allowed at the root of the schema if the status subresource is" in text


def test_rules_are_compiled_where_the_schemas_below_are_right(cluster: CustomCluster) -> None:
    bad = {RULES: [{"rule": "self.z"}]}
    schema = struct(a={**struct(b={**array(TEXT), "uniqueItems": True}), **bad}, c={**INT, **bad})
    fields = [field for field, _ in wrong(cluster, n={**schema, **bad})]
    rule = f"{RULES}[0].rule"
    assert ["properties[a].properties[b].uniqueItems", f"properties[c].{rule}"] == fields


def test_the_size_of_a_schema_is_bounded(cluster: CustomCluster) -> None:
    deep: Object = INT
    for _ in range(200):
        deep = {**INT, "allOf": [deep]}
    long: Object = {**OBJECT, "properties": {f"a{i}": {} for i in range(20_000)}}
    for _ in range(50):
        long = struct(**{"x" * 10_000: long})
    began = time.process_time()
    for schema, text in (
        (deep, "must not be nested more than 60 levels deep"),
        (long, "must not have fields with paths of more than 10000 characters"),
        ({"anyOf": [{}] * 100_000}, "must not have more than 100000 parts"),
        (of_map(OBJECT, *["a"] * 100_000), "must have at most 100 items"),
        (struct(**{f"a{i}": {} for i in range(50_000)}), "must not be empty for specified object"),
    ):
        found = wrong(cluster, n=schema)
        assert text in found[0][1]
        assert len(found) <= 1000
    assert time.process_time() - began < 30


def test_a_rule_that_a_stored_schema_breaks_may_be_broken_once_more(cluster: CustomCluster) -> None:
    """As of a definition that an earlier server has taken."""
    found = cluster.define(definition(versions=[version("v1", {"a": TEXT})]))
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["n"] = of_map(struct(a=TEXT), "a")
    schema["properties"]["d"] = {**struct(a=INT), "default": {"b": 1}}
    path = f"{DEFINITIONS}/things.example.com"
    assert 422 == cluster.ask("PUT", path, found)[0]
    store = cluster.api.context.store
    collection = store.collection(("apiextensions.k8s.io", "customresourcedefinitions"))
    store.put(collection, "things.example.com", found)
    found = cluster.get(path)
    found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["b"] = INT
    assert 200 == cluster.ask("PUT", path, found)[0]


def test_what_all_versions_have_in_common_is_named_once(cluster: CustomCluster) -> None:
    """v1/conversion.go: the versions of a definition with one schema are a schema of the whole."""
    column = {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]}
    bad, good = version("v1", {"a": {}}), version("v1", {"a": TEXT})
    twin: Object = {"name": "v2", "storage": False}
    columns, types = "additionalPrinterColumns[0].type", "openAPIV3Schema.properties[a].type"
    for versions, fields in (
        ([bad], [f"spec.validation.{types}"]),
        ([bad, {**bad, **twin}], [f"spec.validation.{types}"]),
        ([bad, {**good, **twin}], [f"spec.versions[0].schema.{types}"]),
        ([{**good, **column}], [f"spec.{columns}"]),
        ([{**good, **column}, {**good, **twin, **column}], [f"spec.{columns}"]),
        ([{**good, **column}, {**good, **twin}], [f"spec.versions[0].{columns}"]),
    ):
        assert fields == [field for field, _ in define(cluster, *versions)]


def test_selectable_fields_go_with_the_schema(cluster: CustomCluster) -> None:
    """Upstream's oddity: fields of a version alone need a schema of the version alone."""
    one = {**version("v1", {"a": TEXT}), "selectableFields": [{"jsonPath": ".a"}]}
    text = "may only be set when `version.schema.openAPIV3Schema` is not included"
    other = version("v2", {"a": TEXT}, storage=False)
    assert [("spec.versions[0].selectableFields", f'Invalid value: "": {text}')] == define(
        cluster, one, other
    )
    assert [] == define(cluster, one, {**other, "selectableFields": one["selectableFields"]})


def test_a_warning_of_a_deprecated_version_is_one_line(cluster: CustomCluster) -> None:
    at, plain = "spec.versions[0].deprecationWarning", version("v1", {})
    for more, text in (
        ({"deprecationWarning": "x"}, "can only be set for deprecated versions"),
        ({"deprecated": True, "deprecationWarning": ""}, "must not be an empty string"),
        ({"deprecated": True, "deprecationWarning": "é\n"},
         "must only contain printable UTF-8 characters; non-printable character found at index 2"),
        ({"deprecated": True, "deprecationWarning": "x" * 257}, "must be <= 256 characters long"),
    ):  # fmt: skip
        ((field, found),) = define(cluster, {**plain, **more})
        assert at == field
        assert found.endswith(f": {text}")
