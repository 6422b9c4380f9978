"""Answers of a child that has everything as it stood, and changes nothing."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stower.dashboard import forked_queries
from stower.dashboard.answers import WAITING_MAX, Answers, Prepared
from stower.dashboard.forked_queries import QueryError, run_in_child
from stower.model.errors import InvalidObject


def answered(work: Callable[[], bytes], seconds_max: float = 20) -> bytes:
    return asyncio.run(run_in_child(work, seconds_max))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """Of this process, those that have ended and were not waited for included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            after_name = path.read_text().rpartition(")")[2].split()
            if int(after_name[1]) == os.getpid():
                found.add(path.parent.name)
    return found


def test_it_sees_what_there_is_and_changes_nothing_of_it() -> None:
    there = ["a"]

    def work() -> bytes:
        there.append("b")
        return ",".join(there).encode() * 200_000

    assert b"a,b" * 200_000 == answered(work)
    assert ["a"] == there


def test_what_goes_wrong_is_told() -> None:
    def refuses() -> bytes:
        raise InvalidObject("node", "x", "one that is there")

    def fails() -> bytes:
        return {}["x"]  # type: ignore[no-any-return, misc]

    def dies() -> bytes:
        os._exit(3)

    for work, why in (
        (refuses, '^node: got "x"'),
        (fails, "^KeyError"),
        (dies, "without a result"),
    ):
        with pytest.raises(QueryError, match=why):
            answered(work)


def test_what_takes_too_long_or_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> bytes:
        while True:
            time.sleep(60)  # in a child that is killed

    with pytest.raises(QueryError, match="no result after"):
        answered(endless, 0.1)
    monkeypatch.setattr(forked_queries, "ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(QueryError, match="too long"):
        answered(lambda: b"x" * 100_000)


def test_nothing_is_left_behind() -> None:
    answered(lambda: b"once")
    before = descriptors(), children()
    for _ in range(5):
        answered(lambda: str(descriptors()).encode())
    assert before == (descriptors(), children())


def test_the_child_has_nothing_open_but_its_pipe() -> None:
    with open("/proc/self/status"):  # one more, which it must not keep
        assert int(answered(lambda: str(descriptors()).encode())) <= 5


def test_all_who_ask_share_an_answer() -> None:
    def prepared(answer: bytes) -> Prepared:
        async def prepare() -> Callable[[], bytes]:
            return lambda: answer + b" %d" % time.monotonic_ns()

        return prepare

    async def run() -> None:
        answers = Answers()
        asked = [answers.get("a", prepared(b"first")) for _ in range(300)]
        assert 1 == len({*await asyncio.gather(*asked)}), "they do not wait in each other's way"
        assert (await answers.get("b", prepared(b"other"))).startswith(b"other")
        assert (await answers.get("a", prepared(b"anew"))).startswith(b"first")
        under_way = asyncio.create_task(answers.get("c", prepared(b"then")))
        await asyncio.sleep(0)
        answers.forget()  # it is another moment
        assert (await answers.get("a", prepared(b"anew"))).startswith(b"anew")
        assert (await under_way).startswith(b"then")
        assert (await answers.get("c", prepared(b"now"))).startswith(b"now")
        many = [answers.get(str(n), prepared(b"")) for n in range(WAITING_MAX + 20)]
        tasks = [asyncio.create_task(one) for one in many]
        await asyncio.sleep(0)
        refused = [task for task in tasks if task.done() and task.exception() is not None]
        assert 20 == len(refused)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", refuse)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(QueryError, match="cannot fork a process"):
            answered(lambda: b"")
    assert before == descriptors()
