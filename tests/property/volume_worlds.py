"""Small random clusters with storage, as raw objects, and random histories of them.

Nothing here knows how volumes are judged. Few names and values, so that things collide.
"""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

from stower.model.kinds import Node, Pod
from stower.model.kinds.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stower.model.meta import ObjectMeta
from stower.model.raw import decode
from stower.state.cluster import ClusterState

Raw = dict[str, Any]

NODES = ("a", "b", "c", "d", "e")
CLAIMS = ("c1", "c2", "c3", "c4")
VOLUMES = ("v1", "v2", "v3", "v4", "v5")
CLASSES = ("s1", "s2", "s3")
DRIVERS = ("csi.x", "csi.y")
NO_PROVISIONER = "kubernetes.io/no-provisioner"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

KINDS: dict[str, type[Any]] = {
    "claims": PersistentVolumeClaim,
    "volumes": PersistentVolume,
    "classes": StorageClass,
    "drivers": CSIDriver,
    "csi_nodes": CSINode,
    "capacities": CSIStorageCapacity,
    "attachments": VolumeAttachment,
}


def view(raw: Raw, kind: type[Any]) -> Any:
    """The typed view of a raw object."""
    return decode(json.dumps(raw).encode(), kind)


def key_of(raw: Raw) -> str:
    """namespace/name, or the name alone."""
    meta = raw["metadata"]
    return "/".join(filter(None, (meta.get("namespace", ""), meta["name"])))


def uid_of(raw: Raw) -> str:
    """The object's uid."""
    uid: str = raw["metadata"]["uid"]
    return uid


@dataclass
class World:
    """What the objects say, by key. `pods` are the placed ones, by uid, with `spec.nodeName`; what
    was decided and is not in the API yet is in `assumed_...`."""

    nodes: dict[str, Raw] = field(default_factory=dict)
    claims: dict[str, Raw] = field(default_factory=dict)
    volumes: dict[str, Raw] = field(default_factory=dict)
    classes: dict[str, Raw] = field(default_factory=dict)
    drivers: dict[str, Raw] = field(default_factory=dict)
    csi_nodes: dict[str, Raw] = field(default_factory=dict)
    capacities: dict[str, Raw] = field(default_factory=dict)
    attachments: dict[str, Raw] = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)
    assumed_claims: dict[str, Raw] = field(default_factory=dict)
    assumed_volumes: dict[str, Raw] = field(default_factory=dict)
    assumed_pods: set[str] = field(default_factory=set)
    version: int = 100

    def add(self, kind: str, *objects: Raw) -> None:
        """Objects of one kind."""
        for raw in objects:
            getattr(self, kind)[key_of(raw)] = raw

    def copy(self) -> "World":
        """Another with the same objects."""
        return deepcopy(self)

    def state(self) -> ClusterState:
        """A fresh state of the same objects."""
        state = ClusterState()
        for raw in self.nodes.values():
            state.set_node(view(raw, Node))
        for kind, of in KINDS.items():
            for raw in getattr(self, kind).values():
                state.volumes.put(view(raw, of))
        for uid, raw in self.pods.items():
            place(state, raw, uid in self.assumed_pods)
        for name, raw in self.assumed_volumes.items():
            ref = raw["spec"]["claimRef"]
            meta = ObjectMeta(name=ref["name"], namespace=ref["namespace"], uid=ref["uid"])
            state.volumes.assume_bound(name, PersistentVolumeClaim(meta))
        for key, raw in self.assumed_claims.items():
            state.volumes.assume_selected(key, raw["metadata"]["annotations"][SELECTED_NODE])
        return state

    # Decisions

    def bind(self, name: str, claim: Raw) -> None:
        """The volume is for the claim."""
        raw = deepcopy(self.assumed_volumes.get(name) or self.volumes[name])
        meta = claim["metadata"]
        raw["spec"]["claimRef"] = {k: meta[k] for k in ("namespace", "name", "uid")}
        self.assumed_volumes[name] = raw

    def select(self, key: str, node: str) -> None:
        """A volume for the claim is to be made for the node."""
        raw = deepcopy(self.assumed_claims.get(key) or self.claims[key])
        raw["metadata"].setdefault("annotations", {})[SELECTED_NODE] = node
        self.assumed_claims[key] = raw


def place(state: ClusterState, raw: Raw, assumed: bool) -> None:
    """Put a pod on the node that it names."""
    if not assumed:
        state.add_placed(view(raw, Pod))
        return
    spec = {k: v for k, v in raw["spec"].items() if k != "nodeName"}
    entry = state.add_pending(view({**raw, "spec": spec}, Pod))
    state.assume(entry, state._row_for(raw["spec"]["nodeName"]))


# Builders


def node(name: str, **labels: str) -> Raw:
    """A node with room for everything, whose hostname is its name."""
    allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": {HOST: name, **labels}},
        "spec": {},
        "status": {"allocatable": allocatable},
    }


def pod(name: str, *volumes: Raw, node: str = "", namespace: str = "default") -> Raw:
    """A pod with these volumes."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{namespace}-{name}"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}],
            "volumes": [{"name": f"e{i}", **volume} for i, volume in enumerate(volumes)],
            **({"nodeName": node} if node else {}),
        },
    }


def uses(claim: str) -> Raw:
    """A pod's volume that is a claim."""
    return {"persistentVolumeClaim": {"claimName": claim}}


def claim(name: str, namespace: str = "default", **parts: Any) -> Raw:
    """A claim; `annotations` and `phase` are put where they belong, the rest is its spec."""
    annotations, phase = parts.pop("annotations", {}), parts.pop("phase", "Pending")
    size = parts.pop("size", "1Gi")
    resources = {} if size is None else {"resources": {"requests": {"storage": size}}}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{namespace}-{name}",
            "resourceVersion": "1",
            "annotations": annotations,
        },
        "spec": {"accessModes": ["ReadWriteOnce"], **resources, **parts},
        "status": {"phase": phase},
    }


def volume(name: str, **parts: Any) -> Raw:
    """A volume; `labels`, `annotations` and `phase` are put where they belong."""
    meta = {k: parts.pop(k) for k in ("labels", "annotations") if k in parts}
    phase, size = parts.pop("phase", "Available"), parts.pop("size", "1Gi")
    capacity = {} if size is None else {"capacity": {"storage": size}}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1", **meta},
        "spec": {"accessModes": ["ReadWriteOnce"], **capacity, **parts},
        "status": {"phase": phase},
    }


def storage_class(name: str, **parts: Any) -> Raw:
    """A class that waits for the first consumer, and makes no volumes."""
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "provisioner": NO_PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        **parts,
    }


def csi_node(name: str, limits: dict[str, int | None]) -> Raw:
    """What the drivers of a node can take."""
    drivers = [_driver(driver, most) for driver, most in limits.items()]
    return {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {"drivers": drivers}}


def reached_by(*terms: Raw) -> Raw:
    """A volume's nodeAffinity."""
    return {"required": {"nodeSelectorTerms": list(terms)}}


def _driver(name: str, count: int | None) -> Raw:
    return {"name": name, "nodeID": "id", "allocatable": {} if count is None else {"count": count}}


# Strategies


def often(*pairs: tuple[int, Any]) -> st.SearchStrategy[Any]:
    """One of the values, each as likely as its weight says."""
    return st.sampled_from([value for weight, value in pairs for _ in range(weight)])


@cache
def _below(number: int) -> st.SearchStrategy[int]:
    return st.sampled_from(range(number))


def pick(draw: Any, *pairs: tuple[int, Any]) -> Any:
    """As `often`, for choices too many to make a strategy for each."""
    left = draw(_below(sum(weight for weight, _ in pairs)))
    for weight, value in pairs:
        if left < weight:
            return value
        left -= weight
    raise AssertionError


def one_of(draw: Any, values: Sequence[Any]) -> Any:
    """One of the values."""
    return values[draw(_below(len(values)))]


def rarely(draw: Any, number: int) -> bool:
    """True once in so many times."""
    return bool(draw(_below(number)) == number - 1)


# Sizes as a rule, and sizes of which several round up to the same number of bytes.
_SIZES = (
    often((6, "1Gi"), (2, "1024Mi"), (3, "2Gi"), (2, "5Gi"), (1, 1073741824), (1, "1.5Gi")),
    st.sampled_from(("2", "1500m", "1200m", "1800m", "1", "1", "2")),
)
_modes = often(
    (6, ["ReadWriteOnce"]), (2, ["ReadOnlyMany"]), (1, ["ReadWriteMany"]),
    (2, ["ReadWriteOncePod"]), (3, ["ReadWriteOnce", "ReadOnlyMany"]), (1, None),
)  # fmt: skip
_labels = st.sampled_from((
    {}, {}, {ZONE: "z1"}, {ZONE: "z1"}, {ZONE: "z2"}, {ZONE: "z1", REGION: "r1"},
    {OLD_ZONE: "z1"}, {OLD_ZONE: "z1", ZONE: "z2"}, {REGION: "r2"}, {OLD_REGION: "r1"},
    {ZONE: "z2", REGION: "r1", OLD_REGION: "r2", OLD_ZONE: "z2"}, {ZONE: "5"},
))  # fmt: skip
_volume_labels = st.sampled_from((
    {}, {}, {}, {}, {"tier": "gold"}, {"tier": "iron"}, {ZONE: "z1"}, {ZONE: "z1__z2"},
    {OLD_ZONE: "z1"}, {OLD_ZONE: "z2", ZONE: "z1"}, {REGION: "r1"}, {OLD_REGION: "r2"},
    {ZONE: "z1__"}, {OLD_ZONE: "", ZONE: "z2"}, {ZONE: "us-east-1__us-east-2"},
    {ZONE: "us-east-1__us-west-2"}, {OLD_REGION: "r1", REGION: "r1__r2"},
))  # fmt: skip
_expressions = st.sampled_from((
    {"key": ZONE, "operator": "In", "values": ["z1"]},
    {"key": ZONE, "operator": "In", "values": ["z1", "z2"]},
    {"key": ZONE, "operator": "NotIn", "values": ["z1"]},
    {"key": HOST, "operator": "In", "values": ["a", "b", "c"]},
    {"key": HOST, "operator": "In", "values": ["a"]},
    {"key": HOST, "operator": "NotIn", "values": ["b", "d"]},
    {"key": REGION, "operator": "Exists"},
    {"key": REGION, "operator": "DoesNotExist"},
    {"key": ZONE, "operator": "Gt", "values": ["3"]},
))  # fmt: skip
_broken = st.sampled_from((
    {"key": ZONE, "operator": "In", "values": []},
    {"key": ZONE, "operator": "Near", "values": ["z1"]},
    {"key": HOST, "operator": "Exists", "values": ["a"]},
    {"key": ZONE, "operator": "Lt", "values": ["z1"]},
))  # fmt: skip
_fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(("In", "NotIn")), st.sampled_from(NODES),
)  # fmt: skip


@st.composite
def _terms(draw: Any) -> Raw:
    """A node selector term, empty at times."""
    term: Raw = {}
    what = pick(draw, (8, "labels"), (1, "both"), (1, "fields"), (1, "broken"), (1, "nothing"))
    if what in ("labels", "both"):
        term["matchExpressions"] = draw(st.lists(_expressions, min_size=1, max_size=2))
    if what in ("fields", "both"):
        term["matchFields"] = [draw(_fields)]
    if what == "broken":
        term["matchExpressions"] = [draw(_expressions), draw(_broken)]
    return term


@st.composite
def nodes(draw: Any, name: str) -> Raw:
    """A node that only storage could refuse."""
    return node(name, **draw(_labels))


_topology_terms = st.fixed_dictionaries({}, optional={
    "matchLabelExpressions": st.lists(
        st.builds(
            lambda key, values: {"key": key, "values": values},
            st.sampled_from((ZONE, ZONE, HOST, REGION)),
            st.lists(st.sampled_from(("z1", "z2", "r1", "a", "b")), max_size=3),
        ),
        max_size=2,
    )
})  # fmt: skip
_provisioners = often(
    (5, "csi.x"), (2, "csi.y"), (4, NO_PROVISIONER), (1, "kubernetes.io/aws-ebs"),
    (1, "kubernetes.io/gce-pd"), (1, "kubernetes.io/azure-file"), (1, "ebs.csi.aws.com"), (1, ""),
)  # fmt: skip


@st.composite
def classes(draw: Any, name: str) -> Raw:
    """A storage class."""
    made = storage_class(name, provisioner=draw(_provisioners))
    mode = pick(draw, (18, "WaitForFirstConsumer"), (1, "Immediate"), (1, None))
    made["volumeBindingMode"] = mode
    if rarely(draw, 4):
        made["allowedTopologies"] = draw(st.lists(_topology_terms, max_size=2))
    return made


@st.composite
def drivers(draw: Any, name: str) -> Raw:
    """A CSI driver that says how much space it has, or does not."""
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"storageCapacity": pick(draw, (6, True), (1, False), (1, None))},
    }


_selectors = st.one_of(
    st.just({}),
    st.builds(lambda z: {"matchLabels": {ZONE: z}}, st.sampled_from(("z1", "z2"))),
    st.builds(lambda e: {"matchExpressions": [e]}, _expressions.filter(lambda e: e["operator"] in
              ("In", "NotIn", "Exists", "DoesNotExist"))),
)  # fmt: skip


@st.composite
def capacities(draw: Any, name: str) -> Raw:
    """How much there is of a class for some nodes."""
    made = {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-of-{name}"},
        "storageClassName": pick(draw, (4, "s1"), (2, "s2"), (1, "s3")),
    }
    if not rarely(draw, 6):
        made["nodeTopology"] = draw(_selectors)
    for part, share in (("capacity", (5, 1)), ("maximumVolumeSize", (1, 2))):
        if pick(draw, (share[0], True), (share[1], False)):
            made[part] = pick(draw, (1, "0"), (2, "1Gi"), (3, "2Gi"), (2, "100Gi"), (1, "1"))
    return made


_csi = st.builds(
    lambda driver, handle: {"csi": {"driver": driver, "volumeHandle": handle}},
    often((6, "csi.x"), (2, "csi.y"), (1, "ebs.csi.aws.com"), (1, "")),
    often((3, "h1"), (2, "h2"), (2, "h3"), (1, "vol-1"), (1, "")),
)
_in_tree = st.sampled_from((
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws://z1/vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws:///vol-2"}},
    {"awsElasticBlockStore": {"volumeID": "aws://z1/disk-3"}},
    {"gcePersistentDisk": {"pdName": "d1"}},
    {"gcePersistentDisk": {"pdName": "d1"}},
    {"azureDisk": {"diskName": "d", "diskURI": "/d1", "kind": "Managed"}},
    {"azureDisk": {"diskName": "d", "diskURI": "/d1", "kind": "Shared"}},
    {"cinder": {"volumeID": "cv-1"}},
    {"portworxVolume": {"volumeID": "pv-1"}},
))  # fmt: skip
_sources = st.one_of(_csi, _csi, st.just({"local": {"path": "/mnt"}}), _in_tree)


@st.composite
def volumes(draw: Any, name: str, sizes: Any = _SIZES[0]) -> Raw:
    """A persistent volume."""
    made = volume(
        name,
        labels=draw(_volume_labels),
        size=draw(st.none() if rarely(draw, 12) else sizes),
        phase=pick(draw, (8, "Available"), (1, "Bound"), (1, "Released"), (1, "Pending")),
        **draw(_sources),
    )
    meta, spec = made["metadata"], made["spec"]
    own = pick(draw, (8, "s1"), (3, "s2"), (1, "s3"), (1, ""))
    if rarely(draw, 10):
        meta["annotations"] = {BETA_CLASS: own}
        own = one_of(draw, ("s1", "s2"))
    spec["storageClassName"] = own
    spec["accessModes"] = draw(_modes)
    if rarely(draw, 2):
        spec["nodeAffinity"] = draw(st.one_of(
            st.just({}), *[st.lists(_terms(), max_size=2).map(lambda t: reached_by(*t))] * 4
        ))  # fmt: skip
    if rarely(draw, 4):
        to = one_of(draw, CLAIMS)
        uid = pick(draw, (3, ""), (4, f"uid-of-default-{to}"), (1, "another"))
        namespace = pick(draw, (9, "default"), (1, "other"))
        spec["claimRef"] = {"namespace": namespace, "name": to, **({"uid": uid} if uid else {})}
    if rarely(draw, 8):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if rarely(draw, 15):
        spec["volumeMode"] = one_of(draw, ("Block", "Filesystem"))
    if rarely(draw, 15):
        spec["volumeAttributesClassName"] = one_of(draw, ("", "fast"))
    return made


_label_selectors = st.sampled_from((
    {}, {"matchLabels": {"tier": "gold"}},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["iron"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
))  # fmt: skip
_CLAIM_KINDS = {
    "bound": often((12, "bound"), (2, "waits"), (1, "selected")),
    "waits": often((10, "waits"), (1, "bound"), (3, "selected")),
    "sound": often((5, "waits"), (4, "bound"), (1, "selected")),
    "any": often(
        (4, "waits"), (3, "bound"), (2, "selected"), (1, "prebound"), (1, "lost"), (1, "deleting"),
        (1, "classless"),
    ),
}  # fmt: skip


@st.composite
def claims(
    draw: Any,
    name: str,
    namespace: str = "default",
    focus: str = "any",
    sizes: Any = _SIZES[0],
) -> Raw:
    """A claim. Those that are `sound` or more special keep no pod from being judged."""
    what = draw(_CLAIM_KINDS[focus])
    made = claim(name, namespace, size=draw(st.none() if rarely(draw, 12) else sizes))
    meta, spec = made["metadata"], made["spec"]
    annotations = meta["annotations"]
    own = pick(draw, (8, "s1"), (3, "s2"), (1, "s3"))
    if what == "classless":
        own = one_of(draw, (None, ""))
    if rarely(draw, 10) and own is not None:
        annotations[BETA_CLASS] = own
        own = one_of(draw, ("s1", "s2", None))
    spec["storageClassName"] = own
    spec["accessModes"] = draw(_modes)
    if what in ("bound", "prebound", "lost"):
        spec["volumeName"] = pick(draw, *((4, v) for v in VOLUMES), (1, "v9"))
    if what in ("bound", "lost"):
        annotations[BIND_COMPLETED] = one_of(draw, ("yes", ""))
        made["status"]["phase"] = "Lost" if what == "lost" else "Bound"
    if what == "selected":
        annotations[SELECTED_NODE] = pick(draw, *((3, n) for n in NODES), (1, "gone"), (1, ""))
    if what == "deleting":
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if rarely(draw, 6):
        spec["selector"] = draw(_label_selectors)
    if rarely(draw, 20):
        spec["volumeMode"] = one_of(draw, ("Block", "Filesystem"))
    if rarely(draw, 20):
        spec["volumeAttributesClassName"] = one_of(draw, ("", "fast"))
    return made


@st.composite
def own_claims(draw: Any, owner: Raw, volume_name: str, focus: str) -> Raw | None:
    """What an ephemeral volume finds: its claim, one that is another's, or none."""
    meta = owner["metadata"]
    strange = [(1, "other"), (1, "loose")] if focus == "any" else []
    who = pick(draw, (9, "own"), (1, "none"), *strange)
    if who == "none":
        return None
    name = f"{meta['name']}-{volume_name}"
    made: Raw = draw(claims(name, meta["namespace"], focus))
    uid = meta["uid"] if who != "other" else "another"
    reference = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": uid}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": who != "loose"}]
    return made


_LIMITED = (*DRIVERS, "csi.x", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com",
            "cinder.csi.openstack.org", "pxd.portworx.com")  # fmt: skip


@st.composite
def csi_nodes(draw: Any, name: str) -> Raw:
    """The limits of a node's drivers."""
    first = [] if rarely(draw, 5) else ["csi.x"]
    names = [*first, *draw(st.lists(st.sampled_from(_LIMITED), max_size=5))]
    made = [_driver(n, pick(draw, (1, 0), (4, 1), (4, 2), (2, 3), (1, None))) for n in names]
    return {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {"drivers": made}}


@st.composite
def attachments(draw: Any, name: str) -> Raw:
    """A volume that is attached to a node."""
    attacher = often((4, "csi.x"), (1, "csi.y"), (1, "ebs.csi.aws.com"), (1, ""))
    source = {"persistentVolumeName": one_of(draw, (*VOLUMES, "v9"))}
    inline = {"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"]}}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {
            "attacher": draw(attacher),
            "nodeName": one_of(draw, NODES),
            "source": inline if rarely(draw, 10) else source,
        },
    }


_claimed = st.builds(uses, often(*((8, c) for c in CLAIMS), (1, "c5")))
_monitors = st.sampled_from((["m1"], ["m2"], ["m1", "m2"], []))
_disks = st.one_of(
    st.builds(
        lambda name, ro: {"gcePersistentDisk": {"pdName": name, "readOnly": ro}},
        st.sampled_from(("d1", "d2")), st.booleans(),
    ),
    st.builds(
        lambda name, ro: {"awsElasticBlockStore": {"volumeID": name, "readOnly": ro}},
        st.sampled_from(("vol-1", "vol-2", "aws://z1/vol-1")), st.booleans(),
    ),
    st.builds(
        lambda name, ro: {"iscsi": {"targetPortal": "t", "iqn": name, "lun": 0, "readOnly": ro}},
        st.sampled_from(("i1", "i2")), st.booleans(),
    ),
    st.builds(
        lambda monitors, pool, image, ro: {
            "rbd": {"monitors": monitors, "pool": pool, "image": image, "readOnly": ro}
        },
        _monitors, st.sampled_from(("rbd", "p2")), st.sampled_from(("i1", "i2")), st.booleans(),
    ),
    st.sampled_from((
        {"azureDisk": {"diskName": "d", "diskURI": "/d1", "kind": "Managed"}},
        {"cinder": {"volumeID": "cv-1"}},
        {"portworxVolume": {"volumeID": "pv-1"}},
        {"emptyDir": {}},
        {"csi": {"driver": "csi.x"}},
    )),
)  # fmt: skip


_SOURCES = {
    "disks": often((4, "disk"), (1, "claim")),
    "bound": often((5, "claim"), (2, "disk"), (1, "ephemeral")),
    "waits": often((5, "claim"), (1, "ephemeral")),
    "any": often((5, "claim"), (2, "disk"), (1, "ephemeral")),
}


@st.composite
def pods(
    draw: Any, name: str, node: str = "", namespace: str = "default", focus: str = "any"
) -> Raw:
    """A pod with claims, ephemeral ones among them, and disks."""
    made = []
    for _ in range(pick(draw, (2, 1), (3, 2), (2, 3))):
        what = draw(_SOURCES[focus])
        if what == "ephemeral":
            made.append({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
        else:
            made.append(draw(_claimed if what == "claim" else _disks))
    return pod(name, *made, node=node, namespace=namespace)


def ephemeral_names(raw: Raw) -> list[str]:
    """The pod's ephemeral volumes."""
    return [v["name"] for v in raw["spec"]["volumes"] if "ephemeral" in v]


@st.composite
def worlds(draw: Any) -> tuple[World, list[Raw]]:
    """A cluster, and pods that are to be placed: with a bit of everything, or much of one thing."""
    focus = one_of(draw, ("waits", "waits", "bound", "disks", "any"))
    of_claims = "sound" if focus == "disks" else focus
    sizes = _SIZES[rarely(draw, 4)]
    world = World()
    names = NODES[: draw(st.integers(3, len(NODES)))]
    for name in names:
        world.add("nodes", draw(nodes(name)))
        if not rarely(draw, 5):
            world.add("csi_nodes", draw(csi_nodes(name)))
    for name in CLASSES[: pick(draw, (1, 1), (6, 2), (4, 3))]:
        world.add("classes", draw(classes(name)))
    for name in DRIVERS[: pick(draw, (1, 0), (3, 1), (3, 2))]:
        world.add("drivers", draw(drivers(name)))
    for number in range(pick(draw, (1, 0), (2, 1), (3, 2), (2, 3))):
        world.add("capacities", draw(capacities(f"cap{number}")))
    for name in VOLUMES[: pick(draw, (1, 1), (2, 3), (2, 4), (6, 5))]:
        world.add("volumes", draw(volumes(name, sizes)))
    for name in CLAIMS[: pick(draw, (1, 2), (2, 3), (8, 4))]:
        world.add("claims", draw(claims(name, focus=of_claims, sizes=sizes)))
    if rarely(draw, 4):
        name = one_of(draw, CLAIMS)
        world.add("claims", draw(claims(name, "other", of_claims)))
    for number in range(pick(draw, (2, 0), (2, 1), (2, 3))):
        world.add("attachments", draw(attachments(f"va{number}")))
    places = often(*((4, name) for name in names), (1, "gone"))
    for number in range(pick(draw, (1, 0), (1, 1), (2, 3), (3, 5))):
        namespace = pick(draw, (6, "default"), (1, "other"))
        one = draw(pods(f"p{number}", draw(places), namespace, focus))
        world.pods[uid_of(one)] = one
        for name in ephemeral_names(one):
            found = draw(own_claims(one, name, "sound"))
            world.add("claims", *([] if found is None else [found]))
    candidates = [draw(pods(f"candidate{number}", focus=focus)) for number in range(3)]
    for candidate in candidates:
        for name in ephemeral_names(candidate):
            found = draw(own_claims(candidate, name, of_claims))
            world.add("claims", *([] if found is None else [found]))
    return world, candidates


# Histories


@st.composite
def operations(draw: Any, inside: bool = False) -> tuple[Any, ...]:
    """One change. Those that happen inside of a trial leave the API's objects as they are."""
    name, where = f"p{draw(st.integers(0, 5))}", one_of(draw, (*NODES, "gone"))
    kinds = [(3, "place"), (3, "assume"), (2, "remove"), (2, "forget"), (1, "confirm")]
    kinds += [(2, "bind"), (2, "select"), (1, "unbind"), (1, "unselect")]
    if not inside:
        kinds += [(5, "claims"), (4, "volumes"), (2, "classes"), (1, "csi_nodes"), (1, "drivers")]
        kinds += [(1, "capacities"), (1, "attachments"), (2, "drop"), (2, "again"), (2, "trial")]
        kinds += [(2, "node"), (1, "remove node")]
    kind = pick(draw, *kinds)
    if kind in ("place", "assume"):
        return kind, draw(pods(name, where))
    if kind in ("remove", "forget"):
        return kind, f"uid-of-default-{name}"
    if kind == "confirm":
        return kind, f"uid-of-default-{name}", where
    if kind in ("bind", "unbind"):
        return kind, one_of(draw, VOLUMES), f"default/{one_of(draw, CLAIMS)}"
    if kind in ("select", "unselect"):
        return kind, f"default/{one_of(draw, CLAIMS)}", where
    if kind == "trial":
        return kind, draw(st.lists(operations(inside=True), max_size=6))
    if kind == "node":
        return kind, draw(nodes(one_of(draw, NODES)))
    if kind == "remove node":
        return kind, one_of(draw, NODES)
    return draw(_changes(kind, name))


@st.composite
def _changes(draw: Any, kind: str, name: str) -> tuple[Any, ...]:
    """An object comes, changes, is sent again or goes."""
    makers: dict[str, Any] = {
        "claims": lambda: claims(one_of(draw, (*CLAIMS, f"{name}-e0")), focus="sound"),
        "volumes": lambda: volumes(one_of(draw, VOLUMES)),
        "classes": lambda: classes(one_of(draw, CLASSES)),
        "csi_nodes": lambda: csi_nodes(one_of(draw, NODES)),
        "drivers": lambda: drivers(one_of(draw, DRIVERS)),
        "capacities": lambda: capacities(one_of(draw, ("cap0", "cap1"))),
        "attachments": lambda: attachments(one_of(draw, ("va0", "va1"))),
    }
    if kind in makers:
        made = draw(makers[kind]())
        if made["metadata"]["name"] == f"{name}-e0":
            reference = {"uid": f"uid-of-default-{name}", "controller": True}
            made["metadata"]["ownerReferences"] = [reference]
        return "put", kind, made
    return kind, one_of(draw, (*KINDS, *("claims", "volumes") * 3)), draw(st.integers(0, 9))


def apply(state: ClusterState, world: World, operation: tuple[Any, ...]) -> None:
    """One operation on both. Operations that make no sense here do nothing."""
    kind, *args = operation
    if kind == "trial":
        inner = world.copy()
        with state.trial():
            for one in args[0]:
                apply(state, inner, one)
    elif kind in ("put", "drop", "again"):
        _apply_change(state, world, kind, *args)
    elif kind in ("bind", "select", "unbind", "unselect"):
        _apply_decision(state, world, kind, *args)
    elif kind == "node":
        state.set_node(view(args[0], Node))
        world.add("nodes", args[0])
    elif kind == "remove node":
        state.remove_node(args[0])
        world.nodes.pop(args[0], None)
    else:
        _apply_pod(state, world, kind, *args)


def _apply_change(state: ClusterState, world: World, kind: str, of: str, what: Any) -> None:
    objects: dict[str, Raw] = getattr(world, of)
    assumed = {"claims": world.assumed_claims, "volumes": world.assumed_volumes}.get(of, {})
    if kind == "put":
        world.version += 1
        meta = {**what["metadata"], "resourceVersion": str(world.version)}
        raw = objects[key_of(what)] = {**what, "metadata": meta}
        assumed.pop(key_of(what), None)
        state.volumes.put(view(raw, KINDS[of]))
    elif objects:
        keys = sorted(assumed if kind == "again" and assumed else objects)
        key = keys[what % len(keys)]
        if kind == "again":
            state.volumes.put(view(objects[key], KINDS[of]))
        else:
            state.volumes.drop(view(objects.pop(key), KINDS[of]))
            assumed.pop(key, None)


def _apply_decision(state: ClusterState, world: World, kind: str, *args: str) -> None:
    if kind == "bind":
        name, key = args
        if name in world.volumes and key in world.claims:
            world.bind(name, world.claims[key])
            state.volumes.assume_bound(name, view(world.claims[key], PersistentVolumeClaim))
    elif kind == "unbind":
        world.assumed_volumes.pop(args[0], None)
        state.volumes.forget_volume(args[0])
    elif kind == "select":
        key, where = args
        if key in world.claims:
            world.select(key, where)
            state.volumes.assume_selected(key, where)
    else:
        world.assumed_claims.pop(args[0], None)
        state.volumes.forget_claim(args[0])


def _apply_pod(state: ClusterState, world: World, kind: str, *args: Any) -> None:
    if kind in ("place", "assume"):
        (raw,) = args
        uid = uid_of(raw)
        if uid not in world.pods and uid not in state.pods:
            place(state, raw, kind == "assume")
            world.pods[uid] = raw
            if kind == "assume":
                world.assumed_pods.add(uid)
        return
    uid = args[0]
    if uid not in world.pods:
        return
    if kind == "confirm":
        raw = world.pods[uid]
        raw = world.pods[uid] = {**raw, "spec": {**raw["spec"], "nodeName": args[1]}}
        state.confirm(state.pods[uid], view(raw, Pod))
        world.assumed_pods.discard(uid)
    elif kind == "remove":
        state.remove_pod(state.pods[uid])
        del world.pods[uid]
        world.assumed_pods.discard(uid)
    elif uid in world.assumed_pods:
        state.forget(state.pods[uid])
        state.remove_pod(state.pods[uid])
        del world.pods[uid]
        world.assumed_pods.discard(uid)


def by_name(state: ClusterState) -> Raw:
    """Everything that is known of volumes, by names instead of rows."""
    volumes, names = state.volumes, state.node_names
    return {
        "objects": {
            (type(o).__name__, o.metadata.namespace, o.metadata.name): o
            for o in volumes.api_objects()
        },
        "claims": {k: volumes.claim(k) for k in volumes._claims},
        "volumes": {n: volumes.volume(n) for n in volumes._volumes},
        "free": {
            name: sorted(v.metadata.name for v in volumes.available_volumes(name))
            for name in volumes.classes
        },
        "meant": {
            k: sorted(v.metadata.name for v in volumes.prebound_volumes(one))
            for k in volumes._claims
            if (one := volumes.claim(k))
        },
        "users": {k: sorted(users) for k, users in volumes._users.items()},
        "disks": {
            disk: {names[row]: list(users) for row, users in rows.items()}
            for disk, rows in volumes._disks.items()
        },
        "counted": {
            uid: (names[row], sorted(found))
            for uid, (row, found) in volumes._attached_by_pod.items()
        },
        "rows": {
            name: {names[row]: number for row, number in rows.items()}
            for name, rows in volumes._rows.items()
        },
        "counts": {
            driver: found
            for driver, counts in volumes._counts.items()
            if (found := {names[r]: int(n) for r, n in enumerate(counts) if n})
        },
    }
