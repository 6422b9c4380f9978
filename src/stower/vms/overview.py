"""Summarizes VMs for `stower vms`: size in use, requested and approved, node, migration.

Computed from the API objects alone, as a scheduler reads them. No decision depends on it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from stower.model.kinds import Pod, VirtualMachine, VirtualMachineMigration
from stower.vms.amounts import BadAmount, Resources, cpu_value, memory_value, read_resources
from stower.vms.migrations import ENDED
from stower.vms.pods import (
    APPROVED,
    AUTOSCALING,
    REQUESTED,
    BadPod,
    is_true,
    migration_owner,
    resources_in_use,
    vm_owner,
)


class Size(msgspec.Struct, frozen=True):
    """CPUs and memory, as annotations have them."""

    cpu: int | str
    memory: int | str


class VmState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One VM. `phase`: as its controller says; `uses`: what it has; `requested`, `approved`: None
    where that is not said; `migration`: how far a move is; `message`: why it cannot be read, or
    what it waits for."""

    vm: str
    phase: str = ""
    pod: str = ""
    node: str = ""
    uses: Size | None = None
    requested: Size | None = None
    approved: Size | None = None
    migration: str = ""
    target: str = ""
    message: str = ""


def overview(
    pods: Iterable[Pod],
    vms: Iterable[VirtualMachine],
    migrations: Iterable[VirtualMachineMigration],
    which: str = "",
    stuck: Mapping[str, str] | None = None,
) -> list[VmState] | None:
    """All VMs, or those of a name (namespace/name, or the name alone), or on a node. None where
    there is no such VM. `stuck`: what VMs lack, by key, that would migrate if they could."""
    runners: dict[str, list[Pod]] = {}
    for pod in pods:
        owner = vm_owner(pod)
        if owner is not None and not pod.is_terminal:
            runners.setdefault(f"{pod.metadata.namespace}/{owner.name}", []).append(pod)
    known = {vm.metadata.key: vm for vm in vms}
    moves: dict[str, list[VirtualMachineMigration]] = {}
    for one in migrations:
        if one.status.phase not in ENDED:
            key = f"{one.metadata.namespace}/{one.spec.vm_name}"
            moves.setdefault(key, []).append(one)
    names = sorted({**known, **runners})
    found = [_state(n, known.get(n), runners.get(n, []), moves.get(n, [])) for n in names]
    for i, state in enumerate(found):
        lack = (stuck or {}).get(state.vm)
        if lack and not state.migration and not state.message:
            text = f"nowhere to go from a node above its watermark: {lack}"
            found[i] = msgspec.structs.replace(state, message=text)
    if not which:
        return found
    chosen = [s for s in found if which in (s.vm, s.vm.partition("/")[2], s.node)]
    return chosen or None


def _state(
    name: str,
    vm: VirtualMachine | None,
    pods: list[Pod],
    moves: list[VirtualMachineMigration],
) -> VmState:
    phase = str(vm.status.get("phase") or "") if vm is not None else ""
    moving = [f"{one.status.phase or 'Not started'} ({one.metadata.name})" for one in moves]
    source = next((pod for pod in pods if _is_current(pod)), None)
    targets = [pod for pod in pods if pod is not source and _is_target(pod)]
    target = targets[0].spec.node_name or "no node yet" if targets else ""
    made = VmState(name, phase, migration=", ".join(moving), target=target)
    if source is None:
        return msgspec.structs.replace(made, message="has no pod")
    where = source.spec.node_name
    made = msgspec.structs.replace(
        made, pod=source.metadata.name, node=where, message="" if where else "waits for a node"
    )
    try:
        own = source.metadata.annotations or {}
        uses = resources_in_use(source)
        asked, granted = (
            read_resources(own[key]) if key in own and is_true(source, AUTOSCALING) else None
            for key in (REQUESTED, APPROVED)
        )
    except (BadPod, BadAmount) as error:
        return msgspec.structs.replace(made, message=str(error))
    short = ""
    if asked is not None and granted is not None and asked.exceeds(granted):
        short = "the node has no room for the requested size"
    return msgspec.structs.replace(
        made,
        uses=_size(uses),
        requested=_size(asked) if asked is not None else None,
        approved=_size(granted) if granted is not None else None,
        message=made.message or short,
    )


def _is_current(pod: Pod) -> bool:
    """Whether the VM controls it: it runs there, or is to."""
    owner = vm_owner(pod)
    return owner is not None and bool(owner.controller)


def _is_target(pod: Pod) -> bool:
    migration = migration_owner(pod)
    return migration is not None and bool(migration.controller)


def _size(amount: Resources) -> Size:
    return Size(cpu_value(amount.cpu), memory_value(amount.memory))
