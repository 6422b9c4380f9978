"""What states are worth, against slow and obvious models."""

from itertools import combinations, product
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stower.devices.packing.dgf import Dgf
from stower.devices.packing.fgd import Fgd
from stower.devices.packing.fill import Column, columns_of, fills, fragments
from stower.devices.packing.mix import COUNTED_MAX, HALVED_EVERY, Demand, Mix, Request, Room
from stower.devices.packing.packer import Packer
from stower.devices.packing.phi import knapsack, phi

# A state and a class of requests, small enough to think about and large enough to disagree on.
frees = st.lists(st.sampled_from([0, 100, 250, 333, 500, 667, 999, 1000]), min_size=1, max_size=4)
shares = st.sampled_from([0, 100, 250, 333, 334, 500, 600, 1000])
kinds = st.tuples(shares, shares)  # by turns
classes = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3), kinds)


def slow_fill(cpu: int, memory: int, free: list[int], column: Column) -> int:
    """As the text has it, device by device."""
    pairs = [(f, m) for f, m in zip(free, column.shares) if m and f >= m]
    if len(pairs) < column.number:
        return 0
    places = sum(f // m for f, m in pairs)
    each = max(column.number, 1)
    copies = places // each
    if column.cpu_milli:
        copies = min(copies, cpu // column.cpu_milli)
    if column.memory_bytes:
        copies = min(copies, memory // column.memory_bytes)
    if not places:
        return 0
    return floor(sum(f for f, _ in pairs) * copies * each / places + 0.5)


def slow_fragment(cpu: int, free: list[int], column: Column) -> int:
    """Section 4.1 of the paper: cases 1 to 3. Memory plays no part."""
    usable = [f for f, m in zip(free, column.shares) if m and f >= m]
    fits = column.number > 0 and len(usable) >= column.number and cpu >= column.cpu_milli
    return sum(free) - sum(usable) if fits else sum(free)


@given(st.integers(0, 20), st.integers(0, 20), frees, st.lists(classes, min_size=1, max_size=4))
def test_fills_and_fragments_equal_the_slow_ones(
    cpu: int, memory: int, free: list[int], given_: list[tuple[int, int, int, tuple[int, int]]]
) -> None:
    """For all classes at once as for each alone."""
    columns = [Column(c, m, n, (*pair, *pair)[: len(free)]) for c, m, n, pair in given_]
    slow = [slow_fill(cpu, memory, free, c) for c in columns]
    frees, arrays = np.array([free]), columns_of(columns, len(free))
    assert slow == fills(np.array([cpu]), np.array([memory]), frees, arrays)[0].tolist()
    slow = [slow_fragment(cpu, free, c) for c in columns]
    assert slow == fragments(np.array([cpu]), frees, arrays)[0].tolist()


@pytest.mark.parametrize(
    ("cpu", "memory", "free", "column", "expected"),
    [
        (8, 9, [1000, 1000, 1000], Column(2, 0, 2, (1000,) * 3), 2000),  # the third is left alone
        (3, 9, [1000, 1000], Column(2, 3, 1, (1000,) * 2), 1000),  # CPU for one
        (8, 5, [1000, 1000], Column(2, 3, 1, (1000,) * 2), 1000),  # memory for one
        (8, 2, [1000, 1000], Column(2, 3, 1, (1000,) * 2), 0),  # for none
        (8, 9, [1000, 400], Column(2, 3, 1, (500,) * 2), 1000),  # 400 serves nobody
        (2, 9, [1000], Column(2, 3, 1, (250,)), 250),  # one of four copies
        (8, 3, [1000], Column(2, 1, 1, (250,)), 750),  # three of four
        (8, 9, [1000, 1000], Column(2, 3, 1, (1000, 0)), 1000),  # the other is of the wrong kind
        (8, 9, [1000], Column(2, 3, 2, (100,)), 0),  # two devices, not two parts of one
    ],
)
def test_fills(cpu: int, memory: int, free: list[int], column: Column, expected: int) -> None:
    """By hand."""
    states = np.array([cpu]), np.array([memory]), np.array([free])
    found = fills(*states, columns_of([column], len(free)))
    assert expected == found[0, 0]


def fillings(sizes: list[int], room: int) -> list[tuple[int, ...]]:
    """All multisets of sizes that fit, as counts."""
    ranges = [range(room // size + 1) for size in sizes]
    return [
        counts for counts in product(*ranges) if sum(c * s for c, s in zip(counts, sizes)) <= room
    ]


@given(
    st.lists(st.integers(2, 9), min_size=1, max_size=3, unique=True).map(sorted),
    st.data(),
)
def test_knapsack_equals_enumeration(sizes: list[int], data: st.DataObject) -> None:
    """For every room."""
    prices = [data.draw(st.integers(0, 20)) / 16 for _ in sizes]
    found = knapsack(sizes, prices, 12)
    for room in range(13):
        worths = [sum(c * p for c, p in zip(f, prices)) for f in fillings(sizes, room)]
        assert max(worths) == pytest.approx(found.best[room])


@given(
    st.dictionaries(st.sampled_from(range(200, 1000, 50)), st.integers(1, 40), min_size=1,
                    max_size=4)
)  # fmt: skip
def test_phi_prices_requests_at_what_they_must_cost(shared: dict[int, int]) -> None:
    """No filling of a device is worth more than 1, worth grows with room, and in all the requests
    are worth the devices that they need, if parts of patterns may be used: no filling can be found
    that would make them cheaper (duality, checked by a linear program that has all fillings)."""
    sizes = sorted(shared)
    worth = phi(shared)
    assert (np.diff(worth) >= 0).all()
    assert worth[0] == 0
    assert worth[1000] == 1
    patterns = fillings(sizes, 1000)
    for pattern in patterns:
        assert sum(n * worth[size] for n, size in zip(pattern, sizes)) <= 1 + 1e-6
    least = fractional_bins(patterns, [shared[size] for size in sizes])
    assert least == pytest.approx(sum(n * worth[size] for size, n in shared.items()), rel=1e-6)


def fractional_bins(patterns: list[tuple[int, ...]], counts: list[int]) -> float:
    """The best of all bases of the covering program, one by one."""
    best = float("inf")
    useful = [
        p for p in patterns
        if any(p) and not any(all(a <= b for a, b in zip(p, q)) and p != q for q in patterns)
    ]  # fmt: skip
    rows = [*useful, *(tuple(-int(i == j) for j in range(len(counts))) for i in range(len(counts)))]
    costs = [1.0] * len(useful) + [0.0] * len(counts)
    for chosen in combinations(range(len(rows)), len(counts)):
        matrix = np.array([rows[i] for i in chosen], float).T
        if abs(np.linalg.det(matrix)) < 1e-9:
            continue
        amounts = np.linalg.solve(matrix, np.array(counts, float))
        if (amounts >= -1e-9).all():
            best = min(best, sum(costs[i] * x for i, x in zip(chosen, amounts)))
    return best


def test_phi_by_hand() -> None:
    """Halves are worth a half, and what is too small for any nothing."""
    worth = phi({500: 10})
    assert [0, 0.5, 0.5, 1] == worth[[499, 500, 999, 1000]].tolist()
    assert [0, 0, 1] == phi({})[[1, 999, 1000]].tolist()


ROOM = Room(16, 64)
SHARES = [[1000, 500, 300], [1000, 0, 300]]  # two kinds, three asks: the second for kind 0 alone


def packer(mode: str) -> Packer:
    """Three nodes of two devices, and a mix."""
    found = Packer(mode, SHARES)
    for row, kind in enumerate((0, 0, 1)):
        found.set_node(row, ROOM, ROOM, [(kind, 1000), (kind, 1000)])
    for _ in range(20):
        found.add_arrivals(Request(Room(4, 4), ((1, 1),)))
        found.add_arrivals(Request(Room(4, 4), ((2, 1),)))
    found.add_arrivals(Request(Room(8, 8), ((0, 2),)))
    found.weigh()
    return found


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_what_only_some_devices_can_serve_is_kept(mode: str) -> None:
    """A request that may have either kind takes the one that the others cannot use."""
    rows = np.arange(3)
    gains = packer(mode).gains(Request(Room(4, 4), ((2, 1),)), rows)
    assert 2 == int(gains.argmax())


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_answers_do_not_depend_on_what_was_asked_before(mode: str) -> None:
    """Options that were kept equal those that are made anew."""
    rows = np.arange(3)
    kept = packer(mode)
    asked = [
        Request(Room(4, 4), ((1, 1),)), Request(Room(4, 4), ((2, 1),)),
        Request(Room(8, 8), ((0, 2),)), Request(Room(2, 9), ()),
    ]  # fmt: skip
    for step in range(6):
        for request in asked:
            kept.gains(request, rows)
        room = Room(16 - step, 64 - 9 * step)
        kept.set_node(step % 3, room, ROOM, [(step % 3 // 2, 1000 - 100 * step), (0, 500)])
        fresh = packer(mode)
        for row in range(3):
            free = Room(int(kept.rows.cpu[row]), int(kept.rows.memory[row]))
            fresh.set_node(row, free, ROOM, kept.devices(row))
        kept.weigh()
        fresh.weigh()
        for request in asked:
            assert fresh.gains(request, rows).tolist() == kept.gains(request, rows).tolist()


def test_only_what_has_changed_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision costs as much on a full cluster as on an empty one."""
    looked: list[int] = []
    real = Packer._next_states

    def look(self: Packer, request: Request, row: int) -> list[int]:
        looked.append(row)
        return real(self, request, row)

    monkeypatch.setattr(Packer, "_next_states", look)
    found, rows = packer("dgf"), np.arange(3)
    for _ in range(3):
        found.gains(Request(Room(4, 4), ((1, 1),)), rows)
    assert [0, 1, 2] == looked
    found.set_node(0, Room(16, 63), ROOM, [(0, 1000), (0, 1000)])
    found.set_node(1, Room(12, 64), ROOM, [(0, 500), (0, 1000)])
    found.set_node(2, ROOM, ROOM, [(1, 1000), (1, 1000)])  # as it was
    found.weigh()
    found.gains(Request(Room(4, 4), ((1, 1),)), rows)
    assert [0, 1, 2, 0, 1] == looked


def test_typical_pods_make_up_most_of_all() -> None:
    """The most frequent classes, until they are 95 % of the pods."""
    mix = Mix()
    for cpu, count in ((1, 90), (2, 6), (3, 4)):
        for _ in range(count):
            mix.add(Request(Room(cpu, 0), ((0, 1),)))
    mode = Fgd()
    mode.weigh(mix, Packer("fgd", [[500]]))
    assert [(Demand(Room(1, 0), 0, 1), -90), (Demand(Room(2, 0), 0, 1), -6)] == mode.weights


def test_weights_favour_what_is_scarce() -> None:
    """Of two equally frequent classes, the one that fewer devices can serve."""
    found = packer("dgf")
    mode = Dgf()
    mode.weigh(found.mix, found)
    weights = dict(mode.weights)
    assert weights[Demand(Room(4, 4), 1, 1)] > weights[Demand(Room(4, 4), 2, 1)]


def test_nodes_for_whole_requests_are_kept_while_they_are_few() -> None:
    """One of many nodes is set aside for those that need it all, and not from them."""
    found = Packer("dgf", [[1000]])
    for row in range(4):
        free = 1000 if row == 0 else 0
        found.set_node(row, ROOM, ROOM, [(0, free)] + [(0, 1000)] * 3)
    for _ in range(100):
        found.add_arrivals(Request(Room(1, 1), ((0, 4),)))
    found.weigh()
    aside = found.set_aside(Request(Room(1, 1), ((0, 1),)))
    assert aside is not None
    assert [True, False, False, False] == aside[:4].tolist()
    assert found.set_aside(Request(Room(1, 1), ((0, 4),))) is None


@pytest.mark.parametrize(("nodes", "are_kept"), [(1, True), (2, False)])
def test_of_few_nodes_more_are_kept_than_the_mean(nodes: int, are_kept: bool) -> None:
    """A quarter of the devices goes to pods that need a whole node: of one such node that is one
    too many in the mean, but one may well come."""
    found = Packer("dgf", [[1000]])
    for row in range(nodes):
        found.set_node(row, ROOM, ROOM, [(0, 1000)] * 4)
    for _ in range(100):
        found.add_arrivals(Request(Room(1, 1), ((0, 4),)), *[Request(Room(1, 1), ((0, 1),))] * 10)
    found.weigh()
    assert are_kept == (found.set_aside(Request(Room(1, 1), ((0, 1),))) is not None)


def test_a_node_without_memory_is_not_kept_for_whole_requests() -> None:
    """Such pods ask for 32: it takes one that has it free."""
    found = Packer("dgf", [[1000]])
    for row, memory in enumerate((31, 32)):
        found.set_node(row, Room(16, memory), ROOM, [(0, 1000)] * 4)
    for _ in range(100):
        found.add_arrivals(Request(Room(1, 32), ((0, 4),)))
    found.weigh()
    aside = found.set_aside(Request(Room(1, 1), ((0, 1),)))
    assert aside is not None
    assert [False, True] == aside[:2].tolist()


def test_memory_is_left_to_those_that_ask_for_it() -> None:
    """Of two nodes that differ in memory alone, a pod that needs little takes the one where too
    little is left for others; among enough and more than enough there is no difference."""
    found = Packer("dgf", [[1000]])
    for row, memory in enumerate((32, 64, 8)):
        found.set_node(row, Room(16, memory), ROOM, [(0, 1000)] * 2)
    for _ in range(10):
        found.add_arrivals(Request(Room(4, 16), ((0, 1),)))
    found.weigh()
    enough, more, little = found.gains(Request(Room(4, 0), ((0, 1),)), np.arange(3)).tolist()
    assert little > enough == more


def test_states_that_differ_little_in_memory_are_one() -> None:
    """What is free is rounded down to six binary digits."""
    found = Packer("dgf", [[1000]])
    for row, memory in enumerate((1024 + 31, 1024, 1024 - 1)):
        found.set_node(row, Room(16, memory), Room(16, 2048), [(0, 1000)])
    found.add_arrivals(Request(Room(1, 1024), ((0, 1),)))
    above, at, below = found.gains(Request(Room(4, 0), ((0, 1),)), np.arange(3)).tolist()
    assert above == at < below


def test_weights_are_new_after_the_first_few_and_each_hundred() -> None:
    """By the number of arrivals alone."""
    mix, due = Mix(), []
    for i in range(1, 302):
        mix.add(Request(Room(1, 1), ()))
        if mix.is_due():
            due.append(i)
    assert [1, 2, 4, 11, 31, 101, 201, 301] == due


def test_a_mix_of_ever_new_classes_stays_small() -> None:
    """The frequent ones are remembered."""
    mix = Mix()
    for i in range(3 * COUNTED_MAX):
        mix.add(Request(Room(i + 1, 0), ()))
        mix.add(Request(Room(0, 0), ((0, 1),)))
    assert len(mix.counts) <= COUNTED_MAX
    assert Demand(Room(0, 0), 0, 1) == mix.most_frequent()[0][0]


def test_what_came_long_ago_counts_for_less_and_is_not_forgotten() -> None:
    mix = Mix()
    old, new, rare = (Request(Room(i, 0), ()) for i in range(3))
    mix.add(rare)
    for _ in range(3 * HALVED_EVERY):
        mix.add(old)
    for _ in range(2 * HALVED_EVERY):
        mix.add(new)
    ranked = [demand.room.cpu_milli for demand, _ in mix.most_frequent()]
    assert [1, 0, 2] == ranked
    assert 1 == mix.most_frequent()[-1][1]
