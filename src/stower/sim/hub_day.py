"""Days of a hub, read from CSV files or generated: users, lectures, boot and pull times of nodes.

Source of the form: a folder of `ordinary_users.csv`, `lectures_users.csv` (seed, arrival_s, life_s,
active_s, lecture), `lectures_timetable.csv` (seed, start_s, attendance, enrolment) and `nodes.csv`
(seed, boot_s, pull_s), each compressed or not.
"""

import csv
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS
from stower.sim.openb import whole_rows

DAY_S: Final = 24 * 3600.0
# A day begins so long after the epoch, so that what was before it has a time as well.
EPOCH_NS: Final = 86_400 * SECOND_NS * 365
START_HOUR: Final = 4  # of a day that is drawn
NODES: Final = 400
USERS: Final = ("seed", "arrival_s", "life_s", "active_s", "lecture")
TIMETABLE: Final = ("seed", "start_s", "attendance", "enrolment")
NODE: Final = ("seed", "boot_s", "pull_s")
LECTURE_HOURS: Final = (8.25, 10.25, 12.25, 14.25, 16.25)


class User(msgspec.Struct, frozen=True):
    """One session, in seconds since the day began. `lecture`: whether they come for one;
    `active_s`: for how long they are active, as long as they are there where it is not known;
    `requests`: of resources, where they are not those of all."""

    arrival_s: float
    life_s: float
    lecture: bool = False
    active_s: float = math.inf
    requests: tuple[tuple[str, str], ...] = ()


class Lecture(msgspec.Struct, frozen=True):
    """One that is announced."""

    start_s: float
    enrolment: int


class Day(msgspec.Struct, frozen=True):
    """One day, or several in a row. `nodes`: (boot, pull) seconds, in the order in which nodes are
    made; `starts_ns`: when it begins, since the epoch; `length_s`: how long it is."""

    seed: int
    users: tuple[User, ...]
    nodes: tuple[tuple[float, float], ...]
    lectures: tuple[Lecture, ...] = ()
    starts_ns: int = EPOCH_NS
    length_s: float = DAY_S


def read_days(
    users: Iterable[str], nodes: Iterable[str], timetable: Iterable[str] = ()
) -> dict[int, Day]:
    """Days by seed. Raises InvalidObject with file, line and column."""
    found: dict[int, list[User]] = {}
    for row in _rows(users, USERS, "users"):
        if row["arrival_s"] >= DAY_S:
            raise InvalidObject(
                "users, arrival_s", row["arrival_s"], f"less than {DAY_S:g} (one day)"
            )
        user = User(row["arrival_s"], row["life_s"], bool(row["lecture"]), row["active_s"])
        found.setdefault(int(row["seed"]), []).append(user)
    made: dict[int, list[tuple[float, float]]] = {}
    for row in _rows(nodes, NODE, "nodes"):
        made.setdefault(int(row["seed"]), []).append((row["boot_s"], row["pull_s"]))
    told: dict[int, list[Lecture]] = {}
    for row in _rows(timetable, TIMETABLE, "timetable"):
        lecture = Lecture(row["start_s"], int(row["enrolment"]))
        told.setdefault(int(row["seed"]), []).append(lecture)
    for seed in found:
        if seed not in made:
            raise InvalidObject("nodes", seed, "node rows for each seed of the users")
    return {
        seed: Day(
            seed,
            tuple(sorted(they, key=lambda user: user.arrival_s)),
            tuple(made[seed]),
            tuple(sorted(told.get(seed, ()), key=lambda one: one.start_s)),
        )
        for seed, they in sorted(found.items())
    }


def _rows(
    lines: Iterable[str], fields: tuple[str, ...], what: str
) -> Iterator[Mapping[str, float]]:
    reader = csv.DictReader(lines)
    names = reader.fieldnames
    if names is None:
        return
    if not set(fields) <= set(names):
        raise InvalidObject(f"{what}, line 1", ",".join(names), f"columns {', '.join(fields)}")
    for row in whole_rows(reader, len(names)):
        found = {}
        for field in fields:
            try:
                found[field] = float(row[field])
            except ValueError:
                found[field] = math.nan
            if not 0 <= found[field] < 1e9:
                at = f"{what}, line {reader.line_num}, {field}"
                raise InvalidObject(at, row[field], "a number of at least 0, less than 1e9")
        yield found


def draw_day(seed: int, lectures: bool) -> Day:
    """A day of about 900 users, of whom half come to lectures where there are some."""
    chance = random.Random(f"{seed}:hub")
    users = [*_ordinary(chance, 400 if lectures else 900)]
    told = []
    for hour in sorted(chance.sample(LECTURE_HOURS, 4)) if lectures else ():
        start_s, size = (hour - START_HOUR) * 3600, chance.randint(50, 200)
        told.append(Lecture(start_s, round(size / chance.uniform(0.70, 0.95))))
        for _ in range(size):
            active_s, life_s = _draw_life(chance, 80, 0.4)
            users.append(User(start_s + chance.uniform(0, 300), life_s, True, active_s))
    users.sort(key=lambda user: user.arrival_s)
    return Day(seed, tuple(users), draw_nodes(chance), tuple(told))


def draw_nodes(chance: random.Random) -> tuple[tuple[float, float], ...]:
    """Boot and pull times of nodes."""
    return tuple((chance.uniform(60, 180), chance.uniform(60, 300)) for _ in range(NODES))


def _ordinary(chance: random.Random, count: int) -> Iterator[User]:
    peak = 1.08
    left = chance.gauss(count, math.sqrt(count))
    while left > 0:
        at_s = chance.uniform(0, DAY_S)
        hour = (at_s / 3600 + START_HOUR) % 24
        if chance.uniform(0, peak) < 0.08 + math.exp(-(((hour - 14) / 4.5) ** 2)):
            left -= 1
            active_s, life_s = _draw_life(chance, 60, 0.8)
            yield User(at_s, life_s, False, active_s)


def _draw_life(chance: random.Random, median_minutes: float, sigma: float) -> tuple[float, float]:
    """Seconds active, and in all: most are idle until the culler comes."""
    active_s = 60 * chance.lognormvariate(math.log(median_minutes), sigma)
    active_s = min(max(active_s, 1200.0), 4 * 3600.0)
    stops_itself = chance.random() < 0.3
    return active_s, active_s if stops_itself else active_s + 3600 + chance.uniform(0, 600)
