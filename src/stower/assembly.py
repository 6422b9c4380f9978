"""From a configuration to a running engine: the first file that knows both plugins and engine."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS, Limits
from stower.framework.args import raise_faults
from stower.framework.configuration import (
    Configuration,
    PluginConfig,
    PluginRef,
    PluginSet,
    ProfileConfiguration,
    expand_multi_point,
    merge_multi_point,
    plugin_sets,
    read_configuration,
)
from stower.framework.explanation import ExplanationClass
from stower.framework.plugin import ExtensionPoint, Features, Plugin, implements
from stower.framework.plugin_guard import guard_plugin
from stower.framework.profile import DEFAULT_SCHEDULER_NAME, Profile
from stower.framework.stopwatch import DISABLED_STOPWATCH, Stopwatch
from stower.model.errors import InvalidObject, closest
from stower.model.kinds import Pod
from stower.plugins import PLUGINS

FIT = "NodeResourcesFit"
# Plugins of kube-scheduler whose work the engine does for every profile, as a tree of groups is
# placed as a whole: a configuration may name them, and that changes nothing.
OF_THE_ENGINE = frozenset(
    (
        "GangScheduling",
        "PodGroupPodsCount",
        "TopologyPlacementGenerator",
    )
)
# Extension points that kube-scheduler's plugins implement and ours do not: the work is done at
# another point, or by the engine. A configuration may enable the plugins there, and that changes
# nothing. Source: the interface assertions of kube-scheduler's plugins.
UPSTREAM_POINTS = {
    "preEnqueue": frozenset(("DefaultPreemption",)),
    "preFilter": frozenset(
        (
            "InterPodAffinity",
            "NodeDeclaredFeatures",
            "NodePorts",
            "NodeResourcesFit",
            "NodeVolumeLimits",
            "PodTopologySpread",
        )
    ),
    "preScore": frozenset(
        (
            "InterPodAffinity",
            "NodeAffinity",
            "NodeResourcesBalancedAllocation",
            "NodeResourcesFit",
            "PodTopologySpread",
            "TaintToleration",
            "VolumeBinding",
        )
    ),
    "score": frozenset(("VolumeBinding",)),
    "preBind": frozenset(("DynamicResources", "VolumeBinding")),
}
# Ends the error for an unknown plugin.
IGNORED = "--ignore-unknown-plugins leaves out plugins that Stower does not know"


def build_engine(
    document: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    features: Features | None = None,
    cycles_per_step_max: int = Limits().cycles_per_step_max,
    plugins: tuple[type[Plugin], ...] = (),
    stopwatch: Stopwatch = DISABLED_STOPWATCH,
    contains_errors: bool = True,
) -> Engine:
    """An engine for a KubeSchedulerConfiguration (decoded; None: all defaults).

    cycles_per_step_max: fewer where something waits while the engine decides; plugins: of others,
    which the configuration may name; stopwatch: times attempts and plugins; contains_errors:
    whether an internal error concerns one entity alone, else a step raises it. Raises InvalidObject
    that names the field at fault.
    """
    config = read_configuration(document)
    limits = Limits(
        backoff_initial_ns=config.pod_initial_backoff_seconds * SECOND_NS,
        backoff_max_ns=config.pod_max_backoff_seconds * SECOND_NS,
        cycles_per_step_max=cycles_per_step_max,
    )
    features = features or Features()
    profiles = build_profiles(config, features, plugins)
    counts_claims = features.dynamic_resource_allocation and features.devices.node_allocatable
    for profile in profiles.values():
        for plugin in profile.plugins.values():
            stopwatch.instrument(plugin)
    engine = Engine(
        profiles, seed, limits, config.extenders, counts_claims, features.groups, stopwatch
    )
    engine.state.groups.has_composite_groups = features.composite_groups
    engine.errors.is_containing = contains_errors
    engine.trial_placement.classifier = partial(_classify, engine)
    return engine


def _classify(engine: Engine, pod: Pod) -> tuple[ExplanationClass, str]:
    from stower.engine.explain.probe import classify_pod  # takes time to import

    return classify_pod(engine, pod)


def build_profiles(
    config: Configuration, features: Features, plugins: tuple[type[Plugin], ...] = ()
) -> dict[str, Profile]:
    """The configuration's profiles by scheduler name. Raises InvalidObject for all their faults."""
    # What an extender counts itself, nobody else counts.
    ignored = tuple(
        resource.name
        for extender in config.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    profiles = {}
    faults = []
    enabled = frozenset(name for given in config.profiles for name in _enabled_names(given))
    for i, given in enumerate(config.profiles):
        try:
            profile = _profile(
                _ignoring(given, ignored), f"profiles[{i}]", features, plugins, enabled
            )
            profiles[profile.scheduler_name] = profile
        except InvalidObject as error:
            faults.append(error)
    faults += _differences(config, {plugin.name: plugin for plugin in (*plugins, *PLUGINS)})
    raise_faults(faults)
    return profiles


def _differences(
    config: Configuration, known: Mapping[str, type[Plugin]]
) -> Iterator[InvalidObject]:
    """Yields an error for each profile that configures a plugin with a companion otherwise than the
    first profile does: all profiles share one instance of the plugin."""
    said: dict[str, tuple[int, Mapping[str, Any] | None]] = {}
    for i, profile in enumerate(config.profiles):
        for j, given in enumerate(profile.plugin_config):
            plugin = known.get(given.name)
            if plugin is None or plugin.companion is Plugin.companion:
                continue
            first, args = said.setdefault(given.name, (i, given.args))
            if args != given.args:
                path = f"profiles[{i}].pluginConfig[{j}].args"
                want = f"those of {given.name} in profiles[{first}]: all profiles share the plugin"
                yield InvalidObject(path, "other arguments", want)


def _ignoring(profile: ProfileConfiguration, names: tuple[str, ...]) -> ProfileConfiguration:
    """The profile, with these as NodeResourcesFit's ignored resources: they take precedence."""
    if not names:
        return profile
    fit = next((c for c in profile.plugin_config if c.name == FIT), PluginConfig(FIT))
    args = {**(fit.args or {}), "ignoredResources": [*names]}
    others = tuple(c for c in profile.plugin_config if c.name != FIT)
    return msgspec.structs.replace(profile, plugin_config=(*others, PluginConfig(FIT, args)))


def _profile(
    config: ProfileConfiguration,
    path: str,
    features: Features,
    others: tuple[type[Plugin], ...],
    enabled_anywhere: frozenset[str],
) -> Profile:
    """`enabled_anywhere`: names of the plugins that some profile enables."""
    known = {plugin.name: plugin for plugin in (*others, *PLUGINS)}  # ours, where names are equal
    sets = plugin_sets(config.plugins)
    # First, so that no eviction is tried on nodes that lack the images of a pod: what refuses there
    # is what wakes the pod when the images come.
    multi_point = (
        *_also(config, features, enabled_anywhere),
        *merge_multi_point(config.plugins.multi_point),
    )
    named = [(f"{path}.plugins.multiPoint", ref) for ref in multi_point]
    for field, plugin_set in sets.items():
        at = f"{path}.plugins.{field}.enabled"
        named += [(f"{at}[{i}].name", ref) for i, ref in enumerate(plugin_set.enabled)]
    for at, ref in named:
        if ref.name not in known and ref.name not in OF_THE_ENGINE:
            names = sorted((*known, *OF_THE_ENGINE))
            close = closest(ref.name, names)
            want = f"a plugin: did you mean {close}?" if close else f"one of {', '.join(names)};"
            raise InvalidObject(at, ref.name, f"{want} {IGNORED}")
    _check_once(config.plugins.multi_point.enabled, f"{path}.plugins.multiPoint.enabled")
    elsewhere = {"multiPoint", *(point.value for point in ExtensionPoint)}
    for field in sorted(set(sets) - elsewhere):
        # None of the plugins takes part there: what does is the engine's.
        _check_point(sets[field].enabled, field, None, known, f"{path}.plugins.{field}.enabled")
    enabled = {ref.name for _, ref in named}
    alone = _build(config, path, known, enabled, features)
    among = {name: plugin for name, plugin in alone.items() if name in enabled}
    filters = frozenset(r.name for r in _expand(multi_point, sets, known, ExtensionPoint.FILTER))
    built = {name: plugin.with_profile_plugins(among, filters) for name, plugin in alone.items()}
    points: dict[ExtensionPoint, tuple[Plugin, ...]] = {}
    weights: dict[str, int] = {}
    for point in ExtensionPoint:
        chosen = _expand(multi_point, sets, known, point)
        field = point.value
        _check_point(sets[field].enabled, field, point, known, f"{path}.plugins.{field}.enabled")
        points[point] = tuple(
            built[ref.name]
            for ref in chosen
            if ref.name in built and implements(known[ref.name], point)
        )
        if point is ExtensionPoint.SCORE:
            # A weight of 0 stands for one that was not given.
            weights = {ref.name: ref.weight or 1 for ref in chosen}
    if len(points[ExtensionPoint.QUEUE_SORT]) != 1:
        raise InvalidObject(
            f"{path}.plugins.queueSort",
            len(points[ExtensionPoint.QUEUE_SORT]),
            "exactly one plugin",
        )
    if not points[ExtensionPoint.BIND]:
        raise InvalidObject(f"{path}.plugins.bind", "no plugin", "at least one")
    name = config.scheduler_name or DEFAULT_SCHEDULER_NAME
    without_point = tuple(
        built[ref.name]
        for ref in multi_point
        if ref.name in built and not any(implements(known[ref.name], p) for p in ExtensionPoint)
    )
    return Profile(name, points, weights, without_point)


def _enabled_names(config: ProfileConfiguration) -> set[str]:
    sets = [config.plugins.multi_point, *plugin_sets(config.plugins).values()]
    return {ref.name for one in sets for ref in one.enabled}


def _also(
    config: ProfileConfiguration, features: Features, enabled_anywhere: frozenset[str]
) -> list[PluginRef]:
    """Plugins that their arguments enable, the objects that they are about, or a plugin of another
    profile."""
    sets = [config.plugins.multi_point, *plugin_sets(config.plugins).values()]
    named = {ref.name for one in sets for ref in (*one.enabled, *one.disabled)}
    given = {one.name for one in config.plugin_config}
    has_defaults = all(ref.name != "*" for ref in config.plugins.multi_point.disabled)
    others = enabled_anywhere - _enabled_names(config)

    def is_enabled(plugin: type[Plugin]) -> bool:
        if plugin.enabled_beside in others and has_defaults:
            return True
        by_objects = features.warm_pools and has_defaults
        return bool(plugin.enabling_plugin) and (by_objects or plugin.enabling_plugin in given)

    return [
        PluginRef(plugin.name, plugin.default_weight)
        for plugin in PLUGINS
        if plugin.name not in named and is_enabled(plugin)
    ]


def _build(
    config: ProfileConfiguration,
    path: str,
    known: Mapping[str, type[Plugin]],
    wanted: Iterable[str],
    features: Features,
) -> dict[str, Plugin]:
    """One instance per plugin; arguments of plugins that are not enabled are checked all the
    same.
    """
    args: dict[str, tuple[Mapping[str, Any] | None, str]] = {
        c.name: (c.args, f"{path}.pluginConfig[{i}].args")
        for i, c in enumerate(config.plugin_config)
    }
    names = sorted({*wanted, *args} & set(known))
    built = {}
    faults = []
    for name in names:
        try:
            built[name] = _made(known[name], *args.get(name, (None, path)), features=features)
        except InvalidObject as error:
            faults.append(error)
    raise_faults(faults)
    return built


def _made(
    kind: type[Plugin], args: Mapping[str, Any] | None, path: str, *, features: Features
) -> Plugin:
    if kind in PLUGINS:
        return kind.from_args(args, path, features)
    try:
        return guard_plugin(kind.from_args(args, path, features))
    except InvalidObject:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidObject(
            path, kind.name, f"arguments that the plugin accepts ({reason})"
        ) from error


def _check_point(
    chosen: Iterable[PluginRef],
    field: str,
    point: ExtensionPoint | None,
    known: Mapping[str, type[Plugin]],
    path: str,
) -> None:
    """Checks that each plugin is named once and implements the point (None: no plugin does), here
    or in kube-scheduler.

    Raises InvalidObject.
    """
    _check_once(chosen, path)
    for i, ref in enumerate(chosen):
        if ref.name in OF_THE_ENGINE or ref.name in UPSTREAM_POINTS.get(field, ()):
            continue
        if point is None or not implements(known[ref.name], point):
            raise InvalidObject(
                f"{path}[{i}].name", ref.name, "a plugin that implements this extension point"
            )


def _expand(
    multi_point: tuple[PluginRef, ...],
    sets: Mapping[str, PluginSet],
    known: Mapping[str, type[Plugin]],
    point: ExtensionPoint,
) -> tuple[PluginRef, ...]:
    """Returns the plugins that are enabled at the extension point, in order."""
    here = [
        ref for ref in multi_point if ref.name not in known or implements(known[ref.name], point)
    ]
    return expand_multi_point(tuple(here), sets[point.value])


def _check_once(chosen: Iterable[PluginRef], path: str) -> None:
    seen = set()
    for i, ref in enumerate(chosen):
        if ref.name in seen:
            raise InvalidObject(f"{path}[{i}].name", ref.name, "each plugin once")
        seen.add(ref.name)
