"""What holds at every moment of a negotiation, whoever crashes when. Looks at objects and ledgers
only."""

from collections import Counter
from typing import Any

from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim
from stower.model.kinds.pod_scheduling import NODES_MAX
from stower.model.kinds.resource_claim import DEALLOCATION_REQUESTED, RESERVED_FOR_MAX
from stower.model.selectors import NodeSelector
from stower.sim.server import Change
from stower.state.devices import claim_keys
from tests.negotiation_cluster import Cluster, Counting


class Laws:
    """Of one cluster, whose claims are all negotiated."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._server = cluster.server
        self._old: dict[tuple[type, str], Any] = {}
        self._negotiated: dict[str, None] = {}  # uids of claims
        cluster.server.tell.append(self._changed)
        cluster.others.append(self.look)

    def look(self) -> bool:
        """Ledgers: no device twice, and what is in use is in one. Never has anything to do."""
        for process in self._cluster.drivers.values():
            taken: dict[tuple[str, str], str] = {}
            for entry in process.ledger.entries.values():
                for result in (entry.allocation or {}).get("devices", {}).get("results", ()):
                    device = (result["pool"], result["device"])
                    assert entry.uid == taken.setdefault(device, entry.uid), f"{device} twice"
            if isinstance(process.driver, Counting):
                used = Counter(pool for pool, _ in taken)
                assert all(process.driver.devices[n] >= used[n] for n in used), "one too many"
        return False

    def _changed(self, change: Change) -> None:
        _, kind, obj = change
        key = (type(obj), obj.metadata.key)
        old = self._old.pop(key, None)
        if kind is not WatchType.DELETED:
            self._old[key] = obj
        elif isinstance(obj, ResourceClaim):
            assert not self._is_in_ledger(obj) or obj.status.allocation is None, "gone, and taken"
            return
        else:
            return
        same = old is not None and old.metadata.uid == obj.metadata.uid
        if isinstance(obj, ResourceClaim):
            self._claim(obj, old if same else None)
        elif isinstance(obj, Pod):
            self._pod(obj, old if same else None)
        elif isinstance(obj, PodScheduling):
            self._scheduling(obj, old if same else None)

    def _is_in_ledger(self, claim: ResourceClaim) -> bool:
        ledgers = [process.ledger.entries for process in self._cluster.drivers.values()]
        return any(claim.metadata.uid in entries for entries in ledgers)

    def _claim(self, claim: ResourceClaim, old: ResourceClaim | None) -> None:
        key, status = claim.metadata.key, claim.status
        users = [user.uid for user in status.reserved_for or ()]
        assert len({*users}) == len(users) <= RESERVED_FOR_MAX, key
        flagged = DEALLOCATION_REQUESTED in (claim.metadata.annotations or {})
        is_leaving = flagged or claim.metadata.deletion_timestamp is not None
        if status.allocation is not None and (users or not is_leaving):
            assert self._is_in_ledger(claim), f"{key} is allocated, and in no ledger"
        if old is not None:
            before = old.status.allocation
            moved = None not in (before, status.allocation) and before != status.allocation
            assert not moved, f"{key} was moved"
            was_flagged = DEALLOCATION_REQUESTED in (old.metadata.annotations or {})
            if was_flagged and not flagged:
                assert status.allocation is None, f"{key}: the flag was taken back"
            if was_flagged or old.metadata.deletion_timestamp is not None:
                fresh = {*users} - {user.uid for user in old.status.reserved_for or ()}
                assert not fresh, f"{key} is leaving, and was reserved"
        for pod in self._server.all(Pod).values():
            if key in claim_keys(pod):
                self._bound(pod)

    def _pod(self, pod: Pod, old: Pod | None) -> None:
        self._bound(pod)
        if old is not None and pod.spec.node_name and not old.spec.node_name:
            node = self._server.get(Node, pod.spec.node_name)
            for claim_key in claim_keys(pod) if node is not None else ():
                claim = self._server.get(ResourceClaim, claim_key)
                reached = reaches(claim.status.allocation.node_selector, node)
                assert reached, f"{pod.key} cannot reach {claim_key}"

    def _bound(self, pod: Pod) -> None:
        if not pod.spec.node_name or pod.is_terminal:
            return
        if self._server.get(Pod, pod.key) != pod:
            return
        for key in claim_keys(pod):
            claim = self._server.get(ResourceClaim, key)
            assert claim is not None, f"{pod.key} runs without {key}"
            assert claim.status.allocation is not None, f"{pod.key} runs, {key} is not allocated"
            reserved = claim.is_reserved_for(pod.metadata.uid)
            assert reserved, f"{pod.key} runs, {key} is not reserved for it"

    def _scheduling(self, said: PodScheduling, old: PodScheduling | None) -> None:
        assert len(said.spec.potential_nodes or ()) <= NODES_MAX
        for answer in said.status.resource_claims or ():
            assert len(answer.unsuitable_nodes or ()) <= NODES_MAX
        if old is not None:
            assert said.spec.attempt >= old.spec.attempt
            asked = (said.spec.round, said.spec.potential_nodes)
            before = (old.spec.round, old.spec.potential_nodes)
            assert asked == before or said.spec.round == old.spec.round + 1
            assert "" in (said.spec.selected_node, old.spec.selected_node) or (
                said.spec.selected_node == old.spec.selected_node
            ), "from one node to another"


def reaches(selector: NodeSelector | None, node: Node) -> bool:
    """Whether the node is meant: by its name, or by labels."""
    if selector is None:
        return True
    labels = node.metadata.labels or {}
    for term in selector.node_selector_terms or ():
        by_name = all(node.metadata.name in (want.values or ()) for want in term.match_fields or ())
        if by_name and all(
            labels.get(want.key) in (want.values or ()) for want in term.match_expressions or ()
        ):
            return True
    return False
