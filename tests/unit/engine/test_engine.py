"""The engine through its one entry: events in, writes out."""

import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.engine.queue.entities import Place, QueuedPod
from stower.framework.decisions import Outcome
from stower.framework.events import (
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.writes import Bind, CreateEvent, PatchPodStatus, Write
from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod
from tests.builders import make_node, make_pod

ADDED, MODIFIED, DELETED = WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED


def engine_with(*objects: Node | Pod) -> Engine:
    """An engine that has listed these."""
    engine = build_engine()
    engine.step(Listed(objects), 0)
    return engine


def add(engine: Engine, obj: Node | Pod, now_ns: int | None = None) -> list[Write]:
    """A new object is seen."""
    return engine.step(Observed(ADDED, obj), engine.now_ns if now_ns is None else now_ns)


def binds(writes: list[Write]) -> list[tuple[str, str]]:
    """(pod, node) of the binds."""
    return [(w.name, w.node_name) for w in writes if isinstance(w, Bind)]


def place_of(engine: Engine, pod: Pod) -> Place | None:
    """Where the queue has the pod."""
    queued = engine.queue.get(pod.metadata.uid)
    return queued.place if queued is not None else None


def attempts_of(engine: Engine, pod: Pod) -> int:
    """How often a pod that waits was tried."""
    queued = engine.queue.get(pod.metadata.uid)
    assert queued is not None
    return queued.attempts


def test_pod_is_bound_to_the_only_node_that_fits() -> None:
    engine = engine_with(make_node("small", cpu="1"), make_node("large", cpu="8"))
    assert [("p1", "large")] == binds(add(engine, make_pod("p1", cpu="2")))


def test_bind_carries_the_uid_that_it_relies_on() -> None:
    engine = engine_with(make_node())
    (bind,) = add(engine, make_pod("p1", uid="the-uid"))
    assert isinstance(bind, Bind)
    assert ("default", "p1", "the-uid", "n1") == (
        bind.namespace,
        bind.name,
        bind.uid,
        bind.node_name,
    )


def test_room_is_counted_before_the_bind_is_answered() -> None:
    engine = engine_with(make_node(cpu="1"))
    assert [("p1", "n1")] == binds(add(engine, make_pod("p1", cpu="700m")))
    assert [] == binds(add(engine, make_pod("p2", cpu="700m")))


def test_scheduled_event_follows_the_answer_to_the_bind() -> None:
    engine = engine_with(make_node())
    (bind,) = add(engine, make_pod())
    (event,) = engine.step(WriteOk(bind.id), 5)
    assert isinstance(event, CreateEvent)
    assert ("Normal", "Scheduled", "Binding") == (event.type, event.reason, event.action)
    assert "Successfully assigned default/p1 to n1" == event.note


def test_scheduled_event_comes_even_if_the_watch_was_faster_than_the_answer() -> None:
    engine = engine_with(make_node())
    pod = make_pod()
    (bind,) = add(engine, pod)
    assert [] == engine.step(Observed(MODIFIED, make_pod(node="n1")), 1)
    (event,) = engine.step(WriteOk(bind.id), 2)
    assert isinstance(event, CreateEvent)
    assert "Scheduled" == event.reason
    assert 0 == len(engine.queue)


def test_scheduled_event_comes_even_if_the_pod_is_gone_before_the_answer() -> None:
    engine = engine_with(make_node())
    pod = make_pod("p1")
    (bind,) = add(engine, pod)
    engine.step(Observed(MODIFIED, make_pod("p1", node="n1")), 1)
    engine.step(Observed(DELETED, make_pod("p1", node="n1")), 2)
    (told,) = engine.step(WriteOk(bind.id), 3)
    assert isinstance(told, CreateEvent)
    assert "Scheduled" == told.reason


def test_confirmed_pod_keeps_its_room_once() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("p1", cpu="600m"))
    engine.step(WriteOk(bind.id), 1)
    engine.step(Observed(MODIFIED, make_pod("p1", cpu="600m", node="n1")), 1)
    engine.step(Observed(MODIFIED, make_pod("p1", cpu="600m", node="n1", phase="Running")), 1)
    assert [("p2", "n1")] == binds(add(engine, make_pod("p2", cpu="400m")))


@pytest.mark.behaviour("U1", "U3")
def test_refused_pod_gets_the_condition_and_the_event_in_kube_schedulers_words() -> None:
    engine = engine_with(
        make_node("n1", cpu="1"),
        make_node("n2", cpu="1", unschedulable=True),
        make_node("n3", taints=[{"key": "k", "effect": "NoSchedule"}]),
    )
    patch, event = add(engine, make_pod(cpu="2"))
    message = (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are "
        "available: 3 Preemption is not helpful for scheduling."
    )
    assert isinstance(patch, PatchPodStatus)
    assert patch.condition is not None
    assert ("PodScheduled", "False", "Unschedulable", message) == (
        patch.condition.type,
        patch.condition.status,
        patch.condition.reason,
        patch.condition.message,
    )
    assert isinstance(event, CreateEvent)
    assert ("Warning", "FailedScheduling", "Scheduling", message) == (
        event.type,
        event.reason,
        event.action,
        event.note,
    )


def test_no_nodes_at_all_has_its_own_words() -> None:
    engine = engine_with()
    patch, _ = add(engine, make_pod())
    assert isinstance(patch, PatchPodStatus)
    assert patch.condition is not None
    assert "no nodes available to schedule pods" == patch.condition.message


def test_writes_that_say_nothing_new_are_not_sent() -> None:
    """A second refusal for the same reasons is silent; another reason is told."""
    engine = engine_with(make_node(cpu="1"))
    add(engine, make_pod("big", cpu="2"))
    # The same message again: the pod is tried, and nothing is written.
    engine.drain()
    other = make_node("n1", cpu="1500m")
    assert [] == engine.step(Observed(MODIFIED, other), 20 * SECOND_NS)
    engine.step(Tick(), 400 * SECOND_NS)
    assert [Outcome.UNSCHEDULABLE] == [d.outcome for d in engine.drain()]
    writes = add(engine, make_node("n2", cpu="1"), 401 * SECOND_NS)
    assert [] == writes  # cannot help: too small as well


def test_a_condition_that_the_pod_already_carries_is_not_written_again() -> None:
    """After a restart, the API objects alone say what was told before."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    }
    engine = build_engine()
    writes = engine.step(Listed((make_node(cpu="1"), make_pod(cpu="2", conditions=[condition]))), 0)
    assert [] == writes


def test_condition_is_written_again_if_its_write_failed() -> None:
    engine = engine_with(make_node(cpu="1"))
    patch, event = add(engine, make_pod(cpu="2"))
    engine.step(WriteFailed(patch.id, 500, "oops"), 1)
    engine.step(WriteOk(event.id), 1)
    writes = engine.step(Tick(), 301 * SECOND_NS)
    assert [PatchPodStatus, CreateEvent] == [type(w) for w in writes]


def test_long_event_notes_are_cut_as_upstream_cuts_them() -> None:
    """events.k8s.io allows 1,024 characters; the condition keeps everything."""
    keys = [f"example.com/resource-with-a-rather-long-name-{i:02}" for i in range(30)]
    engine = engine_with(make_node())
    patch, event = add(engine, make_pod(requests=dict.fromkeys(keys, "1")))
    assert isinstance(event, CreateEvent)
    assert isinstance(patch, PatchPodStatus)
    assert patch.condition is not None
    assert 1024 == len(event.note)
    assert event.note.endswith(" ...")
    assert len(patch.condition.message) > 1024


def test_failed_bind_gives_the_room_back_and_retries_after_a_delay() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("p1", cpu="1"))
    patch, _ = engine.step(WriteFailed(bind.id, 409, "conflict"), 0)
    assert isinstance(patch, PatchPodStatus)
    assert patch.condition is not None
    assert "SchedulerError" == patch.condition.reason
    assert 'running Bind plugin "DefaultBinder": conflict' == patch.condition.message
    assert SECOND_NS == engine.next_wake_ns
    assert [("p1", "n1")] == binds(engine.step(Tick(), SECOND_NS))


def test_failed_bind_wakes_pods_that_waited_for_its_room() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("p1", cpu="1"))
    add(engine, make_pod("p2", cpu="1"))
    assert [("p2", "n1")] == binds(engine.step(WriteFailed(bind.id, 500, "lost"), 0))


def test_bind_that_failed_only_on_the_way_back_is_taken_as_done() -> None:
    """The watch shows the pod on its node: the late failure changes nothing."""
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("p1", cpu="1"))
    engine.step(Observed(MODIFIED, make_pod("p1", cpu="1", node="n1")), 0)
    assert [] == engine.step(WriteFailed(bind.id, 0, "timeout"), 0)
    assert [] == binds(add(engine, make_pod("p2", cpu="1")))


def test_pod_that_lands_elsewhere_moves_its_room() -> None:
    """Another scheduler was faster: the API is right."""
    engine = engine_with(make_node("n1", cpu="1"), make_node("n2", cpu="1", unschedulable=True))
    (bind,) = add(engine, make_pod("p1", cpu="1"))
    engine.step(Observed(MODIFIED, make_pod("p1", cpu="1", node="n2")), 0)
    engine.step(WriteFailed(bind.id, 409, "already bound"), 0)
    assert [("p2", "n1")] == binds(add(engine, make_pod("p2", cpu="1")))


def test_deleted_pod_gives_room_to_one_that_waits() -> None:
    engine = engine_with(make_node(cpu="1"), make_pod("old", cpu="1", node="n1"))
    waiting = make_pod("new", cpu="1")
    assert [] == binds(add(engine, waiting))
    engine.step(Observed(DELETED, make_pod("old", cpu="1", node="n1")), 2 * SECOND_NS)
    assert [("new", "n1")] == [(d.name, d.node_name) for d in engine.drain() if d.node_name]


def test_ended_pod_holds_no_room() -> None:
    engine = engine_with(make_node(cpu="1"), make_pod("old", cpu="1", node="n1"))
    ended = make_pod("old", cpu="1", node="n1", phase="Succeeded")
    engine.step(Observed(MODIFIED, ended), 0)
    assert [("new", "n1")] == binds(add(engine, make_pod("new", cpu="1")))


def test_woken_pod_does_not_wait_for_its_backoff_where_nothing_else_is_to_be_tried() -> None:
    """KEP-5142: backoff keeps pods out of the way of others, not out of an idle scheduler."""
    engine = engine_with(make_node(cpu="1"), make_pod("old", cpu="1", node="n1"))
    add(engine, make_pod("new", cpu="1"))
    gone = Observed(DELETED, make_pod("old", cpu="1", node="n1"))
    assert [("new", "n1")] == binds(engine.step(gone, SECOND_NS // 2))


def test_woken_pod_waits_for_its_backoff_while_others_are_to_be_tried() -> None:
    """1 s after its first failure; the one that came meanwhile has the room."""
    engine = build_engine(cycles_per_step_max=1)
    old = make_pod("old", cpu="1", node="n1")
    engine.step(Listed((make_node(cpu="1"), old, make_pod("tried", cpu="1"))), 0)
    add(engine, make_pod("stuck", cpu="9"), 1)
    add(engine, make_pod("later", cpu="1"), 1)
    engine.step(Tick(), 1)
    engine.drain()
    add(engine, make_pod("fresh", cpu="1"), 2)
    assert ["fresh"] == [d.name for d in engine.drain()]
    engine.queue.add(
        QueuedPod(
            engine.state.add_pending(make_pod("next", cpu="1")),
            engine.profiles["default-scheduler"],
            3,
        )
    )
    writes = engine.step(Observed(DELETED, old), 3)
    assert [("next", "n1")] == binds(writes)
    assert Place.BACKOFF is place_of(engine, make_pod("tried"))


def test_pod_whose_attempt_ended_in_an_error_waits_out_its_backoff() -> None:
    """Whatever failed may need the time: even an idle scheduler does not try before."""
    engine = engine_with(make_node(cpu="1"))
    id = add(engine, make_pod("p1", cpu="1"))[0].id
    now_ns = 0
    for seconds in (1, 2, 4, 8, 10):
        engine.step(WriteFailed(id, 403, "no"), now_ns)
        assert now_ns + seconds * SECOND_NS == engine.next_wake_ns
        now_ns += seconds * SECOND_NS
        (bind,) = engine.step(Tick(), now_ns)
        id = bind.id


def test_pod_is_tried_again_after_five_minutes_without_any_event() -> None:
    engine = engine_with(make_node(cpu="1"))
    add(engine, make_pod(cpu="2"))
    assert 300 * SECOND_NS == engine.next_wake_ns
    engine.drain()
    engine.step(Tick(), 300 * SECOND_NS)
    assert [2] == [d.attempts for d in engine.drain()]


@pytest.mark.parametrize(
    ("pod", "helps", "near_miss"),
    [
        (
            make_pod(cpu="2"),
            make_node("x", cpu="4"),
            make_node("x", cpu="1500m"),
        ),
        (
            make_pod(nodeSelector={"disk": "ssd"}),
            make_node("x", labels={"disk": "ssd"}),
            make_node("x", labels={"disk": "hdd"}),
        ),
    ],
    ids=["resources", "labels"],
)
def test_only_a_node_that_helps_wakes_a_pod(pod: Pod, helps: Node, near_miss: Node) -> None:
    for node, attempts in ((helps, 2), (near_miss, 1)):
        engine = engine_with(make_node(cpu="1"))
        add(engine, pod)
        engine.step(Observed(ADDED, node), 1)
        assert attempts == attempts_of(engine, pod)


def test_node_that_loses_its_taint_wakes_the_pod_and_another_label_does_not() -> None:
    taint = [{"key": "k", "effect": "NoSchedule"}]
    engine = engine_with(make_node(taints=taint))
    pod = make_pod()
    add(engine, pod)
    engine.step(Observed(MODIFIED, make_node(taints=taint, labels={"a": "b"})), 1)
    assert Place.UNSCHEDULABLE is place_of(engine, pod)
    assert [("p1", "n1")] == binds(engine.step(Observed(MODIFIED, make_node()), 2))


def test_uncordoned_node_wakes_the_pod() -> None:
    engine = engine_with(make_node(unschedulable=True))
    pod = make_pod()
    add(engine, pod)
    assert [("p1", "n1")] == binds(engine.step(Observed(MODIFIED, make_node()), 1))


def test_pod_that_frees_the_wanted_host_port_wakes_and_another_does_not() -> None:
    one, two = make_pod("one", node="n1", ports=[80]), make_pod("two", node="n1", ports=[443])
    engine = engine_with(make_node(), one, two)
    pod = make_pod(ports=[80])
    add(engine, pod)
    engine.step(Observed(DELETED, two), 1)
    assert Place.UNSCHEDULABLE is place_of(engine, pod)
    assert [("p1", "n1")] == binds(engine.step(Observed(DELETED, one), 2))


def test_own_new_toleration_wakes_the_pod() -> None:
    engine = engine_with(make_node(taints=[{"key": "k", "effect": "NoSchedule"}]))
    add(engine, make_pod())
    tolerant = make_pod(tolerations=[{"key": "k", "operator": "Exists"}])
    assert [("p1", "n1")] == binds(engine.step(Observed(MODIFIED, tolerant), 1))


def test_own_condition_update_does_not_wake_the_pod() -> None:
    engine = engine_with(make_node(cpu="1"))
    pod = make_pod(cpu="2")
    add(engine, pod)
    told = make_pod(cpu="2", conditions=[{"type": "PodScheduled", "status": "False"}])
    engine.step(Observed(MODIFIED, told), 1)
    assert Place.UNSCHEDULABLE is place_of(engine, pod)
    assert 300 * SECOND_NS == engine.next_wake_ns


def test_a_pod_is_not_placed_without_the_devices_that_it_claims() -> None:
    engine = engine_with(make_node("n1"))
    writes = add(engine, make_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]))
    (told,) = [w.condition for w in writes if isinstance(w, PatchPodStatus) and w.condition]
    assert "Unschedulable" == told.reason
    assert 'resourceclaim "mine" not found' in told.message


def test_gated_pod_is_not_tried_until_its_gates_are_gone() -> None:
    engine = engine_with(make_node())
    gated = make_pod(schedulingGates=[{"name": "wait"}])
    assert [] == add(engine, gated)
    assert Place.GATED is place_of(engine, gated)
    assert engine.next_wake_ns is None
    assert [("p1", "n1")] == binds(engine.step(Observed(MODIFIED, make_pod()), 1))


@pytest.mark.behaviour("S1.26")
def test_higher_priority_goes_first_then_who_came_first() -> None:
    engine = build_engine()
    pods = [make_pod("a"), make_pod("b", priority=5), make_pod("c"), make_pod("d", priority=5)]
    writes = engine.step(Listed((make_node(), *pods)), 0)
    assert ["b", "d", "a", "c"] == [name for name, _ in binds(writes)]


def test_pods_of_other_schedulers_are_counted_but_not_placed() -> None:
    engine = engine_with(make_node(cpu="1"))
    assert [] == add(engine, make_pod("theirs", cpu="600m", schedulerName="other"))
    theirs = make_pod("theirs", cpu="600m", schedulerName="other", node="n1")
    engine.step(Observed(MODIFIED, theirs), 0)
    assert [] == binds(add(engine, make_pod("ours", cpu="600m")))


def test_pod_that_is_being_deleted_is_skipped() -> None:
    engine = engine_with(make_node())
    (event,) = add(engine, make_pod(deletion="2026-01-01T00:00:00Z"))
    assert isinstance(event, CreateEvent)
    assert "skip schedule deleting pod: default/p1" == event.note
    assert 0 == len(engine.queue)


def test_nominated_room_is_held_against_lower_priority_only() -> None:
    engine = engine_with(make_node(cpu="1"))
    promised = make_pod(
        "promised", cpu="800m", priority=10, nominated="n1", schedulingGates=[{"name": "g"}]
    )
    add(engine, promised)
    assert [] == binds(add(engine, make_pod("low", cpu="800m")))
    assert [("high", "n1")] == binds(add(engine, make_pod("high", cpu="800m", priority=20)))


def test_nominated_pod_takes_its_promised_node_even_if_another_scores_higher() -> None:
    engine = engine_with(make_node("n1", cpu="4"), make_node("n2", cpu="64"))
    assert [("p1", "n1")] == binds(add(engine, make_pod(nominated="n1")))


def test_nominated_pod_that_fits_nowhere_loses_its_promise() -> None:
    engine = engine_with(make_node(cpu="1"))
    patch, _ = add(engine, make_pod(cpu="2", nominated="n1"))
    assert isinstance(patch, PatchPodStatus)
    assert "" == patch.nominated_node_name
    assert {} == engine.state.nominated_pods


def test_node_with_pods_comes_back_with_their_room_taken() -> None:
    engine = engine_with(make_node(cpu="1"), make_pod("old", cpu="1", node="n1"))
    engine.step(Observed(DELETED, make_node(cpu="1")), 0)
    assert [] == binds(add(engine, make_pod("p1", cpu="1")))
    engine.step(Observed(ADDED, make_node(cpu="1")), 10 * SECOND_NS)
    assert [] == binds(engine.step(Tick(), 400 * SECOND_NS))


def test_relist_removes_what_is_gone() -> None:
    engine = engine_with(
        make_node("n1", cpu="1"), make_node("n2", cpu="1"), make_pod("old", cpu="1", node="n1")
    )
    engine.step(Listed((make_node("n1", cpu="1"),)), 1)
    assert [("p1", "n1")] == binds(add(engine, make_pod("p1", cpu="1")))
    assert 1 == engine.state.node_count


def test_node_with_a_broken_quantity_takes_no_pods() -> None:
    engine = engine_with(make_node(cpu="oops"))
    assert [] == binds(add(engine, make_pod()))
    assert 0 == engine.state.node_count


def test_pod_with_a_broken_quantity_is_left_alone() -> None:
    engine = engine_with(make_node())
    assert [] == add(engine, make_pod(cpu="1.5x"))
    assert 0 == len(engine.queue)


def test_clock_that_goes_back_is_our_bug() -> None:
    engine = build_engine()
    engine.step(Tick(), 5)
    with pytest.raises(InvariantError, match="clock went back"):
        engine.step(Tick(), 4)


def test_step_ends_after_its_share_of_cycles_and_asks_to_go_on() -> None:
    engine = build_engine()
    pods = [make_pod(f"p{i}", cpu="1m", memory="1Mi") for i in range(1_100)]
    writes = engine.step(Listed((make_node(pods="2000"), *pods)), 0)
    assert 1_000 == len(writes)
    assert 0 == engine.next_wake_ns
    assert 100 == len(engine.step(Tick(), 0))


def test_heartbeat_of_a_node_changes_no_log() -> None:
    """A node whose scheduling properties stay as they are costs no refresh."""
    engine = engine_with(make_node())
    before = engine.state.usage_log.position, engine.state.node_log.position
    engine.step(Observed(MODIFIED, make_node()), 1)
    assert before == (engine.state.usage_log.position, engine.state.node_log.position)


def test_amounts_beyond_64_bits_neither_wrap_nor_stop_the_engine() -> None:
    """Anyone may ask for anything: it is counted, never fits, and is given back."""
    engine = engine_with(make_node("n1", cpu="4", memory="7Ei"))
    for i in range(3):
        add(engine, make_pod(f"huge{i}", cpu="1", memory="7Ei", node="n1"))
    assert [] == binds(add(engine, make_pod("p1", cpu="1", memory="1Gi")))
    for i in range(3):
        engine.step(Observed(DELETED, make_pod(f"huge{i}", cpu="1", memory="7Ei", node="n1")), 0)
    assert (
        2**30 == engine.state.columns["memory"].requested_cells[0]
    )  # of the pod that now has its place
    assert [("p2", "n1")] == binds(add(engine, make_pod("p2", cpu="3", memory="1Gi")))


def test_cpu_that_overflows_upstream_is_asked_for_in_full() -> None:
    engine = engine_with(make_node(cpu="4"))
    assert [] == binds(add(engine, make_pod(cpu="9223372036854775807")))


def test_pod_of_more_resources_than_bits_is_counted_and_explained() -> None:
    extended = {f"e.com/r{i}": "1" for i in range(70)}
    node = make_node("n1", **{f"e.com/r{i}": "1" for i in range(69)})
    engine = engine_with(node)
    patch, _ = add(engine, make_pod("a", requests=extended))
    assert isinstance(patch, PatchPodStatus)
    assert patch.condition is not None
    assert "Insufficient other resources" in patch.condition.message
    add(engine, make_pod("b", node="n1", requests={"e.com/r5": "1", **extended}))
    assert 1 == engine.state.columns["e.com/r5"].requested_cells[0]


def test_taints_with_changing_values_do_not_pile_up() -> None:
    """Autoscalers put a time into a taint's value."""
    engine = engine_with(make_node("n1"), make_node("n2"))
    for i in range(300):
        taint = [{"key": "ToBeDeleted", "value": str(i), "effect": "PreferNoSchedule"}]
        engine.step(Observed(MODIFIED, make_node("n1", taints=taint)), i)
    assert engine.state.taints.code_count <= 4
    assert [("p1", "n2")] == binds(add(engine, make_pod()))


def test_label_keys_and_resources_that_are_gone_leave_nothing_large() -> None:
    engine = engine_with(make_node("n1"))
    for i in range(600):
        engine.step(Observed(MODIFIED, make_node("n1", labels={f"key-{i}": "v"})), i)
        pod = make_pod("p", node="n1", requests={f"e.com/r{i}": "1"}, uid=f"u{i}")
        engine.step(Observed(ADDED, pod), i)
        engine.step(Observed(DELETED, pod), i)
    assert 1 == len(engine.state.labels.columns)
    assert sum(c.has_own_arrays for c in engine.state.columns.values()) < 300


def test_promise_that_is_taken_back_wakes_pods_that_it_held_off() -> None:
    """Those of its priority or below; others were never held off by it."""
    gates = {"schedulingGates": [{"name": "g"}]}
    engine = engine_with(make_node(cpu="1"))
    add(engine, make_pod("promised", cpu="1", priority=10, nominated="n1", **gates))
    waiting = make_pod("low", cpu="1")
    add(engine, waiting)
    above = make_pod("above", cpu="2", priority=50)
    add(engine, above)
    freed = make_pod("promised", cpu="1", priority=10, **gates)
    writes = engine.step(Observed(MODIFIED, freed), 20 * SECOND_NS)
    assert [("low", "n1")] == binds(writes)
    assert 1 == attempts_of(engine, above)


def test_pod_bound_elsewhere_than_assumed_wakes_those_that_waited() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("a", cpu="1"))
    add(engine, make_pod("b", cpu="1"))
    writes = engine.step(
        Observed(MODIFIED, make_pod("a", cpu="1", node="elsewhere")), 20 * SECOND_NS
    )
    assert [("b", "n1")] == binds(writes)
    assert [] == engine.step(WriteFailed(bind.id, 409, "already bound"), 21 * SECOND_NS)


@pytest.mark.parametrize("code", [0, 504])
def test_bind_of_which_nobody_knows_keeps_its_room_and_is_sent_again(code: int) -> None:
    """It may have been carried out: giving the room away could book it twice."""
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("a", cpu="1"))
    add(engine, make_pod("b", cpu="1"))
    assert [] == engine.step(WriteFailed(bind.id, code, "timeout"), 20 * SECOND_NS)
    assert 21 * SECOND_NS == engine.next_wake_ns
    (again,) = engine.step(Tick(), 21 * SECOND_NS)
    assert [("a", "n1")] == binds([again])
    # The first try had bound it: the server refuses the second, and the watch tells.
    assert [] == engine.step(WriteFailed(again.id, 409, "already bound"), 22 * SECOND_NS)
    assert [] == engine.step(Observed(MODIFIED, make_pod("a", cpu="1", node="n1")), 23 * SECOND_NS)
    assert 1000 == engine.state.columns["cpu"].requested_cells[0]


def test_assumed_pod_that_is_deleted_gives_its_room_back_at_once() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("a", cpu="1"))
    add(engine, make_pod("b", cpu="1"))
    dying = make_pod("a", cpu="1", deletion="2026-01-01T00:00:00Z")
    writes = engine.step(Observed(MODIFIED, dying), 20 * SECOND_NS)
    assert [("b", "n1")] == binds(writes)
    assert [] == engine.step(WriteFailed(bind.id, 409, "being deleted"), 21 * SECOND_NS)


def test_condition_that_somebody_overwrote_is_written_again() -> None:
    engine = engine_with(make_node(cpu="1"))
    add(engine, make_pod(cpu="2"))
    foreign = {"type": "PodScheduled", "status": "False", "reason": "Other", "message": "x"}
    engine.step(Observed(MODIFIED, make_pod(cpu="2", conditions=[foreign])), 1)
    writes = engine.step(Tick(), 301 * SECOND_NS)
    assert [PatchPodStatus, CreateEvent] == [type(w) for w in writes]


def test_pod_recreated_under_its_name_replaces_the_old_one() -> None:
    """The deletion was never seen."""
    engine = engine_with(make_node(cpu="1"), make_pod("a", cpu="1", node="n1", uid="u1"))
    writes = engine.step(Observed(ADDED, make_pod("a", cpu="1", uid="u2")), 1)
    assert [("a", "n1")] == binds(writes)
    assert ["u2"] == list(engine.state.pods)


def test_late_update_does_not_bring_a_deleted_pod_back() -> None:
    engine = engine_with(make_node(cpu="1"), make_pod("a", cpu="1", node="n1"))
    engine.step(Observed(DELETED, make_pod("a", cpu="1", node="n1")), 1)
    engine.step(Observed(MODIFIED, make_pod("a", cpu="1", node="n1")), 2)
    assert [("b", "n1")] == binds(add(engine, make_pod("b", cpu="1")))


@pytest.mark.parametrize("type", [ADDED, MODIFIED, DELETED])
def test_late_event_of_a_replaced_pod_leaves_the_new_one_alone(type: WatchType) -> None:
    """The deletion of the old one was never seen, or comes last."""
    engine = engine_with()
    old, new = make_pod("a", uid="u1"), make_pod("a", uid="u2")
    add(engine, old)
    add(engine, new)
    engine.step(Observed(type, old), 1)
    assert ["u2"] == list(engine.state.pods)
    assert Place.UNSCHEDULABLE is place_of(engine, new)


def test_late_event_does_not_bring_back_what_a_list_left_out() -> None:
    engine = engine_with(make_pod("a", cpu="1"))
    engine.step(Listed(()), 1)
    engine.step(Observed(MODIFIED, make_pod("a", cpu="1")), 2)
    assert {} == engine.state.pods
    engine.step(Listed((make_pod("a", cpu="1"),)), 3)  # a list knows better
    engine.step(Observed(MODIFIED, make_pod("a", cpu="2")), 4)
    assert ["2"] == [
        e.pod.spec.containers[0].resources.requests["cpu"] for e in engine.state.pods.values()
    ]


@pytest.mark.parametrize("lost", ["answer", "refusal"])
def test_pod_that_a_list_shows_unbound_is_tried_again(lost: str) -> None:
    """Not before a watch has had the time to show it: the list may be older than the bind."""
    engine = engine_with(make_node(cpu="1"))
    pod = make_pod("a", cpu="1")
    (bind,) = add(engine, pod)
    if lost == "answer":
        engine.step(WriteOk(bind.id), 1)
    else:
        engine.step(WriteFailed(bind.id, 0, "no answer"), 1)
        (again,) = engine.step(Tick(), 2 * SECOND_NS)
        engine.step(WriteFailed(again.id, 409, "already bound"), 2 * SECOND_NS)
    assert [] == engine.step(Listed((make_node(cpu="1"), pod)), 3 * SECOND_NS)
    assert 1000 == engine.state.columns["cpu"].requested_cells[0]
    due_ns = engine.next_wake_ns
    assert due_ns is not None
    assert 61 * SECOND_NS < due_ns <= 63 * SECOND_NS
    assert [("a", "n1")] == binds(engine.step(Tick(), due_ns))


def test_list_leaves_a_bind_that_is_under_way_alone() -> None:
    engine = engine_with(make_node(cpu="1"))
    pod = make_pod("a", cpu="1")
    (bind,) = add(engine, pod)
    assert [] == engine.step(Listed((make_node(cpu="1"), pod)), 1)
    engine.step(WriteFailed(bind.id, 0, "no answer"), 1)
    assert [] == engine.step(Listed((make_node(cpu="1"), pod)), 2)
    assert Place.IN_FLIGHT is place_of(engine, pod)


@pytest.mark.parametrize("type", [MODIFIED, DELETED])
def test_bind_is_not_sent_again_for_a_pod_that_needs_none(type: WatchType) -> None:
    """It was bound or deleted while nobody answered."""
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("a", cpu="1"))
    engine.step(WriteFailed(bind.id, 0, "no answer"), 0)
    engine.step(Observed(type, make_pod("a", cpu="1", node="n1")), 1)
    assert [] == engine.step(Tick(), 10 * SECOND_NS)


def test_refused_bind_after_an_earlier_failure_is_tried_again() -> None:
    """Only an unknown answer makes a conflict mean that the pod may be bound."""
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("a", cpu="1"))
    engine.step(WriteFailed(bind.id, 500, "refused"), 0)
    (again, *_) = [w for w in engine.step(Tick(), 2 * SECOND_NS) if isinstance(w, Bind)]
    engine.step(WriteFailed(again.id, 409, "conflict"), 2 * SECOND_NS)
    assert [("a", "n1")] == binds(engine.step(Tick(), 20 * SECOND_NS))


def test_pod_whose_bind_failed_goes_behind_those_that_waited() -> None:
    engine = engine_with(make_node(cpu="1"))
    (bind,) = add(engine, make_pod("first", cpu="1"))
    engine.step(WriteFailed(bind.id, 500, "refused"), SECOND_NS // 2)
    gates = {"schedulingGates": [{"name": "g"}]}
    add(engine, make_pod("second", cpu="1", **gates), SECOND_NS // 4 * 3)
    queued = engine.queue.get(make_pod("first").metadata.uid)
    assert queued is not None
    assert SECOND_NS // 2 == queued.added_ns


def test_node_without_a_resource_that_the_profile_ignores_wakes_the_pod() -> None:
    args = {"ignoredResources": ["x.io/a"]}
    profile = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
    }
    engine = build_engine(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )
    engine.step(Listed((make_node(cpu="1"),)), 0)
    add(engine, make_pod("a", cpu="2", requests={"x.io/a": "1"}))
    writes = add(engine, make_node("n2", cpu="8"), 20 * SECOND_NS)
    assert [("a", "n2")] == binds(writes)


def test_equal_pods_part_when_one_of_them_changes() -> None:
    """Waiting pods are woken by shape: one that asks for more now is not woken with the rest."""
    engine = engine_with(make_node(cpu="1"))
    small, grown = make_pod("small", cpu="2"), make_pod("grown", cpu="2")
    add(engine, small)
    add(engine, grown)
    engine.step(Observed(MODIFIED, make_pod("grown", cpu="4")), 1)
    add(engine, make_node("n2", cpu="3"), 20 * SECOND_NS)
    assert (1, 2) == (attempts_of(engine, grown), attempts_of(engine, small))


def test_preferred_nodes_count_beside_promised_room_as_without_it() -> None:
    """Scores that depend on the other nodes are worked out anew without the promised one."""
    soft = [{"key": f"k{i}", "effect": "PreferNoSchedule"} for i in range(10)]
    engine = engine_with(
        make_node("clean", cpu="1"),
        make_node("soft", cpu="64", taints=soft[:1]),
        make_node("softest", cpu="2", taints=soft),
    )
    gates = {"schedulingGates": [{"name": "g"}]}
    add(engine, make_pod("promised", cpu="2", priority=9, nominated="softest", **gates))
    # With the third node in the count, one taint would weigh a tenth, and the room decide.
    assert [("p1", "clean")] == binds(add(engine, make_pod("p1", cpu="1")))


def test_promise_to_a_pod_that_has_room_already_is_no_promise() -> None:
    engine = engine_with(make_node("n1", cpu="1"), make_node("n2", cpu="1"))
    add(engine, make_pod("a", cpu="1"))
    engine.step(Observed(MODIFIED, make_pod("a", cpu="1", nominated="n2")), 1)
    assert not engine.state.nominated_pods


def test_pod_handed_to_another_scheduler_is_left_to_it() -> None:
    engine = engine_with()
    add(engine, make_pod())
    engine.step(Observed(MODIFIED, make_pod(schedulerName="other")), 1)
    assert [] == add(engine, make_node(), 20 * SECOND_NS)
    assert 0 == len(engine.queue)


def test_node_without_pod_slots_wakes_nobody() -> None:
    engine = engine_with(make_node(cpu="1"))
    pod = make_pod(cpu="2")
    add(engine, pod)
    add(engine, make_node("n2", cpu="4", pods="0"))
    assert Place.UNSCHEDULABLE is place_of(engine, pod)


def test_updates_and_deletions_leave_no_stale_entries_behind() -> None:
    engine = engine_with(make_node(cpu="1"))
    waiting = make_pod("waiting", cpu="2")
    add(engine, waiting)
    for i in range(2_000):
        told = [{"type": "PodScheduled", "status": "False", "message": str(i)}]
        engine.step(Observed(MODIFIED, make_pod("waiting", cpu="2", conditions=told)), 1)
        passing = make_pod("passing", cpu="2", uid=f"u{i}")
        engine.step(Observed(ADDED, passing), 1)
        engine.step(Observed(DELETED, passing), 1)
    queue = engine.queue
    assert max(len(queue._flush), len(queue._active), len(queue._backoff)) < 200


def test_many_nominations_do_not_slow_other_pods_down() -> None:
    """A promise on one node is looked at only when that node would be chosen."""
    engine = engine_with(*(make_node(f"n{i}", cpu="8") for i in range(50)))
    for i in range(49):
        gated = make_pod(f"g{i}", cpu="8", nominated=f"n{i}", schedulingGates=[{"name": "g"}])
        add(engine, gated)
    assert [("p1", "n49")] == binds(add(engine, make_pod("p1", cpu="100m")))
