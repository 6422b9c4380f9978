"""Companions: what a plugin brings that goes on beside scheduling, with a state and writes.

It hears of every object, is asked for writes at every step, and is told what became of them; what
it knows it has from objects, so that a restart loses nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from stower.framework.cluster_events import ClusterEvent
from stower.framework.writes import Write
from stower.model.kinds import ApiObject
from stower.state.pod_entry import PodEntry

MetricKind = Literal["counter", "gauge", "histogram", "unknown"]


class Sample(NamedTuple):
    """One number of a metric; `name`: the metric's, with what its kind puts behind it."""

    name: str
    labels: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """What it counts or measures, in Prometheus' terms. `name`: of a counter, without _total."""

    name: str
    kind: MetricKind
    help: str
    samples: list[Sample]


class TrialScheduler(Protocol):
    """What would become of a pod: asked in a trial, about what is supposed there."""

    def select_row(self, entry: PodEntry) -> int:
        """The row that it would be given, -1 for none."""

    def fits(self, entry: PodEntry, row: int) -> bool:
        """Whether it may go to this row."""


class Companion(Protocol):
    """One of them."""

    def attach(self, placing: TrialScheduler) -> None:
        """The engine is made: whom to ask about pods."""

    def on_object(self, obj: ApiObject, is_deleted: bool, now_ns: int) -> None:
        """An object has come, changed or gone."""

    def on_list(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """These are all there are."""

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """What is due now. is_held: what has begun goes on, and nothing new begins."""

    def take_cluster_events(self) -> list[ClusterEvent]:
        """What it knows to have changed since it was asked last, for which pods may be waiting."""

    def take_pods_to_activate(self) -> list[str]:
        """Pods, by uid, that may have been waiting for what has happened since it was asked last,
        and are tried now, in this order, whatever they have to wait for after failures."""

    def on_answer(self, id: int, code: int, message: str, now_ns: int) -> bool:
        """A write was carried out (`code` 0), or not. Whether it was one of its own."""

    @property
    def next_wake_ns(self) -> int | None:
        """When something is due though nothing happens before."""

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """What is worth a line in a log since it was asked last: level (info, warn, error), text,
        and the object that it is about."""

    def metrics(self) -> list[Metric]:
        """What it has counted so far, and what it measures now."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and all that it knows is in the objects."""

    def on_request(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """Somebody asks for something. Whether it will be answered, by `AgentAnswer`."""
