"""Law `assumptions`: an assumed pod is bound or forgotten within 2 minutes."""

from typing import Final

from stower.model.kinds import PersistentVolumeClaim, Pod
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.state.volumes import claims_of

# The longest that a bind of which nobody knows is sent again and again, and some.
RESOLVED_NS: Final = 120 * SECOND_NS


class Assumptions(Checker):
    """Looks at the pods that hold room on a node and were not seen there."""

    law = "assumptions"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._since: dict[tuple[str, int, str], int] = {}

    def check(self) -> None:
        """Each that was assumed already when it was looked at last."""
        now_ns = self.court.agenda.now_ns
        found = {}
        for process in self.court.schedulers:
            if process.engine is None or process.is_frozen:
                continue
            for uid, entry in process.engine.state.pods.items():
                if not entry.is_assumed:
                    continue
                team = [other.entry.pod for other in process.engine.binding.permit.members(uid)]
                if not any(self._awaits_volumes(pod) for pod in team or [entry.pod]):
                    key = (process.name, process.lives, uid)
                    found[key] = self._since.get(key, now_ns)
                    if now_ns - found[key] > RESOLVED_NS:
                        lasts = (now_ns - found[key]) // SECOND_NS
                        raise self.violation(
                            f"pod {entry.pod.key} has been assumed for {lasts} s, want at most "
                            f"{RESOLVED_NS // SECOND_NS} s"
                        )
        self._since = found

    def _awaits_volumes(self, pod: Pod) -> bool:
        """Whether a claim of it has no volume yet: until then neither it nor a pod that is bound
        together with it is to be bound."""
        keys = (f"{pod.metadata.namespace}/{name}" for name, _ in claims_of(pod))
        claims = (self.court.server.get(PersistentVolumeClaim, key) for key in keys)
        return any(claim is not None and not claim.is_bound for claim in claims)
