"""DaemonSet controller: keeps one pod on every node that fits it.

Source: pkg/controller/daemon.
"""

from typing import Final

import msgspec

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.creation_pace import CreationPace
from stower.controllers.daemon_pods import (
    build_pod,
    generation_of,
    is_updated,
    make_fits,
    node_of,
    placement_fields,
)
from stower.controllers.daemon_rollout import Rollout
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.history import KIND, RevisionHistory, number_of, snapshot
from stower.controllers.objects import (
    Object,
    ObjectStore,
    age,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import (
    REVISION_HASH,
    absolute,
    count_available,
    is_available,
    is_finished,
    is_outdated,
    is_ready,
    min_ready_s,
    phase,
)
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.times import SECOND_NS

BURST: Final = 250  # pods that are made, and deleted, at one turn (BurstReplicas)
HISTORY_LIMIT: Final = 10  # where the server sets none (SetDefaults_DaemonSet)
# How long failed pods of a node stay before they are made anew (failedPodsBackoff of
# kube-controller-manager's startDaemonSetController).
FAILED_NS: Final = SECOND_NS
FAILED_NS_MAX: Final = 900 * SECOND_NS
FAILED_MAX: Final = 10_000  # nodes and sets that are remembered


class _Turn(msgspec.Struct, gc=False):
    """A set as it is at one turn."""

    obj: Object
    todo: ReconcileResult
    hashed: str  # of its revision
    fits: dict[str, tuple[bool, bool]]  # of each node: a pod may start there, may stay there
    on: dict[str, list[Object]]  # pods by node
    delete: list[Object] = []
    create: list[str] = []

    def is_available(self, pod: Object) -> bool:
        """Ready for minReadySeconds."""
        return is_available(pod, min_ready_s(self.obj), self.todo.now_ns)[0]

    def is_updated(self, pod: Object) -> bool:
        """Of the template as it is."""
        return is_updated(pod, self.hashed, generation_of(self.obj))


class DaemonSetController(OwnerController):
    """One DaemonSet is one key."""

    name = "daemonset-controller"
    kinds = ("daemonsets", "pods", "nodes", KIND)
    own = "daemonsets"
    reported_kinds = ("pods",)

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)
        self._adoption = ControllerRefManager(self.own, "pods", finished=True)
        self._history = RevisionHistory(self.own)
        self._pace = CreationPace(BURST)
        self._failed: dict[tuple[str, int, str], tuple[int, int]] = {}  # pause, since when

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """A node concerns all, but only with what a pod may ask of it."""
        if kind == "nodes":
            if old not in (None, obj) and placement_fields(old or {}) == placement_fields(obj):
                return ()
            return tuple(key_of(one) for one in seen.all("daemonsets"))
        more = (
            *self._adoption.keys(seen, kind, old, obj),
            *self._history.keys(seen, kind, old, obj),
        )
        if kind == KIND and old is None and owner_of(obj) is not None:
            return more  # made a moment ago, for us
        return (*super().keys(seen, kind, old, obj), *more)

    def forget(self, key: str) -> None:
        """The set is gone."""
        self._pace.forget(key)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """A pod for each node, none elsewhere, one step of an update, and the status."""
        if is_ending(obj):
            return
        owned, revisions = seen.list_owned(uid_of(obj), "pods"), seen.list_owned(uid_of(obj), KIND)
        adopts = self._history.adoption.settle(seen, obj, revisions, todo)
        if self._adoption.settle(seen, obj, owned, todo) or adopts:
            return  # counted when that is done
        pods = [pod for pod in owned if self._adoption.matches(obj, pod)]
        revisions = self._history.list(seen, obj)
        current = self._find_current(seen, obj, revisions, pods, todo)
        if current is None:
            return
        on: dict[str, list[Object]] = {}
        for pod in sorted(pods, key=_rank):
            if node_of(pod) and not (is_finished(pod) and is_ending(pod)):
                on.setdefault(node_of(pod), []).append(pod)
        hashed = str((current["metadata"].get("labels") or {}).get(REVISION_HASH) or "")
        fits = make_fits(obj)
        fitting = {name_of(node): fits(node) for node in seen.all("nodes")}
        turn = _Turn(obj, todo, hashed, fitting, on)
        self._manage(turn)
        if not turn.create and not turn.delete:
            self._update(turn)
        self._carry_out(turn)
        self._clean_up(obj, [r for r in revisions if r is not current], pods, todo)
        self._status(turn)

    # Revisions

    def _find_current(
        self,
        seen: ObjectStore,
        obj: Object,
        revisions: list[Object],
        pods: list[Object],
        todo: ReconcileResult,
    ) -> Object | None:
        """The revision of the template; None: once what is missing is written."""
        unnamed = [r for r in revisions if REVISION_HASH not in (r["metadata"].get("labels") or {})]
        for revision in unnamed:
            labels = {REVISION_HASH: name_of(revision)}
            todo.patch(KIND, revision, {"metadata": {"labels": labels}})
        if unnamed:
            return None
        data = snapshot(obj)
        equal = [r for r in revisions if r.get("data") == data]
        number = 1 + max((number_of(r) for r in revisions if r not in equal), default=0)
        if not equal:
            return self._history.create(seen, obj, number, todo)
        current = equal[-1]
        if len(equal) > 1:
            labels = {REVISION_HASH: current["metadata"]["labels"][REVISION_HASH]}
            for pod in pods:
                if not labels.items() <= pod["metadata"].get("labels", {}).items():
                    todo.patch("pods", pod, {"metadata": {"labels": labels}})
            for revision in equal[:-1]:
                todo.delete(KIND, revision)
            return None
        if number_of(current) < number:
            self._history.renumber(current, number, todo)
            return None
        return current

    def _clean_up(
        self, obj: Object, old: list[Object], pods: list[Object], todo: ReconcileResult
    ) -> None:
        """Delete the oldest revisions beyond the limit, but none that a pod is of."""
        live = {(pod["metadata"].get("labels") or {}).get(REVISION_HASH) for pod in pods}
        surplus = len(old) - obj["spec"].get("revisionHistoryLimit", HISTORY_LIMIT)
        unused = [r for r in old if r["metadata"]["labels"][REVISION_HASH] not in live]
        for revision in unused[: max(0, surplus)]:
            if not is_ending(revision):
                todo.delete(KIND, revision)

    # Pods

    def _manage(self, turn: _Turn) -> None:
        """Where pods are missing, and which are too many, misplaced or have ended."""
        for name, (may_start, may_stay) in turn.fits.items():
            pods = turn.on.get(name)
            if may_start and pods is None:
                turn.create.append(name)
            elif may_stay:
                running = self._end_finished(turn, name)
                if _surge_max(turn.obj, 1):
                    self._thin_out_surge(turn, name, running, may_start)
                else:
                    turn.delete += running[1:]
            else:
                turn.delete += [pod for pod in pods or () if not is_ending(pod)]
        for name, pods in turn.on.items():
            if name not in turn.fits:  # no node, no kubelet, and the scheduler binds nothing there
                unbound = [pod for pod in pods if not pod["spec"].get("nodeName")]
                turn.delete += [pod for pod in unbound if not is_ending(pod)]

    def _end_finished(self, turn: _Turn, node: str) -> list[Object]:
        """The node's pods that run, or will, the oldest first; those that have ended are to go."""
        running = []
        for pod in turn.on.get(node, ()):
            if is_ending(pod):
                continue
            if not is_finished(pod):
                running.append(pod)
                continue
            failed = phase(pod) == "Failed"
            if failed and not self._may_retry(turn, node):
                continue
            verb = "kill" if failed else "delete"
            text = (f"Found {phase(pod).lower()} daemon pod {namespace_of(pod)}/{name_of(pod)} on "
                    f"node {node}, will try to {verb} it")  # fmt: skip
            self._events.record(
                turn.todo, self.own, turn.obj, "Warning" if failed else "Normal",
                f"{phase(pod)}DaemonPod", text,
            )  # fmt: skip
            turn.delete.append(pod)
        return running

    def _may_retry(self, turn: _Turn, node: str) -> bool:
        """Whether a failed pod may be made anew; each time it takes longer."""
        observed = (turn.obj.get("status") or {}).get("observedGeneration") or 0
        key, now_ns = (uid_of(turn.obj), observed, node), turn.todo.now_ns
        pause_ns, since_ns = self._failed.pop(key, (0, 0))
        if now_ns - since_ns > 2 * FAILED_NS_MAX:
            pause_ns = 0
        if now_ns - since_ns < pause_ns:
            self._failed[key] = pause_ns, since_ns
            turn.todo.requeue_at(since_ns + pause_ns)
            return False
        self._failed[key] = min(2 * pause_ns or FAILED_NS, FAILED_NS_MAX), now_ns
        while len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        return True

    def _thin_out_surge(
        self, turn: _Turn, node: str, running: list[Object], may_start: bool
    ) -> None:
        """With maxSurge there may be two: a new one that is not ready and an old one that is."""
        if not running and may_start:
            turn.create.append(node)
        if len(running) <= 1:
            return
        labels = [(pod["metadata"].get("labels") or {}).get(REVISION_HASH) for pod in running]
        new = [p for p, label in zip(running, labels, strict=True) if label == turn.hashed]
        old = [p for p, label in zip(running, labels, strict=True) if label != turn.hashed]
        turn.delete += [*new[1:], *old[1:]]
        if new and old and (not is_ready(old[0]) or turn.is_available(new[0])):
            turn.delete.append(old[0])

    def _update(self, turn: _Turn) -> None:
        """One step of a rolling update."""
        if (turn.obj["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        starts = [name for name, (may_start, _) in turn.fits.items() if may_start]
        on = {**turn.on, **{name: [] for name in starts if name not in turn.on}}
        rollout = Rollout(on, turn.is_updated, turn.is_available)
        surge = _surge_max(turn.obj, len(starts))
        rolling = (turn.obj["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        unavailable = absolute(rolling.get("maxUnavailable", 0), len(starts), True)
        if surge:
            rollout.surge(surge, len(starts), set(starts).__contains__)
        else:
            rollout.replace(max(1, unavailable) if starts else unavailable)
        turn.delete += rollout.delete
        turn.create += rollout.create

    def _carry_out(self, turn: _Turn) -> None:
        for pod in turn.delete[:BURST]:
            turn.todo.delete("pods", pod)
        for node in turn.create[: self._pace.allowed(key_of(turn.obj), len(turn.create))]:
            turn.todo.create("pods", build_pod(turn.obj, node, turn.hashed))

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each pod that was created or deleted, or could not be."""
        obj = seen.get(self.own, key)
        if obj is None or not answer.is_notable:
            return
        self._events.record_pod_write(todo, self.own, obj, answer)
        if answer.method == "POST" and not answer.is_good:
            self._pace.refuse(key)

    # Status

    def _status(self, turn: _Turn) -> None:
        obj, todo = turn.obj, turn.todo
        wanted, misplaced = 0, 0
        first: list[Object] = []  # the pod that counts of each node that should have one
        for name, (may_start, _) in turn.fits.items():
            pods = turn.on.get(name)
            if may_start:
                wanted += 1
                first += (pods or ())[:1]
            else:
                misplaced += bool(pods)
        ready = [pod for pod in first if is_ready(pod)]
        available = count_available(ready, obj, todo)
        status = {
            "desiredNumberScheduled": wanted,
            "currentNumberScheduled": len(first),
            "numberMisscheduled": misplaced,
            "numberReady": len(ready),
            "numberAvailable": available,
            "numberUnavailable": wanted - available,
            "updatedNumberScheduled": sum(map(turn.is_updated, first)),
            "observedGeneration": obj["metadata"].get("generation", 0),
        }
        known = obj.get("status") or {}
        if is_outdated({k: known.get(k, 0) for k in status}, status) or (
            "desiredNumberScheduled" not in known
        ):
            todo.patch("daemonsets", obj, {"status": status}, "status")


def _surge_max(obj: Object, wanted: int) -> int:
    """How many pods there may be besides the old ones."""
    strategy = obj["spec"].get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return 0
    return absolute((strategy.get("rollingUpdate") or {}).get("maxSurge", 0), wanted, True)


def _rank(pod: Object) -> tuple[bool, str, str]:
    """Those that are bound first, then the oldest (podByCreationTimestampAndPhase)."""
    return not pod["spec"].get("nodeName"), *age(pod)
