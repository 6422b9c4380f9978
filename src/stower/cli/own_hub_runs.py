"""Finds the smallest number of placeholders with which a hub's own day meets a goal."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from stower.cli.output import bad_input

GOAL: Final = "99.5% in 10s"
COUNT_MAX: Final = 2_000
FORM: Final = re.compile(r"(\d+(?:\.\d+)?) ?% ?(?:with)?in ?(\d+(?:\.\d+)?) ?(s|min|m)?")
SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60}


class Goal(NamedTuple):
    """So many percent of users wait for so many seconds at most."""

    percent: float
    seconds: float

    def __str__(self) -> str:
        """As --goal takes it."""
        return f"{self.percent:g}% in {self.seconds:g}s"


def read_goal(text: str) -> Goal:
    """A goal of `99.5% in 10s`. Ends the program for what is none."""
    found = FORM.fullmatch(" ".join(text.split()))
    if found is None or float(found[1]) > 100:
        raise bad_input(f"--goal: got {text!r}, want a goal such as '99.5% in 10s'")
    return Goal(float(found[1]), float(found[2]) * SECONDS[found[3] or ""])


def read_find(what: str, goal: str) -> Goal | None:
    """The goal of --find; None, where nothing is looked for. Ends the program for what is none."""
    if not what:
        if goal != GOAL:
            raise bad_input("--goal: is for --find placeholders")
        return None
    if what != "placeholders":
        raise bad_input(f"--find: got {what!r}, want placeholders")
    return read_goal(goal)


def find_least(first: int, most: int, meets: Callable[[int], bool]) -> tuple[int | None, list[int]]:
    """The smallest count up to `most` that meets the goal, None where `most` does not, and all
    that were tried. More placeholders never make users wait longer, but for a few: whoever is found
    meets the goal, and the one below does not."""
    tried: dict[int, bool] = {}

    def is_enough(count: int) -> bool:
        if count not in tried:
            tried[count] = meets(count)
        return tried[count]

    low, high = -1, min(max(1, first), most)  # low does not do, high does
    while not is_enough(high):
        if high >= most:
            return None, [*tried]
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high, [*tried]
