"""Says which conditions of a pod no longer hold by which it was touched before its devices were
given back.

A condition holds until what its message names is done: it keeps a binding from being carried out.
"""

from typing import Final

from stower.devices.negotiation.claims import is_leaving
from stower.devices.negotiation.steps import TOUCHED
from stower.devices.overcommits import GIVEN_BACK
from stower.model.kinds import Pod
from stower.state.devices import Devices, is_same_or_newer

TYPES: Final = frozenset((TOUCHED, GIVEN_BACK))


def outdated_conditions(pod: Pod, devices: Devices) -> tuple[str, ...]:
    """Returns the types of the pod's conditions that no longer hold: all, once it has a node."""
    found = []
    for condition in pod.status.conditions or ():
        if condition.type not in TYPES:
            continue
        if pod.spec.node_name or not _holds(condition.type, condition.message, devices):
            found.append(condition.type)
    return tuple(found)


def _holds(type: str, message: str, devices: Devices) -> bool:
    """Returns whether the claim that the message begins with is still being given back: it may be
    known in an older version than the one that the pod was touched for."""
    claim = devices.api_claim(message.partition(" ")[0])
    if claim is None:
        return False
    if type == TOUCHED:
        return is_leaving(claim)
    return is_same_or_newer(message.rpartition(" ")[2], claim.metadata.resource_version)
