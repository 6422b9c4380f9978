"""Law `devices`: no device, share of a device or counter is allocated beyond its capacity.

Where several schedulers know nothing of each other, what bound pods have is never beyond that, and
what all claims have is not at the end.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from stower.devices.negotiation.claims import driver_of
from stower.framework.events import WatchType
from stower.model.kinds import Pod, ResourceClaim, ResourceSlice
from stower.model.kinds.resource_claim import DeviceResult
from stower.model.kinds.resource_slice import Device
from stower.model.quantity import parse_quantity
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.server import Change
from stower.state.devices import used_claim_keys

Id = tuple[str, str, str]
# So long it may take until what another scheduler has allocated before is given back.
GIVEN_BACK_NS: Final = SECOND_NS


def exact(text: Any) -> Fraction:
    """A quantity as a number."""
    quantity = parse_quantity(str(text))
    return Fraction(quantity.mantissa) * Fraction(10) ** quantity.scale


class Devices(Checker):
    """After each change of a claim: no capacity of a device is oversold, what is not shared has one
    holder, and counters have not gone below zero."""

    law = "devices"
    allows_rivals = True

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._devices: dict[Id, Device] = {}
        self._counters: dict[tuple[str, str], Mapping[tuple[str, str], Fraction]] = {}
        self._claims: dict[str, tuple[DeviceResult, ...]] = {}
        self._holders: dict[Id, dict[str, list[DeviceResult]]] = {}
        self._in_use: dict[tuple[str, str], dict[Id, None]] = {}  # by pool: devices once held
        self._allocated_ns: dict[str, int] = {}  # by claim: when it was, where there are rivals
        self._binds = Binds()
        self._bound: dict[str, None] = {}  # keys of claims that a bound pod uses

    def on_change(self, change: Change) -> None:
        """Slices are read, claims counted and looked at."""
        _, kind, obj = change
        if isinstance(obj, ResourceSlice):
            self._read(obj)
        elif isinstance(obj, ResourceClaim) and not driver_of(obj, {}):
            if kind is WatchType.DELETED or obj.status.allocation is None:
                self._bound.pop(obj.metadata.key, None)
                self._allocated_ns.pop(obj.metadata.key, None)
                self._count(obj.metadata.key, None)
            elif not self.court.has_rivals or obj.metadata.key in self._bound:
                self._count(obj.metadata.key, obj)
            else:
                self._allocated_ns.setdefault(obj.metadata.key, self.court.agenda.now_ns)
        elif self.court.has_rivals and isinstance(obj, Pod):
            pod = self._binds.find_bound_pod(change)
            for key in used_claim_keys(pod) if pod is not None else ():
                self._bound[key] = None
                self._count(key, self.court.server.get(ResourceClaim, key))

    def check_end(self) -> None:
        """All claims, whoever uses them, but those that have just been allocated."""
        since_ns = self.court.agenda.now_ns - GIVEN_BACK_NS
        for key, claim in self.court.server.all(ResourceClaim).items():
            if not driver_of(claim, {}) and self._allocated_ns.get(key, 0) <= since_ns:
                self._count(key, claim)

    def _count(self, key: str, claim: ResourceClaim | None) -> None:
        """Counts a claim as it is now, and looks at its devices."""
        results = claim.results if claim is not None else ()
        before = self._claims.get(key, ())
        if before == results:
            return
        for result in before:
            self._holders.get(_id(result), {}).pop(key, None)
        self._claims[key] = results
        for result in results:
            if not result.admin_access:
                id = _id(result)
                self._holders.setdefault(id, {}).setdefault(key, []).append(result)
                self._in_use.setdefault(id[:2], {})[id] = None
        for result in results:
            self._check_device(_id(result), key)

    def _read(self, obj: ResourceSlice) -> None:
        spec = obj.spec
        for device in spec.devices or ():
            self._devices[spec.driver, spec.pool.name, device.name] = device
        if spec.shared_counters:
            self._counters[spec.driver, spec.pool.name] = {
                (counters.name, name): exact(counter.value)
                for counters in spec.shared_counters
                for name, counter in counters.counters.items()
            }

    def _check_device(self, id: Id, key: str) -> None:
        device = self._devices.get(id)
        if device is None:
            raise self.violation(f"claim {key} has device {'/'.join(id)}, which is in no slice")
        holders = self._holders.get(id, {})
        shares = [result for results in holders.values() for result in results]
        if not device.allow_multiple_allocations:
            if len(shares) > 1:
                raise self.violation(
                    f"device {'/'.join(id)} does not allow multiple allocations, but is allocated "
                    f"to {sorted(holders)}"
                )
        else:
            ids = [share.share_id for share in shares]
            if None in ids and len(ids) > 1:
                raise self.violation(
                    f"device {'/'.join(id)} is allocated to {sorted(holders)}, to one of them "
                    "without a share id"
                )
            if len(set(ids)) != len(ids):
                raise self.violation(f"device {'/'.join(id)} has duplicate share ids: {ids}")
            for name, capacity in (device.capacity or {}).items():
                amounts = (exact((s.consumed_capacity or {}).get(name, 0)) for s in shares)
                taken = sum((max(amount, Fraction(0)) for amount in amounts), Fraction(0))
                if taken > exact(capacity.value):
                    what = (
                        f"{taken} of capacity {name} of device {'/'.join(id)} is allocated, which "
                        f"has {exact(capacity.value)}"
                    )
                    raise self.violation(f"with claim {key}, {what}")
        for counter, left in self._list_remaining((id[0], id[1])):
            if left < 0:
                raise self.violation(
                    f"with claim {key}, counter {'/'.join(counter)} of pool {'/'.join(id[:2])} is "
                    f"{left}, want at least 0"
                )

    def _list_remaining(self, pool: tuple[str, str]) -> Iterator[tuple[tuple[str, str], Fraction]]:
        left = dict(self._counters.get(pool, {}))
        if not left:
            return
        for id in self._in_use.get(pool, ()):
            if not self._holders[id]:
                continue
            for consumption in self._devices[id].consumes_counters or ():
                for name, counter in consumption.counters.items():
                    left[consumption.counter_set, name] -= exact(counter.value)
        yield from left.items()


def _id(result: DeviceResult) -> Id:
    return result.driver, result.pool, result.device
