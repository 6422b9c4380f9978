"""Views of a cluster: the exit code for a name that the cluster does not have."""

import importlib
import json
from pathlib import Path

import pytest

from tests.unit.cli.served import invoke
from tests.unit.cli.test_cluster_inputs import node


@pytest.mark.parametrize("verb", ["devices", "groups", "negotiations", "vms", "warm"])
def test_an_unknown_name_ends_with_the_exit_code_that_help_names(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(node("n1")))
    told = invoke(verb, "nobody", path)
    assert (2, "") == (told.exit_code, told.stdout)
    assert told.stderr.startswith("stower: error: got 'nobody', want ")
    help_text = " ".join(importlib.import_module(f"stower.cli.verbs.{verb}").EPILOG.split())
    _, _, named = help_text.partition(f"The exit code is {told.exit_code} if there is ")
    assert named.startswith("neither such a VM nor such a node " if verb == "vms" else "no such ")


@pytest.mark.parametrize("verb", ["devices", "groups", "vms", "warm"])
def test_a_cluster_without_any_is_no_error(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(node("n1")))
    told = invoke(verb, "all", path)
    assert (0, "") == (told.exit_code, told.stderr)
    assert told.stdout.startswith(("There are no ", "No "))
