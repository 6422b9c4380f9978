"""Deployment controller: scales the new ReplicaSet up and the old ReplicaSets down.

Source: pkg/controller/deployment.
"""

import msgspec

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.deployment_sets import (
    DESIRED,
    REVISION,
    bare,
    bounds,
    build_set,
    changed_annotations,
    get_count,
    grown,
    is_rolling,
    is_saturated,
    number_of,
    proportional_sizes,
    size_annotations,
)
from stower.controllers.deployment_status import (
    PROGRESSING,
    Conditions,
    count,
    deadline_s,
    due_ns,
    is_complete,
    set_available,
    set_failure,
    set_paused,
    set_progress,
)
from stower.controllers.event_recorder import EventRecorder
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
from stower.controllers.pods import is_finished, is_outdated, min_ready_s, replicas
from stower.controllers.runtime import MERGE, OwnerController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer

NO_LIMIT = 2**31 - 1


class _Turn(msgspec.Struct, gc=False):
    """A Deployment as it is at one turn, and what is to become of its ReplicaSets."""

    seen: ObjectStore
    obj: Object
    todo: ReconcileResult
    new: Object | None
    old: list[Object]  # the oldest first
    conditions: Conditions
    sizes: dict[str, int] = {}  # by name, where they change
    notes: dict[str, Object] = {}  # annotations, by name

    @property
    def sets(self) -> list[Object]:
        """All of them."""
        return [*self.old, *((self.new,) if self.new is not None else ())]

    def size(self, one: Object) -> int:
        """How large it is to be, as far as is decided."""
        return self.sizes.get(name_of(one), replicas(one))

    def scale(self, one: Object, size: int, always: bool = False) -> bool:
        """Give a set a size; `always`: note the Deployment's size on it even if it has that."""
        name, known = name_of(one), one["metadata"].get("annotations") or {}
        changes = size != self.size(one)
        if changes:
            self.sizes[name] = size
        wanted = size_annotations(self.obj)
        if changes or (always and any(known.get(k) != v for k, v in wanted.items())):
            self.notes[name] = {**self.notes.get(name, {}), **wanted}
        return changes


class DeploymentController(OwnerController):
    """One Deployment is one key."""

    name = "deployment-controller"
    kinds = ("deployments", "replicasets", "pods")
    own = "deployments"
    reported_kinds = ("replicasets",)

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)
        self._adoption = ControllerRefManager(self.own, "replicasets")
        self._made: dict[str, str] = {}  # the ReplicaSet that was made at the last turn, by key
        self._refused: dict[str, str] = {}  # why it was not
        self._scaling: dict[tuple[str, str], str] = {}  # what to say once a set is scaled

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """A pod that is gone or has ended may be what Recreate waits for."""
        if kind != "pods":
            more = self._adoption.keys(seen, kind, old, obj)
            return (*super().keys(seen, kind, old, obj), *more)
        owner = owner_of(obj) if old is obj or is_finished(obj) else None
        if owner is None or owner["kind"] != "ReplicaSet":
            return ()
        one = seen.get("replicasets", f"{namespace_of(obj)}/{owner['name']}")
        return self._owners(one) if one is not None else ()

    def forget(self, key: str) -> None:
        """The Deployment is gone."""
        self._made.pop(key, None)
        self._refused.pop(key, None)
        for known in [k for k in self._scaling if k[0] == key]:
            del self._scaling[known]

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step of the rollout, and the status."""
        sets = sorted(seen.list_owned(uid_of(obj), "replicasets"), key=age)
        if not is_ending(obj) and self._adoption.settle(seen, obj, sets, todo):
            return  # counted when that is done
        template = bare(obj["spec"]["template"])
        new = next((s for s in sets if bare(s["spec"]["template"]) == template), None)
        old = [s for s in sets if s is not new]
        turn = _Turn(seen, obj, todo, new, old, Conditions(obj, todo.now_ns))
        if is_ending(obj):
            self._status(turn, rolls=False)
            return
        set_paused(obj, turn.conditions)
        self._name_revision(turn)
        scales = any(
            DESIRED in (one["metadata"].get("annotations") or {})
            and number_of(one, DESIRED) != replicas(obj)
            for one in sets
            if replicas(one)
        )
        paused = bool(obj["spec"].get("paused"))
        if paused or scales:
            self._scale(turn)
            if paused:
                self._clean_up(turn)
        elif is_rolling(obj):
            self._roll(turn)
        else:
            self._recreate(turn)
        self._carry_out(turn)
        self._status(turn, rolls=not (paused or scales))

    # Revisions

    def _name_revision(self, turn: _Turn) -> None:
        """Number the newest set, which has the Deployment's annotations, and say where it is
        from."""
        if turn.new is None:
            return
        number = 1 + max((number_of(one, REVISION) for one in turn.old), default=0)
        changed = changed_annotations(turn.obj, turn.new, number)
        name, key = name_of(turn.new), key_of(turn.obj)
        if changed:
            turn.notes[name] = changed
        if deadline_s(turn.obj) is None:
            return
        if self._made.pop(key, "") == name:
            text = f'Created new replica set "{name}"'
            turn.conditions.set(PROGRESSING, "True", "NewReplicaSetCreated", text)
        elif turn.conditions.find(PROGRESSING) is None:
            text = f'Found new replica set "{name}"'
            turn.conditions.set(PROGRESSING, "True", "FoundNewReplicaSet", text)

    def _create(self, turn: _Turn) -> None:
        """Make a ReplicaSet of the template, or count the one that has its name for another."""
        obj, key = turn.obj, key_of(turn.obj)
        number = 1 + max((number_of(one, REVISION) for one in turn.old), default=0)
        made = build_set(obj, turn.old, number)
        if turn.seen.get("replicasets", key_of(made)) is not None:
            collisions = get_count(obj, "collisionCount") + 1
            turn.todo.patch("deployments", obj, {"status": {"collisionCount": collisions}},
                            "status")  # fmt: skip
            return
        turn.todo.create("replicasets", made)
        refused = self._refused.pop(key, "")
        if refused and deadline_s(obj) is not None:
            text = f'Failed to create new replica set "{name_of(made)}": {refused}'
            turn.conditions.set(PROGRESSING, "False", "ReplicaSetCreateError", text)

    # Rollout

    def _roll(self, turn: _Turn) -> None:
        """Scale the new set up, or else the old ones down."""
        new, obj = turn.new, turn.obj
        if new is None:
            self._create(turn)
            return
        wanted = replicas(obj)
        if replicas(new) > wanted:
            turn.scale(new, wanted)
            return
        total = sum(map(replicas, turn.sets))
        if replicas(new) < wanted and turn.scale(new, grown(obj, total, replicas(new))):
            return
        self._shrink(turn, new, total)
        if not turn.sizes and is_complete(obj, obj.get("status") or {}):
            self._clean_up(turn)

    def _shrink(self, turn: _Turn, new: Object, total: int) -> None:
        """Scale old sets down: first pods that are not available, then as many as may be missing.
        The oldest sets first."""
        least = replicas(turn.obj) - bounds(turn.obj)[1]
        active = [one for one in turn.old if replicas(one)]
        spare = total - least - (replicas(new) - get_count(new, "availableReplicas"))
        if not active or spare <= 0:
            return
        for one in active:
            unwell = min(spare, replicas(one) - get_count(one, "availableReplicas"))
            if unwell > 0:
                turn.scale(one, replicas(one) - unwell)
                spare -= unwell
        spare = sum(get_count(one, "availableReplicas") for one in turn.sets) - least
        for one in active:
            less = min(spare, turn.size(one))
            if less > 0:
                turn.scale(one, turn.size(one) - less)
                spare -= less

    def _recreate(self, turn: _Turn) -> None:
        """End all old pods, then make new ones."""
        scaled = [turn.scale(one, 0) for one in turn.old]
        if any(scaled) or any(get_count(one, "replicas") for one in turn.old):
            return
        pods = (p for s in turn.old for p in turn.seen.list_owned(uid_of(s), "pods"))
        if not all(map(is_finished, pods)):
            return
        if turn.new is None:
            self._create(turn)
            return
        turn.scale(turn.new, replicas(turn.obj))
        if is_complete(turn.obj, turn.obj.get("status") or {}):
            self._clean_up(turn)

    def _scale(self, turn: _Turn) -> None:
        """Follow the Deployment's size without a step of the rollout: each set by its share."""
        active = [one for one in turn.sets if replicas(one)]
        if len(active) <= 1:
            latest = turn.new if turn.new is not None else (turn.old[-1] if turn.old else None)
            only = active[0] if active else latest
            if only is not None:
                turn.scale(only, replicas(turn.obj), always=True)
        elif is_saturated(turn.obj, turn.new):
            for one in turn.old:
                turn.scale(one, 0)
        elif is_rolling(turn.obj):
            sizes = proportional_sizes(turn.obj, active)
            for one in active:
                turn.scale(one, sizes[name_of(one)], always=True)

    def _clean_up(self, turn: _Turn) -> None:
        """Delete the oldest sets beyond the limit that have no pods."""
        limit = turn.obj["spec"].get("revisionHistoryLimit", NO_LIMIT)
        there = [one for one in turn.old if not is_ending(one)]
        there.sort(key=lambda one: (number_of(one, REVISION), age(one)))
        for one in there[: max(0, len(there) - limit)] if limit < NO_LIMIT else ():
            generation = one["metadata"].get("generation", 0)
            is_seen = generation <= get_count(one, "observedGeneration")
            if not replicas(one) and not get_count(one, "replicas") and is_seen:
                turn.todo.delete("replicasets", one)

    def _carry_out(self, turn: _Turn) -> None:
        """Write what changes of the sets."""
        ready_s = min_ready_s(turn.obj)
        for one in turn.sets:
            name, before = name_of(one), replicas(one)
            patch: Object = {}
            spec: Object = {}
            if name in turn.notes:
                patch["metadata"] = {"annotations": turn.notes[name]}
            if one is turn.new and min_ready_s(one) != ready_s:
                spec["minReadySeconds"] = ready_s
            size = turn.sizes.get(name, before)
            if size != before:
                spec["replicas"] = size
                way = "up" if size > before else "down"
                text = f"Scaled {way} replica set {name} from {before} to {size}"
                self._scaling[key_of(turn.obj), name] = text
            if spec:
                patch["spec"] = spec
            if patch:
                turn.todo.patch("replicasets", one, patch)

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each ReplicaSet that was scaled, or could not be created."""
        obj, name = seen.get(self.own, key), answer.name
        if obj is None:
            return
        text = ""
        if answer.method == "PATCH":
            text = self._scaling.pop((key, name), "")
        elif answer.method == "POST" and answer.is_good:
            self._made[key] = name
            if size := replicas(answer.body):
                text = f"Scaled up replica set {name} from 0 to {size}"
        elif answer.method == "POST" and answer.is_notable:
            if answer.body.get("reason") != "AlreadyExists":
                self._refused[key] = answer.failure
                what = f'Failed to create new replica set "{name}": {answer.failure}'
                why = ("Warning", "ReplicaSetCreateError", what)
                self._events.record(todo, self.own, obj, *why)
        if text and answer.is_good:
            self._events.record(todo, self.own, obj, "Normal", "ScalingReplicaSet", text)

    # Status

    def _status(self, turn: _Turn, rolls: bool) -> None:
        """Write what is known; `rolls`: whether the rollout's progress is judged."""
        obj, todo = turn.obj, turn.todo
        if any(call.kind == "deployments" for call in todo.calls):
            return  # once that is answered
        known = obj.get("status") or {}
        status, conditions = count(obj, turn.new, turn.sets), turn.conditions
        set_available(obj, status, conditions)
        if rolls:
            set_progress(obj, turn.new, status, conditions, todo.now_ns)
            set_failure(turn.new, turn.sets, conditions)
            again_ns = due_ns(obj, status, conditions)
            if again_ns is not None:
                todo.requeue_at(again_ns)
        meta: Object = {"resourceVersion": obj["metadata"].get("resourceVersion")}
        number = 0
        if turn.new is not None:
            noted = turn.notes.get(name_of(turn.new), {})
            number = int(noted.get(REVISION) or number_of(turn.new, REVISION))
        if number and str(number) != (obj["metadata"].get("annotations") or {}).get(REVISION):
            meta["annotations"] = {REVISION: str(number)}
        numbers = {name: known.get(name, 0) for name in status}
        same = conditions.items == list(known.get("conditions") or ())
        if is_outdated(numbers, status) or not same or "annotations" in meta:
            status["conditions"] = conditions.items
            todo.patch("deployments", obj, {"metadata": meta, "status": status}, "status", MERGE)
