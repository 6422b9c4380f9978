"""deploy/: the definitions are those of our API server, and the policies say what it says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cel_expr_python import cel

from stower.api.definitions import DEFINITIONS
from stower.api.group_definitions import GROUP_DEFINITIONS
from tests.unit.api.test_device_rules import Client
from tests.unit.api.test_negotiation_rules import (
    CLAIMS,
    FLAG,
    MODE,
    OWNER,
    POD_CLAIM,
    SCHEDULINGS,
    TEMPLATES,
    annotated,
    scheduling,
)
from tools.make_crds import FOLDER as DEPLOY
from tools.make_crds import SETS, files

Object = dict[str, Any]
ROUND = {"round": 2, "attempt": 1}


def documents(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


def test_files_are_as_the_definitions_are() -> None:
    paths = [path for folder in SETS for path in (DEPLOY / folder).iterdir()
             if path.name != "kustomization.yaml"]  # fmt: skip
    assert files() == {str(path.relative_to(DEPLOY)): path.read_text() for path in paths}
    written = {d["metadata"]["name"]: d for path in paths for d in documents(path)}
    defined = [d for _, definitions in SETS.values() for d in definitions]
    assert {d["metadata"]["name"]: d for d in defined} == written


# Expressions


def evaluated(expression: str, **data: Any) -> Any:
    """The value of an expression of CEL, by Google's evaluator."""
    environment = cel.NewEnv(variables=dict.fromkeys(data, cel.Type.DYN))
    return environment.compile(expression).eval(data=data).plain_value()


def rules(schema: Object, *path: str) -> list[str]:
    for name in path:
        schema = schema["properties"][name]
    return [rule["rule"] for rule in schema["x-kubernetes-validations"]]


@pytest.mark.parametrize(
    ("path", "before", "after", "good"),
    [
        (("spec",), {}, ROUND, True),
        (("spec",), ROUND, ROUND, True),
        (("spec",), ROUND, {"round": 3, "attempt": 1}, True),
        (("spec",), ROUND, {"round": 1, "attempt": 1}, False),
        (("spec",), ROUND, {"round": 2}, False),
        (("spec",), ROUND, {}, False),
        ((), {"spec": {}}, {"spec": ROUND}, True),
        ((), {}, {}, True),
        ((), {"spec": {}}, {}, False),
    ],
)
def test_rules_of_a_negotiation(path: tuple[str, ...], before: Any, after: Any, good: bool) -> None:
    schema = DEFINITIONS[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = [evaluated(rule, self=after, oldSelf=before) for rule in rules(schema, *path)]
    assert good == all(found)


def test_rule_of_a_class() -> None:
    schema = DEFINITIONS[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    (rule,) = rules(schema, "driverName")
    assert [True, False] == [evaluated(rule, self="a", oldSelf=old) for old in ("a", "b")]


GANG = {"gang": {"minCount": 2}}


@pytest.mark.parametrize(
    ("before", "after", "good"),
    [
        ({}, {}, True),
        ({"parentCompositePodGroupName": "a"}, {"parentCompositePodGroupName": "a"}, True),
        ({"parentCompositePodGroupName": "a"}, {"parentCompositePodGroupName": "b"}, False),
        ({"parentCompositePodGroupName": "a"}, {}, False),
        ({}, {"priority": 5}, False),
        ({"disruptionMode": {"all": {}}}, {"disruptionMode": {"single": {}}}, False),
    ],
)
def test_rules_of_a_group_that_changes(before: Any, after: Any, good: bool) -> None:
    for definition in GROUP_DEFINITIONS:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found = [evaluated(rule, self=after, oldSelf=before) for rule in rules(schema, "spec")]
        assert good == all(found)


@pytest.mark.parametrize(
    ("before", "after", "good"),
    [
        (GANG, GANG, True),
        (GANG, {"basic": {}}, False),
        (GANG, {"basic": {}, **GANG}, False),
        ({"basic": {}}, {}, False),
    ],
)
def test_rules_of_a_policy(before: Any, after: Any, good: bool) -> None:
    for definition in GROUP_DEFINITIONS:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        path = ("spec", "schedulingPolicy")
        found = [evaluated(rule, self=after, oldSelf=before) for rule in rules(schema, *path)]
        assert good == all(found)


def test_of_pods_the_minimum_may_change_of_groups_it_may_not() -> None:
    for definition, good in zip(GROUP_DEFINITIONS, (True, False), strict=True):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        after = {"gang": {"minCount": 3}}
        found = [
            evaluated(rule, self=after, oldSelf=GANG)
            for rule in rules(schema, "spec", "schedulingPolicy")
        ]
        assert good == all(found)


def admitted(plural: str, obj: Object, old: Object | None = None) -> bool:
    """Whether the policy for a resource lets it pass."""
    policies = documents(DEPLOY / "negotiation" / "policy.yaml")
    (spec,) = [
        p["spec"] for p in policies
        if p["kind"] == "ValidatingAdmissionPolicy"
        and plural in p["spec"]["matchConstraints"]["resourceRules"][0]["resources"]
    ]  # fmt: skip
    (rule,) = spec["matchConstraints"]["resourceRules"]
    if ("CREATE" if old is None else "UPDATE") not in rule["operations"]:
        return True
    data: Object = {"object": obj, "oldObject": old, "variables": {}}
    for variable in spec["variables"]:
        data["variables"][variable["name"]] = evaluated(variable["expression"], **data)
    return all(evaluated(v["expression"], **data) for v in spec["validations"])


def test_every_policy_is_bound() -> None:
    by_kind: dict[str, set[str]] = {}
    for document in documents(DEPLOY / "negotiation" / "policy.yaml"):
        name = document["spec"].get("policyName", document["metadata"]["name"])
        by_kind.setdefault(document["kind"], set()).add(name)
    policies, bindings = by_kind.values()
    assert policies == bindings


ANNOTATIONS: list[dict[str, str]] = [
    {},
    {"other": "x"},
    {MODE: "Immediate"},
    {MODE: "WaitForFirstConsumer"},
    {MODE: "Later"},
    {MODE: ""},
    {MODE: "Immediate", POD_CLAIM: "gpu"},
    {MODE: "WaitForFirstConsumer", POD_CLAIM: "gpu"},
    {POD_CLAIM: "gpu"},
    {FLAG: "x" * 256},
    {FLAG: "ä" * 129},
    {MODE: "Immediate", FLAG: ""},
]


def with_annotations(annotations: dict[str, str]) -> Object:
    body = annotated()
    body["metadata"] = {"name": "c", **({"annotations": annotations} if annotations else {})}
    return body


@pytest.mark.parametrize("given", ANNOTATIONS, ids=json.dumps)
def test_policy_of_claims_is_that_of_our_server(given: dict[str, str]) -> None:
    new = with_annotations(given)
    assert admitted("resourceclaims", new) == (not Client().faults("POST", CLAIMS, new))
    for before in ANNOTATIONS:
        client, old = Client(), with_annotations(before)
        if client.faults("POST", CLAIMS, old):
            continue
        _, kept = client.send("GET", f"{CLAIMS}/c", {})
        changed = {**kept, "metadata": {**kept["metadata"], "annotations": given}}
        found = client.faults("PUT", f"{CLAIMS}/c", changed)
        assert admitted("resourceclaims", new, old) == (not found), before


@pytest.mark.parametrize("given", ANNOTATIONS, ids=json.dumps)
def test_policy_of_templates_is_that_of_our_server(given: dict[str, str]) -> None:
    meta = {"metadata": {"annotations": given}} if given else {}
    new = {"metadata": {"name": "t"}, "spec": {**meta, "spec": annotated()["spec"]}}
    expected = not Client().faults("POST", TEMPLATES, new)
    assert expected == admitted("resourceclaimtemplates", new)


def test_policy_of_negotiations_is_that_of_our_server() -> None:
    other = {**OWNER, "name": "q"}
    for owners in ([OWNER], [other], [OWNER, other], [{**OWNER, "kind": "Node"}]):
        new = scheduling(*owners)
        expected = not Client().faults("POST", SCHEDULINGS, new)
        assert expected == admitted("podschedulings", new)
    old, gone = scheduling(), scheduling()
    del gone["metadata"]["ownerReferences"]
    assert not admitted("podschedulings", gone)
    assert admitted("podschedulings", old, old)
    assert not admitted("podschedulings", scheduling({**OWNER, "uid": "v"}), old)
    assert admitted("podschedulings", gone, old)  # unlike ours: the garbage collector may
