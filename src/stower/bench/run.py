"""Runs one benchmark once in this process: `python -m stower.bench.run NAME` prints JSON."""

import resource
import sys
from typing import Final

import msgspec
import numpy as np

from stower.bench.drivers import DRIVE
from stower.bench.family import Family
from stower.bench.workloads import BenchWorkload, workloads


class Result(msgspec.Struct, frozen=True):
    """What a run measured. flatness: time of the last 1,000 pods over that of the second 1,000."""

    name: str
    pods: int
    seconds: float
    pods_per_s: float
    p50_us: float
    p99_us: float
    peak_bytes: int
    flatness: float | None = None


FAMILY: Final = Family(
    result=Result,
    best="pods_per_s",
    unit="pods/s",
    ratios={
        "ratio_pods_per_s": "pods_per_s",
        "ratio_p50": "p50_us",
        "ratio_peak_bytes": "peak_bytes",
    },
)


def measure(workload: BenchWorkload) -> Result:
    """Run the workload and sum up."""
    times = DRIVE[workload.driver](workload)
    pieces = np.array(times.pieces_ns, np.int64)
    seconds = float(pieces.sum()) / 1e9
    flatness = None
    if len(pieces) >= 10_000:
        # Medians, so that one pause of the machine does not decide.
        flatness = float(np.median(pieces[-1000:]) / np.median(pieces[1000:2000]))
    return Result(
        name=workload.name,
        pods=times.pods,
        seconds=seconds,
        pods_per_s=times.pods / seconds,
        p50_us=float(np.percentile(pieces, 50)) / 1000,
        p99_us=float(np.percentile(pieces, 99)) / 1000,
        # ru_maxrss is in KiB on Linux.
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        flatness=flatness,
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(workloads()[sys.argv[1]])) + b"\n")
