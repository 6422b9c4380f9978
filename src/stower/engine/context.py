"""The context that all parts of one engine share. Must not know any of these parts."""

from collections.abc import Mapping

from stower.engine.internal_errors import InternalErrors
from stower.engine.limits import Limits
from stower.engine.outbox import Outbox
from stower.engine.status_reporter import StatusReporter
from stower.framework.profile import Profile
from stower.framework.stopwatch import Stopwatch
from stower.state.cluster import ClusterState


class Context:
    """The state, whose `now_ns` is the engine's clock, profiles by scheduler name, limits, the
    outbox, the status reporter and the internal errors. `is_applying`: whether the current attempt
    has begun to apply its result."""

    __slots__ = ("errors", "is_applying", "limits", "outbox", "profiles", "reporter", "state")

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        limits: Limits,
        stopwatch: Stopwatch,
    ) -> None:
        self.state = state
        self.profiles = dict(profiles)
        self.limits = limits
        self.outbox = Outbox()
        self.reporter = StatusReporter(state, limits, self.outbox, stopwatch)
        self.errors = InternalErrors()
        self.is_applying = False
