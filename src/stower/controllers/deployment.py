"""Deployment controller: scales the new ReplicaSet up and the old ReplicaSets down.

Source: pkg/controller/deployment.
"""

from typing import Any, Final

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import (
    TEMPLATE_HASH,
    absolute,
    condition,
    hash_of,
    is_finished,
    is_outdated,
    reference_to,
)
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.times import SECOND_NS, time_ns, time_text

REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"


def replicas(obj: Object) -> int:
    """How many are wanted."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def get_count(obj: Object, field: str) -> int:
    """A number of the status."""
    return int((obj.get("status") or {}).get(field) or 0)


def revision(obj: Object) -> int:
    """The number that a rollout gave it."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


class DeploymentController(OwnerController):
    """One Deployment is one key."""

    name = "deployment-controller"
    kinds = ("deployments", "replicasets", "pods")
    own = "deployments"

    def __init__(self) -> None:
        self._adoption = ControllerRefManager(self.own, "replicasets")

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
        return self._owners(seen, one)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step of the rollout, and the status."""
        if is_ending(obj):
            return
        sets = sorted(seen.list_owned(uid_of(obj), "replicasets"), key=revision)
        if self._adoption.settle(seen, obj, sets, todo):
            return  # counted when that is done
        template = _bare(obj["spec"]["template"])
        new = next((s for s in sets if _bare(s["spec"]["template"]) == template), None)
        old = [s for s in sets if s is not new]
        if obj["spec"].get("paused"):
            self._scale_paused(obj, sets, todo)
        elif new is None:
            self._create(obj, old, todo)
        else:
            self._name_revision(obj, new, old, todo)
            if obj["spec"]["strategy"]["type"] == "Recreate":
                self._recreate(seen, obj, new, old, todo)
            else:
                self._roll(obj, new, old, todo)
            self._clean_up(obj, new, old, todo)
        self._status(obj, new, sets, todo)

    def _create(self, obj: Object, old: list[Object], todo: ReconcileResult) -> None:
        spec = obj["spec"]
        hashed = hash_of([uid_of(obj), spec["template"], obj["status"].get("collisionCount")])
        meta = spec["template"].get("metadata") or {}
        labels = {**(meta.get("labels") or {}), TEMPLATE_HASH: hashed}
        count = 0 if old else replicas(obj)
        if spec["strategy"]["type"] != "Recreate" and old:
            have = sum(map(replicas, old))
            surge, _ = _surge(obj)
            count = max(0, min(replicas(obj), replicas(obj) + surge - have))
        selector = spec["selector"]
        match = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: hashed}
        number = max([0, *map(revision, old)]) + 1
        todo.create(
            "replicasets",
            {
                "metadata": {
                    "name": f"{name_of(obj)}-{hashed}",
                    "namespace": namespace_of(obj),
                    "labels": labels,
                    "annotations": {**_annotations(obj), REVISION: str(number)},
                    "ownerReferences": [reference_to(obj, "deployments")],
                },
                "spec": {
                    "replicas": count,
                    "minReadySeconds": spec.get("minReadySeconds") or 0,
                    "selector": {**selector, "matchLabels": match},
                    "template": {**spec["template"], "metadata": {**meta, "labels": labels}},
                },
            },
        )

    def _name_revision(
        self, obj: Object, new: Object, old: list[Object], todo: ReconcileResult
    ) -> None:
        number = max(revision(new), max([0, *map(revision, old)]) + bool(old))
        if old and revision(new) > max(map(revision, old)):
            number = revision(new)
        number = max(1, number)
        notes = {**_annotations(obj), REVISION: str(number)}
        known = new["metadata"].get("annotations") or {}
        patch: Object = {}
        if any(known.get(k) != v for k, v in notes.items()):
            patch["metadata"] = {"annotations": notes}
        ready_s = obj["spec"].get("minReadySeconds") or 0
        if (new["spec"].get("minReadySeconds") or 0) != ready_s:
            patch["spec"] = {"minReadySeconds": ready_s}
        if patch:
            todo.patch("replicasets", new, patch)
        if revision(obj) != number:
            todo.patch("deployments", obj, {"metadata": {"annotations": {REVISION: str(number)}}})

    def _recreate(
        self, seen: ObjectStore, obj: Object, new: Object, old: list[Object], todo: ReconcileResult
    ) -> None:
        for one in old:
            self._scale(one, 0, todo)
        running = (p for s in old for p in seen.list_owned(uid_of(s), "pods") if not is_finished(p))
        if not any(map(replicas, old)) and not any(running):
            self._scale(new, replicas(obj), todo)

    def _roll(self, obj: Object, new: Object, old: list[Object], todo: ReconcileResult) -> None:
        wanted = replicas(obj)
        surge, unavailable = _surge(obj)
        if not old or not any(map(replicas, old)):
            self._scale(new, wanted, todo)
            return
        have = sum(map(replicas, (*old, new)))
        if replicas(new) != wanted:
            grow = wanted if replicas(new) > wanted else min(
                wanted, replicas(new) + max(0, wanted + surge - have)
            )  # fmt: skip
            self._scale(new, grow, todo)
        not_available = replicas(new) - get_count(new, "availableReplicas")
        spare = have - (wanted - unavailable) - not_available
        if spare <= 0:
            return
        for one in old:  # those that are not healthy go first
            sick = min(replicas(one) - get_count(one, "availableReplicas"), spare)
            if sick > 0:
                self._scale(one, replicas(one) - sick, todo)
                return
        available = sum(get_count(s, "availableReplicas") for s in (*old, new))
        spare = available - (wanted - unavailable)
        for one in old:
            less = min(replicas(one), spare)
            if less > 0:
                self._scale(one, replicas(one) - less, todo)
                spare -= less

    def _scale_paused(self, obj: Object, sets: list[Object], todo: ReconcileResult) -> None:
        """Paused is the rollout, not the scale: what is more or less is so of the newest."""
        active = [s for s in sets if replicas(s)] or sets[-1:]
        if active:
            others = sum(map(replicas, active[:-1]))
            self._scale(active[-1], max(0, replicas(obj) - others), todo)

    def _scale(self, one: Object, count: int, todo: ReconcileResult) -> None:
        if replicas(one) != count:
            todo.patch("replicasets", one, {"spec": {"replicas": count}})

    def _clean_up(self, obj: Object, new: Object, old: list[Object], todo: ReconcileResult) -> None:
        limit = obj["spec"].get("revisionHistoryLimit", 10)
        empty = [s for s in old if not replicas(s) and not get_count(s, "replicas")]
        for one in empty[: max(0, len(old) - limit)]:
            if not is_ending(one):
                todo.delete("replicasets", one)

    def _status(
        self, obj: Object, new: Object | None, sets: list[Object], todo: ReconcileResult
    ) -> None:
        known = obj.get("status") or {}
        available = sum(get_count(s, "availableReplicas") for s in sets)
        status: Object = {
            "observedGeneration": obj["metadata"].get("generation", 0),
            "replicas": sum(get_count(s, "replicas") for s in sets),
            "updatedReplicas": get_count(new, "replicas") if new else 0,
            "readyReplicas": sum(get_count(s, "readyReplicas") for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, sum(map(replicas, sets)) - available),
        }
        _, unavailable = _surge(obj)
        wanted = replicas(obj)
        enough = available >= wanted - unavailable
        done = (
            status["updatedReplicas"] == wanted
            and status["replicas"] == wanted
            and available == wanted
        )
        conditions = [
            _condition(
                obj, "Available", "True" if enough else "False",
                "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                "Deployment has minimum availability." if enough
                else "Deployment does not have minimum availability.",
                todo.now_ns,
            ),
            self._progress(obj, new, done, status, todo),
        ]  # fmt: skip
        numbers = {k: known.get(k, 0) for k in status}
        if is_outdated(numbers, status) or _differ(known.get("conditions"), conditions):
            todo.patch("deployments", obj, {"status": {**status, "conditions": conditions}},
                       "status")  # fmt: skip

    def _progress(
        self, obj: Object, new: Object | None, done: bool, status: Object, todo: ReconcileResult
    ) -> Object:
        name = f"{name_of(new)}" if new else name_of(obj)
        if done:
            text = f'ReplicaSet "{name}" has successfully progressed.'
            return _condition(obj, "Progressing", "True", "NewReplicaSetAvailable", text,
                              todo.now_ns)  # fmt: skip
        before = condition(obj, "Progressing")
        known = obj.get("status") or {}
        moved = any(known.get(k, 0) != v for k, v in status.items())
        deadline_s = obj["spec"].get("progressDeadlineSeconds") or 600
        if before is not None and not moved and before.get("reason") != "NewReplicaSetAvailable":
            since_ns = time_ns(before.get("lastUpdateTime")) or todo.now_ns
            due_ns = since_ns + deadline_s * SECOND_NS
            if before["status"] == "False" or due_ns <= todo.now_ns:
                text = f'ReplicaSet "{name}" has timed out progressing.'
                return _condition(obj, "Progressing", "False", "ProgressDeadlineExceeded", text,
                                  todo.now_ns)  # fmt: skip
            todo.requeue_at(due_ns)
            return before
        todo.requeue_at(todo.now_ns + deadline_s * SECOND_NS)
        text = f'ReplicaSet "{name}" is progressing.'
        made = _condition(obj, "Progressing", "True", "ReplicaSetUpdated", text, todo.now_ns)
        return {**made, "lastUpdateTime": time_text(todo.now_ns)} if moved else made


def _bare(template: Object) -> Object:
    """The template without the hash that ReplicaSets add."""
    meta = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != TEMPLATE_HASH}
    return {**template, "metadata": {**meta, "labels": labels}}


def _annotations(obj: Object) -> Object:
    skipped = ("kubectl.kubernetes.io/last-applied-configuration", REVISION)
    own = obj["metadata"].get("annotations") or {}
    return {k: v for k, v in own.items() if k not in skipped}


def _surge(obj: Object) -> tuple[int, int]:
    """How many more, and how many fewer, there may be meanwhile."""
    rolling = obj["spec"]["strategy"].get("rollingUpdate")
    wanted = replicas(obj)
    if rolling is None:
        return 0, 0 if obj["spec"]["strategy"]["type"] == "Recreate" else 1
    surge = absolute(rolling.get("maxSurge", "25%"), wanted, True)
    unavailable = absolute(rolling.get("maxUnavailable", "25%"), wanted, False)
    return surge, unavailable if surge or unavailable else 1


def _condition(
    obj: Object, type: str, status: str, reason: str, message: str, now_ns: int
) -> Object:
    """The condition, with its times kept where it says the same as before."""
    before, now = condition(obj, type), time_text(now_ns)
    made: Any = {"type": type, "status": status, "reason": reason, "message": message}
    if before is not None and all(before.get(k) == v for k, v in made.items()):
        return before
    same = before is not None and before.get("status") == status
    transition = (before or {}).get("lastTransitionTime") if same else now
    return {**made, "lastUpdateTime": now, "lastTransitionTime": transition or now}


def _differ(known: list[Object] | None, wanted: list[Object]) -> bool:
    by_type = {c.get("type"): c for c in known or ()}
    return any(by_type.get(c["type"]) != c for c in wanted)
