"""Ties between equally good nodes, against a model that sorts names by their hashes."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stower.state.ties import GATHERED_MAX, HASH_BITS, TieBreaker, name_hash, pod_hash

NAMES = [f"node-{number}" for number in range(3 * GATHERED_MAX)]
SEED = b"seed"


def breaker_of(names: list[str]) -> TieBreaker:
    breaker = TieBreaker(4)
    capacity = 4
    while capacity < len(names):
        capacity *= 2
        breaker.grow(capacity)
    for row, name in enumerate(names):
        breaker.set_name(row, name)
    return breaker


def pick(names: list[str], tied: set[str], uid: str) -> str:
    """The node that is picked where rows have these names."""
    flags = np.array([name in tied for name in names], np.bool_)
    return names[breaker_of(names).pick(flags, pod_hash(SEED, uid))]


def picked_by_blocks(tied: set[str], uid: str, block_bits: int = 8) -> str:
    """The model, in two levels: a block by the numbers of tied nodes, then a node in the block."""
    blocks: dict[int, list[str]] = {}
    for name in tied:
        blocks.setdefault(name_hash(name) >> (64 - block_bits), []).append(name)
    number = pod_hash(SEED, uid) * len(tied) >> HASH_BITS
    for _, block in sorted(blocks.items()):
        if number < len(block):
            return sorted(block, key=name_hash)[number]
        number -= len(block)
    raise AssertionError


@given(st.permutations(NAMES), st.sets(st.sampled_from(NAMES), min_size=1), st.text(max_size=8))
def test_a_tie_is_broken_in_two_levels_whatever_the_rows(
    names: list[str], tied: set[str], uid: str
) -> None:
    assert pick(names, tied, uid) == picked_by_blocks(tied, uid)


@given(st.permutations(NAMES), st.text(max_size=8))
def test_a_tie_of_nearly_all_is_broken_as_one_of_few(names: list[str], uid: str) -> None:
    assert pick(names, {*names}, uid) == picked_by_blocks({*names}, uid)
    assert pick(names, {*names[1:]}, uid) == picked_by_blocks({*names[1:]}, uid)


def test_every_tied_node_has_the_same_chance() -> None:
    for count in (3, 10, 2 * GATHERED_MAX):
        names = NAMES[:count]
        breaker, tied = breaker_of(names), np.ones(count, np.bool_)
        counts = Counter(
            breaker.pick(tied, pod_hash(SEED, f"uid-{number}")) for number in range(200 * count)
        )
        # The standard deviation is 14.
        assert all(130 < counts[row] < 270 for row in range(count)), counts


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.permutations(NAMES[:40]),
    st.text(max_size=8),
)
def test_ranked_rows_start_with_the_one_that_is_picked(
    scores: list[int], names: list[str], uid: str
) -> None:
    breaker, pod = breaker_of(names), pod_hash(SEED, uid)
    all_scores = np.array(scores, np.int64)
    rows = np.arange(len(scores))
    left = breaker.rank(rows, all_scores, pod)
    assert sorted(left) == rows.tolist()
    assert [scores[row] for row in left] == sorted(scores, reverse=True)
    for score in sorted({*scores}, reverse=True):
        group, left = left[: scores.count(score)], left[scores.count(score) :]
        assert group[0] == breaker.pick(all_scores == score, pod)


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["", *NAMES[100:]])), max_size=60))
def test_rows_whose_names_change_keep_the_order_of_all(changes: list[tuple[int, str]]) -> None:
    names = NAMES[:100]
    breaker, pod = breaker_of(names), pod_hash(SEED, "uid")
    for row, name in changes:
        if name and name in names:
            continue
        breaker.set_name(row, name)
        names[row] = name
        tied = np.array([bool(name) for name in names], np.bool_)
        if tied.sum() > GATHERED_MAX:
            known = {name for name in names if name}
            assert names[breaker.pick(tied, pod)] == picked_by_blocks(known, "uid")


def test_a_name_that_leaves_its_row_takes_no_part() -> None:
    names = NAMES[: 2 * GATHERED_MAX]
    breaker, pod = breaker_of(names), pod_hash(SEED, "uid")
    tied = np.ones(len(names), np.bool_)
    row = breaker.pick(tied, pod)
    breaker.set_name(row, "")
    tied[row] = False
    remaining = {name for name in names if name != names[row]}
    assert names[breaker.pick(tied, pod)] == picked_by_blocks(remaining, "uid")
    breaker.set_name(row, "another")
    tied[row] = True
    names[row] = "another"
    assert names[breaker.pick(tied, pod)] == picked_by_blocks({*names}, "uid")
