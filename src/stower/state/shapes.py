"""Shapes: pods with equal node-facing specs share one shape, so that work is done once per shape.

Labels, names and terms about other pods are not part of a shape: an index label on every pod would
otherwise make every pod a shape of its own. Must not know rows or plugins.
"""

import weakref
from collections.abc import Callable, Container, Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from stower.model.kinds import Pod
from stower.model.kinds.pod import ImageVolume, NodeAffinity, Volume
from stower.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NON_ZERO,
    PODS,
    Amounts,
    Claimed,
    amounts,
    host_ports,
    is_class_resource,
    non_zero_requests,
    normalized_image,
    pod_requests,
)
from stower.model.taints import Toleration
from stower.state.arrays import ResourceColumn

# Distinct spec texts and shapes kept. Beyond that the oldest are dropped: pods that hold a dropped
# shape keep it, later pods get an equal new one.
TEXTS_MAX: Final = 16_384
SHAPES_MAX: Final = 8_192
# Resources of a pod of which each is looked at, whether or not anybody offers it. Real pods have a
# dozen; NodeResourcesFit names so many in a message.
RESOURCES_MAX: Final = 60
OTHERS: Final = "other resources"  # no resource has such a name
TEXT_BYTES_MAX: Final = 4_096  # of a key; of longer ones, a digest is kept
# Keys of shapes with longer ones: beyond that, shapes that no pod has are dropped everywhere. A
# shape takes some ten times as much.
LARGE_BYTES: Final = 2 * 1024 * 1024

# The order in which a node's shortages are reported upstream.
_NAME_ORDER: Final = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}


class Shape:
    """The requirements of a pod for its node. Compared by identity; immutable.

    requests: amounts that must fit, by resource column, without amounts of 0. usage: amounts that a
    placed pod takes, by column: its requests, what its claims take, one of `pods`, and the non-zero
    requests for scoring. fit_amounts, balanced_amounts: the amounts that the two resource scores
    count. ports: (protocol, port, IP). images: one per container or image volume, normalised.
    required_features: features that the node must declare. has_storage: whether there are volume
    claims or disks. has_claims: whether there are claims for devices. extended_requests: those of
    `requests` that a device class may stand for. node_name: set only if a pending pod names its
    node. is_partial: whether resources are left out that nobody offers: of a pod with more than
    RESOURCES_MAX, one column without amounts stands for those beyond, as messages name no more.
    large_bytes: the length of its key where that is more than TEXT_BYTES_MAX, else 0.
    """

    __slots__ = (
        "__weakref__",
        "balanced_amounts",
        "container_count",
        "extended_requests",
        "fit_amounts",
        "has_claims",
        "has_storage",
        "images",
        "is_partial",
        "large_bytes",
        "node_affinity",
        "node_name",
        "node_selector",
        "ports",
        "requests",
        "required_features",
        "serial",
        "tolerations",
        "usage",
    )  # fmt: skip

    def __init__(
        self, serial: int, pod: Pod, node_name: str, columns: "Callable[[str], ResourceColumn]",
        non_zero: tuple[ResourceColumn, ResourceColumn], claimed: Claimed,
        is_offered: Callable[[str], bool],
    ) -> None:  # fmt: skip
        spec = pod.spec
        self.serial = serial
        self.is_partial = False
        self.large_bytes = 0
        asked = self._without_unoffered(amounts(pod_requests(pod)), is_offered)
        self.requests = tuple((columns(name), asked[name]) for name in _sorted_names(asked))
        if self.is_partial:
            self.requests += ((columns(OTHERS), 1),)
        self.extended_requests = tuple(
            part for part in self.requests if is_class_resource(part[0].name)
        )
        with_status = pod_requests(pod, use_status=True, claimed=claimed)
        taken = self._without_unoffered(amounts(with_status), is_offered)
        zero_cpu, zero_memory = non_zero_requests(pod, with_status, claimed)
        self.usage = (
            (columns(PODS), 1),
            *((columns(name), taken[name]) for name in _sorted_names(taken)),
            (non_zero[0], zero_cpu),
            (non_zero[1], zero_memory),
        )
        # Upstream builds the fit scorer without its pod-level and resize options.
        self.fit_amounts = self._without_unoffered(
            amounts(pod_requests(pod, pod_level=False, non_missing=NON_ZERO)), is_offered
        )
        self.balanced_amounts = taken
        self.ports = host_ports(pod)
        containers = (*(spec.init_containers or ()), *spec.containers)
        volumes = [v.image.reference for v in spec.volumes or () if v.image is not None]
        self.container_count = len(containers)
        self.images = tuple(
            normalized_image(name) for name in (*(c.image for c in containers), *volumes)
        )
        self.node_name = node_name
        self.node_selector = spec.node_selector
        self.node_affinity: NodeAffinity | None = (
            spec.affinity.node_affinity if spec.affinity is not None else None
        )
        self.tolerations: tuple[Toleration, ...] = spec.tolerations or ()
        self.required_features = required_features(pod)
        self.has_storage = uses_storage(pod)
        self.has_claims = bool(spec.resource_claims)

    def _without_unoffered(self, found: Amounts, is_offered: Callable[[str], bool]) -> Amounts:
        """Returns the amounts; of more than RESOURCES_MAX, only those that come first and those
        that are offered."""
        if len(found) <= RESOURCES_MAX:
            return found
        names = _sorted_names(found)
        kept = [*names[:RESOURCES_MAX], *filter(is_offered, names[RESOURCES_MAX:])]
        self.is_partial |= len(kept) < len(names)
        return {name: found[name] for name in kept}


class ShapeTable:
    """Interns shapes: by the encoded spec first (1 µs), by the meaning of the spec second."""

    __slots__ = (
        "_by_meaning",
        "_by_text",
        "_columns",
        "_encode",
        "_is_offered",
        "_large",
        "_next",
        "_non_zero",
        "_partial",
        "large_bytes",
        "large_bytes_max",
    )  # fmt: skip

    def __init__(
        self,
        columns: "Callable[[str], ResourceColumn]",
        non_zero: tuple[ResourceColumn, ResourceColumn],
        is_offered: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`is_offered`: whether a node or a device class has a resource."""
        self._columns = columns
        self._is_offered = is_offered
        self._non_zero = non_zero
        self._encode = msgspec.msgpack.Encoder().encode
        self._by_text: dict[bytes, Shape] = {}
        self._by_meaning: dict[bytes, Shape] = {}
        # Those that are partial, by text and by meaning, as long as a pod has them.
        self._partial: weakref.WeakValueDictionary[bytes, Shape] = weakref.WeakValueDictionary()
        self._large: dict[bytes, Shape] = {}  # by the digest of the text
        self.large_bytes = 0
        self.large_bytes_max = LARGE_BYTES
        self._next = 0

    def intern(self, pod: Pod, node_name: str = "", claimed: Claimed = ()) -> Shape:
        """Returns the pod's shape. Raises InvalidObject where a quantity is unreadable.

        `node_name` pins a pending pod to one node (the NodeName plugin); `claimed` is what the
        claims of a placed pod take of its node's own resources (KEP-5517).
        """
        spec, status = pod.spec, pod.status
        affinity = spec.affinity
        resized = status.container_statuses or status.init_container_statuses or status.resources
        text = self._encode(
            (
                spec.containers,
                spec.init_containers,
                spec.node_selector,
                affinity.node_affinity if affinity is not None else None,
                spec.tolerations,
                spec.overhead,
                spec.resources,
                _volume_parts(spec.volumes) if spec.volumes else None,
                spec.host_network and spec.host_users is False,
                bool(spec.resource_claims),
                node_name,
                _resize_status(pod) if resized else None,
                [part.resources for part in claimed] if claimed else None,
            )
        )
        size = len(text)
        if size > TEXT_BYTES_MAX:
            text = _digest(text)
            shape = self._large.get(text)
        else:
            shape = self._by_text.get(text)
        if shape is None:
            shape = self._partial.get(text)
        if shape is None:
            shape = self._intern_new(pod, node_name, claimed)
            if size > TEXT_BYTES_MAX:
                self.large_bytes += size
                shape.large_bytes = max(shape.large_bytes, size)
            if shape.is_partial or shape.large_bytes:
                (self._partial if shape.is_partial else self._large)[text] = shape
                return shape
            if len(self._by_text) >= TEXTS_MAX:
                _drop_oldest(self._by_text)
            self._by_text[text] = shape
        return shape

    def forget_partial(self) -> bool:
        """Forgets partial shapes, as other resources are offered now. Returns whether any pod has
        one."""
        has_any = bool(self._partial)
        self._partial.clear()
        return has_any

    def drop_large(self, used: Container[Shape]) -> set[int]:
        """Drops the large shapes that are not in use. Returns their serials."""
        large = [s for s in (*self._large.values(), *self._partial.values()) if s.large_bytes]
        dropped = {shape.serial for shape in large if shape not in used}
        for known in (self._large, self._partial, self._by_meaning):
            for key in [key for key, shape in known.items() if shape.serial in dropped]:
                del known[key]
        self.large_bytes = sum(shape.large_bytes for shape in large if shape in used)
        self.large_bytes_max = max(LARGE_BYTES, 2 * self.large_bytes)
        return dropped

    def _intern_new(self, pod: Pod, node_name: str, claimed: Claimed) -> Shape:
        shape = Shape(
            self._next, pod, node_name, self._columns, self._non_zero, claimed, self._is_offered
        )
        meaning = self._encode(
            (
                [(column.name, amount) for column, amount in shape.requests],
                [(column.name, amount) for column, amount in shape.usage],
                sorted(shape.fit_amounts.items()),
                shape.ports,
                shape.images,
                shape.container_count,
                shape.node_name,
                sorted((shape.node_selector or {}).items()),
                shape.node_affinity,
                shape.tolerations,
                sorted(shape.required_features),
                shape.has_storage,
                shape.has_claims,
            )
        )
        if len(meaning) > TEXT_BYTES_MAX:
            meaning = _digest(meaning)
        if shape.is_partial:  # what is left out is no part of the meaning
            self._next += 1
            return shape
        known = self._by_meaning.get(meaning)
        if known is not None:
            return known
        self._next += 1
        if len(self._by_meaning) >= SHAPES_MAX:
            _drop_oldest(self._by_meaning)
        self._by_meaning[meaning] = shape
        return shape


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=32).digest()


def uses_storage(pod: Pod) -> bool:
    """Returns whether the pod has volume claims or disks."""
    volumes = pod.spec.volumes
    return bool(volumes) and _volume_parts(volumes or ())[1]


def _volume_parts(volumes: Iterable[Volume]) -> tuple[list[ImageVolume], bool]:
    """Returns the image volumes, and whether any volume is a claim or a disk."""
    images = []
    has_storage = False
    for v in volumes:
        if v.image is not None:
            images.append(v.image)
        has_storage = (
            has_storage
            or v.persistent_volume_claim is not None
            or v.ephemeral is not None
            or v.gce_persistent_disk is not None
            or v.aws_elastic_block_store is not None
            or v.iscsi is not None
            or v.rbd is not None
            or v.azure_disk is not None
            or v.cinder is not None
            or v.portworx_volume is not None
        )
    return images, has_storage


def required_features(pod: Pod) -> frozenset[str]:
    """Returns the features that the pod's node must declare (component-helpers
    nodedeclaredfeatures/features)."""
    found = set()
    spec = pod.spec
    for container in (*spec.containers, *(spec.init_containers or ())):
        for rule in container.restart_policy_rules or ():
            if rule.action == "RestartAllContainers":
                found.add("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    return frozenset(found)


def _resize_status(pod: Pod) -> object:
    """Returns what containers were allocated; the rest of a status changes all the time."""
    status = pod.status
    pending = pod.condition("PodResizePending")
    return (
        [(s.name, s.resources, s.allocated_resources) for s in status.container_statuses or ()],
        [
            (s.name, s.resources, s.allocated_resources)
            for s in status.init_container_statuses or ()
        ],
        status.resources,
        status.allocated_resources,
        pending.reason if pending is not None else None,
    )


def _sorted_names(amounts_: Amounts) -> list[str]:
    """Returns names with an amount other than 0: cpu, memory, ephemeral-storage, then by name."""
    names = [name for name, amount in amounts_.items() if amount]
    return sorted(names, key=lambda name: (_NAME_ORDER.get(name, 3), name))


def _drop_oldest(table: dict[bytes, Shape]) -> None:
    for text in list(table)[: len(table) // 4]:
        del table[text]
