"""Fragmentation: place pods so that the requests of the recent past would still fit most.

Scores nodes, and has DynamicResources choose the device by the same measure. Not part of the
default profile; it should have nearly all the weight, as it tells nodes apart that are close:

    plugins: {multiPoint: {enabled: [{name: Fragmentation, weight: 1000}]}}

Source: FGD (USENIX ATC '23) for mode fgd; mode dgf is Stower's own (devices/packing/dgf.py).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from stower.devices.allocator import Prefer
from stower.devices.packing.book import Book, Books
from stower.devices.packing.packer import MODES
from stower.framework.args import Args, convert_args, unsupported
from stower.framework.device_gates import DeviceGates
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Floats, Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

DEFAULT_MODE: Final = "dgf"


class FragmentationArgs(Args, frozen=True):
    """Arguments of the plugin: `mode` is dgf or fgd. What pods ask for is learned as they come."""

    mode: str = DEFAULT_MODE


class Fragmentation(Plugin):
    """Score the nodes by what a pod leaves of them for others."""

    name = "Fragmentation"
    scope = Scope.PODS

    def __init__(self, mode: str = DEFAULT_MODE, gates: DeviceGates | None = None) -> None:
        self._mode = mode
        self._gates = gates or DeviceGates()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "Fragmentation":
        """FragmentationArgs: mode."""
        read = convert_args(args, FragmentationArgs, path)
        if read.mode not in MODES:
            raise unsupported(f"{path}.mode", read.mode, sorted(MODES))
        return cls(read.mode, features.devices)

    def _book(self, state: ClusterState) -> Book:
        return state.devices.extension(Books).book(self._mode, self._gates)

    def observe_new_pods(self, state: ClusterState) -> None:
        """What pods ask for."""
        self._book(state).learn(state)

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Where there are devices: pods without claims leave more or less of a node too."""
        return bool(state.devices.slices)

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """int64[row_limit]: 100 for the best row alone, 0 to 99 for the others."""
        found = self._book(state).gains(pod, shape, state, feasible)
        if found is None or not len(found[0]):
            return None
        rows, gains, spared = found
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = normalize_gains(gains, spared, lambda i: state.node_names[int(rows[i])])
        return result

    def device_order(self, shape: Shape, state: ClusterState, row: int) -> Prefer:
        """How to rank the devices of a row for a pod of this shape."""
        return self._book(state).prefer(shape, state, row)


def normalize_gains(gains: Floats, spared: Bools, name_of: Callable[[int], str]) -> Ints:
    """int64[rows]: gains as scores, of which the highest is one row's alone: of equal gains the
    lowest name's. Rows that are to be spared, or of which nothing is known, get nothing where there
    are others."""
    result = np.zeros(len(gains), np.int64)
    counted = np.isfinite(gains)
    if not counted.any():
        return result
    if (counted & ~spared).any():
        counted &= ~spared
    known = gains[counted]
    lowest, highest = known.min(), known.max()
    if highest > lowest:
        below = MAX_NODE_SCORE - 1
        result[counted] = np.floor(below * ((known - lowest) / (highest - lowest)))
    else:
        result[counted] = MAX_NODE_SCORE - 1
    ties = np.flatnonzero(counted & (gains == highest)).tolist()
    result[min(ties, key=name_of)] = MAX_NODE_SCORE
    return result
