"""A null in a KubeSchedulerConfiguration is the default, in every field, arguments included."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stower.assembly import build_profiles
from stower.framework.args import Args
from stower.framework.configuration import API_VERSION, KIND, Plugins, read_configuration
from stower.framework.defaults import with_defaults
from stower.framework.election import FIELDS, read_leader_election
from stower.framework.plugin import Features
from stower.model.errors import InvalidObject

Path = tuple[str | int, ...]

CPU = [{"name": "cpu", "weight": 1}]
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
ARGS: dict[str, dict[str, Any]] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 20, "minCandidateNodesAbsolute": 5},
    "NodeAffinity": {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                ]
            }
        }
    },
    "DynamicResources": {"filterTimeout": "5s", "bindingTimeout": "1m", "deviceOrder": "BestFit"},
    "Fragmentation": {"mode": "fgd"},
    "NegotiatedResources": {
        "answerTimeout": "5s", "selectionTimeout": "5s", "refreshPeriod": "5s",
        "bindingTimeout": "1m",
    },
    "GroupMaking": {"kinds": ["jobset"]},
    "PendingClass": {"afterSeconds": 30},
    "InterPodAffinity": {
        "hardPodAffinityWeight": 5, "ignorePreferredTermsOfExistingPods": True
    },
    "NodeResourcesBalancedAllocation": {"resources": CPU},
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/a"],
        "ignoredResourceGroups": ["example.com"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio", "resources": CPU,
            "requestedToCapacityRatio": {"shape": SHAPE},
        },
    },
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
    "VolumeBinding": {"bindTimeoutSeconds": 5},
    "WarmCapacity": {"nodeLabels": ["example.com/*"]},
}  # fmt: skip
FULL: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "parallelism": 4,
    "leaderElection": {
        "leaderElect": False, "leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "3s",
        "resourceLock": "leases", "resourceName": "a", "resourceNamespace": "b",
    },
    "clientConnection": {
        "kubeconfig": "/k", "acceptContentTypes": "a", "contentType": "c", "qps": 1.5, "burst": 3
    },
    "enableProfiling": False,
    "enableContentionProfiling": True,
    "percentageOfNodesToScore": 50,
    "podInitialBackoffSeconds": 2,
    "podMaxBackoffSeconds": 20,
    "profiles": [
        {
            "schedulerName": "one",
            "percentageOfNodesToScore": 20,
            "plugins": {
                "multiPoint": {
                    "enabled": [{"name": "NodeAffinity", "weight": 7}],
                    "disabled": [{"name": "ImageLocality"}],
                },
                "preEnqueue": {"disabled": [{"name": "x"}]},
                "queueSort": {"enabled": [{"name": "PrioritySort"}]},
                "preFilter": {"enabled": [{"name": "NodeAffinity"}]},
                "filter": {"disabled": [{"name": "NodePorts"}]},
                "postFilter": {"enabled": [{"name": "DefaultPreemption"}]},
                "preScore": {"disabled": [{"name": "*"}]},
                "score": {
                    "enabled": [{"name": "NodeResourcesFit", "weight": 3}],
                    "disabled": [{"name": "*"}],
                },
                "reserve": {"enabled": [{"name": "VolumeBinding"}]},
                "permit": {"disabled": [{"name": "x"}]},
                "preBind": {"enabled": [{"name": "VolumeBinding"}]},
                "bind": {"enabled": [{"name": "DefaultBinder"}], "disabled": [{"name": "*"}]},
                "postBind": {"disabled": [{"name": "x"}]},
                "placementGenerate": {"enabled": [{"name": "TopologyPlacementGenerator"}]},
                "placementScore": {"enabled": [{"name": "PodGroupPodsCount"}]},
            },
            "pluginConfig": [
                {"name": name, "args": {"apiVersion": API_VERSION, "kind": f"{name}Args", **args}}
                for name, args in ARGS.items()
            ],
        }
    ],
    "extenders": [
        {
            "urlPrefix": "https://x", "filterVerb": "f", "preemptVerb": "p", "prioritizeVerb": "s",
            "weight": 2, "bindVerb": "b", "enableHTTPS": True, "httpTimeout": "9s",
            "nodeCacheCapable": True, "ignorable": True,
            "managedResources": [{"name": "example.com/b", "ignoredByScheduler": True}],
            "tlsConfig": {
                "insecure": True, "serverName": "s", "certFile": "c", "keyFile": "k",
                "caFile": "a", "certData": "", "keyData": "", "caData": "",
            },
        }
    ],
    "delayCacheUntilActive": True,
}  # fmt: skip


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Yields the path of each field of an object in the value; items of arrays are no fields."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from paths(inner, (*path, i))


PATHS = tuple(paths(FULL))


def changed(nulls: tuple[Path, ...], is_null: bool) -> dict[str, Any]:
    """Returns FULL with these fields null, or left out."""
    result: Any = copy.deepcopy(FULL)
    for path in nulls:
        holder = result
        for step in path[:-1]:
            holder = holder[step] if isinstance(step, int) else (holder or {}).get(step)
            if holder is None:
                break  # a field above is null, or left out
        if holder is None:
            continue
        if is_null:
            holder[path[-1]] = None
        else:
            holder.pop(path[-1], None)
    found: dict[str, Any] = result
    return found


def meaning(document: dict[str, Any]) -> object:
    """Returns all that a configuration means, or the text of its error."""
    try:
        config = read_configuration(document)
        profiles = build_profiles(config, Features())
        election = read_leader_election(config.leader_election)
    except InvalidObject as error:
        return str(error)
    built = [
        (name, sorted(p.plugins), [(q.name, w) for q, w in p.scores])
        for name, p in profiles.items()
    ]
    return config, election, with_defaults(config), built


def test_the_example_is_valid_and_has_every_field() -> None:
    assert not isinstance(meaning(FULL), str), meaning(FULL)
    fields = {path[-1] for path in PATHS}
    kinds = [*Args.__subclasses__()]
    names = {
        field.encode_name
        for kind in kinds
        if kind.__module__.startswith(("stower.framework", "stower.plugins"))
        for field in msgspec.structs.fields(kind)
    }
    assert set() == names - fields - {"pools"}  # of WarmCapacity: needs a whole WarmPool
    assert set(FIELDS) == set(FULL["leaderElection"])
    assert {f.encode_name for f in msgspec.structs.fields(Plugins)} <= fields


def test_each_field_that_is_null_is_left_out() -> None:
    for path in PATHS:
        assert meaning(changed((path,), False)) == meaning(changed((path,), True)), path


@given(st.lists(st.sampled_from(PATHS), min_size=2, max_size=6, unique=True))
def test_several_fields_that_are_null_are_left_out(chosen: list[Path]) -> None:
    nulls = tuple(sorted(chosen, key=len, reverse=True))  # inner fields before outer ones
    assert meaning(changed(nulls, False)) == meaning(changed(nulls, True))
