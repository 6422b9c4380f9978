"""Converts devices and requests to thousandths of a device, and groups devices into kinds.

Two devices are of one kind where every known ask takes the same share of both: models that no
request distinguishes are one kind.
"""

from typing import Final, NamedTuple

from stower.devices.capacity import taken_amounts
from stower.devices.inventory import Content
from stower.devices.packing.phi import FULL
from stower.devices.requests import Alternative
from stower.framework.device_gates import DeviceGates
from stower.model.kinds.resource_slice import QuantityText
from stower.state.device_usage import DeviceUsage

# Distinct asks that are known at a time; beyond it, one starts over with those that come next.
ASKS_MAX: Final = 1_024


class Ask(NamedTuple):
    """What a request wants of each of its devices."""

    expressions: tuple[str, ...]
    amounts: tuple[tuple[str, QuantityText], ...]


def ask_of(alternative: Alternative) -> Ask:
    """The class's selectors and its own, and amounts of capacities."""
    selectors = (*alternative.class_selectors, *alternative.selectors)
    expressions = tuple(s.cel.expression if s.cel is not None else "" for s in selectors)
    return Ask(expressions, tuple(sorted(alternative.amounts.items())))


def share_of(ask: Ask, content: Content, gates: DeviceGates) -> int:
    """Thousandths of the capacity that the ask takes most of, 1000 of a device that is not shared,
    0 where it cannot have such a device.

    Rounded up, unless fewer would seem to fit on an empty device than do: thirds are 333.
    """
    for expression in ask.expressions:
        if content.match(expression, gates.list_attributes) is not True:
            return 0
    if not gates.consumable:
        return FULL
    parts = taken_amounts(content.capacity, dict(ask.amounts))
    if parts is None:
        return 0
    if not content.is_shared:
        return FULL
    most = 0
    for name, part in parts.items():
        whole = content.capacity[name].whole.nano
        if part.nano > whole:
            return 0
        if part.nano > 0:
            most = max(most, min(-(-FULL * part.nano // whole), FULL // (whole // part.nano)))
    return most


def free_share(content: Content, use: DeviceUsage, gates: DeviceGates) -> int:
    """Thousandths that are left of the capacity of which least is left, rounded up, so that what
    fits has room here too."""
    if use.exclusive_count:
        return 0
    if not use.share_count:
        return FULL
    if not (gates.consumable and content.is_shared):
        return 0
    least = FULL
    for name, taken in use.consumed_capacity:
        capacity = content.capacity.get(name)
        if capacity is not None and capacity.whole.nano > 0:
            whole = capacity.whole.nano
            least = min(least, max(-(-FULL * (whole - taken) // whole), 0))
    return least


class Kinds:
    """All asks and kinds, by number. `shares`: for each kind, the share that each ask takes."""

    def __init__(self, gates: DeviceGates) -> None:
        self._gates = gates
        self._asks: dict[Ask, int] = {}
        self._kinds: dict[tuple[int, ...], int] = {}
        self._of: dict[int, tuple[Content, int]] = {}  # by the content's serial number
        self.shares: list[list[int]] = []
        self._cleared = 0

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever there are kinds that were not there, or numbers mean others."""
        return self._cleared, len(self.shares)

    def clear_kinds(self) -> None:
        """Forget which devices are alike; asks keep their numbers."""
        self._cleared += 1
        self._kinds.clear()
        self._of.clear()
        self.shares.clear()

    @property
    def is_full(self) -> bool:
        """Whether there is no number left for a new ask."""
        return len(self._asks) >= ASKS_MAX

    def known_number(self, alternative: Alternative) -> int:
        """The number of what the request asks for, -1 where nobody has before."""
        return self._asks.get(ask_of(alternative), -1)

    def number(self, alternative: Alternative) -> tuple[int, bool]:
        """The same, a new one where nobody has; and whether devices that were alike are not any
        more: then nothing that was said of kinds is true, and they are forgotten."""
        ask = ask_of(alternative)
        number = self._asks.get(ask)
        if number is not None:
            return number, False
        number = self._asks[ask] = len(self._asks)
        found: dict[int, int] = {}
        for content, kind in self._of.values():
            share = share_of(ask, content, self._gates)
            if found.setdefault(kind, share) != share:
                self.clear_kinds()
                return number, True
        for kind, shares in enumerate(self.shares):
            shares.append(found[kind])
        self._kinds = {tuple(shares): kind for kind, shares in enumerate(self.shares)}
        return number, False

    def kind(self, content: Content) -> int:
        """The number of the device's kind."""
        known = self._of.get(content.serial)
        if known is None:
            shares = [share_of(ask, content, self._gates) for ask in self._asks]
            kind = self._kinds.setdefault(tuple(shares), len(self.shares))
            if kind == len(self.shares):
                self.shares.append(shares)
            known = self._of[content.serial] = (content, kind)
        return known[1]
