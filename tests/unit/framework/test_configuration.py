"""KubeSchedulerConfiguration: defaults, merging of plugin sets, and every check of a field."""

from typing import Any

import pytest

from stower.assembly import OF_THE_ENGINE, UPSTREAM_POINTS, build_profiles
from stower.framework.configuration import (
    API_VERSION,
    DEFAULT_PLUGINS,
    INT32_MAX,
    KIND,
    REMOVED_PLUGINS,
    PluginRef,
    PluginSet,
    expand_multi_point,
    merge_multi_point,
    read_configuration,
)
from stower.framework.plugin import Features
from stower.framework.profile import Profile
from stower.model.errors import InvalidObject
from stower.plugins import PLUGINS

# The built ones among the default plugins, in the default order.
FILTERS = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NegotiatedResources",  # Stower's own
    "NodeDeclaredFeatures",
]
SCORES = [
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodeResourcesFit", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
]


def refs(*names: str | tuple[str, int]) -> list[dict[str, Any]]:
    return [{"name": n} if isinstance(n, str) else {"name": n[0], "weight": n[1]} for n in names]


def point(
    *enabled: str | tuple[str, int], disabled: tuple[str, ...] = ()
) -> dict[str, list[dict[str, Any]]]:
    return {"enabled": refs(*enabled), "disabled": refs(*disabled)}


def profiles_of(*profiles: dict[str, Any]) -> dict[str, Profile]:
    return build_profiles(read_configuration({"profiles": list(profiles)}), Features())


def profile_of(**plugins: Any) -> Profile:
    return profiles_of({"plugins": plugins})["default-scheduler"]


def filters(profile: Profile) -> list[str]:
    return [plugin.name for plugin in profile.filters]


def scores(profile: Profile) -> list[tuple[str, int]]:
    return [(plugin.name, weight) for plugin, weight in profile.scores]


def fault(document: dict[str, Any]) -> InvalidObject:
    with pytest.raises(InvalidObject) as error:
        build_profiles(read_configuration(document), Features())
    return error.value


def profile_fault(*profiles: dict[str, Any]) -> InvalidObject:
    return fault({"profiles": list(profiles)})


# Defaults


@pytest.mark.parametrize("document", [None, {}, {"apiVersion": API_VERSION, "kind": KIND}])
def test_an_empty_document_means_all_defaults(document: dict[str, Any] | None) -> None:
    config = read_configuration(document)
    assert 16 == config.parallelism
    assert (1, 10) == (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds)
    assert ["default-scheduler"] == [profile.scheduler_name for profile in config.profiles]


def test_the_default_profile_has_the_default_plugins_in_order_with_their_weights() -> None:
    profile = profile_of()
    assert FILTERS == filters(profile)
    assert SCORES == scores(profile)
    assert "PrioritySort" == profile.queue_sort.name
    gates = ["SchedulingGates", "DynamicResources"]
    assert gates == [plugin.name for plugin in profile.pre_enqueue]
    assert ["DefaultBinder"] == [plugin.name for plugin in profile.binders]


def test_each_default_plugin_is_built_or_part_of_the_engine() -> None:
    built = {plugin.name for plugin in PLUGINS}
    assert set() == {name for name, _ in DEFAULT_PLUGINS} - built - OF_THE_ENGINE
    assert set() == built & OF_THE_ENGINE


def test_what_the_engine_does_may_be_named_and_disabled() -> None:
    named = profile_of(
        multiPoint=point("GangScheduling"), permit=point(disabled=("GangScheduling",))
    )
    assert filters(profile_of()) == filters(named)


@pytest.mark.parametrize(
    "field",
    [
        "parallelism",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "percentageOfNodesToScore",
        "profiles",
        "extenders",
        "delayCacheUntilActive",
        "leaderElection",
    ],
)
def test_a_null_field_is_the_default(field: str) -> None:
    assert read_configuration(None) == read_configuration({field: None})


def test_null_plugin_sets_are_empty_ones() -> None:
    plugins = {"score": {"enabled": None, "disabled": [{"name": "ImageLocality", "weight": None}]}}
    profile = profiles_of({"plugins": plugins, "pluginConfig": None})["default-scheduler"]
    assert SCORES[:-1] == scores(profile)


# Merging of the multiPoint set (mergePluginSet)


def test_a_default_that_is_configured_again_keeps_its_place_and_changes_its_weight() -> None:
    profile = profile_of(multiPoint=point(("NodeAffinity", 7)))
    assert [("TaintToleration", 3), ("NodeAffinity", 7), *SCORES[2:]] == scores(profile)
    assert FILTERS == filters(profile)


def test_a_default_that_is_configured_again_without_a_weight_weighs_one() -> None:
    profile = profile_of(multiPoint=point("TaintToleration"))
    assert [("TaintToleration", 1), *SCORES[1:]] == scores(profile)


def test_a_disabled_default_is_gone_from_every_point() -> None:
    profile = profile_of(multiPoint=point(disabled=("TaintToleration",)))
    assert SCORES[1:] == scores(profile)
    assert [name for name in FILTERS if name != "TaintToleration"] == filters(profile)


def test_a_default_that_is_disabled_and_enabled_moves_to_the_end() -> None:
    profile = profile_of(multiPoint=point("NodeName", disabled=("NodeName",)))
    assert [name for name in FILTERS if name != "NodeName"] + ["NodeName"] == filters(profile)


def test_disabling_all_leaves_what_is_enabled_in_its_own_order() -> None:
    enabled = ("DefaultBinder", ("NodeResourcesFit", 4), "NodeName", "PrioritySort")
    profile = profile_of(multiPoint=point(*enabled, disabled=("*",)))
    assert ["NodeResourcesFit", "NodeName"] == filters(profile)
    assert [("NodeResourcesFit", 4)] == scores(profile)


def test_disabling_a_plugin_that_is_not_there_does_nothing() -> None:
    profile = profile_of(multiPoint=point(disabled=("Nonesuch",)))
    assert FILTERS == filters(profile)


def test_new_plugins_come_after_the_defaults() -> None:
    merged = merge_multi_point(PluginSet((PluginRef("Mine", 5), PluginRef("NodeName"))))
    assert [name for name, _ in DEFAULT_PLUGINS] + ["Mine"] == [plugin.name for plugin in merged]


def test_a_plugin_that_multi_point_names_twice_is_refused() -> None:
    """As upstream: the last one replaces the default, the first is a second registration."""
    twice = point(("TaintToleration", 5), ("TaintToleration", 7))
    error = profile_fault({"plugins": {"multiPoint": twice}})
    assert "TaintToleration" == error.got
    assert "each plugin once" == error.want


# Expansion to single points (expandMultiPointPlugins)


def test_a_points_own_weight_counts_and_puts_the_plugin_first() -> None:
    profile = profile_of(score=point(("ImageLocality", 9), ("NodeAffinity", 5)))
    others = [score for score in SCORES if score[0] not in ("ImageLocality", "NodeAffinity")]
    assert [("ImageLocality", 9), ("NodeAffinity", 5), *others] == scores(profile)
    assert FILTERS == filters(profile)


def test_a_plugin_named_at_a_point_without_a_weight_weighs_one_there() -> None:
    profile = profile_of(score=point("TaintToleration"))
    assert [("TaintToleration", 1), *SCORES[1:]] == scores(profile)


def test_a_plugin_disabled_at_a_point_stays_at_the_others() -> None:
    profile = profile_of(score=point(disabled=("TaintToleration",)))
    assert SCORES[1:] == scores(profile)
    assert FILTERS == filters(profile)


def test_a_plugin_disabled_and_enabled_at_a_point_comes_last() -> None:
    profile = profile_of(filter=point("NodeName", disabled=("NodeName",)))
    assert [name for name in FILTERS if name != "NodeName"] + ["NodeName"] == filters(profile)


def test_disabling_all_at_a_point_leaves_what_it_enables_itself() -> None:
    enabled = (("ImageLocality", 2), ("NodeResourcesFit", 3))
    profile = profile_of(score=point(*enabled, disabled=("*",)))
    assert list(enabled) == scores(profile)
    assert FILTERS == filters(profile)
    assert [] == scores(profile_of(score=point(disabled=("*",))))


def test_overrides_come_first_then_multi_point_then_the_rest() -> None:
    multi = tuple(PluginRef(name) for name in ("A", "B", "C", "D"))
    own = PluginSet(
        (PluginRef("X"), PluginRef("C", 2), PluginRef("B"), PluginRef("Y"), PluginRef("D")),
        (PluginRef("D"),),
    )
    names = [plugin.name for plugin in expand_multi_point(multi, own)]
    assert ["C", "B", "A", "X", "Y", "D"] == names


def test_several_profiles_have_their_own_plugins() -> None:
    profiles = profiles_of(
        {"schedulerName": "one", "plugins": {"score": point(disabled=("*",))}},
        {"schedulerName": "two", "plugins": {"multiPoint": point(("ImageLocality", 8))}},
    )
    assert ["one", "two"] == list(profiles)
    assert [] == scores(profiles["one"])
    assert [*SCORES[:-1], ("ImageLocality", 8)] == scores(profiles["two"])
    assert {"one": "one", "two": "two"} == {k: p.scheduler_name for k, p in profiles.items()}


# Checks


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "apiVersion"),
        ({"kind": "Pod"}, "kind"),
        ({"parallelism": 0}, "parallelism"),
        ({"parallelism": "many"}, "parallelism"),
        ({"parallelism": True}, "parallelism"),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore"),
        ({"percentageOfNodesToScore": -1}, "percentageOfNodesToScore"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds"),
        ({"podInitialBackoffSeconds": 11}, "podMaxBackoffSeconds"),
        ({"podInitialBackoffSeconds": 3, "podMaxBackoffSeconds": 2}, "podMaxBackoffSeconds"),
        ({"podMaxBackoffSeconds": 1.5}, "podMaxBackoffSeconds"),
        ({"profiles": {}}, "profiles"),
        ({"profiles": [3]}, "profiles[0]"),
        ({"leaderElection": 3}, "leaderElection"),
    ],
)
def test_a_fault_of_the_document_names_the_field(document: dict[str, Any], path: str) -> None:
    assert path == fault(document).path


@pytest.mark.parametrize(
    ("profile", "path"),
    [
        ({"schedulerName": ""}, "schedulerName"),
        ({"schedulerName": 5}, "schedulerName"),
        ({"percentageOfNodesToScore": 200}, "percentageOfNodesToScore"),
        (
            {"plugins": {"score": point("NodeName", ("ImageLocality", -1))}},
            "plugins.score.enabled[1].weight",
        ),
        (
            {"plugins": {"multiPoint": point(("ImageLocality", INT32_MAX + 1))}},
            "plugins.multiPoint.enabled[0].weight",
        ),
        ({"plugins": {"filter": {"enabled": [{"weight": 1}]}}}, "plugins.filter.enabled[0].name"),
        ({"plugins": {"filter": {"enabled": ["NodeName"]}}}, "plugins.filter.enabled[0]"),
        ({"plugins": {"filter": point("Nonesuch")}}, "plugins.filter.enabled[0].name"),
        ({"plugins": {"postBind": point("Nonesuch")}}, "plugins.postBind.enabled[0].name"),
        ({"plugins": {"postBind": point("NodeName")}}, "plugins.postBind.enabled[0].name"),
        ({"plugins": {"multiPoint": point("Nonesuch")}}, "plugins.multiPoint"),
        ({"plugins": {"filter": point("ImageLocality")}}, "plugins.filter.enabled[0].name"),
        (
            {"plugins": {"filter": point("NodeName", "NodeName")}},
            "plugins.filter.enabled[1].name",
        ),
        ({"plugins": {"queueSort": point(disabled=("*",))}}, "plugins.queueSort"),
        ({"plugins": {"bind": point(disabled=("DefaultBinder",))}}, "plugins.bind"),
        ({"plugins": {"multiPoint": point(disabled=("*",))}}, "plugins.queueSort"),
        (
            {"pluginConfig": [{"name": "NodeName"}, {"name": "NodeName"}]},
            "pluginConfig[1]",
        ),
        ({"pluginConfig": [{"args": {}}]}, "pluginConfig[0].name"),
        ({"pluginConfig": [{"name": "NodeName", "args": []}]}, "pluginConfig[0].args"),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": 1}}]},
            "pluginConfig[0].args.ignoredResources",
        ),
    ],
)
def test_a_fault_of_a_profile_names_the_field(profile: dict[str, Any], path: str) -> None:
    good = {"schedulerName": "good", "plugins": {}}
    assert f"profiles[0].{path}" == profile_fault(profile).path
    if "queueSort" not in profile.get("plugins", {}):
        profile = {"schedulerName": "bad", **profile}
        assert f"profiles[1].{path}" == profile_fault(good, profile).path


@pytest.mark.parametrize(
    ("document", "path", "name"),
    [
        ({"podBackoff": 1}, "$", "podBackoff"),
        ({"profiles": [{"name": "x"}]}, "profiles[0]", "name"),
        ({"profiles": [{"plugins": {"filters": {}}}]}, "profiles[0].plugins", "filters"),
        (
            {"profiles": [{"plugins": {"score": {"enable": []}}}]},
            "profiles[0].plugins.score",
            "enable",
        ),
        (
            {"profiles": [{"plugins": {"score": {"disabled": [{"name": "*", "why": 1}]}}}]},
            "profiles[0].plugins.score.disabled[0]",
            "why",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"added": 1}}]}]},
            "profiles[0].pluginConfig[0].args",
            "added",
        ),
    ],
)
def test_an_unknown_field_is_refused(document: dict[str, Any], path: str, name: str) -> None:
    error = fault(document)
    assert (path, name, "a known field") == (error.path, error.got, error.want.partition(":")[0])


def test_arguments_may_say_their_own_version_and_kind() -> None:
    args = {
        "apiVersion": API_VERSION,
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": ["x.y/z"],
    }
    config = [{"name": "NodeResourcesFit", "args": args}]
    assert FILTERS == filters(profiles_of({"pluginConfig": config})["default-scheduler"])


@pytest.mark.parametrize("name", REMOVED_PLUGINS)
def test_a_removed_plugin_is_refused_wherever_it_is_named(name: str) -> None:
    error = profile_fault({"plugins": {"preBind": point("NodeName", name)}})
    assert "profiles[0].plugins.preBind.enabled[1]" == error.path
    error = profile_fault({"pluginConfig": [{"name": name}]})
    assert "profiles[0].pluginConfig[0]" == error.path


def test_every_one_of_several_profiles_needs_a_name_of_its_own() -> None:
    assert "profiles[1].schedulerName" == profile_fault({"schedulerName": "a"}, {}).path
    same = profile_fault({"schedulerName": "a"}, {"schedulerName": "b"}, {"schedulerName": "a"})
    assert "profiles[2].schedulerName" == same.path
    assert "profiles[0]" in same.want


def test_all_profiles_must_have_the_same_queue_sort() -> None:
    own = {"schedulerName": "c", "plugins": {"queueSort": point("PrioritySort")}}
    error = profile_fault({"schedulerName": "a"}, {"schedulerName": "b"}, own)
    assert "profiles[2].plugins.queueSort" == error.path


def test_backoff_fields_are_read_as_seconds() -> None:
    document = {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5}
    config = read_configuration(document)
    assert (5, 5) == (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds)


def test_fields_that_are_other_parts_business_are_kept() -> None:
    election = {"leaderElect": True, "leaseDuration": "15s"}
    config = read_configuration({"leaderElection": election, "enableProfiling": False})
    assert election == config.leader_election
    assert config.enable_profiling is False


# Arguments of the plugins that are about other pods


def spreading(**args: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": "PodTopologySpread", "args": args}]}


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"defaultingType": "Other"}, "defaultingType"),
        ({"defaultConstraints": [{"maxSkew": 1}]}, "defaultingType"),
        ({"defaultConstraints": [{"topologyKey": "a"}], "defaultingType": "List"},
         "defaultConstraints[0].maxSkew"),
        ({"defaultConstraints": [{"maxSkew": 1}], "defaultingType": "List"},
         "defaultConstraints[0].topologyKey"),
        ({"defaultConstraints": [{"maxSkew": 1, "topologyKey": "a"}], "defaultingType": "List"},
         "defaultConstraints[0].whenUnsatisfiable"),
    ],
)  # fmt: skip
def test_spreading_by_default_is_checked(args: dict[str, Any], field: str) -> None:
    assert f"profiles[0].pluginConfig[0].args.{field}" == profile_fault(spreading(**args)).path


def test_each_default_of_spreading_comes_once_and_selects_nobody_itself() -> None:
    one = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}
    at = "profiles[0].pluginConfig[0].args.defaultConstraints"
    twice = spreading(defaultConstraints=[one, one], defaultingType="List")
    assert f"{at}[1]" == profile_fault(twice).path
    selecting = spreading(defaultConstraints=[{**one, "labelSelector": {}}], defaultingType="List")
    assert f"{at}[0].labelSelector" == profile_fault(selecting).path


@pytest.mark.parametrize("weight", [-1, 101])
def test_the_weight_of_required_affinity_is_bounded(weight: int) -> None:
    args = {"hardPodAffinityWeight": weight}
    fault = profile_fault({"pluginConfig": [{"name": "InterPodAffinity", "args": args}]})
    assert "profiles[0].pluginConfig[0].args.hardPodAffinityWeight" == fault.path


@pytest.mark.parametrize(
    ("field", "name"),
    [(field, name) for field in UPSTREAM_POINTS for name in sorted(UPSTREAM_POINTS[field])],
)
def test_plugins_may_be_enabled_wherever_those_of_kube_scheduler_run(field: str, name: str) -> None:
    """Published configurations list the default plugins at each of their extension points."""
    enabled = profile_of(**{field: point(name)})
    assert (filters(profile_of()), scores(profile_of())) == (filters(enabled), scores(enabled))


def test_a_plugin_is_refused_where_that_of_kube_scheduler_does_not_run() -> None:
    error = profile_fault({"plugins": {"preScore": point("NodePorts")}})
    assert "profiles[0].plugins.preScore.enabled[0].name" == error.path
    assert "a plugin that implements this extension point" == error.want
