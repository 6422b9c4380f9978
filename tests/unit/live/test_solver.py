"""The process that does searches: it answers, it is replaced where it ends, and namespaces have
their turns."""

import asyncio
import io
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from stower.framework.events import Solved
from stower.framework.writes import Solve
from stower.groups.placement import ExhaustedSearch, FoundPlacement
from stower.groups.problem import NO_CAP, Group, Kind, Part, Problem, whole_scope
from stower.groups.solving import Request, decode_answer, encode_request
from stower.live import solver
from stower.live.solver import Solver
from stower.live.solver_process import LENGTH_BYTES, serve

PROBLEM = Problem(
    ("cpu",),
    np.array([[2, 1]]),
    (whole_scope(2),),
    (Group("g", -1, 0, 3, (), (Part(0, 3),)),),
    (Kind(np.array([1]), np.array([NO_CAP, NO_CAP])),),
)
MESSAGE = encode_request(Request(PROBLEM))
Wait = Callable[[int], Awaitable[list[Solved]]]


def solve(id: int, namespace: str = "default", uid: str = "", message: bytes = MESSAGE) -> Solve:
    return Solve(id, namespace, "g", uid or f"u{id}", message)


def told(story: Callable[[Solver, Wait], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        answers: list[Solved] = []
        come = asyncio.Event()

        def on_answer(answer: Solved) -> None:
            answers.append(answer)
            come.set()

        async def wait(count: int) -> list[Solved]:
            while len(answers) < count:
                come.clear()
                await asyncio.wait_for(come.wait(), 60)
            return answers

        searches = Solver(on_answer)
        try:
            return await story(searches, wait)
        finally:
            await searches.close()

    return asyncio.run(run())


def test_searches_are_answered_by_turns_of_namespaces() -> None:
    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        for write in (solve(1, "a"), solve(2, "a"), solve(3, "a"), solve(4, "b")):
            searches.send(write)
        return await wait(4)

    found = told(story)
    assert [1, 4, 2, 3] == [answer.id for answer in found]
    for answer in found:
        placement = decode_answer(answer.body)
        assert isinstance(placement, FoundPlacement)
        assert 3 == placement.placement.count


def test_a_newer_search_for_a_tree_takes_the_place_of_the_older_one() -> None:
    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        for write in (solve(1, uid="x"), solve(2, uid="x")):
            searches.send(write)
        return await wait(2)

    first, second = told(story)
    assert (1, "the group has changed") == (first.id, first.error)
    assert 2 == second.id
    assert decode_answer(second.body)


def test_what_too_many_ask_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other namespaces are taken."""
    monkeypatch.setattr(solver, "WAITING_BYTES_MAX", len(MESSAGE))

    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        for id in range(1, 6):
            searches.send(solve(id, "a"))
        searches.send(solve(6, "b"))
        return await wait(6)

    found = {answer.id: answer for answer in told(story)}
    refused = [id for id, answer in found.items() if "too many" in answer.error]
    assert [3, 4, 5] == refused
    assert decode_answer(found[6].body)


def test_what_an_engine_has_asked_is_forgotten_with_it() -> None:
    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        for id in (1, 2):
            searches.send(solve(id))
        await asyncio.sleep(0)  # the first is on its way
        searches.send(solve(3, message=b""))
        searches.forget()
        searches.send(solve(7))
        return await wait(1)

    assert [7] == [answer.id for answer in told(story)]


def test_who_has_no_question_is_answered_once_others_were_served() -> None:
    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        searches.send(solve(1, message=b""))
        return await wait(1)

    assert [Solved(1)] == told(story)


def test_a_process_that_ends_is_replaced() -> None:
    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        searches.send(solve(1))
        await wait(1)
        process = searches._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        searches.send(solve(2))
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        await wait(2)
        searches.send(solve(3))
        return await wait(3)

    found = told(story)
    assert [1, 2, 3] == [answer.id for answer in found]
    assert found[1].error
    assert decode_answer(found[2].body) == decode_answer(found[0].body)


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "SECONDS_MAX", 0.0)

    async def story(searches: Solver, wait: Wait) -> list[Solved]:
        searches.send(solve(1))
        return await wait(1)

    (found,) = told(story)
    assert "TimeoutError" == found.error


def test_a_message_that_is_none_has_an_answer_that_proves_nothing() -> None:
    def framed(message: bytes) -> bytes:
        return len(message).to_bytes(LENGTH_BYTES) + message

    source, target = io.BytesIO(framed(b"odd") + framed(MESSAGE) + b"\x00"), io.BytesIO()
    serve(source, target)
    said = target.getvalue()
    size = int.from_bytes(said[:LENGTH_BYTES])
    bad = decode_answer(said[LENGTH_BYTES : LENGTH_BYTES + size])
    assert isinstance(bad, ExhaustedSearch)
    assert "solver: " in bad.stage
    assert isinstance(decode_answer(said[2 * LENGTH_BYTES + size :]), FoundPlacement)
