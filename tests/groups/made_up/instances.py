"""Made-up placement problems of trees of pod groups, unlike the golden ones: several pods a node,
several resources, devices by claims, taints, selectors, and rules between pods (host ports,
anti-affinity, affinity, spreading), with bound pods that have such rules too.

`planted` makes a problem around a placement that it has found itself; `tightened` takes away until
there may be none. Neither says what is true of a problem: oracle.py does.
"""

import random
from typing import Any, Final

import msgspec

HOST, RACK, BLOCK, ZONE = "kubernetes.io/hostname", "rack", "block", "zone"
LEVELS: Final = (ZONE, BLOCK, RACK)
KEYS: Final = (*LEVELS, HOST)
PORTS: Final = (7000, 7001)


class Pods(msgspec.Struct):
    """Equal pods of one group, or (of a node) those that are bound there. `near`, `apart`: the
    topology key and the app of those that they follow or exclude; `spread`: key, maxSkew, app."""

    group: int
    count: int
    app: str
    cpu: int
    gpu: int = 0
    selector: str = ""  # the value of label `disk` that they want
    tolerates: bool = False
    ports: list[int] = []
    near: list[tuple[str, str]] = []
    apart: list[tuple[str, str]] = []
    spread: list[tuple[str, int, str]] = []
    devices: int = 0  # that the claim of each asks for

    @property
    def has_rules(self) -> bool:
        """Whether other pods matter to them."""
        return bool(self.ports or self.near or self.apart or self.spread)


class MadeNode(msgspec.Struct):
    """A node, with what its bound pods leave free of cpu, gpu and pods."""

    name: str
    labels: dict[str, str]
    cpu: int
    gpu: int
    pods: int
    tainted: bool
    bound: list[Pods]
    devices: int = 0


class MadeGroup(msgspec.Struct):
    """A group; `minimum`: of pods or child groups, 0 for the basic policy."""

    parent: int
    minimum: int
    key: str
    is_leaf: bool


class Instance(msgspec.Struct):
    """A problem: may the root's minimum be placed?"""

    name: str
    nodes: list[MadeNode]
    groups: list[MadeGroup]
    pods: list[Pods]

    @property
    def has_rules(self) -> bool:
        """Whether there are rules between pods."""
        bound = [pods for node in self.nodes for pods in node.bound]
        return any(pods.has_rules for pods in (*self.pods, *bound))


def planted(seed: int, rules: bool) -> Instance:
    """A problem of 4 to 64 nodes around a placement. `rules`: between pods."""
    planting = _Planting(random.Random(seed), rules, random.Random(f"claims-{seed}"))
    return planting.instance(f"{'rules' if rules else 'plain'}-{seed}")


def tightened(instance: Instance, seed: int) -> Instance:
    """The problem with less room, or with more that is wanted."""
    rng = random.Random(seed)
    made = msgspec.json.decode(msgspec.json.encode(instance), type=Instance)
    for _ in range(rng.randint(1, 3)):
        choice = rng.randrange(5)
        node, pods = rng.choice(made.nodes), rng.choice(made.pods)
        if choice == 0:
            node.cpu = max(node.cpu - rng.randint(1, 4), 0)
        elif choice == 1:
            node.pods = max(node.pods - rng.randint(1, 3), 0)
        elif choice == 2:
            pods.cpu += 1
        elif choice == 3 and pods.devices:
            pods.devices += 1
        else:
            pods.count += 1
            group = made.groups[pods.group]
            group.minimum += bool(group.minimum)
    made.name += f"-less-{seed}"
    return made


class _Planting:
    """One problem in the making, and where its pods are."""

    def __init__(self, rng: random.Random, rules: bool, claims: random.Random) -> None:
        self.rng = rng
        self.claims = claims
        self.has_devices = claims.random() < 0.3
        self.rules = rules
        self.nodes: list[MadeNode] = []
        self.groups: list[MadeGroup] = []
        self.pods: list[Pods] = []
        self.on: list[list[Pods]] = []  # by node, what is there, one entry for each pod
        # By app: the rules about it are the same for all. So it can be said of a placement alone
        # whether its pods could come in some order.
        self.near_key = {app: rng.choice(LEVELS) for app in "abc"}
        self.spread_of = {app: (rng.choice(KEYS), rng.randint(1, 2), app) for app in "abc"}

    def instance(self, name: str) -> Instance:
        self._make_nodes()
        self._make_bound()
        self._make_groups(-1, 0, [*range(len(self.nodes))])
        if not self.pods:
            return planted(self.rng.randrange(1 << 30), self.rules)
        self._take_away()
        return Instance(name, self.nodes, self.groups, self.pods)

    def _make_nodes(self) -> None:
        rng = self.rng
        per_rack, racks = rng.randint(1, 6), rng.randint(1, 4)
        blocks, zones = rng.randint(1, 3), rng.randint(1, 2)
        for i in range(min(per_rack * racks * blocks * zones, 64) + 3):
            rack = i // per_rack
            block, zone = rack // racks, rack // racks // blocks
            labels = {HOST: f"n{i}", RACK: f"r{rack}", BLOCK: f"b{block}", ZONE: f"z{zone}"}
            if rng.random() < 0.4:
                labels["disk"] = rng.choice(("ssd", "hdd"))
            if rng.random() < 0.05:
                del labels[rng.choice(LEVELS)]
            self.nodes.append(MadeNode(
                f"n{i}", labels, rng.randint(4, 16), rng.choice((0, 0, 2, 4)), rng.randint(3, 12),
                rng.random() < 0.15, [],
            ))  # fmt: skip
            self.on.append([])
        if self.has_devices:
            for node in self.nodes:
                node.devices = self.claims.choice((0, 1, 2, 4))

    def _make_bound(self) -> None:
        rng = self.rng
        for i, node in enumerate(self.nodes):
            if rng.random() < 0.25:
                pods = Pods(-1, 1, rng.choice("abx"), rng.randint(1, 3))
                if self.rules and rng.random() < 0.3:
                    pods.apart = [(rng.choice(KEYS), rng.choice("ab"))]
                if self.rules and rng.random() < 0.3:
                    pods.ports = [rng.choice(PORTS)]
                node.bound.append(pods)
                self.on[i].append(pods)

    def _make_groups(self, parent: int, depth: int, inside: list[int]) -> bool:
        """Makes a group and all below it; returns whether its minimum is placed."""
        rng, g = self.rng, len(self.groups)
        key = rng.choice(("", *LEVELS)) if rng.random() < 0.7 else ""
        is_leaf = depth == 3 or rng.random() < (0.15, 0.3, 0.5, 1.0)[depth]
        group = MadeGroup(parent, 0, key, is_leaf)
        self.groups.append(group)
        domains = {self.nodes[n].labels.get(key, "") for n in inside} - {""} if key else {""}
        if domains:
            value = rng.choice(sorted(domains))
            inside = [n for n in inside if not key or self.nodes[n].labels.get(key) == value]
        else:
            inside = []
        if is_leaf:
            placed = sum(self._make_pods(g, inside) for _ in range(rng.choice((1, 2, 3))))
            group.minimum = rng.randint(max(placed - 2, 1), placed) if placed else 1
            if placed and rng.random() < 0.15:
                group.minimum = 0
            return placed > 0
        children = [self._make_groups(g, depth + 1, inside) for _ in range(rng.randint(1, 3))]
        group.minimum = sum(children)
        if group.minimum > 1 and rng.random() < 0.3:
            group.minimum -= 1
        if group.minimum and rng.random() < 0.1:
            group.minimum = 0
        return group.minimum > 0 or any(children)

    def _make_pods(self, g: int, inside: list[int]) -> int:
        """Makes equal pods of a leaf and places those for which there is room; returns how many."""
        rng = self.rng
        app = rng.choice("abc")
        pods = Pods(g, 0, app, rng.randint(1, 5), rng.choice((0, 0, 0, 1)))
        pods.selector = rng.choice(("", "", "", "ssd"))
        pods.tolerates = rng.random() < 0.3
        if self.has_devices:
            pods.devices = self.claims.choice((0, 1, 1, 2))
        if self.rules:
            self._make_rules(pods)
        wanted = rng.randint(1, 8)
        for _ in range(wanted):
            fitting = [n for n in inside if self._fits(pods, n)]
            if fitting:
                self.on[rng.choice(fitting)].append(pods)
                pods.count += 1
        placed = pods.count
        if rng.random() < 0.2:
            pods.count += 1  # one that need not be placed, or not here
        if pods.count:
            self.pods.append(pods)
        return placed

    def _make_rules(self, pods: Pods) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 2))):
            rule = rng.randrange(5)
            key, app = rng.choice(KEYS), rng.choice((pods.app, pods.app, *"abc"))
            if rule == 0:
                pods.ports = [rng.choice(PORTS)]
            elif rule <= 2:
                pods.apart = [(rng.choice((HOST, HOST, key)), app)]
            elif rule == 3 and pods.app != "c":
                app = rng.choice((pods.app, "c"))  # those of c follow nobody
                pods.near = [(self.near_key[app], app)]
            elif rule == 4 and not pods.selector:
                pods.spread = [self.spread_of[app]]

    def _fits(self, pods: Pods, n: int) -> bool:
        node, here = self.nodes[n], self.on[n]
        own = [p for p in here if p.group >= 0]
        if node.tainted and not pods.tolerates:
            return False
        if pods.selector and node.labels.get("disk") != pods.selector:
            return False
        if sum(p.cpu for p in own) + pods.cpu > node.cpu or len(own) + 1 > node.pods:
            return False
        if sum(p.gpu for p in own) + pods.gpu > node.gpu:
            return False
        if sum(p.devices for p in own) + pods.devices > node.devices:
            return False
        if any({*p.ports} & {*pods.ports} for p in here):
            return False
        return self._may_be_near(pods, n)

    def _may_be_near(self, pods: Pods, n: int) -> bool:
        for m, others in enumerate(self.on):
            for other in others:
                if any(self._share(n, m, k) and app == other.app for k, app in pods.apart):
                    return False
                if any(self._share(n, m, k) and app == pods.app for k, app in other.apart):
                    return False
        for key, app in pods.near:
            if key not in self.nodes[n].labels:
                return False
            there = [m for m, others in enumerate(self.on) if any(p.app == app for p in others)]
            known = [m for m in there if key in self.nodes[m].labels]
            if not any(self._share(n, m, key) for m in known) and (known or app != pods.app):
                return False
        for key, skew, app in pods.spread:
            counts: dict[str, int] = {}
            for m, others in enumerate(self.on):
                value = self.nodes[m].labels.get(key)
                if value is not None:
                    counts[value] = counts.get(value, 0) + sum(p.app == app for p in others)
            value = self.nodes[n].labels.get(key)
            if value is None:
                return False
            if counts.get(value, 0) + (app == pods.app) - min(counts.values()) > skew:
                return False
        return True

    def _share(self, n: int, m: int, key: str) -> bool:
        value = self.nodes[n].labels.get(key)
        return value is not None and value == self.nodes[m].labels.get(key)

    def _take_away(self) -> None:
        """Leaves little more room than the placement takes."""
        rng, slack = self.rng, self.rng.choice((0, 0, 1, 3))
        for node, here in zip(self.nodes, self.on, strict=True):
            own = [p for p in here if p.group >= 0]
            node.cpu = min(node.cpu, sum(p.cpu for p in own) + rng.randint(0, slack))
            node.gpu = min(node.gpu, sum(p.gpu for p in own) + rng.randint(0, slack))
            node.pods = min(node.pods, len(own) + rng.randint(0, slack + 1))
            more = self.claims.randint(0, slack)
            node.devices = min(node.devices, sum(p.devices for p in own) + more)


def documents(instance: Instance) -> list[dict[str, Any]]:
    """The problem as objects of Kubernetes."""
    found = []
    for node in instance.nodes:
        bound = [_pod(f"bound-{node.name}-{i}", p, node.name) for i, p in enumerate(node.bound)]
        taken = sum(p.cpu for p in node.bound)
        spec: dict[str, Any] = {}
        if node.tainted:
            spec["taints"] = [{"key": "t", "value": "v", "effect": "NoSchedule"}]
        room = {
            "cpu": str(node.cpu + taken), "memory": "64Gi", "example.com/gpu": str(node.gpu),
            "pods": str(node.pods + len(bound)),
        }  # fmt: skip
        found += [
            _object(
                "v1", "Node", node.name, spec, labels=node.labels, status={"allocatable": room}
            ),
            *bound,
        ]
        if node.devices:
            found.append(_slice(node))
    if any(pods.devices for pods in instance.pods):
        found.append(_object("resource.k8s.io/v1", "DeviceClass", "gpu", {}))
    for g, group in enumerate(instance.groups):
        name = "minCount" if group.is_leaf else "minGroupCount"
        policy = {"gang": {name: group.minimum}} if group.minimum else {"basic": {}}
        spec = {"schedulingPolicy": policy}
        if group.parent >= 0:
            spec["parentCompositePodGroupName"] = f"g{group.parent}"
        if group.key:
            spec["schedulingConstraints"] = {"topology": [{"key": group.key}]}
        kind, version = (
            ("PodGroup", "v1beta1") if group.is_leaf else ("CompositePodGroup", "v1alpha3")
        )
        found.append(_object(f"scheduling.k8s.io/{version}", kind, f"g{g}", spec))
    for k, pods in enumerate(instance.pods):
        for i in range(pods.count):
            found.append(_pod(f"p{k}-{i}", pods))
            if pods.devices:
                exactly = {
                    "deviceClassName": "gpu", "allocationMode": "ExactCount",
                    "count": pods.devices,
                }  # fmt: skip
                requests = [{"name": "r", "exactly": exactly}]
                spec = {"devices": {"requests": requests}}
                found.append(_object("resource.k8s.io/v1", "ResourceClaim", f"p{k}-{i}", spec))
    return found


def _slice(node: MadeNode) -> dict[str, Any]:
    spec = {
        "driver": "gpu.example.com", "nodeName": node.name,
        "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{i}"} for i in range(node.devices)],
    }  # fmt: skip
    return _object("resource.k8s.io/v1", "ResourceSlice", node.name, spec)


def _object(version: str, kind: str, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "uid": f"{kind}-{name}"}
    if kind not in ("Node", "ResourceSlice", "DeviceClass"):
        meta["namespace"] = "default"
    meta["labels"] = more.pop("labels", {})
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, **more}


def _pod(name: str, pods: Pods, node: str = "") -> dict[str, Any]:
    requests = {"cpu": str(pods.cpu)}
    if pods.gpu:
        requests["example.com/gpu"] = str(pods.gpu)
    ports = [{"containerPort": port, "hostPort": port} for port in pods.ports]
    container = {"name": "c", "image": "i", "resources": {"requests": requests}, "ports": ports}
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    if pods.group >= 0:
        spec["schedulingGroup"] = {"podGroupName": f"g{pods.group}"}
    if pods.selector:
        spec["nodeSelector"] = {"disk": pods.selector}
    if pods.tolerates:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if pods.devices:
        spec["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]
        container["resources"]["claims"] = [{"name": "r"}]
    affinity: dict[str, Any] = {}
    for name_, terms in (("podAffinity", pods.near), ("podAntiAffinity", pods.apart)):
        if terms:
            affinity[name_] = {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
                for key, app in terms
            ]}  # fmt: skip
    if affinity:
        spec["affinity"] = affinity
    if pods.spread:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"app": app}}}
            for key, skew, app in pods.spread
        ]  # fmt: skip
    return _object("v1", "Pod", name, spec, labels={"app": pods.app})
