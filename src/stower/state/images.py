"""Container images on nodes: who has which, and how large it is."""

import numpy as np
from numpy.typing import NDArray

from stower.model.kinds import Node
from stower.state.arrays import Ints


class Images:
    """Rows and sizes per image name. `generation` grows with every change that scores could see."""

    __slots__ = ("_arrays", "_rows", "generation")

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}
        self._arrays: dict[str, tuple[NDArray[np.intp], Ints]] = {}
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
                del rows[row]
                if not rows:
                    del self._rows[name]
                self._arrays.pop(name, None)
        for name, size in after.items():
            self._rows.setdefault(name, {})[row] = size
            self._arrays.pop(name, None)

    def known(self, names: tuple[str, ...]) -> bool:
        """Whether some node has one of the images."""
        return bool(self._rows) and any(name in self._rows for name in names)

    def holders(self, name: str) -> tuple[NDArray[np.intp], Ints]:
        """Rows that have the image and its size in bytes on each."""
        found = self._arrays.get(name)
        if found is None:
            rows = self._rows.get(name, {})
            ordered = sorted(rows)
            found = (np.array(ordered, np.intp), np.array([rows[r] for r in ordered], np.int64))
            self._arrays[name] = found
        return found

    def view(self) -> dict[str, dict[int, int]]:
        """All images by row; for comparing states."""
        return {name: dict(rows) for name, rows in self._rows.items()}


def _sizes(node: Node | None) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in (node.status.images or ()) if node is not None else ():
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes
