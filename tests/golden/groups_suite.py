"""Trees of pod groups: instances with proven answers, and cycles recorded from kube-scheduler.

The engine is told of the objects, and what it binds is checked by the rules of INSTANCES.md, from
the objects alone: nothing of the search is used.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from stower.assembly import build_engine, build_profiles
from stower.engine.cycle.reference import judge
from stower.engine.engine import Engine
from stower.engine.queue.entities import Place
from stower.framework.configuration import read_configuration
from stower.framework.events import Listed, Tick, WriteOk
from stower.framework.plugin import Features
from stower.framework.writes import Bind, Write
from stower.groups.feasibility import Feasibility, feasibility
from stower.groups.problem_builder import DomainConflictError, domains_of
from stower.groups.tree import tree_of
from stower.model.kinds import KIND_BY_NAME, SELECTING, Node, Pod
from stower.model.quantity import parse_quantity
from stower.model.raw import decode
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey

Case = dict[str, Any]
Object = dict[str, Any]
V1ALPHA2 = "scheduling.k8s.io/v1alpha2"
RESOURCES = ("cpu", "memory", "example.com/gpu", "pods")
# At least this share of the most pods that there is a placement for.
ENOUGH = 0.99
STEPS_MAX = 200


def viewed(data: Object) -> Any:
    """The typed view of an object; what has no uid gets one."""
    meta = {"uid": f"{data['kind']}-{data['metadata']['name']}", **data["metadata"]}
    kind = KIND_BY_NAME[data["apiVersion"], data["kind"]]
    return decode(json.dumps({**data, "metadata": meta}).encode(), kind.view)


def bound(objects: Iterable[Object]) -> dict[str, str]:
    """What an engine binds that is told of these objects, and whose writes are carried out."""
    known = [o for o in objects if (o["apiVersion"], o["kind"]) in KIND_BY_NAME]
    engine = build_engine()
    return carried_out(engine, engine.step(Listed(tuple(map(viewed, known))), 0))


def carried_out(engine: Engine, writes: list[Write]) -> dict[str, str]:
    """The bindings among writes and what follows from them: by pod, the node."""
    found: dict[str, str] = {}
    for _ in range(STEPS_MAX):
        answers = [WriteOk(write.id) for write in writes]
        found |= {w.name: w.node_name for w in writes if isinstance(w, Bind)}
        if not answers:
            break
        writes = [write for answer in answers for write in engine.step(answer, 0)]
        writes += engine.step(Tick(), 0)
    return found


def requests(pod: Object) -> dict[str, int]:
    """What a pod takes of a node: thousandths of all resources."""
    total = dict.fromkeys(RESOURCES, 0)
    total["pods"] = 1_000
    for container in pod["spec"]["containers"]:
        for name, text in container.get("resources", {}).get("requests", {}).items():
            total[name] = total.get(name, 0) + amount(text)
    return total


def amount(text: str) -> int:
    """In thousandths."""
    return parse_quantity(text).scaled(-3)


class Rules:
    """The rules of INSTANCES.md over one case."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = list(objects)
        self.nodes = {o["metadata"]["name"]: o for o in self.objects if o["kind"] == "Node"}
        self.groups = {
            o["metadata"]["name"]: o
            for o in self.objects
            if o["kind"] in ("PodGroup", "CompositePodGroup")
        }
        pods = [o for o in self.objects if o["kind"] == "Pod"]
        self.running = [p for p in pods if p["spec"].get("nodeName")]
        self.pending = {p["metadata"]["name"]: p for p in pods if not p["spec"].get("nodeName")}

    def broken(self, placed: dict[str, str]) -> Iterator[str]:
        """Which rules a placement breaks."""
        yield from self._overfull(placed)
        counts = dict.fromkeys(self.groups, 0)
        domains: dict[str, set[str | None]] = {name: set() for name in self.groups}
        for name, node in placed.items():
            pod = self.pending[name]
            labels = self.nodes[node]["metadata"].get("labels", {})
            for key, value in pod["spec"].get("nodeSelector", {}).items():
                if labels.get(key) != value:
                    yield f"{name} is on {node}, which is not {key}={value}"
            group = pod["spec"]["schedulingGroup"]["podGroupName"]
            while group:
                counts[group] += 1
                if key := self._key(group):
                    domains[group].add(labels.get(key))
                group = self.groups[group]["spec"].get("parentCompositePodGroupName")
        for group, found in domains.items():
            if len(found) > 1 or None in found:
                yield f"{group} is in {sorted(map(str, found))}"
        for group, count in counts.items():
            if count and not self.admitted(group, placed):
                yield f"{group} has pods placed, and not its minimum"

    def _overfull(self, placed: dict[str, str]) -> Iterator[str]:
        used: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        both = [(p, p["spec"]["nodeName"]) for p in self.running]
        both += [(self.pending[name], node) for name, node in placed.items()]
        for pod, node in both:
            for name, taken in requests(pod).items():
                used[node][name] = used[node].get(name, 0) + taken
        for node, amounts in used.items():
            room = self.nodes[node]["status"]["allocatable"]
            for name, taken in amounts.items():
                if taken > amount(room.get(name, "0")):
                    yield f"{node} has too little {name}"

    def _key(self, group: str) -> str:
        constraints = self.groups[group]["spec"].get("schedulingConstraints") or {}
        topology = constraints.get("topology") or []
        return topology[0]["key"] if topology else ""

    def admitted(self, group: str, placed: dict[str, str]) -> bool:
        """Whether a group has its minimum."""
        policy = self.groups[group]["spec"]["schedulingPolicy"].get("gang", {})
        if self.groups[group]["kind"] == "PodGroup":
            own = [
                name
                for name in placed
                if self.pending[name]["spec"]["schedulingGroup"]["podGroupName"] == group
            ]
            return len(own) >= policy.get("minCount", 1)
        children = [
            name
            for name, other in self.groups.items()
            if other["spec"].get("parentCompositePodGroupName") == group
        ]
        count = sum(self.admitted(child, placed) for child in children)
        return count >= policy.get("minGroupCount", 1)

    @property
    def root(self) -> str:
        """The one group without a parent."""
        (root,) = (
            name
            for name, group in self.groups.items()
            if not group["spec"].get("parentCompositePodGroupName")
        )
        return root


def groups(case: Case) -> Iterator[str]:
    """An instance: the answer, the placement, the number of pods."""
    expect = case["expect"]
    rules = Rules(case["objects"])
    placed = bound(case["objects"])
    yield from rules.broken(placed)
    feasible = bool(placed) and rules.admitted(rules.root, placed)
    if feasible != expect["feasible"]:
        yield f"feasible: {feasible}, want {expect['feasible']}"
    most = expect.get("maxPods")
    share = 0.98 if case["size"] == "hard" else ENOUGH
    if most is not None and len(placed) < share * most:
        yield f"{len(placed)} pods are placed, want {share:.0%} of {most}"


def groups_plugin(case: Case) -> Iterator[str]:
    """One recorded cycle, or a row of the plugins' own tables."""
    yield from {
        "podGroupCycle": _cycle,
        "gangFlow": _gang_flow,
        "generatePlacements": _placements,
        "scorePlacement": _score,
    }[case["kind"]](case)


def _cycle(case: Case) -> Iterator[str]:
    world = Waiting(case["objects"], case["pods"])
    expect = case["expect"]
    if world.is_gated != ("preEnqueue" in expect):
        yield f"gated: {world.is_gated}, want {'preEnqueue' in expect}"
    if world.is_gated and world.bound:
        yield "a pod is bound that is gated"
    recorded = [expect, *case.get("otherOutcomes", [])]
    least = min(
        len(e.get("placed", ())) if e.get("group", {}).get("code") == "Success" else 0
        for e in recorded
    )
    if len(world.bound) < least:
        yield f"{len(world.bound)} pods are placed, want at least {least}"
    yield from world.broken(case.get("topologyKey", "") if case["topologyAware"] else "")


class Waiting:
    """A recorded group, its engine, and what was bound."""

    def __init__(self, objects: Iterable[Object], pods: Iterable[Object]) -> None:
        self._objects = [*objects]
        self._pods = [*pods]
        self.engine = build_engine()
        views = [viewed(o) for o in (*self._objects, *self._pods)]
        self.bound = carried_out(self.engine, self.engine.step(Listed(tuple(views)), 0))
        places = {queued.place for queued in self.engine.queue.pods()}
        trees = {q.tree.place for q in self.engine.queue.pods() if q.tree is not None}
        self.is_gated = bool(places) and trees == {Place.GATED}

    def broken(self, topology_key: str) -> Iterator[str]:
        """Which rules what was bound breaks: each pod must be one that all filters let in, in some
        order; the group's minimum and its domain."""
        if not self.bound:
            return
        by_name = {p["metadata"]["name"]: p for p in self._pods}
        (group,) = (o for o in self._objects if o["kind"] == "PodGroup")
        running = [
            o
            for o in self._objects
            if o["kind"] == "Pod" and (o["spec"].get("schedulingGroup") or {}).get("podGroupName")
        ]
        gang = group["spec"]["schedulingPolicy"].get("gang")
        have = len(self.bound) + len(running)
        if gang is not None and have < gang["minCount"]:
            yield f"{have} pods of at least {gang['minCount']}"
        nodes = {o["metadata"]["name"]: o for o in self._objects if o["kind"] == "Node"}
        if topology_key:
            on = [*self.bound.values(), *(p["spec"]["nodeName"] for p in running)]
            values = {nodes[name]["metadata"].get("labels", {}).get(topology_key) for name in on}
            if len(values) != 1 or None in values:
                yield f"in domains {values}"
        yield from self._refused(by_name)

    def _refused(self, by_name: dict[str, Object]) -> Iterator[str]:
        profile = next(iter(build_profiles(read_configuration(None), Features()).values()))
        state = ClusterState()
        for data in self._objects:
            view = viewed(data)
            if isinstance(view, Node):
                state.set_node(view)
            elif isinstance(view, SELECTING):
                state.pod_selectors.put(view)
        for data in self._objects:
            view = viewed(data)
            if isinstance(view, Pod):
                state.add_placed(view)
        left = dict(sorted(self.bound.items()))
        while left:
            for name, node in left.items():
                entry = state.add_pending(viewed(by_name[name]))
                row = state.row_of(node)
                if judge(profile, state, entry.shape, entry.pod).feasible[row]:
                    state.assume(entry, row)
                    del left[name]
                    break
                state.remove_pod(entry)
            else:
                yield f"{', '.join(left)}: refused by the filters"
                return


def _gang_flow(case: Case) -> Iterator[str]:
    """The table of the gang's own rules: may it be tried, and is it complete."""
    objects = [{"apiVersion": V1ALPHA2, "kind": "PodGroup", **g} for g in case["podGroups"]]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", **p} for p in (case["pod"], *case.get("otherPods", []))
    ]
    name, expect = case["pod"]["metadata"]["name"], case["expect"]
    world = Waiting(objects, pods)
    queued = world.engine.queue.get(
        f"Pod-{name}" if not case["pod"]["metadata"].get("uid") else name
    )
    assert queued is not None
    missing = queued.tree.waits_for if queued.tree is not None else ""
    reasons = expect["preEnqueue"].get("reasons", [""])
    if [missing] != reasons:
        yield f"PreEnqueue: {missing!r}, want {reasons}"
    if "permit" not in expect:
        return
    group = (case["pod"]["spec"].get("schedulingGroup") or {}).get("podGroupName")
    waiting = {name, *case.get("podsWaitingOnPermit", [])}
    members = [
        p["metadata"]["name"]
        for p in pods
        if (p["spec"].get("schedulingGroup") or {}).get("podGroupName") == group
    ]
    found = Feasibility.SUCCESS
    if group:
        (obj,) = (viewed(o) for o in objects if o["metadata"]["name"] == group)
        placed = sum(member in waiting for member in members)
        found = feasibility(obj.minimum, placed, len(members) - placed, 0)
        if found is Feasibility.SUCCESS and obj.is_gang:
            allowed = sorted(member for member in members if member in waiting)
            if allowed != sorted(expect.get("allowedPods", [])):
                yield f"allowed: {allowed}"
    if found.value != expect["permit"]["code"]:
        yield f"Permit: {found.value}, want {expect['permit']['code']}"


def _placements(case: Case) -> Iterator[str]:
    """The domains of a group among these nodes."""
    state = ClusterState()
    inside = [n["metadata"]["name"] for n in case["placementNodes"]]
    for node in (*case["placementNodes"], *case.get("otherNodes", [])):
        state.set_node(viewed({"apiVersion": "v1", "kind": "Node", **node}))
    group = {"apiVersion": V1ALPHA2, "kind": "PodGroup", **case["podGroup"]}
    state.groups.put(viewed(group))
    meta = case["podGroup"]["metadata"]
    for name, node in case.get("scheduledGroupPods", {}).items():
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "spec": {"nodeName": node, "schedulingGroup": {"podGroupName": meta["name"]}},
        }  # fmt: skip
        state.add_placed(viewed(pod))
    tree = tree_of(state.groups, GroupKey(False, f"{meta['namespace']}/{meta['name']}"))
    expect = case["expect"]
    try:
        found = domains_of(state, tree, 0, np.array(state.rows_of(inside), np.int64))
    except DomainConflictError as error:
        told = f"cannot determine domain for already scheduled pods: {error}"
        if expect["code"] != "Error":
            yield told
        return
    names = {name: sorted(state.node_names[row] for row in rows) for name, rows in found.items()}
    if not tree.groups[0].topology:
        names = {case["parentPlacement"]: names[""]}
    want = {name: sorted(nodes) for name, nodes in expect["placements"].items()}
    if expect["code"] != "Success" or names != want:
        yield f"{names}, want {want}"


def _score(case: Case) -> Iterator[str]:
    """More pods are better, and nothing else counts."""
    count = case["assignedPods"] + case["assumedPods"] + case["proposedPods"]
    if count != case["expect"]["score"]:
        yield f"{count}, want {case['expect']['score']}"
