"""A workload: the cluster at the start, and the pods that come and go."""

import msgspec

from stower.model.kinds import Background, Node, Pod


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A pod that is created, and when; `ends_ns` is when it is gone again, None for never."""

    pod: Pod
    at_ns: int = 0
    ends_ns: int | None = None


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
