"""DaemonSet controller: keeps one pod on every node that fits it. Source: pkg/controller/daemon."""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, name_of, uid_of
from stower.controllers.pods import (
    REVISION_HASH,
    absolute,
    hash_of,
    is_available,
    is_finished,
    is_outdated,
    is_ready,
    pod_of,
)
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.model.selectors import NodeSelector, node_selector_matches
from stower.model.taints import Taint, Toleration, is_tolerated

# What every pod of a DaemonSet tolerates (daemon/util.AddOrUpdateDaemonPodTolerations).
TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


def node_of(pod: Object) -> str:
    """The node that a pod is bound to or made for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


class DaemonSetController(OwnerController):
    """One DaemonSet is one key."""

    name = "daemonset-controller"
    kinds = ("daemonsets", "pods", "nodes")
    own = "daemonsets"

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """A node concerns all, but only with what a pod may ask of it."""
        if kind != "nodes":
            return tuple(super().keys(seen, kind, old, obj))
        if old is not None and old is not obj and _placement_fields(old) == _placement_fields(obj):
            return ()
        return tuple(key_of(one) for one in seen.all("daemonsets"))

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """A pod for each node, none elsewhere, and the status."""
        if is_ending(obj):
            return
        revision = hash_of(obj["spec"]["template"])
        on: dict[str, list[Object]] = {}
        for pod in seen.list_owned(uid_of(obj), "pods"):
            on.setdefault(node_of(pod), []).append(pod)
        fits = _fits(obj)
        wanted = set()  # where a pod is to be, or may stay
        for node in seen.all("nodes"):
            name = name_of(node)
            may_start, may_stay = fits(node)
            if may_start or (may_stay and name in on):
                wanted.add(name)
            if may_start and name not in on:
                self._create(obj, name, revision, todo)
        for name, pods in on.items():
            for extra in pods[1:] if name in wanted else pods:
                if not is_ending(extra):
                    todo.delete("pods", extra)
            if name in wanted and is_finished(pods[0]) and not is_ending(pods[0]):
                todo.delete("pods", pods[0])
        mine = [on[name][0] for name in on if name in wanted]
        self._update(obj, mine, len(wanted), revision, todo)
        misplaced = sum(len(pods) for name, pods in on.items() if name not in wanted)
        self._status(obj, mine, len(wanted), misplaced, revision, todo)

    def _create(self, obj: Object, node: str, revision: str, todo: ReconcileResult) -> None:
        pod = pod_of(obj["spec"]["template"], obj, "daemonsets", "", {REVISION_HASH: revision})
        spec = dict(pod["spec"])
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity = dict(spec.get("affinity") or {})
        own = dict(affinity.get("nodeAffinity") or {})
        terms = (own.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        own[REQUIRED] = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
        spec["affinity"] = {**affinity, "nodeAffinity": own}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *TOLERATIONS]
        todo.create("pods", {**pod, "spec": spec})

    def _update(
        self, obj: Object, pods: list[Object], wanted: int, revision: str, todo: ReconcileResult
    ) -> None:
        strategy = obj["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        given = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        spare = max(1, absolute(given, wanted, True))
        spare -= sum(is_ending(pod) or not is_ready(pod) for pod in pods)
        for pod in pods:
            if spare <= 0:
                return
            old = _revision(pod) != revision
            if old and not is_ending(pod):
                todo.delete("pods", pod)
                spare -= is_ready(pod)

    def _status(
        self,
        obj: Object,
        pods: list[Object],
        wanted: int,
        misplaced: int,
        revision: str,
        todo: ReconcileResult,
    ) -> None:
        ready_s = obj["spec"].get("minReadySeconds") or 0
        available = 0
        for pod in pods:
            good, due_ns = is_available(pod, ready_s, todo.now_ns)
            available += good
            if due_ns is not None:
                todo.requeue_at(due_ns)
        status = {
            "desiredNumberScheduled": wanted,
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": misplaced,
            "numberReady": sum(map(is_ready, pods)),
            "numberAvailable": available,
            "numberUnavailable": wanted - available,
            "updatedNumberScheduled": sum(_revision(p) == revision for p in pods),
            "observedGeneration": obj["metadata"].get("generation", 0),
        }
        known = obj.get("status") or {}
        if is_outdated({k: known.get(k, 0) for k in status}, status) or (
            "desiredNumberScheduled" not in known
        ):
            todo.patch("daemonsets", obj, {"status": status}, "status")


def _placement_fields(node: Object) -> tuple[object, ...]:
    return node["metadata"].get("labels"), node["spec"].get("taints")


def _fits(obj: Object) -> Callable[[Object], tuple[bool, bool]]:
    """Whether the template's pods may start on a node, and whether they may stay there."""
    spec = obj["spec"]["template"]["spec"]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    selector = None if affinity is None else msgspec.convert(affinity, NodeSelector)
    tolerations = tuple(
        msgspec.convert(t, Toleration) for t in (*(spec.get("tolerations") or ()), *TOLERATIONS)
    )

    def fits(node: Object) -> tuple[bool, bool]:
        labels, name = node["metadata"].get("labels") or {}, name_of(node)
        if spec.get("nodeName") not in (None, "", name):
            return False, False
        if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
            return False, False
        if selector is not None and not node_selector_matches(selector, labels, name):
            return False, False
        taints = [msgspec.convert(t, Taint) for t in node["spec"].get("taints") or ()]
        borne = dict.fromkeys(("NoSchedule", "PreferNoSchedule", "NoExecute"), True)
        for taint in taints:
            borne[taint.effect] &= is_tolerated(tolerations, taint)
        return borne["NoSchedule"] and borne["NoExecute"], borne["NoExecute"]

    return fits
