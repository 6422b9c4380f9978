"""Law `overlooked`: no pod waits for an event although a node has room for it."""

from stower.engine.engine import Engine
from stower.engine.queue.entities import Place
from stower.framework.plugin_guard import PluginError
from stower.plugins.inter_pod_affinity import InterPodAffinity
from stower.plugins.negotiated_resources import NegotiatedResources
from stower.sim.checkers.checker import Checker


class MissedRoom(Checker):
    """Asks the engine that leads, of pods that only an event would have tried again."""

    law = "overlooked"

    def check(self) -> None:
        """By what the engine itself knows."""
        for process in self.court.schedulers:
            engine = process.engine
            if engine is None or not engine.is_settled or _is_anyone_leaving(engine):
                continue
            for pod in self.court.server.pods_on("").values():
                queued = engine.queue.get(pod.metadata.uid)
                if queued is None or queued.place is not Place.UNSCHEDULABLE or queued.victims:
                    continue
                if NegotiatedResources.name in queued.refused_by:
                    continue  # it waits for drivers: see `negotiations`
                if InterPodAffinity.name in queued.refused_by:
                    # Who has lost his last companion is the first again, and may go anywhere; that
                    # an end may help so is no hint of upstream's, and he waits for the flush.
                    continue
                with engine.state.trial():
                    try:
                        row = engine.cycle.choose(queued.profile, queued.entry)
                    except PluginError:
                        continue
                if row >= 0:
                    where = engine.state.node_names[row]
                    raise self.violation(
                        f"pod {pod.key} would fit on node {where}, but is not retried"
                    )


def _is_anyone_leaving(engine: Engine) -> bool:
    """Pods that are being deleted do not count for the spread of others, and wake them once they
    are gone, as upstream."""
    pods = (entry.pod for entry in engine.state.pods.values())
    return any(pod.metadata.deletion_timestamp is not None for pod in pods)
