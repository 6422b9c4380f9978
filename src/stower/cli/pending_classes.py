"""Classifies pending pods of a cluster: never, blocked, waiting or ready."""

from pathlib import Path
from typing import Any

from stower.cli.cluster_inputs import cluster_of
from stower.cli.engine_inputs import informed_engine
from stower.cli.output import progress
from stower.engine.explain.probe import explain_pod


def classify(
    waiting: list[dict[str, Any]],
    config: Path | None,
    kubeconfig: Path | None,
    context: str,
    state: Path,
) -> None:
    """Gives each pod the class of its explanation, and why it is of that class."""
    engine, pods = informed_engine(cluster_of(None, kubeconfig, context, state).workload, config)
    by_key = {pod.key: pod for pod in pods}
    with progress("classes") as update:
        for done, entry in enumerate(waiting, 1):
            if (pod := by_key.get(entry["pod"])) is not None:
                found = explain_pod(engine, pod, has_changes=False)
                entry |= {"class": str(found.class_), "because": found.because}
            if update is not None:
                update(done, len(waiting))
