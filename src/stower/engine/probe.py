"""Where a pod would go if it came now, and who would make way. Changes nothing."""

from stower.engine.step import Engine
from stower.model.kinds import Pod


def would_go(engine: Engine, pod: Pod) -> tuple[str, list[str]] | None:
    """The node, and who leaves it; None where it would wait, or no profile knows it."""
    profile = engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return None
    with engine.state.trial():
        entry = engine.state.add_pending(pod)
        row, leaving = engine.giving_way.choose(profile, entry)
    return (engine.state.names[row], [e.pod.key for e in leaving]) if row >= 0 else None
