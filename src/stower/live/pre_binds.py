"""Knows the pods that another scheduler has decided about and not bound yet: they wait for volumes
or devices in PreBind, where its cache already counts them on their node.

The decision shows in the pod's nominatedNodeName (KEP-5278), where no reason comes with it as after
a preemption, or in the annotation of a claim with the selected node. Events are changed so that the
engine counts the pod on that node, until it is bound there or its binding has failed.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from stower.engine.engine import Engine
from stower.framework.events import Event, Listed, Observed, WatchType
from stower.model.kinds import ApiObject, PersistentVolumeClaim, Pod
from stower.state.volumes import claims_of

POD_SCHEDULED: Final = "PodScheduled"


class _PreBind(NamedTuple):
    """The node that was chosen, whether the pod names it, and what the pod said then."""

    node_name: str
    is_nominated: bool
    condition: tuple[str, str]


class Decided(NamedTuple):
    """A pod of the engine, and the node that the other scheduler has just chosen for it."""

    pod: Pod
    node_name: str


class PreBinds:
    """All such pods, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, _PreBind] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def find_decision(self, engine: Engine, event: Observed) -> Decided | None:
        """Returns the decision that an event shows, if it is one before the binding; from then on
        the pod counts."""
        if event.type is WatchType.DELETED:
            return None
        if isinstance(event.object, Pod):
            return self._find_in_pod(engine, event.object)
        if isinstance(event.object, PersistentVolumeClaim):
            return self._find_in_claim(engine, event.object)
        return None

    def _find_in_pod(self, engine: Engine, pod: Pod) -> Decided | None:
        entry = engine.state.pods.get(pod.metadata.uid)
        node_name = pod.status.nominated_node_name
        if entry is None or entry.row >= 0 or pod.spec.node_name or not node_name:
            return None
        if pod.metadata.deletion_timestamp is not None or entry.uid in self._pods:
            return None
        before = entry.pod
        if before.status.nominated_node_name or _condition(before) != _condition(pod):
            return None  # as before, or pods are preempted: perhaps once more, for the same reason
        return self._add(pod, node_name, is_nominated=True)

    def _find_in_claim(self, engine: Engine, claim: PersistentVolumeClaim) -> Decided | None:
        node_name, known = claim.selected_node, engine.state.volumes.claim(claim.key)
        if not node_name or claim.spec.volume_name or known is None:
            return None
        if known.selected_node == node_name:
            return None
        users = [pod for pod in _pending_pods(engine, claim) if pod.metadata.uid not in self._pods]
        if len(users) > 1:  # the claim does not say which of them it was
            users = [pod for pod in users if pod.status.nominated_node_name == node_name]
        return self._add(users[0], node_name, is_nominated=False) if len(users) == 1 else None

    def _add(self, pod: Pod, node_name: str, is_nominated: bool) -> Decided:
        self._pods[pod.metadata.uid] = _PreBind(node_name, is_nominated, _condition(pod))
        return Decided(pod, node_name)

    def undo(self, engine: Engine, event: Event) -> Iterator[Event]:
        """Yields what the engine observes before an event which shows that the pod was not bound to
        the node that was chosen: there it is pending again."""
        if not isinstance(event, Observed) or not isinstance(event.object, Pod):
            return
        pod, pre_bind = event.object, self._pods.get(event.object.metadata.uid)
        entry = engine.state.pods.get(pod.metadata.uid)
        if pre_bind is None or entry is None or event.type is WatchType.DELETED:
            return
        if pod.spec.node_name:
            is_undone = pod.spec.node_name != pre_bind.node_name
        else:
            is_undone = _has_failed(pod, pre_bind)
        if is_undone:
            del self._pods[pod.metadata.uid]
            # It ends on that node; a uid that was deleted would never come again.
            ended = msgspec.structs.replace(entry.pod.status, phase="Failed")
            yield Observed(WatchType.MODIFIED, msgspec.structs.replace(entry.pod, status=ended))
            yield Observed(WatchType.ADDED, _on_node(entry.pod, ""))

    def events(self, event: Event, decided: Decided | None) -> Iterator[Event]:
        """Yields what the engine observes instead of an event in which a decision was found, or
        none."""
        if isinstance(event, Listed):
            yield Listed(tuple(self._listed(event)))
        elif not isinstance(event, Observed) or not isinstance(event.object, Pod):
            yield event
            if decided is not None:
                yield Observed(WatchType.MODIFIED, _on_node(decided.pod, decided.node_name))
        else:
            pod, pre_bind = event.object, self._pods.get(event.object.metadata.uid)
            is_over = event.type is WatchType.DELETED or pod.is_terminal or pod.spec.node_name
            if pre_bind is not None and is_over:
                del self._pods[pod.metadata.uid]
            elif pre_bind is not None:
                event = Observed(event.type, _on_node(pod, pre_bind.node_name))
            yield event

    def _listed(self, event: Listed) -> Iterator[ApiObject]:
        seen = set()
        for obj in event.objects:
            pre_bind = self._pods.get(obj.metadata.uid) if isinstance(obj, Pod) else None
            if pre_bind is None:
                yield obj
                continue
            assert isinstance(obj, Pod)
            if obj.spec.node_name or _has_failed(obj, pre_bind):
                yield obj
            else:
                seen.add(obj.metadata.uid)
                yield _on_node(obj, pre_bind.node_name)
        self._pods = {uid: one for uid, one in self._pods.items() if uid in seen}


def _pending_pods(engine: Engine, claim: PersistentVolumeClaim) -> Iterator[Pod]:
    """Yields the pods without a node that use a claim."""
    for queued in engine.queue.pods():
        pod = queued.entry.pod
        if queued.entry.row < 0 and pod.metadata.namespace == claim.metadata.namespace:
            if any(name == claim.metadata.name for name, _ in claims_of(pod)):
                yield pod


def _condition(pod: Pod) -> tuple[str, str]:
    condition = pod.condition(POD_SCHEDULED)
    return (condition.reason, condition.message) if condition is not None else ("", "")


def _has_failed(pod: Pod, pre_bind: _PreBind) -> bool:
    is_taken_back = pre_bind.is_nominated and pod.status.nominated_node_name != pre_bind.node_name
    return is_taken_back or _condition(pod) != pre_bind.condition


def _on_node(pod: Pod, node_name: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node_name)
    return msgspec.structs.replace(pod, spec=spec)
