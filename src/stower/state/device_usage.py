"""Counts the devices that allocations of claims use, by pool and device.

Source: KEP-5075 for shares: each share is counted, also on a device without a capacity that it
could consume. Must not know whether an allocation is assumed or in the API.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from stower.model.kinds.resource_claim import AllocationResult, DeviceResult
from stower.model.kinds.resource_slice import QuantityText
from stower.model.quantity import quantity_of
from stower.state.change_log import ChangeLog

PoolID = tuple[str, str]  # driver, pool
NANO: Final = -9


class DeviceUsage(NamedTuple):
    """The usage of one device. exclusive_count: claims that use the whole device (more than one
    only while claims contradict each other); share_count: shares; consumed_capacity: what the
    shares consume of each capacity, in nano-units, by name."""

    exclusive_count: int = 0
    share_count: int = 0
    consumed_capacity: tuple[tuple[str, int], ...] = ()


UNUSED: Final = DeviceUsage()


class UsageCounts:
    """The usage of all devices in use, and the claims that use each pool.

    `log`: the pools whose usage has changed.
    """

    def __init__(self) -> None:
        self.log: ChangeLog[PoolID] = ChangeLog()
        self._usage: dict[PoolID, dict[str, DeviceUsage]] = {}
        self._versions: dict[PoolID, int] = {}
        self._keys: dict[PoolID, dict[str, None]] = {}  # of claims

    def of_pool(self, pool: PoolID) -> dict[str, DeviceUsage]:
        """Returns the usage of a pool's devices by name. Unused devices are left out."""
        return self._usage.get(pool, {})

    def version(self, pool: PoolID) -> int:
        """Returns a number that differs after every change of the pool's usage; 0 where no device
        is used."""
        return self._versions.get(pool, 0)

    def claims(self, pool: PoolID) -> Iterable[str]:
        """Returns the keys of the claims that use devices of a pool."""
        return self._keys.get(pool, ())

    def view(self) -> dict[PoolID, dict[str, DeviceUsage]]:
        """Returns a copy of all usage, for comparing states."""
        return {pool: dict(used) for pool, used in self._usage.items() if used}

    def add(self, key: str, allocation: AllocationResult) -> None:
        """Counts the allocation of a claim."""
        for result in allocation.devices.results or ():
            if not result.admin_access:
                pool = (result.driver, result.pool)
                self._keys.setdefault(pool, {})[key] = None
                self._count(pool, result, 1)

    def remove(self, key: str, allocation: AllocationResult) -> None:
        """Counts the allocation of a claim no longer."""
        for result in allocation.devices.results or ():
            if not result.admin_access:
                pool = (result.driver, result.pool)
                keys = self._keys.get(pool)
                if keys is not None:
                    keys.pop(key, None)
                    if not keys:
                        del self._keys[pool]
                self._count(pool, result, -1)

    def _count(self, pool: PoolID, result: DeviceResult, sign: int) -> None:
        pool_usage = self._usage.setdefault(pool, {})
        usage = pool_usage.get(result.device, UNUSED)
        if result.share_id is None:
            usage = usage._replace(exclusive_count=usage.exclusive_count + sign)
        else:
            amounts = dict(usage.consumed_capacity)
            for name, text in (result.consumed_capacity or {}).items():
                amounts[name] = amounts.get(name, 0) + sign * max(to_nano(text), 0)
            consumed = tuple(sorted((name, n) for name, n in amounts.items() if n))
            usage = DeviceUsage(usage.exclusive_count, usage.share_count + sign, consumed)
        if usage == UNUSED:
            pool_usage.pop(result.device, None)
        else:
            pool_usage[result.device] = usage
        self.log.add(pool)
        self._versions[pool] = self.log.position
        if not pool_usage:
            del self._usage[pool], self._versions[pool]


def to_nano(text: QuantityText) -> int:
    """Returns a quantity in nano-units, rounded up."""
    return quantity_of(text).round_up(NANO)
