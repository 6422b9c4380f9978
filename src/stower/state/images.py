"""Container images on nodes: who has which, how large it is, and on how many nodes.

As upstream a row knows the number of nodes with an image as it was when something last changed on
the row itself: kube-scheduler copies into its snapshot only nodes that have changed. And an image
is everywhere as large as on the node that had it first, for as long as any has it.

Source: kube-scheduler backend/cache addNodeImageStates and UpdateSnapshot.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.model.kinds import Node
from stower.state.arrays import Ints, cells_of, grow_array

# Changes of one image's number of nodes that are remembered before those nobody knows are dropped.
HISTORY_MAX: Final = 64


class Images:
    """Rows and size per image name. `generation` grows with every change that scores could see."""

    __slots__ = (
        "_arrays",
        "_bytes",
        "_cells",
        "_history",
        "_row_generations",
        "_rows",
        "generation",
    )

    def __init__(self, capacity: int) -> None:
        self._row_generations: Ints = np.zeros(capacity, np.int64)
        self._cells = cells_of(self._row_generations)
        # (generation, number of nodes from then on), by image.
        self._history: dict[str, list[tuple[int, int]]] = {}
        self._rows: dict[str, set[int]] = {}
        self._bytes: dict[str, int] = {}
        self._arrays: dict[str, NDArray[np.intp]] = {}
        self.generation = 0

    def set(self, row: int, old: Node | None, new: Node | None) -> None:
        """Replace the images of the row's node. The first entry of a name gives its size."""
        before, after = _sizes(old), _sizes(new)
        if before == after:
            return
        self.generation += 1
        for name in before:
            if name not in after:
                rows = self._rows[name]
                rows.discard(row)
                self._arrays.pop(name, None)
                self._remember(name, len(rows))
                if not rows:
                    del self._rows[name]
                    del self._bytes[name]
                    del self._history[name]
        for name, size in after.items():
            rows = self._rows.setdefault(name, set())
            is_new = row not in rows
            if len(rows) == (not is_new):
                self._bytes[name] = size
            if is_new:
                rows.add(row)
                self._arrays.pop(name, None)
                self._remember(name, len(rows))

    def refresh_row(self, row: int) -> bool:
        """Something has changed on the row: it knows the numbers of now. Whether it did not."""
        if self._cells[row] == self.generation:
            return False
        self._cells[row] = self.generation
        return True

    def grow(self, capacity: int) -> None:
        """Extend to more rows."""
        self._row_generations = grow_array(self._row_generations, capacity)
        self._cells = cells_of(self._row_generations)

    def _remember(self, name: str, count: int) -> None:
        history = self._history.setdefault(name, [])
        if len(history) >= HISTORY_MAX:
            oldest = min((self._cells[row] for row in self._rows[name]), default=self.generation)
            while len(history) > 1 and history[1][0] <= oldest:
                del history[0]
        history.append((self.generation, count))

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Whether some node has one of the images."""
        return bool(self._rows) and any(name in self._rows for name in names)

    def node_counts(self, name: str, rows: NDArray[np.intp]) -> Ints:
        """int64[rows]: on how many nodes the image is, as each of these rows knows it."""
        history = self._history.get(name, [])
        if len(history) < 2:
            return np.full(len(rows), history[0][1] if history else 0, np.int64)
        since = np.array([generation for generation, _ in history], np.int64)
        numbers = np.array([count for _, count in history], np.int64)
        found: Ints = numbers[
            np.maximum(np.searchsorted(since, self._row_generations[rows], "right") - 1, 0)
        ]
        return found

    def rows_and_size(self, name: str) -> tuple[NDArray[np.intp], int]:
        """Rows that have the image, and its size in bytes."""
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = np.array(sorted(self._rows.get(name, ())), np.intp)
        return found, self._bytes.get(name, 0)

    def view(self) -> dict[str, list[int]]:
        """All images by row; for comparing states."""
        return {name: sorted(rows) for name, rows in self._rows.items()}


def _sizes(node: Node | None) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in (node.status.images or ()) if node is not None else ():
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes
