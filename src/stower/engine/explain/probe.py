"""A dry run of the scheduling cycle: finds where the engine would place a pod on its current state,
with the scores and the rejections of each node. Changes nothing. For `stower explain`,
`stower warm` and the dashboard."""

from typing import Final

from stower.engine.engine import Engine
from stower.engine.explain.explanation import Explanation, explain
from stower.engine.explain.group_explanation import GroupExplanation, explain_group
from stower.framework.explanation import ExplanationClass
from stower.model.kinds import Pod
from stower.state.groups import GroupKey

# Of verdicts that say all that there is to say.
VERDICT_TEXTS: Final = {"fits": "gets a node at its next attempt", "leaving": "is being deleted"}


def choose_node_for(engine: Engine, pod: Pod) -> tuple[str, list[str]] | None:
    """Returns the pod's node and the keys of displaced pods; None where it would wait, or where no
    profile schedules it."""
    profile = engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return None
    try:
        with engine.state.trial():
            entry = engine.state.add_pending(pod)
            row, leaving = engine.attempts.displacement.choose(profile, entry)
    except Exception as error:
        engine.on_explanation_error(pod.key, error)
        return None
    return (engine.state.node_names[row], [e.pod.key for e in leaving]) if row >= 0 else None


def observe_new_pods(engine: Engine) -> None:
    """Has all plugins observe new pods, as they do before an attempt."""
    for profile in engine.profiles.values():
        for plugin in profile.plugins.values():
            plugin.observe_new_pods(engine.state)


def explain_tree(engine: Engine, kind: str, key: str) -> GroupExplanation | None:
    """Returns the explanation of a group and its tree; None where there is no such group. kind:
    PodGroup, CompositePodGroup, or "" for either."""
    attempts = engine.tree_attempts
    if attempts is None:
        return None
    for is_composite in (False, True):
        if kind in ("", "CompositePodGroup" if is_composite else "PodGroup"):
            which = GroupKey(is_composite, key)
            found = explain_group(engine.state, attempts, which)
            if found is not None:
                return found
    return None


def classify_pod(engine: Engine, pod: Pod) -> tuple[ExplanationClass, str]:
    """Returns the class of a pod, and why it is so, in words."""
    found = explain_pod(engine, pod, has_changes=False)
    if found.verdict == "gated" and not found.because:
        return found.class_, f"waits for scheduling gates to be removed: {', '.join(found.gates)}"
    text = found.because or found.message or VERDICT_TEXTS.get(found.verdict, found.verdict)
    return found.class_, text


def explain_pod(engine: Engine, pod: Pod, has_changes: bool = True) -> Explanation:
    """Returns the explanation of a pod on the engine's current state; the verdict is "failed" where
    the engine fails on it. `has_changes`: whether to search for changes that would help."""
    trees = engine.tree_attempts
    why_waiting = trees.waiting_reason if trees is not None else lambda tree: tree.waits_for
    try:
        return explain(
            pod, engine.state, engine.cycle, engine.queue, engine.profiles, why_waiting, has_changes
        )
    except Exception as error:
        message = engine.on_explanation_error(pod.key, error)
        return Explanation(pod.key, "failed", message=message, nodes=engine.state.node_count)
