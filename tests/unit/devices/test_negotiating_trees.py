"""Negotiations of pod group trees: what a tree learns about devices, and when it may ask again."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from stower.devices.negotiation.candidates import Rules
from stower.devices.negotiation.claims import Party, PodNegotiation, TreeRank
from stower.devices.negotiation.scheduling import next_step
from stower.devices.negotiation.steps import NO_PLACE_FOR_GROUP, WAITS_FOR_GROUP, Step
from stower.devices.negotiation.trees import (
    ANY_NODE,
    DELAY_NS,
    DELAY_NS_MAX,
    RETRYING_ATTEMPTS,
    ClaimId,
    Pool,
    TreeNegotiation,
    TreeTurn,
    delay_for,
)
from stower.devices.negotiation.turns import preceding_pod
from stower.framework.writes import CreateObject, PatchObject
from stower.model.kinds import PodScheduling, ResourceClaim
from stower.model.times import SECOND_NS
from tests.builders import make_pod

DRIVER = "a.example.com"
KEY = "PodGroup default/g"
TREE = TreeRank(KEY, "2026-01-01T00:00:00Z", "group")


class Pieces:
    """The state of the cluster that a tree reads."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.in_use: dict[ClaimId, Pool] = {}

    def claims_in_use(self, drivers: Collection[str]) -> Iterable[tuple[ClaimId, Pool]]:
        return self.in_use.items() if DRIVER in drivers else []

    def is_in_use(self, claim: ClaimId) -> bool:
        return claim in self.in_use

    # Surroundings of a step

    def first_seen_ns(self, what: str, state: object, is_new: bool = False) -> int:
        return 0

    def add_failure(self, party: Party, seen: PodScheduling, is_late: bool = False) -> bool:
        return False

    def late_count(self, but_ns: int = -1) -> int:
        return 0

    def refused_until_ns(self, node_name: str) -> int:
        return 0

    def preceding_pod(self, negotiation: PodNegotiation, by_rank: bool) -> str:
        return ""

    def has_common_node(self, claims: Sequence[ResourceClaim]) -> bool:
        return True

    def has_node(self, name: str) -> bool:
        return True

    def is_available_on(self, claim: ResourceClaim, name: str) -> bool:
        return True

    def is_unbound(self, uid: str) -> bool:
        return True

    def interleave(self, names: Sequence[str]) -> list[str]:
        return [*names]


class Ranked(list[str]):
    """Feasible nodes, the best first."""

    domain = ""  # what the names of nodes in the domain begin with

    def names(self) -> list[str]:
        return [*self]

    def in_domain(self) -> list[str]:
        return [name for name in self if name.startswith(self.domain)]

    def select(self, names: Sequence[str]) -> list[str]:
        return [name for name in self if name in names]


def negotiation(
    name: str,
    selected: str = "",
    refused: Sequence[str] = (),
    on: str | None = None,
    count: int = 1,
    attempt: int = 0,
    tree: TreeRank | None = TREE,
    candidates: Sequence[str] = ("n1", "n2"),
    answered: int = 1,
) -> PodNegotiation:
    """Of a pod with one claim, which is allocated `on` a node, or on any with ANY_NODE."""
    pod = make_pod(name)
    uid = pod.metadata.uid
    exactly = {"deviceClassName": "a", "count": count}
    status: dict[str, Any] = {}
    if on is not None:
        status = {
            "allocation": {"devices": {}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        if on != ANY_NODE:
            field = {"key": "metadata.name", "operator": "In", "values": [on]}
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    claim = msgspec.convert(
        {
            "metadata": {"name": f"{name}-c", "namespace": "default", "uid": f"{name}-c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            "status": status,
        },
        ResourceClaim,
    )
    answer = {"name": "c", "unsuitableNodes": refused, "observedRound": answered}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    said = msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
            "spec": {
                "selectedNode": selected, "round": 1, "attempt": attempt,
                "potentialNodes": candidates,
            },
            "status": {"resourceClaims": [answer]},
        },
        PodScheduling,
    )  # fmt: skip
    return PodNegotiation(pod, (Party("c", DRIVER, claim),), said, tree=tree)


def begun(*pods: PodNegotiation, around: Pieces) -> TreeNegotiation:
    """A tree that selects nodes for these pods."""
    known = TreeNegotiation()
    known.update(KEY, pods, around)
    for pod in pods:
        known.begin(pod)
    return known


def fail_attempt(
    known: TreeNegotiation, around: Pieces, attempt: int, node: str, size: int, learns: bool
) -> None:
    """One pod gets a device of the node, the other none, and the first gives it back."""
    have = negotiation("p", node, on=node, count=size, attempt=attempt - 1)
    lacks = negotiation("q", node, [node] if learns else [], attempt=attempt - 1)
    known.begin(have)
    known.begin(negotiation("q"))
    known.update(KEY, [have, lacks], around)
    known.fail(around.now_ns)
    known.is_failed = True
    back = [negotiation(name, attempt=attempt) for name in "pq"]
    known.update(KEY, back, around)


def after_attempts(count: int, around: Pieces, learns: bool) -> TreeNegotiation:
    """A tree whose pods have given back their devices so many times."""
    known = begun(negotiation("p"), negotiation("q"), around=around)
    for attempt in range(1, count + 1):
        size = 2 + count - attempt  # each time less is known to be there
        fail_attempt(known, around, attempt, f"n{attempt}" if learns else "n1", size, learns)
    return known


def test_a_refusal_while_the_tree_has_devices_shows_how_many_there_are() -> None:
    around = Pieces()
    known = begun(negotiation("p"), negotiation("q"), around=around)
    known.update(KEY, [negotiation("p", "n1", on="n1"), negotiation("q", "n1", ["n1"])], around)
    assert {(DRIVER, "n1"): 1} == known.capacity
    assert (0, None) == (known.free((DRIVER, "n1")), known.free((DRIVER, "n2")))
    known.update(KEY, [negotiation("p"), negotiation("q")], around)
    assert 1 == known.free((DRIVER, "n1"))


def test_a_pod_that_wants_more_leaves_room_for_less() -> None:
    """One device is in use, two are refused: there may be one more."""
    around = Pieces()
    known = begun(negotiation("p"), negotiation("q", count=2), around=around)
    pods = [negotiation("p", "n1", on="n1"), negotiation("q", "n1", ["n1"], count=2)]
    known.update(KEY, pods, around)
    assert {(DRIVER, "n1"): 2} == known.capacity


def test_a_node_that_was_refused_before_shows_nothing() -> None:
    around = Pieces()
    known = begun(negotiation("p"), negotiation("q", refused=["n1"]), around=around)
    known.update(KEY, [negotiation("p", "n1", on="n1"), negotiation("q", "n2", ["n1"])], around)
    assert {} == known.capacity


def test_devices_of_any_node_are_counted_together() -> None:
    around = Pieces()
    known = begun(*(negotiation(name) for name in "pqr"), around=around)
    pods = [
        negotiation("p", "n1", on=ANY_NODE), negotiation("q", "n2", on=ANY_NODE),
        negotiation("r", "n1", ["n1", "n2"]),
    ]  # fmt: skip
    known.update(KEY, pods, around)
    assert {(DRIVER, ANY_NODE): 2} == known.capacity


def test_a_tree_that_has_learned_asks_again_at_once_and_three_times_at_most() -> None:
    around = Pieces()
    assert [0, 0, 0] == [after_attempts(n, around, True).not_before_ns for n in (1, 2, 3)]
    assert after_attempts(4, around, True).not_before_ns >= DELAY_NS << 3


def test_a_tree_that_has_learned_nothing_waits() -> None:
    around = Pieces()
    waits = [after_attempts(n, around, False).not_before_ns for n in range(1, 9)]
    assert [delay_for(KEY, n) for n in range(1, 9)] == waits
    assert DELAY_NS <= waits[0] <= DELAY_NS * 5 // 4
    assert all(b in (2 * a, waits[-1]) for a, b in itertools.pairwise(waits))
    assert DELAY_NS_MAX <= waits[-1] <= DELAY_NS_MAX * 5 // 4


def test_after_the_delay_what_was_learned_is_forgotten() -> None:
    around = Pieces()
    known = after_attempts(1, around, True)
    back = [negotiation(name, attempt=1) for name in "pq"]
    around.now_ns = known.expires_ns - 1
    known.update(KEY, back, around)
    assert known.capacity
    around.now_ns += 1
    known.update(KEY, back, around)
    assert ({}, 0) == (known.capacity, known.not_before_ns)


def test_devices_that_a_running_pod_leaves_end_the_delay() -> None:
    around = Pieces()
    around.in_use = {
        ("default/other", "1"): (DRIVER, "n1"),
        ("default/more", "2"): (DRIVER, "n2"),
    }
    known = after_attempts(1, around, False)
    back = [negotiation(name, attempt=1) for name in "pq"]
    known.update(KEY, back, around)
    assert known.not_before_ns
    around.in_use.popitem()
    known.update(KEY, back, around)
    assert 0 == known.not_before_ns


def test_devices_that_were_not_lacking_change_nothing_when_they_are_left() -> None:
    around = Pieces()
    around.in_use = {
        ("default/other", "1"): (DRIVER, "n1"),
        ("default/more", "2"): (DRIVER, "n2"),
    }
    known = after_attempts(4, around, True)
    assert (DRIVER, "n1") in known.capacity
    del known.capacity[DRIVER, "n2"]
    until_ns, back = known.not_before_ns, [negotiation(name, attempt=4) for name in "pq"]
    del around.in_use["default/more", "2"]
    known.update(KEY, back, around)
    assert until_ns == known.not_before_ns
    del around.in_use["default/other", "1"]
    known.update(KEY, back, around)
    assert ({}, 0) == (known.capacity, known.not_before_ns)


def test_after_many_attempts_none_follows_at_once() -> None:
    """Whatever is learned: more devices than any node has would be asked for, for ever."""
    known, around = TreeNegotiation(), Pieces()
    at_once = []
    for attempt in range(1, 2 * RETRYING_ATTEMPTS):
        around.now_ns = known.not_before_ns
        known.update(KEY, [negotiation(name, attempt=attempt - 1) for name in "pq"], around)
        fail_attempt(known, around, attempt, f"n{attempt}", 2, learns=True)
        if known.not_before_ns == around.now_ns:
            at_once.append(attempt)
    assert [1, 2, 3, 5, 6, 7] == at_once


def test_after_a_restart_a_tree_that_has_failed_before_waits() -> None:
    """The objects have the number of attempts, and nothing else."""
    around = Pieces()
    around.now_ns = 7
    known = TreeNegotiation()
    known.update(KEY, [negotiation("p", attempt=3), negotiation("q", attempt=2)], around)
    assert 7 + delay_for(KEY, 3) == known.not_before_ns
    in_midst = TreeNegotiation()
    in_midst.update(KEY, [negotiation("p", "n1", on="n1", attempt=3)], around)
    assert (True, 0) == (in_midst.is_begun, in_midst.not_before_ns)


# Steps


def step(pod: PodNegotiation, turn: TreeTurn, nodes: Sequence[str] = ("n1", "n2")) -> Step:
    found = next_step(pod, Pieces(), Ranked(nodes), Rules(nodes_max=2), turn)
    assert found is not None
    return found


def turn(node: str = "n2", may_select: bool = False, not_before_ns: int = 0) -> TreeTurn:
    return TreeTurn(node, may_select, False, not_before_ns, not_before_ns, 1)


def spec_of(found: Step) -> dict[str, Any]:
    write = found.write
    assert isinstance(write, PatchObject)
    spec: dict[str, Any] = write.patch["spec"]
    return spec


def test_a_pod_of_a_tree_only_asks_at_first() -> None:
    """A pod alone with one claim selects its node at once."""
    found = step(negotiation("p")._replace(scheduling=None), turn())
    assert isinstance(found.write, CreateObject)
    assert {"potentialNodes": ["n1", "n2"], "round": 1} == found.write.body["spec"]
    alone = next_step(
        negotiation("p", tree=None)._replace(scheduling=None), Pieces(), Ranked(["n1"]), Rules()
    )
    assert alone is not None
    assert isinstance(alone.write, CreateObject)
    assert "n1" == alone.write.body["spec"]["selectedNode"]


def test_nodes_of_the_domain_and_those_that_suit_are_asked_about_first() -> None:
    """Pods of a tree need nodes of one domain that all of them know to be suitable."""
    around, rules = Pieces(), Rules(nodes_max=4)
    ranked = Ranked(["b1", "b2", "b3", "a1", "a2", "a3", "a4", "a5"])
    ranked.domain = "a"
    turn = TreeTurn("a5", False, False, 0, 0, 0)
    for asked, refused, wanted in (
        (["b1"], [], ["a5", "a1", "a2", "a3"]),
        (["b1", "a2", "a3", "a4"], ["a3", "a4"], ["a5", "a2", "a1", "b2"]),
    ):
        pod = negotiation("p", candidates=asked, refused=refused)
        ranked[:] = [name for name in ranked if name not in refused]
        step = next_step(pod, around, ranked, rules, turn)
        assert step is not None
        assert isinstance(step.write, PatchObject)
        assert wanted == step.write.patch["spec"]["potentialNodes"]


def test_a_node_that_was_not_asked_about_is_asked_about_first() -> None:
    found = step(negotiation("p", candidates=["n1"]), turn("n9"), ["n1", "n2", "n9"])
    assert "n9" in spec_of(found)["potentialNodes"]
    assert "selectedNode" not in spec_of(found)


def test_the_node_of_the_placement_is_selected_once_all_pods_are_ready() -> None:
    pod = negotiation("p", attempt=1)
    waits = step(pod, turn())
    assert (None, WAITS_FOR_GROUP, True) == (waits.write, waits.message, waits.is_ready)
    assert {"selectedNode": "n2"} == spec_of(step(pod, turn(may_select=True)))
    silent = step(negotiation("p", answered=0), turn(may_select=True))
    assert (None, False) == (silent.write, silent.is_ready)


def test_nothing_is_selected_before_the_delay_is_over() -> None:
    waits = step(negotiation("p", attempt=1), turn(not_before_ns=SECOND_NS))
    assert (None, SECOND_NS, True) == (waits.write, waits.again_ns, waits.is_stalled)
    assert waits.message.startswith(NO_PLACE_FOR_GROUP)


@pytest.mark.parametrize("on", [None, "n1"])
def test_a_tree_without_a_placement_takes_back_its_selections_first(on: str | None) -> None:
    """Also one that a driver has not answered yet. It counts as an attempt."""
    found = step(negotiation("p", "n1", on=on), turn(""))
    assert {"selectedNode": "", "attempt": 1} == spec_of(found)
    assert found.is_stalled
    if on is not None:
        after = step(negotiation("p", on=on), turn(""))
        assert isinstance(after.write, PatchObject)
        assert "annotations" in after.write.patch["metadata"]


def test_trees_take_turns_and_pods_of_one_tree_do_not_wait_for_each_other() -> None:
    """The age of the root counts, not that of the pods."""
    young = TreeRank("PodGroup default/h", "2026-01-02T00:00:00Z", "h")
    first, second = negotiation("z", attempt=1), negotiation("y", attempt=1)
    other = negotiation("a", attempt=1, tree=young)
    assert "" == preceding_pod(first, [(second, False), (other, False)], True)
    assert "default/z" == preceding_pod(other, [(first, False)], True)
    assert "" == preceding_pod(first, [(second, True)], True)
    assert "default/a" == preceding_pod(first, [(other, True)], True)
