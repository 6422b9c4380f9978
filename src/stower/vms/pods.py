"""Reads from a pod what its VM uses, what is reserved for it, and what it requests.

Source: seed 004; neondatabase/autoscaling pkg/plugin/state/pod.go, neonvm/apis/neonvm/v1
pod_helpers.go.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec

from stower.model.derived import Derived
from stower.model.kinds import Pod
from stower.model.meta import OwnerReference
from stower.model.quantity import QuantityError, quantity_of
from stower.vms.amounts import (
    CPU_MASK,
    MEMORY_MASK,
    BadAmount,
    Resources,
    milli_cpu,
    quantity,
    read_fields,
    read_resources,
    whole_bytes,
    whole_number,
)

VERSION: Final = "vm.neon.tech/v1"
AUTOSCALING: Final = "autoscaling.neon.tech/enabled"
AUTO_MIGRATION: Final = "autoscaling.neon.tech/auto-migration-enabled"
ALWAYS_MIGRATE: Final = "autoscaling.neon.tech/testing-only-always-migrate"
UNIT: Final = "autoscaling.neon.tech/scaling-unit"
REQUESTED: Final = "internal.autoscaling.neon.tech/resources-requested"
APPROVED: Final = "internal.autoscaling.neon.tech/resources-approved"
RESOURCES: Final = "vm.neon.tech/resources"
OVERCOMMIT: Final = "vm.neon.tech/overcommit"
NO_DISCOUNT: Final = 1000  # thousandths
BOUNDS: Final = ("min", "max", "use")

T = TypeVar("T")


class BadPod(ValueError):
    """What the pod says of its resources cannot be read; the text says why."""


class Holding(NamedTuple):
    """Of CPU or memory. `reserved`: set aside for the pod; `requested`: what it would like;
    `factor`: the smallest step by which that may grow; `overcommit`: by how many thousandths its
    use is discounted."""

    reserved: int
    requested: int
    factor: int = 0
    overcommit: int = NO_DISCOUNT


class PodState(NamedTuple):
    """One pod. `vm`: namespace/name of the VM that runs in it, "" for none; `created`: RFC 3339,
    which sorts by age."""

    namespace: str
    name: str
    uid: str
    created: str
    vm: str
    migratable: bool
    always_migrate: bool
    migrating: bool
    cpu: Holding
    memory: Holding


def vm_owner(pod: Pod) -> OwnerReference | None:
    """The VM that the pod runs, as its owner."""
    return _owner(pod, "VirtualMachine")


def migration_owner(pod: Pod) -> OwnerReference | None:
    """The migration that the pod is a part of. It controls the target; of the source, which the VM
    controls, it is an owner beside."""
    return _owner(pod, "VirtualMachineMigration")


def _owner(pod: Pod, kind: str) -> OwnerReference | None:
    for owner in pod.metadata.owner_references or ():
        if owner.kind == kind and owner.api_version == VERSION:
            return owner
    return None


def as_ordinary(pod: Pod) -> Pod:
    """The pod as if it ran no VM: its requests count, and not what its annotations say."""
    left = tuple(o for o in pod.metadata.owner_references or () if o.api_version != VERSION)
    meta = msgspec.structs.replace(pod.metadata, owner_references=left or None)
    return msgspec.structs.replace(pod, metadata=meta)


def is_true(pod: Pod, label: str) -> bool:
    """Whether a label says so; no other word does."""
    return (pod.metadata.labels or {}).get(label) == "true"


def pod_state(pod: Pod) -> PodState:
    """What the pod says. Raises BadPod."""
    owner = vm_owner(pod)
    try:
        return _ordinary_state(pod) if owner is None else _runner(pod, owner)
    except QuantityError as error:
        raise BadPod(str(error)) from error


def _ordinary_state(pod: Pod) -> PodState:
    return _ORDINARY_STATE.of(pod)


def _find_ordinary_state(pod: Pod) -> PodState:
    cpu = memory = 0
    for container in pod.spec.containers or ():
        asked = (container.resources.requests if container.resources is not None else None) or {}
        if "cpu" in asked:
            cpu += quantity_of(asked["cpu"]).milli_value()
        if "memory" in asked:
            memory += quantity_of(asked["memory"]).value()
    cpu, memory = cpu & CPU_MASK, memory & MEMORY_MASK
    meta = pod.metadata
    return PodState(
        meta.namespace, meta.name, meta.uid, meta.creation_timestamp or "", "", False, False, False,
        Holding(cpu, cpu), Holding(memory, memory),
    )  # fmt: skip


_ORDINARY_STATE: Final = Derived(_find_ordinary_state)


def _runner(pod: Pod, vm: OwnerReference) -> PodState:
    meta = pod.metadata
    migration = migration_owner(pod)
    is_target = migration is not None and migration.controller
    migrating = migration is not None and not is_target
    always = is_true(pod, ALWAYS_MIGRATE)
    # A pod that the VM does not control is one that the VM has left, and that is to be deleted.
    is_current = bool(vm.controller) and not is_target
    may_leave = is_current and (is_true(pod, AUTO_MIGRATION) or always)
    actual = resources_in_use(pod)
    discount = _read_annotation(pod, OVERCOMMIT, _discount) or (NO_DISCOUNT, NO_DISCOUNT)
    unit = requested = approved = None
    if is_true(pod, AUTOSCALING):
        unit = _read_annotation(pod, UNIT, read_resources)
        requested = _read_annotation(pod, REQUESTED, read_resources)
        if requested is not None and unit is None:
            raise BadPod("Pod has requested scaling but no scaling unit annotation")
        approved = _read_annotation(pod, APPROVED, read_resources)
    unit = unit or Resources()
    requested = actual if requested is None else requested
    approved = actual if approved is None else approved
    return PodState(
        meta.namespace, meta.name, meta.uid, meta.creation_timestamp or "",
        f"{meta.namespace}/{vm.name}", migrating or may_leave, always, migrating,
        Holding(approved.cpu, requested.cpu, unit.cpu, discount[0]),
        Holding(approved.memory, requested.memory, unit.memory, discount[1]),
    )  # fmt: skip


def resources_in_use(pod: Pod) -> Resources:
    """What the VM has by now. Raises BadPod."""
    found = _read_annotation(pod, RESOURCES, _read_use)
    if found is None:
        raise BadPod(f"{RESOURCES} annotation is missing")
    return found


def largest_size(pod: Pod) -> Resources:
    """What the VM may have at most; 0 where that is not said. Raises BadPod."""
    return _read_annotation(pod, RESOURCES, _read_most) or Resources()


def _read_use(text: str) -> Resources:
    return _read_bounds(text)[BOUNDS.index("use")]


def _read_most(text: str) -> Resources:
    return _read_bounds(text)[BOUNDS.index("max")]


@lru_cache(maxsize=65_536)
def _read_bounds(text: str) -> tuple[Resources, ...]:
    """The VM's size at its minimum, at its maximum and now."""
    fields = read_fields(text)
    cpus, slots = (_read_optional_fields(fields.get(name)) for name in ("cpus", "memoryslots"))
    sizes = [milli_cpu(cpus.get(name)) for name in BOUNDS]
    counts = [whole_number(slots.get(name)) for name in BOUNDS]
    slot = whole_bytes(fields.get("memoryslotsize"))
    return tuple(
        Resources(cpu, slot * count & MEMORY_MASK) for cpu, count in zip(sizes, counts, strict=True)
    )


@lru_cache(maxsize=65_536)
def _discount(text: str) -> tuple[int, int]:
    fields = read_fields(text)
    found = (quantity(fields.get("cpu")), quantity(fields.get("memory")))
    cpu, memory = (NO_DISCOUNT if one is None else one.milli_value() for one in found)
    return cpu, memory


def _read_optional_fields(raw: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    return {} if raw is None else read_fields(bytes(raw))


def _read_annotation(pod: Pod, annotation: str, read: Callable[[str], T]) -> T | None:
    """What an annotation says; None where it is not there. Raises BadPod that names it."""
    text = (pod.metadata.annotations or {}).get(annotation)
    if text is None:
        return None
    try:
        return read(text)
    except BadAmount as error:
        raise BadPod(f"could not unmarshal {annotation} annotation: {error}") from error
