"""Defines and parses the option --event-ttl of the verbs that serve an API."""

from typing import Annotated, Final

import typer

from stower.cli.output import bad_input
from stower.model.times import SECOND_NS, duration_ns

EVENT_TTL: Final = "1h"
EventTtl = Annotated[str, typer.Option(metavar="TIME", help="How long Events are kept.")]


def event_ttl_seconds(text: str) -> float:
    """Seconds. Ends the program where that is no time of a second or more."""
    ttl_ns = duration_ns(text)
    if ttl_ns is None or ttl_ns < SECOND_NS:
        raise bad_input(f"--event-ttl: got {text!r}, want a duration of at least 1s, such as 30m")
    return ttl_ns / SECOND_NS
