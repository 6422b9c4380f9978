"""A workload: the initial cluster, pods with arrival and end times, other changes of objects."""

from typing import Final

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import ApiObject, Background, Node, Pod

# Annotations of a pod, in seconds: when it comes, since the beginning; for how long it runs.
ARRIVES: Final = "stower.dev/arrives-seconds"
RUN: Final = "stower.dev/run-seconds"


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A pod that is created, and when; `ends_ns` is when it is gone again, None for never;
    `lasts_ns`: it ends so long after it was placed, whenever that is."""

    pod: Pod
    at_ns: int = 0
    ends_ns: int | None = None
    lasts_ns: int | None = None


class ObjectChange(msgspec.Struct, frozen=True, gc=False):
    """Something else that comes, changes or goes. A pod here is nobody's arrival, or one that was
    changed by others: its labels and spec count, not where it is."""

    at_ns: int
    type: WatchType
    object: ApiObject


class Workload(msgspec.Struct, frozen=True):
    """Nodes, pods that run already, and arrivals in order.

    `at_once`: the arrivals are all pending at the start, so that the queue orders them by priority;
    otherwise they come one after another.
    """

    nodes: tuple[Node, ...]
    placed: tuple[Pod, ...]
    arrivals: tuple[Arrival, ...]
    at_once: bool = True
    # Whatever else decisions depend on: namespaces, services, controllers, budgets, volumes.
    related: tuple[Background, ...] = ()
    # What happens meanwhile, in order.
    happened: tuple[ObjectChange, ...] = ()
    # Of a recording: everything has its own time.
    is_history: bool = False
    # Of pods that run already, by uid: how long one lasts that has to be placed anew.
    lasts_ns: dict[str, int] = {}
    # Keys of the ResourceClaimTemplates; None where they are not known.
    template_keys: frozenset[str] | None = None
