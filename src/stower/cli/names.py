"""Reads names that arguments give: lists with commas, and names of a known set."""

from collections.abc import Collection, Iterable

from stower.cli.output import bad_input
from stower.model.errors import closest


def split_names(text: str) -> tuple[str, ...]:
    """Returns the names between commas, each once, without blanks."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def check_names(argument: str, names: Iterable[str], known: Collection[str], want: str) -> None:
    """Ends the program for the first name that is not known; names the closest that are."""
    for name in names:
        if name not in known:
            close = closest(name, known)
            hint = f"; did you mean {close}?" if close else ""
            raise bad_input(f"{argument}: got {name!r}, want {want} {', '.join(known)}{hint}")
