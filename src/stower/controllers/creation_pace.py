"""Decides how many pods a controller makes at once: all, but after a refusal one, two, four.

Upstream begins each turn with one; here a controller whose pods were never refused makes all of
them. Source: slowStartBatch of pkg/controller.
"""


class CreationPace:
    """How many objects may be made at once, by the keys of owners."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[str, int] = {}  # after a refusal: how many were made at the last turn

    def refuse(self, key: str) -> None:
        """One was refused."""
        self._last[key] = 0

    def is_slow(self, key: str) -> bool:
        """One was refused lately: those that are allowed may be refused, too."""
        return key in self._last

    def allowed(self, key: str, wanted: int) -> int:
        """How many of those that are wanted to make now."""
        if wanted <= 0:
            return 0
        count = min(wanted, self._most)
        if key not in self._last:
            return count
        count = min(count, max(1, 2 * self._last.pop(key)))
        if count < wanted:
            self._last[key] = count
        return count

    def forget(self, key: str) -> None:
        """The owner is gone."""
        self._last.pop(key, None)
