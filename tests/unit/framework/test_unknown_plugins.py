"""Leaving unknown plugins out of a configuration."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stower.assembly import OF_THE_ENGINE, build_profiles
from stower.framework.configuration import DEFAULT_PLUGINS, Plugins, plugin_sets, read_configuration
from stower.framework.plugin import ExtensionPoint, Features, implements
from stower.framework.unknown_plugins import UnknownPlugins, without_unknown_plugins
from stower.model.errors import InvalidObject
from stower.plugins import PLUGINS

KNOWN = frozenset((*(plugin.name for plugin in PLUGINS), *OF_THE_ENGINE))
POINTS = {
    point.value: frozenset(p.name for p in PLUGINS if implements(p, point))
    for point in ExtensionPoint
}


def refs(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def left_out(*profiles: dict[str, Any]) -> tuple[list[dict[str, Any]], list[UnknownPlugins]]:
    """Returns the profiles without unknown plugins, and these; the result can be built."""
    document = {"profiles": [*profiles]}
    before = copy.deepcopy(document)
    after, unknown = without_unknown_plugins(document, KNOWN, POINTS)
    assert before == document
    build_profiles(read_configuration(after), Features())
    return after["profiles"], unknown


def test_a_document_of_known_plugins_stays_as_it_is() -> None:
    profile = {"plugins": {"score": {"enabled": refs("NodeResourcesFit"), "disabled": refs("*")}}}
    assert ([profile], []) == left_out(profile)
    assert ({}, []) == without_unknown_plugins({}, KNOWN, POINTS)


def test_an_unknown_plugin_is_left_out_of_all_points_with_its_arguments() -> None:
    found, unknown = left_out(
        {
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Gang", "weight": 4}, *refs("ImageLocality")]},
                "filter": {"enabled": refs("Gang"), "disabled": refs("Quota", "NodePorts")},
            },
            "pluginConfig": [
                {"name": "Gang", "args": {"a": 1}},
                {"name": "Load", "args": {}},
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 2}},
            ],
        }
    )
    assert [
        {
            "plugins": {
                "multiPoint": {"enabled": refs("ImageLocality")},
                "filter": {"enabled": [], "disabled": refs("NodePorts")},
            },
            "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 2}}],
        }
    ] == found
    assert [UnknownPlugins("default-scheduler", ("Gang",), ("Load", "Quota"))] == unknown
    assert ("Gang", "Load", "Quota") == unknown[0].names


@pytest.mark.parametrize(
    ("plugins", "point", "names", "default"),
    [
        ({"queueSort": {"enabled": refs("Gang"), "disabled": refs("*")}},
         "queueSort", ("Gang",), "PrioritySort"),
        ({"multiPoint": {"enabled": refs("Gang"), "disabled": refs("PrioritySort")}},
         "queueSort", ("Gang",), "PrioritySort"),
        ({"bind": {"enabled": refs("Fast"), "disabled": refs("DefaultBinder")}},
         "bind", ("Fast",), "DefaultBinder"),
    ],
)  # fmt: skip
def test_the_default_replaces_an_unknown_plugin_that_a_profile_needs(
    plugins: dict[str, Any], point: str, names: tuple[str, ...], default: str
) -> None:
    (profile,), (unknown,) = left_out({"plugins": plugins})
    assert ((point, names, default),) == unknown.replaced
    only = {"enabled": refs(default), "disabled": refs("*")}
    assert only == profile["plugins"][point]


def test_all_profiles_get_the_queue_sort_that_one_of_them_needs() -> None:
    needs = {"multiPoint": {"enabled": refs("Gang"), "disabled": refs("PrioritySort")}}
    profiles, unknown = left_out({"schedulerName": "a", "plugins": needs}, {"schedulerName": "b"})
    assert ["a"] == [one.profile for one in unknown]
    assert profiles[0]["plugins"]["queueSort"] == profiles[1]["plugins"]["queueSort"]


def test_a_profile_that_never_had_a_needed_plugin_is_refused() -> None:
    """Nothing unknown stood there, so nothing is replaced."""
    plugins = {"queueSort": {"disabled": refs("*")}, "filter": {"enabled": refs("Gang")}}
    with pytest.raises(InvalidObject, match="queueSort"):
        left_out({"plugins": plugins})


def test_points_without_a_plugin_are_named() -> None:
    score = {"enabled": refs("Load"), "disabled": refs("*")}
    _, (unknown,) = left_out({"plugins": {"score": score, "filter": {"disabled": refs("*")}}})
    assert ("score",) == unknown.empty  # there was no plugin at filter before


names = st.sampled_from((*(name for name, _ in DEFAULT_PLUGINS), "Gang", "Load", "Quota", "*"))
entries = st.lists(names, max_size=3, unique=True)


@given(
    st.dictionaries(
        st.sampled_from([*plugin_sets(Plugins())]),
        st.fixed_dictionaries({}, optional={"enabled": entries, "disabled": entries}),
        max_size=4,
    )
)
def test_no_unknown_plugin_stays_and_no_known_one_goes(drawn: dict[str, Any]) -> None:
    plugins = {
        point: {field: refs(*found) for field, found in plugin_set.items()}
        for point, plugin_set in drawn.items()
    }
    after, unknown = without_unknown_plugins({"profiles": [{"plugins": plugins}]}, KNOWN, POINTS)
    replaced = {point for one in unknown for point, _, _ in one.replaced}
    found = after["profiles"][0]["plugins"]
    for point, plugin_set in plugins.items():
        for field, given_refs in plugin_set.items():
            if point not in replaced:
                kept = [ref for ref in given_refs if ref["name"] in KNOWN or ref["name"] == "*"]
                assert kept == found[point][field]
    told = {name for one in unknown for name in one.names}
    all_names = {ref["name"] for one in plugins.values() for each in one.values() for ref in each}
    assert all_names - KNOWN - {"*"} == told
