"""Reads and writes amounts of CPU and memory in the form of annotations and agent requests.

CPU is an unsigned 32-bit number of milli-CPU, memory an unsigned 64-bit number of bytes. Negative
amounts wrap around, as they do upstream.
Source: neondatabase/autoscaling pkg/api (Resources), neonvm/apis/neonvm/v1 (MilliCPU).
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from stower.model.quantity import Format, Quantity, QuantityError, parse_quantity

CPU_MASK: Final = 2**32 - 1
MEMORY_MASK: Final = 2**64 - 1
# Smaller amounts of memory are written as numbers.
MEMORY_TEXT_LEAST: Final = 1024

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)
_whole: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
INT32_MAX: Final = 2**31 - 1


class BadAmount(ValueError):
    """The text is no such amount; the message says why."""


class Resources(NamedTuple):
    """Milli-CPU and bytes."""

    cpu: int = 0
    memory: int = 0

    def exceeds(self, other: "Resources") -> bool:
        """Whether it is more in one of the two."""
        return self.cpu > other.cpu or self.memory > other.memory


@lru_cache(maxsize=65_536)
def read_resources(text: str) -> Resources:
    """`{"vCPUs": ..., "mem": ...}`. What is missing is 0. Raises BadAmount."""
    fields = read_fields(text)
    return Resources(milli_cpu(fields.get("vcpus")), whole_bytes(fields.get("mem")))


def resources_of(value: Any) -> Resources:
    """The same, of JSON that is decoded. Raises BadAmount."""
    return read_resources(msgspec.json.encode(value).decode())


def resources_text(resources: Resources) -> str:
    """As annotations have it: no spaces, whole CPUs as a number."""
    return msgspec.json.encode(resources_value(resources)).decode()


def resources_value(resources: Resources) -> dict[str, int | str]:
    """The same as a JSON value."""
    return {"vCPUs": cpu_value(resources.cpu), "mem": memory_value(resources.memory)}


def cpu_value(milli: int) -> int | str:
    """Whole CPUs as a number, else a text."""
    return milli // 1000 if milli % 1000 == 0 else str(Quantity.of_milli(milli, Format.BINARY_SI))


def memory_value(amount: int) -> int | str:
    """Bytes; few of them as a number."""
    if amount < MEMORY_TEXT_LEAST:
        return amount
    return str(Quantity.of(amount - 2**64 if amount >= 2**63 else amount, Format.BINARY_SI))


def read_fields(text: str | bytes) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, by their names in small letters; none of null. Of two of the
    same name the last one counts. Raises BadAmount."""
    try:
        if text.strip() in ("null", b"null"):
            return {}
        return {name.lower(): raw for name, raw in _fields.decode(text).items()}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadAmount(str(error)) from error


def quantity(raw: msgspec.Raw | None) -> Quantity | None:
    """A JSON string or number; None where it is missing or null. Raises BadAmount."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text == "null":
        return None
    try:
        return parse_quantity((_string.decode(text) if text[0] == '"' else text).strip())
    except (QuantityError, msgspec.DecodeError) as error:
        raise BadAmount(str(error)) from error


def milli_cpu(raw: msgspec.Raw | None) -> int:
    """In thousandths, rounded up. Raises BadAmount."""
    found = quantity(raw)
    return 0 if found is None else found.milli_value() & CPU_MASK


def whole_bytes(raw: msgspec.Raw | None) -> int:
    """Rounded up. Raises BadAmount."""
    found = quantity(raw)
    return 0 if found is None else found.value() & MEMORY_MASK


def whole_number(raw: msgspec.Raw | None) -> int:
    """An int32; 0 where it is missing or null. Raises BadAmount."""
    if raw is None:
        return 0
    try:
        found = _whole.decode(raw)
    except msgspec.DecodeError as error:
        raise BadAmount(str(error)) from error
    if found is None:
        return 0
    if not -INT32_MAX - 1 <= found <= INT32_MAX or b"." in bytes(raw) or b"e" in bytes(raw).lower():
        raise BadAmount(f"cannot unmarshal number {bytes(raw).decode()} into an int32")
    return found
