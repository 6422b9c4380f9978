"""Defines and parses the option --large-objects-max of the verbs that serve an API."""

from typing import Annotated, Final

import typer

from stower.api.store import LARGE_BYTES, LARGE_OBJECTS_BYTES
from stower.cli.output import bad_input
from stower.model.quantity import parse_quantity

LARGE_OBJECTS_MAX: Final = f"{LARGE_OBJECTS_BYTES >> 20}Mi"
LargeObjectsMax = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help=f"How much a namespace may keep in large objects: their bytes beyond "
        f"{LARGE_BYTES >> 10}Ki each.",
    ),
]


def large_objects_bytes(text: str) -> int:
    """Returns bytes. Ends the program where that is no size."""
    try:
        size = parse_quantity(text).value()
    except ValueError:
        size = -1
    if size < 0:
        raise bad_input(
            f"--large-objects-max: got {text!r}, want a size of 0 or more, such as 64Mi"
        )
    return size
