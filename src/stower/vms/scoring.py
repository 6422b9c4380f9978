"""Scores a node for a VM: highest at the configured utilization, lower above and below it.

Source: seed 004; neondatabase/autoscaling pkg/plugin calculateScore.
"""

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE
from stower.state.arrays import Floats, Ints
from stower.vms.config import Scoring


def fractions(scoring: Scoring, reserved: Floats, total: Floats, largest: float) -> Floats:
    """float64[nodes], 0 to 1. reserved: with the pod; largest: the total of the largest node."""
    low, high, peak = scoring.min_usage_score, scoring.max_usage_score, scoring.score_peak
    with np.errstate(divide="ignore", invalid="ignore"):
        full = reserved / total
        # Where the peak is at an end, nothing lies beyond it.
        below = low + (1 - low) / peak * full if peak else full
        above = high + (1 - high) / (1 - peak) * (1 - full) if peak < 1 else full
        found: Floats = np.where(full < peak, below, np.where(full > peak, above, 1.0))
        result: Floats = found * (total / largest)
    return result


def scores(cpu: Floats, memory: Floats, over: np.ndarray) -> Ints:
    """int64[nodes], 0 to 100, of the fractions; over: bool[nodes], those without room."""
    least = np.nan_to_num(np.minimum(cpu, memory))
    found: Ints = np.where(over, 0, (MAX_NODE_SCORE * least).astype(np.int64))
    return found
