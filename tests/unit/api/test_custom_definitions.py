"""CustomResourceDefinitions: names, versions, conversion and what is stored."""

from typing import Any, Final

import pytest

from tests.unit.api.custom_cluster import DEFINITIONS, CustomCluster, Object, definition, version

THINGS: Final = "/apis/example.com/v1/things"
OLD_THINGS: Final = "/apis/example.com/v1beta1/things"
WEBHOOK: Final[Object] = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {"service": {"name": "w", "namespace": "n"}},
        "conversionReviewVersions": ["v1"],
    },
}


@pytest.fixture
def cluster() -> CustomCluster:
    return CustomCluster()


def conditions(item: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in item["status"]["conditions"]}


def two_versions(stored: Object, other: Object, **spec: Any) -> Object:
    versions = [version("v1beta1", other, storage=False), version("v1", stored)]
    return definition(versions=versions, **spec)


def test_versions_that_differ_in_name_are_relabelled(cluster: CustomCluster) -> None:
    cluster.define(two_versions({"a": {"type": "string"}}, {"a": {"type": "string"}}))
    cluster.make(OLD_THINGS, {"metadata": {"name": "t"}, "a": "x"})
    for path, api_version in ((THINGS, "example.com/v1"), (OLD_THINGS, "example.com/v1beta1")):
        found = cluster.get(f"{path}/t")
        assert (api_version, "x") == (found["apiVersion"], found["a"])


def test_a_version_shows_its_own_fields_with_the_defaults_of_the_stored_one(
    cluster: CustomCluster,
) -> None:
    """Upstream fills in defaults of the version that is stored, then prunes."""
    text = {"type": "string"}
    cluster.define(
        two_versions(
            {"a": {**text, "default": "from v1"}, "b": text},
            {"a": text, "c": {**text, "default": "from v1beta1"}},
        )
    )
    made = cluster.make(THINGS, {"metadata": {"name": "t"}, "b": "y"})
    assert ("from v1", "y") == (made["a"], made["b"])
    for found in (cluster.get(f"{OLD_THINGS}/t"), cluster.get(OLD_THINGS)["items"][0]):
        assert "from v1" == found["a"]
        assert not {"b", "c"} & set(found)
    cluster.make(OLD_THINGS, {"metadata": {"name": "u"}, "c": "z"})
    assert "c" not in cluster.get(f"{OLD_THINGS}/u")  # the stored version has no such field


def test_objects_of_another_version_have_the_defaults_of_the_stored_one(
    cluster: CustomCluster,
) -> None:
    text = {"type": "string"}
    inner = {"type": "object", "properties": {"d": {**text, "default": "D"}}}
    cluster.define(two_versions({"a": {**text, "default": "A"}, "n": inner}, {"b": text}))
    cluster.make(OLD_THINGS, {"metadata": {"name": "t"}, "b": "x"})
    for found in (cluster.get(f"{THINGS}/t"), cluster.get(THINGS)["items"][0]):
        assert ("A", None) == (found["a"], found.get("n"))
    found = cluster.get(f"{OLD_THINGS}/t")
    assert 200 == cluster.ask("PUT", f"{OLD_THINGS}/t", {**found, "b": "y"})[0]
    assert "A" == cluster.get(f"{THINGS}/t")["a"]


def test_an_update_through_another_version_loses_what_that_version_lacks(
    cluster: CustomCluster,
) -> None:
    text = {"type": "string"}
    cluster.define(two_versions({"a": text, "b": text}, {"a": text}))
    cluster.make(THINGS, {"metadata": {"name": "t"}, "a": "1", "b": "2"})
    found = cluster.get(f"{OLD_THINGS}/t")
    assert 200 == cluster.ask("PUT", f"{OLD_THINGS}/t", {**found, "a": "3"})[0]
    changed = cluster.get(f"{THINGS}/t")
    assert ("3", None) == (changed["a"], changed.get("b"))


def test_a_default_that_is_added_later_fills_stored_objects(cluster: CustomCluster) -> None:
    body = definition(versions=[version("v1", {"a": {"type": "string"}})])
    cluster.define(body)
    cluster.make(THINGS, {"metadata": {"name": "t"}})
    cluster.redefine("things.example.com", versions=[
        version("v1", {"a": {"type": "string", "default": "x"}})
    ])  # fmt: skip
    assert "x" == cluster.get(f"{THINGS}/t")["a"]
    assert "x" == cluster.get(THINGS)["items"][0]["a"]


def test_a_version_that_a_webhook_would_convert_is_not_served(cluster: CustomCluster) -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    body = two_versions({"a": text}, {"a": number}, conversion=WEBHOOK)
    code, made, warnings = cluster.ask_with_warnings("POST", DEFINITIONS, body)
    assert 201 == code
    assert [
        'spec.conversion.strategy: version "v1beta1" of things.example.com is not served: this '
        "server calls no conversion webhooks, and the schema differs from that of the storage "
        'version "v1"'
    ] == warnings
    assert 443 == made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"]
    assert ("True", "InitialNamesAccepted") == conditions(made)["Established"]
    assert ["v1"] == made["status"]["storedVersions"]
    cluster.make(THINGS, {"metadata": {"name": "t"}, "a": "x"})
    assert 404 == cluster.ask("GET", OLD_THINGS)[0]
    versions = cluster.get("/apis/example.com")["versions"]
    assert ["v1"] == [each["version"] for each in versions]


def test_versions_of_one_schema_need_no_webhook(cluster: CustomCluster) -> None:
    one = {"a": {"type": "string", "description": "one"}}
    other = {"a": {"type": "string", "description": "other"}}
    body = two_versions(one, other, conversion=WEBHOOK)
    assert [] == cluster.ask_with_warnings("POST", DEFINITIONS, body)[2]
    cluster.make(OLD_THINGS, {"metadata": {"name": "t"}, "a": "x"})
    assert "x" == cluster.get(f"{THINGS}/t")["a"]


@pytest.mark.parametrize(
    ("conversion", "field", "text"),
    [
        ({"strategy": "Other"}, "spec.conversion.strategy", 'supported values: "None", "Webhook"'),
        (
            {**WEBHOOK, "strategy": "None"},
            "spec.conversion.webhookClientConfig",
            "should not be set when strategy is not set to Webhook",
        ),
        (
            {"strategy": "Webhook"},
            "spec.conversion.webhookClientConfig",
            "required when strategy is set to Webhook",
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {},
                                                "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhookClientConfig",
            "exactly one of url or service is required",
        ),
        (
            {"strategy": "Webhook", "webhook": {**WEBHOOK["webhook"],
                                                "conversionReviewVersions": ["v9"]}},
            "spec.conversion.conversionReviewVersions",
            "must include at least one of v1, v1beta1",
        ),
    ],
)  # fmt: skip
def test_a_conversion_that_makes_no_sense_is_refused(
    cluster: CustomCluster, conversion: Object, field: str, text: str
) -> None:
    code, answer = cluster.ask("POST", DEFINITIONS, definition(conversion=conversion))
    causes = answer["details"]["causes"]
    assert (422, field) == (code, causes[0]["field"])
    assert text in causes[0]["message"]


def test_a_stored_version_stays_until_its_objects_are_migrated(cluster: CustomCluster) -> None:
    name = "things.example.com"
    cluster.define(definition(versions=[version("v1beta1", {})]))
    both = [version("v1beta1", {}, storage=False), version("v1", {})]
    found = cluster.redefine(name, versions=both)
    assert ["v1beta1", "v1"] == found["status"]["storedVersions"]
    item = {**found, "spec": {**found["spec"], "versions": both[1:]}}
    code, answer = cluster.ask("PUT", f"{DEFINITIONS}/{name}", item)
    assert (422, "status.storedVersions[0]") == (code, answer["details"]["causes"][0]["field"])
    assert "was previously a storage version" in answer["message"]
    found["status"]["storedVersions"] = ["v1"]
    assert 200 == cluster.ask("PUT", f"{DEFINITIONS}/{name}/status", found)[0]
    found = cluster.redefine(name, versions=both[1:])
    assert ["v1"] == found["status"]["storedVersions"]


def test_names_that_another_definition_has_are_not_accepted(cluster: CustomCluster) -> None:
    cluster.define(definition(shortNames=["th"]))
    other = definition("stuffs", "Stuff", shortNames=["th"])
    made = cluster.define(other)
    assert ("False", "ShortNamesConflict") == conditions(made)["NamesAccepted"]
    assert ("False", "NotAccepted") == conditions(made)["Established"]
    assert "shortNames" not in made["status"]["acceptedNames"]
    assert 404 == cluster.ask("GET", "/apis/example.com/v1/stuffs")[0]
    assert 200 == cluster.ask("DELETE", f"{DEFINITIONS}/things.example.com")[0]
    found = cluster.get(f"{DEFINITIONS}/stuffs.example.com")
    assert ("True", "NoConflicts") == conditions(found)["NamesAccepted"]
    assert ("True", "InitialNamesAccepted") == conditions(found)["Established"]
    assert 200 == cluster.ask("GET", "/apis/example.com/v1/stuffs")[0]


def test_kind_and_scope_of_an_established_definition_stay(cluster: CustomCluster) -> None:
    found = cluster.define(definition())
    spec = {**found["spec"], "scope": "Namespaced"}
    spec["names"] = {**spec["names"], "kind": "Other"}
    code, answer = cluster.ask("PUT", f"{DEFINITIONS}/things.example.com", {**found, "spec": spec})
    fields = {cause["field"] for cause in answer["details"]["causes"]}
    assert (422, {"spec.scope", "spec.names.kind"}) == (code, fields)


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"names": {"plural": "things", "kind": "Thing", "singular": "A b"}}, "names.singular",
         "a DNS-1035 label must consist of"),
        ({"names": {"plural": "things", "kind": "T.h", "singular": "th", "listKind": "ThList"}},
         "names.kind",
         "may have mixed case, but should otherwise match: a DNS-1035 label"),
        ({"names": {"plural": "things", "kind": "Thing", "shortNames": ["th", "T"]}},
         "names.shortNames[1]", "a DNS-1035 label"),
        ({"names": {"plural": "things", "kind": "Thing", "listKind": "Thing"}}, "names.listKind",
         "kind and listKind may not be the same"),
        ({"column": {"name": "A", "type": "text", "jsonPath": ".a"}},
         "additionalPrinterColumns[0].type",
         "must be one of boolean,date,integer,number,string"),
        ({"column": {"name": "A", "type": "date", "jsonPath": "a"}},
         "additionalPrinterColumns[0].JSONPath", "must be a simple json path starting"),
        ({"scale": {"specReplicasPath": ".a", "statusReplicasPath": ".status.n"}},
         "subresources.scale.specReplicasPath", "should be a json path under .spec"),
        ({"scale": {"specReplicasPath": ".spec.n"}},
         "subresources.scale.statusReplicasPath", "Required value"),
    ],
)  # fmt: skip
def test_names_columns_and_paths_are_checked(
    cluster: CustomCluster, change: Object, field: str, text: str
) -> None:
    body = definition()
    first = body["spec"]["versions"][0]
    body["spec"]["names"] = change.get("names", body["spec"]["names"])
    if "column" in change:
        first["additionalPrinterColumns"] = [change["column"]]
    if "scale" in change:
        first["subresources"] = {"scale": change["scale"]}
    code, answer = cluster.ask("POST", DEFINITIONS, body)
    causes = answer["details"]["causes"]
    assert (422, [f"spec.{field}"]) == (code, [cause["field"] for cause in causes])
    assert text in causes[0]["message"]


def test_requests_for_a_deprecated_version_are_warned(cluster: CustomCluster) -> None:
    old = {**version("v1beta1", {}, storage=False), "deprecated": True}
    told = {**version("v1alpha1", {}, storage=False), "deprecated": True}
    told["deprecationWarning"] = "use the other"
    cluster.define(definition(versions=[version("v1", {}), old, told, version("v2", {}, False)]))
    for path, warnings in (
        (THINGS, []),
        (OLD_THINGS, ["example.com/v1beta1 Thing is deprecated; use example.com/v2 Thing"]),
        ("/apis/example.com/v1alpha1/things", ["use the other"]),
    ):
        assert warnings == cluster.ask_with_warnings("GET", path)[2]
        body = {"metadata": {"generateName": "t-"}}
        assert (201, warnings) == cluster.ask_with_warnings("POST", path, body)[::2]


def test_the_newest_stable_version_is_preferred(cluster: CustomCluster) -> None:
    names = ["v1beta1", "other", "v2alpha1", "v1", "v10", "v1beta10", "v1alpha1", "a"]
    versions = [version(name, {}, storage=name == "v1") for name in names]
    cluster.define(definition(versions=versions))
    group = cluster.get("/apis/example.com")
    assert "example.com/v10" == group["preferredVersion"]["groupVersion"]
    assert ["v10", "v1", "v1beta10", "v1beta1", "v2alpha1", "v1alpha1", "a", "other"] == [
        each["version"] for each in group["versions"]
    ]
    spec = {"versions": [each for each in versions if each["name"] != "v10"]}
    cluster.redefine("things.example.com", **spec)
    assert "example.com/v1" == cluster.get("/apis/example.com")["preferredVersion"]["groupVersion"]


def test_status_may_be_read_replaced_and_patched(cluster: CustomCluster) -> None:
    cluster.define(definition())
    path = f"{DEFINITIONS}/things.example.com/status"
    found = cluster.get(path)
    found["status"]["conditions"].append({"message": "updated"})
    code, updated = cluster.ask("PUT", path, found)
    assert (200, "updated") == (code, updated["status"]["conditions"][-1]["message"])
    patch = [{"op": "add", "path": "/status/conditions", "value": [{"message": "patched"}]}]
    code, patched = cluster.ask("PATCH", path, patch, "application/json-patch+json")
    assert (200, ["patched"]) == (code, [c["message"] for c in patched["status"]["conditions"]])


def test_finalizers_of_custom_resources_need_no_slash(cluster: CustomCluster) -> None:
    """apiextensions-apiserver pkg/registry/customresource/validator.go: it advises, of new ones."""
    cluster.define(definition())
    text = "to avoid accidental conflicts with other finalizer writers"
    item: Object = {"metadata": {"name": "t", "finalizers": ["keep.example.com", "orphan", "a/b"]}}
    code, made, warnings = cluster.ask_with_warnings("POST", THINGS, item)
    assert (201, item["metadata"]["finalizers"]) == (code, made["metadata"]["finalizers"])
    name = "prefer a domain-qualified finalizer name"
    advice = f'metadata.finalizers: "keep.example.com": {name} including a path (/) {text}'
    assert [advice] == warnings
    made["metadata"]["finalizers"].append("own")
    code, _, warnings = cluster.ask_with_warnings("PUT", f"{THINGS}/t", made)
    assert (200, [f'metadata.finalizers: "own": {name} {text}']) == (code, warnings)
    made["metadata"] |= {"finalizers": ["a b"], "resourceVersion": ""}
    assert 422 == cluster.ask("PUT", f"{THINGS}/t", made | {"x": 1})[0]
    maps = "/api/v1/namespaces/default/configmaps"
    assert 422 == cluster.ask("POST", maps, {"metadata": {"name": "m", "finalizers": ["own"]}})[0]


MERGE = "application/merge-patch+json"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_object_of_another_kind_or_version_is_refused(
    cluster: CustomCluster, method: str
) -> None:
    cluster.define(two_versions({"a": {"type": "string"}}, {"a": {"type": "string"}}))
    made = cluster.make(THINGS, {"metadata": {"name": "t"}})
    path = f"{THINGS}/t" if method == "PUT" else THINGS
    for version_ in ("example.com/v1beta1", "example.com/v7", "other.com/v1", "v1"):
        code, body = cluster.ask(method, path, {**made, "apiVersion": version_})
        text = (
            f"the API version in the data ({version_}) does not match the expected API version "
            "(example.com/v1)"
        )
        assert (400, text) == (code, body["message"])
    code, body = cluster.ask(method, path, {**made, "kind": "Other"})
    text = 'Other.example.com "t" is invalid: kind: Invalid value: "Other": must be Thing'
    assert (422, text) == (code, body["message"])
    assert "Other" == body["details"]["kind"]


def test_a_patch_to_another_kind_or_version_is_refused(cluster: CustomCluster) -> None:
    cluster.define(two_versions({"a": {"type": "string"}}, {"a": {"type": "string"}}))
    cluster.make(THINGS, {"metadata": {"name": "t"}})
    change = {"kind": "Other", "apiVersion": "example.com/v1beta1"}
    code, body = cluster.ask("PATCH", f"{THINGS}/t", change, MERGE)
    assert 422 == code
    assert [
        ("kind", 'Invalid value: "Other": must be Thing'),
        ("apiVersion", 'Invalid value: "example.com/v1beta1": must be example.com/v1'),
    ] == [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]


def test_a_status_may_come_with_any_kind(cluster: CustomCluster) -> None:
    """Nothing but the status is taken from it."""
    found = {**version("v1", {"status": {"type": "object", "properties": {}}})}
    cluster.define(definition(versions=[{**found, "subresources": {"status": {}}}]))
    made = cluster.make(THINGS, {"metadata": {"name": "t"}})
    code, body = cluster.ask("PUT", f"{THINGS}/t/status", {**made, "kind": "Other"})
    assert (200, "Thing") == (code, body["kind"])


def test_custom_resources_take_no_strategic_patches(cluster: CustomCluster) -> None:
    cluster.define(definition())
    cluster.make(THINGS, {"metadata": {"name": "t"}})
    text = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    for kind in ("application/strategic-merge-patch+json", "application/json", "text/plain"):
        code, body = cluster.ask("PATCH", f"{THINGS}/t", {}, kind)
        assert (415, text) == (code, body["message"])
