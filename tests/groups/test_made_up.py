"""Made-up trees against an oracle that is not ours: what can be placed is placed, and of what
cannot that is said.

`make test-more` has 60 problems with a placement and 15 without, `make long` 600 and 150.
"""

import statistics
import time
from collections.abc import Iterator
from itertools import count, islice
from typing import Final

import pytest

from stower.engine.groups.tree_cycle import EFFORT_MAX
from stower.groups.placement import Answer, ExhaustedSearch, FoundPlacement, place
from stower.groups.problem import Problem
from tests.groups.made_up.answers import IMPOSSIBLE, NOT_FOUND, PLACED, result_of, truths
from tests.groups.made_up.instances import Instance, planted, tightened
from tests.groups.made_up.tight import TightProblem

CHUNK: Final = 50
# Of the problems with rules between pods; of the others, all.
ANSWERED_MIN: Final = 0.99
# The median, of a search and all that is around it. An idle machine takes half of it.
SECONDS_MEDIAN: Final = 0.02


def known(truth: bool, first_seed: int) -> Iterator[Instance]:
    """Problems of which the oracle says this, half of them with rules between pods."""
    seeds = count(first_seed)
    while True:
        made = [planted(seed, rules=seed % 2 == 0) for seed in islice(seeds, CHUNK)]
        if not truth:
            made = [tightened(instance, seed) for seed, instance in enumerate(made)]
        for instance, found in zip(made, truths(made), strict=True):
            if found is truth:
                yield instance


def check_answers(planted_count: int, impossible_count: int, first_seed: int) -> None:
    """Asserts what issue and documents promise of so many problems."""
    wrong, open_, seconds, with_rules = [], [], [], 0
    for truth, number in ((True, planted_count), (False, impossible_count)):
        for instance in islice(known(truth, first_seed), number):
            result = result_of(instance)
            seconds.append(result.seconds)
            with_rules += instance.has_rules
            if result.answer == NOT_FOUND:
                open_.append(instance)
            elif result.answer != (PLACED if truth else IMPOSSIBLE):
                wrong.append(instance.name)
    assert [] == wrong
    assert [] == [instance.name for instance in open_ if not instance.has_rules]
    assert len(open_) <= (1 - ANSWERED_MIN) * with_rules, [i.name for i in open_]
    assert statistics.median(seconds) < SECONDS_MEDIAN


@pytest.mark.more
def test_what_fits_is_placed_and_what_does_not_is_proved() -> None:
    check_answers(60, 15, 100_000)


@pytest.mark.long
def test_what_fits_is_placed_and_what_does_not_is_proved_long() -> None:
    check_answers(600, 150, 200_000)


def attempts(problem: Problem) -> tuple[Answer, list[float]]:
    """The answer of the attempts that an engine makes, and the CPU time of each."""
    seconds: list[float] = []
    answer: Answer = ExhaustedSearch("")
    for effort in (1, 2, EFFORT_MAX):
        before = time.process_time()
        answer = place(problem, effort=effort)
        seconds.append(time.process_time() - before)
        if not isinstance(answer, ExhaustedSearch):
            break
    return answer, seconds


@pytest.mark.more
@pytest.mark.parametrize("seed", range(4))
def test_a_large_tree_that_just_fits_is_placed(seed: int) -> None:
    """1,000 nodes in four levels, some 70 groups: 2 s at most on an idle machine."""
    problem = TightProblem(seed, 1_000, 50, 30, 0.0).problem()
    answer, seconds = attempts(problem)
    assert isinstance(answer, FoundPlacement), seconds
    assert sum(seconds) < 10


@pytest.mark.long
@pytest.mark.parametrize("slack", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_a_tree_that_just_fits_on_5000_nodes_is_placed(seed: int, slack: float) -> None:
    """Some 80 groups and 1,500 pods: 10 s at most on an idle machine."""
    problem = TightProblem(seed, 5_034, 60, 50, slack).problem()
    answer, seconds = attempts(problem)
    assert isinstance(answer, FoundPlacement), seconds
    assert sum(seconds) < 60
