"""Fragmentation: places pods so that nodes keep room for the kinds of requests seen recently.

Scores nodes, and orders devices for DynamicResources by the same measure. Not part of the default
profile. It should have nearly all of the weight, because it separates nodes whose scores are close:

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
    """Arguments of the plugin: `mode` is dgf or fgd. Requests are learned as pods arrive."""

    mode: str = DEFAULT_MODE


class Fragmentation(Plugin):
    """Scores nodes by the room that the pod leaves for other pods."""

    name = "Fragmentation"
    scope = Scope.PODS

    def __init__(self, mode: str = DEFAULT_MODE, gates: DeviceGates | None = None) -> None:
        self._mode = mode
        self._gates = gates or DeviceGates()

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "Fragmentation":
        """Reads FragmentationArgs: mode."""
        parsed = convert_args(args, FragmentationArgs, path)
        if parsed.mode not in MODES:
            raise unsupported(f"{path}.mode", parsed.mode, sorted(MODES))
        return cls(parsed.mode, features.devices)

    def _book(self, state: ClusterState) -> Book:
        return state.devices.extension(Books).book(self._mode, self._gates)

    def observe_new_pods(self, state: ClusterState) -> None:
        """Learns the requests of new pods."""
        self._book(state).learn(state)

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether there are devices. Pods without claims are scored too: they also take
        room on a node."""
        return bool(state.devices.slices)

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores int64[row_limit]: 100 for the best row alone, 0 to 99 for the others."""
        node_gains = self._book(state).gains(pod, shape, state, feasible)
        if node_gains is None or not len(node_gains[0]):
            return None
        rows, gains, spared = node_gains
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = normalize_gains(gains, spared, lambda i: state.node_names[int(rows[i])])
        return result

    def device_order(self, shape: Shape, state: ClusterState, row: int) -> Prefer:
        """Returns the order of a row's devices for a pod of this shape."""
        return self._book(state).prefer(shape, state, row)


def normalize_gains(gains: Floats, spared: Bools, name_of: Callable[[int], str]) -> Ints:
    """Returns int64[rows]: gains as scores from 0 to 99, and 100 for one row with the highest gain.

    Of equal gains the row with the lowest name gets 100. Rows that are spared, and rows with an
    unknown gain (not finite), get 0 if there are other rows.
    """
    result = np.zeros(len(gains), np.int64)
    counted = np.isfinite(gains)
    if not counted.any():
        return result
    if (counted & ~spared).any():
        counted &= ~spared
    counted_gains = gains[counted]
    lowest, highest = counted_gains.min(), counted_gains.max()
    if highest > lowest:
        others_max = MAX_NODE_SCORE - 1
        result[counted] = np.floor(others_max * ((counted_gains - lowest) / (highest - lowest)))
    else:
        result[counted] = MAX_NODE_SCORE - 1
    ties = np.flatnonzero(counted & (gains == highest)).tolist()
    result[min(ties, key=name_of)] = MAX_NODE_SCORE
    return result
