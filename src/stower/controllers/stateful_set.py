"""StatefulSet controller: keeps pods with stable names, created and deleted one after the other.

A set scales before it updates. Its pods are made of its update revision, but of the current one
below the partition of a rolling update.

Source: pkg/controller/statefulset.
"""

from typing import Final

import msgspec

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.claim_retention import (
    has_other_controller,
    is_stale,
    policy_of,
    wanted_references,
)
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.history import KIND, RevisionHistory, number_of, snapshot, template_of
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import (
    absolute,
    count_available,
    is_available,
    is_finished,
    is_outdated,
    is_ready,
    min_ready_s,
    phase,
    replicas,
)
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.controllers.stateful_pods import (
    NAME_LABEL,
    build_claim,
    build_pod,
    claim_name,
    claim_templates,
    identity_labels,
    is_member,
    ordinal,
    pod_revision,
)
from stower.controllers.write_answers import WriteAnswer

CLAIMS: Final = "persistentvolumeclaims"
HISTORY_LIMIT: Final = 10  # where the server sets none (SetDefaults_StatefulSet)


class _Turn(msgspec.Struct, gc=False):
    """A set as it is at one turn."""

    seen: ObjectStore
    obj: Object
    todo: ReconcileResult
    current: Object  # revisions
    update: Object
    replicas: list[Object]  # by ordinal; those that are to be made have no uid
    surplus: list[Object]  # the last first

    @property
    def monotonic(self) -> bool:
        """One pod after the other."""
        return bool(self.obj["spec"].get("podManagementPolicy") != "Parallel")

    def is_unavailable(self, pod: Object) -> bool:
        """Not made, not ready for long enough, or being deleted."""
        return is_ending(pod) or not self.is_available(pod)

    def is_available(self, pod: Object) -> bool:
        """Ready for minReadySeconds."""
        return is_available(pod, min_ready_s(self.obj), self.todo.now_ns)[0]


class StatefulSetController(OwnerController):
    """One StatefulSet is one key."""

    name = "statefulset-controller"
    kinds = ("statefulsets", "pods", CLAIMS, KIND)
    own = "statefulsets"
    reported_kinds = ("pods", CLAIMS)

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)
        self._adoption = ControllerRefManager(self.own, "pods", is_member, finished=True)
        self._history = RevisionHistory(self.own)

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """The set, those that would adopt an object, and those whose claim it is."""
        more = (
            *self._adoption.keys(seen, kind, old, obj),
            *self._history.keys(seen, kind, old, obj),
        )
        if kind == CLAIMS:
            return tuple(
                key_of(owner)
                for owner in seen.list_namespace(self.own, namespace_of(obj))
                if any(
                    name_of(obj) == claim_name(template, owner, ordinal(obj))
                    for template in claim_templates(owner)
                )
            )
        if kind == KIND and old is None and owner_of(obj) is not None:
            return more  # made a moment ago, for us
        return (*super().keys(seen, kind, old, obj), *more)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step of scaling or of the update, and the status."""
        owned = seen.list_owned(uid_of(obj), "pods")
        revisions = self._history.list(seen, obj)
        if not is_ending(obj):
            adopts = self._history.adoption.settle(seen, obj, revisions, todo)
            if self._adoption.settle(seen, obj, owned, todo) or adopts:
                return  # counted when that is done
        pods = [pod for pod in owned if self._adoption.matches(obj, pod)]
        update = self._find_update(seen, obj, revisions, todo)
        if update is None:
            return
        known = (obj.get("status") or {}).get("currentRevision")
        current = next((r for r in revisions if name_of(r) == known), update)
        turn = _make_turn(seen, obj, todo, current, update, pods)
        if not is_ending(obj):
            self._scale(turn)
            live = {name_of(current), name_of(update), *map(pod_revision, pods)}
            limit = obj["spec"].get("revisionHistoryLimit", HISTORY_LIMIT)
            self._history.truncate(revisions, live, limit, todo)
        self._status(turn, pods)

    def _find_update(
        self, seen: ObjectStore, obj: Object, revisions: list[Object], todo: ReconcileResult
    ) -> Object | None:
        """The revision of the template; None: once it is written."""
        data = snapshot(obj)
        equal = [r for r in revisions if r.get("data") == data]
        if equal and revisions[-1].get("data") == data:
            return revisions[-1]
        if is_ending(obj):
            return None
        number = number_of(revisions[-1]) + 1 if revisions else 1
        if equal:
            self._history.renumber(equal[-1], number, todo)
            return None
        return self._history.create(seen, obj, number, todo)

    # Scaling

    def _scale(self, turn: _Turn) -> None:
        """Make and mend the replicas, then end the surplus, then update."""
        for pod in turn.replicas:
            if self._settle_replica(turn, pod) and turn.monotonic:
                return
        written = [self._retain_claims(turn, pod, is_surplus=True) for pod in turn.surplus]
        if any(written):
            return  # a claim has its owner before that goes
        candidates = [*turn.replicas, *reversed(turn.surplus)]
        first = next((pod for pod in candidates if turn.is_unavailable(pod)), None)
        for pod in turn.surplus:
            if self._end_surplus(turn, pod, first) and turn.monotonic:
                return
        self._update(turn)

    def _settle_replica(self, turn: _Turn, pod: Object) -> bool:
        """Whether the next one must wait for this one."""
        if "uid" not in pod["metadata"]:
            self._create(turn, pod)
            return True
        if is_finished(pod):
            if not is_ending(pod):
                self._delete(turn, pod)  # it is made again when it is gone
            return True
        if phase(pod) == "Pending" and not self._make_claims(turn, pod):
            return True
        if turn.monotonic and (
            is_ending(pod)
            or phase(pod) != "Running"
            or not is_ready(pod)
            or not turn.is_available(pod)
        ):
            return True
        self._mend(turn, pod)
        return False

    def _create(self, turn: _Turn, pod: Object) -> None:
        """Make a pod once its claims are there and none is of an earlier pod that is to go."""
        number = ordinal(pod)
        if policy_of(turn.obj)[1]:
            for template in claim_templates(turn.obj):
                claim = _claim(turn, template, number)
                if claim is not None and is_stale(claim, pod, "pods"):
                    return
        if self._make_claims(turn, pod):
            turn.todo.create("pods", pod)

    def _make_claims(self, turn: _Turn, pod: Object) -> bool:
        """Whether the pod's claims are all there to stay; those that are missing are made."""
        there = True
        for template in claim_templates(turn.obj):
            claim = _claim(turn, template, ordinal(pod))
            if claim is None:
                turn.todo.create(CLAIMS, build_claim(template, turn.obj, ordinal(pod)))
            there &= claim is not None and not is_ending(claim)
        if there and "uid" in pod["metadata"]:
            self._retain_claims(turn, pod, is_surplus=False)
        return there

    def _retain_claims(self, turn: _Turn, pod: Object, is_surplus: bool) -> bool:
        """Name the owners of a pod's claims; whether that is to be written."""
        written = False
        for template in claim_templates(turn.obj):
            claim = _claim(turn, template, ordinal(pod))
            if claim is None:
                continue
            references = wanted_references(claim, turn.obj, pod, is_surplus)
            if references is None:
                continue
            written = True
            turn.todo.replace_metadata(CLAIMS, claim, ownerReferences=references)
            if has_other_controller(claim, turn.obj, pod):
                text = (f"PersistentVolumeClaim {name_of(claim)} has a conflicting OwnerReference "
                        "that acts as a manging controller, the retention policy is ignored for "
                        "this claim")  # fmt: skip
                what = ("Warning", "ConflictingController", text)
                self._events.record(turn.todo, self.own, turn.obj, *what)
        return written

    def _mend(self, turn: _Turn, pod: Object) -> None:
        """Give an adopted pod the set's labels, and its claims their owners."""
        if phase(pod) != "Pending":
            self._retain_claims(turn, pod, is_surplus=False)
        labels = pod["metadata"].get("labels") or {}
        if labels.get(NAME_LABEL) != name_of(pod):
            turn.todo.patch("pods", pod, {"metadata": {"labels": identity_labels(pod)}})

    def _end_surplus(self, turn: _Turn, pod: Object, first: Object | None) -> bool:
        """Whether the next one must wait for this one. `first`: the first pod that is unwell, which
        may go though it is so."""
        if is_ending(pod):
            return True
        is_well = phase(pod) == "Running" and is_ready(pod) and turn.is_available(pod)
        if not turn.monotonic or is_well or pod is first:
            self._delete(turn, pod)
        return True

    def _delete(self, turn: _Turn, pod: Object) -> None:
        turn.todo.delete("pods", pod)

    # Update

    def _update(self, turn: _Turn) -> None:
        """Delete pods of other revisions, the last first, as many as may be missing."""
        strategy = turn.obj["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        partition = rolling.get("partition") or 0
        if rolling.get("maxUnavailable") is not None:
            most = max(1, absolute(rolling["maxUnavailable"], len(turn.replicas), False))
            spare = most - sum(map(turn.is_unavailable, turn.replicas))
            for pod in reversed(turn.replicas[partition:]):
                if spare > 0 and _is_old(turn, pod):
                    self._delete(turn, pod)
                    spare -= 1
            return
        for pod in reversed(turn.replicas[partition:]):
            if _is_old(turn, pod):
                self._delete(turn, pod)
                return
            if turn.is_unavailable(pod):
                return

    # Status

    def _status(self, turn: _Turn, pods: list[Object]) -> None:
        obj, todo = turn.obj, turn.todo
        known = obj.get("status") or {}
        ready = [pod for pod in pods if phase(pod) == "Running" and is_ready(pod)]
        current, update = name_of(turn.current), name_of(turn.update)
        of = [pod_revision(pod) for pod in pods if not is_ending(pod)]
        status = {
            "observedGeneration": obj["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": count_available(ready, obj, todo),
            "currentReplicas": of.count(current),
            "updatedReplicas": of.count(update),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": known.get("collisionCount") or 0,
        }
        strategy = obj["spec"].get("updateStrategy") or {}
        whole = (status["updatedReplicas"], len(ready), len(pods))
        if strategy.get("type") == "RollingUpdate" and whole == (replicas(obj),) * 3:
            status["currentReplicas"], status["currentRevision"] = whole[0], update
        numbers = {name: known.get(name, 0) for name in status}
        if is_outdated(numbers, status):
            todo.patch("statefulsets", obj, {"status": status}, "status")

    # Events

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each pod or claim that was written for the set, or could not be.

        Source: stateful_pod_control.go.
        """
        obj = seen.get(self.own, key)
        if obj is None or not answer.is_notable or answer.body.get("reason") == "AlreadyExists":
            return
        if answer.method == "PATCH" and not self._is_mended(obj, answer):
            return
        verb = {"POST": "Create", "DELETE": "Delete"}.get(answer.method, "Update")
        what, good = f"Pod {answer.name}", "successful"
        if answer.kind == CLAIMS:
            of = "" if answer.is_good else "for "
            pod = f"{name_of(obj)}-{answer.name.rpartition('-')[2]}"
            what, good = f"Claim {answer.name} {of}Pod {pod}", "success"
        text = f"{verb} {what} in StatefulSet {name_of(obj)}"
        if answer.is_good:
            result = ("Normal", f"Successful{verb}", f"{text} {good}")
        else:
            result = ("Warning", f"Failed{verb}", f"{text} failed error: {answer.failure}")
        self._events.record(todo, self.own, obj, *result)

    def _is_mended(self, obj: Object, answer: WriteAnswer) -> bool:
        """The patch gave a pod of the set its labels; it did not adopt or release a pod, or name
        the owners of a claim."""
        pod = answer.target
        if answer.kind != "pods" or pod is None or not self._adoption.matches(obj, pod):
            return False
        return (owner_of(pod) or {}).get("uid") == uid_of(obj)


def _make_turn(
    seen: ObjectStore,
    obj: Object,
    todo: ReconcileResult,
    current: Object,
    update: Object,
    pods: list[Object],
) -> _Turn:
    """Sort the pods by what is wanted of them; replicas that are missing are built."""
    start = (obj["spec"].get("ordinals") or {}).get("start") or 0
    numbers = range(start, start + replicas(obj))
    by_number = {ordinal(pod): pod for pod in pods}
    strategy = obj["spec"].get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        kept = rolling.get("partition") or 0
    elif strategy.get("type") == "RollingUpdate":
        kept = (obj.get("status") or {}).get("currentReplicas") or 0
    else:
        kept = 0
    found = []
    for number in numbers:
        revision = current if number < start + kept else update
        found.append(
            by_number.get(number)
            or build_pod(obj, template_of(revision), name_of(revision), number)
        )
    surplus = [pod for number, pod in sorted(by_number.items()) if number not in numbers]
    return _Turn(seen, obj, todo, current, update, found, surplus[::-1])


def _is_old(turn: _Turn, pod: Object) -> bool:
    is_there = "uid" in pod["metadata"] and not is_ending(pod)
    return is_there and pod_revision(pod) != name_of(turn.update)


def _claim(turn: _Turn, template: Object, number: int) -> Object | None:
    name = claim_name(template, turn.obj, number)
    return turn.seen.get(CLAIMS, f"{namespace_of(turn.obj)}/{name}")
