"""A hub that is not made up: its own pool, users, configuration and node groups, on its own days.

Source: seed 001; what administrators ask is how many placeholders they need.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.framework.plugin import Features
from stower.framework.profile import DEFAULT_SCHEDULER_NAME, Profile
from stower.model.defaults import with_pod_defaults
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod, WarmPool
from stower.model.kinds.pod import ResourceRequirements
from stower.model.kinds.warm_pool import Placeholders, WarmPoolSpec
from stower.model.resources import PODS, amount_text, amounts, pod_requests
from stower.model.selectors import LabelSelector
from stower.plugins.image_readiness import ImageReadiness
from stower.plugins.warm_capacity import WarmCapacity, find_warm_controller
from stower.sim.autoscaler import NodeGroup, empty_bin
from stower.sim.hub_day import Day, User
from stower.sim.hub_policies import IMAGE, Policy, Setup, configuration_with, profile_of, with_owner
from stower.warm.pools import Pool

Json = dict[str, Any]

NAMESPACE: Final = "jhub"
PLACEHOLDER_PRIORITY: Final = -10
HOSTNAME: Final = "kubernetes.io/hostname"


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

    def known_pool(self) -> Pool:
        """Returns the pool as a scheduler knows it."""
        return Pool(f"{self.namespace}/{self.pool.metadata.name}", self.pool.spec, None)

    def check(self) -> None:
        """Raises InvalidObject for a pool, or a user, of whom no day can be run."""
        if self.user is None and self.pool.spec.placeholders.template is None:
            raise InvalidObject("spec.placeholders.template", None, "a template, or --user FILE")
        user = self._typical_user()
        if not pod_requests(user):
            want = "resources.requests, so that a node is full at some time"
            raise InvalidObject("the user's containers", "no requests", want)
        for pod in (user, self._typical_placeholder()):
            if pod.spec.resource_claims:
                names = ", ".join(claim.name for claim in pod.spec.resource_claims)
                raise InvalidObject("resourceClaims", names, "none: days have no devices")
            if HOSTNAME in (pod.spec.node_selector or {}):
                want = "none: the nodes of a day have names of their own"
                raise InvalidObject("nodeSelector", HOSTNAME, want)
        labels = user.metadata.labels or {}
        selector = self.pool.spec.users
        if selector is None or not selector.matches(labels):
            raise InvalidObject("spec.users", labels, "a selector that the user's labels match")

    def check_groups(self) -> None:
        """Raises InvalidObject where no node takes a user, or a placeholder."""
        names = ", ".join(group.name for group in self._node_groups())
        pods = {"a user": self._typical_user(), "a placeholder": self._typical_placeholder()}
        for what, pod in pods.items():
            if not self.fits(self._on_nodes_of_the_pool(pod)):
                want = f"one whose nodes take {what}, by requests, labels and taints"
                raise InvalidObject("nodeGroups", names, want)

    def check_configuration(self) -> None:
        """Raises InvalidObject for a configuration under which no day can be run."""
        given = self.configuration
        if given is None:
            return
        engine = build_engine(given, features=Features(warm_pools=True))
        if given.get("extenders"):
            raise InvalidObject("extenders", len(given["extenders"]), "none: days cannot call them")
        if find_warm_controller(engine.state) is None:
            want = "the plugin WarmCapacity, which the pool is for"
            raise InvalidObject("profiles", ", ".join(engine.profiles), want)

    def fits(self, user: Pod) -> bool:
        """Whether a node of one of the groups takes it."""
        needs = amounts(pod_requests(user)) | {PODS: 1}
        return any(empty_bin(group).take(user, needs) for group in self._node_groups())

    def setup(self, policy: Policy, day: Day) -> Setup:
        """Returns what a day is run with."""
        is_ours = policy.has_own_placeholders
        how, replicas = self.pool.spec.placeholders, policy.placeholders
        most = max(how.replicas_max, replicas)
        count = msgspec.structs.replace(how, replicas=replicas, replicas_max=most)
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
            has_laws=not (
                _has_rules(self._typical_user())
                or _has_rules(self._typical_placeholder())
                or self._has_own_rules()
            ),
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
            return self._with_image(self._simulated(self.user, 0))
        template = self.pool.spec.placeholders.template or {"spec": {}}
        found = msgspec.convert({"metadata": {}, "spec": template["spec"]}, Pod)
        labels = dict(_labels_for(self.pool.spec.users))
        spec = msgspec.structs.replace(found.spec, priority=0, priority_class_name="")
        meta = msgspec.structs.replace(found.metadata, labels=labels)
        found = msgspec.structs.replace(found, metadata=meta, spec=spec)
        return self._with_image(self._simulated(found, 0))

    def _typical_placeholder(self) -> Pod:
        """As the pool says, or like a user."""
        template = self.pool.spec.placeholders.template
        if template is None:
            pod = self._typical_user()
            spec = msgspec.structs.replace(pod.spec, priority=PLACEHOLDER_PRIORITY)
            return msgspec.structs.replace(pod, spec=spec)
        found = msgspec.convert({"metadata": {}, "spec": template["spec"]}, Pod)
        return self._simulated(found, PLACEHOLDER_PRIORITY)

    def _with_image(self, pod: Pod) -> Pod:
        """With the one image that nodes pull."""
        image = self._image()
        main, others = (
            tuple(msgspec.structs.replace(c, image=image) for c in containers or ())
            for containers in (pod.spec.containers, pod.spec.init_containers)
        )
        spec = msgspec.structs.replace(pod.spec, containers=main, init_containers=others or None)
        return msgspec.structs.replace(pod, spec=spec)

    def _simulated(self, pod: Pod, otherwise: int) -> Pod:
        """Returns the pod as an API server would store it, with the priority `otherwise` where the
        PriorityClass is not known; without volumes and scheduling gates, which nobody provides or
        removes in a simulation."""
        priority = pod.spec.priority
        if priority is None:
            priority = self.priorities.get(pod.spec.priority_class_name, otherwise)
        spec = msgspec.structs.replace(
            pod.spec, priority=priority, volumes=None, scheduling_gates=None
        )
        return with_pod_defaults(msgspec.structs.replace(pod, spec=spec), {}, "")

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
        template = self.pool.spec.placeholders.template or {}
        pod = self._on_nodes_of_the_pool(self._typical_placeholder())
        spec = msgspec.to_builtins(pod.spec) | {"schedulerName": self._scheduler_name()}
        return {"metadata": template.get("metadata", {}), "spec": spec}

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

    def _scheduler_name(self) -> str:
        """The profile that the hub's pods name, or else the first."""
        template: Json = (self.pool.spec.placeholders.template or {}).get("spec") or {}
        asked = self.user.spec.scheduler_name if self.user is not None else None
        asked = asked or template.get("schedulerName") or "user-scheduler"
        if self.configuration is None:
            return asked
        profiles: list[Json] = self.configuration.get("profiles") or [{}]
        names = [profile.get("schedulerName", DEFAULT_SCHEDULER_NAME) for profile in profiles]
        return asked if asked in names else names[0]

    def _has_own_rules(self) -> bool:
        """Whether the profile leaves out some of what the plugins for warm capacity do."""
        if self.configuration is None:
            return False
        own, shipped = (
            build_engine(document, features=Features(warm_pools=True)).profiles
            for document in (self.configuration, None)
        )
        mine = _warm_plugins(own[self._scheduler_name()])
        return mine != _warm_plugins(shipped[DEFAULT_SCHEDULER_NAME])

    # Nodes

    def _node_groups(self) -> tuple[NodeGroup, ...]:
        if self.groups:
            return self.groups
        room: dict[str, str | int | float] = {"pods": "110"}
        needs = {**amounts(pod_requests(self._typical_placeholder()))}
        needs |= amounts(pod_requests(self._typical_user()))
        for name, amount in needs.items():
            room[name] = amount_text(name, amount * self.slots)
        labels = dict(self.pool.spec.node_selector or {})
        for pod in (self._typical_user(), self._typical_placeholder()):
            labels |= {**(pod.spec.node_selector or {}), **dict(_required_labels(pod))}
        return (NodeGroup("users", room, 1, 1_000, labels),)


def _has_rules(pod: Pod) -> bool:
    """Whether more than requests, labels of nodes and taints says where the pod may go."""
    found = pod.spec.affinity
    others = found is not None and (found.pod_affinity or found.pod_anti_affinity)
    return bool(others or pod.spec.topology_spread_constraints)


def _warm_plugins(profile: Profile) -> list[tuple[str, ...]]:
    """Names of the plugins for warm capacity at the points at which nodes are chosen."""
    points = profile.filters, profile.post_filters, [plugin for plugin, _ in profile.scores]
    wanted = (WarmCapacity.name, ImageReadiness.name)
    return [tuple(plugin.name for plugin in one if plugin.name in wanted) for one in points]


def _required_labels(pod: Pod) -> Iterator[tuple[str, str]]:
    """Labels with which a node has what the pod's node affinity requires, as far as it says."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in (required.node_selector_terms or ())[:1] if required is not None else ():
        yield from _labels_for(LabelSelector(match_expressions=term.match_expressions))


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
