"""Clusters in which one pod is kept from its node by causes that are known."""

import random
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from stower.assembly import build_engine
from stower.cli.inputs import load_generated
from stower.engine.explain.explanation import Explanation
from stower.engine.explain.probe import explain_pod, observe_new_pods
from stower.framework.events import Hold, Listed
from stower.framework.explanation import ExplanationClass

Object = dict[str, Any]
NEVER, BLOCKED, WAITING, READY = ExplanationClass
NOW_NS: Final = 1_800_000_000 * 10**9
THEN: Final = "2027-01-15T00:00:00Z"  # before that
HOSTNAME: Final = "kubernetes.io/hostname"
POD: Final = "default/asked"


class Cluster:
    """Nodes that the pod fits on, and the pod."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.objects: list[Object] = []
        kinds = [draw.choice((4, 8, 16)) for _ in range(draw.randrange(1, 3))]
        self.nodes: list[Object] = []
        for i in range(draw.randrange(1, 5)):
            cpu = draw.choice(kinds)
            labels = {HOSTNAME: f"n{i}", "zone": draw.choice("ab")}
            room = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "110"}
            node = thing("Node", f"n{i}", {}, labels=labels)
            self.nodes.append({**node, "status": {"allocatable": room}})
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
        self.container: Object = {"name": "c", "resources": resources}
        spec = {"containers": [self.container], "schedulerName": "default-scheduler"}
        self.pod = thing("Pod", "asked", spec, labels={"app": "asked"})

    @property
    def spec(self) -> Object:
        spec: Object = self.pod["spec"]
        return spec

    @property
    def documents(self) -> list[Object]:
        return [*self.nodes, *self.objects, self.pod]

    def add_pod(self, node: Object, name: str, cpu: str = "", **fields: Any) -> Object:
        """A pod that runs on a node, with a priority above the asked pod's."""
        requests = {"cpu": cpu} if cpu else {}
        spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "priority": 10}
        where = node["metadata"]["name"]
        pod = thing("Pod", f"{name}-{where}", {**spec, "nodeName": where, **fields})
        self.objects.append(pod)
        return pod

    def fill(self, node: Object, name: str, **fields: Any) -> Object:
        """A pod that takes the node's CPU but for a half."""
        cpu = int(node["status"]["allocatable"]["cpu"])
        return self.add_pod(node, name, f"{cpu * 1000 - 500}m", **fields)


class Cause(NamedTuple):
    """`plant` on these nodes; `is_shared`: it is of the pod, and concerns all nodes. `parts`: the
    causes of one group cannot be planted together."""

    name: str
    class_: ExplanationClass
    part: str
    plant: Callable[[Cluster, list[Object]], None]
    is_shared: bool = False


def thing(kind: str, name: str, spec: Object, version: str = "v1", **meta: Any) -> Object:
    namespace = {} if kind in ("Node", "DeviceClass", "ResourceSlice") else {"namespace": "default"}
    names = {"name": name, **namespace, "uid": f"uid-of-{name}", **meta}
    return {"apiVersion": version, "kind": kind, "metadata": names, "spec": spec}


# Of the pod, on all nodes


def _ask(resource: str, amount: str) -> Callable[[Cluster, list[Object]], None]:
    def plant(cluster: Cluster, _: list[Object]) -> None:
        requests = cluster.container["resources"]["requests"]
        requests[resource] = amount
        if "/" in resource:
            cluster.container["resources"]["limits"] = {resource: amount}

    return plant


def _init(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "99"}}}]


def _pod_level(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["resources"] = {"requests": {"cpu": "99"}}


def _overhead(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["overhead"] = {"cpu": "99"}


def _selector(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["nodeSelector"] = {"disk.example.com/kind": "ssd"}


def _affinity(cluster: Cluster, _: list[Object]) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.spec.setdefault("affinity", {})["nodeAffinity"] = required


def _spread(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["topologySpreadConstraints"] = [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "asked"}}}
    ]  # fmt: skip


def _stranger(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["schedulerName"] = "nobody"


def _gate(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["schedulingGates"] = [{"name": "example.com/hold"}]


def _lonely(cluster: Cluster, _: list[Object]) -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "friend"}}}
    own = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    cluster.spec.setdefault("affinity", {})["podAffinity"] = own


def _claim(cluster: Cluster, _: list[Object]) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
    cluster.spec["volumes"] = [volume]


def _template(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "elsewhere"}]


def _group(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["schedulingGroup"] = {"podGroupName": "gang"}
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    cluster.objects.append(thing("PodGroup", "gang", gang, "scheduling.k8s.io/v1beta1"))


# On some nodes


def _taint(key: str) -> Callable[[Cluster, list[Object]], None]:
    def plant(_: Cluster, nodes: list[Object]) -> None:
        for node in nodes:
            node["spec"].setdefault("taints", []).append({"key": key, "effect": "NoSchedule"})

    return plant


def _cordon(_: Cluster, nodes: list[Object]) -> None:
    for node in nodes:
        node["spec"]["unschedulable"] = True


def _full(cluster: Cluster, nodes: list[Object]) -> None:
    for node in nodes:
        cluster.fill(node, "full")


def _leaving(cluster: Cluster, nodes: list[Object]) -> None:
    for node in nodes:
        cluster.fill(node, "leaving")["metadata"]["deletionTimestamp"] = THEN


def _ending(cluster: Cluster, nodes: list[Object]) -> None:
    for node in nodes:
        pod = cluster.fill(node, "ending", activeDeadlineSeconds=86_400 * 400)
        pod["status"] = {"phase": "Running", "startTime": THEN}


def _lower(cluster: Cluster, nodes: list[Object]) -> None:
    for node in nodes:
        cluster.fill(node, "lower", priority=-10)


def _port(cluster: Cluster, nodes: list[Object]) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    cluster.container["ports"] = ports
    for node in nodes:
        pod = cluster.add_pod(node, "port")
        pod["spec"]["containers"][0]["ports"] = ports


def _apart(cluster: Cluster, nodes: list[Object]) -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "rival"}}}
    own = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    cluster.spec.setdefault("affinity", {})["podAntiAffinity"] = own
    for node in nodes:
        cluster.add_pod(node, "rival")["metadata"]["labels"] = {"app": "rival"}


DRA: Final = "resource.k8s.io/v1"
DRIVER: Final = "gpu.example.com"


def _devices(cluster: Cluster, count: int) -> None:
    """Each node has a device, and the pod claims so many."""
    if "resourceClaims" in cluster.spec:
        return
    cluster.objects.append(thing("DeviceClass", "gpu", {}, DRA))
    for node in cluster.nodes:
        name = node["metadata"]["name"]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [{"name": "gpu-0"}]}
        cluster.objects.append(thing("ResourceSlice", f"slice-{name}", spec, DRA))
    cluster.objects.append(thing("ResourceClaim", "gpus", _request(count), DRA))
    cluster.spec["resourceClaims"] = [{"name": "r", "resourceClaimName": "gpus"}]


def _request(count: int) -> Object:
    exactly = {"deviceClassName": "gpu", "count": count}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def _too_many_devices(cluster: Cluster, _: list[Object]) -> None:
    _devices(cluster, 2)


def _held_devices(cluster: Cluster, nodes: list[Object]) -> None:
    _devices(cluster, 1)
    for node in nodes:
        name = node["metadata"]["name"]
        pod = cluster.add_pod(node, "holder")
        pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": f"held-{name}"}]
        claim = thing("ResourceClaim", f"held-{name}", _request(1), DRA)
        result = {"request": "r", "driver": DRIVER, "pool": name, "device": "gpu-0"}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        selector = {"nodeSelectorTerms": [term]}
        meta = pod["metadata"]
        user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        allocation = {"devices": {"results": [result]}, "nodeSelector": selector}
        claim["status"] = {"allocation": allocation, "reservedFor": [user]}
        cluster.objects.append(claim)


def _missing_claim(cluster: Cluster, _: list[Object]) -> None:
    cluster.spec["resourceClaims"] = [{"name": "r", "resourceClaimName": "missing"}]


def _crowded(cluster: Cluster, nodes: list[Object]) -> None:
    """As many pods as the node takes."""
    for node in nodes:
        node["status"]["allocatable"]["pods"] = "1"
        cluster.add_pod(node, "only")


def _far_volume(cluster: Cluster, _: list[Object]) -> None:
    """A volume that is in no node's zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "far", "uid": "uid-of-far"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}  # fmt: skip
    volume = thing("PersistentVolume", "far-volume", spec)
    del volume["metadata"]["namespace"]
    wanted = {"accessModes": ["ReadWriteOnce"], "volumeName": "far-volume",
              "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = thing("PersistentVolumeClaim", "far", wanted, annotations=bound)
    claim["status"] = {"phase": "Bound"}
    cluster.objects += [volume, claim]
    source = {"name": "v", "persistentVolumeClaim": {"claimName": "far"}}
    cluster.spec["volumes"] = [source]


# In `part`, what excludes each other: of one field, or of one amount.
CAUSES: Final = (
    Cause("cpu", NEVER, "cpu", _ask("cpu", "99"), True),
    Cause("memory", NEVER, "memory", _ask("memory", "999Gi"), True),
    Cause("extended resource", NEVER, "extended", _ask("example.com/gpu", "2"), True),
    Cause("init container", NEVER, "cpu", _init, True),
    Cause("pod level", NEVER, "cpu", _pod_level, True),
    Cause("overhead", NEVER, "cpu", _overhead, True),
    Cause("node selector", NEVER, "selector", _selector, True),
    Cause("node affinity", NEVER, "selector", _affinity, True),
    Cause("spread over a missing label", NEVER, "spread", _spread, True),
    Cause("taint", NEVER, "taint", _taint("example.com/kept")),
    Cause("cordon", BLOCKED, "cordon", _cordon),
    Cause("condition", BLOCKED, "condition", _taint("node.kubernetes.io/disk-pressure")),
    Cause("full", BLOCKED, "cpu", _full),
    Cause("host port", BLOCKED, "port", _port),
    Cause("anti-affinity", BLOCKED, "apart", _apart),
    Cause("affinity", BLOCKED, "near", _lonely, True),
    Cause("gate", BLOCKED, "gate", _gate, True),
    Cause("volume claim", BLOCKED, "volume", _claim, True),
    Cause("crowded", BLOCKED, "crowded", _crowded),
    Cause("devices in use", BLOCKED, "devices", _held_devices),
    Cause("volume elsewhere", NEVER, "volume", _far_volume, True),
    Cause("leaving", WAITING, "cpu", _leaving),
    Cause("deadline", WAITING, "cpu", _ending),
)  # fmt: skip
# What nothing else is planted beside: the answer is of the pod as a whole.
ALONE: Final = (
    Cause("scheduler", NEVER, "", _stranger, True),
    Cause("missing claim template", BLOCKED, "", _template, True),
    Cause("more devices than there are", NEVER, "", _too_many_devices, True),
    Cause("missing claim", BLOCKED, "", _missing_claim, True),
    Cause("group", WAITING, "", _group, True),
    Cause("lower priority", WAITING, "", _lower),
)


class Planted(NamedTuple):
    """A cluster, the causes on each node by its name, and the class that the pod is of. `size`: the
    fewest causes of a node."""

    cluster: Cluster
    causes: dict[str, list[str]]
    class_: ExplanationClass
    size: int


def plant(seed: int, count: int) -> Planted:
    """Plants so many causes on each node; shared ones count on each."""
    draw = random.Random(f"{seed} {count}")
    cluster = Cluster(draw)
    names = [node["metadata"]["name"] for node in cluster.nodes]
    causes: dict[str, list[Cause]] = {name: [] for name in names}
    if count == 1 and draw.random() < 0.25:
        _plant(draw.choice(ALONE), cluster, causes, cluster.nodes)
    else:
        for _ in range(count):
            known = {cause.part for found in causes.values() for cause in found}
            free = [cause for cause in CAUSES if cause.part not in known]
            first = draw.choice(free)
            if first.is_shared or draw.random() < 0.6:
                _plant(first, cluster, causes, cluster.nodes)
                continue
            local = [cause for cause in free if not cause.is_shared]
            for node in cluster.nodes:  # another for each node, or none
                _plant(draw.choice(local), cluster, causes, [node])
    if count > 1 and draw.random() < 0.3:  # one node has fewer than the others, or more
        known = {cause.part for found in causes.values() for cause in found}
        local = [c for c in CAUSES if c.part not in known and not c.is_shared and c.part != "cpu"]
        if local:
            _plant(draw.choice(local), cluster, causes, [draw.choice(cluster.nodes)])
    rank = [READY, WAITING, BLOCKED, NEVER]
    worst = [max((c.class_ for c in found), key=rank.index) for found in causes.values()]
    return Planted(
        cluster,
        {name: [cause.name for cause in found] for name, found in causes.items()},
        min(worst, key=rank.index),
        min(map(len, causes.values())),
    )


def _plant(
    cause: Cause, cluster: Cluster, causes: dict[str, list[Cause]], nodes: list[Object]
) -> None:
    cause.plant(cluster, nodes)
    for node in nodes:
        causes[node["metadata"]["name"]].append(cause)


def explain_documents(documents: Iterable[Object]) -> Explanation:
    """The explanation of the asked pod, as `stower explain` finds it."""
    loaded = load_generated(msgspec.json.encode(obj) for obj in documents).workload
    pods = [*loaded.placed, *(arrival.pod for arrival in loaded.arrivals)]
    engine = build_engine()
    engine.state.devices.template_keys = loaded.template_keys
    engine.step(Hold(True), NOW_NS)
    engine.step(Listed((*loaded.related, *loaded.nodes, *pods)), NOW_NS)
    observe_new_pods(engine)
    (pod,) = (pod for pod in pods if pod.key == POD)
    return explain_pod(engine, pod)
