"""Regular expressions of the package take time in proportion to the text, whatever the text.

Texts are made from the pattern: what leads to a repetition, then thousands of characters that it
takes, then one that nothing takes.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterable, Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

import pytest

import stower

LENGTH: Final = 8_000
SECONDS_MAX: Final = 0.1  # linear: 1 ms; quadratic: 0.4 s and more
OF_CATEGORY: Final = {sre.CATEGORY_DIGIT: "1", sre.CATEGORY_SPACE: " "}
REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def list_patterns() -> dict[tuple[str, int], str]:
    """Returns where each compiled pattern of a module is, by the pattern and its flags."""
    found = {}
    for info in pkgutil.walk_packages(stower.__path__, "stower."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                inner = [*value.values()] if isinstance(value, dict) else value
                for one in inner if isinstance(inner, list | tuple) else (value,):
                    if isinstance(one, re.Pattern) and isinstance(one.pattern, str):
                        found.setdefault((one.pattern, one.flags), f"{info.name}.{name}")
    return found


def sample(items: Iterable[tuple[Any, Any]]) -> str:
    """A character of a class."""
    for kind, value in items:
        match kind:
            case sre.LITERAL:
                return chr(value)
            case sre.RANGE:
                return chr(value[0])
            case sre.CATEGORY:
                return OF_CATEGORY.get(value, "a")
    return "a"


def inner_of(kind: Any, value: Any) -> list[Any]:
    """The patterns inside an item of a pattern."""
    if kind in REPEATS:
        return [value[2]]
    if kind is sre.SUBPATTERN:
        return [value[3]]
    if kind is sre.ATOMIC_GROUP:
        return [value]
    return value[1] if kind is sre.BRANCH else []


def characters(pattern: Iterable[Any]) -> set[str]:
    """One character of each class and literal."""
    found = set()
    for kind, value in pattern:
        if kind is sre.LITERAL:
            found.add(chr(value))
        elif kind in (sre.ANY, sre.NOT_LITERAL) or (kind is sre.IN and value[0][0] is sre.NEGATE):
            found |= set("a1 .")
        elif kind is sre.IN:
            found |= {sample([item]) for item in value}
        for inner in inner_of(kind, value):
            found |= characters(inner)
    return found


def shortest(pattern: Iterable[Any]) -> str:
    """A short text that the pattern takes."""
    text = ""
    for kind, value in pattern:
        if kind is sre.LITERAL:
            text += chr(value)
        elif kind in (sre.ANY, sre.NOT_LITERAL, sre.IN):
            text += sample(value) if kind is sre.IN else "a"
        elif inner := inner_of(kind, value):
            text += shortest(inner[0]) * (value[0] if kind in REPEATS else 1)
    return text


def texts_before_repeats(pattern: Iterable[Any], before: str = "") -> Iterator[str]:
    """Yields what leads to each repetition."""
    for kind, value in pattern:
        if kind in REPEATS:
            yield before
        for inner in inner_of(kind, value):
            yield from texts_before_repeats(inner, before)
        before += shortest([(kind, value)])


PATTERNS: Final = list_patterns()


@pytest.mark.parametrize(("text", "flags"), PATTERNS, ids=[*PATTERNS.values()])
def test_a_pattern_takes_linear_time(text: str, flags: int) -> None:
    parsed, pattern = sre_parser.parse(text, flags), re.compile(text, flags)
    single = sorted(characters(parsed))[:40]
    repeated = single + [a + b for a in single[:8] for b in single[:8] if a != b]
    for before in {"", *texts_before_repeats(parsed)}:
        for character in repeated:
            long = before + character * (LENGTH // len(character)) + "\0"
            began = time.process_time()
            pattern.fullmatch(long)
            pattern.match(long)
            assert time.process_time() - began < SECONDS_MAX, (before, character)
