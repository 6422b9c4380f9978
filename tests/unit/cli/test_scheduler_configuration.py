"""Where a configuration is read from: a file, a ConfigMap, other documents beside, a recording."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.configuration_files import InputError
from stower.cli.main import VERBS, app
from stower.cli.scheduler_configuration import (
    read_configuration_document,
    read_scheduler_configuration,
)
from stower.framework.configuration import API_VERSION, KIND

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
OPTION = "--ignore-unknown-plugins"
FOREIGN = HEAD + "profiles: [{schedulerName: a, plugins: {score: {enabled: [{name: Load}]}}}]\n"
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-1}
status:
  allocatable: {cpu: 4, memory: 8Gi, pods: 10}
  capacity: {cpu: 4, memory: 8Gi, pods: 10}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {schedulerName: a, containers: [{name: c, image: i}]}
"""


def config_map(name: str, **data: str) -> str:
    meta = {"name": name, "namespace": "ns"}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def read(path: Path, *documents: str) -> dict[str, Any]:
    path.write_text("\n---\n".join(documents))
    return read_configuration_document(str(path))


def refusal(path: Path, *documents: str) -> str:
    with pytest.raises(InputError) as caught:
        read(path, *documents)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    "documents",
    [
        (HEAD + "parallelism: 3",),
        (CLUSTER, HEAD + "parallelism: 3", POD),
        (config_map("c", other="x: 1", any_name=HEAD + "parallelism: 3\nextenders: null"),),
        (config_map("c", j=json.dumps({"apiVersion": API_VERSION, "kind": KIND,
                                       "parallelism": 3})), CLUSTER),
        (f"apiVersion: v1\nkind: List\nitems: [{config_map('c', k=HEAD + 'parallelism: 3')}]",),
        (config_map("a", notes=f"a {KIND} is: {{"), config_map("c", k=HEAD + "parallelism: 3")),
    ],
)  # fmt: skip
def test_the_one_configuration_of_a_file_is_found(
    documents: tuple[str, ...], tmp_path: Path
) -> None:
    want = {"apiVersion": API_VERSION, "kind": KIND, "parallelism": 3}
    assert want == read(tmp_path / "c.yaml", *documents)


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ((CLUSTER, config_map("c", a="b")),
         f"no {KIND}, want one, alone or in a ConfigMap; got Node node-1, ConfigMap ns/c"),
        ((config_map("c", one=HEAD, two=HEAD), HEAD),
         f"3 {KIND}s, want one: ConfigMap ns/c (key one), ConfigMap ns/c (key two), "
         f"{KIND} (document 2)"),
        (("",), f"no documents, want a {KIND}"),
        ((config_map("c", k=HEAD + "parallelism: [\n"),),
         "ConfigMap ns/c, key k: line 4, column 1: "),
        ((config_map("c", k=f"kind: {KIND}\n"),),
         'ConfigMap ns/c, key k: apiVersion: got nothing, want text such as "v1"'),
    ],
)  # fmt: skip
def test_none_or_several_are_refused_with_their_names(
    documents: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path / "c.yaml", *documents).startswith(said)


def test_many_names_are_cut(tmp_path: Path) -> None:
    said = refusal(tmp_path / "c.yaml", *[config_map(f"c{i}") for i in range(12)])
    assert said.endswith("ConfigMap ns/c9 and 2 more")


def test_an_older_version_in_a_config_map_names_convert(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(config_map("c", k=f"apiVersion: {API_VERSION}beta2\nkind: {KIND}\n"))
    with pytest.raises(InputError, match="`stower config convert` makes it so"):
        read_scheduler_configuration(str(path), False)


def test_plugins_that_are_only_disabled_or_configured_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kube-scheduler accepts them, and a wrong name would go unseen."""
    path = tmp_path / "c.yaml"
    profile = "{plugins: {score: {disabled: [{name: NodeResourceFit}]}}, pluginConfig: [{name: X}]}"
    path.write_text(HEAD + f"profiles: [{profile}]\n")
    found = read_scheduler_configuration(str(path), False)
    assert "NodeResourceFit" == found["profiles"][0]["plugins"]["score"]["disabled"][0]["name"]
    assert capsys.readouterr().err == (
        f"stower: {path}: profile default-scheduler: unknown plugins that are only disabled or "
        "configured have no effect: NodeResourceFit (did you mean NodeResourcesFit?), X\n"
    )


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A configuration with a foreign plugin, a cluster, a pod, and a recording of all."""
    texts = {"config": FOREIGN, "cluster": CLUSTER + "---" + POD, "pod": POD.replace("web", "new")}
    found = {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        found[name] = str(path)
    recording = tmp_path / "recording.ndjson"
    known = tmp_path / "known.yaml"
    known.write_text(HEAD + "profiles: [{schedulerName: a}]\n")
    told = ("simulate", found["cluster"], "--config", str(known), "--record", str(recording))
    assert 0 == CliRunner().invoke(app, told).exit_code
    plain, foreign = '"schedulerName":"a"', '"plugins":{"filter":{"enabled":[{"name":"Load"}]}},'
    text = recording.read_text()
    assert plain in text
    recording.write_text(text.replace(plain, foreign + plain, 1))
    return {**found, "recording": str(recording)}


RUNS = (
    "simulate CLUSTER", "explain pod web CLUSTER", "fit POD CLUSTER", "drain-check node-1 CLUSTER",
    "what-if CLUSTER --add-nodes 1", "sweep CLUSTER --jobs 1", "warm all CLUSTER",
    "fit --until-full --node-template CLUSTER CLUSTER", "rebalance --plan CLUSTER",
    "config defaults", "config check",
)  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_each_verb_ignores_foreign_plugins_with_the_option_only(
    run: str, files: dict[str, str]
) -> None:
    text = run.replace("CLUSTER", files["cluster"]).replace("POD", files["pod"])
    verb = text.split() + ([] if "config" in run else ["--config"]) + [files["config"]]
    refused = CliRunner().invoke(app, verb)
    assert (2, True) == (refused.exit_code, OPTION in refused.stderr), refused.stderr
    assert 'profiles[0].plugins.score.enabled[0].name: got "Load", want ' in refused.stderr
    found = CliRunner().invoke(app, [*verb, OPTION])
    assert 0 == found.exit_code, found.stderr
    line = f"stower: {files['config']}: profile a: unknown plugins are ignored: Load "
    assert 1 == found.stderr.count(line)


@pytest.mark.parametrize(
    "run",
    ["replay", "rebalance --plan", "explain pod web", "drain-check node-1", "what-if --add-nodes 1",
     "simulate", "sweep --jobs 1 --seeds 2"],
)  # fmt: skip
def test_the_configuration_of_a_recording_is_treated_alike(run: str, files: dict[str, str]) -> None:
    verb = [*run.split(), files["recording"]]
    refused = CliRunner().invoke(app, verb)
    assert (2, True) == (refused.exit_code, OPTION in refused.stderr), refused.output
    found = CliRunner().invoke(app, [*verb, OPTION])
    assert ("drain-check" in run) == found.exit_code, found.stderr  # there is no other node
    line = "stower: recording: profile a: unknown plugins are ignored: Load "
    assert 1 == found.stderr.count(line)


TAKING = (
    "config", "drain-check", "explain", "faults", "fit", "hub", "rebalance", "replay", "run",
    "simulate", "sweep", "up", "warm", "what-if",
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_the_option_of_each_verb_that_reads_a_configuration(verb: str) -> None:
    said = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).stdout
    assert (verb in TAKING) == (OPTION in said)
    if verb in TAKING and verb not in ("config", "replay"):
        assert "--config" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("leaderElection: {leaderElec: true}",
         'leaderElection: got "leaderElec", want a known field: did you mean leaderElect?'),
        ("leaderElection: {resourceNam: x}", "did you mean resourceName or resourceNamespace?"),
        ("leaderElection: {zebra: 1}", 'leaderElection: got "zebra", want a known field\n'),
        ("clientConnection: {contentTypes: x}",
         'clientConnection: got "contentTypes", want a known field: did you mean contentType'),
        ("leaderElect: {}", '$: got "leaderElect", want a known field: did you mean '
         "leaderElection?"),
    ],
)  # fmt: skip
def test_unknown_fields_name_what_may_have_been_meant(text: str, said: str) -> None:
    found = CliRunner().invoke(app, ["config", "check", "-"], input=HEAD + text + "\n")
    assert (2, True) == (found.exit_code, said in found.stderr), found.stderr
    meant = found.stderr.partition("did you mean ")[2]
    assert meant.replace(" or ", ", ").count(",") <= 2
