"""Validates VirtualMachines and VirtualMachineMigrations.

Source: neondatabase/autoscaling neonvm/apis/neonvm/v1, the webhooks.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.validation.rules import Object, invalid, too_long
from stower.model.quantity import QuantityError, parse_quantity

BLOCK_BYTES: Final = 8 << 20  # memory is plugged by blocks of virtio-mem
DISK_NAME_BYTES_MAX: Final = 32
RESERVED_DISKS: Final = (
    "virtualmachineimages", "rootdisk", "runtime", "swapdisk", "sysfscgroup", "ssh-privatekey",
    "ssh-publickey", "ssh-authorized-keys", "tls",
)  # fmt: skip
RESERVED_PORT: Final = "qmp"
FIXED: Final = (
    "guest.cpus.min", "guest.cpus.max", "guest.memorySlots.min", "guest.memorySlots.max",
    "guest.ports", "guest.rootDisk", "guest.command", "guest.args", "guest.env", "guest.settings",
    "disks", "podResources", "enableAcceleration", "enableSSH", "initScript",
    "enableNetworkMonitoring",
)  # fmt: skip
SET_ONCE: Final = ("cpuScalingMode", "targetArchitecture")
AMOUNTS: Final = (
    *(f"guest.cpus.{name}" for name in ("min", "max", "use")),
    "guest.memorySlotSize", "guest.rootDisk.size", "guest.settings.swap",
    "overcommit.cpu", "overcommit.memory",
)  # fmt: skip


def virtual_machine(item: Object) -> Iterator[FieldError]:
    """A new one: its size is within its bounds."""
    spec = item.get("spec") or {}
    bad = [*_bad_amounts(spec, AMOUNTS)]
    if bad:
        yield from bad
        return
    yield from _sizes(spec)
    for i, disk in enumerate(spec.get("disks") or ()):
        path, name = f"spec.disks[{i}].name", disk.get("name", "")
        if name in RESERVED_DISKS:
            yield invalid(path, name, f"'{name}' is reserved for .spec.disks[].name")
        if len(name) > DISK_NAME_BYTES_MAX:
            yield too_long(path, DISK_NAME_BYTES_MAX)
    for i, port in enumerate((spec.get("guest") or {}).get("ports") or ()):
        if port.get("name") == RESERVED_PORT:
            text = f"'{RESERVED_PORT}' is reserved name for .spec.guest.ports[].name"
            yield invalid(f"spec.guest.ports[{i}].name", RESERVED_PORT, text)


def virtual_machine_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A changed one: of its size, what it uses alone may change."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for name in FIXED:
        if _plain(_at(spec, name)) != _plain(_at(before, name)):
            yield invalid(f"spec.{name}", _at(spec, name), f".spec.{name} is immutable")
    for name in SET_ONCE:
        if before.get(name) is not None and spec.get(name) != before[name]:
            text = f".spec.{name} is not allowed to be changed once it's set"
            yield invalid(f"spec.{name}", spec.get(name), text)
    bad = [*_bad_amounts(spec, AMOUNTS)]
    yield from bad or _sizes(spec)


def migration(item: Object) -> Iterator[FieldError]:
    """A new migration."""
    yield from _bad_amounts(item.get("spec") or {}, ("maxBandwidth",))


def migration_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A changed migration is still the same."""
    if new.get("spec") != old.get("spec"):
        yield invalid("spec", new.get("spec"), "updating migration spec is not allowed")


def _at(spec: Object, path: str) -> Any:
    found: Any = spec
    for name in path.split("."):
        found = (found or {}).get(name)
    return found


def _plain(value: Any) -> Any:
    """What is empty is as if it were not there; 1 and "1" are the same amount."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return parse_quantity(str(value)).milli_value()
        except QuantityError:
            return value or None
    return value or None


def _bad_amounts(spec: Object, names: tuple[str, ...]) -> Iterator[FieldError]:
    for name in names:
        value = _at(spec, name)
        if value is None:
            continue
        try:
            good = not isinstance(value, bool) and parse_quantity(str(value)).sign >= 0
        except QuantityError:
            good = False
        if not good:
            yield invalid(f"spec.{name}", value, "must be a quantity such as 1, 250m or 1Gi")


def _sizes(spec: Object) -> Iterator[FieldError]:
    """What is used is neither less than the least nor more than the most; memory comes in blocks,
    and discounts are no divisions by nothing."""
    size = _at(spec, "guest.memorySlotSize")
    slot = BLOCK_BYTES if size is None else parse_quantity(str(size)).value()
    if slot % BLOCK_BYTES or not slot:
        text = "memorySlotSize invalid for use with virtio-mem: must be a multiple of 8Mi"
        yield invalid("spec.guest.memorySlotSize", size, text)
    for name in ("cpu", "memory"):
        factor = _at(spec, f"overcommit.{name}")
        if factor is not None and not parse_quantity(str(factor)).milli_value():
            yield invalid(f"spec.overcommit.{name}", factor, "must be greater than 0")
    cpus, slots = _at(spec, "guest.cpus"), _at(spec, "guest.memorySlots")
    for name, bounds, is_cpu in (("cpus", cpus, True), ("memorySlots", slots, False)):
        if any((bounds or {}).get(which) is None for which in ("min", "max", "use")):
            continue  # the definition says what is missing
        least, most, use = (_amount(bounds[which], is_cpu) for which in ("min", "max", "use"))
        what = f".spec.guest.{name}"
        for is_wrong, word, other, limit in (
            (use < least, "greater", "min", least), (use > most, "less", "max", most),
        ):  # fmt: skip
            if is_wrong:
                text = f"should be {word} than or equal to the {what}.{other} ({limit:g})"
                path = f"spec.guest.{name}.use"
                yield invalid(path, bounds["use"], f"{what}.use ({use:g}) {text}")


def _amount(value: Any, is_cpu: bool) -> float:
    return parse_quantity(str(value)).milli_value() / 1000 if is_cpu else value
