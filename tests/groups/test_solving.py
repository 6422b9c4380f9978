"""Searches that take longer than a step may: others are placed meanwhile, and the answer counts as
far as it holds in the state as it is then. Here no search is short."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, Solved, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.profile import Profile
from stower.framework.writes import Bind, DeletePod, PatchPodStatus, Solve, Write
from stower.groups import placement, searches
from stower.groups.placement import (
    Answer,
    Conflict,
    ExhaustedSearch,
    FoundPlacement,
    InfeasibleProblem,
)
from stower.groups.problem import Piece, Placement
from stower.groups.search import Progress
from stower.groups.solving import Request, encode_answer, read_request, solve
from stower.model.times import SECOND_NS
from stower.plugins.inter_pod_affinity import InterPodAffinity
from stower.state.pod_entry import PodEntry
from tests.builders import make_node, make_pod
from tests.group_builders import RACK, make_composite, make_group, members


@pytest.fixture(autouse=True)
def nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "VARIABLES_AT_ONCE", -1)
    monkeypatch.setattr(placement, "PACKINGS_AT_ONCE", -1)


class Shell:
    """An engine, what it has written, and the searches that it has asked for."""

    def __init__(self, *objects: Any) -> None:
        self.engine: Engine = build_engine()
        self.now_ns = 0
        self.bound: dict[str, str] = {}
        self.asked: list[Solve] = []
        self.messages: dict[str, str] = {}
        self.gone: list[str] = []
        self._pods = {o.metadata.name: o for o in objects if hasattr(o.spec, "containers")}
        self.step(Listed(objects))

    def step(self, event: Any) -> None:
        for write in self.engine.step(event, self.now_ns):
            self._on(write)

    def _on(self, write: Write) -> None:
        if isinstance(write, Solve):
            self.asked.append(write)
            return
        if isinstance(write, PatchPodStatus) and write.condition is not None:
            self.messages[write.name] = write.condition.message
        self.step(WriteOk(write.id))
        if isinstance(write, DeletePod):
            self.gone.append(write.name)
        if isinstance(write, Bind):
            self.bound[write.name] = write.node_name
            pod = self._pods[write.name]
            spec = msgspec.structs.replace(pod.spec, node_name=write.node_name)
            self.put(msgspec.structs.replace(pod, spec=spec), WatchType.MODIFIED)

    def put(self, obj: Any, change: WatchType = WatchType.ADDED) -> None:
        if hasattr(obj.spec, "containers"):
            self._pods[obj.metadata.name] = obj
        self.step(Observed(change, obj))

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        self.step(Tick())

    def answer(self, answer: Answer | None = None) -> None:
        """Answers the oldest question, truly where no answer is given."""
        asked = self.asked.pop(0)
        body = encode_answer(answer) if answer is not None else b""
        if answer is None and asked.message:
            body = solve(asked.message)
        self.step(Solved(asked.id, body))


def two_racks(cpu: str = "2") -> list[Any]:
    nodes = [make_node(f"{r}{i}", cpu=cpu, labels={RACK: r}) for r in "ab" for i in range(2)]
    return [*nodes, make_group("g", 4, key=RACK), *members("g", 4, cpu="1")]


def too_large() -> list[Any]:
    """A group of which counting does not say that it fits nowhere: 3, 3 and 2 on 4 and 4."""
    nodes = [make_node(f"{r}{i}", cpu="4", labels={RACK: r}) for r in "ab" for i in range(2)]
    sizes = ("3", "3", "2")
    pods = [members("g", 1, first=i, cpu=cpu)[0] for i, cpu in enumerate(sizes)]
    return [*nodes, make_group("g", 3, key=RACK), *pods]


def test_others_are_placed_while_a_tree_is_searched() -> None:
    shell = Shell(*two_racks("2500m"))
    assert ["g"] == [asked.name for asked in shell.asked]
    assert {} == shell.bound
    shell.put(make_pod("alone", cpu="100m"))
    assert ["alone"] == [*shell.bound]
    shell.answer()
    assert 5 == len(shell.bound)
    assert 1 == len({node[0] for name, node in shell.bound.items() if name != "alone"})
    assert not shell.asked


def test_nothing_is_asked_again_before_the_answer_is_there() -> None:
    shell = Shell(*too_large())
    for i in range(3):
        shell.put(make_node(f"c{i}", cpu="2", labels={RACK: f"c{i}"}))
        shell.wait(60)
    assert 1 == len(shell.asked)
    shell.answer()  # counts for another state: nothing has been found in it
    shell.answer()
    assert "impossible (proven)" in shell.messages["g-0"]


def test_a_placement_that_still_holds_counts_though_the_state_has_changed() -> None:
    shell = Shell(*two_racks(), make_node("c", cpu="9", labels={RACK: "c"}))
    shell.put(make_pod("elsewhere", cpu="8", uid="e", nodeSelector={RACK: "c"}))
    assert {"elsewhere"} == {*shell.bound}
    shell.answer()
    assert 5 == len(shell.bound)
    assert not shell.asked


def test_a_placement_whose_room_was_taken_meanwhile_is_searched_again() -> None:
    shell = Shell(*two_racks())
    shell.put(make_pod("taking", cpu="2", uid="t", nodeSelector={RACK: "a"}))
    assert {"taking"} == {*shell.bound}
    shell.answer()
    assert {"taking"} == {*shell.bound}
    shell.answer()
    assert 4 == sum(node[0] == "b" for node in shell.bound.values())


def test_where_the_state_never_rests_the_search_is_given_up_for_now() -> None:
    shell = Shell(*too_large())
    answers = 0
    while shell.asked and answers < 20:
        shell.put(make_node(f"more-{answers}", cpu="2", labels={RACK: f"r{answers}"}))
        shell.answer()
        answers += 1
    assert answers == searches.MISSED_MAX + 1
    assert "not found yet" in shell.messages["g-0"]
    assert "(stage: changes)" in shell.messages["g-0"]


@pytest.mark.parametrize("refused", [False, True])
def test_without_an_answer_nothing_is_proved_and_it_is_tried_again(refused: bool) -> None:
    shell = Shell(*two_racks())
    asked = shell.asked.pop(0)
    lost = WriteFailed(asked.id, 500, "gone") if refused else Solved(asked.id, error="gone")
    shell.step(lost)
    assert "not found yet (searched 0, goes on)" in shell.messages["g-0"]
    assert "(stage: solver: gone)" in shell.messages["g-0"]
    shell.wait(30)
    shell.answer()
    assert 4 == len(shell.bound)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa4type\xa3odd", b"\x93" * 50])
def test_an_answer_that_is_none_proves_nothing(body: bytes) -> None:
    shell = Shell(*two_racks())
    shell.step(Solved(shell.asked.pop(0).id, body))
    assert "not found yet" in shell.messages["g-0"]


def test_a_shell_that_does_not_search_leaves_it_to_the_engine() -> None:
    shell = Shell(*two_racks())
    shell.step(WriteOk(shell.asked.pop(0).id))
    assert 4 == len(shell.bound)


def test_the_next_search_goes_on_where_the_last_one_ended() -> None:
    shell = Shell(*two_racks())
    progress = Progress(12, 345, (3,))
    shell.answer(ExhaustedSearch("search", 345, progress))
    assert "not found yet (searched 345, goes on)" in shell.messages["g-0"]
    shell.wait(30)
    request = _read(shell.asked[0])
    assert (2, progress) == (request.effort, request.begun)
    for _ in range(2):
        shell.answer(ExhaustedSearch("search", 345, progress))
        shell.wait(60)
    assert not shell.asked, "only a change helps now"
    shell.put(make_node("c", cpu="1", labels={RACK: "c"}))
    assert (4, Progress()) == (_read(shell.asked[0]).effort, _read(shell.asked[0]).begun)


def test_an_answer_to_what_was_asked_before_a_change_of_the_tree_is_dropped() -> None:
    shell = Shell(*two_racks())
    shell.put(members("g", 5, cpu="1")[4])
    old, new = shell.asked
    shell.step(Solved(old.id, solve(old.message)))
    assert {} == shell.bound
    shell.asked = [new]
    shell.answer()
    while shell.asked:  # for the fifth
        shell.answer()
    assert 4 == len(shell.bound)


def test_more_pods_than_the_minimum_are_searched_beside_others_too() -> None:
    objects = [o for o in two_racks() if not hasattr(o.spec, "scheduling_policy")]
    shell = Shell(*objects, make_group("g", 2, key=RACK))
    while shell.asked:
        shell.answer()
    assert 4 == len(shell.bound)


def test_an_eviction_is_searched_beside_others() -> None:
    shell = Shell(*evicting())
    asked = 0
    while shell.asked:
        shell.put(make_pod(f"small-{asked}", cpu="1m", uid=f"small-{asked}"))
        shell.answer()
        asked += 1
    assert asked
    assert 2 == len(shell.gone)
    assert 1 == len({name[4] for name in shell.gone})


def _read(asked: Solve) -> Request:
    return read_request(asked.message)


def test_a_change_that_changes_nothing_does_not_begin_the_search_again() -> None:
    objects = two_racks()
    shell = Shell(*objects)
    group = objects[4]
    for number in range(5):
        meta = msgspec.structs.replace(group.metadata, annotations={"n": str(number)})
        shell.put(msgspec.structs.replace(group, metadata=meta), WatchType.MODIFIED)
    assert 1 == len(shell.asked)
    shell.answer()
    assert 4 == len(shell.bound)


def test_an_answer_to_an_engine_before_this_one_is_none_to_another_write() -> None:
    shell = Shell(make_node("n1"))
    writes = shell.engine.step(Observed(WatchType.ADDED, make_pod("p")), 0)
    (bind,) = [write for write in writes if isinstance(write, Bind)]
    assert [] == shell.engine.step(Solved(bind.id, b"odd"), 0)
    shell.engine.step(WriteFailed(bind.id, 404, "gone"), 0)
    assert "gone" in str(shell.engine.drain())


@pytest.mark.parametrize(
    "answer",
    [
        FoundPlacement(Placement((Piece(0, 0, 0, 1),)), "x", True),
        FoundPlacement(Placement((Piece(0, 0, 0, 9),)), "x", True),
        FoundPlacement(Placement((Piece(0, 0, -1, 4),)), "x", True),
        FoundPlacement(Placement((Piece(0, 7, 0, 4),)), "x", True),
        FoundPlacement(Placement((Piece(0, 0, 99, 4),)), "x", True),
        InfeasibleProblem(99, "x"),
        InfeasibleProblem(-1, "x", Conflict([9], [], [])),
    ],
)
def test_a_wrong_answer_is_none(answer: Answer) -> None:
    """As from a solver with a bug: no part of the gang is bound, and the next answer counts."""
    shell = Shell(*two_racks())
    shell.answer(answer)
    assert {} == shell.bound
    assert "(stage: solver: " in shell.messages["g-0"]
    assert not shell.engine.errors.counts
    shell.wait(30)
    shell.answer()
    assert 4 == len(shell.bound)


def evicting() -> list[Any]:
    low = [make_pod(f"low-{r}{i}", cpu="2", node=f"{r}{i}", uid=f"low-{r}{i}")
           for r in "ab" for i in range(2)]  # fmt: skip
    nodes = [o for o in two_racks() if not hasattr(o.spec, "containers")][:4]
    pods = members("g", 4, cpu="1", priority=10)
    return [*nodes, *low, make_group("g", 4, key=RACK, priority=10), *pods]


def test_whether_victims_help_is_searched_again_where_the_answer_was_lost() -> None:
    shell = Shell(*evicting())
    shell.step(Solved(shell.asked.pop(0).id, error="gone"))
    assert not shell.gone
    assert "whether victims would help was not found yet" in shell.messages["g-0"]
    shell.wait(30)
    while shell.asked:
        shell.answer()
    assert 2 == len(shell.gone)


def test_a_step_makes_few_searches_however_many_trees_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "VARIABLES_AT_ONCE", 150)
    monkeypatch.setattr(placement, "PACKINGS_AT_ONCE", 2_000)
    spent = []

    def note(self: Engine) -> bool:
        found = run(self)
        assert self.tree_attempts is not None
        spent.append(self.tree_attempts.spent)
        return found

    run = Engine._run_cycles
    monkeypatch.setattr(Engine, "_run_cycles", note)
    nodes = [make_node(f"n{i}", cpu="10", labels={RACK: f"r{i // 10}"}) for i in range(40)]
    trees: list[Any] = []
    for t in range(12):
        trees.append(make_group(f"t{t}", 16, key=RACK))
        for i in range(16):
            trees += members(f"t{t}", 1, first=i, cpu="6" if i < 8 else "5")
    shell = Shell(*nodes, *trees)
    while shell.asked:
        shell.answer()
        shell.wait(0)
    assert max(spent) < 3 * searches.SPENT_MAX
    assert 12 == len({name.partition("-")[0] for name in shell.messages})


def run_to(shell: Shell, is_over: Callable[[], bool], seconds: int) -> int:
    """Answers all questions, and lets time pass; returns after how many seconds it is over."""
    began_ns = shell.now_ns
    for _ in range(10 * seconds):
        if is_over():
            break
        if shell.asked:
            shell.answer()
        else:
            shell.wait(1)
        assert shell.now_ns - began_ns <= seconds * SECOND_NS, shell.messages
    return (shell.now_ns - began_ns) // SECOND_NS


def test_placements_that_a_plugin_refuses_are_searched_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing changes meanwhile: each question is about what the plugin has refused until then."""
    monkeypatch.setattr(InterPodAffinity, "tree_rules", lambda *_: ())
    term = {"topologyKey": "switch", "labelSelector": {"matchLabels": {"app": "g"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [
        make_node(f"{rack}{i}", cpu=cpu, labels={RACK: rack, "switch": f"{rack}-{switch}"})
        for rack, cpu, switches in (("a", "1", "11112222"), ("b", "8", "123"))
        for i, switch in enumerate(switches)
    ]
    pods = members("g", 3, cpu="1", labels={"app": "g"}, affinity=apart)
    shell = Shell(*nodes, make_group("g", 3, key=RACK), *pods)
    assert 0 == run_to(shell, lambda: len(shell.bound) == 3, 1)
    assert {"b"} == {node[0] for node in shell.bound.values()}


def test_a_node_that_makes_an_eviction_help_counts_while_that_is_searched() -> None:
    nodes = [make_node(f"a{i}", cpu="4", labels={RACK: "a"}) for i in range(2)]
    low = [make_pod(f"low-{i}", cpu="4", node=f"a{i}", uid=f"low-{i}") for i in range(2)]
    pods = [
        members("g", 1, first=i, cpu=cpu, priority=100)[0] for i, cpu in enumerate(("3", "3", "2"))
    ]
    shell = Shell(*nodes, *low, make_group("g", 3, key=RACK, priority=100), *pods)
    assert shell.asked  # for a placement without the pods that may leave: there is none
    shell.put(make_node("a9", cpu="4", labels={RACK: "a"}))
    assert 0 == run_to(shell, lambda: len(shell.gone) == 2, 1)


def test_answers_that_are_lost_are_no_attempts() -> None:
    shell = Shell(*two_racks())
    for _ in range(3):
        while not shell.asked:
            shell.wait(1)
        shell.step(Solved(shell.asked.pop(0).id, error="the solver has ended"))
    assert run_to(shell, lambda: len(shell.bound) == 4, 10) <= 10


def test_what_changed_while_the_last_answer_came_is_searched() -> None:
    """One rack has room at any time, each time another one."""
    racks = [f"r{i:02}" for i in range(12)]
    nodes = [make_node(f"{rack}-{i}", cpu="2", labels={RACK: rack}) for rack in racks for i in "01"]
    taken = {r: make_pod(r, cpu="1", uid=r, node=f"{r}-0", priority=50) for r in racks[1:]}
    shell = Shell(*nodes, *taken.values(), make_group("g", 4, key=RACK), *members("g", 4, cpu="1"))
    for i in range(6):
        while not shell.asked:
            shell.wait(1)
        shell.put(
            make_pod(f"more-{i}", cpu="1", uid=f"more-{i}", node=f"{racks[i]}-0", priority=50)
        )
        shell.step(Observed(WatchType.DELETED, taken[racks[i + 1]]))
        shell.answer()
    assert run_to(shell, lambda: len(shell.bound) == 4, 15) <= 15


def test_pods_beyond_the_minimum_evict_soon() -> None:
    nodes = [make_node(f"n{i}", cpu="1") for i in range(2)]
    low = make_pod("low", cpu="1", node="n1", uid="low")
    group, pods = make_group("g", 1, priority=10), members("g", 2, cpu="1", priority=10)
    shell = Shell(*nodes, low, group, *pods)
    assert run_to(shell, lambda: shell.gone == ["low"], 2) <= 2


def test_which_units_leave_is_found_out_once_for_each_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not again with each answer; and a pod is looked at for the units on its own node alone."""
    calls = []
    plain = SchedulingCycle.fits

    def counted(self: SchedulingCycle, profile: Profile, entry: PodEntry, row: int) -> bool:
        calls.append(entry.uid)
        return plain(self, profile, entry, row)

    monkeypatch.setattr(SchedulingCycle, "fits", counted)
    nodes = [make_node(f"n{i:02}", cpu="8", labels={RACK: f"r{i // 8}"}) for i in range(32)]
    low = [
        make_pod(f"low-{i}-{j}", cpu=str(3 + (j == 0)), node=f"n{i:02}", uid=f"low-{i}-{j}",
                 priority=(i * 13 + j) % 4)
        for i in range(32) for j in range(2)
    ]  # fmt: skip
    groups: list[Any] = [make_composite("c", 2, priority=100)]
    pods = []
    for g in range(2):
        groups.append(make_group(f"g{g}", 6, parent="c", key=RACK, priority=100))
        for i in range(6):
            cpu = "6" if i % 2 else "5"
            pods += members(f"g{g}", 1, first=i, cpu=cpu, priority=100)
    shell = Shell(*nodes, *low, *groups, *pods)
    answers = 0
    while not shell.gone:
        shell.answer()
        answers += 1
    assert answers > 5
    assert len(calls) < 80 * len(pods)  # 304 for each pod, if with each answer
