"""Reconciles a pod: approves the resources that its VM requests, as far as the node has room.

An approval is a patch of the VM's annotations. Reserved resources are released only after the pod
shows that the VM uses less, and reserved before more is approved. So a write that fails or is not
answered never promises the same room twice.
Source: seed 004; neondatabase/autoscaling pkg/plugin/handle_pod.go.
"""

from typing import Any, Final, NamedTuple

from stower.framework.reconcile_queue import EventKind, Result
from stower.framework.writes import CreateObject, JsonPatchObject
from stower.model.kinds import Pod, VirtualMachine, VirtualMachineMigration
from stower.model.times import SECOND_NS
from stower.vms.amounts import Resources, resources_text
from stower.vms.enforcer import CAME, EXPECTS, Answer, Asked, Enforcer, Steps, TrackedNode
from stower.vms.migrations import PREFIX, migration_of
from stower.vms.nodes import InvalidHoldingError, VmNode
from stower.vms.notes import ERROR, INFO, WARN
from stower.vms.pods import (
    APPROVED,
    AUTOSCALING,
    REQUESTED,
    UNIT,
    BadPod,
    PodState,
    is_true,
    migration_owner,
    pod_state,
    vm_owner,
)

SHORT: Final = "not enough resources to grant request for pod"
NOTHING: Final = Resources()
AGAIN_NS: Final = 5 * SECOND_NS
CONFLICT: Final = 409
INVALID: Final = 422  # a `test` of the patch has failed


class _Grant(NamedTuple):
    """The approval that is written for a pod. `short`: the pod requests more than there is;
    `replaces`: the approval that it relies on, None where it relies on none."""

    pod: PodState
    short: bool
    replaces: str | None = None


class _Counted(NamedTuple):
    """A pod as it shows itself, and with all that is set aside for it: what its VM shows as
    approved, and writes of which nobody knows what became of them."""

    shown: PodState
    held: PodState


def handle_pod(
    enforcer: Enforcer,
    event: EventKind,
    pod: Pod,
    least: Resources = NOTHING,
    of_vm: Resources = NOTHING,
) -> Result | Steps:
    """A pod has come, changed or gone. least: what is set aside for it at least; of_vm: what its VM
    shows as approved."""
    if enforcer.config.ignores(pod.metadata.namespace):
        return Result()
    if event not in CAME:
        return _delete(enforcer, event, pod)
    try:
        state = pod_state(pod)
    except BadPod as error:
        return Result(0, f"could not get state from Pod object: {error}")
    notes, uid = enforcer.notes, state.uid
    node_name, awaited = pod.spec.node_name, enforcer.tentative.get(uid)
    if awaited is not None and node_name == awaited:
        del enforcer.tentative[uid]
        notes.add(INFO, "Pod was scheduled as expected", pod.key)
    elif awaited is not None and node_name:
        text = "Pod was scheduled onto a different Node than tentatively recorded"
        raise InvalidHoldingError(text)
    if awaited is None and not node_name:
        notes.add(INFO, "Skipping event for Pod that has not yet been scheduled", pod.key)
        return Result()
    node_name = node_name or awaited or ""
    known = enforcer.nodes.get(node_name)
    if known is None:
        return Result(0, f'pod\'s node "{node_name}" is not present in local state')
    try:
        counted = _Counted(state, raise_reserved(raise_reserved(state, of_vm), least))
        return _update(enforcer, event, pod, counted, known)
    finally:
        enforcer.on_node_change(known)


def _update(
    enforcer: Enforcer, event: EventKind, pod: Pod, counted: _Counted, known: TrackedNode
) -> Result | Steps:
    state, held = counted
    notes, uid = enforcer.notes, state.uid
    if uid in known.node.pods:
        if event not in EXPECTS:
            notes.add(WARN, "Updating Pod that unexpectedly exists in local state", pod.key)
        known.node.update(held)
        notes.add(INFO, "Updated Pod in local state", pod.key)
    else:
        known.node.add(held)
        notes.add(INFO, "Added Pod to local state", pod.key)
    enforcer.changed(uid)
    if not state.vm or pod.spec.scheduler_name != enforcer.config.scheduler_name:
        return Result()
    if uid in known.requested:
        if state.migrating:
            del known.requested[uid]
        elif not state.migratable:
            text = "Canceling previously wanted migration because Pod is not migratable"
            notes.add(WARN, text, pod.key)
            del known.requested[uid]
        elif enforcer.rest_ns(state):
            text = "Canceling previously wanted migration because the last one failed"
            notes.add(INFO, text, pod.key)
            # The node is looked at again: others may leave meanwhile.
            del known.requested[uid]
        elif enforcer.is_asked(state):
            return Result(AGAIN_NS)  # it has yet to show on the pod
        elif enforcer.can_migrate(known, state):
            notes.add(INFO, "Creating migration for Pod", pod.key)
            return _migrate(enforcer, state, known.requested[uid])
        else:
            notes.add(INFO, "Not creating migration for Pod yet: too many are under way", pod.key)
            return Result(AGAIN_NS)
    # Only VMs that autoscale have what is written here: on others it would be out of date.
    if state.migrating or migration_owner(pod) or not is_true(pod, AUTOSCALING):
        return Result()
    owner = vm_owner(pod)
    if owner is not None and not owner.controller:
        return Result()  # a migration has ended, and the VM runs in another pod
    return _approve(enforcer, pod, counted, known)


def raise_reserved(state: PodState, least: Resources) -> PodState:
    """The pod with no less set aside than that."""
    if state.cpu.reserved >= least.cpu and state.memory.reserved >= least.memory:
        return state
    return state._replace(
        cpu=state.cpu._replace(reserved=max(state.cpu.reserved, least.cpu)),
        memory=state.memory._replace(reserved=max(state.memory.reserved, least.memory)),
    )


def _without_late(node: VmNode, granted: PodState, state: PodState) -> PodState:
    """Returns the grant without what was granted before, does not show on the pod, and has no room
    any more: by a write of which nobody knows what became of it, or by one that the VM shows. Where
    the VM still shows it, nothing is to be written; else what is known of the VM is out of date."""
    if node.cpu.is_over and granted.cpu.reserved > state.cpu.reserved:
        granted = granted._replace(cpu=granted.cpu._replace(reserved=state.cpu.reserved))
    if node.memory.is_over and granted.memory.reserved > state.memory.reserved:
        granted = granted._replace(memory=granted.memory._replace(reserved=state.memory.reserved))
    return granted


def _approve(enforcer: Enforcer, pod: Pod, counted: _Counted, known: TrackedNode) -> Result | Steps:
    """Grant what can be granted."""
    state, held = counted
    granted = known.node.granted(held)
    short = any(h.requested != h.reserved for h in (granted.cpu, granted.memory))
    uid, notes = state.uid, enforcer.notes
    if not enforcer.is_started or known.node.name in enforcer.unseen:
        # Not all pods of the node may have been seen.
        enforcer.awaits_start[uid] = None
        return Result()
    is_said = APPROVED in (pod.metadata.annotations or {})
    if granted == state and is_said:
        if short:
            notes.add(WARN, "Unable to satisfy requested resources for Pod", pod.key)
        return Result(AGAIN_NS, SHORT) if short else Result()
    in_time = _without_late(known.node, granted, state)
    if in_time != granted and (in_time == state or not is_said):
        notes.add(WARN, "Not patching VirtualMachine again because its Node is over full", pod.key)
        return Result(AGAIN_NS, SHORT)
    # What was granted and does not show may be approved by now: then nothing is taken back.
    replaces = (pod.metadata.annotations or {})[APPROVED] if in_time != granted else None
    granted = in_time
    last_ns = known.patched_ns.get(uid)
    wait_ns = enforcer.config.patch_retry_wait_seconds * SECOND_NS
    if last_ns is not None and enforcer.now_ns < last_ns + wait_ns:
        notes.add(
            WARN,
            "Want to patch VirtualMachine for reserved resources, but too soon to re-patch. "
            "Waiting.",
            pod.key,
        )
        if not short:
            return Result(last_ns + wait_ns - enforcer.now_ns)
        # What is given back does not wait for what there is not enough of.
        if granted.cpu.reserved < state.cpu.reserved or (
            granted.memory.reserved < state.memory.reserved
        ):
            enforcer.requeue_pod_at(uid, last_ns + wait_ns)
        return Result(AGAIN_NS, SHORT)
    # What it gives back may yet be in use, should the write be lost.
    kept = raise_reserved(granted, Resources(held.cpu.reserved, held.memory.reserved))
    if kept != held:
        known.node.update(kept)
        enforcer.changed(uid)
        text = "Reserved resources updated for Pod, patching VirtualMachine"
    elif granted != state:
        text = (
            "Reserved resources can be updated for Pod, "
            "patching VirtualMachine without updating local state"
        )
    else:
        text = "Pod is missing approved resources annotation, patching VirtualMachine"
    notes.add(INFO, text, pod.key)
    known.patched_ns[uid] = enforcer.now_ns
    return _patch(enforcer, pod, _Grant(granted, short, replaces))


def _patch(enforcer: Enforcer, pod: Pod, grant: _Grant) -> Steps:
    """Write it, if what was asked for is still the same."""
    own, notes = pod.metadata.annotations or {}, enforcer.notes
    tests = [
        {"op": "test", "path": annotation_path(name), "value": own[name]}
        for name in (UNIT, REQUESTED)
        if name in own
    ]
    if grant.replaces is not None:
        tests.append({"op": "test", "path": annotation_path(APPROVED), "value": grant.replaces})
    resources = Resources(grant.pod.cpu.reserved, grant.pod.memory.reserved)
    replace = {
        "op": "replace",
        "path": annotation_path(APPROVED),
        "value": resources_text(resources),
    }
    done = Result(AGAIN_NS, SHORT) if grant.short else Result()
    if not tests and APPROVED not in own:
        # It may have no annotations at all, and then none can be added to them.
        empty: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/annotations", "value": None},
            {"op": "add", "path": "/metadata/annotations", "value": {}},
        ]
        answer = yield _vm_patch(grant.pod, [*empty, replace])
        _count(enforcer, grant.pod, answer)
        if not answer.code:
            notes.add(INFO, "Patched VirtualMachine for approved resources", grant.pod.vm)
            return done
        if answer.code != INVALID:
            notes.add(ERROR, "Failed to add-path patch VirtualMachine", grant.pod.vm)
            return Result(0, answer.message)
        text = (
            "Failed to add-path patch VirtualMachine because preconditions failed, "
            "trying again with normal path"
        )
        notes.add(WARN, text, grant.pod.vm)
    answer = yield _vm_patch(grant.pod, [*tests, replace])
    _count(enforcer, grant.pod, answer)
    if answer.code == INVALID:
        text = "Failed to patch VirtualMachine because preconditions failed"
        notes.add(WARN, text, grant.pod.vm)
        return Result(0, "local pod state doesn't match most recent VM state")
    if answer.code:
        notes.add(ERROR, "Failed to patch VirtualMachine", grant.pod.vm)
        return Result(0, answer.message)
    notes.add(INFO, "Patched VirtualMachine for approved resources", grant.pod.vm)
    return done


def annotation_path(name: str) -> str:
    """A JSON pointer to an annotation."""
    return "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")


def _vm_patch(pod: PodState, operations: list[dict[str, Any]]) -> JsonPatchObject:
    namespace, _, name = pod.vm.partition("/")
    return JsonPatchObject(0, VirtualMachine, namespace, name, pod.uid, operations)


def _count(enforcer: Enforcer, pod: PodState, answer: Answer) -> None:
    why = (answer.message or f"status {answer.code}") if answer.code else ""
    name = pod.vm.partition("/")[2]
    enforcer.figures.count_write("Patch", "VirtualMachine", name, why)


def _migrate(enforcer: Enforcer, pod: PodState, node_name: str) -> Steps:
    """Have the pod leave. It is looked at again: should nothing come of it, another is made."""
    body = migration_of(pod, node_name)
    name = body["metadata"]["name"]
    enforcer.asked[f"{pod.namespace}/{name}"] = Asked(enforcer.now_ns, node_name)
    answer = yield CreateObject(0, VirtualMachineMigration, pod.namespace, name, pod.uid, body)
    why = (answer.message or f"status {answer.code}") if answer.code else ""
    enforcer.figures.count_write("Create", "VirtualMachineMigration", name, why)
    if answer.code == CONFLICT:
        enforcer.notes.add(WARN, "Migration already exists for this pod", pod.name)
    elif answer.code:
        enforcer.asked.pop(f"{pod.namespace}/{name}", None)
        return Result(AGAIN_NS, f"could not create migration for Pod: {answer.message}")
    return Result(AGAIN_NS)


def _delete(enforcer: Enforcer, event: EventKind, pod: Pod) -> Result:
    uid, notes = pod.metadata.uid, enforcer.notes
    enforcer.asked.pop(f"{pod.metadata.namespace}/{PREFIX}{pod.metadata.name}", None)
    name = pod.spec.node_name or enforcer.tentative.get(uid)
    if not name:
        notes.add(INFO, "Nothing to do for Pod deletion as it has no Node", pod.key)
        return Result()
    known = enforcer.nodes.get(name)
    if known is None:
        text = "Deleting Pod from internal state on a Node that doesn't exist"
        notes.add(ERROR, text, pod.key)
        return Result()
    try:
        exists, expected = uid in known.node.pods, event in EXPECTS
        if expected and not exists:
            text = "Deleting Pod that unexpectedly doesn't exist in local state"
            notes.add(WARN, text, pod.key)
        elif exists and not expected:
            notes.add(WARN, "Deleting Pod that unexpectedly exists in local state", pod.key)
        known.requested.pop(uid, None)
        known.patched_ns.pop(uid, None)
        if known.node.remove(uid):
            notes.add(INFO, "Removed Pod from Node", pod.key)
        else:
            text = "Node unchanged from Pod deletion because it already isn't in local state"
            notes.add(INFO, text, pod.key)
        awaited = enforcer.tentative.get(uid)
        if awaited is not None and pod.spec.node_name and awaited != pod.spec.node_name:
            raise InvalidHoldingError(
                "Pod was scheduled onto a different Node than tentatively recorded"
            )
        enforcer.tentative.pop(uid, None)
        return Result()
    finally:
        enforcer.on_node_change(known)
