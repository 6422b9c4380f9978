"""Bugs that are planted in the scheduler to show that each law can be broken, and is seen to be.

Each is a few lines that people get wrong; a test switches it on for the length of a run.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

from stower.controllers import vm_migrations
from stower.controllers.vm_migrations import VmMigrationController
from stower.devices.negotiation import giving_back, scheduling, trees
from stower.devices.negotiation.steps import Step
from stower.devices.overcommits import Overcommits
from stower.driver import RefusedError
from stower.engine import engine, status_reporter
from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.cycle import reference, scheduling_cycle
from stower.engine.cycle.failure_handler import FailureHandler
from stower.engine.engine import Engine
from stower.engine.groups.tree_cycle import TreeCycle
from stower.engine.outbox import Answer
from stower.engine.pod_events import PodEvents
from stower.engine.preemption.evaluator import Search
from stower.engine.queue import entities
from stower.engine.queue.entities import HintKey, QueuedPod
from stower.engine.queue.hint_groups import HintGroups
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.status_reporter import StatusReporter
from stower.framework.events import Observed, WatchType
from stower.framework.post_filter import PostFilterResult
from stower.framework.writes import Bind
from stower.groups.tree import TreeGroup
from stower.model.kinds import Pod
from stower.model.kinds.node import NodeSpec
from stower.model.times import SECOND_NS
from stower.plugins import negotiated_resources
from stower.plugins.claim_binding import ClaimBinding
from stower.plugins.default_preemption import DefaultPreemption
from stower.plugins.image_readiness import ImageReadiness
from stower.plugins.node_affinity import NodeAffinity
from stower.plugins.node_ports import NodePorts
from stower.plugins.node_resources_fit import NodeResourcesFit
from stower.plugins.warm_capacity import WarmCapacity
from stower.sim.changes import bound
from stower.sim.resource_drivers import CountedDevices
from stower.sim.server import Server
from stower.state.arrays import ResourceColumn
from stower.state.cluster import ClusterState
from stower.state.devices import Devices
from stower.state.labels import LabelColumns
from stower.state.node_rows import NodeRows
from stower.state.ties import TieBreaker
from stower.vms import approval
from stower.vms.amounts import Resources
from stower.vms.nodes import Use
from stower.vms.vm_approvals import VmApprovals
from stower.warm import nodes as warm_nodes
from stower.warm.placeholders import PlaceholderManager
from stower.warm.repositioning import Repositioner
from stower.warm.sharing import Sharing

Plant = Callable[[], AbstractContextManager[Any]]


def nothing(*_: Any, **__: Any) -> None:
    """Done in place of something."""


def wanted_less() -> AbstractContextManager[Any]:
    """The fit filter looks at memory alone."""
    whole = NodeResourcesFit._checked_requests

    def wanted(self: Any, shape: Any) -> Any:
        return tuple(pair for pair in whole(self, shape) if pair[0].name == "memory")

    return patch.object(NodeResourcesFit, "_checked_requests", wanted)


def ports_shared() -> AbstractContextManager[Any]:
    """Host ports are nobody's concern."""
    return patch.multiple(
        NodePorts,
        filter=lambda *_: None,
        passes=lambda *_: None,
        filter_row=lambda *_: None,
        dry_runs=lambda *_: None,
    )


def confirmation_missed() -> AbstractContextManager[Any]:
    """A pod that is seen on a node is taken for a new one now and then."""
    whole = PodEvents.handle_pod

    def handle_pod(self: Any, pod: Pod) -> None:
        if pod.spec.node_name and pod.metadata.uid.endswith("3"):
            self._remove(pod.metadata.uid)
            self._apply_new(pod)
        else:
            whole(self, pod)

    return patch.object(PodEvents, "handle_pod", handle_pod)


def moved() -> AbstractContextManager[Any]:
    """The server lets pods be bound again, and the scheduler does not believe that it has bound."""
    refusing, believing = Server._carry_out, BindingCycle.handle_answer

    def carry_out(self: Any, write: Any) -> int:
        found = self.get(Pod, f"{write.namespace}/{write.name}")
        if isinstance(write, Bind) and found is not None and found.spec.node_name:
            self.put(bound(found, write))
            return 200
        return refusing(self, write)

    def handle_answer(self: Any, answer: Answer) -> None:
        queued = self._binding[answer.id][0]
        if not answer.code and queued.entry.uid[-1] in "13579":
            answer = Answer(answer.id, 500, "no", "no")
        believing(self, answer)

    stack = ExitStack()
    stack.enter_context(patch.object(Server, "_carry_out", carry_out))
    stack.enter_context(patch.object(BindingCycle, "handle_answer", handle_answer))
    return stack


def unheard() -> AbstractContextManager[Any]:
    """Some new pods are not taken in."""
    whole = PodEvents.handle_pod

    def handle_pod(self: Any, pod: Pod) -> None:
        if not (pod.metadata.uid.endswith("3") and not pod.spec.node_name):
            whole(self, pod)

    return patch.object(PodEvents, "handle_pod", handle_pod)


def dropped_after_an_error() -> AbstractContextManager[Any]:
    """A pod whose bind failed is not put back."""

    def fail(self: Any, queued: Any, message: str) -> None:
        self._queue.remove(queued.entry.uid)

    return patch.object(FailureHandler, "fail", fail)


def never_sent_again() -> AbstractContextManager[Any]:
    """A bind of which nobody knows is left at that."""
    return patch.object(BindingCycle, "_send_again", lambda self, queued, node_name: None)


def never_confirmed() -> AbstractContextManager[Any]:
    """Some pods that are seen on their node are still taken for assumed."""
    whole = ClusterState.confirm

    def confirm(self: Any, entry: Any, pod: Any) -> None:
        assumed = entry.is_assumed and entry.uid.endswith("3")
        whole(self, entry, pod)
        entry.is_assumed = assumed or entry.is_assumed

    return patch.object(ClusterState, "confirm", confirm)


def never_woken() -> AbstractContextManager[Any]:
    """Nothing that happens wakes a pod."""
    return patch.object(SchedulingQueue, "wake", nothing)


def important_ones_sleep() -> AbstractContextManager[Any]:
    """Pods of a priority are woken by nothing."""
    whole = SchedulingQueue._wake

    def wake(self: Any, pod: Any, now_ns: int) -> None:
        if not pod.entry.pod.priority:
            whole(self, pod, now_ns)

    return patch.object(SchedulingQueue, "_wake", wake)


def promises_broken() -> AbstractContextManager[Any]:
    """Promised room is anybody's."""
    return patch.object(scheduling_cycle.SchedulingCycle, "_has_room", lambda *_: True)


def promises_unknown() -> AbstractContextManager[Any]:
    """Nobody knows to whom room was promised."""
    return patch.object(reference, "nominated_pods_on", lambda *_: [])


def said_again() -> AbstractContextManager[Any]:
    """What is said already is said once more."""
    whole = StatusReporter.report

    def report(self: Any, queued: Any, reason: str, message: str, *more: Any) -> None:
        whole(self, queued, reason, message, *more)
        self.event(queued.entry.pod, "Warning", "FailedScheduling", "Scheduling", message)

    return patch.object(StatusReporter, "report", report)


def promised_again() -> AbstractContextManager[Any]:
    """Each attempt writes the nominated node name, changed or not."""
    whole = StatusReporter.decide

    def decide(self: Any, queued: Any, *args: Any, **more: Any) -> None:
        whole(self, queued, *args, **more)
        self.nominate(queued.entry, "")

    return patch.object(StatusReporter, "decide", decide)


def luck() -> AbstractContextManager[Any]:
    """Ties are broken by how many there were before."""
    drawn = [0]

    def pick(breaker: TieBreaker, tied: Any, pod: int) -> int:
        drawn[0] += 1
        rows = np.flatnonzero(tied)
        return int(rows[drawn[0] % len(rows)])

    return patch.object(TieBreaker, "pick", pick)


def deletions_missed() -> AbstractContextManager[Any]:
    """Pods that are gone hold their room."""
    whole = Engine._on_object

    def on_observed(self: Any, event: Any) -> None:
        gone = isinstance(event, Observed) and event.type is WatchType.DELETED
        if not (gone and isinstance(event.object, Pod) and event.object.metadata.uid[-1] in "357"):
            whole(self, event)

    return patch.object(engine, "HANDLERS", {**engine.HANDLERS, Observed: on_observed})


def devices_free() -> AbstractContextManager[Any]:
    """No device is in use."""
    return patch.object(Devices, "usage", lambda *_: {})


def decisions_forgotten() -> AbstractContextManager[Any]:
    """What was decided about a claim counts once the API shows it."""
    return patch.object(Devices, "assume_status", nothing)


def nobody_else() -> AbstractContextManager[Any]:
    """What other schedulers have allocated before is not looked at."""
    return patch.object(Overcommits, "reason", lambda *_: "")


def bound_too_early() -> AbstractContextManager[Any]:
    """Pods are bound while their claims are being written."""
    return patch.object(ClaimBinding, "is_done", lambda *_: True)


def anybodys() -> AbstractContextManager[Any]:
    """A claim that is allocated is good enough, whoever it is reserved for."""
    return patch.object(ClaimBinding, "_is_reserved", lambda *_: True)


def one_asked_for_all() -> AbstractContextManager[Any]:
    """Whether a change helps is asked of one of all pods, whatever they ask for."""
    key = HintKey("", 0, frozenset(), b"")
    return patch.object(QueuedPod, "make_hint_key", lambda *_: key)


def deaf_to_room() -> AbstractContextManager[Any]:
    """No pod is tried again because another has gone."""
    return patch.object(NodeResourcesFit, "hint", lambda *_: False)


# By law: at least two bugs that break it. Some break several; any of those named will do.
def never_asked_back() -> AbstractContextManager[Any]:
    """What no node is left for keeps what it has."""
    return patch.object(giving_back, "_find_releasable", lambda *_: None)


def conditions_stay() -> AbstractContextManager[Any]:
    """What is said of devices that are given back is said for ever."""
    return patch.object(status_reporter, "outdated_conditions", lambda *_: ())


def ledgers_forgotten() -> AbstractContextManager[Any]:
    """A driver does not look for devices of claims that are gone, nor of those that it frees."""

    def freed(self: Any, claim: Any) -> None:
        raise RefusedError("never")

    return patch.object(CountedDevices, "deallocate", freed)


def half_is_enough() -> AbstractContextManager[Any]:
    """Of what was found for a tree, the first half is bound."""
    whole = TreeCycle.attempt

    def attempt(self: Any, *args: Any, **fields: Any) -> Any:
        found = whole(self, *args, **fields)
        return found._replace(plan=found.plan[: (len(found.plan) + 1) // 2])

    return patch.object(TreeCycle, "attempt", attempt)


def anywhere() -> AbstractContextManager[Any]:
    """Domains are nobody's concern."""
    return patch.object(TreeGroup, "topology", "")


def granted_whole() -> AbstractContextManager[Any]:
    """Whatever a VM asks for is there."""
    return patch.object(
        Use, "granted", lambda _, holding: holding._replace(reserved=holding.requested)
    )


def only_pods_are_read() -> AbstractContextManager[Any]:
    """What VMs show as approved, and their pods do not, is not known."""
    return patch.object(VmApprovals, "of_pod", lambda *_: Resources())


def asked_once() -> AbstractContextManager[Any]:
    """Who got less than it asked for is not looked at again."""
    return patch.multiple(approval, SHORT="", AGAIN_NS=0)


def target_left() -> AbstractContextManager[Any]:
    """A migration that has failed leaves its target."""
    return patch.object(VmMigrationController, "_is_undone", lambda *_: True)


def source_left() -> AbstractContextManager[Any]:
    """A migration that has succeeded leaves its source."""
    always = staticmethod(lambda *_: True)
    return patch.object(VmMigrationController, "_is_source_deleted", always)


def all_at_once() -> AbstractContextManager[Any]:
    """A VM is moved by whoever asks for it."""
    return patch.object(vm_migrations, "_waits_for_another", lambda *_: False)


def moved_at_once() -> AbstractContextManager[Any]:
    """Who begins knows of no move before."""
    return patch.object(Repositioner, "_recent_moves", lambda *_: ([], []))


def images_before_they_are() -> AbstractContextManager[Any]:
    """Each node is ready for users."""
    return patch.object(ImageReadiness, "filter_pod", nothing)


def in_the_way() -> AbstractContextManager[Any]:
    """Placeholders give way to nobody, and nobody is preempted."""
    both = ExitStack()
    both.enter_context(patch.object(WarmCapacity, "displaceable_pods", lambda *_: ()))
    both.enter_context(
        patch.object(DefaultPreemption, "post_filter", lambda *_: PostFilterResult())
    )
    return both


def too_few() -> AbstractContextManager[Any]:
    """No placeholder is made."""
    return patch.object(PlaceholderManager, "create", lambda *_: [])


def each_pool_alone() -> AbstractContextManager[Any]:
    """Pools that share nodes know nothing of each other."""

    def groups(self: Any, pools: Any, nodes: Any) -> Any:
        return {key: (pool,) for key, pool in pools.items()}

    return patch.object(Sharing, "groups", groups)


def cordons_unseen() -> AbstractContextManager[Any]:
    """Placeholders count wherever they are."""
    whole = warm_nodes.node_state

    def node_state(pool: Any, node: Any, *more: Any) -> Any:
        return whole(pool, replace(node, spec=NodeSpec()), *more)

    return patch.object(warm_nodes, "node_state", node_state)


def one_victim_too_many() -> AbstractContextManager[Any]:
    """A preemptor also waits for a pod that nobody evicts."""
    whole = SchedulingQueue.await_victims

    def await_victims(self: Any, entity: Any, uids: Any) -> None:
        uids = [*uids]
        whole(self, entity, [*uids, "nobody"] if uids else [])

    return patch.object(SchedulingQueue, "await_victims", await_victims)


def nominated_pods_sleep() -> AbstractContextManager[Any]:
    """No event wakes a pod that is nominated to a node."""
    whole = SchedulingQueue._wake

    def wake(self: Any, entity: Any, now_ns: int) -> None:
        if not entity.pod.status.nominated_node_name:
            whole(self, entity, now_ns)

    return patch.object(SchedulingQueue, "_wake", wake)


def nominations_forgotten() -> AbstractContextManager[Any]:
    """The room that a preemptor was promised is anybody's, and it may evict more at once."""
    return patch.object(ClusterState, "nominate", nothing)


def evictions_help_anywhere() -> AbstractContextManager[Any]:
    """Pods are evicted also where the preemptor cannot go."""

    def possible(self: Any) -> Any:
        self._prepare()
        self._fixed.clear()
        return np.ones(self.state.row_limit, np.bool_)

    return patch.object(Search, "_possible_rows", property(possible))


def selections_stay() -> AbstractContextManager[Any]:
    """A selected node is not withdrawn when a driver refuses it or does not answer."""
    return patch.object(scheduling, "clear", lambda *_, **__: Step(""))


def never_given_back() -> AbstractContextManager[Any]:
    """A pod for which no node is left keeps what it has."""
    return patch.object(scheduling, "give_back", lambda *_: Step(""))


def groups_ask_at_once() -> AbstractContextManager[Any]:
    """A group whose attempt failed asks for devices again without a delay."""
    return patch.object(trees, "delay_for", lambda *_: 0)


def members_ask_alone() -> AbstractContextManager[Any]:
    """Each pod of a group negotiates as if it were alone."""
    return patch.object(negotiated_resources, "turn_of", lambda *_: None)


def every_change_helps() -> AbstractContextManager[Any]:
    """All pods are woken by all that happens."""
    both = ExitStack()
    both.enter_context(patch.object(entities, "may_help", lambda *_: True))
    both.enter_context(patch.object(HintGroups, "_changes_for", lambda *_: -1))
    return both


def tried_each_second() -> AbstractContextManager[Any]:
    """An unschedulable pod is tried again without an event."""
    whole = SchedulingQueue.park

    def park(self: Any, entity: Any, refused_by: Any, now_ns: int) -> None:
        whole(self, entity, refused_by, now_ns)
        self.retry_at(entity, now_ns + SECOND_NS)

    return patch.object(SchedulingQueue, "park", park)


def room_of_leaving_pods() -> AbstractContextManager[Any]:
    """A pod holds no room once its deletion has begun."""
    whole = PodEvents.handle_pod

    def handle_pod(self: Any, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None and pod.spec.node_name:
            self._remove(pod.metadata.uid)
        else:
            whole(self, pod)

    return patch.object(PodEvents, "handle_pod", handle_pod)


def selectors_ignored() -> AbstractContextManager[Any]:
    """Node selectors and required node affinity are not looked at."""
    return patch.multiple(NodeAffinity, pre_filter=lambda *_: None, filter=lambda *_: None)


def above_any_watermark() -> AbstractContextManager[Any]:
    """Each node with a VM counts as above its watermark."""
    return patch.object(Use, "excess_over_watermark", property(lambda use: use.reserved))


def half_the_watermark() -> AbstractContextManager[Any]:
    """VMs leave nodes above half of the watermark that targets are chosen by."""

    def excess(use: Use) -> int:
        return max(use.reserved - use.migrating - use.watermark // 2, 0)

    return patch.object(Use, "excess_over_watermark", property(excess))


def a_column_for_each_resource() -> AbstractContextManager[Any]:
    """Resources that no node has get columns for good."""

    def column(self: Any, name: str) -> Any:
        if name not in self.columns:
            self.columns[name] = ResourceColumn(name, self.capacity)
        return self.columns[name]

    return patch.multiple(NodeRows, column=column, _sweep_columns=nothing)


def a_column_for_each_label() -> AbstractContextManager[Any]:
    """Labels that no node has get columns when somebody asks for them."""

    def codes(self: Any, key: str, rows: slice) -> Any:
        return self.column(key).codes[rows]

    return patch.object(LabelColumns, "codes", codes)


class Planted(NamedTuple):
    """A bug that breaks a law, and the first seed of the simulator with which the law's checker
    sees it. A change of behaviour may move that seed: test-more says to where. `parts`: of the
    load, beside devices and the part that the law is about."""

    bug: Plant
    seed: int
    parts: tuple[str, ...] = ()


PLANTED: Final[dict[str, tuple[Planted, ...]]] = {
    "attempts": (Planted(every_change_helps, 0), Planted(tried_each_second, 0)),
    "evictions": (Planted(evictions_help_anywhere, 2), Planted(nominations_forgotten, 12)),
    "hold-and-wait": (Planted(selections_stay, 8), Planted(never_given_back, 8)),
    "preemptions": (Planted(one_victim_too_many, 13), Planted(nominated_pods_sleep, 12)),
    "admissions": (Planted(room_of_leaving_pods, 0), Planted(selectors_ignored, 0)),
    "approvals": (
        Planted(granted_whole, 0),
        Planted(asked_once, 10),
        Planted(only_pods_are_read, 14),
    ),
    "migrations": (Planted(above_any_watermark, 4), Planted(half_the_watermark, 5)),
    "leaks": (Planted(a_column_for_each_resource, 0), Planted(a_column_for_each_label, 0)),
    "machines": (Planted(target_left, 0), Planted(all_at_once, 0), Planted(source_left, 10)),
    "room": (Planted(wanted_less, 0), Planted(ports_shared, 5)),
    "bindings": (Planted(confirmation_missed, 0), Planted(moved, 3)),
    "futile-allocations": (Planted(groups_ask_at_once, 26), Planted(members_ask_alone, 9)),
    "gangs": (Planted(half_is_enough, 0), Planted(anywhere, 9)),
    "forgotten": (Planted(unheard, 0), Planted(dropped_after_an_error, 2)),
    "assumptions": (Planted(never_sent_again, 2), Planted(never_confirmed, 0)),
    "negotiations": (Planted(never_asked_back, 8), Planted(ledgers_forgotten, 5)),
    "overlooked": (Planted(one_asked_for_all, 2), Planted(deaf_to_room, 0)),
    "priorities": (Planted(never_woken, 12), Planted(important_ones_sleep, 12, ("warm", "vms"))),
    "promises": (Planted(promises_broken, 13), Planted(promises_unknown, 0)),
    "quiescence": (Planted(said_again, 1), Planted(promised_again, 1)),
    "devices": (
        Planted(devices_free, 0),
        Planted(decisions_forgotten, 0),
        Planted(nobody_else, 31, ("rivals",)),
    ),
    "reservations": (
        Planted(bound_too_early, 0),
        Planted(anybodys, 0),
        Planted(conditions_stay, 37, ("negotiation", "groups")),
    ),
    "restart": (Planted(luck, 5), Planted(deletions_missed, 13)),
    "warmth": (
        Planted(moved_at_once, 6),
        Planted(images_before_they_are, 13),
        Planted(in_the_way, 19),
        Planted(too_few, 0),
        Planted(each_pool_alone, 2),
        Planted(cordons_unseen, 7),
    ),
}
