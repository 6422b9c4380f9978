"""Law `migrations`: VMs stop migrating once loads stand still."""

from typing import Final

from stower.controllers.vm_agents import LOAD
from stower.controllers.vm_migrations import FAILS
from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod, VirtualMachine, VirtualMachineMigration
from stower.model.resources import node_room
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.server import Change
from stower.sim.vm_holdings import reserved_amounts
from stower.vms.config import SHIPPED
from stower.vms.migrations import CREATED_BY
from stower.vms.pods import REQUESTED, vm_owner

HOUR_NS: Final = 3600 * SECOND_NS
MOVES_MAX: Final = 2
STILL_NS: Final = 420 * SECOND_NS


class Migrations(Checker):
    """Counts the migrations of each VM that the scheduler created and that succeeded.

    No VM migrates more than MOVES_MAX times within an hour in which no load changed. Loads change
    when a VM comes, goes or requests other amounts, when another pod gets a node or leaves one,
    when a node changes, and when a migration succeeds that a user created. The text says whether
    each of them began on a node above its watermark.

    After loads have stood still for STILL_NS, no VM migrates at all, but for those whose migrations
    fail by themselves: they are tried again.
    """

    law = "migrations"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        # By key of the VM, since the last change: when, and whether its node was above its mark.
        self._moves: dict[str, list[tuple[int, bool]]] = {}
        self._had_cause: dict[str, bool] = {}  # the same of migrations under way, by uid
        self._loads: dict[tuple[type, str], object] = {}  # by view and uid
        self._still_ns = 0  # since when loads stand still

    def on_change(self, change: Change) -> None:
        """Record changes of loads, and count migrations that succeeded."""
        _, kind, obj = change
        if isinstance(obj, VirtualMachineMigration):
            if kind is WatchType.ADDED:
                self._had_cause[obj.metadata.uid] = self._has_cause(obj)
            if self._is_new_success(kind, obj):
                self._count_migration(obj)
            return
        load = _load(kind, obj)
        key = (type(obj), obj.metadata.uid)
        if load != self._loads.get(key):
            self._end_stillness()
        if load is None:
            self._loads.pop(key, None)
        else:
            self._loads[key] = load

    def _end_stillness(self) -> None:
        self._moves.clear()
        self._still_ns = self.court.agenda.now_ns

    def _is_new_success(self, kind: WatchType, migration: VirtualMachineMigration) -> bool:
        key = (VirtualMachineMigration, migration.metadata.uid)
        if kind is WatchType.DELETED:
            self._loads.pop(key, None)
            self._had_cause.pop(migration.metadata.uid, None)
            return False
        if migration.status.phase != "Succeeded" or key in self._loads:
            return False
        self._loads[key] = "Succeeded"
        return True

    def _count_migration(self, migration: VirtualMachineMigration) -> None:
        meta, now_ns = migration.metadata, self.court.agenda.now_ns
        if CREATED_BY not in (meta.labels or {}):
            self._end_stillness()
            return
        key = f"{meta.namespace}/{migration.spec.vm_name}"
        vm = self.court.server.get(VirtualMachine, key)
        is_failing = vm is not None and FAILS in (vm.metadata.annotations or {})
        if now_ns - self._still_ns > STILL_NS and not is_failing:
            raise self.violation(
                f"VM {key} migrated {(now_ns - self._still_ns) // SECOND_NS} s after the last "
                f"change of any load, want no migration after {STILL_NS // SECOND_NS} s"
            )
        recent = [move for move in self._moves.get(key, ()) if now_ns - move[0] < HOUR_NS]
        recent.append((now_ns, self._had_cause.get(meta.uid, False)))
        self._moves[key] = recent
        if len(recent) > MOVES_MAX:
            causes = sum(had_cause for _, had_cause in recent)
            each = "each" if causes == len(recent) else f"{causes} of them"
            raise self.violation(
                f"VM {key} migrated {len(recent)} times in "
                f"{(now_ns - recent[0][0]) // SECOND_NS} s while loads stood still, {each} from a "
                f"node above its watermark, want at most {MOVES_MAX} times an hour"
            )

    def _has_cause(self, migration: VirtualMachineMigration) -> bool:
        """Returns whether the VM's node is above its watermark."""
        vm = self.court.server.get(
            VirtualMachine, f"{migration.metadata.namespace}/{migration.spec.vm_name}"
        )
        name = (vm.status or {}).get("node", "") if vm is not None else ""
        node = self.court.server.get(Node, name)
        if node is None:
            return False
        room = node_room(node.status.allocatable)
        held = reserved_amounts(self.court.server, name)
        mark = SHIPPED.watermark
        return any(
            used > int(room[what] * mark)
            for used, what in zip(held, ("cpu", "memory"), strict=True)
        )


def _load(kind: WatchType, obj: object) -> object:
    """Returns what the object contributes to the load of nodes; None where it contributes nothing.

    The pods of a VM contribute nothing: they come and go with migrations.
    """
    if kind is WatchType.DELETED:
        return None
    if isinstance(obj, Node):
        return obj.status.allocatable, obj.metadata.labels, obj.spec
    if isinstance(obj, VirtualMachine):
        own = obj.metadata.annotations or {}
        return own.get(LOAD, ""), own.get(REQUESTED, ""), obj.metadata.labels
    if isinstance(obj, Pod) and obj.spec.node_name and not obj.is_terminal:
        return obj.spec.node_name if vm_owner(obj) is None else None
    return None
