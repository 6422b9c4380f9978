"""What was worked out lately, kept under the bytes that it was worked out from.

Pods of one template come by the thousand and differ in their names alone: what is found about the
spec of one serves for the others. Must not know what is kept.
"""

from typing import Any, Final

import msgspec

COUNT_MAX: Final = 256  # of each kind of finding
BYTES_MAX: Final = 1 << 14  # of a key; what is longer is worked out each time

encode: Final = msgspec.json.Encoder().encode


class Known:
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
