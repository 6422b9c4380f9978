"""Reads, defaults and validates a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).

Source: kube-scheduler config/v1/types.go, apis/config/v1/defaults.go, apis/config/validation,
apis/config/v1/default_plugins.go (mergePlugins), framework/runtime (expandMultiPointPlugins).

Must not know which plugins exist.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.framework.args import Args, convert, duplicate, invalid, raise_faults, required
from stower.framework.extenders import Extender, extender_faults
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.errors import InvalidObject
from stower.model.raw import without_nulls

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
OLD_VERSIONS: Final = ("v1beta1", "v1beta2", "v1beta3")  # that conversion.py reads
# Plugins whose arguments have a type of their own in the configuration API.
TYPED_ARGS: Final = (
    "DefaultPreemption", "DynamicResources", "InterPodAffinity", "NodeAffinity",
    "NodeResourcesBalancedAllocation", "NodeResourcesFit", "PodTopologySpread", "VolumeBinding",
)  # fmt: skip
KIND: Final = "KubeSchedulerConfiguration"

# Weights are int32 upstream. The bound also keeps every total score within int64.
INT32_MAX: Final = 2**31 - 1

# Plugins that are not part of this version of the configuration any more (validation.go).
REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

REMOVED_PLUGIN_MESSAGE: Final = (
    f'was invalid in version "{API_VERSION}" '
    f'(KubeSchedulerConfiguration is version "{API_VERSION}")'
)

# kube-scheduler 1.36's default multiPoint plugins, in order, with their weights, and
# NegotiatedResources.
DEFAULT_PLUGINS: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("NegotiatedResources", 0),  # Stower's own; has no effect without a ResourceClass
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)


class PluginRef(Args, frozen=True):
    """A plugin's name and weight. Weight 0 stands for the default."""

    name: str
    weight: int = 0


class PluginSet(Args, frozen=True):
    """The plugins that an extension point adds to the defaults, and those that it removes ("*":
    all)."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(Args, frozen=True, rename="camel"):
    """A profile's plugin sets by extension point."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()


class PluginConfig(Args, frozen=True):
    """The arguments of one plugin."""

    name: str
    args: dict[str, Any] | None = None


class ProfileConfiguration(Args, frozen=True, rename="camel"):
    """A profile: a scheduler name, its plugins and their arguments."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ClientConnection(Args, frozen=True, rename="camel"):
    """The connection of kube-scheduler to its API server. `stower run` has its own options for the
    connection."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: int = 0


class Configuration(Args, frozen=True, rename="camel"):
    """A whole KubeSchedulerConfiguration. Sections that other modules read are kept as they are."""

    api_version: str = API_VERSION
    kind: str = KIND
    parallelism: int = 16
    leader_election: dict[str, Any] | None = None
    client_connection: dict[str, Any] | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    # Read and validated, without effect: all nodes are always considered.
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[ProfileConfiguration, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False


def read_configuration(document: Mapping[str, Any] | None) -> Configuration:
    """Returns the configuration of a decoded document, with defaults, validated. None stands for
    all defaults.

    Raises InvalidObject that names the wrong fields.
    """
    config = parse_configuration(document)
    raise_faults(configuration_faults(config))
    return config


def parse_configuration(document: Mapping[str, Any] | None) -> Configuration:
    """Returns the configuration of a decoded document, with defaults, not validated. A null stands
    for a field that is left out, arguments of plugins included. Raises InvalidObject where a field
    has the wrong type."""
    given = without_nulls(document or {})
    api_version = given.get("apiVersion", API_VERSION)
    if isinstance(api_version, str) and api_version != API_VERSION:
        # First: an older version has other fields.
        group, _, version = api_version.partition("/")
        is_old = group == API_VERSION.partition("/")[0] and version in OLD_VERSIONS
        want = f"{API_VERSION} (`stower config convert` makes it so)" if is_old else API_VERSION
        raise InvalidObject("apiVersion", api_version, want)
    config = convert(given, Configuration, "")
    if config.kind != KIND:
        raise InvalidObject("kind", config.kind, KIND)
    profiles = config.profiles or (ProfileConfiguration(),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        named = msgspec.structs.replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME)
        profiles = (named,)
    return msgspec.structs.replace(config, profiles=profiles)


def configuration_faults(config: Configuration) -> Iterator[InvalidObject]:
    """Yields what is wrong with the configuration, except in the arguments of plugins."""
    client = convert(config.client_connection or {}, ClientConnection, "clientConnection")
    if client.burst < 0:
        yield invalid("clientConnection.burst", client.burst, "must be non-negative")
    if config.parallelism <= 0:
        text = "should be an integer value greater than zero"
        yield invalid("parallelism", config.parallelism, text)
    if config.parallelism > INT32_MAX:
        yield invalid("parallelism", config.parallelism, f"must be at most {INT32_MAX}")
    seen: dict[str, int] = {}
    for i, profile in enumerate(config.profiles):
        path = f"profiles[{i}]"
        name = profile.scheduler_name or ""
        if not name:
            yield required(f"{path}.schedulerName")
        yield from _profile_faults(profile, path)
        if name in seen:
            yield duplicate(f"{path}.schedulerName", f"profiles[{seen[name]}].schedulerName")
        seen[name] = i
    for i, profile in enumerate(config.profiles):
        if profile.plugins.queue_sort != config.profiles[0].plugins.queue_sort:
            path = f"profiles[{i}].plugins.queueSort"
            yield invalid(path, profile.plugins.queue_sort, "must be the same for all profiles")
    yield from _percentage_faults("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    initial, maximum = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if maximum < initial:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", maximum, text)
    yield from extender_faults(config.extenders)


def _profile_faults(profile: ProfileConfiguration, path: str) -> Iterator[InvalidObject]:
    yield from _percentage_faults(
        f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score
    )
    for field, plugin_set in plugin_sets(profile.plugins).items():
        for j, plugin in enumerate(plugin_set.enabled):
            item_path = f"{path}.plugins.{field}.enabled[{j}]"
            if plugin.name in REMOVED_PLUGINS:
                yield invalid(item_path, plugin.name, REMOVED_PLUGIN_MESSAGE)
            if not 0 <= plugin.weight <= INT32_MAX:
                yield InvalidObject(
                    f"{item_path}.weight", plugin.weight, f"a value in 0 to {INT32_MAX}"
                )
    names = [c.name for c in profile.plugin_config]
    for j, plugin_config in enumerate(profile.plugin_config):
        name, item_path = plugin_config.name, f"{path}.pluginConfig[{j}]"
        if name in names[:j]:
            yield duplicate(item_path, name)
        if name in REMOVED_PLUGINS:
            yield invalid(item_path, name, REMOVED_PLUGIN_MESSAGE)
        yield from _args_type_faults(plugin_config, f"{item_path}.args")


def _args_type_faults(config: PluginConfig, path: str) -> Iterator[InvalidObject]:
    """Yields an apiVersion or kind of the arguments that is not the plugin's (DecodeNestedObjects).
    Either may be left out."""
    args = config.args or {}
    if config.name not in TYPED_ARGS:
        return
    for field, want in (("apiVersion", API_VERSION), ("kind", f"{config.name}Args")):
        got = args.get(field) or want
        if got != want:
            text = f"args for plugin {config.name} were not of type {want}"
            yield invalid(f"{path}.{field}", got, text)


def _percentage_faults(path: str, value: int | None) -> Iterator[InvalidObject]:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


def plugin_sets(plugins: Plugins) -> dict[str, PluginSet]:
    """Returns the plugin sets by the extension point's name in the configuration."""
    fields = msgspec.structs.fields(Plugins)
    return {field.encode_name: getattr(plugins, field.name) for field in fields}


def own_plugin_sets(plugins: Plugins) -> dict[str, Any]:
    """Returns a profile's own plugin sets as a document has them, without multiPoint and without
    empty sets."""
    result = {}
    for name, plugin_set in plugin_sets(plugins).items():
        if name != "multiPoint" and (plugin_set.enabled or plugin_set.disabled):
            result[name] = {
                field: [
                    {"name": ref.name, "weight": ref.weight} if ref.weight else {"name": ref.name}
                    for ref in refs
                ]
                for field, refs in (
                    ("enabled", plugin_set.enabled), ("disabled", plugin_set.disabled)
                )
                if refs
            }  # fmt: skip
    return result


def merge_multi_point(custom: PluginSet) -> tuple[PluginRef, ...]:
    """Returns the default plugins merged with a profile's multiPoint set, in order.

    A default plugin that is configured again keeps its place; new plugins come last
    (mergePluginSet).
    """
    disabled = {plugin.name for plugin in custom.disabled}
    # Where a plugin is enabled twice, the last entry replaces the default and the first is
    # appended, as upstream: the duplicate is an error later.
    entry_by_name = {plugin.name: (i, plugin) for i, plugin in enumerate(custom.enabled)}
    result = []
    replaced = set()
    if "*" not in disabled:
        for name, weight in DEFAULT_PLUGINS:
            if name in disabled:
                continue
            i, plugin = entry_by_name.get(name, (-1, PluginRef(name, weight)))
            replaced.add(i)
            result.append(plugin)
    result += [plugin for i, plugin in enumerate(custom.enabled) if i not in replaced]
    return tuple(result)


def expand_multi_point(multi_point: tuple[PluginRef, ...], own: PluginSet) -> tuple[PluginRef, ...]:
    """Returns the plugins of one extension point: first multiPoint plugins that the point's own set
    configures again, then the other multiPoint plugins, then the rest of the own set.

    `multi_point` must hold only plugins that implement the point (expandMultiPointPlugins).
    """
    disabled = {plugin.name for plugin in own.disabled}
    if "*" in disabled:
        return own.enabled
    configured = {plugin.name for plugin in own.enabled}
    from_multi = [p for p in multi_point if p.name not in disabled and p.name not in configured]
    kept = {p.name for p in multi_point if p.name not in disabled}
    overrides = [p for p in own.enabled if p.name in kept]
    rest = [p for p in own.enabled if p.name not in kept]
    return (*overrides, *from_multi, *rest)
