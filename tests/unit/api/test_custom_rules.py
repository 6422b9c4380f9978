"""Rules in CEL of CustomResourceDefinitions: at the definition, and at its objects."""

from typing import Any, Final

import pytest

from stower.api import custom_rules
from tests.unit.api.custom_cluster import DEFINITIONS, CustomCluster, Object, definition, version

THINGS: Final = "/apis/example.com/v1/things"
INT: Final = {"type": "integer"}
TEXT: Final = {"type": "string"}
RULES: Final = "x-kubernetes-validations"


def rule(text: str, **more: Any) -> Object:
    return {"rule": text, **more}


def struct(*rules: Object, **properties: Object) -> Object:
    found: Object = {"type": "object", "properties": properties}
    return {**found, RULES: [*rules]} if rules else found


def things(*rules: Object, root: tuple[Object, ...] = (), **properties: Object) -> Object:
    """Returns a definition whose spec has these rules and properties, and `root` these rules."""
    more: Object = {RULES: [*root]} if root else {}
    found = version("v1", {"spec": struct(*rules, **properties), "status": struct(n=INT)}, **more)
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"}
    return definition(versions=[{**found, "subresources": {"status": {}, "scale": scale}}])


@pytest.fixture
def cluster() -> CustomCluster:
    return CustomCluster()


def thing(name: str = "t", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def causes(answer: tuple[int, Any]) -> list[tuple[str, str, str]]:
    """Returns field, reason and message of each cause of a 422."""
    code, body = answer
    assert 422 == code, body
    found = body["details"]["causes"]
    return [(c["field"], c["reason"].removeprefix("FieldValue"), c["message"]) for c in found]


def put(cluster: CustomCluster, part: str = "", name: str = "t", **fields: Any) -> Any:
    found = cluster.get(f"{THINGS}/{name}")
    found |= fields
    return cluster.ask("PUT", f"{THINGS}/{name}{part}", found)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ("spec", "Invalid", "Invalid value: failed rule: self.a < self.b")),
        ({"message": " a first "}, ("spec", "Invalid", "Invalid value: a first")),
        (
            {"messageExpression": "'%d is too much'.format([self.a])"},
            ("spec", "Invalid", "Invalid value: 3 is too much"),
        ),
        (
            {"messageExpression": "''", "message": "told instead"},
            ("spec", "Invalid", "Invalid value: told instead"),
        ),
        (
            {"messageExpression": "string(1 / (self.b - 2))", "message": "told instead"},
            ("spec", "Invalid", "Invalid value: told instead"),
        ),
        (
            {"reason": "FieldValueForbidden", "fieldPath": ".a"},
            ("spec.a", "Forbidden", "Forbidden: failed rule: self.a < self.b"),
        ),
        (
            {"reason": "FieldValueRequired", "fieldPath": "['b']", "message": "no"},
            ("spec.b", "Required", "Required value: no"),
        ),
    ],
)
def test_a_broken_rule_is_told_as_its_definition_says(
    cluster: CustomCluster, more: Object, expected: tuple[str, str, str]
) -> None:
    cluster.define(things(rule("self.a < self.b", **more), a=INT, b=INT))
    cluster.make(THINGS, thing(a=1, b=2))
    assert [expected] == causes(cluster.ask("POST", THINGS, thing("u", a=3, b=2)))


def test_rules_hold_for_every_item_and_value(cluster: CustomCluster) -> None:
    item = {**INT, RULES: [rule("self > 0", message="positive")]}
    cluster.define(
        things(
            l={"type": "array", "items": item, "maxItems": 10},
            m={"type": "object", "additionalProperties": item, "maxProperties": 10},
        )
    )
    found = causes(cluster.ask("POST", THINGS, thing(l=[1, 0], m={"a": 1, "b": -1})))
    assert [
        ("spec.l[1]", "Invalid", "Invalid value: 0: positive"),
        ("spec.m[b]", "Invalid", "Invalid value: -1: positive"),
    ] == found


def test_a_rule_of_the_root_sees_the_name(cluster: CustomCluster) -> None:
    cluster.define(things(root=(rule("self.metadata.name.startsWith('x')", message="no x"),)))
    cluster.make(THINGS, thing("xy"))
    assert [("<nil>", "Invalid", "Invalid value: no x")] == causes(
        cluster.ask("POST", THINGS, thing("y"))
    )


def test_transition_rules_compare_with_what_was(cluster: CustomCluster) -> None:
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    fixed = rule("self == oldSelf", message="fixed")
    item = {**struct(k=TEXT, v={**INT, RULES: [fixed]}), "required": ["k"]}
    cluster.define(
        things(
            rule("self.n >= oldSelf.n", message="falls"),
            n=INT,
            l={"type": "array", "items": item, "maxItems": 5, **keys},
        )
    )
    cluster.make(THINGS, thing(n=2, l=[{"k": "a", "v": 1}, {"k": "b", "v": 2}]))
    swapped = [{"k": "b", "v": 2}, {"k": "a", "v": 1}, {"k": "c", "v": 3}]
    assert 200 == put(cluster, spec={"n": 3, "l": swapped})[0]
    changed = [{"k": "a", "v": 5}, {"k": "d", "v": 3}]
    assert [
        ("spec", "Invalid", "Invalid value: falls"),
        ("spec.l[0].v", "Invalid", "Invalid value: 5: fixed"),
    ] == causes(put(cluster, spec={"n": 1, "l": changed}))
    patch = [{"op": "replace", "path": "/spec/n", "value": 0}]
    kind = "application/json-patch+json"
    assert 422 == cluster.ask("PATCH", f"{THINGS}/t", patch, kind)[0]


def test_a_rule_with_an_optional_old_value_is_checked_at_creation(cluster: CustomCluster) -> None:
    text = "oldSelf.hasValue() ? self.n == oldSelf.value().n : self.n == 1"
    cluster.define(things(rule(text, optionalOldSelf=True, message="starts at 1"), n=INT))
    assert 422 == cluster.ask("POST", THINGS, thing(n=2))[0]
    cluster.make(THINGS, thing(n=1))
    assert 422 == put(cluster, spec={"n": 2})[0]
    assert 200 == put(cluster, spec={"n": 1}, metadata={
        **cluster.get(f"{THINGS}/t")["metadata"], "labels": {"a": "b"}
    })[0]  # fmt: skip


def test_status_and_scale_are_checked_too(cluster: CustomCluster) -> None:
    rules = (
        rule("!has(self.status) || self.status.n < 5", message="status"),
        rule("!has(self.spec.replicas) || self.spec.replicas < 5", message="replicas"),
    )
    cluster.define(things(root=rules, replicas=INT))
    cluster.make(THINGS, thing(replicas=1))
    assert 200 == put(cluster, "/status", status={"n": 4})[0]
    assert [("<nil>", "Invalid", "Invalid value: status")] == causes(
        put(cluster, "/status", status={"n": 5})
    )
    scale = cluster.get(f"{THINGS}/t/scale")
    scale["spec"]["replicas"] = 5
    code, body = cluster.ask("PUT", f"{THINGS}/t/scale", scale)
    assert (422, True) == (code, "replicas" in body["message"])


def test_parts_that_a_change_leaves_alone_may_break_new_rules(cluster: CustomCluster) -> None:
    cluster.define(things(a=struct(n=INT), b=struct(n=INT), c=TEXT))
    cluster.make(THINGS, thing(a={"n": 1}, b={"n": 1}, c="x"))
    small = rule("self.n > 1", message="small")
    stricter = things(a=struct(small, n=INT), b=struct(small, n=INT), c={**TEXT, "minLength": 2})
    cluster.redefine("things.example.com", **stricter["spec"])
    assert 200 == put(cluster, spec={"a": {"n": 1}, "b": {"n": 2}, "c": "x"})[0]
    assert [("spec.a", "Invalid", "Invalid value: small")] == causes(
        put(cluster, spec={"a": {"n": 0}, "b": {"n": 2}, "c": "x"})
    )
    assert ["spec.c"] == [c[0] for c in causes(put(cluster, spec={"c": "y"}))]
    assert 422 == cluster.ask("POST", THINGS, thing("u", a={"n": 1}))[0]


def test_a_status_is_checked_by_itself(cluster: CustomCluster) -> None:
    """What else is wrong with an object, an older definition has let in."""
    cluster.define(things(a=INT))
    cluster.make(THINGS, {"metadata": {"name": "t"}})
    stricter = things(a=INT)["spec"]
    stricter["versions"][0]["schema"]["openAPIV3Schema"]["required"] = ["spec"]
    cluster.redefine("things.example.com", **stricter)
    assert 200 == put(cluster, "/status", status={"n": 1})[0]
    found = causes(put(cluster, "/status", status={"n": "x"}))
    assert [("status.n", "TypeInvalid")] == [cause[:2] for cause in found]
    assert 422 == put(cluster, metadata={**cluster.get(f"{THINGS}/t")["metadata"],
                                         "labels": {"a": "b"}})[0]  # fmt: skip


def test_rules_are_not_checked_where_types_are_wrong(cluster: CustomCluster) -> None:
    cluster.define(things(rule("self.a > 1"), a=INT))
    found = causes(cluster.ask("POST", THINGS, thing(a="x")))
    assert ["TypeInvalid", "Invalid"] == [reason for _, reason, _ in found]
    assert "some validation rules were not checked" in found[1][2]


def test_an_error_of_a_rule_is_told(cluster: CustomCluster) -> None:
    free = {"x-kubernetes-int-or-string": True}
    cluster.define(things(rule("1 / self.a > 0"), rule("self.b + 1 > 0"), a=INT, b=free))
    found = causes(cluster.ask("POST", THINGS, thing(a=0, b="x")))
    assert (
        'Invalid value: "object": division by zero evaluating rule: 1 / self.a > 0' == found[0][2]
    )
    assert found[1][2].startswith('Invalid value: "object": \'no such overload')
    assert "call arguments did not match a supported operator" in found[1][2]


def test_a_rule_ends_at_the_limit_of_its_cost(cluster: CustomCluster) -> None:
    numbers = {"type": "array", "items": INT, "maxItems": 725}
    cluster.define(things(rule("self.l.all(x, self.l.all(y, x == y))"), l=numbers))
    cluster.make(THINGS, thing("small", l=[1] * 20))
    found = causes(cluster.ask("POST", THINGS, thing(l=[1] * 725)))
    assert 1 == len(found)
    assert "call cost exceeds limit for rule: self.l.all(x" in found[0][2]


def test_all_rules_of_an_object_have_one_budget(
    cluster: CustomCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_rules, "BUDGET", 100)
    item = {**INT, RULES: [rule("self > 0")]}
    cluster.define(things(l={"type": "array", "items": item, "maxItems": 100}))
    cluster.make(THINGS, thing(l=[1] * 10))
    found = causes(cluster.ask("POST", THINGS, thing("u", l=[1] * 100)))
    assert 1 == len(found)
    assert "validation failed due to running out of cost budget" in found[0][2]


def faults_of(cluster: CustomCluster, body: Object) -> list[tuple[str, str, str]]:
    at = "spec.validation.openAPIV3Schema.properties[spec]."
    found = causes(cluster.ask("POST", DEFINITIONS, body))
    return [(field.removeprefix(at), reason, message) for field, reason, message in found]


@pytest.mark.parametrize(
    ("spec", "field", "reason", "text"),
    [
        (rule("self.z == 1"), "rule", "Invalid", "undefined field 'z'"),
        (rule("self = 1"), "rule", "Invalid", "Syntax error"),
        (rule("self.a"), "rule", "Invalid", "cel expression must evaluate to a bool"),
        (rule(" "), "rule", "Required", "rule is not specified"),
        (rule("true\n|| true"), "message", "Required", "if rule contains line breaks"),
        (rule("true", message="a\nb"), "message", "Invalid", "must not contain line breaks"),
        (rule("true", message=" "), "message", "Invalid", "must be non-empty if specified"),
        (rule("true", reason="Other"), "reason", "NotSupported", '"FieldValueDuplicate", '),
        (rule("true", fieldPath=".z"), "fieldPath", "Invalid", "must be a valid path"),
        (rule("true", messageExpression="1"), "messageExpression", "Invalid", "to a string"),
        (rule("true", messageExpression="self.z"), "messageExpression", "Invalid", "undefined"),
        (rule("true", optionalOldSelf=True), "optionalOldSelf", "Invalid", "oldSelf is not used"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(
    cluster: CustomCluster, spec: Object, field: str, reason: str, text: str
) -> None:
    found = faults_of(cluster, things(spec, a=INT))
    assert (f"{RULES}[0].{field}", reason) == found[0][:2]
    assert text in found[0][2]


def test_what_rules_may_cost_is_bounded(cluster: CustomCluster) -> None:
    inner = {"type": "array", "items": TEXT, RULES: [rule("self.all(s, s == 'a')")]}
    found = faults_of(cluster, things(x={"type": "array", "items": inner}))
    assert (f"properties[x].items.{RULES}[0].rule", "Forbidden") == found[0][:2]
    assert "estimated rule cost total for entire OpenAPIv3 schema" in found[-1][2]
    assert (
        "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying"
        " the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
        "strings are declared)"
    ) == found[0][2]


def test_what_all_rules_of_a_schema_may_cost_is_bounded(cluster: CustomCluster) -> None:
    dear = [rule("self.all(x, self.all(y, x == y))") for _ in range(25)]
    numbers = {"type": "array", "items": INT, "maxItems": 1000, RULES: dear}
    found = causes(cluster.ask("POST", DEFINITIONS, things(l=numbers)))
    assert ["Forbidden"] * 5 == [reason for _, reason, _ in found]
    assert "contributed to estimated rule cost total exceeding cost limit" in found[0][2]
    at, _, text = found[4]
    assert "spec.validation.openAPIV3Schema" == at
    assert "cost total for entire OpenAPIv3 schema exceeds budget by factor of" in text


def test_an_old_value_of_an_item_is_known_in_lists_with_keys_alone(cluster: CustomCluster) -> None:
    item = {**INT, RULES: [rule("self == oldSelf")]}
    body = things(l={"type": "array", "items": item, "maxItems": 3})
    assert [
        (
            f"properties[l].items.{RULES}[0].rule",
            "Invalid",
            'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable '
            "portion of the schema within "
            "spec.validation.openAPIV3Schema.properties[spec].properties[l]",
        )
    ] == faults_of(cluster, body)


@pytest.mark.parametrize(
    ("rules", "count", "told"),
    [
        ([rule("true")] * 2001, 1, "at most 2000 rules"),
        ([rule(f"'{'x' * 16_000}' != ''")] * 9, 1, "at most 131072 bytes of rules"),
        ([rule("true")], 60_000, "at most 100000 fields that rules are about"),
    ],
)
def test_the_rules_of_a_definition_are_bounded(
    cluster: CustomCluster, rules: list[Object], count: int, told: str
) -> None:
    inner = struct(*rules, **{f"f{n}": INT for n in range(count)})
    found = faults_of(cluster, things(rule("true"), a=inner))
    assert [] != [text for _, reason, text in found if reason == "Forbidden" and told in text]
