"""Simulated autoscaler-agents: request CPU and memory for VMs by annotations, as their load needs.

A VM declares its load, for tests and demonstrations:

    stower.dev/load: '{"low": 0.1, "high": 0.9, "periodSeconds": 600}'

The load is a wave between two shares of the VM's largest size; each VM has its own phase. To grow,
an agent requests more, and the VM uses what is approved; to shrink, the VM uses less first, and
then the agent requests less.
Source: seed 004 (agents that write the annotations themselves); neondatabase/autoscaling pkg/agent.
"""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from stower.controllers import vm_pods
from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, uid_of
from stower.controllers.runtime import MERGE, OwnerController, ReconcileResult
from stower.model.numbers import Int64
from stower.model.quantity import parse_quantity
from stower.model.times import SECOND_NS
from stower.vms.amounts import BadAmount, Resources, cpu_value, read_resources, resources_text
from stower.vms.pods import APPROVED, AUTOSCALING, REQUESTED, UNIT

LOAD: Final = "stower.dev/load"
EVERY_NS: Final = 5 * SECOND_NS
CPU_UNIT: Final = 250  # thousandths
ALIVE: Final = ("Running", "Scaling")


class Load(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Shares of the largest size, from 0 to 1, and how long a wave is."""

    low: float = 0.0
    high: float = 1.0
    period_seconds: Int64 = 600

    def share(self, at_ns: int) -> float:
        """How much of the VM's largest size is needed."""
        turn = 2 * math.pi * at_ns / (max(self.period_seconds, 1) * SECOND_NS)
        low, high = (min(max(share, 0.0), 1.0) for share in (self.low, self.high))
        return low + (high - low) * (1 - math.cos(turn)) / 2


_read = msgspec.json.Decoder(Load)


class VmAgentController(OwnerController):
    """One VM is one key."""

    name = "autoscaler-agent"
    kinds = ("virtualmachines",)
    own = "virtualmachines"

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """VMs that have a load."""
        return (key_of(obj),) if LOAD in (obj["metadata"].get("annotations") or {}) else ()

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Look now and then what is needed, and do the next step towards it."""
        own = obj["metadata"].get("annotations") or {}
        is_scaled = (obj["metadata"].get("labels") or {}).get(AUTOSCALING) == "true"
        status = obj.get("status") or {}
        if is_ending(obj) or not is_scaled or LOAD not in own or status.get("cpus") is None:
            return
        todo.requeue_at(todo.now_ns + EVERY_NS)
        if status.get("phase") not in ALIVE:
            return
        try:
            load = _read.decode(own[LOAD])
            asked, approved = (_resources(own.get(name)) for name in (REQUESTED, APPROVED))
        except (msgspec.DecodeError, BadAmount):
            return
        guest = obj["spec"]["guest"]
        slot = parse_quantity(str(guest.get("memorySlotSize", "1Gi"))).value()
        if not slot:
            return
        unit = Resources(CPU_UNIT, slot)
        want = _desired_size(guest, load.share(todo.now_ns + _phase_ns(obj, load)), slot)
        use = vm_pods.size_of(guest)
        has = Resources(
            parse_quantity(str(status["cpus"])).milli_value(),
            parse_quantity(str(status.get("memorySize") or 0)).value(),
        )
        # Less of anything first, then what may be asked for, then more; but before anything else
        # it is asked for what there is: of a VM that asks for nothing, what it uses is granted.
        lower = Resources(min(use.cpu, want.cpu), min(use.memory, want.memory))
        if asked is not None and lower != use:
            self._use(obj, lower, slot, todo)
            return
        ask = Resources(max(want.cpu, has.cpu, use.cpu), max(want.memory, has.memory, use.memory))
        if asked != ask or own.get(UNIT) != resources_text(unit):
            notes = {UNIT: resources_text(unit), REQUESTED: resources_text(ask)}
            todo.patch(self.own, obj, {"metadata": {"annotations": notes}}, form=MERGE)
            return
        if approved is not None:
            most = Resources(min(want.cpu, approved.cpu), min(want.memory, approved.memory))
            more = Resources(max(use.cpu, most.cpu), max(use.memory, most.memory // slot * slot))
            if more != use:
                self._use(obj, more, slot, todo)

    def _use(self, vm: Object, size: Resources, slot: int, todo: ReconcileResult) -> None:
        """The VM must be as it was seen: one that has begun to move stays as it is."""
        guest = {
            "cpus": {"use": cpu_value(size.cpu)},
            "memorySlots": {"use": size.memory // slot},
        }
        meta = {"resourceVersion": vm["metadata"]["resourceVersion"]}
        todo.patch(self.own, vm, {"metadata": meta, "spec": {"guest": guest}})


def _resources(text: str | None) -> Resources | None:
    return read_resources(text) if text is not None else None


def _desired_size(guest: Object, share: float, slot: int) -> Resources:
    """So much of the largest size, in whole units, within the bounds."""
    cpus, slots = vm_pods.guest_part(guest, "cpus"), vm_pods.guest_part(guest, "memorySlots")
    least, most = (parse_quantity(str(cpus[n])).milli_value() for n in ("min", "max"))
    cpu = math.ceil(share * most / CPU_UNIT) * CPU_UNIT
    count = min(max(math.ceil(share * slots["max"]), slots["min"]), slots["max"])
    return Resources(min(max(cpu, least), most), count * slot)


def _phase_ns(vm: Object, load: Load) -> int:
    """Where in its wave a VM begins."""
    return vm_pods.chance_of(uid_of(vm)) % max(load.period_seconds, 1) * SECOND_NS
