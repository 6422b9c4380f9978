"""Creates the pods of workload objects that are not there yet, as their controllers would.

The controllers of `stower up` run on the objects of INPUT; of what they write, only creations and
larger ReplicaSets are carried out: no pod is deleted or updated. Names end in letters that depend
on the owner alone, so that runs are equal. A Job gets the pods that it runs at once; a CronJob one
Job. Must not read files.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stower.cli.workload_objects import WorkloadObject
from stower.controllers.cron_job import CronJobController
from stower.controllers.daemon_pods import node_of
from stower.controllers.daemon_set import DaemonSetController
from stower.controllers.deployment import DeploymentController
from stower.controllers.job import JobController
from stower.controllers.objects import (
    PLURAL_OF,
    Object,
    ObjectStore,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import hash_of, reference_to, selects
from stower.controllers.replica_set import ReplicaSetController
from stower.controllers.runtime import OwnerController, ReconcileResult
from stower.controllers.stateful_set import StatefulSetController
from stower.model.defaults import DEFAULT_NAMESPACE
from stower.model.kinds import Node, Pod

# In the order in which one creates what the next looks at.
CONTROLLERS: Final[tuple[OwnerController, ...]] = (
    DeploymentController(),
    ReplicaSetController(),
    StatefulSetController(),
    DaemonSetController(),
    JobController(),
)
SUFFIX_LENGTH: Final = 5  # of generated names, as the API server's
READY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Created(NamedTuple):
    """An object that a controller creates. `owner`: the workload object of INPUT."""

    owner: WorkloadObject
    data: bytes


def create_missing(
    owners: Sequence[WorkloadObject],
    nodes: Iterable[Node],
    pods: Sequence[Pod],
    default_class: str = "",
    is_added: bool = False,
) -> list[Created]:
    """Returns the pods that the owners lack, and the volume claims, ReplicaSets and Jobs that are
    created with them. Objects of a dump that have pods are left as
    they are, and so are its CronJobs, unless they are added to a cluster (`is_added`). `pods`: the
    pods that exist."""
    if not owners:
        return []
    world = _Store(owners, nodes, pods, default_class)
    found: list[Created] = []
    for owner in owners:  # before the controller of Jobs
        if owner.plural == "cronjobs" and not owner.object["spec"].get("suspend"):
            if is_added or not owner.is_stored:
                found += world.start_cron_job(owner)
    for controller in CONTROLLERS:
        for origin, obj in world.owners(controller.own):
            if is_added or not origin.is_stored or not world.has_pods(obj):
                found += world.create_all(controller, origin, obj)
    return found


def create_daemon_pods(
    daemon_sets: Sequence[WorkloadObject], nodes: Sequence[Node]
) -> list[Created]:
    """Returns the pods that DaemonSets have on nodes that come to a cluster."""
    of_nodes = [owner for owner in daemon_sets if owner.plural == "daemonsets"]
    return create_missing(of_nodes, nodes, (), is_added=True) if nodes else []


class _Store:
    """The objects that controllers look at, and what they create."""

    def __init__(
        self,
        owners: Sequence[WorkloadObject],
        nodes: Iterable[Node],
        pods: Sequence[Pod],
        default_class: str,
    ) -> None:
        self._seen = ObjectStore()
        self._default_class = default_class
        # By resource: what controllers reconcile, and the object of INPUT behind each.
        self._owners: dict[str, list[tuple[WorkloadObject, Object]]] = {}
        self._uids = {(o.object["kind"], key_of(o.object)): uid_of(o.object) for o in owners}
        for owner in owners:
            self._take(owner.plural, self._with_owner_uid(owner.object), owner)
        for node in nodes:
            meta = {"name": node.metadata.name, "uid": node.metadata.uid}
            meta["labels"] = node.metadata.labels or {}  # type: ignore[assignment]
            taints = msgspec.to_builtins(node.spec.taints or ())
            self._seen.put("nodes", {"metadata": meta, "spec": {"taints": taints}})
        namespaces = {namespace_of(owner.object) for owner in owners}
        self._pods = {
            f"{pod.metadata.namespace or DEFAULT_NAMESPACE}/{pod.metadata.name}" for pod in pods
        }
        for pod in pods:
            if (
                pod.metadata.namespace or DEFAULT_NAMESPACE
            ) in namespaces and pod.metadata.owner_references:
                self._seen.put("pods", self._with_owner_uid(_as_object(pod)))
        for origin, deployment in self.owners("deployments"):
            self._take_unseen_set(origin, deployment)

    def owners(self, plural: str) -> list[tuple[WorkloadObject, Object]]:
        """Returns the owners of a resource, those that were created included."""
        return self._owners.get(plural, [])

    def has_pods(self, owner: Object) -> bool:
        """Returns whether a pod of the owner exists, or of what it owns."""
        sets = self._seen.list_owned(uid_of(owner), "replicasets")
        return any(self._seen.list_owned(uid_of(one), "pods") for one in (owner, *sets))

    def start_cron_job(self, owner: WorkloadObject) -> list[Created]:
        """Creates one Job of a CronJob."""
        todo = ReconcileResult(0)
        if not self._seen.list_owned(uid_of(owner.object), "jobs"):
            CronJobController().create_job(owner.object, 0, todo)
        return self._apply(owner, todo) or []

    def create_all(
        self, controller: OwnerController, origin: WorkloadObject, obj: Object
    ) -> list[Created]:
        """Reconciles an object until its controller creates nothing more."""
        found: list[Created] = []
        if controller.own == "statefulsets":  # the next pod does not wait for this one
            obj = {**obj, "spec": {**obj["spec"], "podManagementPolicy": "Parallel"}}
        while True:
            todo = ReconcileResult(0)
            controller.reconcile_owner(self._seen, obj, todo)
            made = self._apply(origin, todo)
            if made is None:
                return found
            found += made

    def _apply(self, owner: WorkloadObject, todo: ReconcileResult) -> list[Created] | None:
        """Carries out creations and larger ReplicaSets; returns the created objects, None where
        nothing was done."""
        found: list[Created] = []
        is_done = True
        for call in todo.calls:
            if call.method == "POST" and call.kind:
                obj = self._named(owner, msgspec.json.decode(call.body))
                is_taken = call.kind == "pods" and key_of(obj) in self._pods
                if is_taken or self._seen.get(call.kind, key_of(obj)) is not None:
                    continue  # another object has its name
                if call.kind == "pods":
                    self._seen.put("pods", {**obj, "status": READY})
                elif call.kind == "persistentvolumeclaims":
                    self._with_class(obj)
                    self._seen.put(call.kind, obj)
                else:
                    self._take(call.kind, obj, owner)
                is_done = False
                if call.kind == "controllerrevisions":
                    continue  # the template once more
                found.append(Created(owner, msgspec.json.encode(obj)))
            elif call.method == "PATCH" and call.kind == "replicasets" and call.target is not None:
                wanted = (msgspec.json.decode(call.body).get("spec") or {}).get("replicas")
                if wanted is not None and wanted > call.target["spec"].get("replicas", 1):
                    call.target["spec"]["replicas"] = wanted
                    is_done = False
        return None if is_done else found

    def _named(self, owner: WorkloadObject, obj: Object) -> Object:
        """Returns the object with a name and a uid."""
        meta = obj["metadata"]
        prefix = meta.pop("generateName", "")
        plural = PLURAL_OF[obj["apiVersion"], obj["kind"]]
        number = len(self._seen.list_owned((owner_of(obj) or {}).get("uid", ""), plural))
        node = node_of(obj) if plural == "pods" else ""
        while prefix:
            suffix = hash_of([prefix, namespace_of(obj), node or number])[:SUFFIX_LENGTH]
            meta["name"] = f"{prefix}{suffix}"
            if self._seen.get(plural, key_of(obj)) is None:
                break
            number += 1
        meta["uid"] = f"{obj['kind'].lower()}/{key_of(obj)}"
        return obj

    def _with_class(self, claim: Object) -> None:
        """Gives a volume claim the default StorageClass, as admission does."""
        if self._default_class and claim["spec"].get("storageClassName") is None:
            claim["spec"]["storageClassName"] = self._default_class

    def _take(self, plural: str, obj: Object, origin: WorkloadObject) -> None:
        obj.setdefault("status", {})
        self._seen.put(plural, obj)
        self._owners.setdefault(plural, []).append((origin, obj))

    def _take_unseen_set(self, origin: WorkloadObject, deployment: Object) -> None:
        """Takes in the ReplicaSet with most pods of a Deployment where INPUT has no ReplicaSet of
        it, as its pods show it."""
        if self._seen.list_owned(uid_of(deployment), "replicasets"):
            return
        counts = Counter[tuple[str, str]]()
        for pod in self._seen.list_namespace("pods", namespace_of(deployment)):
            owner = owner_of(pod) or {}
            name = str(owner.get("name"))
            is_own = owner.get("kind") == "ReplicaSet" and name.startswith(name_of(deployment))
            if is_own and selects(deployment["spec"].get("selector"), pod):
                counts[name, str(owner["uid"])] += 1
        for (name, uid), count in counts.most_common(1):
            meta: Object = {"name": name, "namespace": namespace_of(deployment), "uid": uid}
            meta["ownerReferences"] = [reference_to(deployment, "deployments")]
            meta["labels"] = (deployment["spec"]["template"].get("metadata") or {}).get("labels")
            spec = {**deployment["spec"], "replicas": count}
            self._take("replicasets", {"metadata": meta, "spec": spec}, origin)

    def _with_owner_uid(self, obj: Object) -> Object:
        """Returns the object with its controller's uid as in INPUT, which may have made it up."""
        for reference in obj["metadata"].get("ownerReferences") or ():
            key = f"{namespace_of(obj)}/{reference.get('name')}"
            if known := self._uids.get((reference.get("kind"), key)):
                reference["uid"] = known
        return obj


def _as_object(pod: Pod) -> Object:
    """Returns what controllers read of a pod that exists; it counts as ready."""
    meta, namespace = pod.metadata, pod.metadata.namespace or DEFAULT_NAMESPACE
    references = msgspec.to_builtins(meta.owner_references)
    uid = meta.uid or f"pod/{namespace}/{meta.name}"
    made: dict[str, Any] = {
        "name": meta.name, "namespace": namespace, "uid": uid, "labels": meta.labels or {},
        "annotations": meta.annotations or {}, "ownerReferences": references,
    }  # fmt: skip
    if meta.deletion_timestamp is not None:
        made["deletionTimestamp"] = meta.deletion_timestamp
    spec: Object = {"nodeName": pod.spec.node_name}
    if not pod.spec.node_name:
        spec["affinity"] = msgspec.to_builtins(pod.spec.affinity)
    status = {**READY, "phase": pod.status.phase} if pod.is_terminal else READY
    return {"metadata": made, "spec": spec, "status": status}
