"""Errors of the model: InvalidObject for a user's object, InvariantError for our own bug."""

from collections.abc import Iterable
from typing import Final

SUGGESTIONS_MAX: Final = 3
NEAR: Final = 0.7  # names that are less alike are not meant


class InvalidObject(Exception):
    """An object that its author must change: field path, what was found, what is wanted."""

    def __init__(self, path: str, got: object, want: str) -> None:
        super().__init__(printable(f"{path}: got {_shorten(got)}, want {want}"))
        self.path = path
        self.got = got
        self.want = want


def closest(name: str, known: Iterable[str]) -> str:
    """Returns which of these names may have been meant, three at most, as `a, b or c`; "" where
    none is near."""
    from difflib import get_close_matches  # wanted by mistakes alone

    found = get_close_matches(name, [*known], SUGGESTIONS_MAX, NEAR)
    return " or ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


class InvariantError(Exception):
    """Our own bug. Whoever meets it stops: nothing that follows could be trusted."""


def printable(text: str) -> str:
    """The text with what a terminal would obey, and halves of characters, spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shorten(got: object) -> str:
    text = f'"{got}"' if type(got) is str else repr(got)
    return text if len(text) <= 100 else text[:97] + "..."
