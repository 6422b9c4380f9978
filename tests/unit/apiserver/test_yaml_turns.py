"""Turns at YAML: one of each client at a time, few at once, and nothing for those who have gone."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from stower.api.errors import ApiError
from stower.apiserver.yaml_turns import CLIENT_WAITING_MAX, RUNNING_MAX, YamlTurns


class Slow:
    """Work that goes on until it is told to end."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.may_end = threading.Event()

    def __call__(self, text: bytes) -> bytes:
        self.begun.append(text)
        assert self.may_end.wait(60)
        return text


async def until(condition: Callable[[], bool]) -> None:
    """Lets others go on until it holds."""
    while not condition():
        await asyncio.sleep(0)


def here() -> bool:
    """The client is there."""
    return True


def test_a_client_has_one_turn_at_a_time_and_others_have_theirs() -> None:
    async def story() -> None:
        turns, slow = YamlTurns(), Slow()
        of_one = [asyncio.create_task(turns.run("a", here, slow, b"a")) for _ in range(9)]
        await until(lambda: slow.begun == [b"a"])
        other = asyncio.create_task(turns.run("b", here, slow, b"b"))
        await until(lambda: slow.begun == [b"a", b"b"])
        slow.may_end.set()
        assert [b"a"] * 9 == await asyncio.gather(*of_one)
        assert b"b" == await other
        turns.close()

    asyncio.run(story())


def test_few_clients_have_a_turn_at_once() -> None:
    async def story() -> None:
        turns, slow = YamlTurns(), Slow()
        tasks = [
            asyncio.create_task(turns.run(f"c{i}", here, slow, b"x"))
            for i in range(RUNNING_MAX + 3)
        ]
        await until(lambda: len(slow.begun) == RUNNING_MAX)
        for _ in range(99):
            await asyncio.sleep(0)
        assert RUNNING_MAX == len(slow.begun)
        slow.may_end.set()
        await asyncio.gather(*tasks)
        turns.close()

    asyncio.run(story())


def test_a_client_of_whom_much_waits_is_told_to_come_later() -> None:
    async def story() -> None:
        turns, slow = YamlTurns(), Slow()
        tasks = [
            asyncio.create_task(turns.run("a", here, slow, b"a")) for _ in range(CLIENT_WAITING_MAX)
        ]
        await until(lambda: bool(slow.begun))
        with pytest.raises(ApiError, match="texts in YAML") as caught:
            await turns.run("a", here, slow, b"a")
        assert (429, {"Retry-After": "1"}) == (caught.value.code, caught.value.headers)
        slow.may_end.set()
        await asyncio.gather(*tasks)
        assert b"a" == await turns.run("a", here, slow, b"a")
        turns.close()

    asyncio.run(story())


def test_nothing_is_done_for_a_client_that_has_gone() -> None:
    async def story() -> None:
        turns, slow = YamlTurns(), Slow()
        with pytest.raises(ConnectionResetError):
            await turns.run("a", lambda: False, slow, b"a")
        assert [] == slow.begun
        turns.close()

    asyncio.run(story())
