"""Player: the engine of a recording at any moment, forwards and backwards."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stower.cli.recordings import rebuild_engine
from stower.dashboard import player as player_module
from stower.dashboard.board import Board
from stower.dashboard.player import Player, bounds
from stower.engine.engine import Engine
from stower.framework.events import Event, Listed, Observed, Tick, WatchType
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.record.lines import Engine as BuiltLine
from stower.record.recorder import Recorder
from tests.builders import make_node, make_pod
from tests.unit.record.test_recording import BUILT, record

BEGAN_NS = 1_790_000_000 * SECOND_NS


def at(seconds: float) -> int:
    """Returns the time so many seconds after the beginning, in ns."""
    return BEGAN_NS + round(seconds * SECOND_NS)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of one node, pod a (seconds 2 to 6) and pod b (from second 4, too large)."""
    path = tmp_path / "r.ndjson"
    steps: list[tuple[int, Event]] = [
        (at(0), Listed((make_node("n1", cpu="1"),))),
        (at(2), Observed(WatchType.ADDED, make_pod("a", cpu="500m"))),
        (at(3), Tick()),
        (at(4), Observed(WatchType.ADDED, make_pod("b", cpu="8"))),
        (at(5), Observed(WatchType.MODIFIED, make_pod("a", cpu="500m", node="n1"))),
        (at(6), Observed(WatchType.DELETED, make_pod("a", cpu="500m", node="n1"))),
    ]
    record(path, steps)
    return path


def play(path: Path, work: Callable[[Player, Board], Awaitable[None]]) -> None:
    """Plays a recording until the work ends."""

    async def main() -> None:
        board = Board()
        player = Player(path, rebuild_engine, board, bounds(path))
        running = asyncio.create_task(player.run())
        try:
            async with asyncio.timeout(20):
                await work(player, board)
        finally:
            running.cancel()

    asyncio.run(main())


async def go(player: Player, seconds: float) -> set[str]:
    """Goes to a moment. Returns the names of the objects at that moment."""
    player.go_to(seconds)
    await player.wait_for_arrival()
    assert player.get_position()["recording"]["at"] == player.get_position()["recording"]["wanted"]
    return {obj.metadata.name for obj in player.objects()}


def test_a_recording_lasts_from_its_first_step_to_its_last(recording: Path) -> None:
    assert (at(0), at(6)) == bounds(recording)


def test_a_recording_without_a_step_cannot_be_played(tmp_path: Path) -> None:
    record(tmp_path / "r.ndjson", [])
    with pytest.raises(InvalidObject, match="want a recording with at least one step"):
        bounds(tmp_path / "r.ndjson")


def test_a_player_begins_at_the_first_step(recording: Path) -> None:
    async def work(player: Player, board: Board) -> None:
        assert (False, None) == (player.is_ready, player.engine)
        with pytest.raises(InvalidObject, match="want a time after its first step"):
            player.get_built()
        await player.wait_for_arrival()
        assert (True, True, 0) == (player.is_ready, player.is_leader, player.in_flight)
        assert ["n1"] == [obj.metadata.name for obj in player.objects()]
        assert BEGAN_NS == player.now_ns
        assert 7 == player.get_built().seed

    play(recording, work)


def test_a_player_shows_the_objects_of_any_moment(recording: Path) -> None:
    async def work(player: Player, board: Board) -> None:
        for seconds, names in (
            (1.9, {"n1"}), (2.0, {"n1", "a"}), (4.5, {"n1", "a", "b"}), (3, {"n1", "a"}),
            (6, {"n1", "b"}), (0, {"n1"}),
        ):  # fmt: skip
            assert names == await go(player, seconds)
            assert at(seconds) == player.now_ns

    play(recording, work)


def test_a_moment_outside_the_recording_becomes_its_beginning_or_end(recording: Path) -> None:
    async def work(player: Player, board: Board) -> None:
        for seconds, at in ((99, 6), (-1, 0)):
            await go(player, seconds)
            assert {
                "name": "r.ndjson", "seconds": 6, "at": at, "wanted": at, "beganNs": BEGAN_NS,
            } == player.get_position()["recording"]  # fmt: skip

    play(recording, work)


def test_a_player_makes_the_decisions_of_the_recording_again(recording: Path) -> None:
    async def work(player: Player, board: Board) -> None:
        await go(player, 4)
        assert [("a", "n1"), ("b", "")] == [(d.name, d.node_name) for d in player.decisions]
        assert player.engine is not None
        assert ["b"] == [
            one.pod.metadata.name for one in player.engine.queue.pods() if one.refused_by
        ]
        assert ["n1"] == [node for node, _ in player.decisions[0].scores]
        assert player.decisions[1].diagnosis is not None
        counts = _last_line(board, player)["counts"]
        assert {"events": 4, "placed": 1, "bound": 1, "unschedulable": 1, "inFlight": 0} == counts
        await go(player, 2)
        assert ["a"] == [d.name for d in player.decisions]
        assert {"events": 2, "placed": 1, "bound": 1, "inFlight": 0} == (
            _last_line(board, player)["counts"]
        ), "the board was reset"

    play(recording, work)


def _last_line(board: Board, player: Player) -> dict[str, Any]:
    *_, last = board.look(player)
    found: dict[str, Any] = json.loads(last)
    return found


def test_a_pod_object_is_that_of_the_current_moment(recording: Path) -> None:
    async def work(player: Player, board: Board) -> None:
        await go(player, 2)
        assert "nodeName" not in (await player.pod_object("default/a"))["spec"]
        assert {} == await player.pod_object("default/b")
        await go(player, 5)
        assert "n1" == (await player.pod_object("default/a"))["spec"]["nodeName"]

    play(recording, work)


def test_a_list_replaces_all_objects(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    both = Listed((make_node("n1"), make_pod("a"))), Listed((make_node("n2"),))
    record(path, [(at(seconds), listed) for seconds, listed in enumerate(both)])

    async def work(player: Player, board: Board) -> None:
        assert {"n1", "a"} == await go(player, 0)
        assert {"n2"} == await go(player, 1)
        assert not [obj for obj in player.objects() if isinstance(obj, Pod)]

    play(path, work)


def test_the_engine_of_the_last_step_is_the_current_engine(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    recorder = Recorder(path, BUILT)
    for number, name in enumerate(("old", "new")):
        recorder.record_engine(name)
        recorder.record_step(name, at(number), Listed((make_node(f"of-{name}"),)), [])
    recorder.close()

    async def work(player: Player, board: Board) -> None:
        for seconds, name in ((1, "new"), (0, "old")):
            assert {f"of-{name}"} == await go(player, seconds)
            assert name == player.get_built().engine
            assert player.engine is not None
            rows = player.engine.state.present_rows()
            assert [f"of-{name}"] == [player.engine.state.node_names[row] for row in rows]

    play(path, work)


def test_a_new_target_replaces_one_that_is_not_reached_yet(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player_module, "SLICE_SECONDS", -1.0)  # the loop runs after each step
    engines: list[Engine] = []

    def rebuild(line: BuiltLine) -> Engine:
        engines.append(rebuild_engine(line))
        return engines[-1]

    async def main() -> None:
        player = Player(recording, rebuild, Board(), bounds(recording))
        running = asyncio.create_task(player.run())
        player.go_to(6)
        while player.now_ns < at(2):
            await asyncio.sleep(0)
        assert at(2) == player.now_ns
        player.go_to(1)
        await player.wait_for_arrival()
        assert at(1) == player.now_ns
        assert ["n1"] == [obj.metadata.name for obj in player.objects()]
        assert 2 == len(engines), "the player went back once"
        running.cancel()

    asyncio.run(main())


def test_a_damaged_recording_raises_with_the_line(recording: Path) -> None:
    ends = bounds(recording)
    lines = recording.read_text().splitlines()
    recording.write_text("\n".join([*lines[:3], "no JSON", *lines[3:], ""]))

    async def main() -> None:
        player = Player(recording, rebuild_engine, Board(), ends)
        player.go_to(6)
        with pytest.raises(InvalidObject, match="line 4"):
            await player.run()

    asyncio.run(main())
