"""Steps of a negotiation: what the scheduler does about one pod's claims at a time.

Must not know the rules by which a step is chosen (scheduling.py, giving_back.py).
"""

from typing import Any, Final, NamedTuple

from stower.devices.negotiation.claims import PodNegotiation, party_names
from stower.framework.writes import CreateObject, PatchObject, PatchPodStatus, patch_of
from stower.model.kinds import PodScheduling
from stower.model.times import SECOND_NS

WAITS_FOR_INFORMATION: Final = "waiting for resource driver to provide information"
WAITS_FOR_ALLOCATION: Final = "waiting for resource driver to allocate resource"
WAITS_FOR_DEALLOCATION: Final = "waiting for resource driver to deallocate resource"
WAITS_FOR_GROUP: Final = "waiting until nodes can be selected for all pods of the group"
REFUSED_ON_ALL: Final = "resource driver refused all nodes that were selected"
NO_PLACE_FOR_GROUP: Final = "no suitable nodes for all pods of the group"
# The condition by which a pod is touched before a claim is taken from it: a binding that is on its
# way to the API server relies on the pod as it was before, and so cannot be carried out any more.
TOUCHED: Final = "stower.dev/ClaimGivenBack"
PATIENCE_NS_MAX: Final = 600 * SECOND_NS

StepWrite = CreateObject | PatchObject | PatchPodStatus


class Step(NamedTuple):
    """What is done. `nominate`: the node that is promised to the pod; "" takes a promise back, None
    leaves it. `again_ns`: when to ask again though nothing has happened. `behind`: the pod that
    goes first: what is said about it may end the wait. `is_ready`: all that is left is to select
    the node, which waits for the other pods of the tree; `is_stalled`: nothing is expected soon, so
    that other pods of the tree must not keep devices; `is_late`: drivers did not allocate in time.
    Whether a step that writes is one of several
    is for `has_next_step` to say."""

    message: str
    write: StepWrite | None = None
    nominate: str | None = None
    again_ns: int | None = None
    behind: str = ""
    is_ready: bool = False
    is_stalled: bool = False
    is_late: bool = False


def has_next_step(step: Step) -> bool:
    """Whether there is more to do as soon as what was written is seen: after all but questions and
    selections, which wait for drivers."""
    write = step.write
    asks = isinstance(write, PatchObject) and "potentialNodes" in (write.patch.get("spec") or {})
    return not (isinstance(write, CreateObject) or asks or is_selection(step))


def is_selection(step: Step) -> bool:
    """Whether the step's write selects a node."""
    write = step.write
    if isinstance(write, PatchObject):
        return bool((write.patch.get("spec") or {}).get("selectedNode"))
    return isinstance(write, CreateObject) and bool(write.body["spec"].get("selectedNode"))


def clear(
    negotiation: PodNegotiation,
    seen: PodScheduling,
    why: str,
    counts: bool = False,
    is_late: bool = False,
) -> Step:
    """Take the selection back. Where several drivers have to agree, it counts as a failed attempt
    (S5); `counts`: so does one of a pod group that cannot be placed; `is_late`: and one that was
    waited for in vain, for which the next is waited for longer. With several claims, of the pod or
    of its tree, what drivers said before that does not count any more: a driver that does not
    allocate may not answer either."""
    spec: dict[str, Any] = {"selectedNode": ""}
    if counts or is_late or len(negotiation.drivers) > 1:
        spec["attempt"] = seen.spec.attempt + 1
    if is_late and (len(negotiation.parties) > 1 or negotiation.tree is not None):
        spec["round"] = seen.spec.round + 1
    message = f"selected node withdrawn: {why}"
    return Step(message, patch_of(seen, {"spec": spec}), "", is_late=is_late)


def clear_if_selected(
    negotiation: PodNegotiation, why: str, counts: bool = False, is_late: bool = False
) -> Step | None:
    """The same, where something is selected."""
    seen = negotiation.scheduling
    if seen is None or not seen.spec.selected_node:
        return None
    return clear(negotiation, seen, why, counts=counts, is_late=is_late)


def refusal_message(negotiation: PodNegotiation) -> str:
    """Who has refused what there was."""
    parties = list({party.key: party for party in negotiation.refusals_by_node().values()}.values())
    return f"no suitable node for {party_names(parties or negotiation.pending)}"
