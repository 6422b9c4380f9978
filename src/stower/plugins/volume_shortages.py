"""Explains what the volume claims of a pod lack.

For `details` of VolumeBinding, which users request.

For a claim that no volume fits, the volumes that come closest are named, each with what is in its
way. Must not decide anything: the rules are those of volume_matching and provisioning.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from stower.framework.fixes import NODE_FIELD
from stower.model.kinds import PersistentVolume, PersistentVolumeClaim, Pod
from stower.model.kinds.storage import WAIT_FOR_FIRST_CONSUMER, StorageClass
from stower.model.storage_class import OWN_PROVISIONER
from stower.plugins.provisioning import (
    NO_PROVISIONER,
    has_enough_capacity,
    is_in_allowed_topologies,
    requested_bytes,
    storage_bytes,
)
from stower.plugins.volume_matching import AVAILABLE, FILESYSTEM, rows_matching_node_affinity
from stower.state.cluster import ClusterState
from stower.state.volumes import claims_of, is_made_for

SHOWN: Final = 3  # volumes and nodes of one claim
VOLUMES_MAX: Final = 10_000  # arbitrary: of more volumes, those beyond are not looked at
TAKEN: Final = 10  # as many lesser faults: a volume of another claim never comes closest


def claim_shortages(pod: Pod, state: ClusterState, row: int | None = None) -> Iterator[str]:
    """Yields what each claim of the pod lacks: on the node of the row that was rejected or, without
    a row, where the pod as a whole was rejected."""
    count = 0
    for name, is_ephemeral in claims_of(pod):
        for line in _claim_shortages(pod, name, is_ephemeral, state, row):
            count += 1
            yield line
    if not count and row is not None:
        yield "its claims fit the same volumes: there are not enough of them for all"


def _claim_shortages(
    pod: Pod, name: str, is_ephemeral: bool, state: ClusterState, row: int | None
) -> Iterator[str]:
    key = f"{pod.metadata.namespace}/{name}"
    claim = state.volumes.claim(key)
    if claim is None:
        maker = " yet: the ephemeral volume controller makes it" if is_ephemeral else ""
        yield f"claim {key} does not exist{maker}"
    elif claim.metadata.deletion_timestamp is not None:
        yield f"claim {key} is being deleted"
    elif is_ephemeral and not is_made_for(claim, pod):
        yield f"claim {key} was not made for the pod's ephemeral volume: delete or rename it"
    elif claim.is_bound:
        yield from _bound_shortages(claim, state, row)
    elif claim.spec.volume_name:
        yield from _named_shortages(claim, state, row)
    else:
        yield from _unbound_shortages(claim, state, row)


def _bound_shortages(
    claim: PersistentVolumeClaim, state: ClusterState, row: int | None
) -> Iterator[str]:
    volume = state.volumes.volume(claim.spec.volume_name)
    if volume is None:
        yield f"claim {claim.key} is bound to volume {claim.spec.volume_name}, which does not exist"
    elif row is not None and not rows_matching_node_affinity(volume, state)[row]:
        names = _reaching_nodes(volume, state)
        yield f"claim {claim.key} is bound to volume {claim.spec.volume_name}, reached from {names}"


def _named_shortages(
    claim: PersistentVolumeClaim, state: ClusterState, row: int | None
) -> Iterator[str]:
    name = claim.spec.volume_name
    volume = state.volumes.volume(name)
    if volume is None:
        yield f"claim {claim.key} names volume {name}, which does not exist"
        return
    faults = [text for _, text in _faults(volume, claim, state, row)]
    why = f": {', '.join(faults)}" if faults else ", and the volume controller has to bind it"
    yield f"claim {claim.key} names volume {name}{why}"


def _unbound_shortages(
    claim: PersistentVolumeClaim, state: ClusterState, row: int | None
) -> Iterator[str]:
    own = claim.class_name
    storage_class = state.volumes.classes.get(own)
    is_delayed = (
        storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )
    if is_delayed and row is None:
        return  # it waits for a node, and rejects none before
    if storage_class is None:
        if own:
            faults = [f"StorageClass {own} does not exist"]
        else:
            faults = ["it has no StorageClass, so nobody makes a volume for it"]
    elif storage_class.provisioner in ("", NO_PROVISIONER):
        faults = [f"StorageClass {own} has no provisioner: somebody has to create a volume"]
    elif is_delayed:
        assert row is not None
        faults = list(_delayed_faults(claim, storage_class, state, row))
        if not faults:
            return
    else:
        faults = [
            f"provisioner {storage_class.provisioner} of StorageClass {own} has to make a volume"
        ]
    volumes = _volumes_text(claim, state, row)
    if not volumes:
        return
    yield f"claim {claim.key} ({_request_text(claim)}) is not bound: {volumes}"
    yield from (f"  {fault}" for fault in faults)
    if storage_class is not None and not _is_known_provisioner(storage_class.provisioner, state):
        yield (
            f"  no CSIDriver and no CSINode names {storage_class.provisioner}: it may not be "
            "installed"
        )


def _delayed_faults(
    claim: PersistentVolumeClaim, storage_class: StorageClass, state: ClusterState, row: int
) -> Iterator[str]:
    """Yields why no volume is made on the node."""
    own, provisioner = claim.class_name, storage_class.provisioner
    if claim.selected_node is not None:
        if claim.selected_node != state.node_names[row]:
            yield f"provisioner {provisioner} has to make a volume for node {claim.selected_node}"
    elif not is_in_allowed_topologies(storage_class, state)[row]:
        yield f"StorageClass {own} makes no volumes on {NODE_FIELD}: its allowedTopologies"
    elif not has_enough_capacity(claim, storage_class, state)[row]:
        yield f"provisioner {provisioner} has not enough free storage on {NODE_FIELD}"


def _is_known_provisioner(name: str, state: ClusterState) -> bool:
    return (
        name in ("", NO_PROVISIONER, OWN_PROVISIONER)
        or name in state.volumes.drivers
        or any(
            driver.name == name
            for node in state.volumes.csi_nodes.values()
            for driver in node.spec.drivers
        )
    )


# Volumes


def _volumes_text(claim: PersistentVolumeClaim, state: ClusterState, row: int | None) -> str:
    """Returns the volumes that come closest, with what is in their way; "" if one fits on a node,
    so that another claim of the pod has it."""
    ranked = []
    count = 0
    for volume in islice(state.volumes.all_volumes(), VOLUMES_MAX):
        count += 1
        faults = list(_faults(volume, claim, state, row))
        weight = sum(weight for weight, _ in faults)
        texts = ", ".join(text for _, text in faults)
        size = storage_bytes(volume.spec.capacity)
        ranked.append((weight, size, volume.metadata.name, texts))
    if not ranked:
        return "there are no volumes"
    ranked.sort()
    fitting = [name for weight, _, name, _ in ranked if not weight]
    if fitting and row is not None:
        return ""
    if fitting:
        return f"volume {fitting[0]} fits, and the volume controller has to bind it"
    shown = "; ".join(f"{name}: {texts}" for _, _, name, texts in ranked[:SHOWN])
    more = f"; {count - SHOWN:,} more" if count > SHOWN else ""
    return f"no volume fits ({shown}{more})"


def _faults(
    volume: PersistentVolume, claim: PersistentVolumeClaim, state: ClusterState, row: int | None
) -> Iterator[tuple[int, str]]:
    """Yields what keeps the claim from the volume, each with its weight. Source:
    FindMatchingVolume, CheckVolumeModeMismatches."""
    spec, request = volume.spec, claim.spec
    reference = spec.claim_ref
    is_own = reference is not None and (
        (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
        and reference.uid in ("", claim.metadata.uid)
    )
    if reference is not None and not is_own:
        yield TAKEN, f"it is for claim {reference.namespace}/{reference.name}"
    if volume.metadata.deletion_timestamp is not None:
        yield TAKEN, "it is being deleted"
    if volume.class_name != claim.class_name:
        yield 2, f"class {_shown(volume.class_name)} instead of {_shown(claim.class_name)}"
    mode, wanted = spec.volume_mode or FILESYSTEM, request.volume_mode or FILESYSTEM
    if mode != wanted:
        yield 1, f"volume mode {mode} instead of {wanted}"
    attributes = spec.volume_attributes_class_name or ""
    if attributes != (request.volume_attributes_class_name or ""):
        other = _shown(request.volume_attributes_class_name or "")
        yield 1, f"attributes class {_shown(attributes)} instead of {other}"
    if storage_bytes(spec.capacity) < requested_bytes(claim):
        yield 1, f"only {(spec.capacity or {}).get('storage', 0)}"
    if row is not None and not rows_matching_node_affinity(volume, state)[row]:
        yield 1, f"not reached from {NODE_FIELD}, only from {_reaching_nodes(volume, state)}"
    if is_own:
        return  # its phase, labels and access modes do not matter
    if volume.status.phase != AVAILABLE and reference is None:
        yield 1, f"phase {volume.status.phase or 'unknown'}"
    missing = set(request.access_modes or ()) - set(spec.access_modes or ())
    if missing:
        yield 1, f"no access mode {', '.join(sorted(missing))}"
    if request.selector is not None and not request.selector.matches(volume.metadata.labels or {}):
        yield 1, "its labels do not match the claim's selector"


def _reaching_nodes(volume: PersistentVolume, state: ClusterState) -> str:
    """Returns the first nodes that reach the volume."""
    reached = rows_matching_node_affinity(volume, state)
    names = [
        state.node_names[row] for row in np.flatnonzero(reached).tolist() if state.node_names[row]
    ]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}" if names else "no node"


def _shown(class_name: str) -> str:
    return class_name or "none"


def _request_text(claim: PersistentVolumeClaim) -> str:
    requests = claim.spec.resources.requests if claim.spec.resources is not None else None
    size = (requests or {}).get("storage", "no size")
    modes = ", ".join(claim.spec.access_modes or ()) or "no access mode"
    return f"{size}, {modes}, class {_shown(claim.class_name)}"
