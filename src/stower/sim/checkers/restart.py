"""Law `restart`: a rebuilt engine takes the same decisions as the running engine."""

from typing import Any

import msgspec

from stower.engine.engine import Engine
from stower.engine.preemption.eviction_pauses import SPARES
from stower.engine.status_reporter import UNSCHEDULABLE
from stower.framework.events import Observed, WatchType
from stower.framework.writes import Bind, CreateEvent, PatchPodStatus, Write
from stower.model.kinds import Pod, PodScheduling
from stower.sim.checkers.checker import Checker, rebuild_engine

PROBES = 6


class Restart(Checker):
    """Nothing is left to do for a new engine, and both place new pods on the same nodes."""

    law = "restart"

    def check_end(self) -> None:
        """Build one, and give both the same pods."""
        lived = next((p for p in self.court.schedulers if p.engine is not None), None)
        if lived is None:
            raise self.violation("no scheduler is leader")
        engine = lived.engine
        assert engine is not None
        now_ns = lived.now_ns
        found = tuple(self.court.server.list_objects())
        fresh, said = rebuild_engine(self.court, found, now_ns)
        if fresh.errors.counts:
            (_, text, about), *_ = fresh.errors.take_log_lines()
            raise self.violation(f"a rebuilt engine fails: {text} ({about})")
        binds = [w for w in said if isinstance(w, Bind)]
        if binds:
            raise self.violation(
                f"a rebuilt engine binds pod {binds[0].name} to {binds[0].node_name}, the engine "
                f"of {lived.name} does not"
            )
        pods = [obj for obj in found if isinstance(obj, Pod)]
        templates = {
            label: pod for pod in pods if (label := (pod.metadata.labels or {}).get("app"))
        }
        has_failed = self._has_failed_group()
        for i, name in enumerate(sorted(templates)[:PROBES]):
            probe = _probe(templates[name], i)
            is_settled = engine.is_settled and fresh.is_settled
            if not is_settled and (probe.group_name or probe.spec.resource_claims):
                continue  # one of them is in the middle of a negotiation, and waits for answers
            if probe.group_name and has_failed:
                continue  # what a group has learned about devices is in no object
            ours, theirs = (_decide_probe(e, probe, now_ns) for e in (engine, fresh))
            if probe.group_name and not (_is_tried(probe, ours) and _is_tried(probe, theirs)):
                continue  # the group is in backoff with one of them
            # How long a group spares other pods is in no object.
            if ours != theirs and SPARES not in str(ours):
                raise self.violation(
                    f"for one more pod of {name}, the engine of {lived.name} writes {ours}, "
                    f"a rebuilt engine writes {theirs}"
                )

    def _has_failed_group(self) -> bool:
        """Returns whether a group has negotiated in vain with drivers of devices."""
        server = self.court.server
        failed = [said for said in server.all(PodScheduling).values() if said.spec.attempt]
        pods = (server.get(Pod, said.metadata.key) for said in failed)
        return any(pod is not None and pod.group_name for pod in pods)


def _probe(pod: Pod, i: int) -> Pod:
    meta = msgspec.structs.replace(
        pod.metadata, name=f"probe-{i}", uid=f"probe-{i}", deletion_timestamp=None
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    status = msgspec.structs.replace(
        pod.status, phase="Pending", conditions=(), nominated_node_name="", start_time=None
    )
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)


def _decide_probe(engine: Engine, probe: Pod, now_ns: int) -> list[Any]:
    """What is written, in whatever order: other pods that wait are tried again, those first that
    were tried before, which a new engine cannot know. Without messages of other pods: the new
    engine has just renewed them."""
    writes: list[Write] = engine.step(Observed(WatchType.ADDED, probe), now_ns)
    found = [
        msgspec.structs.replace(write, id=0)
        for write in writes
        if not isinstance(write, CreateEvent) and not _is_message(write, probe)
    ]
    return sorted(found, key=str)


def _is_tried(probe: Pod, writes: list[Any]) -> bool:
    """Returns whether something is written about the pod."""
    return any(getattr(write, "uid", "") == probe.metadata.uid for write in writes)


def _is_message(write: Write, probe: Pod) -> bool:
    """Returns whether a write says no more than why another pod still waits, or that it has been
    tried again in vain."""
    if not isinstance(write, PatchPodStatus) or write.uid == probe.metadata.uid:
        return False
    if write.condition is None:
        return write.nominated_node_name == ""
    return write.condition.reason == UNSCHEDULABLE and write.nominated_node_name is None
