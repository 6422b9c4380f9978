"""Runs a workload twice, unchanged and with an edit, and compares the results.

Both runs start from the same state with the same engine, so that only the edit makes a difference.
Pods that have a node at the start keep it, unless the node is removed.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.model.errors import InvalidObject
from stower.model.kinds import (
    KIND_BY_VIEW,
    ApiObject,
    Background,
    Node,
    PersistentVolumeClaim,
    Pod,
    ResourceClaim,
    ResourceSlice,
)
from stower.model.kinds.pod import PodStatus
from stower.sim.claim_lifecycle import release_claim
from stower.sim.costs import node_hours
from stower.sim.node_copies import copy_of_node, slices_of_copy
from stower.sim.node_pods import belongs_to_node, daemon_node_of, pods_of_node
from stower.sim.recorded_drivers import RecordedDriver
from stower.sim.simulation import Use, run_timed, use_of
from stower.sim.untried import untried_reason
from stower.sim.workload import Arrival, Workload
from stower.sim.world import AGAIN, World


class Edit(msgspec.Struct, frozen=True):
    """What is to be changed. `remove` and `delete` by name; `delete` as kind/name or
    kind/namespace/name; `anew`: pods that have a node give it up at the start."""

    add_nodes: tuple[tuple[int, str], ...] = ()
    remove_nodes: tuple[str, ...] = ()
    add: tuple[ApiObject, ...] = ()
    delete: tuple[str, ...] = ()
    anew: bool = False


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """What came of one run. Each pod is one of `running` (it has a node), `ended` (it had one until
    it went), `pending`, and `lost`: evicted, or gone without ever having had a node. `removed`:
    pods that the change removes, which are none of these. `node_hours`, `cost`: of all nodes, for
    the time of a recording, else for an hour."""

    nodes: int
    empty_nodes: int
    pods: int
    running: int
    ended: int
    pending: int
    lost: int
    evictions: int
    use: tuple[Use, ...]
    waited_seconds: float
    """How long pods waited for their node, all together."""
    still_waiting_seconds: float = 0.0
    """How long pods have waited that have no node at the end, all together."""
    removed: int = 0
    node_hours: float = 0.0
    cost: float | None = None


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """One pod that fares otherwise: where it is ("" for nowhere), and why it waits."""

    pod: str
    before: str
    after: str
    why: str


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Both runs, and each pod that fares otherwise. `unlike`: pods that the run without the change
    has elsewhere (`after`) than they were (`before`); `forced_moves`: with --minimal, moves of pods
    that had a node."""

    before: Outcome
    after: Outcome
    moved: tuple[Difference, ...]
    newly_placed: tuple[Difference, ...]
    newly_pending: tuple[Difference, ...]
    newly_lost: tuple[Difference, ...]
    added: tuple[Difference, ...]
    removed: tuple[Difference, ...]
    evicted: tuple[str, ...]
    unlike: tuple[Difference, ...] = ()
    forced_moves: int | None = None


def edited(workload: Workload, edit: Edit) -> Workload:
    """The workload, changed. Raises InvalidObject for what is not there."""
    gone = {*edit.remove_nodes}
    deleted = {_parse_target(text) for text in edit.delete}
    gone |= {key for kind, key in deleted if kind == "node"}
    known = {node.metadata.name for node in workload.nodes}
    known |= {h.object.metadata.name for h in workload.happened if isinstance(h.object, Node)}
    for name in sorted(gone - known):
        raise InvalidObject("node", name, f"one of the {len(known)} nodes given")
    found = {_name(obj) for obj in _list_objects(workload)}
    for text in edit.delete:
        if _parse_target(text) not in found:
            raise InvalidObject("--delete", text, "an existing object, such as pod/NAMESPACE/NAME")
    deleted |= {("node", name) for name in gone}
    deleted |= _claims_of_deleted(workload, deleted)
    kept = [node for node in workload.nodes if _name(node) not in deleted]
    taken = found - deleted
    for obj in edit.add:
        if _name(obj) in taken:
            raise InvalidObject("metadata.name", _name(obj)[1], "a name that no other object has")
    added = [obj for obj in edit.add if isinstance(obj, Node)]
    nodes = [*kept, *added]
    models, slices = _copies(workload, edit, {node.metadata.name for node in nodes} | known)
    copies = [node for _, node in models]
    nodes += copies
    known_pods = (*workload.placed, *(arrival.pod for arrival in workload.arrivals))
    daemons = [
        pod for model, node in models for pod in pods_of_node(known_pods, model, node.metadata.name)
    ]
    names = {node.metadata.name for node in nodes}
    stays: list[Pod] = []
    moves: list[Arrival] = []
    for pod in workload.placed:
        leaves = edit.anew or pod.spec.node_name in gone
        if _name(pod) in deleted or (pod.spec.node_name in gone and belongs_to_node(pod)):
            continue
        if leaves and not belongs_to_node(pod):
            moves.append(Arrival(_unbound(pod), lasts_ns=workload.lasts_ns.get(pod.metadata.uid)))
        else:
            stays.append(pod)
    stays += (pod for pod in daemons if pod.spec.node_name)
    moves = [*(Arrival(pod) for pod in daemons if not pod.spec.node_name), *moves]
    arrivals = [
        arrival
        for arrival in workload.arrivals
        if _name(arrival.pod) not in deleted
        and not (belongs_to_node(arrival.pod) and daemon_node_of(arrival.pod) in gone)
    ]
    leaving = {pod.metadata.uid for pod in workload.placed} - {p.metadata.uid for p in stays}
    related = _remove_leaving(leaving, workload.related, deleted)
    related += slices
    happened = [h for h in workload.happened if _name(h.object) not in deleted]
    for obj in edit.add:
        if isinstance(obj, Pod) and not obj.spec.node_name:
            arrivals.append(Arrival(obj))
        elif isinstance(obj, Pod):
            if obj.spec.node_name not in names:
                raise InvalidObject("spec.nodeName", obj.spec.node_name, "an existing node")
            stays.append(obj)
        elif isinstance(obj, Background):
            related.append(obj)
    return Workload(
        tuple(nodes), tuple(stays), (*moves, *arrivals), workload.at_once, tuple(related),
        tuple(happened), workload.is_history, workload.lasts_ns,
    )  # fmt: skip


def compare(
    before: tuple[Workload, Engine],
    after: tuple[Workload, Engine],
    progress: Callable[[int, int], None] | None = None,
    drivers: Sequence[RecordedDriver] = (),
    nodes_were: Mapping[str, str] | None = None,
    prices: Callable[[Node], float] | None = None,
) -> Comparison:
    """Run both. `drivers`: allocate what is negotiated, in both runs; `nodes_were`: by uid, where
    pods were in truth, "" for nowhere; `prices`: of a node, for an hour."""
    total = len(before[0].arrivals) + len(after[0].arrivals)
    done = 0

    def on_arrival(_: int) -> None:
        nonlocal done
        done += 1
        if progress is not None and done % 100 == 0:
            progress(done, total)

    was = _Run(*before, on_arrival, drivers, nodes_were or {})
    will = _Run(*after, on_arrival, drivers)
    one, other, waiting = was.find_nodes(), will.find_nodes(), will.describe_waiting()
    moved, placed, added, removed = [], [], [], []
    pending: list[Difference] = []
    lost: list[Difference] = []
    waits = will.list_pending()
    for uid, key in sorted((was.keys | will.keys).items(), key=lambda item: (item[1], item[0])):
        why = "" if other.get(uid) else waiting.get(uid, "")
        difference = Difference(key, one.get(uid, ""), other.get(uid, ""), why)
        if uid not in one:
            added.append(difference)
        elif uid not in other:
            removed.append(difference)
        elif one[uid] == other[uid]:
            continue
        elif not one[uid]:
            placed.append(difference)
        elif not other[uid]:
            (pending if uid in waits else lost).append(difference)
        else:
            moved.append(difference)
    evicted = {pod.key for pod in will.world.evicted} - {pod.key for pod in was.world.evicted}
    outcome = will.outcome(prices)
    outcome = msgspec.structs.replace(outcome, removed=len(removed))
    return Comparison(
        was.outcome(prices), outcome, tuple(moved), tuple(placed), tuple(pending), tuple(lost),
        tuple(added), tuple(removed), tuple(sorted(evicted)), was.unlike(),
    )  # fmt: skip


def settled(workload: Workload, engine: Engine) -> Workload:
    """The workload once all pods that can have a node have it: these pods run, the others wait."""
    run = _Run(workload, engine, lambda _: None, ())
    pods = [*run.world.pods.values()]
    waiting = tuple(Arrival(pod) for pod in pods if not pod.spec.node_name)
    related = tuple(obj for obj in workload.related if not isinstance(obj, ResourceClaim))
    return msgspec.structs.replace(
        workload,
        placed=tuple(pod for pod in pods if pod.spec.node_name),
        arrivals=waiting,
        related=(*related, *run.world.claims),
    )


class _Run:
    """A workload that was run."""

    def __init__(
        self,
        workload: Workload,
        engine: Engine,
        arrived: Callable[[int], None],
        drivers: Sequence[RecordedDriver],
        nodes_were: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`nodes_were`: see compare."""
        self._nodes_were = nodes_were
        self._scores: dict[str, dict[str, int]] = {}  # of pods that go elsewhere than they were
        engine.cycle.keeps_details |= bool(nodes_were)
        self._last: dict[str, Decision] = {}
        self._waited_ns: dict[str, int] = {}
        self._came_ns = {a.pod.metadata.uid: a.at_ns for a in workload.arrivals}
        self._workload = workload
        self._node_of: dict[str, str] = {}
        others = (h.object for h in workload.happened if isinstance(h.object, Pod))
        pods = (*workload.placed, *(a.pod for a in workload.arrivals), *others)
        self.keys = {pod.metadata.uid: pod.key for pod in pods}
        there = {node.metadata.name for node in workload.nodes}
        there |= {h.object.metadata.name for h in workload.happened if isinstance(h.object, Node)}
        self._node_of |= {
            pod.metadata.uid: pod.spec.node_name for pod in pods if pod.spec.node_name in there
        }
        self.world = World(engine, self._on_decision, returns=True, drivers=drivers)
        if not workload.is_history:
            pods = (*workload.placed, *(a.pod for a in workload.arrivals))
            self.world.start(workload.nodes, pods, workload.related)
            self.world.settle()
            # Whoever was evicted has made room by now.
            self.world.advance(2 * engine.limits.backoff_max_ns)
            arrived(len(workload.arrivals))
        else:
            run_timed(self.world, workload, arrived)

    def _on_decision(self, decision: Decision) -> None:
        self._last[decision.uid] = decision
        if decision.node_name:
            uid = _find_original_uid(decision.uid)
            self._node_of[uid] = decision.node_name
            if self._nodes_were.get(uid, decision.node_name) != decision.node_name:
                self._scores[uid] = dict(decision.scores)
            if decision.uid in self._came_ns:
                self._waited_ns[uid] = decision.at_ns - self._came_ns[uid]

    def find_nodes(self) -> dict[str, str]:
        """By uid, the node that each pod has, or had when it ended; "" for none. A pod that a
        controller made in the place of another counts as that."""
        now = {_find_original_uid(pod.metadata.uid): pod for pod in self.world.pods.values()}
        fates = {}
        for uid in self.keys:
            if uid in now:
                fates[uid] = now[uid].spec.node_name
            else:
                is_lost = self.world.find_stand_in(uid) in self.world.lost
                fates[uid] = "" if is_lost else self._node_of.get(uid, "")
        return fates

    def describe_waiting(self) -> dict[str, str]:
        """Why each pod waits that does, or what became of it."""
        why = dict.fromkeys(self.keys, "deleted before it had a node")
        why |= {_find_original_uid(pod.metadata.uid): "evicted" for pod in self.world.evicted}
        for pod in self.world.list_pending():
            decision = self._last.get(pod.metadata.uid)
            uid = pod.metadata.uid
            message = (
                untried_reason(self.world.engine, pod) if decision is None else decision.message
            )
            why[_find_original_uid(uid)] = message
        return why

    def list_pending(self) -> set[str]:
        """Who waits, by uid."""
        return {_find_original_uid(pod.metadata.uid) for pod in self.world.list_pending()}

    def unlike(self) -> tuple[Difference, ...]:
        """The pods that are elsewhere than they were in truth."""
        nodes, waiting, found = self.find_nodes(), self.describe_waiting(), []
        for uid, before in self._nodes_were.items():
            after = nodes.get(uid, before)
            if after != before:
                why = self._why_elsewhere(uid, before, after) if after else waiting.get(uid, "")
                found.append(Difference(self.keys[uid], before, after, why))
        return tuple(sorted(found, key=lambda one: one.pod))

    def _why_elsewhere(self, uid: str, before: str, after: str) -> str:
        """Why a pod has another node than it had."""
        if not before:
            return "it had no node, up to its deletion or the end"
        scores = self._scores.get(uid, {})
        if after not in scores:
            return "others placed it there"
        other = f"scored {scores[before]:,}" if before in scores else "was not among the best"
        return f"{after} scored {scores[after]:,} when it was tried, {before} {other}"

    def outcome(self, prices: Callable[[Node], float] | None = None) -> Outcome:
        """In figures. `prices`: of a node, for an hour."""
        end_ns = self.world.now_ns
        waiting = {_find_original_uid(pod.metadata.uid) for pod in self.world.list_pending()}
        still_ns = sum(max(0, end_ns - self._came_ns.get(uid, end_ns)) for uid in waiting)
        hours = node_hours(self._workload, end_ns)
        cost = None
        if prices is not None:
            cost = round(sum(prices(node) * hours_of for node, hours_of in hours), 4)
        state, fates = self.world.engine.state, self.find_nodes()
        now = {_find_original_uid(pod.metadata.uid) for pod in self.world.pods.values()}
        pending = len(self.world.list_pending())
        running = sum(bool(fates[uid]) for uid in now)
        ended = sum(bool(node) for uid, node in fates.items() if uid not in now)
        return Outcome(
            nodes=state.node_count,
            empty_nodes=sum(not state.pods_by_row[row] for row in state.present_rows()),
            pods=len(fates),
            running=running,
            ended=ended,
            pending=pending,
            lost=len(fates) - running - ended - pending,
            evictions=len(self.world.evicted),
            use=use_of(state),
            waited_seconds=round(sum(self._waited_ns.values()) / 1e9, 3),
            still_waiting_seconds=round(still_ns / 1e9, 3) if self._workload.is_history else 0.0,
            node_hours=round(sum(hours_of for _, hours_of in hours), 4),
            cost=cost,
        )


def _find_original_uid(uid: str) -> str:
    """The uid of the pod in whose place, perhaps more than once, this one was made."""
    while uid.endswith(AGAIN):
        uid = uid.removesuffix(AGAIN)
    return uid


def _claims_of_deleted(
    workload: Workload, deleted: Container[tuple[str, str]]
) -> set[tuple[str, str]]:
    """The own claims of deleted pods, which go with them."""
    objects = [*_list_objects(workload)]
    owners = {obj.metadata.uid for obj in objects if isinstance(obj, Pod) and _name(obj) in deleted}
    claims = (obj for obj in objects if isinstance(obj, ResourceClaim | PersistentVolumeClaim))
    return {_name(claim) for claim in claims if claim.metadata.controller_uid in owners}


def _remove_leaving(
    leaving: Container[str], related: Iterable[Background], deleted: Container[tuple[str, str]]
) -> list[Background]:
    """What is not deleted; claims without the pods that leave."""
    found: list[Background] = []
    for obj in related:
        kept = release_claim(obj, leaving) if isinstance(obj, ResourceClaim) else obj
        if kept is not None and _name(obj) not in deleted:
            found.append(kept)
    return found


def _copies(
    workload: Workload, edit: Edit, taken: set[str]
) -> tuple[list[tuple[str, Node]], list[ResourceSlice]]:
    """New nodes like others, under names that are not taken, each with the name of the node that it
    is like; and their devices."""
    known = [*workload.nodes, *(h.object for h in workload.happened if isinstance(h.object, Node))]
    by_name: Mapping[str, Node] = {node.metadata.name: node for node in known}
    made: list[tuple[str, Node]] = []
    slices: list[ResourceSlice] = []
    for count, like in edit.add_nodes:
        if like and like not in by_name:
            raise InvalidObject("node", like, f"one of the {len(by_name)} nodes given")
        if not by_name:
            raise InvalidObject("--add-nodes", count, "a cluster with a node to copy")
        model = by_name[like] if like else _commonest([*by_name.values()])
        for _ in range(count):
            node = copy_of_node(model, taken)
            made.append((model.metadata.name, node))
            slices += slices_of_copy(workload.related, model, node)
    return made, slices


def _commonest(nodes: Sequence[Node]) -> Node:
    """The first of those of which there are most, by what they have to give."""
    shapes: dict[bytes, list[Node]] = {}
    for node in nodes:
        taints = node.spec.taints or ()
        key = msgspec.json.encode((sorted((node.status.allocatable or {}).items()), taints))
        shapes.setdefault(key, []).append(node)
    return max(shapes.values(), key=len)[0]


def _list_objects(workload: Workload) -> list[ApiObject]:
    pods = [arrival.pod for arrival in workload.arrivals]
    happened = [h.object for h in workload.happened]
    return [*workload.nodes, *workload.placed, *pods, *workload.related, *happened]


def _name(obj: ApiObject) -> tuple[str, str]:
    kind = KIND_BY_VIEW[type(obj)].name.lower()
    return kind, obj.metadata.key


def _parse_target(text: str) -> tuple[str, str]:
    kind, _, key = text.partition("/")
    return kind.lower(), key


def _unbound(pod: Pod) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name="")
    status = PodStatus("Pending", resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, spec=spec, status=status)
