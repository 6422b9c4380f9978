"""Leaves unknown plugins out of a KubeSchedulerConfiguration.

Must not know which plugins exist: the caller says which names are known, and what implements an
extension point.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

import msgspec

from stower.framework.configuration import (
    DEFAULT_PLUGINS,
    ProfileConfiguration,
    expand_multi_point,
    merge_multi_point,
    parse_configuration,
    plugin_sets,
)
from stower.model.raw import without_nulls

Object = dict[str, Any]

# Extension points at which a profile needs a plugin: no profile can be built without.
REQUIRED_POINTS: Final = ("queueSort", "bind")
# Extension points at which a profile that has no plugin left places pods in another way.
TOLD_POINTS: Final = ("filter", "score")
ALL: Final = "*"  # the name that stands for all default plugins of an extension point


class UnknownPlugins(msgspec.Struct, frozen=True):
    """The plugins of one profile that are not known, by name and sorted.

    `enabled` are enabled at an extension point; `others` are only disabled or configured.
    `replaced` are the names at each required extension point whose only plugins are unknown, with
    the default that takes their place. `empty` are extension points without a plugin.
    """

    profile: str
    enabled: tuple[str, ...]
    others: tuple[str, ...] = ()
    replaced: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted((*self.enabled, *self.others)))


def without_unknown_plugins(
    document: Mapping[str, Any], known: Container[str], points: Mapping[str, Container[str]]
) -> tuple[Object, list[UnknownPlugins]]:
    """Returns the document without plugins that are not `known`, and what is left out, by profile.

    A plugin is left out of all extension points, with its weight and arguments. Where the only
    plugin of a profile for queueSort or bind is an unknown one, the default takes its place.
    `points` holds the known plugins that implement queueSort, bind, filter and score. The document
    is not changed. Raises InvalidObject for a document that is no configuration.
    """
    given = without_nulls(document)
    config = parse_configuration(given)
    profiles = [*(given.get("profiles") or ({},))]
    found = []
    for i, profile in enumerate(config.profiles):
        unknown = _unknown_plugins(profile, f"profiles[{i}]", known, points)
        if not unknown.names:
            continue
        found.append(unknown)
        profiles[i] = _without(profiles[i], known)
        for point, _, default in unknown.replaced:
            # All profiles must have the same plugin for queueSort: the only one that is known.
            for j in range(len(profiles)) if point == "queueSort" else (i,):
                profiles[j] = _with_only(profiles[j], point, default)
    return ({**given, "profiles": profiles} if found else given), found


def _unknown_plugins(
    profile: ProfileConfiguration,
    path: str,
    known: Container[str],
    points: Mapping[str, Container[str]],
) -> UnknownPlugins:
    sets = plugin_sets(profile.plugins).values()
    enabled = {ref.name for one in sets for ref in one.enabled if ref.name not in known} - {ALL}
    others = {ref.name for one in sets for ref in one.disabled} - {ALL}
    others |= {config.name for config in profile.plugin_config}
    enabled_names = {
        point: _names_at(profile, point, points[point], known)
        for point in (*REQUIRED_POINTS, *TOLD_POINTS)
    }
    without_known = {
        point: names
        for point, names in enabled_names.items()
        if names and not any(name in known or name == ALL for name in names)
    }
    return UnknownPlugins(
        profile.scheduler_name or path,
        tuple(sorted(enabled)),
        tuple(sorted(name for name in others - enabled if name not in known)),
        tuple(
            (point, without_known[point], _default_of(points[point]))
            for point in REQUIRED_POINTS
            if point in without_known
        ),
        tuple(point for point in TOLD_POINTS if point in without_known),
    )


def _names_at(
    profile: ProfileConfiguration, point: str, implementing: Container[str], known: Container[str]
) -> tuple[str, ...]:
    """Returns the names of the plugins at an extension point, in order. An unknown plugin of
    multiPoint may implement the point, so it is one of them."""
    multi_point = tuple(
        ref
        for ref in merge_multi_point(profile.plugins.multi_point)
        if ref.name in implementing or ref.name not in known
    )
    own = plugin_sets(profile.plugins)[point]
    return tuple(ref.name for ref in expand_multi_point(multi_point, own))


def _default_of(implementing: Container[str]) -> str:
    """Returns the default plugin of an extension point."""
    return next(name for name, _ in DEFAULT_PLUGINS if name in implementing)


def _without(profile: Object, known: Container[str]) -> Object:
    """Returns a profile of a document without the plugins that are not known."""
    result = {**profile}
    if "plugins" in profile:
        result["plugins"] = {
            point: {field: _known_entries(refs, known) for field, refs in plugin_set.items()}
            for point, plugin_set in profile["plugins"].items()
        }
    if "pluginConfig" in profile:
        result["pluginConfig"] = _known_entries(profile["pluginConfig"], known)
    return result


def _known_entries(entries: list[Object], known: Container[str]) -> list[Object]:
    return [entry for entry in entries if entry["name"] == ALL or entry["name"] in known]


def _with_only(profile: Object, point: str, name: str) -> Object:
    """Returns a profile of a document that has one plugin at the extension point."""
    only = {"disabled": [{"name": ALL}], "enabled": [{"name": name}]}
    return {**profile, "plugins": {**profile.get("plugins", {}), point: only}}
