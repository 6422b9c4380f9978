"""Compare with answers recorded from Kubernetes: `run.py SUITE FILE...`.

Prints the ids of differing cases and, as its last line, `agree X/Y`; `--show ID` explains one case,
ours beside theirs. Exit code 0 when all agree, 1 when some differ, 2 for bad usage.
"""

import argparse
import atexit
import gzip
import json
import lzma
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stower.assembly import build_profiles
from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.explain.change_search import Change
from stower.engine.explain.explanation import explain as explained
from stower.engine.limits import Limits
from stower.engine.preemption.evaluator import Evaluator
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.cluster_events import CHANGES_BY_KIND
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features
from stower.framework.post_filter import best_candidates
from stower.framework.profile import Profile
from stower.model.kinds import KIND_BY_NAME, SELECTING, Node, Pod, PodDisruptionBudget
from stower.model.raw import decode
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

if not __package__:  # run as a file, from any folder: `tests` is found beside the sources
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.change_steps import apply_steps, key_of
from tests.golden.api_suite import against, api, api_memory
from tests.golden.cluster import ClusterClient, NotEmpty
from tests.golden.device_schedule_suite import dra_schedule
from tests.golden.device_suite import allocator
from tests.golden.groups_suite import groups, groups_plugin
from tests.golden.shadow_suite import shadow
from tests.golden.validation_suite import KINDS, report, validation
from tests.golden.vm_reconcile_suite import vms_reconcile
from tests.golden.vm_suites import vms_config, vms_node_state, vms_pod_state, vms_queue, vms_scoring

Case = dict[str, Any]


class World:
    """The state and the profile of one recorded case."""

    def __init__(self, case: Case) -> None:
        gates = case.get("featureGates") or {}
        features = Features(gates.get("TaintTolerationComparisonOperators", False))
        profiles = build_profiles(read_configuration(case["config"]), features)
        self.profile: Profile = next(iter(profiles.values()))
        self.state = ClusterState()
        for data in case["objects"]:
            if data["kind"] == "Node":
                self.state.set_node(view(data, Node))
            kind = KIND_BY_NAME.get((data["apiVersion"], data["kind"]))
            if kind is not None and kind.view in SELECTING:
                self.state.pod_selectors.put(view(data, kind.view))
            if kind is not None and kind.view in CHANGES_BY_KIND:
                self.state.volumes.put(view(data, kind.view))
            if kind is not None and kind.view is PodDisruptionBudget:
                self.state.budgets.put(view(data, kind.view))
        for data in case["objects"]:
            if data["kind"] == "Pod":
                self.add(view(data, Pod))

    def add(self, pod: Pod) -> None:
        """A pod that runs, or one that waits for room it was promised."""
        if pod.is_terminal:
            return
        if pod.spec.node_name:
            self.state.add_placed(pod)
        elif pod.status.nominated_node_name:
            entry = self.state.add_pending(pod)
            self.state.nominate(entry, pod.status.nominated_node_name)

    def judge(self, pod: Pod) -> "Judged":
        """Ours for one pod that is still to be placed."""
        shape = self.state.shapes.intern(pod, pod.spec.node_name)
        return Judged(self, pod, shape)


class Judged:
    """Our answer, in the form in which theirs was recorded."""

    def __init__(self, world: World, pod: Pod, shape: Shape) -> None:
        state, profile = world.state, world.profile
        self.world = world
        verdict = reference.judge(profile, state, shape, pod)
        feasible = verdict.feasible
        refused = verdict.pre_filter
        self.prefilter = None
        if refused is not None:
            feasible = feasible & False
            plugin, rejection = refused
            self.prefilter = {
                "code": rejection.code,
                "plugin": plugin.name,
                "reasons": sorted(rejection.reasons),
            }
        self.nodes: dict[str, Case] = {}
        self.scores: dict[str, dict[str, int]] = {}
        parts = reference.scores(profile, state, shape, pod, feasible)
        total = reference.total_score(parts, len(feasible))
        for row in state.present_rows():
            name = state.node_names[row]
            if refused is None:
                self.nodes[name] = node_status(verdict.rejection(row))
            if feasible[row]:
                self.scores[name] = {p: int(s[row]) for p, s in parts.items()}
                self.scores[name]["total"] = int(total[row])
        highest = max((s["total"] for s in self.scores.values()), default=0)
        self.best = sorted(n for n, s in self.scores.items() if s["total"] == highest)
        self.message = verdict.diagnosis(state.node_count).message()
        self.verdict = verdict
        self.entry = PodEntry(pod, shape)
        if not state.nominated_pods:
            self._check_cache(pod, shape)

    def whole_message(self) -> str:
        """The condition's text, with what the PostFilter plugins append."""
        diagnosis, post_filter_result = SchedulingCycle(self.world.state, 0).fail(
            self.world.profile, self.entry
        )
        return diagnosis.message(post_filter_result.message)

    def _check_cache(self, pod: Pod, shape: Shape) -> None:
        """The cached cycle must find the same best nodes."""
        state = self.world.state
        entry = PodEntry(pod, shape)
        best = SchedulingCycle(state, 0).scores_of(self.world.profile, entry)
        highest = best.max(initial=-1)
        rows = [r for r in state.present_rows() if highest >= 0 and best[r] == highest]
        names = sorted(state.node_names[row] for row in rows)
        if names != self.best:
            raise AssertionError(f"cached best {names} differs from plain best {self.best}")


def view(data: Case, kind: type[Any]) -> Any:
    """The typed view of a recorded object."""
    return decode(json.dumps(data).encode(), kind)


def node_status(rejection: Any) -> Case:
    """A node's status as recorded."""
    if rejection is None:
        return {"code": "Success"}
    plugin, why = rejection
    status = {"code": why.code, "reasons": sorted(why.reasons)}
    return {**status, "plugin": plugin} if plugin else status


def filter_score(case: Case) -> Iterator[str]:
    """Differences of one filter_score case."""
    world, expect = World(case), case["expect"]
    pod = view(case["pod"], Pod)
    if expect.get("preEnqueue"):
        refusals = [
            {"code": r.code, "plugin": p.name, "reasons": sorted(r.reasons)}
            for p in world.profile.pre_enqueue
            if (r := p.pre_enqueue(pod)) is not None
        ]
        yield from differs("preEnqueue", refusals[:1], [expect["preEnqueue"]])
        return
    ours = world.judge(pod)
    yield from differs("prefilter", ours.prefilter, expect["prefilter"])
    theirs = {}
    for name, status in expect["nodes"].items():
        kept = {"code": status["code"]}
        if status["code"] != "Success":
            kept["reasons"] = sorted(status["reasons"])
            if status.get("plugin"):
                kept["plugin"] = status["plugin"]
        theirs[name] = kept
    yield from differs("nodes", ours.nodes, theirs)
    for name in sorted({*ours.scores, *expect["scores"]}):
        mine, recorded = ours.scores.get(name), expect["scores"].get(name)
        if mine is None or recorded is None:
            yield f"scores.{name}: ours {mine}, theirs {recorded}"
            continue
        for plugin in sorted({*mine, *recorded}):
            yield from differs(
                f"scores.{name}.{plugin}", mine.get(plugin, 0), recorded.get(plugin, 0)
            )
    yield from differs("best", ours.best, sorted(expect["best"] or []))
    if "fitError" in expect:
        yield from differs("fitError", ours.message, expect["fitError"])


def sequence(case: Case) -> Iterator[str]:
    """Differences of one sequence: every step is compared, then theirs is followed."""
    world = World({**case, "objects": case["objects"]})
    placed: dict[str, str] = {}
    for i, step in enumerate(case["steps"]):
        if "addNode" in step:
            world.state.set_node(view(step["addNode"], Node))
        elif "delete" in step:
            uid = placed.pop(step["delete"], "") or uid_of(world.state, step["delete"])
            if uid:
                world.state.remove_pod(world.state.pods[uid])
        else:
            data = step["pod"]
            pod = view(data, Pod)
            ours = world.judge(pod)
            if "chosen" in step:
                yield from differs(f"steps[{i}].best", ours.best, sorted(step["best"]))
                data = {**data, "spec": {**data["spec"], "nodeName": step["chosen"]}}
                bound = view(data, Pod)
                world.state.add_placed(bound)
                placed[bound.key] = bound.metadata.uid
            else:
                yield from differs(f"steps[{i}].fitError", ours.message, step["fitError"])
                whole = ours.whole_message()
                yield from differs(f"steps[{i}].unschedulable", whole, step["unschedulable"])


def preemption(case: Case) -> Iterator[str]:
    """Differences of one preemption: every candidate, the one that is chosen, the message."""
    world, expect = World(case), case["expect"]
    pod = view(case["pod"], Pod)
    ours = world.judge(pod)
    state, profile = world.state, world.profile
    diagnosis, post_filter_result = SchedulingCycle(state, 0).fail(profile, ours.entry)
    if expect.get("none"):
        yield from differs("victims", [v.pod.key for v in post_filter_result.victims], [])
        yield from differs("reason", post_filter_result.message, expect["reason"])
        yield from differs(
            "message", diagnosis.message(post_filter_result.message), expect["message"]
        )
        return
    search = Evaluator(state, b"").failure(profile, ours.entry, ours.verdict)
    found = search.candidates()
    candidates = [
        {
            "node": state.node_names[row],
            "victims": sorted(v.pod.key for v in search.victims(row)),
            "numPDBViolations": violations,
        }
        for row, violations in zip(found.rows.tolist(), found.pdb_violations.tolist(), strict=True)
    ]
    theirs = [{**c, "victims": sorted(c["victims"])} for c in expect["candidates"]]
    for node in sorted({c["node"] for c in (*candidates, *theirs)}):
        mine = next((c for c in candidates if c["node"] == node), None)
        recorded = next((c for c in theirs if c["node"] == node), None)
        yield from differs(f"candidates.{node}", mine, recorded)
    chosen = (
        post_filter_result.nominated_node_name,
        sorted(v.pod.key for v in post_filter_result.victims),
    )
    acceptable = [(c["node"], sorted(c["victims"])) for c in expect["acceptable"]]
    if chosen not in acceptable:
        yield f"chosen: ours {chosen}, theirs one of {acceptable}"
    tied = (
        sorted(state.node_names[row] for row in best_candidates(found).tolist())
        if candidates
        else []
    )
    yield from differs("acceptable", tied, sorted(c["node"] for c in expect["acceptable"]))


def explain(case: Case) -> Iterator[str]:
    """Of a pod that fits nowhere: no change that is told lets it in, tried on a new state."""
    if case["expect"].get("preEnqueue") or case["expect"]["best"]:
        return
    world = World(case)
    state, profile = world.state, world.profile
    pod = view(case["pod"], Pod)
    profiles = {pod.spec.scheduler_name: profile}
    told = explained(pod, state, SchedulingCycle(state, 0), SchedulingQueue(Limits()), profiles)
    tried = []
    for change in told.changes:
        new = changed(case, change)
        after = World(new).judge(view(new["pod"], Pod))
        if after.scores:
            return
        tried.append(f"{'; '.join(change.what)}: {after.message}")
    yield f"no change works for {told.message}: told {tried or 'none'}"


def changed(case: Case, change: Change) -> Case:
    """The case with the change in it."""
    pod = {"apiVersion": "v1", "kind": "Pod", **case["pod"]}
    objects = apply_steps([*case["objects"], pod], change.steps)
    others = [obj for obj in objects if key_of(obj) != key_of(pod)]
    (changed_pod,) = (obj for obj in objects if key_of(obj) == key_of(pod))
    return {**case, "objects": others, "pod": changed_pod}


def uid_of(state: ClusterState, key: str) -> str:
    """The uid of the pod with this namespace/name."""
    return next((uid for uid, entry in state.pods.items() if entry.pod.key == key), "")


def differs(what: str, ours: object, theirs: object) -> Iterator[str]:
    """A line where the two are not equal."""
    if ours != theirs:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            for key in sorted({*ours, *theirs}):
                yield from differs(f"{what}.{key}", ours.get(key), theirs.get(key))
        else:
            yield f"{what}: ours {ours!r}, theirs {theirs!r}"


SUITES: dict[str, Callable[[Case], Iterator[str]]] = {
    "allocator": allocator,
    "api": api,
    "api_memory": api_memory,
    "dra_schedule": dra_schedule,
    "explain": explain,
    "filter_score": filter_score,
    "groups": groups,
    "groups_plugin": groups_plugin,
    "preemption": preemption,
    "sequence": sequence,
    "shadow": shadow,
    "validation": validation,
    "vms_config": vms_config,
    "vms_node_state": vms_node_state,
    "vms_pod_state": vms_pod_state,
    "vms_queue": vms_queue,
    "vms_reconcile": vms_reconcile,
    "vms_scoring": vms_scoring,
}


def differences(suite: str, case: Case) -> list[str]:
    """All differences of a case; a failure of ours is one too."""
    try:
        return list(SUITES[suite](case))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def cases(path: Path) -> Iterator[Case]:
    """The cases of an NDJSON file, plain, gzip or xz."""
    opener: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--show", metavar="ID", help="explain this case: ours beside theirs")
    parser.add_argument(
        "--kubeconfig", type=Path, help="suite api: ask this (empty) cluster instead of ours"
    )
    options = parser.parse_args(arguments)
    if options.kubeconfig is not None:
        if options.suite != "api":
            parser.error("--kubeconfig is for the suite api")
        try:
            cluster = ClusterClient(options.kubeconfig)
        except NotEmpty as error:
            parser.error(str(error))
        atexit.register(cluster.clear)
        SUITES["api"] = lambda case: against(cluster, case)
    missing = [path for path in options.files if not path.is_file()]
    if missing:
        parser.error(f"no such file: {missing[0]}")
    agreed = count = 0
    for path in options.files:
        for case in cases(path):
            if options.show and case["id"] != options.show:
                continue
            if options.kubeconfig is not None and any("op" in s for s in case["steps"]):
                continue  # history is forgotten only where a test can say so
            if options.suite == "validation" and case["kind"] not in KINDS:
                continue  # comes with the other kinds' rules
            found = differences(options.suite, case)
            count += 1
            agreed += not found
            if found and options.show:
                print(f"{case['id']}:", *found, sep="\n  ")
            elif found:
                more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
                print(f"{case['id']}: {found[0]}{more}")
    if options.suite == "validation":
        print(*report(), sep="\n")
    print(f"agree {agreed}/{count}")
    return 0 if agreed == count else 1


if __name__ == "__main__":
    sys.exit(main())
