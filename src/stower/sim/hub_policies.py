"""The policies that are compared on days of a hub: kube-scheduler, zero-to-jupyterhub and Stower.

The configuration of z2jh's user-scheduler is what its chart renders.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import Lecture, Placeholders, Surge
from stower.model.meta import OwnerReference
from stower.model.selectors import LabelSelector
from stower.model.times import SECOND_NS, time_text
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub_day import Day

Json = dict[str, Any]

HUB: Final = "user-scheduler"
NAMESPACE: Final = "hub"
IMAGE: Final = "registry.example.com/singleuser:1"
IMAGE_BYTES: Final = 3 << 30
NODE_LABELS: Final = {"hub.jupyter.org/node-purpose": "user"}
USER: Final = {"component": "singleuser-server"}
PLACEHOLDER: Final = {"component": "user-placeholder"}
LATE_S: Final = 1_800.0
NEVER_S: Final = 30 * 86_400.0
RULES: Final = ("default", "z2jh", "stower")
LECTURE: Final = {"hub.example.com/lecture": "true"}


class Scenario(msgspec.Struct, frozen=True):
    """How days go. `late`: the share of nodes that pull half an hour late; `dead`: the share that
    never has its images; `groups`: what nodes there may be, where these are not all of `slots`
    slots; `hubs`: how many share the nodes, with as many users and placeholders each."""

    name: str
    slots: int = 10
    late: float = 0.0
    dead: float = 0.0
    nodes_max: int = 400
    groups: tuple[NodeGroup, ...] = ()
    hubs: int = 1

    @property
    def namespaces(self) -> tuple[str, ...]:
        """One for each hub."""
        return NAMESPACE, *(f"{NAMESPACE}-{i}" for i in range(2, self.hubs + 1))

    def node_groups(self) -> tuple[NodeGroup, ...]:
        """Those that are given, or the one of slots."""
        room: dict[str, str | int | float] = {
            "cpu": f"{self.slots}",
            "memory": f"{self.slots}Gi",
            "pods": "110",
        }
        one = NodeGroup("users", room, 1, self.nodes_max, dict(NODE_LABELS))
        return self.groups or (one,)

    def late_s(self, seed: int, number: int) -> float:
        """How much later this node has its images."""
        chance = random.Random(f"{seed}:{number}:late")
        if chance.random() < self.late:
            return LATE_S
        chance = random.Random(f"{seed}:{number}:dead")
        return NEVER_S if chance.random() < self.dead else 0.0


class Policy(msgspec.Struct, frozen=True):
    """Who places pods, and how many placeholders there are. `told`: the timetable is known."""

    name: str
    rules: str  # default, z2jh or stower
    placeholders: int
    told: bool = False
    surge_s: int = 0

    @property
    def has_own_placeholders(self) -> bool:
        """Whether the scheduler makes its placeholders itself."""
        return self.rules == "stower"


def settings_of(
    scenario: Scenario, policy: Policy, day: Day, epoch_ns: int
) -> dict[str, Placeholders]:
    """How many placeholders are wanted when, by the namespaces of hubs."""
    hubs, found = scenario.hubs, {}
    for i, namespace in enumerate(scenario.namespaces):
        lectures = tuple(
            Lecture(
                start=time_text(epoch_ns + int(one.start_s) * SECOND_NS),
                enrolment=one.enrolment // hubs + (i < one.enrolment % hubs),
                selector=LabelSelector(match_labels=LECTURE),
            )
            for one in (day.lectures if policy.told else ())
        )
        count = policy.placeholders // hubs + (i < policy.placeholders % hubs)
        surge = Surge(hold_seconds=policy.surge_s)
        found[namespace] = Placeholders(replicas=count, lectures=lectures or None, surge=surge)
    return found


def configuration_of(policy: Policy, settings: Mapping[str, Placeholders]) -> Json | None:
    """The KubeSchedulerConfiguration. `settings`: by the namespaces of hubs."""
    profile: Json = {"schedulerName": HUB}
    if policy.rules != "default":
        profile |= {"plugins": {"score": Z2JH_SCORE}, "pluginConfig": [Z2JH_FIT]}
    if policy.rules == "stower":
        template = {"metadata": {"labels": PLACEHOLDER}, "spec": _spec(-10)}
        pools = [
            {
                "name": "users",
                "namespace": namespace,
                "users": {"matchLabels": USER},
                "nodeSelector": NODE_LABELS,
                "images": {"names": [IMAGE]},
                "placeholders": {**msgspec.to_builtins(one), "template": template},
            }
            for namespace, one in settings.items()
        ]
        profile["pluginConfig"] = [
            Z2JH_FIT, {"name": "WarmCapacity", "args": {"pools": pools}},
        ]  # fmt: skip
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


_SCORED: Final = (
    ("NodeAffinity", 14631), ("InterPodAffinity", 1331), ("NodeResourcesFit", 121),
    ("ImageLocality", 11),
)  # fmt: skip
Z2JH_SCORE: Final = {
    "disabled": [
        {"name": "NodeResourcesBalancedAllocation"},
        *({"name": name} for name, _ in _SCORED),
    ],
    "enabled": [{"name": name, "weight": weight} for name, weight in _SCORED],
}
Z2JH_FIT: Final = {
    "name": "NodeResourcesFit",
    "args": {
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
        }
    },
}


def _spec(priority: int) -> Json:
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "schedulerName": HUB,
        "priority": priority,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": requests}}],
        "tolerations": [
            {"key": "hub.jupyter.org/dedicated", "operator": "Equal", "value": "user",
             "effect": "NoSchedule"},
        ],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchExpressions": [
                                {"key": "hub.jupyter.org/node-purpose", "operator": "In",
                                 "values": ["user"]},
                            ]
                        },
                    }
                ]
            }
        },
    }  # fmt: skip


def user_of(name: str, is_of_lecture: bool, created: str, namespace: str) -> Pod:
    """A user's server."""
    labels = {**USER, **(LECTURE if is_of_lecture else {})}
    return _pod(name, name, labels, created, 0, namespace)


def placeholder_of(number: int, uid: str, created: str, namespace: str) -> Pod:
    """One of z2jh's StatefulSet."""
    pod = _pod(f"user-placeholder-{number}", uid, PLACEHOLDER, created, -10, namespace)
    owner = OwnerReference("StatefulSet", "user-placeholder", "user-placeholder", controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
    return msgspec.structs.replace(pod, metadata=meta)


def _pod(
    name: str, uid: str, labels: dict[str, str], created: str, priority: int, namespace: str
) -> Pod:
    document = {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "labels": labels,
            "creationTimestamp": created,
        },
        "spec": _spec(priority),
        "status": {"phase": "Pending"},
    }  # fmt: skip
    return msgspec.convert(document, Pod)
