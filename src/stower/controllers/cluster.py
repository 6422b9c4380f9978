"""The Cluster file of `stower up`: node pools, images and start times, parsed and checked.

apiVersion: stower.dev/v1
kind: Cluster
pools:
- name: general
  count: 100
  capacity: {cpu: "8", memory: 32Gi, pods: "110"}
  zones: [a, b, c]
images:
- {name: notebook:1, size: 4Gi}
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from stower.controllers.image_names import full_name
from stower.controllers.objects import Object
from stower.framework.args import Args, convert
from stower.model.errors import InvalidObject
from stower.model.names import label_value_faults, qualified_name_faults, subdomain_faults
from stower.model.quantity import QuantityError, parse_quantity

API_VERSION: Final = "stower.dev/v1"
NODES_MAX: Final = 100_000
SECONDS_MAX: Final = 1_000_000_000
ZONE: Final = "topology.kubernetes.io/zone"
POOL: Final = "stower.dev/pool"


class Taint(Args, frozen=True):
    """A taint of a pool's nodes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Image(Args, frozen=True):
    """An image, how large it is, and whether nodes that lack it can pull it."""

    name: str
    size: str = "100Mi"
    pullable: bool = True


class NodePool(Args, frozen=True, rename="camel"):
    """Nodes that are alike. Zones are dealt out in turn."""

    name: str
    count: int = 1
    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    zones: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    boot_seconds: float = 0.0


class Cluster(Args, frozen=True, rename="camel"):
    """The whole file."""

    api_version: str = API_VERSION
    kind: str = "Cluster"
    pools: tuple[NodePool, ...] = ()
    images: tuple[Image, ...] = ()
    # What an image that is not listed weighs, and how fast a node pulls.
    image_size: str = "20Mi"
    pull_bytes_per_second: str = "100Mi"
    start_seconds: float = 0.0
    seed: int = 0

    @property
    def pull_rate(self) -> int:
        """Bytes a second at which a node pulls."""
        return _bytes(self.pull_bytes_per_second)

    @property
    def unpullable(self) -> frozenset[str]:
        """The full names of images that no node can pull."""
        return frozenset(full_name(image.name) for image in self.images if not image.pullable)

    def image_bytes(self, name: str) -> int:
        """The size of an image."""
        wanted = full_name(name)
        for image in self.images:
            if full_name(image.name) == wanted:
                return _bytes(image.size)
        return _bytes(self.image_size)

    def nodes(self) -> Iterator[tuple[str, NodePool, Object]]:
        """Name, pool and Node of each node."""
        for pool in self.pools:
            for number in range(pool.count):
                name = f"{pool.name}-{number + 1}"
                yield name, pool, self._node(name, number, pool)

    def _node(self, name: str, number: int, pool: NodePool) -> Object:
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            POOL: pool.name,
            **pool.labels,
        }
        if pool.zones:
            labels[ZONE] = pool.zones[number % len(pool.zones)]
        spec: Object = {"providerID": f"stower://{name}"}
        if pool.taints:
            spec["taints"] = [
                {"key": t.key, "effect": t.effect, **({"value": t.value} if t.value else {})}
                for t in pool.taints
            ]
        capacity = {**DEFAULT_CAPACITY, **{k: str(v) for k, v in pool.capacity.items()}}
        images = [{"names": [i], "sizeBytes": self.image_bytes(i)} for i in pool.images]
        address = address_of(name)
        status: Object = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": NODE_INFO,
            **({"images": images} if images else {}),
        }
        meta = {"name": name, "labels": labels, "annotations": pool.annotations}
        return {"metadata": meta, "spec": spec, "status": status}


DEFAULT_CAPACITY: Final = {"cpu": "4", "memory": "16Gi", "pods": "110",
                           "ephemeral-storage": "100Gi"}  # fmt: skip
NODE_INFO: Final = {
    "architecture": "amd64", "operatingSystem": "linux", "osImage": "simulated",
    "kernelVersion": "simulated", "containerRuntimeVersion": "stower://1",
    "kubeletVersion": "v1.36.0+stower", "kubeProxyVersion": "", "machineID": "",
    "systemUUID": "", "bootID": "",
}  # fmt: skip


def address_of(name: str) -> str:
    """An address that is always the same for a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{digest[2] % 254 + 1}"


def read_cluster(document: Mapping[str, Any]) -> Cluster:
    """The cluster of a decoded document. Raises InvalidObject that names the field."""
    cluster = convert(document, Cluster, "")
    for field, value, want in (
        ("apiVersion", cluster.api_version, API_VERSION),
        ("kind", cluster.kind, "Cluster"),
    ):
        if value != want:
            raise InvalidObject(field, value, want)
    if not cluster.pools:
        raise InvalidObject("pools", [], "at least one pool")
    if sum(max(0, pool.count) for pool in cluster.pools) > NODES_MAX:
        raise InvalidObject("pools", "too many nodes", f"at most {NODES_MAX:,} in all pools")
    names: set[str] = set()
    for i, pool in enumerate(cluster.pools):
        if pool.name in names or not pool.name:
            raise InvalidObject(f"pools[{i}].name", pool.name, "a unique name")
        names.add(pool.name)
        _check_pool(f"pools[{i}]", pool)
        for j, taint in enumerate(pool.taints):
            _refuse(f"pools[{i}].taints[{j}].key", taint.key, qualified_name_faults(taint.key))
            _refuse(f"pools[{i}].taints[{j}].value", taint.value, label_value_faults(taint.value))
            if taint.effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                raise InvalidObject(f"pools[{i}].taints[{j}].effect", taint.effect,
                                    "NoSchedule, PreferNoSchedule or NoExecute")  # fmt: skip
    if not 0 <= cluster.start_seconds < SECONDS_MAX:
        raise InvalidObject("startSeconds", cluster.start_seconds, f"0 to {SECONDS_MAX:,}")
    for i, image in enumerate(cluster.images):
        _check_amount(f"images[{i}].size", image.size)
    _check_amount("imageSize", cluster.image_size)
    _check_amount("pullBytesPerSecond", cluster.pull_bytes_per_second)
    if _bytes(cluster.pull_bytes_per_second) < 1:
        raise InvalidObject("pullBytesPerSecond", cluster.pull_bytes_per_second, "more than 0")
    return cluster


def _check_pool(path: str, pool: NodePool) -> None:
    if pool.count < 0:
        raise InvalidObject(f"{path}.count", pool.count, "0 or more")
    # The names of its nodes begin with it, and a label holds it.
    _refuse(f"{path}.name", pool.name, subdomain_faults(f"{pool.name}-1"))
    _refuse(f"{path}.name", pool.name, label_value_faults(f"{pool.name}-{pool.count}"))
    if not 0 <= pool.boot_seconds < SECONDS_MAX:
        raise InvalidObject(f"{path}.bootSeconds", pool.boot_seconds, f"0 to {SECONDS_MAX:,}")
    for resource, amount in pool.capacity.items():
        _refuse(f"{path}.capacity", resource, qualified_name_faults(resource))
        _check_amount(f"{path}.capacity[{resource}]", amount)
        whole = resource == "pods" or "/" in resource
        if whole and parse_quantity(str(amount)).milli_value() % 1000:
            raise InvalidObject(f"{path}.capacity[{resource}]", amount, "a whole number")
    for key, value in pool.labels.items():
        _refuse(f"{path}.labels", key, qualified_name_faults(key))
        _refuse(f"{path}.labels[{key}]", value, label_value_faults(value))
    for key in pool.annotations:
        _refuse(f"{path}.annotations", key, qualified_name_faults(key.lower()))
    for number, zone in enumerate(pool.zones):
        _refuse(f"{path}.zones[{number}]", zone, label_value_faults(zone))


def _refuse(path: str, value: str, faults: Iterable[str]) -> None:
    for fault in faults:
        raise InvalidObject(path, value, f"a valid value: {fault}")


def _check_amount(path: str, text: str | int | float) -> None:
    try:
        good = parse_quantity(str(text)).sign >= 0
    except QuantityError:
        good = False
    if not good:
        raise InvalidObject(path, text, "a quantity such as 4 or 16Gi")


def _bytes(text: str) -> int:
    return parse_quantity(text).value()
