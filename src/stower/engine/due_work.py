"""What is due without any event, one entity at a time: an error concerns that entity alone."""

from collections.abc import Callable
from typing import NamedTuple


class DueWork(NamedTuple):
    """Something that is due for the pod of that uid. `do`: does it; `postpone`: has it done at
    another time instead, in ns, after an error."""

    uid: str
    do: Callable[[], None]
    postpone: Callable[[int], None]
