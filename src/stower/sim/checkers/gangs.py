"""Law `gangs`: pod groups are placed as a whole and within one topology domain.

No pod is assigned a node without the group's minimum, and no gang stays below its minimum for long.
"""

from typing import Final

from stower.engine.engine import Engine
from stower.framework.decisions import Outcome
from stower.framework.events import Event, WatchType
from stower.framework.writes import Bind, Write
from stower.model.kinds import CompositePodGroup, Pod, PodGroup
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.checkers.group_roots import root_group
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change
from stower.state.pod_entry import PodEntry

# All of a minimum is bound at once; what faults hold up is sent again within this.
WHOLE_NS: Final = 240 * SECOND_NS

Group = PodGroup | CompositePodGroup


class Gangs(Checker):
    """Looks at decisions as the engine took them, and at what became of them.

    What a leader that is gone had under way may come true after another has decided: so domains are
    compared by what the one that decides knows. A gang of which a pod has gone since the first was
    bound is left alone: who is left runs on, and the rest is placed when there is room.
    """

    law = "gangs"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()
        self._begun_ns: dict[str, int] = {}  # gangs of which some are bound, and not the minimum
        self._whole: set[str] = set()  # those that had their minimum, or lost some of it

    def on_change(self, change: Change) -> None:
        """A pod gets a node, or goes."""
        _, kind, obj = change
        if isinstance(obj, Pod) and obj.group_name:
            is_leaving = kind is WatchType.DELETED or obj.is_terminal
            if obj.group_name in self._begun_ns and (
                is_leaving or obj.metadata.deletion_timestamp is not None
            ):
                self._whole.add(obj.group_name)
            pod = self._binds.find_bound_pod(change)
            if pod is not None:
                self._check_bound(pod)

    def _check_bound(self, pod: Pod) -> None:
        group = self.court.server.get(PodGroup, f"default/{pod.group_name}")
        if group is None:
            raise self.violation(
                f"pod {pod.key} is bound, but its group {pod.group_name} does not exist"
            )
        members = self.court.server.pods_of(group.metadata.key).values()
        have = sum(bool(other.spec.node_name) for other in members)
        if have >= group.minimum:
            self._whole.add(pod.group_name)
            self._begun_ns.pop(pod.group_name, None)
        elif pod.group_name not in self._whole:
            self._begun_ns.setdefault(pod.group_name, self.court.agenda.now_ns)

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Pods that get their node in this step."""
        engine = process.engine
        bound = {write.uid for write in writes if isinstance(write, Bind)}
        if engine is None or not bound:
            return
        for decision in reversed(process.decisions):
            if decision.at_ns != process.now_ns:
                break
            entry = engine.state.pods.get(decision.uid) if decision.uid in bound else None
            if decision.outcome is Outcome.PLACED and entry is not None and entry.row >= 0:
                group = engine.state.groups.pod_groups.get(f"default/{entry.pod.group_name}")
                if group is not None:
                    self._check_decision(engine, entry, group)

    def _check_decision(self, engine: Engine, entry: PodEntry, group: PodGroup) -> None:
        have = len(_list_placed(engine, group))
        if have < group.minimum:
            raise self.violation(
                f"pod {entry.pod.key} is assigned a node while {have} pods of group "
                f"{group.metadata.name} have one, want at least {group.minimum}"
            )
        around: Group | None = group
        while around is not None:
            constraints = around.spec.scheduling_constraints
            if constraints is not None and constraints.key:
                column = engine.state.labels.column(constraints.key)
                rows = [other.row for other in _list_placed(engine, around)]
                values = {column.values[int(column.codes[row])] for row in rows}
                if len(values) > 1 or None in values:
                    raise self.violation(
                        f"with pod {entry.pod.key}, group {around.metadata.name} is in the domains "
                        f"{sorted(map(str, values))} of {constraints.key}, want one"
                    )
            parent = around.spec.parent_composite_pod_group_name
            around = engine.state.groups.composite_groups.get(f"default/{parent}")

    def check(self) -> None:
        """Gangs that have had a part for too long."""
        now_ns = self.court.agenda.now_ns
        for name, since_ns in self._begun_ns.items():
            if name in self._whole or now_ns - since_ns <= WHOLE_NS:
                continue
            if not self._disagree(name):
                raise self.violation(
                    f"group {name} has fewer bound pods than its minimum for "
                    f"{(now_ns - since_ns) // SECOND_NS} s, want at most {WHOLE_NS // SECOND_NS} s"
                )

    def _disagree(self, name: str) -> bool:
        """Returns whether the tree of a group waits for its owner: its pods without a node have
        different preemption policies, which is an error."""
        server = self.court.server
        policies: dict[str, set[str]] = {}  # by the uid of the root
        own = ""
        for pod in server.pods_on("").values():
            is_over = pod.is_terminal or pod.metadata.deletion_timestamp is not None
            root = None if is_over or pod.spec.scheduling_gates else root_group(server, pod)
            if root is not None:
                uid = root.metadata.uid
                policies.setdefault(uid, set()).add(pod.spec.preemption_policy or "")
                own = uid if pod.group_name == name else own
        return len(policies.get(own, ())) > 1


def _list_placed(engine: Engine, group: Group) -> list[PodEntry]:
    """The pods of a group and of those below it that have a node, as the engine knows them."""
    groups = engine.state.groups
    if isinstance(group, PodGroup):
        members = groups.members.get(group.metadata.key, {}).values()
        return [entry for entry in members if entry.row >= 0]
    below = (groups.get(which) for which in groups.children.get(group.metadata.key, ()))
    return [entry for child in below if child is not None for entry in _list_placed(engine, child)]
