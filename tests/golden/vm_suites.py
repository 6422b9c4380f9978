"""Suites vms_*: recorded from neon's scheduler plugin (../shared/golden/vms/README.md).

Where the original has panicked, ours must report an error and write nothing.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from stower.framework.reconcile_queue import (
    EventKind,
    Item,
    MergeError,
    ReconcileQueue,
    Result,
    merge_events,
)
from stower.model.kinds import Pod
from stower.model.raw import decode
from stower.state.journal import Journal
from stower.vms.amounts import CPU_MASK, MEMORY_MASK
from stower.vms.config import BadConfig, Scoring, read_config
from stower.vms.migrations import choose
from stower.vms.nodes import InvalidHoldingError, Use, VmNode
from stower.vms.notes import Notes
from stower.vms.pods import BadPod, Holding, PodState, pod_state
from stower.vms.scoring import fractions, scores

Case = dict[str, Any]


def vms_config(case: Case) -> Iterator[str]:
    """One file."""
    expected = case["expect"]
    try:
        config = read_config(case["text"], "<path>")
    except BadConfig as error:
        wanted, got = expected.get("error", "none"), str(error)
        if wanted.startswith("error decoding"):
            wanted, got = wanted.partition(": ")[0], got.partition(": ")[0]
        if wanted != got:
            yield f"error {got!r}, theirs {wanted!r}"
        return
    if not expected["ok"]:
        yield f"valid, theirs {expected['error']!r}"
        return
    found = msgspec.to_builtins(config)
    for name, value in expected["config"].items():
        if found[name] != value:
            yield f"{name} {found[name]!r}, theirs {value!r}"


def shown(pod: PodState) -> Case:
    """A pod as the suites write it."""

    def amount(holding: Holding) -> Case:
        return {
            "reserved": holding.reserved,
            "requested": holding.requested,
            "factor": holding.factor,
            "overcommit_milli": holding.overcommit,
        }

    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "createdAt": pod.created,
        "vm": pod.vm or None,
        "migratable": pod.migratable,
        "alwaysMigrate": pod.always_migrate,
        "migrating": pod.migrating,
        "cpu": amount(pod.cpu),
        "mem": amount(pod.memory),
    }


def read_pod(data: Case) -> PodState:
    """The other way round."""

    def holding(amount: Case) -> Holding:
        return Holding(
            amount["reserved"], amount["requested"], amount["factor"], amount["overcommit_milli"]
        )

    return PodState(
        data["namespace"], data["name"], data["uid"], data["createdAt"], data["vm"] or "",
        data["migratable"], data["alwaysMigrate"], data["migrating"], holding(data["cpu"]),
        holding(data["mem"]),
    )  # fmt: skip


def vms_pod_state(case: Case) -> Iterator[str]:
    """What one pod says."""
    expected = case["expect"]
    try:
        found = shown(pod_state(decode(json.dumps(case["pod"]).encode(), Pod)))
    except BadPod as error:
        if "error" not in expected:
            yield f"error {str(error)!r}, theirs {expected}"
        elif not expected.get("panic"):
            wanted, got = (text.partition(": ")[0] for text in (expected["error"], str(error)))
            if wanted != got:
                yield f"error {got!r}, theirs {wanted!r}"
        return
    yield from different(found, expected)


def different(found: Any, expected: Any, at: str = "") -> Iterator[str]:
    """What is not as recorded, field by field."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in sorted({*found, *expected}):
            yield from different(found.get(name), expected.get(name), f"{at}{name} ")
    elif found != expected:
        yield f"{at}{found!r}, theirs {expected!r}"


class _Node:
    """One node of the suite node_state."""

    def __init__(self, data: Case) -> None:
        self.journal = Journal()
        self.node = made_node(data, self.journal)

    def run(self, op: Case) -> Case:
        """Carry out one operation."""
        node = self.node
        answer: Case = {}
        if "add" in op:
            node.add(read_pod(op["add"]))
        elif "remove" in op:
            answer["existed"] = node.remove(op["remove"])
        elif "update" in op:
            node.update(read_pod(op["update"]))
        elif "reconcile" in op:
            pod = node.granted(node.pods[op["reconcile"]])
            node.update(pod)
            answer["done"] = all(h.reserved == h.requested for h in (pod.cpu, pod.memory))
            answer["pod"] = shown(pod)
        elif "updateNode" in op:
            answer["changed"] = node.resize(
                made_node({**op["updateNode"], "name": node.name}, self.journal)
            )
        else:
            with self.journal.trial() as trial:
                answer["inner"] = [self.run(inner) for inner in op["speculative"]]
                if op["commit"]:
                    trial.keep()
            return {**answer, "node": shown_node(node)}
        return {**answer, **self.seen()}

    def seen(self) -> Case:
        """The node as it is now, and who would leave."""
        plan: list[str] = []
        choose(self.node, (), self.journal, plan.append, Notes())
        return {"node": shown_node(self.node), "migrationPlan": plan}


def made_node(data: Case, journal: Journal) -> VmNode:
    """A node as the suites write it."""
    uses = [
        Use(mask, data[name], data["watermark"])
        for name, mask in (("cpu", CPU_MASK), ("mem", MEMORY_MASK))
    ]
    return VmNode(data["name"], *uses, data.get("labels") or {}, journal)


def shown_node(node: VmNode) -> Case:
    """The other way round."""

    def amounts(use: Use) -> Case:
        return {
            "total": use.total,
            "reserved": use.reserved,
            "committed": use.committed,
            "watermark": use.watermark,
            "migrating": use.migrating,
            "unmigratedAboveWatermark": use.excess_over_watermark,
        }

    return {
        "cpu": amounts(node.cpu),
        "mem": amounts(node.memory),
        "overBudget": node.is_over,
        "migratablePods": [
            p.uid
            for p in sorted(
                (node.pods[uid] for uid in node.migratable), key=lambda p: (p.created, p.uid)
            )
        ],
        "labels": node.labels,
    }


def vms_node_state(case: Case) -> Iterator[str]:
    """Changes of one node, one after another."""
    world = _Node(case["node"])
    for i, (op, expected) in enumerate(zip(case["ops"], case["expect"], strict=False)):
        try:
            found = world.run(op)
        except InvalidHoldingError as error:
            if "panic" not in str(expected):
                yield f"step {i}: error {error}, theirs {expected}"
            return
        if "panic" in expected:
            yield f"step {i}: {found}, theirs a panic: {expected['panic']}"
            return
        yield from different(found, expected, f"step {i}: ")


def vms_scoring(case: Case) -> Iterator[str]:
    """Scores of some nodes for one pod."""
    scoring = Scoring(case["minUsageScore"], case["maxUsageScore"], case["scorePeak"])
    pod, nodes = case["pod"], case["nodes"]
    found = []
    over = np.zeros(len(nodes), np.bool_)
    for name, scale, largest in (("cpu", 1000, "maxNodeCPU"), ("mem", 1, "maxNodeMem")):
        reserved = np.array([n[name]["reserved"] + pod[name] for n in nodes], np.float64)
        total = np.array([n[name]["total"] for n in nodes], np.float64)
        over |= reserved > total
        found.append(fractions(scoring, reserved / scale, total / scale, case[largest] / scale))
    got = scores(*found, over)
    for i, expected in enumerate(case["expect"]):
        wanted = (expected["score"], expected["overBudget"])
        if wanted != (got[i], over[i]):
            yield f"{nodes[i]['name']}: {(int(got[i]), bool(over[i]))}, theirs {wanted}"
        for name, values in zip(("cpuFraction", "memFraction"), found, strict=True):
            if name in expected and expected[name] != values[i]:
                yield f"{nodes[i]['name']}: {name} {values[i]}, theirs {expected[name]}"


def vms_queue(case: Case) -> Iterator[str]:
    """Merging, waiting after failures, or the queue itself."""
    if case["kind"] == "merge":
        yield from _merge(case)
    elif case["kind"] == "backoff":
        yield from _backoff(case)
    else:
        yield from _sequence(case)


def _merge(case: Case) -> Iterator[str]:
    expected = case["expect"]
    try:
        found = {"merged": merge_events(EventKind(case["older"]), EventKind(case["newer"])).value}
    except MergeError as error:
        found = {"panic": str(error)}
    yield from different(found, expected)


def _outcome(op: Case) -> Result:
    """How a handler ends: who panics says nothing of when to come again."""
    if op.get("panic"):
        return Result(0, "panic: boom")
    return Result(op.get("retryAfterMs", 0) * 1_000_000, "failed" if op.get("error") else "")


def _backoff(case: Case) -> Iterator[str]:
    queue = ReconcileQueue()
    for i, (outcome, expected) in enumerate(zip(case["outcomes"], case["expect"], strict=True)):
        kind, uid = outcome["kind"], outcome["uid"]
        counts = [
            sum(map(len, queue.backoff_entries.values())),
            len(queue.backoff_entries.get(kind, ())),
        ]
        now_ns = i * 1_000_000_000_000
        queue = _alone(queue)
        queue.enqueue(kind, uid, EventKind.MODIFIED, None, now_ns)
        item = queue.dequeue(now_ns)
        assert item is not None
        result = queue.finish(item, _outcome(outcome), now_ns)
        after = [
            sum(map(len, queue.backoff_entries.values())),
            len(queue.backoff_entries.get(kind, ())),
        ]
        said = None
        if counts != after:
            failing = queue.backoff_entries[kind].get(uid)
            times = failing.failure_count if failing is not None else 0
            said = {"global": after[0], "typed": after[1], "kind": kind,
                    "successiveFailures": times}  # fmt: skip
        found = {
            "error": result.error,
            "retryAfterNs": result.requeue_after_ns,
            "statsCallback": said,
        }
        yield from different(found, expected, f"outcome {i}: ")


def _alone(queue: ReconcileQueue) -> ReconcileQueue:
    """The same failures, and nothing that waits."""
    found = ReconcileQueue()
    found.backoff_entries = queue.backoff_entries
    return found


class _Sequence:
    """The queue with a clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.queue = ReconcileQueue()

    def run(self, op: Case) -> Case:
        """One operation."""
        if op["do"] == "advance":
            self.now_ns += op["ms"] * 1_000_000
        elif op["do"] == "enqueue":
            self.now_ns += 1_000_000
            key = (op["kind"], op["uid"])
            try:
                self.queue.enqueue(*key, EventKind(op["event"]), op["rev"], self.now_ns)
            except MergeError as error:
                return {"panic": str(error)}
        else:
            self.now_ns += 7_003
            item = self.queue.dequeue(self.now_ns)
            return {"none": True} if item is None else self._handle(item, op)
        return {}

    def _handle(self, item: Item, op: Case) -> Case:
        waited_ns = self.now_ns - item.due_ns
        ran = {"ran": {**_named(item), "waitedNs": waited_ns}}
        panicked = [text for inner in op.get("during", ()) for text in self.run(inner).values()]
        if panicked:
            ran["ran"]["enqueuePanics"] = panicked
        try:
            self.queue.finish(item, _outcome(op), self.now_ns)
        except MergeError as error:
            return {**ran, "panic": str(error)}
        return ran

    def seen(self) -> Case:
        """The queue as it is now."""
        found = {
            "nowNs": self.now_ns,
            "queued": self.queue.queued_count,
            "pending": self.queue.deferred_count,
        }
        first = self.queue.first
        if first is not None:
            found |= {"next": _named(first), "nextDueNs": first.due_ns}
        return found


def _named(item: Item) -> Case:
    kind, uid = item.key
    return {"event": item.event.value, "kind": kind, "uid": uid, "rev": item.object}


def _sequence(case: Case) -> Iterator[str]:
    world = _Sequence()
    for i, (op, expected) in enumerate(zip(case["ops"], case["expect"], strict=False)):
        found = world.run(op)
        if "nowNs" in expected:
            found |= world.seen()
        else:
            expected.pop("queued")
        yield from different(found, expected, f"step {i}: ")
