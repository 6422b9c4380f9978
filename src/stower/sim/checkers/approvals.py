"""Law `approvals`: approved resources of VMs fit on their nodes and cover their use.

What a VM requests and its node has room for is approved in the end. What is approved is known to
the scheduler, also to one that was started since.
"""

from collections.abc import Iterator

from stower.controllers.vm_pods import size_of
from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod, VirtualMachine, VirtualMachineMigration
from stower.model.resources import node_room
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.server import Change
from stower.sim.vm_holdings import reserved_amounts, reserved_state
from stower.sim.vm_load import SCHEDULER
from stower.vms.amounts import Resources, read_resources
from stower.vms.controller import VmScheduling
from stower.vms.ledger import amounts_of
from stower.vms.migrations import ENDED
from stower.vms.pods import (
    APPROVED,
    AUTOSCALING,
    REQUESTED,
    UNIT,
    is_true,
    migration_owner,
    vm_owner,
)

NOTICED_NS = 10 * SECOND_NS
KNOWN_NS = 30 * SECOND_NS  # a message that is late, a watch that is taken up again, and a round


class Approvals(Checker):
    """Looks at each approval when it is written, and at the end at those that never came.

    An approval that the VM shows counts, whoever wrote it and whether or not its pod shows it yet.
    """

    law = "approvals"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._approved: dict[str, Resources] = {}  # by uid of the VM
        self._approved_ns: dict[str, int] = {}  # since when it is that, or its pod is there
        self._changed_ns = 0
        self._placed: set[str] = set()  # uids of pods on nodes
        # By uid, when pods came to nodes that the plugin does not place.
        self._others_ns: dict[str, int] = {}

    def on_change(self, change: Change) -> None:
        """Look at a VM that was written to."""
        _, kind, vm = change
        self._changed_ns = self.court.agenda.now_ns
        if isinstance(vm, Pod):
            self._on_pod(kind, vm)
        if not isinstance(vm, VirtualMachine):
            return
        uid, own = vm.metadata.uid, vm.metadata.annotations or {}
        # What a VM uses when it is seen first is approved as it is: only more has to fit.
        before = self._approved.pop(uid, size_of(vm.spec["guest"]))
        if kind is WatchType.DELETED or APPROVED not in own:
            return
        now = self._approved[uid] = read_resources(own[APPROVED])
        if now != before:
            self._approved_ns[uid] = self.court.agenda.now_ns
        use = size_of(vm.spec["guest"])
        asked = read_resources(own[REQUESTED]) if REQUESTED in own else now
        if (
            use.exceeds(now)
            and not use.exceeds(asked)
            and AUTOSCALING in (vm.metadata.labels or {})
        ):
            raise self.violation(
                f"VM {vm.metadata.key} uses {use.cpu}m CPU and {use.memory} bytes, requests "
                f"{asked.cpu}m CPU and {asked.memory} bytes, but only {now.cpu}m CPU and "
                f"{now.memory} bytes are approved"
            )
        if self.court.server.is_scheduler_writing and now.exceeds(before):
            grown = [i for i in (0, 1) if now[i] > before[i]]
            self._look_at_nodes(vm, grown)

    def _on_pod(self, kind: WatchType, pod: Pod) -> None:
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        if kind is WatchType.DELETED:
            self._placed.discard(uid)
            self._others_ns.pop(uid, None)
        elif node_name and uid not in self._placed:
            self._placed.add(uid)
            owner = vm_owner(pod)
            if owner is not None:
                self._approved_ns[owner.uid] = self.court.agenda.now_ns
            if pod.spec.scheduler_name != SCHEDULER:
                self._others_ns[uid] = self.court.agenda.now_ns

    def _look_at_nodes(self, vm: VirtualMachine, grown: list[int]) -> None:
        """One of the nodes that the VM has a pod on can hold what was approved. grown: of what it
        was more than before: 0 CPU, 1 memory."""
        nodes = [pod.spec.node_name for pod in self._pods(vm) if pod.spec.node_name]
        over = [text for name in dict.fromkeys(nodes) if (text := self._over(name, grown))]
        if nodes and len(over) == len(dict.fromkeys(nodes)):
            raise self.violation(f"approval for VM {vm.metadata.key}: {over[0]}")

    def _pods(self, vm: VirtualMachine) -> Iterator[Pod]:
        for pod in self.court.server.all(Pod).values():
            owner = vm_owner(pod)
            if owner is not None and owner.uid == vm.metadata.uid and _is_alive(pod):
                yield pod

    def _over(self, node_name: str, grown: list[int]) -> str:
        """By how much a node is over what it has, in words; "" where it is not."""
        node = self.court.server.get(Node, node_name)
        if node is None:
            return ""
        came = self._newcomers(node_name)
        for i, (held, total) in enumerate(self._use(node)):
            if i in grown and held - came[i] > total:
                return (
                    f"{held} {('milli-CPU', 'bytes of memory')[i]} are reserved on node "
                    f"{node_name}, which has {total}"
                )
        return ""

    def _newcomers(self, node_name: str) -> tuple[int, int]:
        """What pods hold, CPU and memory, that the plugin has not placed, and that may have come
        after the approval was sent: nobody holds them back for VMs."""
        cpu, memory, by_ns = 0, 0, self.court.agenda.now_ns - NOTICED_NS
        for uid, pod in self.court.server.pods_on(node_name).items():
            if self._others_ns.get(uid, by_ns) > by_ns and not pod.is_terminal:
                amounts = amounts_of(reserved_state(self.court.server, pod)) or (0, 0)
                cpu, memory = cpu + amounts[0], memory + amounts[1]
        return cpu, memory

    def _use(self, node: Node) -> tuple[tuple[int, int], tuple[int, int]]:
        """What is to be held of CPU and of memory, each with what there is."""
        room = node_room(node.status.allocatable)
        cpu, memory = reserved_amounts(self.court.server, node.metadata.name)
        return (cpu, room["cpu"]), (memory, room["memory"])

    def check(self) -> None:
        """A scheduler that runs for a while counts no less than what VMs show as approved."""
        now_ns = self.court.agenda.now_ns
        for process in self.court.schedulers:
            if process.engine is None or now_ns - process.awake_since_ns < KNOWN_NS:
                continue
            companion = process.engine.state.companions.get("AutoscaleEnforcer")
            if isinstance(companion, VmScheduling):
                self._check_known(process.name, companion, now_ns - KNOWN_NS)

    def _check_known(self, name: str, companion: VmScheduling, by_ns: int) -> None:
        for vm in self.court.server.all(VirtualMachine).values():
            approved = self._approved.get(vm.metadata.uid)
            if approved is None or self._approved_ns.get(vm.metadata.uid, 0) > by_ns:
                continue
            for pod in self._pods(vm):
                owner, node_name = vm_owner(pod), pod.spec.node_name
                is_running_in = owner is not None and owner.controller and is_true(pod, AUTOSCALING)
                if not node_name or not is_running_in or node_name not in companion.enforcer.nodes:
                    continue
                held = companion.enforcer.held_state(pod.metadata.uid, node_name)
                has = Resources(held.cpu.reserved, held.memory.reserved) if held else Resources()
                if approved.exceeds(has):
                    raise self.violation(
                        f"VM {vm.metadata.key} has {approved.cpu}m CPU and {approved.memory} bytes "
                        f"approved, but {name} counts {has.cpu}m CPU and {has.memory} bytes"
                    )

    def check_end(self) -> None:
        """Nobody asks any more: what there is room for was approved."""
        if self.court.agenda.now_ns - self._changed_ns < NOTICED_NS:
            return  # there may be room that was not there a moment ago
        moving = {
            f"{one.metadata.namespace}/{one.spec.vm_name}"
            for one in self.court.server.all(VirtualMachineMigration).values()
            if one.status.phase not in ENDED
        }
        for key, vm in self.court.server.all(VirtualMachine).items():
            if key not in moving and vm.metadata.deletion_timestamp is None:
                self._check_settled(vm)

    def _check_settled(self, vm: VirtualMachine) -> None:
        pods = [pod for pod in self._pods(vm) if pod.spec.node_name]
        own = vm.metadata.annotations or {}
        if len(pods) != 1 or not is_true(pods[0], AUTOSCALING) or migration_owner(pods[0]):
            return
        if APPROVED not in own:
            raise self.violation(f"no resources were ever approved for VM {vm.metadata.key}")
        if REQUESTED not in own or UNIT not in own:
            return
        asked, now, unit = (read_resources(own[name]) for name in (REQUESTED, APPROVED, UNIT))
        if now.exceeds(asked):
            raise self.violation(
                f"VM {vm.metadata.key} requests {asked.cpu}m CPU and {asked.memory} bytes, but "
                f"{now.cpu}m CPU and {now.memory} bytes are still approved"
            )
        name = pods[0].spec.node_name
        node = self.court.server.get(Node, name)
        if node is None or not asked.exceeds(now):
            return
        free = [total - held for held, total in self._use(node)]
        lost = [i for i in (0, 1) if asked[i] > now[i] and free[i] >= unit[i]]
        if lost:
            raise self.violation(
                f"VM {vm.metadata.key} requests {asked.cpu}m CPU and {asked.memory} bytes, but "
                f"only {now.cpu}m CPU and {now.memory} bytes are approved although {name} has "
                f"{free[0]}m CPU and {free[1]} bytes free"
            )


def _is_alive(pod: Pod) -> bool:
    return not pod.is_terminal
