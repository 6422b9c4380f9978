"""Questions about a pod to an engine as it stands: where it would go, and why. Change nothing."""

from stower.engine.engine import Engine
from stower.engine.explain.explanation import Explanation, explain
from stower.model.kinds import Pod


def would_go(engine: Engine, pod: Pod) -> tuple[str, list[str]] | None:
    """The node, and who leaves it; None where it would wait, or no profile knows it."""
    profile = engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return None
    with engine.state.trial():
        entry = engine.state.add_pending(pod)
        row, leaving = engine.attempts.displacement.choose(profile, entry)
    return (engine.state.node_names[row], [e.pod.key for e in leaving]) if row >= 0 else None


def learn(engine: Engine) -> None:
    """Have all plugins look at what there is, as they do before pods are tried."""
    for profile in engine.profiles.values():
        for plugin in profile.plugins.values():
            plugin.observe_new_pods(engine.state)


def explained(engine: Engine, pod: Pod) -> Explanation:
    """All there is to say of a pod, as the engine stands."""
    trees = engine.tree_attempts
    why_waiting = trees.why_waiting if trees is not None else lambda tree: tree.waits_for
    return explain(pod, engine.state, engine.cycle, engine.queue, engine.profiles, why_waiting)
