"""Writes a KubeSchedulerConfiguration as a document in which every default is spelled out.

Source: kube-scheduler apis/config/v1/defaults.go, default_plugins.go.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.configuration import (
    API_VERSION,
    KIND,
    Configuration,
    ProfileConfiguration,
    merge_multi_point,
    own_plugin_sets,
)
from stower.framework.profile import DEFAULT_SCHEDULER_NAME

Object = dict[str, Any]

CPU_AND_MEMORY: Final = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
# Default arguments of plugins, in the order in which upstream prints them.
DEFAULT_ARGS: Final[Mapping[str, Object]] = {
    "DefaultPreemption": {"minCandidateNodesAbsolute": 100, "minCandidateNodesPercentage": 10},
    "DynamicResources": {"bindingTimeout": "10m0s", "filterTimeout": "10s"},
    "InterPodAffinity": {
        "hardPodAffinityWeight": 1,
        "ignorePreferredTermsOfExistingPods": False,
    },
    "NegotiatedResources": {
        "answerTimeout": "30s",
        "bindingTimeout": "10m0s",
        "refreshPeriod": "30s",
        "selectionTimeout": "30s",
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


def with_defaults(config: Configuration) -> Object:
    """Returns a document with all values that are in effect; it reads as an equal configuration."""
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
        "profiles": [_profile_document(profile) for profile in config.profiles],
    }
    if config.extenders:
        result["extenders"] = list(config.extenders)
    return result


def _profile_document(profile: ProfileConfiguration) -> Object:
    own_args = {entry.name: entry.args or {} for entry in profile.plugin_config}
    names = [*DEFAULT_ARGS, *(name for name in own_args if name not in DEFAULT_ARGS)]
    multi_point = [
        {"name": ref.name, "weight": ref.weight} if ref.weight else {"name": ref.name}
        for ref in merge_multi_point(profile.plugins.multi_point)
    ]
    # "*" is disabled so that the defaults are not added when the document is read again.
    plugins: Object = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": multi_point}}
    plugins |= own_plugin_sets(profile.plugins)
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
                    **own_args.get(name, {}),
                },
            }
            for name in names
        ],
    }
    if profile.percentage_of_nodes_to_score is not None:
        result["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    return result
