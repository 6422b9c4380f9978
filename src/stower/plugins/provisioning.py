"""Finds nodes for which a claim's volume can be provisioned, by allowed topologies and capacity.

Source: kube-scheduler plugins/volumebinding (binder.go checkVolumeProvisions, hasEnoughCapacity);
KEP-1472. Must not depend on pods or on existing volumes.
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
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


def is_in_allowed_topologies(storage_class: StorageClass, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes in the class's allowed topologies."""
    limit = state.row_limit
    terms = storage_class.allowed_topologies
    if not terms:
        return np.ones(limit, np.bool_)
    result = np.zeros(limit, np.bool_)
    for term in terms:
        matching = np.full(limit, bool(term.match_label_expressions))
        for expression in term.match_label_expressions or ():
            requirement = Requirement(expression.key, "In", expression.values)
            matching &= state.labels.match(requirement, state.all_rows, limit)
        result |= matching
    return result


def has_enough_capacity(
    claim: PersistentVolumeClaim, storage_class: StorageClass, state: ClusterState
) -> Bools:
    """Returns bool[row_limit]: nodes with capacity for the claim; all if the driver has no data."""
    limit = state.row_limit
    all_nodes = np.ones(limit, np.bool_)
    driver = state.volumes.drivers.get(storage_class.provisioner)
    requests = claim.spec.resources.requests if claim.spec.resources is not None else None
    if driver is None or not driver.spec.storage_capacity or STORAGE not in (requests or ()):
        return all_nodes
    size = math.ceil(requested_bytes(claim))
    result = np.zeros(limit, np.bool_)
    for capacity in state.volumes.capacities.values():
        max_bytes = max_volume_bytes(capacity)
        topology = capacity.node_topology
        if (
            capacity.storage_class_name == storage_class.metadata.name
            and max_bytes is not None
            and max_bytes >= size
            and topology is not None
        ):
            result |= _matching_rows(topology, state)
    return result


def _matching_rows(selector: LabelSelector, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes that match the selector."""
    result = np.ones(state.row_limit, np.bool_)
    rows, limit = state.all_rows, state.row_limit
    for key, value in (selector.match_labels or {}).items():
        result &= state.labels.match(Requirement(key, "In", (value,)), rows, limit)
    for requirement in selector.match_expressions or ():
        result &= state.labels.match(requirement, rows, limit)
    return result


def max_volume_bytes(capacity: CSIStorageCapacity) -> int | None:
    """Returns the largest possible size of a volume in bytes, rounded up; None if it is unknown."""
    max_size = capacity.maximum_volume_size
    amount = capacity.capacity if max_size is None else max_size
    return None if amount is None else math.ceil(_bytes(amount))


def requested_bytes(claim: PersistentVolumeClaim) -> Fraction:
    """Returns the bytes that the claim requests."""
    resources = claim.spec.resources
    return storage_bytes(resources.requests if resources is not None else None)


def storage_bytes(amounts: Mapping[str, str | int | float] | None) -> Fraction:
    """Returns the bytes of storage among the amounts; 0 if there are none."""
    return _bytes((amounts or {}).get(STORAGE, 0))


def _bytes(amount: str | int | float) -> Fraction:
    """Returns the exact amount: 1.2 bytes are not enough for 1.5. Invalid quantities are 0."""
    try:
        quantity = parse_quantity(str(amount))
    except QuantityError:
        return Fraction(0)
    return Fraction(quantity.mantissa) * Fraction(10) ** quantity.scale
