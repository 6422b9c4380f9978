"""The policies that are compared on days of a hub: kube-scheduler, zero-to-jupyterhub and Stower.

The configuration of z2jh's user-scheduler is what its chart renders.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from stower.model.kinds import Pod, WarmPool
from stower.model.kinds.warm_pool import (
    Lecture,
    Packing,
    Placeholders,
    Surge,
    WarmPoolSpec,
    WarmPoolStatus,
)
from stower.model.meta import OwnerReference
from stower.model.selectors import LabelSelector
from stower.model.times import SECOND_NS, time_text
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub_day import Day, User
from stower.warm.day_profile import profile_of_hours

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


class Setup(NamedTuple):
    """What a day is run with. `settings`: how many placeholders are wanted, by the namespaces of
    hubs; `make_user`: of a number, a session and the time of its arrival; `make_placeholder`: of a
    StatefulSet: of a number, a uid, a time and a namespace; `image`: the users'; `spec`: what the
    laws hold Stower to; `pools`: those that are objects; `has_laws`: whether the
    laws know where a user may go."""

    configuration: Json | None
    settings: Mapping[str, Placeholders]
    make_user: Callable[[int, User, str], Pod]
    make_placeholder: Callable[[int, str, str, str], Pod]
    groups: tuple[NodeGroup, ...]
    image: str = IMAGE
    spec: WarmPoolSpec = WarmPoolSpec()
    pools: tuple[WarmPool, ...] = ()
    has_laws: bool = True


class OwnHub(Protocol):
    """A hub that is not made up (own_hub.py)."""

    def setup(self, policy: "Policy", day: Day) -> Setup:
        """Returns what its days are run with."""


class Scenario(msgspec.Struct, frozen=True):
    """How days go. `late`: the share of nodes that pull half an hour late; `dead`: the share that
    never has its images; `groups`: what nodes there may be, where these are not all of `slots`
    slots; `hubs`: how many share the nodes, with as many users and placeholders each; `own`: a hub
    that is not made up, of which the other fields but `late` and `dead` say nothing."""

    name: str
    slots: int = 10
    late: float = 0.0
    dead: float = 0.0
    nodes_max: int = 400
    groups: tuple[NodeGroup, ...] = ()
    hubs: int = 1
    own: OwnHub | None = None

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
    """Who places pods, and how many placeholders there are. `told`: the timetable is known;
    `profile`: how many users came in each hour of other days (UTC), where the pool has learned
    that, and `profile_s`: for how many seconds of it room is held."""

    name: str
    rules: str  # default, z2jh or stower
    placeholders: int
    told: bool = False
    surge_s: int = 0
    packing: Packing = Packing()
    profile: tuple[float, ...] = ()
    profile_s: int = 0

    @property
    def has_own_placeholders(self) -> bool:
        """Whether the scheduler makes its placeholders itself."""
        return self.rules == "stower"


def setup_of(scenario: Scenario, policy: Policy, day: Day) -> Setup:
    """What the day is run with."""
    if scenario.own is not None:
        return scenario.own.setup(policy, day)
    settings, namespaces = _settings(scenario, policy, day), scenario.namespaces

    def make_user(i: int, user: User, created: str) -> Pod:
        labels = {**USER, **(LECTURE if user.lecture else {})}
        return _pod(
            f"jupyter-{i}", f"jupyter-{i}", labels, created, 0, namespaces[i % len(namespaces)]
        )

    groups, pools = scenario.node_groups(), _pools(policy, settings)
    learned = profile_of_hours([*policy.profile]) if policy.profile else None
    objects = []
    for pool in pools if learned else ():
        meta = {"name": pool.pop("name"), "namespace": pool.pop("namespace")}
        meta["uid"] = meta["namespace"]
        found = msgspec.convert({"metadata": meta, "spec": pool}, WarmPool)
        status = WarmPoolStatus(profile=learned)
        objects.append(msgspec.structs.replace(found, status=status))
    return Setup(
        _configuration(policy, [] if learned else pools), settings, make_user, _make_placeholder,
        groups, spec=WarmPoolSpec(placeholders=Placeholders(replicas=policy.placeholders)),
        pools=tuple(objects),
    )  # fmt: skip


def _settings(scenario: Scenario, policy: Policy, day: Day) -> dict[str, Placeholders]:
    hubs, found = scenario.hubs, {}
    for i, namespace in enumerate(scenario.namespaces):
        lectures = tuple(
            Lecture(
                start=time_text(day.starts_ns + int(one.start_s) * SECOND_NS),
                enrolment=one.enrolment // hubs + (i < one.enrolment % hubs),
                selector=LabelSelector(match_labels=LECTURE),
            )
            for one in (day.lectures if policy.told else ())
        )
        count = policy.placeholders // hubs + (i < policy.placeholders % hubs)
        surge = Surge(hold_seconds=policy.surge_s)
        found[namespace] = Placeholders(
            replicas=count,
            lectures=lectures or None,
            surge=surge,
            profile_seconds=policy.profile_s,
        )
    return found


def configuration_with(profile: Json) -> Json:
    """A KubeSchedulerConfiguration with one profile."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def profile_of(rules: str, name: str) -> Json:
    """The profile of rules by which pods are placed, without pools."""
    z2jh = {"plugins": {"score": Z2JH_SCORE}, "pluginConfig": [Z2JH_FIT]}
    return {"schedulerName": name, **(z2jh if rules != "default" else {})}


def _pools(policy: Policy, settings: Mapping[str, Placeholders]) -> list[Json]:
    """Of each hub, where the policy is ours."""
    template = {"metadata": {"labels": PLACEHOLDER}, "spec": _spec(-10)}
    return [
        {
            "name": "users",
            "namespace": namespace,
            "users": {"matchLabels": USER},
            "nodeSelector": NODE_LABELS,
            "images": {"names": [IMAGE]},
            "packing": msgspec.to_builtins(policy.packing),
            "placeholders": {**msgspec.to_builtins(one), "template": template},
        }
        for namespace, one in settings.items()
        if policy.has_own_placeholders
    ]


def _configuration(policy: Policy, pools: list[Json]) -> Json:
    profile = profile_of(policy.rules, HUB)
    if pools:
        profile["pluginConfig"] = [
            Z2JH_FIT, {"name": "WarmCapacity", "args": {"pools": pools}},
        ]  # fmt: skip
    return configuration_with(profile)


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


def _make_placeholder(number: int, uid: str, created: str, namespace: str) -> Pod:
    pod = _pod(f"user-placeholder-{number}", uid, PLACEHOLDER, created, -10, namespace)
    return with_owner(pod)


def with_owner(pod: Pod) -> Pod:
    """One of z2jh's StatefulSet."""
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
