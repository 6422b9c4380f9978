"""Suite dra_schedule: what becomes of one pod with claims, from the queue to its binding.

The engine has other phases than upstream, so what can be seen of them is compared: whether the pod
waits, which nodes it may go to, their scores, what is taken from the moment of the decision, and
the claims as they are written, or given back.
"""

import json
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.devices.fit_cache import GAVE_UP, NO_DEVICES
from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.device_gates import DeviceGates
from stower.framework.events import Hold, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.plugin import Features
from stower.framework.plugin_guard import PluginError
from stower.framework.writes import (
    Bind,
    CreateObject,
    DeleteObject,
    PatchObject,
    PatchPodStatus,
    Write,
)
from stower.model.kinds import KIND_BY_NAME, ResourceClaim
from stower.model.kinds.resource_claim import EXTENDED_RESOURCE_CLAIM
from stower.model.raw import decode
from stower.model.times import time_ns
from stower.plugins.dynamic_resources import REASONS, DynamicResources
from stower.sim.changes import make_object, merged, patched
from stower.state.pod_entry import PodEntry

Case = dict[str, Any]
# When the cases were recorded: times in them are relative to it.
RECORDED_AT: Final = "2026-11-21T02:41:04Z"
SHARE: Final = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
STEPS_MAX: Final = 100
REFUSED: Final = 400
# In what upstream says of a search that was stopped.
TIMED_OUT: Final = "timed out trying to allocate devices"
STOPPED: Final = "asked by caller to stop"
# Of a write that is refused, by how upstream begins to tell of it.
FAULTS: Final = (
    ("create claim for extended resources", CreateObject),
    ("update pod", PatchPodStatus),
    ("add ", PatchObject),
)


def features_of(names: list[str]) -> Features:
    """The gates of a case, all others off."""
    binding = {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"}
    gates = DeviceGates(
        "DRAAdminAccess" in names,
        "DRAPrioritizedList" in names,
        "DRAPartitionableDevices" in names,
        "DRADeviceTaints" in names,
        binding <= {*names},
        "DRAConsumableCapacity" in names,
        "DRAListTypeAttributes" in names,
        "DRAExtendedResource" in names,
        "DRAWorkloadResourceClaims" in names,
        "DRANodeAllocatableResources" in names,
    )
    is_on = "DynamicResourceAllocation" in names
    return Features(dynamic_resource_allocation=is_on, devices=gates)


def configuration(args: Case | None) -> Case:
    """Only the plugin; devices in upstream's order."""
    enabled = [{"name": name} for name in ("PrioritySort", "DynamicResources", "DefaultBinder")]
    given = {**(args or {}), "deviceOrder": "FirstFit"}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
                "pluginConfig": [{"name": "DynamicResources", "args": given}],
            }
        ],
    }


class Run:
    """One pod's way through the engine, on an API that does what it is told."""

    def __init__(self, case: Case) -> None:
        self.engine = build_engine(
            configuration(case.get("args")), features=features_of(case["features"])
        )
        self.now_ns = time_ns(RECORDED_AT) or 0
        self.objects: dict[str, Any] = {}
        self.asked: deque[Write] = deque()
        self.bind: Bind | None = None  # asked for, and not answered
        self.waited_with: list[ResourceClaim] = []  # claims as they were when only time could help
        self.refuses: Any = lambda write: ""  # why, or ""
        self._version = 0
        self.pod = self._view({"kind": "Pod", "apiVersion": "v1", **case["pod"]})
        for data in case["objects"]:
            if (data["apiVersion"], data["kind"]) in KIND_BY_NAME:
                obj = self._view(data)
                if obj.metadata.uid != self.pod.metadata.uid:
                    self._put(obj)
        self._step(Listed(tuple(self.objects.values())))
        self.state = self.engine.state
        for data in case.get("inFlightClaims") or ():
            claim = self._view(data)
            self.state.devices.assume_status(claim.metadata.key, claim.status)
        self.profile = self.engine.profiles["default-scheduler"]

    def _view(self, data: Case) -> Any:
        meta = data["metadata"]
        meta.setdefault("uid", f"uid-of-{data['kind']}-{meta['name']}")
        kind = KIND_BY_NAME[data["apiVersion"], data["kind"]]
        return decode(json.dumps(data).encode(), kind.view)

    def _put(self, obj: Any) -> Any:
        self._version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        obj = self.objects[meta.uid] = msgspec.structs.replace(obj, metadata=meta)
        return obj

    def _step(self, event: Any) -> None:
        self.asked += self.engine.step(event, self.now_ns)

    def start(self) -> None:
        """The pod is there, for one attempt."""
        self._step(Observed(WatchType.ADDED, self._put(self.pod)))
        self._step(Hold(True))

    def change(self, claims: list[Case]) -> None:
        """Somebody else writes claims."""
        for data in claims:
            new = msgspec.convert(data, ResourceClaim)
            for old in self.claims():
                if old.metadata.key == new.metadata.key:
                    changed = msgspec.structs.replace(new, metadata=old.metadata)
                    self._step(Observed(WatchType.MODIFIED, self._put(changed)))

    def claims(self) -> list[ResourceClaim]:
        """All of them, as the API has them."""
        return [obj for obj in self.objects.values() if isinstance(obj, ResourceClaim)]

    def taken(self) -> list[ResourceClaim]:
        """Allocations that were decided on, and are not written yet."""
        seen = {c.metadata.key: c.status.allocation for c in self.claims()}
        decided = [c for c in self.state.devices.claims() if c.status.allocation is not None]
        return [c for c in decided if seen.get(c.metadata.key) is None]

    def settle(self, waits: bool) -> None:
        """Carry out what is written, and what comes of it, up to the binding; `waits`: let time
        pass until then."""
        for _ in range(STEPS_MAX):
            if self.asked:
                self._answer(self.asked.popleft())
            elif waits and self.bind is None and not self.outcomes():
                due_ns = self.engine.next_wake_ns
                if due_ns is None:
                    return
                self.waited_with = self.claims()
                self.now_ns = max(due_ns, self.now_ns + 1)
                self._step(Tick())
            else:
                return

    def refuse_binding(self) -> None:
        """The last write of all fails, for good."""
        if self.bind is not None:
            self._step(WriteFailed(self.bind.id, REFUSED, "refused"))
            self.settle(waits=False)

    def outcomes(self) -> list[str]:
        """What the pod says of attempts that have failed."""
        pod = self.objects[self.pod.metadata.uid]
        return [c.message for c in pod.status.conditions or () if c.type == "PodScheduled"]

    def _answer(self, write: Write) -> None:
        why = self.refuses(write)
        if why:
            self._step(WriteFailed(write.id, REFUSED, why))
            return
        found = self.objects.get(getattr(write, "uid", ""))
        if isinstance(write, CreateObject):
            made = make_object(write, f"uid-of-{write.name}")
            self._changed(WatchType.ADDED, made, write)
        elif isinstance(write, DeleteObject):
            self._step(WriteOk(write.id))
            if found is not None:
                self._step(Observed(WatchType.DELETED, self.objects.pop(write.uid)))
        elif isinstance(write, PatchObject):
            if found is None or found.metadata.resource_version != write.resource_version:
                self._step(WriteFailed(write.id, 409, "conflict"))
                return
            self._changed(WatchType.MODIFIED, merged(found, write), write)
        elif isinstance(write, PatchPodStatus) and found is not None:
            self._changed(WatchType.MODIFIED, patched(found, write), write)
        elif isinstance(write, Bind):
            self.bind = write
        else:
            self._step(WriteOk(write.id))

    def _changed(self, kind: WatchType, obj: Any, write: Write) -> None:
        obj = self._put(obj)
        self._step(WriteOk(write.id, obj.metadata.resource_version))
        self._step(Observed(kind, obj))


# What is compared


def _is_made(claim: ResourceClaim) -> bool:
    return EXTENDED_RESOURCE_CLAIM in (claim.metadata.annotations or {})


def written(claims: list[ResourceClaim]) -> list[Case]:
    """Claims without what no two runs have in common."""
    found = []
    for claim in claims:
        meta = msgspec.structs.replace(
            claim.metadata,
            name="made" if _is_made(claim) else claim.metadata.name,
            uid="",
            resource_version="",
            deletion_timestamp=None,
        )
        data = msgspec.to_builtins(msgspec.structs.replace(claim, metadata=meta))
        status = {name: value for name, value in (data.get("status") or {}).items() if value}
        data = {name: value for name, value in data.items() if name != "status"}
        if status:
            data["status"] = status
        allocation = (data.get("status") or {}).get("allocation") or {}
        if "allocationTimestamp" in allocation:
            allocation["allocationTimestamp"] = "set"
        for result in (allocation.get("devices") or {}).get("results") or ():
            if "shareID" in result:
                result["shareID"] = SHARE
        found.append(data)
    return sorted(found, key=lambda c: c["metadata"]["name"])


def taken(claims: list[ResourceClaim]) -> list[Case]:
    """What is taken by decisions alone."""
    found = []
    for data in written(claims):
        allocation = (data.get("status") or {}).get("allocation") or {}
        allocation.pop("allocationTimestamp", None)
        found.append({"name": data["metadata"]["name"], "spec": data["spec"], "of": allocation})
    return found


def recorded(claims: list[Case]) -> list[ResourceClaim]:
    """Theirs, as typed views."""
    return [msgspec.convert(claim, ResourceClaim) for claim in claims]


def dra_schedule(case: Case) -> Iterator[str]:
    """Differences of one case."""
    run = Run(case)
    phases = case["expect"]["phases"]
    by_name = {phase["phase"]: phase for phase in phases}
    yield from _judged(run, phases, by_name)
    post_filter_message = _post_filter_message(run) if "postFilter" in by_name else None
    before = written(run.claims())
    _inject(run, case, by_name)
    run.start()
    if "reserve" in by_name:
        in_flight = recorded(by_name["reserve"].get("inFlightClaims") or [])
        others = {claim["metadata"]["name"] for claim in case.get("inFlightClaims") or ()}
        ours = [c for c in run.taken() if c.metadata.name not in others]
        theirs = [c for c in in_flight if c.metadata.name not in others]
        yield from differs("reserve", taken(ours), taken(theirs))
    if "externalChange" in by_name:
        run.change(by_name["externalChange"]["claims"])
        before = written(run.claims())
    run.settle(waits="preBind" in by_name)
    if "preBind" in by_name:
        yield from _bound(run, by_name, before)
    elif "unreserveBeforePreBind" in by_name:
        yield from differs("unreserve", written(run.claims()), before)
        yield from differs("unreserve.taken", [c.metadata.name for c in run.taken()], [])
    if post_filter_message is not None:
        expect = by_name["postFilter"]
        yield from differs("postFilter", post_filter_message, (expect.get("reasons") or [""])[0])
        after = written(run.claims())
        theirs_after = written(recorded(expect["claims"])) if "claims" in expect else before
        for claim in (*after, *theirs_after):
            # Nothing sets it here, but the recording has it set in a claim that nobody has touched.
            allocation = (claim.get("status") or {}).get("allocation") or {}
            allocation.pop("allocationTimestamp", None)
        # A list that became empty was not recorded.
        if after or "claims" in expect:
            yield from differs("postFilter.claims", after, theirs_after)


def _inject(run: Run, case: Case, by_name: dict[str, Case]) -> None:
    """Have writes refused where theirs were."""
    if "unreserveBeforePreBind" in by_name:
        run.refuses = partial(_refusal, PatchObject, "no")
    if not any("API errors" in fault for fault in case.get("faults") or ()):
        return
    (reason,) = by_name["preBind"].get("reasons") or [""]
    for text, kind in FAULTS:
        if reason.startswith(text):
            why = reason.rpartition(": ")[2]
            run.refuses = partial(_refusal, kind, why)
            return
    run.refuses = partial(_refusal, PatchObject, "patch")


def _refusal(kind: type, why: str, write: Write) -> str:
    if isinstance(write, PatchPodStatus) and write.extended_resource_claim is None:
        return ""  # upstream does not write it at that point
    return why if isinstance(write, kind) else ""


def _judged(run: Run, phases: list[Case], by_name: dict[str, Case]) -> Iterator[str]:
    """Whether it waits, and which nodes would do."""
    state, profile, pod = run.state, run.profile, run.pod
    refusals = [r for p in profile.pre_enqueue if (r := p.pre_enqueue(pod)) is not None]
    shape = state.shapes.intern(pod)
    error = ""
    verdict = None
    try:
        verdict = reference.judge(profile, state, shape, pod)
    except PluginError as failed:
        error = str(failed)
    if verdict is not None and verdict.pre_filter is not None:
        refusals.append(verdict.pre_filter[1])
    early = [by_name.get(name, {}) for name in ("preEnqueue", "preFilter")]
    theirs = [p["reasons"] for p in early if p.get("code") not in (None, "Success", "Skip")]
    yield from differs("waits", [[*r.reasons] for r in refusals[:1]], theirs)
    filtered = [phase for phase in phases if phase["phase"] == "filter"]
    reasons = [reason for phase in filtered for reason in phase.get("reasons") or ()]
    if any(STOPPED in reason for reason in reasons):
        return  # whoever asked took the question back: nobody can do that here
    if verdict is not None and any(TIMED_OUT in reason for reason in reasons):
        # Time is counted in steps here, of which few may do to know; and other nodes may still do.
        told = [
            why[1].reasons for row in run.state.present_rows() if (why := verdict.rejection(row))
        ]
        known = {(REASONS[GAVE_UP],), (REASONS[NO_DEVICES],)}
        yield from differs("filter", (len(told), {*told} <= known), (len(filtered), True))
        return
    if any(phase["code"] == "Error" for phase in filtered):
        (reason,) = next(phase for phase in filtered if phase["code"] == "Error")["reasons"]
        if not error.endswith(reason):
            yield f"filter: ours {error!r}, theirs {reason!r}"
        return
    if error or verdict is None:
        yield f"filter: {error}"
        return
    for phase in filtered:
        row = state.row_of(phase["node"])
        why = verdict.rejection(row)
        code = why[1].code if why is not None else "Success"
        ours = (code, [*why[1].reasons] if why is not None else [])
        yield from differs(
            f"filter.{phase['node']}", ours, (phase["code"], phase.get("reasons", []))
        )
    yield from _scored(run, verdict, phases, by_name)


def _scored(
    run: Run, verdict: reference.Verdict, phases: list[Case], by_name: dict[str, Case]
) -> Iterator[str]:
    state, pod = run.state, run.pod
    plugin = run.profile.plugins["DynamicResources"]
    assert isinstance(plugin, DynamicResources)
    for phase in phases:
        if phase["phase"] == "score":
            row = state.row_of(phase["node"])
            ours = plugin.raw_score(pod, verdict.shape, state, row)
            yield from differs(f"score.{phase['node']}", ours, phase.get("score", 0))
    if "normalizeScore" in by_name:
        parts = reference.scores(run.profile, state, verdict.shape, pod, verdict.feasible)
        weight = run.profile.weights["DynamicResources"]
        for name, score in by_name["normalizeScore"]["scores"].items():
            own = int(parts["DynamicResources"][state.row_of(name)]) // weight
            yield from differs(f"normalizeScore.{name}", own, score)


def _post_filter_message(run: Run) -> str:
    """What is done about a pod that fits nowhere."""
    entry = PodEntry(run.pod, run.state.shapes.intern(run.pod))
    return SchedulingCycle(run.state, 0).fail(run.profile, entry)[1].message


def _bound(run: Run, by_name: dict[str, Case], before: list[Case]) -> Iterator[str]:
    """What was written before the binding, and whether there is one."""
    expect = by_name["preBind"]
    theirs = written(recorded(expect["claims"])) if "claims" in expect else before
    if expect["code"] == "Success":
        yield from differs("preBind", run.bind is not None, True)
        yield from differs("preBind.claims", written(run.claims()), theirs)
    else:
        (reason,) = expect["reasons"]
        said = (run.outcomes() or [""])[-1].partition('": ')[2]
        if run.waited_with:
            yield from differs("preBind.claims", written(run.waited_with), theirs)
        if run.bind is not None or not said or not (reason.endswith(said) or said.endswith(reason)):
            yield f"preBind: ours {said!r}, theirs {reason!r}"
    own_status = run.objects[run.pod.metadata.uid].status
    told = own_status.extended_resource_claim_status
    ours = json.loads(msgspec.json.encode(told)) if told is not None else None
    statuses = dict(expect.get("podStatus") or {})
    status = statuses.pop("extendedResourceClaimStatus", None)
    taken = own_status.node_allocatable_resource_claim_statuses or ()
    theirs_taken = statuses.pop("nodeAllocatableResourceClaimStatuses", [])
    yield from differs("podStatus.claims", json.loads(msgspec.json.encode(taken)), theirs_taken)
    yield from differs("podStatus of others", {}, statuses)
    for data in (ours, status):
        if data is not None:
            data["resourceClaimName"] = "made"
    yield from differs("podStatus", ours, status)
    failed = by_name.get("unreserveAfterBindFailure")
    if failed is not None:
        run.refuse_binding()
        after = written(recorded(failed["claims"])) if "claims" in failed else theirs
        # A list that became empty was not recorded.
        if run.claims() or "claims" in failed:
            yield from differs("unreserve.claims", written(run.claims()), after)


def differs(what: str, ours: object, theirs: object) -> Iterator[str]:
    """A line where the two are not equal."""
    if ours != theirs:
        yield f"{what}: ours {ours!r}, theirs {theirs!r}"
