"""Container images on nodes: which rows have an image, its size, and the number of such nodes.

As upstream, the node count of an image differs by row: it is the count at the time of the row's own
last change, because kube-scheduler copies only changed nodes into its snapshot. The size of an
image is its size on the node that had it first, for as long as any node has it.

Source: kube-scheduler backend/cache addNodeImageStates and UpdateSnapshot.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.model.kinds import Node
from stower.state.arrays import Ints, cells_of, grow_array

# Changes of one image's node count that are kept before those that no row uses are dropped.
HISTORY_MAX: Final = 64
NO_ROWS: Final[NDArray[np.intp]] = np.array((), np.intp)


class Images:
    """Rows, size and node counts by image name. `generation` grows with every change that scores
    could see."""

    __slots__ = (
        "_cells", "_history", "_row_arrays", "_row_generations", "_rows", "_size_bytes",
        "generation",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self._row_generations: Ints = np.zeros(capacity, np.int64)
        self._cells = cells_of(self._row_generations)  # single cells of the same memory
        # By image: (generation, node count from that generation on), oldest first.
        self._history: dict[str, list[tuple[int, int]]] = {}
        self._rows: dict[str, set[int]] = {}
        self._size_bytes: dict[str, int] = {}
        self._row_arrays: dict[str, NDArray[np.intp]] = {}
        self.generation = 0

    def set(self, row: int, old: Node | None, new: Node | None) -> None:
        """Replaces the images of the row's node. On one node, the first entry with an image's name
        gives the size."""
        before, after = _image_sizes(old), _image_sizes(new)
        if before == after:
            return
        self.generation += 1
        for name in before:
            if name not in after:
                rows = self._rows[name]
                rows.discard(row)
                self._row_arrays.pop(name, None)
                self._record_count(name, len(rows))
                if not rows:
                    del self._rows[name]
                    del self._size_bytes[name]
                    del self._history[name]
        for name, size in after.items():
            rows = self._rows.setdefault(name, set())
            is_new = row not in rows
            if len(rows) == (not is_new):
                self._size_bytes[name] = size
            if is_new:
                rows.add(row)
                self._row_arrays.pop(name, None)
                self._record_count(name, len(rows))

    def refresh_row(self, row: int) -> bool:
        """Sets the row to the current node counts, after something has changed on it. Returns
        whether the row may have had older counts."""
        if self._cells[row] == self.generation:
            return False
        self._cells[row] = self.generation
        return True

    def grow(self, capacity: int) -> None:
        """Extends the arrays to more rows."""
        self._row_generations = grow_array(self._row_generations, capacity)
        self._cells = cells_of(self._row_generations)

    def _record_count(self, name: str, count: int) -> None:
        history = self._history.setdefault(name, [])
        if len(history) >= HISTORY_MAX:
            oldest = min((self._cells[row] for row in self._rows[name]), default=self.generation)
            while len(history) > 1 and history[1][0] <= oldest:
                del history[0]
        history.append((self.generation, count))

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Returns whether some node has one of the images."""
        return bool(self._rows) and any(name in self._rows for name in names)

    def node_counts(self, name: str, rows: NDArray[np.intp]) -> Ints:
        """Returns int64[rows]: the number of nodes with the image, as of the last `refresh_row` of
        each of these rows."""
        history = self._history.get(name, [])
        if len(history) < 2:
            return np.full(len(rows), history[0][1] if history else 0, np.int64)
        since = np.array([generation for generation, _ in history], np.int64)
        counts = np.array([count for _, count in history], np.int64)
        found: Ints = counts[
            np.maximum(np.searchsorted(since, self._row_generations[rows], "right") - 1, 0)
        ]
        return found

    def rows_and_size(self, name: str) -> tuple[NDArray[np.intp], int]:
        """Returns the rows that have the image, sorted, and the image's size in bytes."""
        found = self._row_arrays.get(name)
        if found is None:
            if name not in self._rows:
                return NO_ROWS, 0  # not kept: nothing bounds the images that pods name
            found = self._row_arrays[name] = np.array(sorted(self._rows.get(name, ())), np.intp)
        return found, self._size_bytes.get(name, 0)

    def view(self) -> dict[str, list[int]]:
        """Returns the rows of every image, for comparing states."""
        return {name: sorted(rows) for name, rows in self._rows.items()}


def _image_sizes(node: Node | None) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in (node.status.images or ()) if node is not None else ():
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes
