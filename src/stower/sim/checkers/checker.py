"""The interface of a checker, and helpers that several checkers share."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from stower.engine.engine import Engine
from stower.framework.events import Event, Listed, Tick, WatchType
from stower.framework.writes import Write
from stower.model.kinds import ApiObject, Node, Pod
from stower.model.resources import PODS, Amounts, amounts, node_room, pod_requests
from stower.sim.agenda import Agenda
from stower.sim.checkers.preemption_log import PreemptionLog
from stower.sim.checkers.step_reader import StepReader
from stower.sim.resource_drivers import Negotiators
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Change, Server


class ViolationError(Exception):
    """A law was broken: which, and how."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law
        self.what = what


class Court(Protocol):
    """What checkers look at."""

    agenda: Agenda
    server: Server
    schedulers: list[SchedulerProcess]
    build: Callable[[], Engine]
    negotiators: Negotiators
    active_ns: int  # after this, nothing goes wrong any more
    has_rivals: bool  # whether several schedulers know nothing of each other
    # What several laws read of the same steps.
    step_reader: StepReader
    preemption_log: PreemptionLog


class Checker:
    """One law. A method that is not overridden looks at nothing."""

    law: ClassVar[str]
    # Whether the law holds with several schedulers that know nothing of each other.
    allows_rivals: ClassVar[bool] = False

    def __init__(self, court: Court) -> None:
        self.court = court

    def on_change(self, change: Change) -> None:
        """The server has changed an object."""

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """An engine has taken a step."""

    def check(self) -> None:
        """Asked now and then."""

    def check_end(self) -> None:
        """Nothing happens any more, and has not for a while."""

    def violation(self, what: str) -> ViolationError:
        """To be raised."""
        return ViolationError(self.law, f"at {self.court.agenda.now_ns / 1e9:.3f} s: {what}")


def rebuild_engine(
    court: Court, found: Iterable[ApiObject], now_ns: int
) -> tuple[Engine, list[Write]]:
    """Returns an engine that has just been started with these objects, and what it has written."""
    fresh = court.build()
    writes = fresh.step(Listed(tuple(found)), now_ns)
    while (due_ns := fresh.next_wake_ns) is not None and due_ns <= now_ns:
        writes += fresh.step(Tick(), now_ns)
    return fresh, writes


class Binds:
    """Tells which pods get a node."""

    def __init__(self) -> None:
        self._bound: set[str] = set()

    def find_bound_pod(self, change: Change) -> Pod | None:
        """The pod that has a node from this change on, if there is one."""
        _, kind, pod = change
        if (
            not isinstance(pod, Pod)
            or kind is WatchType.DELETED
            or not pod.spec.node_name
            or pod.metadata.uid in self._bound
        ):
            return None
        self._bound.add(pod.metadata.uid)
        return pod


def on_node(server: Server, name: str) -> list[Pod]:
    """Pods that hold room on the node."""
    return [pod for pod in server.pods_on(name).values() if not pod.is_terminal]


def sum_requests(pods: Iterable[Pod]) -> Amounts:
    """What they hold of the node together, with one of `pods` each."""
    total: Amounts = {PODS: 0}
    for pod in pods:
        total[PODS] += 1
        claim = pod.status.extended_resource_claim_status
        by_devices = {m.resource_name for m in claim.request_mappings} if claim is not None else ()
        taken = pod.status.node_allocatable_resource_claim_statuses or ()
        for name, amount in amounts(pod_requests(pod, use_status=True, claimed=taken)).items():
            if name not in by_devices:
                total[name] = total.get(name, 0) + amount
    return total


def describe_shortage(node: Node, pods: Iterable[Pod]) -> str:
    """What the node has too little of for these, or ""."""
    room = node_room(node.status.allocatable)
    for name, amount in sum_requests(pods).items():
        if amount > room.get(name, 0):
            return f"{amount} of {name}, more than the {room.get(name, 0)} allocatable"
    return ""


def count_recent(times_ns: deque[int], now_ns: int, within_ns: int) -> int:
    """Adds this moment to the times, drops those that are longer ago, and returns how many are
    left."""
    times_ns.append(now_ns)
    while now_ns - times_ns[0] > within_ns:
        times_ns.popleft()
    return len(times_ns)
