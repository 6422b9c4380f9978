"""Classes of explanations, codes of refusals, and the fields of changes."""

from typing import Any

import msgspec
import pytest

from stower.framework.explanation import (
    Awaited,
    ChangeCode,
    ChangeStep,
    ExplanationClass,
    ReasonCode,
    Shortage,
    changed_fields,
)
from stower.model.kinds import ApiObject, Pod
from stower.model.kinds.pod import PodStatus
from tests.builders import make_node, make_pod
from tests.unit.engine.explain.test_explanation import HOST, N1, ask, near, only_on

NEVER, BLOCKED, WAITING, READY = ExplanationClass
TAINT = {"key": "kept", "effect": "NoSchedule"}
DISK = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
GPU = make_node("n2", cpu="2", labels={HOST: "n2"}, taints=[TAINT])


def placed(cpu: str, **fields: Any) -> Pod:
    return make_pod("other", cpu=cpu, node="n1", **fields)


@pytest.mark.parametrize(
    ("pod", "objects", "wanted"),
    [
        (make_pod(cpu="1"), [N1], READY),
        (make_pod(cpu="1", node="n1"), [N1], READY),
        (make_pod(cpu="3"), [N1], NEVER),
        (make_pod(cpu="2"), [N1, placed("1")], BLOCKED),
        (make_pod(cpu="2"), [N1, placed("1", deletion="2026-01-01T00:00:00Z")], WAITING),
        (make_pod(nodeSelector={"disk": "ssd"}), [N1], NEVER),
        (make_pod(), [make_node(unschedulable=True)], BLOCKED),
        (make_pod(), [make_node(taints=[TAINT])], NEVER),
        (make_pod(), [make_node(taints=[DISK])], BLOCKED),
        (make_pod(), [make_node(taints=[DISK, TAINT])], NEVER),
        (make_pod(cpu="3", tolerations=[{"key": "kept"}]), [N1, GPU], NEVER),
        (make_pod(affinity=near()), [N1], BLOCKED),
        (make_pod(), [], BLOCKED),
        (make_pod(schedulingGates=[{"name": "g"}]), [N1], BLOCKED),
        (make_pod(cpu="3", schedulingGates=[{"name": "g"}]), [N1], NEVER),
        (make_pod(schedulerName="somebody-else"), [N1], NEVER),
        (make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), [N1],
         BLOCKED),
    ],
)  # fmt: skip
def test_the_class_is_what_it_takes(
    pod: Pod, objects: list[ApiObject], wanted: ExplanationClass
) -> None:
    assert wanted is ask(pod, *objects).class_


def test_a_refusal_has_codes_and_amounts() -> None:
    (refused,) = ask(make_pod(cpu="3", memory="1Gi"), N1).refused
    assert (ReasonCode.INSUFFICIENT_RESOURCE,) == refused.codes
    assert (Shortage("cpu", 3_000, 2_000),) == refused.shortages


def test_a_change_has_the_fields_that_change() -> None:
    pod = make_pod(cpu="1200m", schedulingGates=[{"name": "g"}])
    change, *_ = ask(pod, N1, placed("1")).changes
    gate, room = change.steps
    assert (ChangeCode.REMOVE_SCHEDULING_GATE, "spec.schedulingGates") == (gate.code, gate.field)
    wanted = ChangeStep(
        ChangeCode.CHANGE_ALLOCATABLE, "Node", "n1", "status.allocatable.cpu", "2", "2200m"
    )
    assert wanted == room


def test_a_pod_that_can_never_run_is_told_what_of_it_has_to_change() -> None:
    found = ask(make_pod(cpu="3", memory="1Gi"), N1, placed("500m"))
    request = ChangeStep(
        ChangeCode.CHANGE_REQUEST, "Pod", "default/p1",
        "spec.containers[0].resources.requests.cpu", "3", "1500m",
    )  # fmt: skip
    assert [(request,)] == [change.steps for change in found.changes]
    assert found.because.endswith("1 Insufficient cpu (3 requested, a node has 2 at most)")
    found = ask(make_pod(affinity=only_on("n9")), N1)
    assert [ChangeCode.CHANGE_NODE_SELECTION] == [step.code for step in found.changes[0].steps]
    cordoned = make_node("n1", cpu="2", unschedulable=True)
    found = ask(make_pod(cpu="3"), cordoned)  # the node is to change, too
    assert [ChangeCode.CHANGE_REQUEST, ChangeCode.UNCORDON_NODE] == [
        step.code for step in found.changes[0].steps
    ]


def test_it_is_told_for_whom_a_pod_waits() -> None:
    """Of pods that end by themselves those on the node that it gets."""
    leaving = placed("1", deletion="2026-01-01T00:00:00Z")
    elsewhere = make_pod("elsewhere", cpu="0", node="n2", deletion="2026-01-01T00:00:00Z")
    n2 = make_node("n2", cpu="1", labels={HOST: "n2"})
    found = ask(make_pod(cpu="2"), N1, n2, leaving, elsewhere)
    assert "waits for pods to end: default/other (deleted at 2026-01-01T00:00:00Z)" == found.because
    ends = make_pod("job", cpu="1", node="n1", activeDeadlineSeconds=60)
    since = msgspec.structs.replace(ends.status, start_time="2026-01-01T00:00:00Z")
    ends = msgspec.structs.replace(ends, status=since)
    found = ask(make_pod(cpu="2"), N1, ends)
    assert WAITING is found.class_
    assert "default/job (60 s from 2026-01-01T00:00:00Z)" in found.because
    found = ask(make_pod(cpu="2"), N1, make_pod("service", cpu="1", node="n1"))
    assert (BLOCKED, "") == (found.class_, found.because)


def test_an_uncordoned_node_and_a_toleration_are_fields() -> None:
    node, *_ = ask(make_pod(), make_node("n1", unschedulable=True)).changes
    assert [ChangeCode.UNCORDON_NODE] == [step.code for step in node.steps]
    pod, *_ = ask(make_pod(), make_node("n1", taints=[TAINT])).changes
    assert [ChangeCode.CHANGE_TOLERATIONS] == [step.code for step in pod.steps]


def test_versions_that_are_equal_have_no_steps_and_new_objects_one() -> None:
    assert [] == changed_fields("Node", "n1", N1, N1)
    (step,) = changed_fields("Node", "n1", None, N1)
    assert (ChangeCode.CREATE_OBJECT, "Node", "n1", None) == (
        step.code, step.kind, step.object, step.before
    )  # fmt: skip
    assert ("v1", "Node", "n1") == (
        step.after["apiVersion"], step.after["kind"], step.after["metadata"]["name"]
    )  # fmt: skip


def test_keys_that_are_no_names_are_in_brackets() -> None:
    new = make_node("n1", cpu="2", labels={**(N1.metadata.labels or {}), "a.b/c": "d", "e": "f"})
    assert ["metadata.labels[a.b/c]", "metadata.labels.e"] == [
        step.field for step in changed_fields("Node", "n1", N1, new)
    ]


def test_a_pod_waits_for_the_eviction_that_its_next_attempt_makes() -> None:
    lower = make_pod("lower", cpu="1", node="n1", priority=-1)
    found = ask(make_pod(cpu="2"), N1, lower)
    assert (WAITING, (Awaited("Pod", "default/lower"),)) == (found.class_, found.awaited)
    assert "its next attempt evicts default/lower from n1" == found.because
    found = ask(make_pod(cpu="2", preemptionPolicy="Never"), N1, lower)
    assert BLOCKED is found.class_


def test_what_is_awaited_has_its_times() -> None:
    ends = make_pod("job", cpu="1", node="n1", activeDeadlineSeconds=60)
    since = msgspec.structs.replace(ends.status, start_time="2026-01-01T00:00:00Z")
    ends = msgspec.structs.replace(ends, status=since)
    found = ask(make_pod(cpu="2"), N1, ends)
    wanted = Awaited("Pod", "default/job", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    assert (wanted,) == found.awaited


SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
INIT = {"name": "i", "resources": {"requests": {"cpu": "5"}}}


@pytest.mark.parametrize(
    ("pod", "fields"),
    [
        (make_pod(cpu="1", initContainers=[INIT]), {"spec.initContainers[0]": "2000m"}),
        (make_pod(cpu="1", initContainers=[SIDECAR, INIT]), {"spec.initContainers[1]": "1500m"}),
        (make_pod(cpu="5", initContainers=[SIDECAR]), {"spec.containers[0]": "1500m"}),
        (make_pod(cpu="1", resources={"requests": {"cpu": "5"}}), {"spec": "2000m"}),
    ],
)
def test_a_request_is_lowered_where_it_is(pod: Pod, fields: dict[str, str]) -> None:
    """And the change works: it has been tried."""
    found = ask(pod, N1)
    steps = found.changes[0].steps
    assert NEVER is found.class_
    assert {f"{at}.resources.requests.cpu": to for at, to in fields.items()} == {
        step.field: step.after for step in steps
    }


def test_all_causes_that_last_are_told_and_changed() -> None:
    found = ask(make_pod(cpu="3", nodeSelector={"disk": "ssd"}), N1)
    assert NEVER is found.class_
    assert "Insufficient cpu (3 requested" in found.because
    assert "node affinity/selector" in found.because
    assert {"Pod"} == {step.kind for step in found.changes[0].steps}


def test_overhead_is_lowered_where_nothing_else_is_enough() -> None:
    found = ask(make_pod(cpu="1", overhead={"cpu": "5"}), N1)
    fields = [step.field for step in found.changes[0].steps]
    assert ["spec.containers[0].resources.requests.cpu", "spec.overhead.cpu"] == fields


def test_only_pods_that_have_to_end_are_waited_for() -> None:
    """Deletions before deadlines, and the first deadline before the others."""
    leaving = make_pod("leaving", cpu="500m", node="n1", deletion="2026-01-01T00:00:00Z")
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    ending = []
    for name, seconds in (("late", 900), ("soon", 100)):
        pod = make_pod(name, cpu="500m", node="n1", activeDeadlineSeconds=seconds)
        ending.append(msgspec.structs.replace(pod, status=msgspec.convert(started, PodStatus)))
    for cpu, wanted in (("1", ["leaving"]), ("1500m", ["leaving", "soon"])):
        found = ask(make_pod(cpu=cpu), N1, leaving, *ending)
        assert WAITING is found.class_
        assert [f"default/{name}" for name in wanted] == [one.object for one in found.awaited]
