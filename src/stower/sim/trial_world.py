"""A world in which questions about room are tried, with the last decision for each pod."""

from collections.abc import Iterable

import msgspec

from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.framework.events import WatchType
from stower.model.kinds import Pod
from stower.sim.untried import untried_reason
from stower.sim.world import AnyClaim, World


class UnplacedPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that waits for a node, and why."""

    pod: str
    why: str


class TrialWorld:
    """A world without evictions, and what the last attempt for each pod came to, by uid."""

    def __init__(self, engine: Engine) -> None:
        self.last: dict[str, Decision] = {}
        self.world = World(engine, lambda decision: self.last.update({decision.uid: decision}))

    def add(self, pod: Pod, claims: Iterable[AnyClaim]) -> Decision | None:
        """Adds a pod, with claims of its own; returns the decision, None where it was not tried."""
        for claim in claims:
            self.world.apply_change(WatchType.ADDED, claim)
        self.world.add_pod(pod)
        return self.last.get(pod.metadata.uid)

    def settle(self) -> None:
        """Lets time pass until pods that were refused have been tried again."""
        self.world.settle()
        self.world.advance(self.world.now_ns + 2 * self.world.engine.limits.backoff_max_ns)

    def reason(self, pod: Pod) -> str:
        """Returns why a pod waits, without what preemption came to: it was out of the question."""
        decision = self.last.get(pod.metadata.uid)
        if decision is None:
            return untried_reason(self.world.engine, pod)
        return decision.message if decision.diagnosis is None else decision.diagnosis.message()
