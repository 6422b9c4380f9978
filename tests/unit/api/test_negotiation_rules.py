"""What the API takes and refuses of ResourceClasses, PodSchedulings and annotations of claims."""

from typing import Any

import pytest

from tests.unit.api.test_device_rules import CLAIMS, GROUP, Client, claim, exactly

Object = dict[str, Any]
STOWER = "/apis/stower.dev/v1"
CLASSES = f"{STOWER}/resourceclasses"
SCHEDULINGS = f"{STOWER}/namespaces/default/podschedulings"
TEMPLATES = f"{GROUP}/v1/namespaces/default/resourceclaimtemplates"
MODE = "stower.dev/allocation-mode"
FLAG = "stower.dev/deallocation-requested"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
Faults = set[tuple[str, str]]


def resource_class(**fields: Any) -> Object:
    return {"apiVersion": "stower.dev/v1", "kind": "ResourceClass", "metadata": {"name": "gpu"},
            "driverName": "gpu.example.com", **fields}  # fmt: skip


def scheduling(*owners: Object, **spec: Any) -> Object:
    meta = {"name": "p", "ownerReferences": [*owners] or [OWNER]}
    return {"apiVersion": "stower.dev/v1", "kind": "PodScheduling", "metadata": meta, "spec": spec}


def nodes(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


# ResourceClass


def class_faults(**fields: Any) -> Faults:
    return Client().faults("POST", CLASSES, resource_class(**fields))


def test_class_names_a_driver() -> None:
    assert set() == class_faults()
    assert {("driverName", "Invalid")} == class_faults(driverName="GPU.Example.com")
    assert {("driverName", "Required")} == class_faults(driverName="")
    assert {("driverName", "Required")} == class_faults(driverName=None)
    assert {("driverName", "Invalid")} == class_faults(driverName="a_b")
    assert {("driverName", "TypeInvalid")} == class_faults(driverName=1)
    assert set() == class_faults(driverName="a" * 63)
    assert {("driverName", "TooLong")} == class_faults(driverName="a" * 64)


def test_driver_of_a_class_stays_and_the_rest_may_change() -> None:
    client = Client()
    assert set() == client.faults("POST", CLASSES, resource_class())
    one = f"{CLASSES}/gpu"
    assert set() == client.faults("PATCH", one, {"parameters": {"mode": {"x": [1]}}})
    status, answer = client.send("PATCH", one, {"driverName": "other.example.com"})
    assert (422, "driverName: Invalid value: \"other.example.com\": field is immutable") == (
        status, answer["message"].partition("is invalid: ")[2],
    )  # fmt: skip


def test_parameters_of_a_class_are_an_object_of_ten_kibibytes() -> None:
    room = 10 * 1024 - len('{"a":""}')
    assert set() == class_faults(parameters={}) == class_faults(parameters={"a": "x" * room})
    assert {("parameters", "TooLong")} == class_faults(parameters={"a": "x" * (room + 1)})
    assert {("parameters", "TypeInvalid")} == class_faults(parameters=["a"])


def test_suitable_nodes_are_a_node_selector() -> None:
    def faults(**term: Any) -> Faults:
        return class_faults(suitableNodes={"nodeSelectorTerms": [term]})

    at = "suitableNodes.nodeSelectorTerms"
    assert set() == faults(matchExpressions=[{"key": "gpu", "operator": "Exists"}])
    assert {(at, "Required")} == class_faults(suitableNodes={})
    assert {(f"{at}[0].matchExpressions[0].operator", "Invalid")} == (
        faults(matchExpressions=[{"key": "gpu", "operator": "Maybe"}])
    )
    assert {(f"{at}[0].matchFields[0].values", "Required")} == (
        faults(matchFields=[{"key": "metadata.name", "operator": "In"}])
    )


# PodScheduling


def faults(*owners: Object, **spec: Any) -> Faults:
    return Client().faults("POST", SCHEDULINGS, scheduling(*owners, **spec))


def test_negotiation_belongs_to_the_pod_whose_name_it_has() -> None:
    at = "metadata.ownerReferences"
    assert set() == faults() == faults({**OWNER, "controller": True, "blockOwnerDeletion": True})
    other = {**OWNER, "name": "q", "uid": "v"}
    assert {(f"{at}[0].name", "Invalid")} == faults(other)
    assert {(at, "TooMany")} == faults(OWNER, other)
    assert {(f"{at}[0].kind", "NotSupported")} == faults({**OWNER, "kind": "Node"})
    assert {(f"{at}[0].apiVersion", "NotSupported")} == faults({**OWNER, "apiVersion": "v2"})
    body = scheduling()
    del body["metadata"]["ownerReferences"]
    assert {(at, "Required")} == Client().faults("POST", SCHEDULINGS, body)


def test_owner_of_a_negotiation_stays() -> None:
    client = Client()
    assert set() == client.faults("POST", SCHEDULINGS, scheduling())
    for owners in ([], [{**OWNER, "uid": "v"}], [OWNER, {**OWNER, "uid": "v"}], None):
        change = {"metadata": {"ownerReferences": owners}}
        found = client.faults("PATCH", f"{SCHEDULINGS}/p", change)
        assert {("metadata.ownerReferences", "Invalid")} == found
    assert set() == client.faults("PATCH", f"{SCHEDULINGS}/p", {"metadata": {"labels": {"a": "b"}}})


def test_candidates_are_a_set_of_at_most_128_nodes() -> None:
    at = "spec.potentialNodes"
    assert set() == faults(potentialNodes=nodes(128)) == faults(potentialNodes=[])
    assert {(at, "TooMany")} == faults(potentialNodes=nodes(129))
    assert {(f"{at}[2]", "Duplicate")} == faults(potentialNodes=["a", "b", "a"])
    assert {(f"{at}[1]", "Invalid")} == faults(potentialNodes=["a", "B"])
    assert {(f"{at}[0]", "Invalid")} == faults(potentialNodes=["x" * 254])
    assert {(f"{at}[0]", "TypeInvalid")} == faults(potentialNodes=[None])
    assert {("spec.selectedNode", "Invalid")} == faults(selectedNode="a b")
    assert set() == faults(selectedNode="a.b") == faults(selectedNode="") == faults()


def test_round_and_attempt_never_fall() -> None:
    client = Client()
    assert set() == client.faults("POST", SCHEDULINGS, scheduling(round=2, attempt=1))
    one = f"{SCHEDULINGS}/p"
    assert {("spec.round", "Invalid")} == client.faults("PATCH", one, {"spec": {"round": 1}})
    assert {("spec.round", "Invalid")} == client.faults("PATCH", one, {"spec": {"round": None}})
    assert {("spec.attempt", "Invalid")} == client.faults("PATCH", one, {"spec": {"attempt": 0}})
    both = {("spec.round", "Invalid"), ("spec.attempt", "Invalid")}
    assert both == client.faults("PATCH", one, {"spec": None})
    assert set() == client.faults("PATCH", one, {"spec": {"round": 2, "attempt": 2}})
    for field, most in (("round", 2**63 - 1), ("attempt", 2**31 - 1)):
        assert set() == faults(**{field: most}) == faults(**{field: 0})
        for wrong in (-1, most + 1, "1", 1.5, True):
            is_integer = type(wrong) is int and wrong < 2**63
            reason = "Invalid" if is_integer else "TypeInvalid"
            is_number = type(wrong) in (int, float)
            more = {("<nil>", "Invalid")} if is_number and not is_integer else set()
            assert {(f"spec.{field}", reason), *more} == faults(**{field: wrong})


def test_answers_are_one_for_each_claim() -> None:
    client = Client()
    assert set() == client.faults("POST", SCHEDULINGS, scheduling())

    def status(*claims: Object) -> Faults:
        change = {"status": {"resourceClaims": [*claims]}}
        return client.faults("PATCH", f"{SCHEDULINGS}/p/status", change)

    at = "status.resourceClaims"
    full = {"name": "a", "claimUID": "u", "unsuitableNodes": nodes(128), "observedRound": 3}
    assert set() == status() == status(full, {"name": "b"})
    assert {(f"{at}[1]", "Duplicate")} == status({"name": "a"}, {"name": "a", "claimUID": "v"})
    assert {(f"{at}[0].name", "Required")} == status({}) == status({"name": ""})
    assert {(f"{at}[0].name", "Invalid")} == status({"name": "a.b"})
    assert {(f"{at}[0].claimUID", "TooLong")} == status({"name": "a", "claimUID": "x" * 129})
    assert {(f"{at}[0].observedRound", "Invalid")} == status({"name": "a", "observedRound": -1})
    lists = f"{at}[0].unsuitableNodes"
    assert {(lists, "TooMany")} == status({"name": "a", "unsuitableNodes": nodes(129)})
    assert {(f"{lists}[1]", "Duplicate")} == status({"name": "a", "unsuitableNodes": ["n", "n"]})
    assert {(f"{lists}[0]", "Invalid")} == status({"name": "a", "unsuitableNodes": ["N"]})
    assert set() == status(*({"name": f"c{i}"} for i in range(256)))
    assert {(at, "TooMany")} == status(*({"name": f"c{i}"} for i in range(257)))
    wrong = client.faults("PATCH", f"{SCHEDULINGS}/p/status", {"status": {"resourceClaims": {}}})
    assert {(at, "TypeInvalid")} == wrong


# Annotations of claims


def annotated(**annotations: str) -> Object:
    names = {"mode": MODE, "flag": FLAG, "pod_claim": POD_CLAIM}
    body = claim(exactly())
    body["metadata"]["annotations"] = {names[k]: v for k, v in annotations.items()}
    return body


def test_mode_of_a_claim_is_one_of_two_and_stays() -> None:
    at = f"metadata.annotations[{MODE}]"
    assert {(at, "NotSupported")} == Client().faults("POST", CLAIMS, annotated(mode="Later"))
    assert {(at, "NotSupported")} == Client().faults("POST", CLAIMS, annotated(mode=""))
    for first in ("Immediate", "WaitForFirstConsumer", None):
        client = Client()
        given = annotated() if first is None else annotated(mode=first)
        assert set() == client.faults("POST", CLAIMS, given)
        for then in {"Immediate", "WaitForFirstConsumer", None} - {first}:
            change = {"metadata": {"annotations": {MODE: then}}}
            assert {(at, "Invalid")} == client.faults("PATCH", f"{CLAIMS}/c", change)
        change = {"metadata": {"annotations": {"other": "x"}}}
        assert set() == client.faults("PATCH", f"{CLAIMS}/c", change)


def test_reason_of_a_deallocation_is_short_and_may_come_and_go() -> None:
    at = f"metadata.annotations[{FLAG}]"
    client = Client()
    assert {(at, "TooLong")} == client.faults("POST", CLAIMS, annotated(flag="x" * 257))
    assert set() == client.faults("POST", CLAIMS, annotated())
    for value in ("x" * 256, "ä" * 128, "", None):
        change = {"metadata": {"annotations": {FLAG: value}}}
        assert set() == client.faults("PATCH", f"{CLAIMS}/c", change)
    change = {"metadata": {"annotations": {FLAG: "ä" * 129}}}
    assert {(at, "TooLong")} == client.faults("PATCH", f"{CLAIMS}/c", change)


@pytest.mark.behaviour("S0.5")
def test_claims_that_are_made_for_a_pod_wait_for_it() -> None:
    at = f"metadata.annotations[{MODE}]"
    made = annotated(mode="Immediate", pod_claim="gpu")
    assert {(at, "Forbidden")} == Client().faults("POST", CLAIMS, made)
    made = annotated(mode="WaitForFirstConsumer", pod_claim="gpu")
    assert set() == Client().faults("POST", CLAIMS, made)
    client = Client()
    assert set() == client.faults("POST", CLAIMS, annotated(mode="Immediate"))
    change = {"metadata": {"annotations": {POD_CLAIM: "gpu"}}}
    assert {(at, "Forbidden")} == client.faults("PATCH", f"{CLAIMS}/c", change)


@pytest.mark.behaviour("S0.5")
def test_templates_make_claims_that_wait() -> None:
    def template(**annotations: str) -> Faults:
        body = annotated(**annotations)
        meta = {"annotations": body["metadata"]["annotations"]}
        given = {"metadata": {"name": "t"}, "spec": {"metadata": meta, "spec": body["spec"]}}
        return Client().faults("POST", TEMPLATES, given)

    at = "spec.metadata.annotations"
    assert set() == template() == template(mode="WaitForFirstConsumer")
    assert {(f"{at}[{MODE}]", "Forbidden")} == template(mode="Immediate")
    assert {(f"{at}[{MODE}]", "NotSupported")} == template(mode="Later")
    assert {(f"{at}[{FLAG}]", "TooLong")} == template(flag="x" * 257)
