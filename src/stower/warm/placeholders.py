"""Creates and deletes Stower's own placeholders: the wanted number, from the pool's template.

Placeholders of other owners are never deleted here, even if the selector matches them.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from stower.framework.retries import CONFLICT
from stower.framework.writes import CreateObject, DeletePod, Write
from stower.model.kinds import KIND_BY_VIEW, Pod, WarmPool
from stower.model.times import SECOND_NS
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.headroom import NodeState
from stower.warm.nodes import PoolNodes
from stower.warm.pools import POOL_LABEL, Pool

# On a placeholder that was made to take the place of another: the node that has room for it.
NODE_ANNOTATION: Final = "stower.dev/warm-node"
# An autoscaler is not to keep a node for it.
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
# On a placeholder: of which template it was made, as one that has changed has others made.
TEMPLATE_ANNOTATION: Final = "stower.dev/warm-template"
NOT_FOUND: Final = 404
PROBLEM_MAX: Final = 500  # characters of a reason in the pool's status
# Of placeholders that have a node, so many are deleted in a round as they are wanted no more: a
# flood of deletions is what the seed's script died of.
LOWERED_MAX: Final = 10
STRANDED_MAX: Final = 10  # times replicasMax, on nodes that users cannot use as well
# After the API has refused a placeholder, the next is made so much later.
REFUSED_NS: Final = 60 * SECOND_NS


class PlaceholderManager:
    """Of all pools."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._making: dict[str, Pool] = {}  # keys of pods that are not seen yet
        self._leaving: dict[str, None] = {}  # uids of pods that are not seen to be gone
        self._writes: dict[int, tuple[str, str]] = {}  # by id: key that is made, uid that goes
        self._notes: list[tuple[str, str, str]] = []
        self._refused_ns: dict[str, int] = {}  # by pool: not before then

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._writes)

    def forget(self) -> None:
        """A list says what there is."""
        self._making.clear()
        self._leaving.clear()

    def confirm(self, pod: Pod) -> None:
        """A placeholder is there, be it for how long it may."""
        self._making.pop(pod.key, None)

    def is_leaving(self, entry: PodEntry) -> bool:
        """Whether its deletion was asked for, or seen."""
        return (
            entry.uid in self._leaving
            or entry.is_deletion_pending
            or entry.pod.metadata.deletion_timestamp is not None
        )

    def has_deleted(self, pod: Pod) -> bool:
        """Whether we have deleted it."""
        return pod.metadata.uid in self._leaving

    def count_useful(self, pool: Pool, entries: Sequence[PodEntry], nodes: PoolNodes) -> int:
        """Own placeholders on nodes that users can use, now or soon, those without a node, and
        those that are being made."""
        own = [e for e in entries if pool.is_own(e.pod) and e.uid not in self._leaving]
        useful = sum(entry.row < 0 or bool(nodes.usable[entry.row]) for entry in own)
        return useful + self._count_pending(pool)

    def create(
        self, pool: Pool, useful: int, missing: int, fill: int, next_id: Callable[[], int]
    ) -> list[Write]:
        """Returns the creations of `missing` placeholders, so that there are at most replicasMax
        beside the `useful` ones, and of `fill` more, which occupy nodes that users cannot use. In
        all a pool has at most STRANDED_MAX times replicasMax."""
        if self._state.now_ns < self._refused_ns.get(pool.key, 0):
            return []
        self._tidy()
        own = (uid for uid, pod in pool.placeholders.items() if pool.is_own(pod))
        there = sum(uid not in self._leaving for uid in own) + self._count_pending(pool)
        most = pool.spec.placeholders.replicas_max
        count = min(min(missing, most - useful) + fill, STRANDED_MAX * most - there)
        return [self._make(pool, next_id) for _ in range(count)]

    def adjust(
        self,
        pool: Pool,
        entries: Sequence[PodEntry],
        users: Ints,
        nodes: PoolNodes,
        next_id: Callable[[], int],
    ) -> list[Write]:
        """Not too many: those without a node go first, then those beside the fewest users; a few of
        those that were made of another template; and those on nodes that users cannot use. On
        stuck nodes these keep an autoscaler from taking their room for free (see the companion),
        and go when there are enough elsewhere."""
        self._tidy()
        if not pool.has_own_placeholders:
            return []
        alive = [
            e for e in entries
            if pool.is_own(e.pod) and not self.is_leaving(e) and not e.is_assumed
        ]  # fmt: skip
        alive.sort(key=lambda e: (e.row >= 0, int(users[e.row]) if e.row >= 0 else 0, e.pod.key))
        useful = [e for e in alive if e.row < 0 or nodes.usable[e.row]]
        stranded = [e for e in alive if e.row >= 0 and not nodes.usable[e.row]]
        if sum(entry.row >= 0 for entry in useful) < pool.wanted:
            stranded = [e for e in stranded if nodes.state_of(e.row) is not NodeState.STUCK]
        over = max(0, len(useful) + self._count_pending(pool) - pool.wanted)
        made_of = _template_hash(pool)
        others = [e for e in useful[over:] if _template_of(e.pod) not in ("", made_of)]
        going = [*useful[:over], *stranded, *others]
        placed = [entry for entry in going if entry.row >= 0]
        return [self.delete(e, next_id) for e in going if e.row < 0 or e in placed[:LOWERED_MAX]]

    def replace(
        self, pool: Pool, entry: PodEntry, node_name: str, next_id: Callable[[], int]
    ) -> tuple[str, list[Write]]:
        """One takes the place of this, on that node: its key, and what is written. What others
        keep, others make again, under the name that it had."""
        writes: list[Write] = [self.delete(entry, next_id)]
        if not pool.has_own_placeholders:
            return entry.pod.key, writes
        made = self._make(pool, next_id, node_name)
        return f"{made.namespace}/{made.name}", [*writes, made]

    def delete(self, entry: PodEntry, next_id: Callable[[], int]) -> DeletePod:
        """It goes at once."""
        meta, id = entry.pod.metadata, next_id()
        self._leaving[entry.uid] = None
        self._writes[id] = ("", entry.uid)
        return DeletePod(id, meta.namespace, meta.name, meta.uid, 0)

    def handle_answer(self, id: int, code: int, message: str) -> bool:
        """Whether it was one of these."""
        found = self._writes.pop(id, None)
        if found is None:
            return False
        key, uid = found
        if key and code == 0 and key in self._making:
            self._making[key].problem = ""
        if code in (0, NOT_FOUND):
            return True
        self._leaving.pop(uid, None)
        pool = self._making.pop(key, None)
        if code == CONFLICT:
            return True
        what = f"cannot create placeholder {key}" if key else "cannot delete placeholder"
        self._notes.append(("error", f"{what}: {message}", key or uid))
        if pool is not None:
            pool.problem = f"{what}: {message}"[:PROBLEM_MAX]
            now_ns = self._state.now_ns
            self._refused_ns = {k: due for k, due in self._refused_ns.items() if due > now_ns}
            self._refused_ns[pool.key] = now_ns + REFUSED_NS
        return True

    def notes(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        found, self._notes = self._notes, []
        return found

    def _tidy(self) -> None:
        for uid in [uid for uid in self._leaving if uid not in self._state.pods]:
            del self._leaving[uid]

    def _count_pending(self, pool: Pool) -> int:
        return sum(other.key == pool.key for other in self._making.values())

    def _make(self, pool: Pool, next_id: Callable[[], int], node_name: str = "") -> CreateObject:
        """The next of the pool, by the lowest number that is free."""
        there = {pod.key for pod in pool.placeholders.values()}
        number = 0
        while (key := f"{pool.key}-placeholder-{number}") in there or key in self._making:
            number += 1
        self._making[key] = pool
        id, name = next_id(), key.rpartition("/")[2]
        self._writes[id] = (key, "")
        body = _body(pool, name, node_name)
        return CreateObject(id, Pod, pool.namespace, name, "", body)


def _template_hash(pool: Pool) -> str:
    """The same for equal templates and node selectors."""
    made_of = [pool.spec.placeholders.template]
    if pool.spec.node_selector:  # which pods have, too
        made_of.append(pool.spec.node_selector)
    data = b"".join(msgspec.json.encode(part, order="deterministic") for part in made_of)
    return hashlib.sha256(data).hexdigest()[:16]


def _template_of(pod: Pod) -> str:
    return (pod.metadata.annotations or {}).get(TEMPLATE_ANNOTATION, "")


def _body(pool: Pool, name: str, node_name: str) -> dict[str, Any]:
    template = pool.spec.placeholders.template or {}
    meta = dict(template.get("metadata") or {})
    meta |= {
        "name": name,
        "namespace": pool.namespace,
        "labels": {**(meta.get("labels") or {}), POOL_LABEL: pool.name},
    }
    notes = {SAFE_TO_EVICT: "true", **(meta.get("annotations") or {})}
    notes[TEMPLATE_ANNOTATION] = _template_hash(pool)
    meta["annotations"] = {**notes, NODE_ANNOTATION: node_name} if node_name else notes
    if pool.obj is not None:
        kind = KIND_BY_VIEW[WarmPool]
        owner = {"apiVersion": kind.api_version, "kind": kind.name, "name": pool.name,
                 "uid": pool.obj.metadata.uid, "controller": True}  # fmt: skip
        meta["ownerReferences"] = [owner]
    spec = {"terminationGracePeriodSeconds": 0, **(template.get("spec") or {})}
    if pool.spec.node_selector:  # room elsewhere is nobody's; an autoscaler sees that by this alone
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **pool.spec.node_selector}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
