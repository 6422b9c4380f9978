"""A configuration with everything written out, and older versions of it in today's.

Source: kube-scheduler apis/config/v1/defaults.go, default_plugins.go; the v1beta2 and v1beta3 types
of Kubernetes 1.28.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.configuration import (
    API_VERSION,
    KIND,
    REMOVED_PLUGINS,
    Configuration,
    ProfileConfiguration,
    expanded_sets,
    merged_multi_point,
)
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.errors import InvalidObject

Object = dict[str, Any]

CPU_AND_MEMORY: Final = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
# Arguments of the plugins that have some, in the order in which upstream prints them.
DEFAULT_ARGS: Final[Mapping[str, Object]] = {
    "DefaultPreemption": {"minCandidateNodesAbsolute": 100, "minCandidateNodesPercentage": 10},
    "DynamicResources": {"bindingTimeout": "10m0s", "filterTimeout": "10s"},
    "InterPodAffinity": {
        "hardPodAffinityWeight": 1,
        "ignorePreferredTermsOfExistingPods": False,
    },
    "NodeAffinity": {},
    "NodeResourcesBalancedAllocation": {"resources": CPU_AND_MEMORY},
    "NodeResourcesFit": {
        "scoringStrategy": {"resources": CPU_AND_MEMORY, "type": "LeastAllocated"}
    },
    "PodTopologySpread": {"defaultingType": "System"},
    "VolumeBinding": {"bindTimeoutSeconds": 600},
}
LEADER_ELECTION: Final[Object] = {
    "leaderElect": True,
    "leaseDuration": "15s",
    "renewDeadline": "10s",
    "resourceLock": "leases",
    "resourceName": "kube-scheduler",
    "resourceNamespace": "kube-system",
    "retryPeriod": "2s",
}
CLIENT: Final[Object] = {
    "acceptContentTypes": "",
    "burst": 100,
    "contentType": "application/vnd.kubernetes.protobuf",
    "kubeconfig": "",
    "qps": 50,
}
OLD_VERSIONS: Final = ("v1beta1", "v1beta2", "v1beta3")
OLD_FIELDS: Final = ("healthzBindAddress", "metricsBindAddress", "algorithmSource")
OLD_PLUGINS: Final = (*REMOVED_PLUGINS, "SelectorSpread", "NodeLabel", "ServiceAffinity",
                      "NodePreferAvoidPods", "NodeResourcesLeastAllocated",
                      "NodeResourcesMostAllocated", "RequestedToCapacityRatio")  # fmt: skip


def with_defaults(config: Configuration) -> Object:
    """All that is in force, as a document that means the same."""
    percentage = config.percentage_of_nodes_to_score
    profiling = True if config.enable_profiling is None else config.enable_profiling
    contention = config.enable_contention_profiling
    result: Object = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "clientConnection": {**CLIENT, **(config.client_connection or {})},
        "enableContentionProfiling": profiling if contention is None else contention,
        "enableProfiling": profiling,
        "leaderElection": {**LEADER_ELECTION, **(config.leader_election or {})},
        "parallelism": config.parallelism,
        "percentageOfNodesToScore": 0 if percentage is None else percentage,
        "podInitialBackoffSeconds": config.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": config.pod_max_backoff_seconds,
        "profiles": [_profile(profile) for profile in config.profiles],
    }
    if config.extenders:
        result["extenders"] = list(config.extenders)
    return result


def _profile(profile: ProfileConfiguration) -> Object:
    own = {entry.name: entry.args or {} for entry in profile.plugin_config}
    names = [*DEFAULT_ARGS, *(name for name in own if name not in DEFAULT_ARGS)]
    multi_point = [
        {"name": ref.name, "weight": ref.weight} if ref.weight else {"name": ref.name}
        for ref in merged_multi_point(profile.plugins.multi_point)
    ]
    # Only these: read again, the defaults do not come on top.
    plugins: Object = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": multi_point}}
    plugins |= expanded_sets(profile.plugins)
    result: Object = {
        "schedulerName": profile.scheduler_name or DEFAULT_SCHEDULER_NAME,
        "plugins": plugins,
        "pluginConfig": [
            {
                "name": name,
                "args": {
                    "apiVersion": API_VERSION,
                    "kind": f"{name}Args",
                    **DEFAULT_ARGS.get(name, {}),
                    **own.get(name, {}),
                },
            }
            for name in names
        ],
    }
    if profile.percentage_of_nodes_to_score is not None:
        result["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    return result


def converted(document: Mapping[str, Any]) -> tuple[Object, list[str]]:
    """An older document as today's version, and what it loses. Raises InvalidObject."""
    group, _, version = str(document.get("apiVersion", "")).partition("/")
    if group != API_VERSION.partition("/")[0] or version not in (*OLD_VERSIONS, "v1"):
        want = f"{API_VERSION} or one of its versions {', '.join(OLD_VERSIONS)}"
        raise InvalidObject("apiVersion", document.get("apiVersion"), want)
    result = {**document, "apiVersion": API_VERSION}
    left_out = []
    for field in OLD_FIELDS:
        if result.pop(field, None) is not None:
            left_out.append(f"{field}: left out, it is no field any more")
    if version in ("v1beta1", "v1beta2"):
        # Their defaults were 1 each, until v1beta3.
        weigh = "TaintToleration 3, NodeAffinity 2, InterPodAffinity 2"
        left_out.append(f"{version}: default weights are those of v1 now ({weigh})")
    profiles = result.get("profiles")
    if isinstance(profiles, list):
        result["profiles"] = [
            _converted_profile(p, f"profiles[{i}]", left_out) if isinstance(p, dict) else p
            for i, p in enumerate(profiles)
        ]
    return result, left_out


def _converted_profile(profile: Object, path: str, left_out: list[str]) -> Object:
    result = {**profile}
    if isinstance(profile.get("plugins"), dict):
        result["plugins"] = {
            point: _converted_set(plugin_set, f"{path}.plugins.{point}", left_out)
            if isinstance(plugin_set, dict)
            else plugin_set
            for point, plugin_set in profile["plugins"].items()
        }
    if isinstance(profile.get("pluginConfig"), list):
        kept = []
        for entry in profile["pluginConfig"]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if name in OLD_PLUGINS:
                left_out.append(f"{path}.pluginConfig: {name} left out, it is no plugin any more")
                continue
            if isinstance(entry, dict) and isinstance(entry.get("args"), dict):
                args = {k: v for k, v in entry["args"].items() if k != "apiVersion"}
                if "apiVersion" in entry["args"]:
                    args = {"apiVersion": API_VERSION, **args}
                entry = {**entry, "args": args}
            kept.append(entry)
        result["pluginConfig"] = kept
    return result


def _converted_set(plugin_set: Object, path: str, left_out: list[str]) -> Object:
    result = {**plugin_set}
    for what in ("enabled", "disabled"):
        entries = plugin_set.get(what)
        if not isinstance(entries, list):
            continue
        kept = []
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            if name in OLD_PLUGINS:
                left_out.append(f"{path}.{what}: {name} left out, it is no plugin any more")
            else:
                kept.append(entry)
        result[what] = kept
    return result
