"""The volume plugins against a slow, obvious model: one node at a time, loops over raw objects.

The model follows the Go functions whose names its own have, in Kubernetes 1.36; it knows no rows,
counts or caches. Left out are the translation of in-tree volumes' zone labels into their drivers'
own, and what upstream answers with an error instead of a refusal while it filters (a running pod's
ephemeral claim that is another's, an inline disk whose id is none).

Where upstream's answer depends on the order of a Go map (two volumes of one size), the model says
all that it may be.
"""

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.assembly import build_profiles
from stower.engine.cycle import reference as reference_cycle
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features, Plugin
from stower.framework.profile import Profile
from stower.framework.writes import PatchObject
from stower.model.kinds import Pod
from stower.plugins.node_volume_limits import NodeVolumeLimits
from stower.plugins.volume_binding import VolumeBinding
from stower.state.cluster import ClusterState
from tests.property.volume_worlds import (
    BETA_CLASS,
    BIND_COMPLETED,
    HOST,
    NO_PROVISIONER,
    OLD_REGION,
    OLD_ZONE,
    REGION,
    SELECTED_NODE,
    ZONE,
    Raw,
    World,
    apply,
    by_name,
    claim,
    csi_node,
    node,
    operations,
    pod,
    reached_by,
    storage_class,
    uid_of,
    uses,
    view,
    volume,
    worlds,
)

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"
ERROR = "Error"
SKIP = "Skip"
PLUGINS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")


class Status(NamedTuple):
    """A refusal. One of PreFilter that upstream calls an error has that for its code."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


# None: the node will do.
Answer = Status | None


def refused(plugin: str, *reasons: str, code: str = UNRESOLVABLE) -> Status:
    return Status(plugin, code, reasons)


# Labels, selectors, quantities


def annotations(raw: Raw) -> dict[str, str]:
    return raw["metadata"].get("annotations") or {}


def labels(raw: Raw) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}


def requirement_is_faulty(requirement: Raw) -> bool:
    """labels.NewRequirement, as far as operators and numbers of values go."""
    operator, values = requirement["operator"], requirement.get("values") or []
    if operator in ("In", "NotIn"):
        return not values
    if operator in ("Exists", "DoesNotExist"):
        return bool(values)
    if operator in ("Gt", "Lt"):
        return len(values) != 1 or not re.fullmatch("[+-]?[0-9]+", values[0])
    return True


def requirement_matches(requirement: Raw, has: dict[str, str]) -> bool:
    """labels.Requirement.Matches."""
    key, operator = requirement["key"], requirement["operator"]
    values = requirement.get("values") or []
    if operator == "In":
        return key in has and has[key] in values
    if operator == "NotIn":
        return key not in has or has[key] not in values
    if operator == "Exists":
        return key in has
    if operator == "DoesNotExist":
        return key not in has
    if key not in has or not re.fullmatch("[+-]?[0-9]+", has[key]):
        return False
    return int(has[key]) > int(values[0]) if operator == "Gt" else int(has[key]) < int(values[0])


def label_selector_matches(selector: Raw, has: dict[str, str]) -> bool:
    """LabelSelectorAsSelector(selector).Matches; an empty one matches everything."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if has.get(key) != value:
            return False
    return all(requirement_matches(r, has) for r in selector.get("matchExpressions") or [])


def node_selector_term_matches(term: Raw, has: dict[str, str], fields: dict[str, str]) -> bool:
    """nodeSelectorTerm.match: one that cannot be parsed matches nothing; fields are looked at only
    where the node has any."""
    expressions, on_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not on_fields:
        return False
    if any(requirement_is_faulty(r) for r in expressions):
        return False
    if any(r["operator"] not in ("In", "NotIn") or len(r["values"]) != 1 for r in on_fields):
        return False
    if not all(requirement_matches(r, has) for r in expressions):
        return False
    for r in on_fields if fields else []:
        is_equal = fields.get(r["key"], "") == r["values"][0]
        if is_equal != (r["operator"] == "In"):
            return False
    return True


def check_node_affinity(pv: Raw, at: Raw) -> bool:
    """volume.CheckNodeAffinity: it compares with a node that has labels and nothing else."""
    required = (pv["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    terms = required.get("nodeSelectorTerms") or []
    return any(node_selector_term_matches(t, labels(at), {}) for t in terms)


def match_topology_selector_terms(terms: list[Raw], has: dict[str, str]) -> bool:
    if not terms:
        return True
    for term in terms:
        wanted = term.get("matchLabelExpressions") or []
        if not wanted or any(not r["values"] for r in wanted):
            continue
        if all(r["key"] in has and has[r["key"]] in r["values"] for r in wanted):
            return True
    return False


UNITS = {"": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
         "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # fmt: skip


def amount(raw: Any) -> Fraction:
    """A quantity, exactly."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(raw))
    assert found is not None
    return Fraction(found[1]) * UNITS[found[2]]


def value(raw: Any) -> int:
    """Quantity.Value."""
    return math.ceil(amount(raw))


def requested(pvc: Raw) -> Fraction:
    """The storage that a claim asks for; 0 where it does not say."""
    return amount(((pvc["spec"].get("resources") or {}).get("requests") or {}).get("storage", 0))


def capacity_of(pv: Raw) -> Fraction:
    """The size of a volume; 0 where it does not say."""
    return amount((pv["spec"].get("capacity") or {}).get("storage", 0))


# What the listers and caches say


def claim_class(pvc: Raw) -> str:
    """GetPersistentVolumeClaimClass."""
    return annotations(pvc).get(BETA_CLASS, pvc["spec"].get("storageClassName") or "")


def volume_class(pv: Raw) -> str:
    """GetPersistentVolumeClass."""
    return annotations(pv).get(BETA_CLASS, pv["spec"].get("storageClassName") or "")


def cached_claim(world: World, key: str) -> Raw | None:
    return world.assumed_claims.get(key) or world.claims.get(key)


def cached_volume(world: World, name: str) -> Raw | None:
    return world.assumed_volumes.get(name) or world.volumes.get(name)


def key_for(owner: Raw, name: str) -> str:
    return f"{owner['metadata']['namespace']}/{name}"


def sources(owner: Raw) -> list[Raw]:
    found: list[Raw] = owner["spec"].get("volumes") or []
    return found


def claim_names(owner: Raw) -> Iterator[tuple[str, bool]]:
    """Names of the pod's claims, and whether each is of an ephemeral volume."""
    for source in sources(owner):
        if "persistentVolumeClaim" in source:
            yield source["persistentVolumeClaim"]["claimName"], False
        elif "ephemeral" in source:
            yield f"{owner['metadata']['name']}-{source['name']}", True


def own_names(owner: Raw) -> list[str]:
    """Names of the claims that the pod names itself."""
    return [name for name, is_ephemeral in claim_names(owner) if not is_ephemeral]


def volume_is_for_pod(pvc: Raw, owner: Raw) -> bool:
    """ephemeral.VolumeIsForPod: the pod controls the claim."""
    for reference in pvc["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return bool(reference["uid"] == uid_of(owner))
    return False


def pods_on(world: World, name: str) -> list[Raw]:
    return [p for p in world.pods.values() if p["spec"]["nodeName"] == name]


def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


# VolumeRestrictions


def needs_restrictions_check(source: Raw) -> bool:
    return any(k in source for k in ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi"))


def is_volume_conflict(source: Raw, other: Raw) -> bool:
    for existing in sources(other):
        if "gcePersistentDisk" in source and "gcePersistentDisk" in existing:
            a, b = source["gcePersistentDisk"], existing["gcePersistentDisk"]
            if a["pdName"] == b["pdName"] and not (a.get("readOnly") and b.get("readOnly")):
                return True
        if "awsElasticBlockStore" in source and "awsElasticBlockStore" in existing:
            a, b = source["awsElasticBlockStore"], existing["awsElasticBlockStore"]
            if a["volumeID"] == b["volumeID"]:
                return True
        if "iscsi" in source and "iscsi" in existing:
            a, b = source["iscsi"], existing["iscsi"]
            if a["iqn"] == b["iqn"] and not (a.get("readOnly") and b.get("readOnly")):
                return True
        if "rbd" in source and "rbd" in existing:
            a, b = source["rbd"], existing["rbd"]
            shared = any(m in b["monitors"] for m in a["monitors"])
            same = shared and a["pool"] == b["pool"] and a["image"] == b["image"]
            if same and not (a.get("readOnly") and b.get("readOnly")):
                return True
    return False


def restrictions_pre_filter(world: World, owner: Raw) -> Status | str | int:
    """The number of claims for one pod alone that others use."""
    needs_check = any(needs_restrictions_check(s) for s in sources(owner))
    alone = set()
    for name in own_names(owner):
        pvc = world.claims.get(key_for(owner, name))
        if pvc is None:
            return refused("VolumeRestrictions", claim_not_found(name))
        if "ReadWriteOncePod" in (pvc["spec"].get("accessModes") or []):
            alone.add(name)
    in_use = set()  # Snapshot.usedPVCSet: by pods of nodes that are there
    for name in world.nodes:
        for other in pods_on(world, name):
            in_use |= {key_for(other, used) for used in own_names(other)}
    conflicts = sum(key_for(owner, name) in in_use for name in alone)
    return SKIP if not needs_check and not conflicts else conflicts


def restrictions_filter(world: World, owner: Raw, at: Raw, conflicts: int) -> Answer:
    for source in sources(owner):
        if needs_restrictions_check(source):
            for other in pods_on(world, at["metadata"]["name"]):
                if is_volume_conflict(source, other):
                    text = "node(s) had no available disk"
                    return refused("VolumeRestrictions", text, code=UNSCHEDULABLE)
    if conflicts > 0:
        text = (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod"
        )
        return refused("VolumeRestrictions", text, code=UNSCHEDULABLE)
    return None


# NodeVolumeLimits

IN_TREE = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


def ebs_handle(volume_id: str) -> str | None:
    """KubernetesVolumeIDToEBSVolumeID; None is its error."""
    if not volume_id.startswith("aws://"):
        return volume_id
    _, _, path = volume_id.removeprefix("aws://").partition("/")
    found = path.strip("/")
    return found if re.fullmatch("vol-[^/]*", found) else None


def gce_handle(name: str, has: dict[str, str]) -> str | None:
    """TranslateInTreePVToCSI of gce_pd.go; None is its error."""
    zones = (has.get(OLD_ZONE) or has.get(ZONE) or "").split("__")
    where = f"zones/{zones[0] or 'UNSPECIFIED'}"
    if len(zones) > 1:
        if any(len(zone.split("-")) != 3 for zone in zones):
            return None
        regions = {"-".join(zone.split("-")[:2]) for zone in zones}
        if len(regions) != 1:
            return None
        where = f"regions/{regions.pop()}"
    return f"projects/UNSPECIFIED/{where}/disks/{name}"


def translated(source: Raw, has: dict[str, str]) -> tuple[str, str] | None:
    """Driver and handle of an in-tree volume (of a pod: one without labels)."""
    driver = handle = None
    if "awsElasticBlockStore" in source:
        driver, handle = "ebs.csi.aws.com", ebs_handle(source["awsElasticBlockStore"]["volumeID"])
    elif "gcePersistentDisk" in source:
        driver = "pd.csi.storage.gke.io"
        handle = gce_handle(source["gcePersistentDisk"]["pdName"], has)
    elif "azureDisk" in source:
        driver, own = "disk.csi.azure.com", source["azureDisk"]
        handle = own["diskURI"] if own.get("kind", "managed").lower() == "managed" else None
    elif "cinder" in source:
        driver, handle = "cinder.csi.openstack.org", source["cinder"]["volumeID"]
    elif "portworxVolume" in source:
        driver, handle = "pxd.portworx.com", source["portworxVolume"]["volumeID"]
    return (driver, handle) if driver and handle is not None else None


def csi_driver_info(world: World, pvc: Raw) -> tuple[str, str] | None:
    """getCSIDriverInfo, getCSIDriverInfoFromSC."""
    pv = world.volumes.get(pvc["spec"].get("volumeName") or "")
    if pv is None:
        own = world.classes.get(claim_class(pvc))
        if own is None or own["provisioner"] in (
            "", "kubernetes.io/azure-file", "kubernetes.io/vsphere-volume",
        ):  # fmt: skip
            return None
        provisioner = own["provisioner"]
        handle = f"random-{key_for(pvc, pvc['metadata']['name'])}"
        return IN_TREE.get(provisioner, provisioner), handle
    if "csi" in pv["spec"]:
        driver, handle = pv["spec"]["csi"]["driver"], pv["spec"]["csi"]["volumeHandle"]
        return (driver, handle) if driver and handle else None
    found = translated(pv["spec"], labels(pv))
    return found if found and found[1] else None


def filter_attachable_volumes(world: World, owner: Raw) -> dict[str, str]:
    """Drivers by the unique names of volumes."""
    result = {}
    for name, _ in claim_names(owner):
        pvc = world.claims.get(key_for(owner, name))
        info = csi_driver_info(world, pvc) if pvc is not None else None
        if info is not None:
            result["/".join(info)] = info[0]
    for source in sources(owner):
        info = translated(source, {})
        if info is not None:
            result["/".join(info)] = info[0]
    return result


def limits_pre_filter(world: World, owner: Raw) -> Status | str | int:
    known = {"persistentVolumeClaim", "ephemeral", "awsElasticBlockStore", "gcePersistentDisk",
             "azureDisk", "cinder", "portworxVolume"}  # fmt: skip
    return 0 if any(known & source.keys() for source in sources(owner)) else SKIP


class Sum(NamedTuple):
    """Volumes of a driver that count for a node, and those that the pod would add."""

    current: int
    new: int


def volume_sums(world: World, owner: Raw, name: str) -> dict[str, Sum]:
    """Filter of csi.go up to the comparison: by driver, those of which the pod adds any."""
    new = filter_attachable_volumes(world, owner)
    there: dict[str, str] = {}
    for other in pods_on(world, name):
        there |= filter_attachable_volumes(world, other)
    count = dict.fromkeys((*new.values(), *there.values()), 0)
    for unique, driver in there.items():
        new.pop(unique, None)
        count[driver] += 1
    also: dict[str, str] = {}
    for attachment in world.attachments.values():
        spec = attachment["spec"]
        pv = world.volumes.get(spec["source"].get("persistentVolumeName", ""))
        if spec["nodeName"] != name or not spec["attacher"] or pv is None:
            continue
        if "csi" in pv["spec"]:
            handle = pv["spec"]["csi"]["volumeHandle"]
            also[f"{spec['attacher']}/{handle}"] = spec["attacher"]
    for unique, driver in also.items():
        if unique not in there:
            count[driver] = count.get(driver, 0) + 1
    return {d: Sum(count[d], sum(d == other for other in new.values())) for d in new.values()}


def limits_filter(world: World, owner: Raw, at: Raw) -> Answer:
    name = at["metadata"]["name"]
    csi = world.csi_nodes.get(name)
    if csi is None:
        return None
    limits: dict[str, int] = {}
    for driver in csi["spec"]["drivers"]:
        if driver["allocatable"].get("count") is not None:
            limits[driver["name"]] = driver["allocatable"]["count"]
    for driver_name, (current, new) in volume_sums(world, owner, name).items():
        if driver_name in limits and current + new > limits[driver_name]:
            text = "node(s) exceed max volume count"
            return refused("NodeVolumeLimits", text, code=UNSCHEDULABLE)
    return None


# VolumeBinding


class Claims(NamedTuple):
    """PodVolumeClaims."""

    bound: list[Raw]
    delayed: list[Raw]


def pod_has_pvcs(world: World, owner: Raw) -> tuple[bool, str]:
    has = False
    for name, is_ephemeral in claim_names(owner):
        has = True
        pvc = world.claims.get(key_for(owner, name))
        if pvc is None and is_ephemeral:
            waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            return has, f'{waiting} "{name}"'
        if pvc is None:
            return has, claim_not_found(name)
        if pvc["status"]["phase"] == "Lost":
            lost = pvc["spec"]["volumeName"]
            what = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
            return has, f'{what} "{lost}"'
        if "deletionTimestamp" in pvc["metadata"]:
            return has, f'persistentvolumeclaim "{name}" is being deleted'
        if is_ephemeral and not volume_is_for_pod(pvc, owner):
            meta = owner["metadata"]
            mine = f"{meta['namespace']}/{meta['name']}"
            key = key_for(owner, name)
            return has, f"PVC {key} was not created for pod {mine} (pod is not owner)"
    return has, ""


def is_fully_bound(pvc: Raw) -> bool:
    return bool(pvc["spec"].get("volumeName")) and BIND_COMPLETED in annotations(pvc)


def binding_pre_filter(world: World, owner: Raw) -> Status | str | Claims:
    has, fault = pod_has_pvcs(world, owner)
    if fault:
        return refused("VolumeBinding", fault)
    if not has:
        return SKIP
    result, immediate = Claims([], []), []
    for name, _ in claim_names(owner):
        pvc = cached_claim(world, key_for(owner, name))
        assert pvc is not None
        if is_fully_bound(pvc):
            result.bound.append(pvc)
            continue
        own = world.classes.get(claim_class(pvc))
        if own is not None and own["volumeBindingMode"] is None:
            text = f'VolumeBindingMode not set for StorageClass "{claim_class(pvc)}"'
            return refused("VolumeBinding", text, code=ERROR)
        waits = own is not None and own["volumeBindingMode"] == "WaitForFirstConsumer"
        delayed = waits and not pvc["spec"].get("volumeName")
        (result.delayed if delayed else immediate).append(pvc)
    if immediate:
        return refused("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims")
    return result


def is_volume_bound_to_claim(pv: Raw, pvc: Raw) -> bool:
    reference, meta = pv["spec"].get("claimRef"), pvc["metadata"]
    if reference is None:
        return False
    if (meta["name"], meta["namespace"]) != (reference["name"], reference["namespace"]):
        return False
    return not reference.get("uid") or reference["uid"] == meta["uid"]


def find_matching_volume(
    pvc: Raw, volumes: list[Raw], at: Raw, excluded: frozenset[str]
) -> list[Raw | None]:
    """FindMatchingVolume: all that it may find, whatever the order of the volumes."""
    meant: list[Raw | None] = []
    smallest: list[Raw] = []
    want = pvc["spec"]
    for pv in volumes:
        own = pv["spec"]
        if pv["metadata"]["name"] in excluded:
            continue
        bound = is_volume_bound_to_claim(pv, pvc)
        if own.get("claimRef") is not None and not bound:
            continue
        size = capacity_of(pv)
        if size < requested(pvc):
            continue
        if (want.get("volumeMode") or "Filesystem") != (own.get("volumeMode") or "Filesystem"):
            continue
        attributes = "volumeAttributesClassName"
        if (want.get(attributes) or "") != (own.get(attributes) or ""):
            continue
        if "deletionTimestamp" in pv["metadata"]:
            continue
        reached = check_node_affinity(pv, at)
        if bound:
            meant.append(pv if reached else None)
            continue
        if pv["status"]["phase"] != "Available":
            continue
        selector = want.get("selector")
        if selector is not None and not label_selector_matches(selector, labels(pv)):
            continue
        if volume_class(pv) != claim_class(pvc) or not reached:
            continue
        if not set(want.get("accessModes") or []) <= set(own.get("accessModes") or []):
            continue
        if smallest and size < capacity_of(smallest[0]):
            smallest = []
        if not smallest or size == capacity_of(smallest[0]):
            smallest.append(pv)
    return meant or [*smallest] or [None]


class Found(NamedTuple):
    """FindPodVolumes: reasons, or what would be done."""

    reasons: tuple[str, ...]
    bindings: list[tuple[Raw, Raw]]
    provisions: list[Raw]


NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def matchings(
    world: World, left: list[Raw], at: Raw, chosen: frozenset[str] = frozenset()
) -> Iterator[tuple[list[tuple[Raw, Raw]], list[Raw]]]:
    """findMatchingVolumes: all that it may find. The claims are sorted by size."""
    if not left:
        yield [], []
        return
    pvc, *others = left
    names = [n for n, pv in world.volumes.items() if volume_class(pv) == claim_class(pvc)]
    volumes = [pv for n in names if (pv := cached_volume(world, n)) is not None]
    for pv in find_matching_volume(pvc, volumes, at, chosen):
        taken = chosen if pv is None else chosen | {pv["metadata"]["name"]}
        for bindings, unbound in matchings(world, others, at, taken):
            if pv is None:
                yield bindings, [pvc, *unbound]
            else:
                yield [(pvc, pv), *bindings], unbound


def has_enough_capacity(world: World, pvc: Raw, own: Raw, at: Raw) -> bool:
    requests = (pvc["spec"].get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        return True
    driver = world.drivers.get(own["provisioner"])
    if driver is None or not driver["spec"].get("storageCapacity"):
        return True
    for capacity in world.capacities.values():
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        if capacity["storageClassName"] != own["metadata"]["name"]:
            continue
        if limit is None or value(limit) < value(requests["storage"]):
            continue
        topology = capacity.get("nodeTopology")
        if topology is not None and label_selector_matches(topology, labels(at)):
            return True
    return False


def check_volume_provisions(world: World, provisions: list[Raw], at: Raw) -> tuple[bool, bool]:
    """Whether all can be made, and whether there is space for all."""
    for pvc in provisions:
        own = world.classes[claim_class(pvc)]
        if own["provisioner"] in ("", NO_PROVISIONER):
            return False, True
        if not match_topology_selector_terms(own.get("allowedTopologies") or [], labels(at)):
            return False, True
        if not has_enough_capacity(world, pvc, own, at):
            return True, False
    return True, True


def find_pod_volumes(world: World, claims: Claims, at: Raw) -> Iterator[Found]:
    """FindPodVolumes: all that it may find."""
    bound_satisfied = bound_found = True
    for pvc in claims.bound:  # checkBoundClaims
        pv = cached_volume(world, pvc["spec"]["volumeName"])
        if pv is None:
            bound_found = False
            break
        if not check_node_affinity(pv, at):
            bound_satisfied = False
            break
    selected, to_match = [], []
    mismatch = False
    for pvc in claims.delayed:
        if SELECTED_NODE in annotations(pvc):
            mismatch |= annotations(pvc)[SELECTED_NODE] != at["metadata"]["name"]
            selected.append(pvc)
        else:
            to_match.append(pvc)

    def found(satisfied: bool, sufficient: bool, *plan: Any) -> Found:
        reasons = []
        if not bound_satisfied:
            reasons.append(NODE_CONFLICT)
        if not satisfied:
            reasons.append(BIND_CONFLICT)
        if not sufficient:
            reasons.append(NO_SPACE)
        if not bound_found:
            reasons.append(NO_VOLUME)
        return Found(tuple(reasons), *plan)

    if mismatch:
        yield found(False, True, [], [])
        return
    to_match.sort(key=requested)
    for bindings, unbound in matchings(world, to_match, at):
        provisions = [*selected, *unbound]
        satisfied, sufficient = check_volume_provisions(world, provisions, at)
        yield found(satisfied, sufficient, bindings, provisions)


def binding_filter(world: World, claims: Claims, at: Raw) -> set[Answer]:
    return {
        refused("VolumeBinding", *found.reasons) if found.reasons else None
        for found in find_pod_volumes(world, claims, at)
    }


# VolumeZone

TOPOLOGY_LABELS = (OLD_ZONE, OLD_REGION, ZONE, REGION)


def topologies(pv: Raw) -> list[tuple[str, set[str]]]:
    """getPVTopologies."""
    found = []
    for key in TOPOLOGY_LABELS:
        if key in labels(pv):
            values = {part.strip() for part in labels(pv)[key].split("__")}
            if "" not in values:
                found.append((key, values))
    return found


def zone_pre_filter(world: World, owner: Raw) -> Status | str | list[tuple[str, set[str]]]:
    """getPVbyPod."""
    found: list[tuple[str, set[str]]] = []
    for name in own_names(owner):
        if not name:
            return refused("VolumeZone", "PersistentVolumeClaim had no name")
        pvc = world.claims.get(key_for(owner, name))
        if pvc is None:
            return refused("VolumeZone", claim_not_found(name))
        pv_name = pvc["spec"].get("volumeName") or ""
        if not pv_name:
            own_name = claim_class(pvc)
            if not own_name:
                text = "PersistentVolumeClaim had no pv name and storageClass name"
                return refused("VolumeZone", text)
            own = world.classes.get(own_name)
            if own is None:
                return refused("VolumeZone", f'storageclass.storage.k8s.io "{own_name}" not found')
            if own["volumeBindingMode"] is None:
                text = f'VolumeBindingMode not set for StorageClass "{own_name}"'
                return refused("VolumeZone", text)
            if own["volumeBindingMode"] == "WaitForFirstConsumer":
                continue
            return refused("VolumeZone", "PersistentVolume had no name")
        pv = world.volumes.get(pv_name)
        if pv is None:
            return refused("VolumeZone", f'persistentvolume "{pv_name}" not found')
        found += topologies(pv)
    return found or SKIP


def zone_filter(at: Raw, found: list[tuple[str, set[str]]]) -> Answer:
    has = labels(at)
    if not any(key in has for key in TOPOLOGY_LABELS):
        return None
    for key, values in found:
        current = {OLD_REGION: REGION, OLD_ZONE: ZONE}.get(key, key)
        own = has[key] if key in has else has.get(current)
        if own is None or own not in values:
            return refused("VolumeZone", "node(s) had no available volume zone")
    return None


# All of them


def pre_filter(world: World, owner: Raw, plugin: str) -> Any:
    """A refusal, SKIP, or what Filter goes by."""
    if plugin == "VolumeRestrictions":
        return restrictions_pre_filter(world, owner)
    if plugin == "NodeVolumeLimits":
        return limits_pre_filter(world, owner)
    if plugin == "VolumeBinding":
        return binding_pre_filter(world, owner)
    return zone_pre_filter(world, owner)


def filters(world: World, owner: Raw, at: Raw, plugin: str, data: Any) -> set[Answer]:
    """All that a plugin may say of a node."""
    if plugin == "VolumeRestrictions":
        return {restrictions_filter(world, owner, at, data)}
    if plugin == "NodeVolumeLimits":
        return {limits_filter(world, owner, at)}
    if plugin == "VolumeBinding":
        return binding_filter(world, data, at)
    return {zone_filter(at, data)}


def model(world: World, owner: Raw, plugins: tuple[str, ...]) -> Status | dict[str, set[Answer]]:
    """PreFilter's refusal, or for each node what may be said: by the first that refuses it."""
    data = {}
    for plugin in plugins:
        data[plugin] = pre_filter(world, owner, plugin)
        if isinstance(data[plugin], Status):
            status: Status = data[plugin]
            return status
    result = {}
    for name, at in world.nodes.items():
        answers: set[Answer] = {None}
        for plugin in plugins:
            if None in answers and data[plugin] != SKIP:
                answers.remove(None)
                answers |= filters(world, owner, at, plugin, data[plugin])
        result[name] = answers
    return result


def profile(*plugins: str) -> Profile:
    """The default profile, or one with these filters alone."""
    config: Raw = {}
    if plugins:
        enabled = [{"name": name} for name in ("PrioritySort", *plugins, "DefaultBinder")]
        config = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}
    document = {"profiles": [config]}
    return build_profiles(read_configuration(document), Features())["default-scheduler"]


PROFILES = {name: profile(name) for name in PLUGINS}
DEFAULT = profile()


def ours(profile: Profile, state: ClusterState, owner: Raw) -> Status | dict[str, Answer]:
    """What we say, in the model's words."""
    candidate = view(owner, Pod)
    verdict = reference_cycle.judge(profile, state, state.shapes.intern(candidate), candidate)
    if verdict.pre_filter is not None:
        plugin, why = verdict.pre_filter
        return Status(plugin.name, why.code, why.reasons)
    result: dict[str, Answer] = {}
    for row in state.present_rows():
        said = verdict.rejection(row)
        result[state.node_names[row]] = said and Status(said[0], said[1].code, said[1].reasons)
    return result


def compare(profile: Profile, state: ClusterState, world: World, owner: Raw, *of: str) -> None:
    wanted = model(world, owner, of or PLUGINS)
    found = ours(profile, state, owner)
    if isinstance(wanted, Status) and wanted.code == ERROR:
        # We refuse the pod, for this or for what upstream would come to next.
        assert isinstance(found, Status)
        assert wanted.plugin == found.plugin
        return
    if isinstance(wanted, Status) or isinstance(found, Status):
        assert wanted == found
        return
    assert wanted.keys() == found.keys()
    for name, answers in wanted.items():
        assert found[name] in answers, name


Cluster = tuple[World, list[Raw]]
normal = settings(max_examples=60, deadline=None)
many = settings(max_examples=2000, deadline=None)  # of each plugin
some = settings(max_examples=400, deadline=None)
histories = st.lists(operations(), min_size=8, max_size=60)


def law(test: Any) -> Any:
    """What a property test checks, without its own choice of examples."""
    return test.hypothesis.inner_test


@normal
@given(worlds())
def test_all_plugins_together_are_as_the_model_says(cluster: Cluster) -> None:
    world, candidates = cluster
    state = world.state()
    for candidate in candidates:
        compare(DEFAULT, state, world, candidate)


@pytest.mark.more
@some
@given(worlds())
def test_all_plugins_together_more(cluster: Cluster) -> None:
    law(test_all_plugins_together_are_as_the_model_says)(cluster)


@normal
@given(worlds())
def test_each_plugin_alone_is_as_the_model_says(cluster: Cluster) -> None:
    world, candidates = cluster
    state = world.state()
    for candidate in candidates:
        for plugin in PLUGINS:
            # To the Filter of NodeVolumeLimits other plugins' PreFilter lets no such pod come.
            if plugin != "NodeVolumeLimits" or not pod_has_pvcs(world, candidate)[1]:
                compare(PROFILES[plugin], state, world, candidate, plugin)


@pytest.mark.long
@many
@given(worlds())
def test_each_plugin_alone_more(cluster: Cluster) -> None:
    law(test_each_plugin_alone_is_as_the_model_says)(cluster)


@normal
@given(worlds(), st.data())
def test_limits_are_kept_to_the_volume(cluster: Cluster, data: Any) -> None:
    """Each driver takes as many as there would be then, or one fewer."""
    world, candidates = cluster
    for candidate in candidates:
        if pod_has_pvcs(world, candidate)[1]:
            continue
        for name in world.nodes:
            sums = volume_sums(world, candidate, name)
            fewer = {d: data.draw(st.booleans()) for d in sorted(sums)}
            limits = {d: current + new - fewer[d] for d, (current, new) in sums.items()}
            world.add("csi_nodes", csi_node(name, limits))
        alone = PROFILES["NodeVolumeLimits"]
        compare(alone, world.state(), world, candidate, "NodeVolumeLimits")


@pytest.mark.long
@many
@given(worlds(), st.data())
def test_limits_are_kept_to_the_volume_more(cluster: Cluster, data: Any) -> None:
    law(test_limits_are_kept_to_the_volume)(cluster, data)


@normal
@given(worlds(), st.data())
def test_limits_in_a_dry_run_are_those_of_a_trial(cluster: Cluster, data: Any) -> None:
    """What is said of a row while pods leave it one by one equals what the filter says then."""
    world, candidates = cluster
    plugin = NodeVolumeLimits()
    for candidate in candidates:
        for name in world.nodes:
            sums = volume_sums(world, candidate, name)
            fewer = {d: data.draw(st.integers(0, 3)) for d in sorted(sums)}
            limits = {d: max(0, a + b - fewer[d]) for d, (a, b) in sums.items()}
            world.add("csi_nodes", csi_node(name, limits))
        state = world.state()
        entry = state.add_pending(view(candidate, Pod))
        runs = plugin.dry_runs(entry.pod, entry.shape, state)
        slow = Plugin.dry_runs(plugin, entry.pod, entry.shape, state)
        assert slow is not None
        for row in state.present_rows():
            trial, run = slow(row), None if runs is None else runs(row)
            assert trial.code() == (0 if run is None else run.code())
            for other in data.draw(st.permutations(list(state.pods_by_row[row].values()))):
                trial.remove(other)
                if run is not None:
                    run.remove(other)
                assert trial.code() == (0 if run is None else run.code())


# Reserve


def patches(found: Found, name: str) -> str:
    """AssumePodVolumes, bindAPIUpdate: the updates that change anything, as text."""
    result: list[Any] = []
    for pvc, pv in found.bindings:
        reference, meta, to = pv["spec"].get("claimRef"), pv["metadata"], pvc["metadata"]
        patch: Raw = {}
        if reference is None or reference.get("uid") != to["uid"]:
            wanted = {k: to[k] for k in ("namespace", "name", "uid", "resourceVersion")}
            kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            patch["spec"] = {"claimRef": {**kind, **wanted}}
        if not is_volume_bound_to_claim(pv, pvc):
            patch["metadata"] = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
        result.append(("", meta["name"], meta["resourceVersion"], patch))
    for pvc in found.provisions:
        meta = pvc["metadata"]
        patch = {"metadata": {"annotations": {SELECTED_NODE: name}}}
        if annotations(pvc).get(SELECTED_NODE) == name:
            patch = {}
        result.append((meta["namespace"], meta["name"], meta["resourceVersion"], patch))
    return json.dumps([one for one in result if one[-1]], sort_keys=True)


@normal
@given(worlds())
def test_reserved_volumes_are_as_the_model_says(cluster: Cluster) -> None:
    """What would be written for each node, and how other pods find things then."""
    world, candidates = cluster
    state = world.state()
    before = by_name(state)
    for owner in candidates:
        others = [other for other in candidates if other is not owner]
        check_reserved(world, state, owner, others)
        assert before == by_name(state)


def check_reserved(world: World, state: ClusterState, owner: Raw, others: list[Raw]) -> None:
    alone = PROFILES["VolumeBinding"]
    claims, answers = binding_pre_filter(world, owner), ours(alone, state, owner)
    if not isinstance(claims, Claims) or isinstance(answers, Status):
        return
    candidate = view(owner, Pod)
    shape = state.shapes.intern(candidate)
    for name, answer in answers.items():
        founds = [f for f in find_pod_volumes(world, claims, world.nodes[name]) if not f.reasons]
        if answer is not None or not founds:
            continue
        made = VolumeBinding().reserve(candidate, shape, state, state.row_of(name))
        assert (made is None) == (not claims.delayed)
        if made is None:
            continue
        writes = [w for w in made.writes(state, lambda: 1) if isinstance(w, PatchObject)]
        said = json.dumps(
            [(w.namespace, w.name, w.resource_version, w.patch) for w in writes], sort_keys=True
        )
        found = {patches(f, name): f for f in founds}.get(said)
        assert found is not None, name
        then = world.copy()
        for pvc, pv in found.bindings:
            then.bind(pv["metadata"]["name"], pvc)
        for pvc in found.provisions:
            then.select(key_for(pvc, pvc["metadata"]["name"]), name)
        with state.trial():
            made.assume(state)
            for other in others:
                compare(alone, state, then, other, "VolumeBinding")


@pytest.mark.more
@some
@given(worlds())
def test_reserved_volumes_more(cluster: Cluster) -> None:
    law(test_reserved_volumes_are_as_the_model_says)(cluster)


def reserved(world: World, owner: Raw, name: str) -> tuple[Raw, Raw]:
    """Which claim each volume is for, and for which node each claim was selected, by name."""
    state, candidate = world.state(), view(owner, Pod)
    made = VolumeBinding().reserve(
        candidate, state.shapes.intern(candidate), state, state.row_of(name)
    )
    assert made is not None
    made.assume(state)
    volumes = [pv for n in world.volumes if (pv := state.volumes.volume(n)) is not None]
    claims = [pvc for key in world.claims if (pvc := state.volumes.claim(key)) is not None]
    return (
        {v.metadata.name: v.spec.claim_ref.name for v in volumes if v.spec.claim_ref is not None},
        {c.metadata.name: c.selected_node for c in claims if c.selected_node is not None},
    )


def small_world() -> World:
    world = World()
    world.add("nodes", node("a", **{ZONE: "z1"}), node("b", **{ZONE: "z2"}))
    world.add("classes", storage_class("s1"))
    return world


def test_reserve_takes_the_smallest_volume_that_will_do() -> None:
    world = small_world()
    here = reached_by({"matchExpressions": [{"key": HOST, "operator": "In", "values": ["a"]}]})
    common = {"storageClassName": "s1", "nodeAffinity": here}
    world.add("claims", claim("c1", size="2Gi", storageClassName="s1"))
    world.add("claims", claim("c2", size="1Gi", storageClassName="s1"))
    world.add("volumes", volume("v1", size="10Gi", **common))
    world.add("volumes", volume("v2", size="3Gi", **common))
    world.add("volumes", volume("v3", size="2500Mi", **common))
    world.add("volumes", volume("v4", size="1Gi", **common, accessModes=["ReadOnlyMany"]))
    world.add("volumes", volume("v5", size="1Gi", storageClassName="s1", phase="Released"))
    # The smaller claim comes first, whatever the order in the pod.
    owner = pod("candidate", uses("c1"), uses("c2"))
    assert reserved(world, owner, "a") == ({"v2": "c1", "v3": "c2"}, {})
    assert ours(DEFAULT, world.state(), owner) == {
        "a": None,
        "b": refused("VolumeBinding", BIND_CONFLICT),
    }


def test_reserve_prefers_a_volume_that_is_meant_for_the_claim() -> None:
    world = small_world()
    meant = {"name": "c1", "namespace": "default"}
    here = reached_by({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]})
    world.add("claims", claim("c1", storageClassName="s1"))
    world.add("volumes", volume("v1", size="1Gi", storageClassName="s1"))
    world.add(
        "volumes",
        volume("v2", size="9Gi", storageClassName="s1", claimRef=meant, nodeAffinity=here,
               phase="Pending", accessModes=["ReadOnlyMany"]),
    )  # fmt: skip
    owner = pod("candidate", uses("c1"))
    assert reserved(world, owner, "a") == ({"v2": "c1"}, {})
    # Where it is out of reach, no other will do.
    assert ours(DEFAULT, world.state(), owner) == {
        "a": None,
        "b": refused("VolumeBinding", BIND_CONFLICT),
    }


def test_reserve_selects_the_node_for_claims_without_a_volume() -> None:
    world = small_world()
    world.add("classes", storage_class("s1", provisioner="csi.x"))
    world.add("claims", claim("c1", size="2Gi", storageClassName="s1"))
    world.add("claims", claim("c2", storageClassName="s1"))
    world.add("volumes", volume("v1", size="1Gi", storageClassName="s1"))
    owner = pod("candidate", uses("c1"), uses("c2"))
    assert reserved(world, owner, "b") == ({"v1": "c2"}, {"c1": "b"})


def test_claims_that_are_being_made_are_asked_about_first() -> None:
    """checkVolumeProvisions stops at the first claim that fails, and says why that one does."""
    world = small_world()
    elsewhere = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]
    world.add("classes", storage_class("s2", provisioner="csi.x"))
    world.add("classes", storage_class("s3", provisioner="csi.x", allowedTopologies=elsewhere))
    world.add("drivers", {"metadata": {"name": "csi.x"}, "spec": {"storageCapacity": True}})
    world.add("volumes", volume("v1", storageClassName="s1"))
    world.add("claims", claim("c1", storageClassName="s1"))
    chosen = {"annotations": {SELECTED_NODE: "a"}}
    owner = pod("candidate", uses("c1"), uses("c2"), uses("c3"))
    for first, last, reason in (("s2", "s3", NO_SPACE), ("s3", "s2", BIND_CONFLICT)):
        world.add("claims", claim("c2", storageClassName=last))
        world.add("claims", claim("c3", storageClassName=first, **chosen))
        compare(DEFAULT, world.state(), world, owner)
        answers = ours(DEFAULT, world.state(), owner)
        assert isinstance(answers, dict)
        assert answers["a"] == refused("VolumeBinding", reason)


# Histories


@normal
@given(worlds(), histories)
def test_state_answers_as_a_rebuild_from_the_objects(cluster: Cluster, history: list[Any]) -> None:
    """Whatever came, changed, was decided, taken back or tried."""
    world, candidates = cluster
    state = world.state()
    for operation in history:
        before = by_name(state) if operation[0] == "trial" else None
        apply(state, world, operation)
        if before is not None:
            assert before == by_name(state)
    rebuilt = world.state()
    assert by_name(rebuilt) == by_name(state)
    for candidate in candidates:
        for one in (DEFAULT, *PROFILES.values()):
            assert ours(one, rebuilt, candidate) == ours(one, state, candidate)


@pytest.mark.more
@some
@given(worlds(), histories)
def test_state_answers_as_a_rebuild_more(cluster: Cluster, history: list[Any]) -> None:
    law(test_state_answers_as_a_rebuild_from_the_objects)(cluster, history)


# One by one


def test_fields_of_a_volumes_node_affinity_make_no_difference() -> None:
    """CheckNodeAffinity compares with a node that has labels and no name."""
    world = small_world()
    named = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    zoned = {"key": ZONE, "operator": "In", "values": ["z2"]}
    both = {"matchFields": [named], "matchExpressions": [zoned]}
    bound = {"annotations": {BIND_COMPLETED: "yes"}, "phase": "Bound", "storageClassName": "s1"}
    world.add("claims", claim("c1", volumeName="v1", **bound))
    world.add("claims", claim("c2", volumeName="v2", **bound))
    world.add("volumes", volume("v1", nodeAffinity=reached_by({"matchFields": [named]})))
    world.add("volumes", volume("v2", nodeAffinity=reached_by(both)))
    compare(DEFAULT, world.state(), world, pod("candidate", uses("c1")))
    compare(DEFAULT, world.state(), world, pod("candidate", uses("c2")))
    assert ours(DEFAULT, world.state(), pod("candidate", uses("c1"))) == {"a": None, "b": None}
    assert ours(DEFAULT, world.state(), pod("candidate", uses("c2"))) == {
        "a": refused("VolumeBinding", NODE_CONFLICT),
        "b": None,
    }


def test_a_claim_for_one_pod_is_free_where_its_user_has_no_node() -> None:
    """The snapshot's set of used claims is made of nodes that are there."""
    world = small_world()
    world.add("claims", claim("c1", storageClassName="s1", accessModes=["ReadWriteOncePod"]))
    world.add("volumes", volume("v1", storageClassName="s1", accessModes=["ReadWriteOncePod"]))
    candidate = pod("candidate", uses("c1"))
    user = pod("p1", uses("c1"), node="gone")
    world.pods[uid_of(user)] = user
    compare(DEFAULT, world.state(), world, candidate)
    assert ours(DEFAULT, world.state(), candidate) == {"a": None, "b": None}
    world.add("nodes", node("gone"))
    answers = ours(DEFAULT, world.state(), candidate)
    compare(DEFAULT, world.state(), world, candidate)
    assert isinstance(answers, dict)
    assert {answer.plugin for answer in answers.values() if answer} == {"VolumeRestrictions"}


def test_sizes_are_compared_exactly() -> None:
    """Quantity.Cmp, not Value: 1.2 bytes are not enough for 1.5."""
    world = small_world()
    world.add("claims", claim("c1", size="1500m", storageClassName="s1"))
    world.add("volumes", volume("v1", size="1200m", storageClassName="s1"))
    owner = pod("candidate", uses("c1"))
    compare(DEFAULT, world.state(), world, owner)
    world.add("volumes", volume("v1", size="2", storageClassName="s1"))
    world.add("volumes", volume("v2", size="1500m", storageClassName="s1"))
    assert reserved(world, owner, "a")[0] == {"v2": "c1"}


@pytest.mark.parametrize(
    ("source", "has", "counts"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, True),
        ({"awsElasticBlockStore": {"volumeID": "aws://z1/vol-1"}}, {}, True),
        ({"awsElasticBlockStore": {"volumeID": "aws://z1/disk-1"}}, {}, False),
        ({"awsElasticBlockStore": {"volumeID": "aws://vol-1"}}, {}, False),
        ({"azureDisk": {"diskURI": "/d1", "kind": "Managed"}}, {}, True),
        ({"azureDisk": {"diskURI": "/d1", "kind": "Shared"}}, {}, False),
        ({"gcePersistentDisk": {"pdName": "d1"}}, {ZONE: "z1"}, True),
        ({"gcePersistentDisk": {"pdName": "d1"}}, {ZONE: "us-east-1__us-east-2"}, True),
        ({"gcePersistentDisk": {"pdName": "d1"}}, {ZONE: "us-east-1__us-west-1"}, False),
        ({"gcePersistentDisk": {"pdName": "d1"}}, {ZONE: "z1__z2"}, False),
    ],
)
def test_volumes_that_no_driver_knows_are_not_counted(source: Raw, has: Raw, counts: bool) -> None:
    """TranslateInTreePVToCSI: where it fails, the volume is nobody's."""
    world = small_world()
    bound = {"annotations": {BIND_COMPLETED: "yes"}, "phase": "Bound", "storageClassName": "s1"}
    world.add("claims", claim("c1", volumeName="v1", **bound))
    world.add("volumes", volume("v1", labels=has, **source))
    for name in world.nodes:
        world.add("csi_nodes", csi_node(name, dict.fromkeys(IN_TREE.values(), 0)))
    owner, alone = pod("candidate", uses("c1")), PROFILES["NodeVolumeLimits"]
    compare(alone, world.state(), world, owner, "NodeVolumeLimits")
    answers = ours(alone, world.state(), owner)
    assert isinstance(answers, dict)
    assert all((answer is not None) == counts for answer in answers.values())
