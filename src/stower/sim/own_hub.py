"""A hub that is not made up: its own pool, users, configuration and node groups, on its own days.

Source: seed 001; what administrators ask is how many placeholders they need.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.model.errors import InvalidObject
from stower.model.kinds import Pod, WarmPool
from stower.model.kinds.pod import ResourceRequirements
from stower.model.kinds.warm_pool import Placeholders, WarmPoolSpec, pool_faults
from stower.model.resources import PODS, amounts, pod_requests
from stower.model.selectors import LabelSelector
from stower.sim.autoscaler import NodeGroup, empty_bin
from stower.sim.hub_day import Day, User
from stower.sim.hub_policies import IMAGE, Policy, Setup, configuration_with, profile_of, with_owner

Json = dict[str, Any]

NAMESPACE: Final = "jhub"
PLACEHOLDER_PRIORITY: Final = -10


class OwnHub(msgspec.Struct, frozen=True):
    """See Scenario.own. `user`: a pod that all users are like, None where the template of the
    pool's placeholders says what one is; `configuration`: a KubeSchedulerConfiguration, None for
    z2jh's; `groups`: the node groups, none for one of `slots` users a node; `priorities`: what
    PriorityClasses say, by name."""

    pool: WarmPool
    user: Pod | None = None
    configuration: Json | None = None
    groups: tuple[NodeGroup, ...] = ()
    slots: int = 10
    priorities: Mapping[str, int] = {}

    @property
    def namespace(self) -> str:
        """Of the pool and its users."""
        return self.pool.metadata.namespace or NAMESPACE

    def check(self) -> None:
        """Raises InvalidObject for what no day can be run with."""
        for path, value, text in pool_faults(self.pool.spec, self.pool.metadata.name):
            raise InvalidObject(f"spec.{path}", value, text)
        requests = pod_requests(self._typical_user())
        if not requests:
            want = "resources.requests, so that a node is full at some time"
            raise InvalidObject("the user's containers", "no requests", want)
        if not self.fits(self._on_nodes_of_the_pool(self._typical_user())):
            names = ", ".join(group.name for group in self._node_groups())
            want = "one whose nodes take a user, by requests, nodeSelector and taints"
            raise InvalidObject("nodeGroups", names, want)
        if self.configuration is not None and not self._profiles():
            raise InvalidObject("profiles", [], "at least one")
        selector = self.pool.spec.users
        labels = self._typical_user().metadata.labels or {}
        if selector is None or not selector.matches(labels):
            raise InvalidObject("spec.users", labels, "a selector that the user's labels match")

    def fits(self, user: Pod) -> bool:
        """Whether a node of one of the groups takes it."""
        needs = amounts(pod_requests(user)) | {PODS: 1}
        return any(empty_bin(group).take(user, needs) for group in self._node_groups())

    def setup(self, policy: Policy, day: Day) -> Setup:
        """Returns what a day is run with."""
        is_ours = policy.has_own_placeholders
        count = msgspec.structs.replace(self.pool.spec.placeholders, replicas=policy.placeholders)
        spec = self._spec(count)
        meta = self.pool.metadata
        meta = msgspec.structs.replace(meta, namespace=self.namespace, uid=meta.uid or meta.name)
        pool = msgspec.structs.replace(self.pool, metadata=meta, spec=spec)
        configuration = self.configuration if is_ours else None
        if configuration is None:
            configuration = configuration_with(profile_of(policy.rules, self._scheduler_name()))
        return Setup(
            configuration, {self.namespace: count}, self._make_user, self._make_placeholder,
            self._node_groups(), self._image(), spec, (pool,) if is_ours else (),
            has_laws=not _has_rules(self._typical_user()),
        )  # fmt: skip

    def _spec(self, count: Placeholders) -> WarmPoolSpec:
        """The pool with placeholders that the scheduler makes, and images that nodes list: how a
        pool finds out is not simulated."""
        spec = self.pool.spec
        template = msgspec.to_builtins(self._placeholder_template())
        images = msgspec.structs.replace(spec.images, names=(self._image(),), pullers=None)
        placeholders = msgspec.structs.replace(count, template=template, selector=None)
        return msgspec.structs.replace(spec, images=images, placeholders=placeholders)

    # Pods

    def _typical_user(self) -> Pod:
        if self.user is not None:
            return self.user
        template = self.pool.spec.placeholders.template
        if template is None:
            raise InvalidObject("spec.placeholders.template", None, "a template, or --user FILE")
        found = msgspec.convert({"metadata": {}, "spec": template["spec"]}, Pod)
        labels = dict(_labels_for(self.pool.spec.users))
        containers = [
            msgspec.structs.replace(c, image=self._image()) for c in found.spec.containers
        ]
        spec = msgspec.structs.replace(
            found.spec, containers=tuple(containers), priority=0, priority_class_name=""
        )
        meta = msgspec.structs.replace(found.metadata, labels=labels)
        return msgspec.structs.replace(found, metadata=meta, spec=spec)

    def _make_user(self, i: int, user: User, created: str) -> Pod:
        pod = self._on_nodes_of_the_pool(self._typical_user())
        if user.requests:
            first, *others = pod.spec.containers
            before = first.resources or ResourceRequirements()
            own = {**(before.requests or {}), **dict(user.requests)}
            resources = msgspec.structs.replace(before, requests=own)
            first = msgspec.structs.replace(first, resources=resources)
            spec = msgspec.structs.replace(pod.spec, containers=(first, *others))
            pod = msgspec.structs.replace(pod, spec=spec)
        return self._named(pod, f"user-{i}", f"user-{i}", created, pod.metadata.labels or {})

    def _placeholder_template(self) -> Json:
        """As the pool says, or like a user."""
        template = self.pool.spec.placeholders.template
        pod = self._on_nodes_of_the_pool(self._typical_user())
        spec: Json = dict(template["spec"]) if template else msgspec.to_builtins(pod.spec)
        name = spec.get("priorityClassName", "")
        spec.setdefault("priority", self.priorities.get(name, PLACEHOLDER_PRIORITY))
        if not template:
            spec["priority"] = PLACEHOLDER_PRIORITY
        spec["nodeSelector"] = pod.spec.node_selector or {}
        spec["schedulerName"] = self._scheduler_name()
        return {"metadata": (template or {}).get("metadata", {}), "spec": spec}

    def _make_placeholder(self, i: int, uid: str, created: str, namespace: str) -> Pod:
        spec = self._placeholder_template()["spec"]
        pod = msgspec.convert({"metadata": {}, "spec": spec}, Pod)
        return with_owner(self._named(pod, f"user-placeholder-{i}", uid, created, {}))

    def _named(self, pod: Pod, name: str, uid: str, created: str, labels: Mapping[str, str]) -> Pod:
        meta = {"name": name, "namespace": self.namespace, "uid": uid, "labels": dict(labels),
                "creationTimestamp": created}  # fmt: skip
        annotations = pod.metadata.annotations
        if annotations:
            meta["annotations"] = annotations
        spec = msgspec.to_builtins(pod.spec) | {"schedulerName": self._scheduler_name()}
        spec.pop("nodeName", None)
        status = {"phase": "Pending"}
        return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)

    def _on_nodes_of_the_pool(self, pod: Pod) -> Pod:
        """The plugin keeps users on these; an autoscaler is told by the pod alone."""
        selector = {**(self.pool.spec.node_selector or {}), **(pod.spec.node_selector or {})}
        spec = msgspec.structs.replace(pod.spec, node_selector=selector or None)
        return msgspec.structs.replace(pod, spec=spec)

    def _image(self) -> str:
        names = self.pool.spec.images.names
        if names:
            return names[0]
        containers = self.user.spec.containers if self.user is not None else ()
        return next((c.image for c in containers if c.image), IMAGE)

    def _profiles(self) -> list[Json]:
        return [p for p in (self.configuration or {}).get("profiles") or [] if isinstance(p, dict)]

    def _scheduler_name(self) -> str:
        """The profile that the hub's pods name, or else the first."""
        template: Json = (self.pool.spec.placeholders.template or {}).get("spec") or {}
        asked = self.user.spec.scheduler_name if self.user is not None else None
        asked = asked or template.get("schedulerName") or "user-scheduler"
        names = [profile.get("schedulerName", "default-scheduler") for profile in self._profiles()]
        return asked if asked in names or not names else names[0]

    # Nodes

    def _node_groups(self) -> tuple[NodeGroup, ...]:
        if self.groups:
            return self.groups
        room: dict[str, str | int | float] = {"pods": "110"}
        for name, amount in amounts(pod_requests(self._typical_user())).items():
            text = f"{amount * self.slots}m" if name == "cpu" else str(amount * self.slots)
            room[name] = text
        selector = dict(self.pool.spec.node_selector or {})
        return (NodeGroup("users", room, 1, 1_000, selector),)


def _has_rules(pod: Pod) -> bool:
    """Whether more than requests, a node selector and taints says where the pod may go."""
    found = pod.spec.affinity
    nodes = found.node_affinity if found is not None else None
    others = found is not None and (found.pod_affinity or found.pod_anti_affinity)
    required = nodes is not None and nodes.required is not None
    return required or bool(others or pod.spec.topology_spread_constraints)


def _labels_for(selector: LabelSelector | None) -> Iterator[tuple[str, str]]:
    """Labels that the selector matches, as far as it says them."""
    if selector is None:
        return
    yield from (selector.match_labels or {}).items()
    for term in selector.match_expressions or ():
        if term.operator == "In" and term.values:
            yield term.key, term.values[0]
        elif term.operator == "Exists":
            yield term.key, "true"
