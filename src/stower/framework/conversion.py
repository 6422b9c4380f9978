"""Converts older versions of a KubeSchedulerConfiguration (v1beta1, v1beta2, v1beta3) to v1.

Source: the v1beta1, v1beta2 and v1beta3 types and conversions of Kubernetes 1.22 to 1.28.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.configuration import API_VERSION, OLD_VERSIONS, REMOVED_PLUGINS
from stower.model.errors import InvalidObject

Object = dict[str, Any]

OLD_FIELDS: Final = ("healthzBindAddress", "metricsBindAddress", "algorithmSource")
# Locks of leader election that Kubernetes 1.27 removed.
OLD_LOCKS: Final = ("configmaps", "configmapsleases", "endpoints", "endpointsleases")
FIT: Final = "NodeResourcesFit"
# Plugins of older versions that are scoring strategies of NodeResourcesFit in v1.
STRATEGIES: Final = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
OLD_PLUGINS: Final = (
    *REMOVED_PLUGINS, *STRATEGIES, "SelectorSpread", "NodeLabel", "ServiceAffinity",
    "NodePreferAvoidPods",
)  # fmt: skip


def convert_configuration(document: Mapping[str, Any]) -> tuple[Object, list[str]]:
    """Returns an older document converted to v1, and one line for each thing that the conversion
    drops or changes. Raises InvalidObject."""
    group, _, version = str(document.get("apiVersion", "")).partition("/")
    if group != API_VERSION.partition("/")[0] or version not in (*OLD_VERSIONS, "v1"):
        want = f"{API_VERSION} or one of its versions {', '.join(OLD_VERSIONS)}"
        raise InvalidObject("apiVersion", document.get("apiVersion"), want)
    result = {**document, "apiVersion": API_VERSION}
    changes = []
    for field in OLD_FIELDS:
        if result.pop(field, None) is not None:
            changes.append(f"{field}: removed, v1 has no such field")
    election = result.get("leaderElection")
    if isinstance(election, dict) and election.get("resourceLock") in OLD_LOCKS:
        lock = election["resourceLock"]
        result["leaderElection"] = {**election, "resourceLock": "leases"}
        changes.append(f"leaderElection.resourceLock: {lock} replaced by leases")
    if version in ("v1beta1", "v1beta2"):
        # The default weights of these plugins were 1 each before v1beta3.
        weights = "TaintToleration 3, NodeAffinity 2, InterPodAffinity 2"
        changes.append(f"{version}: the default weights of v1 apply ({weights})")
    profiles = result.get("profiles")
    if isinstance(profiles, list):
        result["profiles"] = [
            _convert_profile(p, f"profiles[{i}]", changes) if isinstance(p, dict) else p
            for i, p in enumerate(profiles)
        ]
    return result, changes


def _convert_profile(profile: Object, path: str, changes: list[str]) -> Object:
    result = _convert_scoring_plugin({**profile}, path, changes)
    profile = result
    if isinstance(profile.get("plugins"), dict):
        result["plugins"] = {
            point: _convert_plugin_set(plugin_set, f"{path}.plugins.{point}", changes)
            if isinstance(plugin_set, dict)
            else plugin_set
            for point, plugin_set in profile["plugins"].items()
        }
    if isinstance(profile.get("pluginConfig"), list):
        kept = []
        for entry in profile["pluginConfig"]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if name in OLD_PLUGINS:
                changes.append(f"{path}.pluginConfig: {name} removed, v1 has no such plugin")
                continue
            if isinstance(entry, dict) and isinstance(entry.get("args"), dict):
                args = {k: v for k, v in entry["args"].items() if k != "apiVersion"}
                if "apiVersion" in entry["args"]:
                    args = {"apiVersion": API_VERSION, **args}
                entry = {**entry, "args": args}
            kept.append(entry)
        result["pluginConfig"] = kept
    return result


def _convert_plugin_set(plugin_set: Object, path: str, changes: list[str]) -> Object:
    result = {**plugin_set}
    for field in ("enabled", "disabled"):
        entries = plugin_set.get(field)
        if not isinstance(entries, list):
            continue
        kept = []
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if name in OLD_PLUGINS:
                changes.append(f"{path}.{field}: {name} removed, v1 has no such plugin")
            else:
                kept.append(entry)
        result[field] = kept
    return result


def _convert_scoring_plugin(profile: Object, path: str, changes: list[str]) -> Object:
    """Returns the profile with a plugin that scored by resources replaced by its scoring strategy
    of NodeResourcesFit."""
    plugins = profile.get("plugins")
    score = plugins.get("score") if isinstance(plugins, dict) else None
    if not isinstance(plugins, dict) or not isinstance(score, dict):
        return profile
    enabled, disabled = (
        [entry for entry in score.get(field) or () if isinstance(entry, dict)]
        for field in ("enabled", "disabled")
    )
    old = next((entry for entry in enabled if entry.get("name") in STRATEGIES), None)
    if any(entry.get("name") == "NodeResourcesLeastAllocated" for entry in disabled):
        disabled.append({"name": FIT})
        changes.append(
            f"{path}.plugins.score.disabled: NodeResourcesLeastAllocated replaced by {FIT}"
        )
    if old is None:
        return {**profile, "plugins": {**plugins, "score": {**score, "disabled": disabled}}}
    if any(entry.get("name") == FIT for entry in enabled):
        changes.append(
            f"{path}.plugins.score.enabled: {old['name']} removed: {FIT} is enabled too and has "
            "only one scoring strategy"
        )
        return profile
    configs = [entry for entry in profile.get("pluginConfig") or () if isinstance(entry, dict)]
    args = next((c.get("args") for c in configs if c.get("name") == old["name"]), None) or {}
    strategy: Object = {"type": STRATEGIES[old["name"]]}
    if args.get("resources"):
        strategy["resources"] = args["resources"]
    if args.get("shape"):
        strategy["requestedToCapacityRatio"] = {"shape": args["shape"]}
    changes.append(
        f"{path}.plugins.score.enabled: {old['name']} replaced by the scoring strategy "
        f"{strategy['type']} of {FIT}"
    )
    fit: Object = next((c for c in configs if c.get("name") == FIT), {"name": FIT})
    fit = {**fit, "args": {**(fit.get("args") or {}), "scoringStrategy": strategy}}
    return {
        **profile,
        "plugins": {
            **plugins,
            "score": {
                **score,
                "enabled": [{**entry, "name": FIT} if entry is old else entry for entry in enabled],
                "disabled": disabled or [{"name": FIT}],
            },
        },
        "pluginConfig": [
            *(c for c in configs if c.get("name") not in (FIT, old["name"])),
            fit,
        ],
    }
