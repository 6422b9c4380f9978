"""What runs with faults report beside their findings: the CPU time of decisions and steps, memory,
and the work of each part.

CPU times and memory depend on the machine; the counts of `work` do not. Reports of several runs
merge into one. Must not know how the figures are collected.
"""

from enum import StrEnum
from typing import Final

import msgspec

# Buckets of a histogram: 32 per power of two, so that a quantile is off by at most 2 %.
SUB_BUCKET_BITS: Final = 5


class Part(StrEnum):
    """A part of the scheduler that decides about pods or objects of its own.

    A pod counts for one part: for groups if it is in a pod group, else for negotiation or devices
    if it has claims, for vms if a VM or a migration owns it, for warm if it is a placeholder or a
    user of a warm pool, else for pods. CLUSTER has no decisions: nodes and elections.
    """

    PODS = "pods"
    GROUPS = "groups"
    DEVICES = "devices"
    NEGOTIATION = "negotiation"
    VMS = "vms"
    WARM = "warm"
    CLUSTER = "cluster"


class Histogram(msgspec.Struct):
    """Durations in logarithmic buckets, as HdrHistogram's. `counts`: by bucket."""

    counts: dict[int, int] = {}
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def add(self, duration_ns: int) -> None:
        """Counts one duration."""
        bucket = bucket_of(duration_ns)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.total_ns += duration_ns
        self.longest_ns = max(self.longest_ns, duration_ns)

    def merge(self, other: "Histogram") -> None:
        """Adds the durations of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.total_ns += other.total_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)

    def quantile_ns(self, share: float) -> int:
        """Returns the duration that this share of all durations does not exceed, to 2 %; 0 where
        there are none."""
        left = share * self.count
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return min(middle_of(bucket), self.longest_ns)
        return self.longest_ns


def bucket_of(duration_ns: int) -> int:
    """Returns the bucket of a duration; negative durations count as 0."""
    duration_ns = max(duration_ns, 0)
    shift = max(duration_ns.bit_length() - SUB_BUCKET_BITS - 1, 0)
    return (shift << SUB_BUCKET_BITS) + (duration_ns >> shift)


def middle_of(bucket: int) -> int:
    """Returns the duration in the middle of a bucket."""
    shift = max((bucket >> SUB_BUCKET_BITS) - 1, 0)
    low = (bucket - (shift << SUB_BUCKET_BITS)) << shift
    return low + ((1 << shift) >> 1)


class PartReport(msgspec.Struct):
    """One part. `decisions`: the CPU time of each attempt for its pods (an attempt for a tree of
    groups is one decision), and of each run of its companion that had writes; `work`: what was
    done, by what it is called."""

    decisions: Histogram = msgspec.field(default_factory=Histogram)
    work: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        """Counts work."""
        self.work[what] = self.work.get(what, 0) + number

    def merge(self, other: "PartReport") -> None:
        """Adds what the part did in another run."""
        self.decisions.merge(other.decisions)
        for what, number in other.work.items():
            self.count(what, number)


class LongestStep(msgspec.Struct, frozen=True):
    """The step that took the most CPU time. `at_s`: virtual seconds."""

    cpu_ns: int
    seed: int
    at_s: float
    process: str
    event: str
    write_count: int


class StepReport(msgspec.Struct):
    """The steps for one kind of event."""

    steps: Histogram = msgspec.field(default_factory=Histogram)
    longest: LongestStep | None = None

    def is_longest(self, cpu_ns: int) -> bool:
        """Returns whether a step of this duration is the longest so far."""
        return self.longest is None or cpu_ns > self.longest.cpu_ns

    def merge(self, other: "StepReport") -> None:
        """Adds the steps of another run."""
        self.steps.merge(other.steps)
        if other.longest is not None and self.is_longest(other.longest.cpu_ns):
            self.longest = other.longest


class Memory(msgspec.Struct, frozen=True):
    """The memory of the process that runs the simulation. `rss_bytes`: resident; `block_count`:
    blocks that Python has allocated since the run began, its objects by and large."""

    rss_bytes: int = 0
    block_count: int = 0

    def larger(self, other: "Memory") -> "Memory":
        """Returns the larger of each figure."""
        return Memory(
            max(self.rss_bytes, other.rss_bytes), max(self.block_count, other.block_count)
        )


class Report(msgspec.Struct):
    """One run, or several.

    `steps` by kind of event; `a_third`, `end`: memory after a third of the virtual time and at the
    end, of several runs the maximum; `gc_ns`: CPU time of Python's garbage collector during steps,
    which no other figure includes: it depends on the objects of the simulation as a whole.
    """

    parts: dict[Part, PartReport] = {}
    steps: dict[str, StepReport] = {}
    a_third: Memory = Memory()
    end: Memory = Memory()
    gc_ns: int = 0

    def part(self, part: Part) -> PartReport:
        """Returns the report of a part, a new one if it has none."""
        found = self.parts.get(part)
        if found is None:
            found = self.parts[part] = PartReport()
        return found

    @property
    def longest_step(self) -> LongestStep | None:
        """The longest step of all, None where there was none."""
        all_longest = (step.longest for step in self.steps.values())
        known = [longest for longest in all_longest if longest is not None]
        return max(known, key=lambda longest: longest.cpu_ns, default=None)

    def merge(self, other: "Report") -> None:
        """Adds another run."""
        for part, found in other.parts.items():
            self.part(part).merge(found)
        for event, step in other.steps.items():
            if event not in self.steps:
                self.steps[event] = StepReport()
            self.steps[event].merge(step)
        self.a_third = self.a_third.larger(other.a_third)
        self.end = self.end.larger(other.end)
        self.gc_ns += other.gc_ns
