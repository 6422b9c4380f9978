"""What kube-controller-manager and kubelets do about claims and negotiations, one thing at a time.

Claims are made from templates (the name of one is that of its class) and go with their pods; who is
gone has no reservation (K1); a PodScheduling goes with its pod (K3); a pod that is to
end, or whose node is gone, does.
"""

from typing import Any

import msgspec

from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim
from stower.model.kinds.pod import PodResourceClaim
from stower.model.kinds.resource_claim import FINALIZER, ResourceClaimStatus
from stower.model.times import time_text
from stower.sim.claim_lifecycle import with_claims
from tests.negotiation_cluster import Cluster


class Keeper:
    """Of all claims. It asks the server itself, so nothing that it knows is old."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._server = cluster.server
        self._uids = 0
        self._seen = -1  # the revision in which there was nothing to do
        self.is_up = True

    def work(self) -> bool:
        """One thing. Whether there was something to do."""
        if not self.is_up or self._seen == self._server.revision:
            return False
        for view, look in (
            (Pod, self._pod), (ResourceClaim, self._claim), (PodScheduling, self._scheduling)
        ):  # fmt: skip
            if any(look(obj) for obj in [*self._server.all(view).values()]):
                return True
        self._seen = self._server.revision
        return False

    def _pod(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        is_lost = node and self._server.get(Node, node) is None
        if is_lost or pod.metadata.deletion_timestamp is not None:
            self._server.remove(pod)
            return True
        if pod.is_terminal:
            return False
        for entry in pod.spec.resource_claims or ():
            name = f"{pod.metadata.name}-{entry.name}"
            if not entry.resource_claim_template_name:
                continue
            if self._server.get(ResourceClaim, f"{pod.metadata.namespace}/{name}") is None:
                self._make(pod, entry, name)
                return True
            if not any(s.name == entry.name for s in pod.status.resource_claim_statuses or ()):
                self._server.put(with_claims(pod, {entry.name: name}))
                return True
        return False

    def _make(self, pod: Pod, entry: PodResourceClaim, name: str) -> None:
        self._uids += 1
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name,
                 "uid": pod.metadata.uid, "controller": True}  # fmt: skip
        exactly = {"deviceClassName": entry.resource_claim_template_name, "count": 1}
        meta = {
            "name": name, "namespace": pod.metadata.namespace, "uid": f"own-{self._uids}",
            "annotations": {"resource.kubernetes.io/pod-claim-name": entry.name},
            "ownerReferences": [owner],
        }  # fmt: skip
        requests = [{"name": "device", "exactly": exactly}]
        self._cluster.put(
            ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": requests}}}
        )

    def _lives(self, namespace: str, name: str, uid: str) -> bool:
        pod = self._server.get(Pod, f"{namespace}/{name}")
        return pod is not None and pod.metadata.uid == uid and not pod.is_terminal

    def _claim(self, claim: ResourceClaim) -> bool:
        meta, users = claim.metadata, claim.status.reserved_for or ()
        left = tuple(u for u in users if self._lives(meta.namespace, u.name, u.uid))
        if left != users:
            status = msgspec.structs.replace(claim.status, reserved_for=left or None)
            self._server.put(msgspec.structs.replace(claim, status=status))
            return True
        own = meta.controller
        if own is not None and not self._lives(meta.namespace, own.name, own.uid):
            if meta.deletion_timestamp is None:
                delete(self._cluster, claim)
                return True
        return not users and self._structured(claim)

    def _structured(self, claim: ResourceClaim) -> bool:
        """What nobody uses is given back, where no driver has allocated it."""
        finalizers = claim.metadata.finalizers or ()
        is_idle = claim.status.allocation is None and claim.metadata.deletion_timestamp is None
        if FINALIZER not in finalizers or is_idle:
            return False
        left = tuple(f for f in finalizers if f != FINALIZER)
        meta = msgspec.structs.replace(claim.metadata, finalizers=left or None)
        found = ResourceClaim(meta, claim.spec, ResourceClaimStatus())
        if meta.deletion_timestamp is not None and not left:
            self._server.remove(claim)
        else:
            self._server.put(found)
        return True

    def _scheduling(self, said: PodScheduling) -> bool:
        meta = said.metadata
        if self._lives(meta.namespace, meta.name, said.owner_uid):
            return False
        self._server.remove(said)
        return True


def delete(cluster: Cluster, obj: Any) -> None:
    """As DELETE does: at once, or when the last finalizer goes."""
    found = cluster.server.get(type(obj), obj.metadata.key)
    if found is None or found.metadata.uid != obj.metadata.uid:
        return
    if isinstance(found, Pod):
        cluster.server.delete_pod(found)
    elif not found.metadata.finalizers:
        cluster.server.remove(found)
    elif found.metadata.deletion_timestamp is None:
        at = time_text(cluster.now_ns)
        meta = msgspec.structs.replace(found.metadata, deletion_timestamp=at)
        cluster.server.put(msgspec.structs.replace(found, metadata=meta))
