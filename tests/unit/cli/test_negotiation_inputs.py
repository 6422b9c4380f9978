"""ResourceClasses, PodSchedulings and modes of allocation in files: checked as the API does it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests.unit.api.test_negotiation_rules import (
    MODE,
    OWNER,
    annotated,
    nodes,
    resource_class,
    scheduling,
)
from tests.unit.cli.test_claims import TEMPLATE, ask
from tests.unit.cli.test_cluster_inputs import node

Object = dict[str, Any]
STATUS = {"resourceClaims": [{"name": "gpu", "unsuitableNodes": ["n1"], "observedRound": 1}]}
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
PATH = f"metadata.annotations[{MODE}]"


def said(tmp_path: Path, obj: Object) -> str:
    """What is wrong with an object, in the command's words."""
    path = tmp_path / "in.json"
    path.write_text("\n".join(json.dumps(each) for each in (node("n1"), obj)))
    run = CliRunner().invoke(app, ["simulate", str(path)])
    assert 2 == run.exit_code, run.stdout
    return run.stderr.replace("\n", " ")


def template(mode: str) -> Object:
    spec = {"metadata": {"annotations": {MODE: mode}}, **TEMPLATE["spec"]}
    return {**TEMPLATE, "spec": spec}


def test_what_the_api_takes_is_taken(tmp_path: Path) -> None:
    suitable = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    objects = [
        node("n1"),
        resource_class(parameters={"a": [1]}, suitableNodes=suitable),
        {**scheduling(potentialNodes=["n1"], round=1), "status": STATUS},
        {**scheduling(), "metadata": {"name": "q", "ownerReferences": [{**OWNER, "name": "q"}]}},
        {**CLAIM, **annotated(mode="Immediate")},
        template("WaitForFirstConsumer"),
    ]
    assert {} == ask("simulate", tmp_path, objects)["skipped"]


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (resource_class(driverName="a_b"), 'driverName: Invalid value: "a_b"'),
        (resource_class(parameters={"a": "x" * 10_240}), "parameters: Too long"),
        (resource_class(suitableNodes={}), "suitableNodes.nodeSelectorTerms: Required value"),
        (scheduling(potentialNodes=nodes(129)), "spec.potentialNodes: Too many: 129"),
        (scheduling(round=-1), "spec.round: Invalid value: -1"),
        ({**scheduling(), "status": {"resourceClaims": [*STATUS["resourceClaims"]] * 2}},
         'status.resourceClaims[1]: Duplicate value: "gpu"'),
        ({**scheduling(), "metadata": {"name": "p"}}, "metadata.ownerReferences: Required value"),
        ({**CLAIM, **annotated(mode="Later")}, f'{PATH}: Unsupported value: "Later"'),
        (template("Immediate"), f"spec.{PATH}: Forbidden: claims that are created for a pod must"),
    ],
)  # fmt: skip
def test_what_the_api_refuses_is_refused(tmp_path: Path, obj: Object, text: str) -> None:
    assert text in said(tmp_path, obj)
