"""The scheduler's engine and the drivers' controllers themselves, in all orders that differ from
taking turns by one delay, loss, crash or swap at any step, or (in the long run, a part) by two.

The rules alone are run in every order whatever: tests/property/test_negotiation_model.py.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pytest

from stower.model.kinds import Pod
from tests.negotiation.processes import Process
from tests.negotiation.scenes import Scene

LONG = 1_500  # seconds: longer than the longest wait for a driver
# What befalls a process: it does nothing until nobody else has anything to do; it is not answered;
# it dies and is started again, what it has sent being carried out later or never; it hears first
# what came last.
DEEDS = ("hold", "lose", "die", "die, and it lands", "swap")
Change = tuple[int, int, str]  # before which step, to which process, what


def one_claim() -> Scene:
    scene = Scene("n1", "n2", fabric={"n2": 1})
    scene.pod("p", own=["fabric"])
    return scene


def two_drivers() -> Scene:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
    scene.pod("p", own=["fabric", "nic"])
    return scene


def a_shared_claim() -> Scene:
    scene = Scene("n1", "n2", fabric={"n1": 1, "n2": 1}, nic={"n1": 1, "n2": 2})
    scene.claim("c")
    scene.pod("p", "c")
    scene.pod("q", "c", own=["nic"])
    return scene


def one_device_for_two() -> Scene:
    scene = Scene("n1", fabric={"n1": 1}, nic={"n1": 1})
    for name in ("p", "q"):
        scene.pod(name, own=["fabric", "nic"])
    return scene


BOUND: Mapping[Callable[[], Scene], int] = {
    one_claim: 1, two_drivers: 1, a_shared_claim: 2, one_device_for_two: 1,
}  # fmt: skip


def run(make: Callable[[], Scene], changes: tuple[Change, ...]) -> int:
    """Take turns, but for these changes; then see that all has ended well. In how many steps."""
    scene = make()
    processes, held = scene.processes, dict[Process, None]()
    steps, left = 0, list(changes)
    while True:
        for change in [change for change in left if change[0] == steps]:
            left.remove(change)
            _befall(scene, processes[change[1]], change[2], held)
        turn = steps % len(processes)
        order = [*processes[turn:], *processes[:turn]]
        works = [process.work for process in order if process not in held]
        if any(work() for work in [*works, *scene.others]):
            steps += 1
        elif held:
            held.clear()
        else:
            break
    scene.advance(LONG)
    bound = sum(bool(pod.spec.node_name) for pod in scene.server.all(Pod).values())
    assert BOUND[make] == bound, (changes, scene.message("p"))
    for name in scene.allocated():
        assert scene.users(name), (changes, f"{name} is allocated for nobody")
    return steps


def _befall(scene: Scene, process: Any, deed: str, held: dict[Process, None]) -> None:
    if deed == "hold":
        held[process] = None
    elif deed == "lose":
        process.send(lost=True)
    elif deed == "swap" and (kinds := process.kinds()):
        process.hear(kinds[-1])
    elif deed.startswith("die"):
        process.stop(lands=deed != "die")
        flying, scene.flying = scene.flying, []
        process.start()
        for write in flying:
            scene.write(write)


def changed(make: Callable[[], Scene]) -> Iterator[Change]:
    """All single changes."""
    steps, processes = run(make, ()), len(make().processes)
    for at in range(steps):
        for i in range(processes):
            for deed in DEEDS:
                yield at, i, deed


@pytest.mark.behaviour("S0.23", "S0.28")
def test_whatever_comes_late_is_lost_or_dies_all_ends_well() -> None:
    for change in changed(one_claim):
        run(one_claim, (change,))


@pytest.mark.more
@pytest.mark.parametrize(
    "make",
    [two_drivers, a_shared_claim, pytest.param(one_device_for_two, marks=pytest.mark.long)],
)
def test_whatever_comes_late_is_lost_or_dies_all_ends_well_more(
    make: Callable[[], Scene],
) -> None:
    for change in changed(make):
        run(make, (change,))


@pytest.mark.more
@pytest.mark.parametrize("part", range(2))
def test_two_of_these_at_any_two_steps(part: int) -> None:
    pairs = combinations(list(changed(one_claim)), 2)
    for number, (one, other) in enumerate(pairs):
        if number % 62 == part * 31:
            run(one_claim, (one, other))
