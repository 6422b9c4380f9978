"""stower config: check, defaults, convert."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stower.assembly import build_profiles
from stower.cli.main import app
from stower.framework.configuration import API_VERSION, read_configuration
from stower.framework.plugin import Features

HEAD = f"apiVersion: {API_VERSION}\nkind: KubeSchedulerConfiguration\n"
FIT = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: %s}}]}]\n"


def config(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, output, what is told beside it."""
    result = CliRunner().invoke(app, ["config", *arguments], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def args_fault(name: str, args: str) -> str:
    """What is said of these arguments."""
    code, _, told = config(
        "check", "-", stdin=HEAD + f"profiles: [{{pluginConfig: [{{name: {name}, args: {args}}}]}}]"
    )
    assert 2 == code
    return "\n".join(
        line.removeprefix("stower: error: -: profiles[0].pluginConfig[0].args.")
        for line in told.splitlines()
    )


def meaning(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """All that a configuration makes of its profiles."""
    profiles = build_profiles(read_configuration(document), Features())
    return [
        (name, [p.name for p in q.filters], [(p.name, w) for p, w in q.scores],
         [p.name for p in q.post_filters], sorted(q.weights.items()))
        for name, q in profiles.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("DefaultPreemption", "{minCandidateNodesPercentage: 101}",
         "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"),
        ("DefaultPreemption", "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
         "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as "
         "minCandidateNodesAbsolute\n"
         "minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as "
         "minCandidateNodesPercentage"),
        ("InterPodAffinity", "{hardPodAffinityWeight: -1}",
         "hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"),
        ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}",
         "resources[0].weight: Invalid value: 2: must be 1"),
        ("NodeResourcesFit", "{scoringStrategy: {type: Best}}",
         'scoringStrategy.type: Unsupported value: "Best": supported values: "LeastAllocated", '
         '"MostAllocated", "RequestedToCapacityRatio"'),
        ("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}",
         "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type "
         "is RequestedToCapacityRatio"),
        ("PodTopologySpread", "{defaultingType: List, defaultConstraints: [{maxSkew: 0}]}",
         "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)\n"
         "defaultConstraints[0].topologyKey: Required value: can not be empty\n"
         "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty"),
        ("PodTopologySpread", "{defaultingType: List, defaultConstraints: [{maxSkew: 1, "
         "topologyKey: -a, whenUnsatisfiable: Never}]}",
         'defaultConstraints[0].topologyKey: Invalid value: "-a": name part must consist of '
         "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
         "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
         "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\n"
         'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: '
         '"DoNotSchedule", "ScheduleAnyway"'),
        ("NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
         "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, "
         "{key: a, operator: Gt, values: [x]}, {key: a, operator: Like}]}]}}}",
         "@[0].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty\n"
         "@[1].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an "
         "integer\n"
         '@[2].operator: Unsupported value: "Like": supported values: "In", "NotIn", "Exists", '
         '"DoesNotExist", "Gt", "Lt"'),
        ("PodTopologySpread", "{defaultConstraints: [{maxSkew: 1, topologyKey: a, "
         "whenUnsatisfiable: DoNotSchedule}]}",
         'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'),
        ("DynamicResources", "{filterTimeout: -1s}",
         'filterTimeout: Invalid value: "-1s": must be zero or positive'),
        ("DynamicResources", "{bindingTimeout: 10ms}",
         'bindingTimeout: Invalid value: "10ms": must be at least 1 second'),
        ("VolumeBinding", "{kind: InterPodAffinityArgs}",
         'kind: Invalid value: "InterPodAffinityArgs": args for plugin VolumeBinding were not of '
         "type VolumeBindingArgs"),
        ("VolumeBinding", "{bindTimeoutSeconds: -1}",
         "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a "
         "negative value"),
    ],
)  # fmt: skip
def test_arguments_are_refused_in_kube_schedulers_words(name: str, args: str, said: str) -> None:
    at = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    assert said.replace("@", f"{at}.matchExpressions") == args_fault(name, args)


@pytest.mark.parametrize(
    ("extenders", "said"),
    [
        ("[{urlPrefix: 'http://x', prioritizeVerb: p}]",
         "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"),
        ("[{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', bindVerb: b}]",
         "only one extender can implement bind"),
        ("[{urlPrefix: 'http://x', managedResources: [{name: cpu}]}]",
         'managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name'),
        ("[{filterVerb: f}]", "extenders[0].urlPrefix: Required value"),
        ("[{urlPrefix: 'http://x', httpTimeout: soon}]", "extenders[0].httpTimeout: Invalid"),
    ],
)  # fmt: skip
def test_extenders_that_make_no_sense_are_refused(extenders: str, said: str) -> None:
    code, _, told = config("check", "-", stdin=HEAD + f"extenders: {extenders}\n")
    assert 2 == code
    assert said in told


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("clientConnection: {burst: -1}", "clientConnection.burst: Invalid value: -1"),
        ("clientConnection: {qps: x}", "clientConnection.qps: got"),
        (
            "leaderElection: {resourceLock: endpoints}",
            'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock',
        ),
        ("leaderElection: {leaseDuration: 5s}", "leaderElection.leaseDuration"),
    ],
)
def test_what_only_a_running_scheduler_needs_is_checked_as_well(fields: str, said: str) -> None:
    code, _, told = config("check", "-", stdin=HEAD + fields + "\n")
    assert 2 == code
    assert said in told


def test_check_says_of_each_file_what_it_is(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(HEAD + "percentageOfNodesToScore: 50\nprofiles: [{schedulerName: a}]\n")
    bad.write_text(HEAD + FIT % "{type: Best}")
    code, out, told = config("check", str(good), str(bad))
    assert 2 == code
    assert f"{good}: ok, profiles: a\n" == out
    assert "percentageOfNodesToScore: no effect" in told
    assert f"error: {bad}: profiles[0]" in told
    code, out, _ = config("check", str(good), "--output", "json")
    assert (0, ["a"]) == (code, json.loads(out)[0]["profiles"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: []", '$: got "profile", want a known field: did you mean profiles?'),
        ("profiles: [{schedulerNam: x}]", "profiles[0]: got \"schedulerNam\", want a known field: "
         "did you mean schedulerName?"),
        ("zebra: 1", '$: got "zebra", want a known field\n'),
        ("profiles: [{plugins: {score: {enabled: [{name: NodeResourceFit}]}}}]",
         "got \"NodeResourceFit\", want a plugin: did you mean NodeResourcesFit?"),
        ("profiles: [{plugins: {score: {enabled: [{name: Zebra}]}}}]", "want one of Autoscale"),
    ],
)  # fmt: skip
def test_what_may_have_been_meant_is_told(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head + text + "\n")
    found = CliRunner().invoke(app, ["config", "check", str(path)])
    assert (2, True) == (found.exit_code, said in found.stderr), found.stderr


def test_an_older_version_names_what_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    version = "kubescheduler.config.k8s.io/v1beta2"
    path.write_text(f"apiVersion: {version}\nkind: KubeSchedulerConfiguration\n")
    found = CliRunner().invoke(app, ["config", "check", str(path)])
    assert (2, True) == (found.exit_code, "`stower config convert` makes it so" in found.stderr)


def test_check_says_what_cannot_be_disabled(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "profiles: [{plugins: {permit: {disabled: [{name: GangScheduling}]}}}]")
    code, _, told = config("check", str(path))
    assert 0 == code
    assert "profiles[0]: GangScheduling is part of the engine: disabling it has no effect" in told


@pytest.mark.parametrize(
    "own",
    [
        "",
        "profiles: [{plugins: {multiPoint: {disabled: [{name: NodePorts}]}}}]\n",
        "profiles: [{plugins: {multiPoint: {disabled: [{name: ImageLocality}]}, "
        "score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}}}]\n",
        FIT % "{type: MostAllocated}",
    ],
)
def test_what_defaults_prints_means_the_same(own: str) -> None:
    code, out, _ = config("defaults", "-", stdin=HEAD + own)
    assert 0 == code
    assert meaning(yaml.safe_load(HEAD + own)) == meaning(yaml.safe_load(out))


def test_the_defaults_of_negotiated_resources_are_told() -> None:
    code, out, _ = config("defaults", "--output", "json")
    (profile,) = json.loads(out)["profiles"]
    args = {each["name"]: each["args"] for each in profile["pluginConfig"]}
    assert (0, {
        "apiVersion": API_VERSION, "kind": "NegotiatedResourcesArgs", "answerTimeout": "30s",
        "bindingTimeout": "10m0s", "refreshPeriod": "30s", "selectionTimeout": "30s",
    }) == (code, args["NegotiatedResources"])  # fmt: skip


def test_an_older_version_is_converted_and_what_is_lost_is_told() -> None:
    old = (
        "apiVersion: kubescheduler.config.k8s.io/v1beta2\nkind: KubeSchedulerConfiguration\n"
        "healthzBindAddress: ''\nprofiles:\n- schedulerName: a\n  plugins:\n    score:\n"
        "      enabled: [{name: SelectorSpread}, {name: ImageLocality, weight: 7}]\n"
    )
    code, out, told = config("convert", "-", stdin=old)
    assert 0 == code
    assert [("ImageLocality", 7)] == [
        (ref["name"], ref["weight"])
        for ref in yaml.safe_load(out)["profiles"][0]["plugins"]["score"]["enabled"]
    ]
    assert "SelectorSpread removed" in told
    assert "healthzBindAddress" in told
    assert "the default weights of v1 apply" in told
    assert 0 == config("check", "-", stdin=out)[0]


OLD_SCORES = """
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: a
  plugins:
    score:
      disabled: [{name: NodeResourcesLeastAllocated}]
      enabled: [{name: %s, weight: 5}]
  pluginConfig:
  - {name: %s, args: {resources: [{name: cpu, weight: 3}], %s}}
"""
SHAPE = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]


@pytest.mark.parametrize(
    ("plugin", "args", "strategy"),
    [
        ("NodeResourcesMostAllocated", "", {"type": "MostAllocated"}),
        ("RequestedToCapacityRatio", f"shape: {json.dumps(SHAPE)}",
         {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": SHAPE}}),
    ],
)  # fmt: skip
def test_what_scored_by_resources_becomes_a_strategy(
    plugin: str, args: str, strategy: dict[str, Any]
) -> None:
    code, out, told = config("convert", "-", stdin=OLD_SCORES % (plugin, plugin, args))
    assert 0 == code
    profile = yaml.safe_load(out)["profiles"][0]
    assert [{"name": "NodeResourcesFit", "weight": 5}] == profile["plugins"]["score"]["enabled"]
    (fit,) = profile["pluginConfig"]
    strategy = {**strategy, "resources": [{"name": "cpu", "weight": 3}]}
    assert strategy == fit["args"]["scoringStrategy"]
    assert f"{plugin} replaced by the scoring strategy {strategy['type']}" in told
    made = build_profiles(read_configuration(yaml.safe_load(out)), Features())["a"]
    assert [5] == [w for p, w in made.scores if p.name == "NodeResourcesFit"]


def test_what_cannot_be_merged_is_told_and_left_out() -> None:
    old = OLD_SCORES % ("NodeResourcesMostAllocated", "NodeResourcesMostAllocated", "")
    old = old.replace("enabled: [", "enabled: [{name: NodeResourcesFit, weight: 2}, ")
    code, out, told = config("convert", "-", stdin=old)
    assert 0 == code
    profile = yaml.safe_load(out)["profiles"][0]
    assert [{"name": "NodeResourcesFit", "weight": 2}] == profile["plugins"]["score"]["enabled"]
    assert "NodeResourcesMostAllocated removed: NodeResourcesFit is enabled too" in told


def test_faults_of_all_kinds_are_told_together() -> None:
    bad = (
        "parallelism: -1\nleaderElection: {resourceLock: x}\n"
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}, "
        "{name: VolumeBinding, args: {bindTimeoutSeconds: -1, shape: []}}]}]\n"
    )
    code, _, told = config("check", "-", stdin=HEAD + bad)
    fields = ("resourceLock", "parallelism", "hardPodAffinityWeight", "bindTimeoutSeconds", "shape")
    assert (2, len(fields)) == (code, len(told.splitlines()))
    assert all(f"{field}: Invalid value" in told for field in fields)


def test_certificates_of_extenders_are_read() -> None:
    extender = "{urlPrefix: 'https://x', tlsConfig: {caFile: /no/such/file}}"
    code, _, told = config("check", "-", stdin=HEAD + f"extenders: [{extender}]\n")
    assert 2 == code
    assert "extenders[0].tlsConfig" in told


def test_wrong_use_is_one_line() -> None:
    assert (2, "", "stower: error: check: want at least one FILE\n") == config("check")
    code, _, told = config("convert", "-", stdin="apiVersion: v1\nkind: Pod\n")
    assert 2 == code
    assert "-: no KubeSchedulerConfiguration, want one, alone or in a ConfigMap; got Pod" in told
