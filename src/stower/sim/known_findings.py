"""Known findings: laws that runs with faults break today, in ways that are described here.

A finding is known by the situation, never by the seed: the law, the part of the load, and what the
checker says. A run goes on after a known finding, without the checker that made it. Each row has a
directed script in tests/sim/known that still breaks the law; a row goes when its script passes.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from stower.sim.script import AnyHappening, Script


class KnownFinding(NamedTuple):
    """`parts`: the kinds of happenings, without each of which it does not occur; `signature`:
    matches the whole text of the checker, without the time; `issue`: where it is to be mended;
    `script`: the file name in tests/sim/known."""

    law: str
    parts: tuple[type[AnyHappening], ...]
    signature: re.Pattern[str]
    issue: int
    script: str


KNOWN_FINDINGS: Final[tuple[KnownFinding, ...]] = ()
_TIME: Final = re.compile(r"at [\d.]+ s: ")


def find_known(
    law: str, what: str, script: Script, known: Collection[KnownFinding]
) -> KnownFinding | None:
    """Returns the row that describes a finding, None where there is none."""
    text = _TIME.sub("", what, count=1)
    for row in known:
        is_it = row.law == law and row.signature.fullmatch(text) is not None
        kinds = {type(happening) for happening in script.happenings} if is_it else set()
        if is_it and kinds.issuperset(row.parts):
            return row
    return None
