"""The kinds of stower.dev, as users meet them: kubectl, restarts, definitions that come and go."""

import json
from pathlib import Path

from stower.api.definitions import DEFINITIONS
from stower.apiserver.server_process import Options
from tests.contract.servers import in_thread
from tests.contract.test_kubectl import Kubectl, kubectl, pytestmark
from tests.unit.api.test_negotiation_rules import (
    CLASSES,
    SCHEDULINGS,
    resource_class,
    scheduling,
)

__all__ = ["kubectl", "pytestmark"]
DEPLOY = Path(__file__).parents[2] / "deploy"


def test_kubectl_applies_explains_and_lists(kubectl: Kubectl) -> None:
    for parameters, said in (({"a": 1}, "created"), ({"b": []}, "configured"),
                             ({"b": []}, "unchanged")):  # fmt: skip
        text = json.dumps(resource_class(parameters=parameters))
        assert said in kubectl.run("apply", "-f", "-", stdin=text).stdout
    kubectl.run("create", "-f", "-", stdin=json.dumps(scheduling(selectedNode="n1", round=2)))
    listed = kubectl.run("get", "podschedulings").stdout.splitlines()
    assert ["NAME", "SELECTED", "ROUND", "ATTEMPT", "AGE"] == listed[0].split()
    assert ["p", "n1", "2"] == listed[1].split()[:3]
    listed = kubectl.run("get", "resourceclasses").stdout.splitlines()
    assert ["gpu", "gpu.example.com"] == listed[1].split()[:2]
    said = kubectl.run("explain", "podscheduling.spec.round").stdout
    assert "The number of the list in potentialNodes" in said


def test_manifests_may_be_applied_and_deleted(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", stdin=json.dumps(resource_class()))
    for verb in ("apply", "delete"):
        said = kubectl.run(verb, "-k", str(DEPLOY / "negotiation"))
        assert 0 == said.returncode, said.stderr
        assert "gpu.example.com" in kubectl.run("get", "resourceclasses").stdout


def test_objects_outlive_restarts_whatever_is_defined(tmp_path: Path) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with in_thread(Options(tmp_path)) as (_, client):
        client.call("POST", CLASSES, resource_class())
        client.call("POST", crds, DEFINITIONS[0])
        client.call("POST", SCHEDULINGS, scheduling(round=1))
    with in_thread(Options(tmp_path)) as (_, client):
        assert "gpu" == client.call("GET", f"{CLASSES}/gpu")[1]["metadata"]["name"]
        assert 422 == client.call("POST", CLASSES, resource_class(driverName="a_b"))[0]
        assert 200 == client.call("DELETE", f"{crds}/resourceclasses.stower.dev")[0]
    with in_thread(Options(tmp_path)) as (_, client):
        assert 200 == client.call("GET", f"{CLASSES}/gpu")[0]
        assert 1 == client.call("GET", f"{SCHEDULINGS}/p")[1]["spec"]["round"]
