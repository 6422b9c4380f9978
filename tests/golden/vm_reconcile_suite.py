"""Suite vms_reconcile: events, extension points and agents' requests, one after another, against an
API server that can be told to fail.

Not compared: `tentativelyScheduled` but at the end, as every step was recorded with what it was
then; what the original logs in Filter and Score, where it is asked for one node at a time,
and we for all of them; and, where it has panicked, the words. Which pods the original's watch store
has lacked is not in the steps: it is read from what was answered.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import msgspec

from stower.api.patches import PatchError, json_patch
from stower.assembly import build_engine
from stower.framework.plugin_guard import PluginError
from stower.framework.reconcile_queue import EventKind, Result
from stower.framework.writes import CreateObject, DeleteObject, JsonPatchObject, Write
from stower.model.kinds import KIND_BY_VIEW, Node, Pod, VirtualMachineMigration
from stower.model.raw import decode
from stower.state.cluster import ClusterState
from stower.vms.agent import PodWait, Response, handle_request
from stower.vms.approval import handle_pod
from stower.vms.config import Config, read_config
from stower.vms.controller import VmScheduling
from stower.vms.enforcer import Answer, Enforcer, NotFoundError, Refusal
from stower.vms.nodes import InvalidHoldingError
from tests.golden.vm_suites import different, shown, shown_node

Case = dict[str, Any]
ENFORCER = "AutoscaleEnforcer"
SECOND_NS = 1_000_000_000
REJECTED = "the server rejected our request due to an error in our request"
LACKS = re.compile(r"with UID (\S+): pod not found in watch store")
UNCOMPARED = ("filter", "score")


class Panic(Exception):
    """A recorded panic's counterpart."""


class _Api:
    """VirtualMachines, and whatever is asked for."""

    def __init__(self) -> None:
        self.vms: dict[str, Case] = {}
        self.failures: list[Case] = []
        self.calls: list[Case] = []
        self.made: set[str] = set()

    def carry_out(self, write: Write) -> Answer:
        """One write."""
        assert isinstance(write, CreateObject | DeleteObject | JsonPatchObject)
        verb = {CreateObject: "create", DeleteObject: "delete"}.get(type(write), "patch")
        call = {
            "verb": verb,
            "resource": KIND_BY_VIEW[write.view].plural,
            "namespace": write.namespace,
            "name": write.name,
        }
        if isinstance(write, CreateObject):
            meta = {**write.body["metadata"], "ownerReferences": None}
            call["body"] = {"metadata": meta, "spec": write.body["spec"]}
        elif isinstance(write, JsonPatchObject):
            call |= {"body": write.operations, "contentType": "application/json-patch+json"}
        else:
            call["preconditions"] = {"uid": write.uid}
        code, message = self._outcome(verb, write)
        call["code"] = code
        if verb == "patch" and not code:
            vm = self.vms[f"{write.namespace}/{write.name}"]
            call["vmAnnotationsAfter"] = vm["metadata"].get("annotations")
        self.calls.append(call)
        return Answer(code, message)

    def _outcome(self, verb: str, write: Write) -> tuple[int, str]:
        assert isinstance(write, CreateObject | DeleteObject | JsonPatchObject)
        for failure in self.failures:
            if failure["verb"] == verb and failure["times"] > 0:
                failure["times"] -= 1
                return failure["code"], failure["message"]
        key = f"{write.namespace}/{write.name}"
        if isinstance(write, JsonPatchObject):
            vm = self.vms.get(key)
            if vm is None:
                return 404, f'virtualmachines.vm.neon.tech "{write.name}" not found'
            try:
                self.vms[key] = json_patch(vm, write.operations)
            except PatchError:
                return 422, f"{REJECTED} ( virtualmachines.vm.neon.tech)"
        elif isinstance(write, CreateObject):
            if key in self.made:
                name = f'virtualmachinemigrations.vm.neon.tech "{write.name}"'
                return 409, f"{name} already exists"
            self.made.add(key)
        return 0, ""


class _World:
    """The enforcer and what is around it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.api = _Api()
        self.pods: dict[str, Case] = {}
        self.nodes: set[str] = set()
        self.lacking: set[str] = set()  # uids of pods
        self.requeued: dict[str, list[str]] = {"requeuedPods": [], "requeuedNodes": []}
        self.enforcer = Enforcer(config, self._requeue_pod, self._requeue_node)

    def _requeue_pod(self, uid: str) -> None:
        if uid in self.lacking or uid not in self.pods:
            found = (known.node.pods.get(uid) for known in self.enforcer.nodes.values())
            name = next((f" {pod.namespace}/{pod.name}" for pod in found if pod is not None), "")
            raise NotFoundError(
                f"could not requeue pod{name} with UID {uid}: pod not found in watch store"
            )
        self.requeued["requeuedPods"].append(uid)

    def _requeue_node(self, name: str) -> None:
        if name not in self.nodes:
            raise NotFoundError(name)
        self.requeued["requeuedNodes"].append(name)

    def run(self, step: Case) -> Case:
        """One step's answer."""
        found: Case = getattr(self, f"do_{step['do']}")(step)
        logs = [{"level": level, "msg": text} for level, text, _ in self.enforcer.notes.drain()]
        calls, self.api.calls = self.api.calls, []
        requeued, self.requeued = self.requeued, {"requeuedPods": [], "requeuedNodes": []}
        return {**found, "logs": logs, "calls": calls, **requeued, "state": self.state()}

    # Steps

    def do_event(self, step: Case) -> Case:
        """An object's event, given to its handler."""
        event = EventKind(step["kind"])
        came = event in (EventKind.ADDED, EventKind.MODIFIED)
        try:
            if "pod" in step:
                pod = step["pod"]
                self._keep(pod, came)
                return self._result(handle_pod(self.enforcer, event, read(pod, Pod)))
            if "nodeObject" in step:
                node = read(step["nodeObject"], Node)
                if came:
                    self.nodes.add(node.metadata.name)
                else:
                    self.nodes.discard(node.metadata.name)
                return self._result(self.enforcer.handle_node(event, node))
            migration = read(step["migration"], VirtualMachineMigration)
            return self._result(self.enforcer.handle_migration(event, migration))
        except InvalidHoldingError as error:
            return {"panic": str(error)}

    def _keep(self, pod: Case, came: bool) -> None:
        if came:
            self.pods[pod["metadata"]["uid"]] = pod
        else:
            self.pods.pop(pod["metadata"]["uid"], None)

    def _result(self, found: Result | Generator[Write, Answer, Result]) -> Case:
        if not isinstance(found, Result):
            found = self._carried(found)
        answer: Case = {"retryAfterSeconds": found.requeue_after_ns / SECOND_NS}
        return {**answer, "error": found.error} if found.error else answer

    def _carried(self, steps: Generator[Write, Answer, Result]) -> Result:
        answer: Any = None
        while True:
            try:
                write = steps.send(answer)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            answer = self.api.carry_out(write)

    def do_finish_startup(self, step: Case) -> Case:
        """All was looked at."""
        self.enforcer.start()
        return {}

    def do_advance(self, step: Case) -> Case:
        """Time passes."""
        self.enforcer.now_ns += round(step["seconds"] * SECOND_NS)
        return {}

    def do_set_vm(self, step: Case) -> Case:
        """A VirtualMachine as it is in the API."""
        meta = step["vm"]["metadata"]
        self.api.vms[f"{meta['namespace']}/{meta['name']}"] = step["vm"]
        return {}

    def do_fail_api(self, step: Case) -> Case:
        """The next calls fail."""
        self.api.failures.append(dict(step["fail"]))
        return {}

    def do_filter(self, step: Case) -> Case:
        """Whether a pod may go to a node that has these pods."""
        state = self._cluster(step["nodeObject"], step.get("nodePods") or ())
        plugin, entry = state.plugin, state.state.add_pending(read(step["pod"], Pod))
        try:
            why = plugin.pre_filter_pod(entry.pod, entry.shape, state.state)
            codes = plugin.filter_pod(entry.pod, entry.shape, state.state)
        except PluginError as error:
            return {"status": {"code": "Error", "reasons": [str(error)]}}
        if why is None and codes is not None and codes[0]:
            why = plugin.rejection(entry.shape, int(codes[0]))
        if why is None:
            return {"status": {"code": "Success", "reasons": None}}
        return {"status": {"code": why.code, "reasons": list(why.reasons)}}

    def do_score(self, step: Case) -> Case:
        """How good a node is for a pod."""
        name = step["nodeName"]
        node = {"metadata": {"name": name}, "status": {"allocatable": {}}}
        state = self._cluster(node, ())
        plugin, entry = state.plugin, state.state.add_pending(read(step["pod"], Pod))
        feasible = state.state.present[state.state.all_rows]
        try:
            read_as = self.enforcer.read_pod_state(entry.pod)
            found = plugin.score_pod(entry.pod, entry.shape, state.state, feasible)
        except PluginError as error:
            return {"status": {"code": "Error", "reasons": [str(error)]}, "score": 0}
        if isinstance(read_as, Refusal):
            return {"status": {"code": read_as.code, "reasons": [read_as.reason]}, "score": 0}
        return {"status": {"code": "Success", "reasons": None}, "score": int(found[0])}

    def _cluster(self, node: Case, pods: Any) -> "_Cluster":
        return _Cluster(self, node, pods)

    def do_reserve(self, step: Case) -> Case:
        """A pod gets a node."""
        pod = read(step["pod"], Pod)
        why = self.enforcer.reserve(pod, step["nodeName"])
        return {"status": _status(why)}

    def do_unreserve(self, step: Case) -> Case:
        """And gives it up."""
        try:
            self.enforcer.unreserve(read(step["pod"], Pod), step["nodeName"])
        except InvalidHoldingError as error:
            return {"panic": str(error)}
        return {}

    def do_postfilter(self, step: Case) -> Case:
        """Nothing is done, and nothing refused, for a pod that fits nowhere."""
        state = self._cluster({"metadata": {"name": "n"}, "status": {"allocatable": {}}}, ())
        pod = read(step["pod"], Pod)
        entry = state.state.add_pending(pod)
        post_filter_result = state.plugin.post_filter(_Failed(pod, entry.shape, state.state))
        return {
            "status": _status(
                Refusal("Error", post_filter_result.message) if post_filter_result.message else None
            )
        }

    def do_agent_request(self, step: Case) -> Case:
        """An agent asks."""
        self._propagates = bool(step.get("propagate"))
        self._reconciled: list[Case] = []
        body = (step.get("body") or "").encode()
        talk = handle_request(self.enforcer, step["method"], body, self._find, lambda uid: 0)
        waited, answer = False, None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as ended:
                response: Response = ended.value
                break
            if isinstance(asked, PodWait):
                # What is to change was changed by the write before.
                answer, waited = not waited and self._changed(), True
                self._timed_out = not answer
            else:
                answer = self.api.carry_out(asked)
                if not answer.code and self._propagates:
                    self._propagate(asked)
        found: Case = {
            "http": {"status": response.status, "body": response.body,
                     "contentType": response.type},
            "waitedTimeout": waited and self._timed_out,
        }  # fmt: skip
        return {**found, "podReconciles": self._reconciled} if self._propagates else found

    def _changed(self) -> bool:
        return bool(self._reconciled)

    def _propagate(self, write: JsonPatchObject) -> None:
        self._copy(write)
        pod = self.pods[write.uid]
        found = self._result(handle_pod(self.enforcer, EventKind.MODIFIED, read(pod, Pod)))
        self._reconciled.append({"uid": write.uid, **found})
        self._copy(write)

    def _copy(self, write: JsonPatchObject) -> None:
        vm = self.api.vms[f"{write.namespace}/{write.name}"]["metadata"]
        pod = self.pods[write.uid]
        own = {**(pod["metadata"].get("annotations") or {}), **(vm.get("annotations") or {})}
        self.pods[write.uid] = {**pod, "metadata": {**pod["metadata"], "annotations": own}}

    def _find(self, namespace: str, name: str) -> Pod | None:
        for pod in self.pods.values():
            if (pod["metadata"].get("namespace", ""), pod["metadata"]["name"]) == (namespace, name):
                found: Pod = read(pod, Pod)
                return found
        return None

    def state(self) -> Case:
        """All that is known."""
        enforcer = self.enforcer
        return {
            "nodes": {
                name: {
                    "pods": {uid: shown(pod) for uid, pod in known.node.pods.items()},
                    "resources": shown_node(known.node),
                    "requestedMigrations": sorted(known.requested),
                    "podsVMPatchedAt": {
                        uid: ns / SECOND_NS for uid, ns in known.patched_ns.items()
                    },
                }
                for name, known in enforcer.nodes.items()
            },
            "tentativelyScheduled": enforcer.tentative.copy(),
            "requeueAfterStartup": sorted(enforcer.awaits_start),
            "startupDone": enforcer.is_started,
            "maxNodeCPU": enforcer.cpu_max,
            "maxNodeMem": enforcer.memory_max,
        }


class _Failed(NamedTuple):
    """As much of a failure as is looked at."""

    pod: Pod
    shape: Any
    state: ClusterState


class _Cluster:
    """What a filter sees: a node, and the pods that are on it."""

    def __init__(self, world: _World, node: Case, pods: Any) -> None:
        profile = {
            "plugins": {"multiPoint": {"enabled": [{"name": ENFORCER}]}},
            "pluginConfig": [{"name": ENFORCER, "args": {
                **msgspec.to_builtins(world.config), "scoring": msgspec.to_builtins(
                    world.config.scoring)}}],
        }  # fmt: skip
        engine = build_engine(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        )
        self.plugin: Any = next(iter(engine.profiles.values())).plugins[ENFORCER]
        self.state: ClusterState = engine.state
        companion: VmScheduling = engine.state.companions[ENFORCER]
        # The same knowledge as the handlers have.
        companion.enforcer = world.enforcer
        companion.ledger._held = world.enforcer.held_state
        companion.ledger._notes = world.enforcer.notes
        world.enforcer.dirty.update(dict.fromkeys(world.enforcer.nodes))
        self.state.set_node(read(node, Node))
        for pod in pods:
            found = read(pod, Pod)
            spec = msgspec.structs.replace(found.spec, node_name=node["metadata"]["name"])
            self.state.add_placed(msgspec.structs.replace(found, spec=spec))


def _status(why: Refusal | None) -> Case:
    if why is None:
        return {"code": "Success", "reasons": None}
    return {"code": why.code, "reasons": [why.reason]}


def read(data: Case, view: type[Any]) -> Any:
    """An object as it is recorded."""
    return decode(json.dumps(data).encode(), view)


def vms_reconcile(case: Case) -> Iterator[str]:
    """All steps, and what was counted."""
    config = read_config(json.dumps(case["config"]))
    config = msgspec.structs.replace(config, migrations_per_node_max=0, migrations_max=0)
    world = _World(config)
    world.lacking.update(LACKS.findall(json.dumps(case["expect"])))
    last = len(case["steps"]) - 1
    for i, (step, expected) in enumerate(zip(case["steps"], case["expect"], strict=True)):
        found, at = world.run(step), f"step {i} ({step['do']}): "
        if "panic" in expected:
            if not (found.get("panic") or found.get("error")) or found["calls"]:
                yield f"{at}no error, theirs a panic: {expected['panic']}"
            expected = {**expected, "panic": found.get("panic")}
            for name in ("error", "retryAfterSeconds", "logs"):
                found.pop(name, None)
                expected.pop(name, None)
        calls = []
        for call in expected["calls"]:
            response = call.pop("response")
            calls.append({**call, "code": response.get("code", 0)})
        expected = {**expected, "calls": calls}
        if step["do"] in UNCOMPARED:
            del found["logs"], expected["logs"]
        if i < last:
            del found["state"]["tentativelyScheduled"], expected["state"]["tentativelyScheduled"]
        yield from different(_loose(found), _loose(expected), at)
    yield from different(counted(world.enforcer), case["finalMetrics"], "metrics: ")


def _loose(answer: Case) -> Case:
    """What comes of maps has no order; of what a decoder says, only where counts."""
    found = {**answer, "requeuedPods": sorted(answer["requeuedPods"])}
    if "error" in found:
        found["error"] = found["error"].partition(" annotation: ")[0]
    status = found.get("status")
    if status and status["reasons"]:
        reasons = [reason.partition(" annotation: ")[0] for reason in status["reasons"]]
        found["status"] = {**status, "reasons": reasons}
    return found


def counted(enforcer: Enforcer) -> Case:
    """Metrics as the suite writes them."""
    found: Case = {}
    for (name, labels), count in enforcer.figures.counters.items():
        text = ",".join(f"{k}={v}" for k, v in labels)
        found[f"{name}{{{text}}}"] = count
    for name, named, value in enforcer.figures.gauges():
        text = ",".join(f"{k}={v}" for k, v in sorted(named.items()))
        found[f"{name}{{{text}}}"] = value
    return found
