"""On which nodes an allocated claim can be used.

Source: kube-scheduler plugins/dynamicresources Filter; KEP-5007 (binding conditions).
"""

import numpy as np

from stower.devices.avoided_devices import AvoidedDevices
from stower.devices.binding_conditions import (
    binding_deadline_ns,
    binding_fault,
    is_ready,
    unready_results,
)
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import ResourceClaim
from stower.plugins.node_affinity import match_term
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState


def available_rows(claim: ResourceClaim, state: ClusterState, timeout_ns: int | None) -> Bools:
    """Returns bool[row_limit]. `timeout_ns`: how long binding conditions are waited for; None where
    there are none."""
    limit, allocation = state.row_limit, claim.status.allocation
    if timeout_ns is not None:
        due_ns = binding_deadline_ns(claim, timeout_ns)
        is_overdue = due_ns is not None and due_ns < state.now_ns and not is_ready(claim)
        if binding_fault(claim) or is_overdue:
            return np.zeros(limit, np.bool_)
    if allocation is None or allocation.node_selector is None:
        return np.ones(limit, np.bool_)
    result = np.zeros(limit, np.bool_)
    for term in allocation.node_selector.node_selector_terms or ():
        result |= match_term(term, state, state.all_rows, limit)
    return result


def avoid_unready(
    claim: ResourceClaim, state: ClusterState, gates: DeviceGates, timeout_ns: int
) -> None:
    """Has the claim avoid those of its devices that have failed to get ready, or not in time."""
    due_ns = binding_deadline_ns(claim, timeout_ns) if gates.binding else None
    is_overdue = due_ns is not None and due_ns < state.now_ns
    if gates.binding and (is_overdue or binding_fault(claim)):
        avoided = state.devices.extension(AvoidedDevices)
        avoided.avoid(claim, unready_results(claim), state.now_ns)
