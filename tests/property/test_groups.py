"""Trees of groups on tiny worlds: the answer equals that of trying everything.

The model here knows the rules and nothing else: every way to put pods of equal kind on nodes.
"""

from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from stower.groups.placement import (
    ExhaustedSearch,
    FoundPlacement,
    InfeasibleProblem,
    improve,
    place,
)
from stower.groups.placement_check import faults_of
from stower.groups.problem import (
    NO_CAP,
    Group,
    Kind,
    Part,
    Piece,
    Placement,
    Problem,
    Scope,
    divided,
    whole_scope,
)
from stower.groups.solving import (
    Request,
    answer_to,
    decode_answer,
    encode_request,
    read_request,
    solve,
)

KINDS_MAX = 3
WAYS_MAX = 20_000


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to 4 nodes in racks and blocks, up to 3 groups of pods in up to 3 levels."""
    count = draw(st.integers(1, 4))
    blocks = np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    racks = np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    free = np.array(
        [draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)) for _ in range(2)]
    )
    kinds = []
    for _ in range(draw(st.integers(1, KINDS_MAX))):
        demand = np.array([draw(st.integers(1, 3)), draw(st.integers(0, 2))])
        caps = draw(st.lists(st.sampled_from([0, 1, NO_CAP]), min_size=count, max_size=count))
        kinds.append(Kind(demand, np.array(caps)))
    scopes: list[Scope] = [whole_scope(count)]
    scopes.append(divided(scopes[0], 0, blocks))
    scopes.append(divided(scopes[0], 0, racks))
    scopes.append(divided(scopes[1], 1, racks))
    inside = {0: (0, 1, 2, 3), 1: (1, 3), 2: (2,), 3: (3,)}
    groups: list[Group] = []

    def leaf(parent: int, scope: int) -> None:
        used = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=2, unique=True))
        parts = tuple(Part(kind, draw(st.integers(1, 2))) for kind in used)
        minimum = draw(st.integers(0, sum(part.count for part in parts)))
        own = draw(st.sampled_from(inside[scope]))
        domains = None
        if own and draw(st.integers(0, 5)) == 0 and scopes[own].count:
            domains = frozenset((draw(st.integers(0, scopes[own].count - 1)),))
        groups.append(Group(f"g{len(groups)}", parent, own, minimum, (), parts, domains))

    def composite(parent: int, scope: int, depth: int) -> None:
        me, own = len(groups), draw(st.sampled_from(inside[scope]))
        groups.append(Group("", -1, 0, 0))
        children = []
        for _ in range(draw(st.integers(1, 3))):
            if sum(1 for g in groups if g.parts) >= 3:
                break
            children.append(len(groups))
            if depth < 1 and draw(st.booleans()):
                composite(me, own, depth + 1)
            else:
                leaf(me, own)
        minimum = draw(st.integers(1, max(len(children), 1)))
        groups[me] = Group(f"c{me}", parent, own, minimum, tuple(children))

    if draw(st.booleans()):
        composite(-1, 0, 0)
    else:
        leaf(-1, 0)
    return Problem(("a", "b"), free, tuple(scopes), tuple(groups), tuple(kinds))


def most(problem: Problem) -> int | None:
    """The most pods of all placements, -1 where there is none; None where there are too many ways
    to try."""
    slots = [
        (g, p, node, min(part.count, int(limit)))
        for g, group in enumerate(problem.groups)
        for p, part in enumerate(group.parts)
        for node, limit in enumerate(
            problem.slots(part.kind, problem.free, slice(0, problem.node_count))
        )
    ]
    ways = 1
    for *_, limit in slots:
        ways *= limit + 1
    if ways > WAYS_MAX:
        return None
    best = -1
    for counts in product(*(range(limit + 1) for *_, limit in slots)):
        pieces = tuple(
            Piece(g, p, node, n) for (g, p, node, _), n in zip(slots, counts, strict=True) if n
        )
        placement = Placement(pieces)
        if placement.count > best and not faults_of(problem, placement):
            best = placement.count
    return best


def check(problem: Problem) -> None:
    best = most(problem)
    if best is None:
        return
    answer = place(problem)
    assert not isinstance(answer, ExhaustedSearch)
    if isinstance(answer, InfeasibleProblem):
        assert -1 == best
    else:
        assert isinstance(answer, FoundPlacement)
        assert [] == faults_of(problem, answer.placement)
        assert best == answer.placement.count or not answer.is_most
        most_found = answer if answer.is_most else improve(problem, answer)
        assert [] == faults_of(problem, most_found.placement)
        assert best == most_found.placement.count


@settings(max_examples=250, deadline=None)
@given(problems())
@pytest.mark.behaviour("S3.13", "S3.16")
def test_the_answer_is_that_of_trying_everything(problem: Problem) -> None:
    check(problem)


@pytest.mark.more
@settings(max_examples=2_000, deadline=None)
@given(problems())
def test_the_answer_is_that_of_trying_everything_more(problem: Problem) -> None:
    check(problem)


@settings(max_examples=100)
@given(problems())
def test_a_message_has_the_same_answer_as_the_search(problem: Problem) -> None:
    request = Request(problem)
    message = encode_request(request)
    assert message == encode_request(read_request(message))
    assert answer_to(request) == decode_answer(solve(message))
