"""Autoscaler-agents ask over HTTP's protocol, or write the annotations themselves."""

import json

import pytest

from stower.framework.writes import AgentAnswer
from tests.builders import make_node, make_pod
from tests.vms.rig import APPROVED, REQUESTED, Rig, amount, changed, vm_pod

JSON = "application/json"


def request(
    wanted: str, permit: str | None = None, name: str = "vm1-pod", version: int = 7
) -> bytes:
    """What an agent sends. wanted, permit: as annotations have amounts."""
    return json.dumps(
        {
            "protoVersion": version,
            "pod": {"namespace": "default", "name": name},
            "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
            "resources": json.loads(wanted),
            "lastPermit": json.loads(permit) if permit else None,
            "metrics": {"loadAverage1Min": 0.3},
        }
    ).encode()


def permitted(answer: AgentAnswer | None) -> str:
    assert answer is not None
    assert (200, JSON) == (answer.status, answer.type), answer.body
    return json.dumps(json.loads(answer.body)["permit"], separators=(",", ":"))


@pytest.mark.behaviour("S4.28")
def test_an_agent_is_told_what_it_may_use() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2)))
    assert amount(2, 3) == permitted(rig.ask(request(amount(2, 3), amount(1, 2))))
    assert amount(2, 3) == rig.approved()
    assert amount(2, 3) == (rig.pod("uid-of-default-vm1-pod").metadata.annotations or {})[REQUESTED]


@pytest.mark.behaviour("S4.28")
def test_less_is_answered_at_once() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(3, 4), requested=(3, 4)))
    rig.copies = False
    assert amount(1, 2) == permitted(rig.ask(request(amount(1, 2), amount(3, 4))))


@pytest.mark.behaviour("S4.28", "S4.11")
def test_an_answer_waits_for_the_pod_a_second_at_most() -> None:
    pod = vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2))
    rig = Rig().start(pod)
    rig.copies = False
    assert rig.ask(request(amount(2, 2), amount(1, 2))) is None
    rig.put(changed(pod, requested=amount(2, 2)))
    assert [] == rig.answers  # it shows the request, and not yet more
    rig.put(changed(pod, requested=amount(2, 2), approved=amount(2, 2)))
    assert amount(2, 2) == permitted(rig.answers[0])


@pytest.mark.behaviour("S4.28")
def test_what_does_not_show_in_a_second_is_an_error() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2)))
    rig.copies = False
    rig.ask(request(amount(2, 2), amount(1, 2)))
    assert [] == rig.advance(0.9).answers
    (answer,) = rig.advance(0.2).answers
    assert (500, "timed out waiting for updates to be processed") == (answer.status, answer.body)


@pytest.mark.behaviour("S4.28")
def test_who_gets_nothing_more_is_told_what_it_has() -> None:
    full = make_pod("full", node="n1", cpu="3", memory="1Gi")
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2)), full)
    assert rig.ask(request(amount(2, 2), amount(1, 2))) is None
    assert amount(1, 2) == permitted(rig.advance(1).answers[0])


@pytest.mark.behaviour("S4.11")
def test_who_waits_for_a_pod_hears_that_it_is_gone() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2)))
    rig.copies = False
    rig.ask(request(amount(2, 2), amount(1, 2)))
    rig.drop("uid-of-default-vm1-pod")
    assert [(404, "pod not found")] == [(a.status, a.body) for a in rig.answers]


@pytest.mark.behaviour("S4.28")
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "bad JSON"),
        (b'{"protoVersion": -1}', 400, "bad JSON"),
        (request(amount(1, 1), version=0), 400, "invalid protocol version <invalid: zero>"),
        (request(amount(1, 1), version=6), 400,
         "protocol version mismatch: need v5.0 but got v4.0"),
        (request(amount(1, 1), version=9), 400,
         "protocol version mismatch: need v5.0 but got <unknown = v5.0 + 2>"),
        (request(amount(1, 1), name="nobody"), 404, "pod not found"),
        (request('{"vCPUs":-1,"mem":"1Gi"}'), 400,
         "resources.vCPUs: must not be negative, got -1"),
        (request('{"vCPUs":1,"mem":"-1Gi"}'), 400,
         "resources.mem: must not be negative, got -1Gi"),
        (request(amount(1, 1), '{"vCPUs":"5000000000m","mem":"1Gi"}'), 400,
         "lastPermit.vCPUs: 5000000000m is more than a VM can have"),
        (request('{"vCPUs":1,"mem":"9Ei"}'), 400, "resources.mem: 9Ei is more than a VM can have"),
        (request(amount(65, 1), name="runs-pod"), 400,
         "resources.vCPUs: 65 is more than the VM's maximum 64"),
        (request(amount(1, 129), name="runs-pod"), 400,
         "resources.mem: 129Gi is more than the VM's maximum 128Gi"),
        (request(amount(1, 1), name="waits-pod"), 404, "pod's node is unknown"),
        (request(amount(1, 1), name="plain"), 400, "pod is not associated with a VM"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(body: bytes, status: int, said: str) -> None:
    runs = vm_pod("runs", node="n1", use=(1, 1))
    rig = Rig().start(make_pod("plain", node="n1"), vm_pod("waits", use=(60, 1)), runs)
    rig.patches()
    answer = rig.ask(body)
    assert answer is not None
    assert (status, said) == (answer.status, answer.body)
    assert [] == rig.patches()


@pytest.mark.behaviour("S4.11")
def test_what_an_agent_says_that_it_was_permitted_is_not_written_where_the_node_has_no_room() -> (
    None
):
    """It may come from an agent that has it from a scheduler of another time."""
    rig = Rig(make_node("n1", cpu="4", memory="8Gi")).start(
        vm_pod("vm1", node="n1", use=(1, 2)), make_pod("other", node="n1", cpu="2", memory="1Gi")
    )
    rig.advance(2).patches()
    rig.ask(request(amount(2, 2), amount(3, 2)))
    assert all(amount(3, 2) not in str(patch.operations) for patch in rig.patches())
    assert rig.reserved() == (2000 + 2000, 3 << 30)
    rig.ask(request(amount(1, 2), amount(2, 2)))
    assert any(amount(2, 2) in str(patch.operations) for patch in rig.patches()), "that it has"


@pytest.mark.behaviour("S4.28")
def test_only_post_is_answered() -> None:
    answer = Rig().start().ask(b"", "GET")
    assert answer is not None
    assert (400, "must be POST") == (answer.status, answer.body)


@pytest.mark.behaviour("S4.28")
def test_a_write_that_fails_is_told() -> None:
    rig = Rig().start(vm_pod(node="n1", use=(1, 2), approved=(1, 2), requested=(1, 2)))
    rig.fails = [500]
    answer = rig.ask(request(amount(2, 2), amount(1, 2)))
    assert answer is not None
    assert (500, "failed to patch VM object") == (answer.status, answer.body)


@pytest.mark.behaviour("S4.34")
def test_agents_that_write_annotations_need_nobody_to_answer_them() -> None:
    pod = vm_pod(node="n1", use=(1, 2))
    rig = Rig().start(pod)
    assert amount(1, 2) == rig.approved()
    rig.advance(2).put(changed(rig.pod(pod.metadata.uid), requested=amount(3, 4)))
    assert amount(3, 4) == rig.approved()
    assert [] == rig.answers
    assert APPROVED in (rig.pod(pod.metadata.uid).metadata.annotations or {})
