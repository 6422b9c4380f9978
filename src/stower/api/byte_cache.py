"""Caches computed results by the bytes of their input. A full cache evicts its oldest result.

Thousands of pods of one template differ in their names alone: the result for the spec of one pod
serves the others. Must not know what the results are.
"""

from typing import Any, Final

import msgspec

COUNT_MAX: Final = 256  # of each kind of finding
BYTES_MAX: Final = 1 << 14  # of a key; what is longer is worked out each time

encode: Final = msgspec.json.Encoder().encode


class ByteCache:
    """Findings by key; the oldest go first."""

    def __init__(self) -> None:
        self._found: dict[bytes, Any] = {}

    def get(self, key: bytes) -> Any:
        """What was found, or None."""
        return self._found.get(key)

    def put(self, key: bytes, finding: Any) -> None:
        """Keep a finding, which must not be changed from now on."""
        if len(key) > BYTES_MAX:
            return
        self._found[key] = finding
        if len(self._found) > COUNT_MAX:
            del self._found[next(iter(self._found))]
