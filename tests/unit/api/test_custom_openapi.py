"""OpenAPI documents of custom resources: what kubectl explains and checks by."""

from typing import Any, Final

import pytest

from tests.unit.api.custom_cluster import CustomCluster, Object, definition, version

NAME: Final = "com.example.v1.Thing"
TEXT: Final = {"type": "string"}
KEEPS: Final = {"x-kubernetes-preserve-unknown-fields": True}
ADDED: Final = ("apiVersion", "kind", "metadata")


@pytest.fixture
def cluster() -> CustomCluster:
    return CustomCluster()


def v2(cluster: CustomCluster) -> Any:
    return cluster.get("/openapi/v2")["definitions"]


def v3(cluster: CustomCluster) -> Any:
    return cluster.get("/openapi/v3/apis/example.com/v1")["components"]["schemas"]


def own(schema: Object) -> Object:
    """Returns the schema without what the server adds."""
    made = {k: v for k, v in schema.items() if not k.startswith("x-kubernetes-group")}
    kept = {k: v for k, v in made.pop("properties", {}).items() if k not in ADDED}
    return {**made, "properties": kept} if kept else made


def test_a_schema_is_published_as_it_is(cluster: CustomCluster) -> None:
    spec = {"type": "object", "description": "Of it.", "properties": {"a": TEXT}}
    cluster.define(definition(versions=[version("v1", {"spec": spec}, description="A thing.")]))
    expected = {"type": "object", "description": "A thing.", "properties": {"spec": spec}}
    for schema in (v2(cluster)[NAME], v3(cluster)[NAME]):
        assert expected == own(schema)
        assert [{"group": "example.com", "version": "v1", "kind": "Thing"}] == schema[
            "x-kubernetes-group-version-kind"
        ]
        assert "APIVersion defines" in schema["properties"]["apiVersion"]["description"]
        assert "Standard object's metadata" in schema["properties"]["metadata"]["description"]


def test_the_fields_of_metadata_have_descriptions(cluster: CustomCluster) -> None:
    cluster.define(definition())
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    for schemas in (v2(cluster), v3(cluster)):
        fields = schemas[name]["properties"]
        assert [] == [field for field, schema in fields.items() if not schema.get("description")]
        assert fields["creationTimestamp"]["description"].startswith("CreationTimestamp is a time")


def test_version_2_leaves_out_what_kubectl_would_misread(cluster: CustomCluster) -> None:
    properties: Object = {
        "free": {"type": "object", "properties": {"a": TEXT}, **KEEPS},
        "maybe": {"type": "object", "properties": {"a": TEXT}, "nullable": True},
        "either": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        },
    }
    cluster.define(definition(versions=[version("v1", properties, required=["maybe", "either"])]))
    assert {
        "type": "object",
        "required": ["either"],
        "properties": {"free": KEEPS, "maybe": {}, "either": {"x-kubernetes-int-or-string": True}},
    } == own(v2(cluster)[NAME])
    assert properties == own(v3(cluster)[NAME])["properties"]


def test_an_object_that_keeps_all_is_published_without_fields(cluster: CustomCluster) -> None:
    cluster.define(definition(versions=[version("v1", {"a": TEXT}, **KEEPS)]))
    found = v2(cluster)[NAME]
    assert {"type": "object"} == {k: v for k, v in found.items() if "group" not in k}
    assert {"a": TEXT} == own(v3(cluster)[NAME])["properties"]


def test_an_embedded_resource_has_a_kind_and_metadata(cluster: CustomCluster) -> None:
    embedded: Object = {"type": "object", "x-kubernetes-embedded-resource": True}
    listed = {"type": "array", "items": {**embedded, "properties": {"spec": {"type": "object"}}}}
    cluster.define(definition(versions=[version("v1", {"l": listed})]))
    found = v2(cluster)[NAME]["properties"]["l"]["items"]
    assert {*ADDED, "spec"} == found["properties"].keys()
    assert ["kind", "apiVersion"] == found["required"]


def test_versions_come_and_go_with_the_definition(cluster: CustomCluster) -> None:
    both = [version("v1", {}), version("v2", {}, storage=False)]
    cluster.define(definition(versions=both))
    assert {NAME, "com.example.v2.Thing"} <= v2(cluster).keys()
    cluster.redefine("things.example.com", versions=[both[0], {**both[1], "name": "v3"}])
    assert "com.example.v2.Thing" not in v2(cluster)
    assert "com.example.v3.Thing" in v2(cluster)
    cluster.redefine("things.example.com", versions=[both[0], {**both[1], "served": False}])
    assert [NAME] == [name for name in v2(cluster) if name.startswith("com.example.")]
