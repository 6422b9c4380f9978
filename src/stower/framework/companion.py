"""Companion: the part of a plugin that runs in addition to scheduling, with its own state and
writes.

The engine hands a companion every object, collects its writes at every step, and returns the
answers to them. A companion derives its state from API objects alone, so that a restart loses
nothing. Must not know what any companion does.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from stower.framework.cluster_events import ClusterEvent
from stower.framework.explanation import ExplanationClass
from stower.framework.writes import Write
from stower.model.kinds import ApiObject, Pod
from stower.state.pod_entry import PodEntry

MetricKind = Literal["counter", "gauge", "histogram", "unknown"]


class Sample(NamedTuple):
    """One value of a metric. `name`: the metric's name with the suffix of its kind (for a counter,
    _total)."""

    name: str
    labels: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """A metric in Prometheus' terms. `name`: for a counter, without _total; `help`: what the metric
    counts or measures."""

    name: str
    kind: MetricKind
    help: str
    samples: list[Sample]


class TrialScheduler(Protocol):
    """Predicts the engine's decision for a pod. A companion calls it within a trial of the state;
    the prediction is for the state as the trial has changed it."""

    def select_row(self, entry: PodEntry) -> int:
        """Returns the row on which the engine would place the pod, -1 for none."""

    def fits(self, entry: PodEntry, row: int) -> bool:
        """Returns whether the pod fits on this row."""

    def classify(self, pod: Pod) -> tuple[ExplanationClass, str] | None:
        """Returns the class of the pod's explanation, and why it is so; None where no profile
        schedules the pod. Needs no trial."""


EntityFailed = Callable[[ApiObject | str, Exception], None]


@runtime_checkable
class EntityGuard(Protocol):
    """A companion that contains what is raised while it deals with one of its entities: the others
    have their turn, and the entity is dealt with again in a later turn."""

    entity_failed: EntityFailed
    """Reports an error on the entity's object. An entity without an object is named by its key.
    Set by the engine."""


def raise_error(about: ApiObject | str, error: Exception) -> None:
    """The `entity_failed` of a companion without an engine: raises the error."""
    raise error


class Companion(Protocol):
    """The companion of one plugin; an engine has one instance for each such plugin."""

    def attach(self, trial_scheduler: TrialScheduler) -> None:
        """Takes the scheduler for trials. Called once, when the engine is built."""

    def on_object(self, obj: ApiObject, is_deleted: bool, now_ns: int) -> None:
        """Takes an object that was added, changed or deleted."""

    def on_list(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """Takes the list of all objects: an object that is not in the list does not exist."""

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """Returns the writes that are due. `is_held`: work in progress continues, and no new work
        begins."""

    def take_cluster_events(self) -> list[ClusterEvent]:
        """Returns the changes since the last call that the companion has found, as events that may
        help waiting pods."""

    def take_pods_to_activate(self) -> list[tuple[str, str]]:
        """Returns the uids of pods that an event since the last call may help, each with the filter
        plugin whose refusal it may lift, "" for any. The engine activates these pods in this order,
        whatever is left of their backoff: those in backoff, and those that the filter refused."""

    def on_answer(self, id: int, code: int, message: str, now_ns: int) -> None:
        """Takes the answer to a write: `code` 0 where the write was carried out, else the HTTP
        status."""

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the companion has to run even if no event arrives before; None for
        never."""

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """Returns the log lines since the last call: level (info, warn, error), text, and the
        object that the line is about."""

    def metrics(self) -> list[Metric]:
        """Returns the companion's metrics: counts since the start, and current values."""

    @property
    def is_idle(self) -> bool:
        """Whether no work is in progress, and API objects show the companion's whole state."""

    def on_request(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """Takes the HTTP request of an agent (AgentAsked). Returns whether this companion answers
        it, by an AgentAnswer of the same id."""
