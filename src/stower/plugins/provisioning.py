"""Where a claim's volume can be provisioned: the topologies of its class, and the space left there.

Source: kube-scheduler plugins/volumebinding (binder.go checkVolumeProvisions, hasEnoughCapacity);
KEP-1472. Must not know of pods or of volumes that exist.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import numpy as np

from stower.model.kinds.storage import CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from stower.model.quantity import QuantityError, parse_quantity
from stower.model.selectors import LabelSelector, Requirement
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState

STORAGE: Final = "storage"


def is_in_allowed_topologies(storage_class: StorageClass, state: ClusterState) -> Bools:
    """bool[row_limit]: nodes in the topologies of the class."""
    limit = state.row_limit
    terms = storage_class.allowed_topologies
    if not terms:
        return np.ones(limit, np.bool_)
    result = np.zeros(limit, np.bool_)
    for term in terms:
        matching = np.full(limit, bool(term.match_label_expressions))
        for wanted in term.match_label_expressions or ():
            requirement = Requirement(wanted.key, "In", wanted.values)
            matching &= state.labels.match(requirement, state.all_rows, limit)
        result |= matching
    return result


def has_enough_capacity(
    claim: PersistentVolumeClaim, storage_class: StorageClass, state: ClusterState
) -> Bools:
    """bool[row_limit]: nodes for which the class has as much left, where its driver says so."""
    limit = state.row_limit
    everywhere = np.ones(limit, np.bool_)
    driver = state.volumes.drivers.get(storage_class.provisioner)
    requests = claim.spec.resources.requests if claim.spec.resources is not None else None
    if driver is None or not driver.spec.storage_capacity or STORAGE not in (requests or ()):
        return everywhere
    size = math.ceil(requested_bytes(claim))
    found = np.zeros(limit, np.bool_)
    for capacity in state.volumes.capacities.values():
        most = max_volume_bytes(capacity)
        topology = capacity.node_topology
        if (
            capacity.storage_class_name == storage_class.metadata.name
            and most is not None
            and most >= size
            and topology is not None
        ):
            found |= _matching_rows(topology, state)
    return found


def _matching_rows(selector: LabelSelector, state: ClusterState) -> Bools:
    result = np.ones(state.row_limit, np.bool_)
    rows, limit = state.all_rows, state.row_limit
    for key, value in (selector.match_labels or {}).items():
        result &= state.labels.match(Requirement(key, "In", (value,)), rows, limit)
    for requirement in selector.match_expressions or ():
        result &= state.labels.match(requirement, rows, limit)
    return result


def max_volume_bytes(capacity: CSIStorageCapacity) -> int | None:
    """Bytes, rounded up, that one volume can be large there; None where nobody says."""
    most = capacity.maximum_volume_size
    amount = capacity.capacity if most is None else most
    return None if amount is None else math.ceil(_bytes(amount))


def requested_bytes(claim: PersistentVolumeClaim) -> Fraction:
    """Bytes that the claim asks for."""
    resources = claim.spec.resources
    return storage_bytes(resources.requests if resources is not None else None)


def storage_bytes(amounts: Mapping[str, str | int | float] | None) -> Fraction:
    """Bytes of storage among these; 0 where there is none."""
    return _bytes((amounts or {}).get(STORAGE, 0))


def _bytes(amount: str | int | float) -> Fraction:
    """Exactly: 1.2 bytes are not enough for 1.5."""
    try:
        quantity = parse_quantity(str(amount))
    except QuantityError:
        return Fraction(0)
    return Fraction(quantity.mantissa) * Fraction(10) ** quantity.scale
