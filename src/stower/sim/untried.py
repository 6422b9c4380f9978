"""Says why a pod that waits was not tried by the scheduler."""

from stower.engine.engine import Engine
from stower.model.kinds import Pod

NOT_TRIED = "not tried"


def untried_reason(engine: Engine, pod: Pod) -> str:
    """Returns what keeps a pod from being tried: its scheduler, its deletion, gates, its group, or
    a plugin (PreEnqueue)."""
    profile = engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return f"no profile for scheduler {pod.spec.scheduler_name!r}"
    if pod.metadata.deletion_timestamp:
        return "being deleted"
    if waits := engine.queue.tree_waiting_reason(pod.metadata.uid):
        return waits
    if pod.spec.scheduling_gates:
        return "waiting for scheduling gates"
    for plugin in profile.pre_enqueue:
        if (rejection := plugin.pre_enqueue(pod)) is not None:
            return rejection.message
    return NOT_TRIED
