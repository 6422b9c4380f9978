"""Completion indexes of Indexed Jobs: which have succeeded or failed, and which need a pod.

Source: pkg/controller/job/indexed_job_utils.go, success_policy.go.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from stower.controllers.deletion_order import order_for_deletion
from stower.controllers.objects import Object

INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
UNKNOWN: Final = -1
INT32_MAX: Final = 2**31 - 1


class IndexSet:
    """A set of completion indexes as ordered spans that do not touch each other."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        """`spans`: first and last index of each, in any order."""
        self.spans: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if self.spans and first <= self.spans[-1][1] + 1:
                self.spans[-1] = (self.spans[-1][0], max(last, self.spans[-1][1]))
            else:
                self.spans.append((first, last))

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "IndexSet":
        """The set of these indexes."""
        return cls((number, number) for number in numbers)

    @classmethod
    def parse(cls, text: str, completions: int) -> "IndexSet":
        """Reads a text such as `0-2,5`; parts that are not of this form and indexes from
        `completions` on are left out."""
        spans: list[tuple[int, int]] = []
        for part in text.split(",") if text else ():
            low, dash, high = part.partition("-")
            first, last = _number(low), _number(high if dash else low)
            if first is not None and last is not None and first < completions:
                spans.append((first, min(last, completions - 1)))
        return cls(spans)

    def __str__(self) -> str:
        """As in a Job's status: two neighbours are written apart."""
        parts: list[str] = []
        for first, last in self.spans:
            if last > first + 1:
                parts.append(f"{first}-{last}")
            else:
                parts += map(str, range(first, last + 1))
        return ",".join(parts)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def __contains__(self, index: int) -> bool:
        low, high = 0, len(self.spans)
        while low < high:
            middle = (low + high) // 2
            if self.spans[middle][1] < index:
                low = middle + 1
            else:
                high = middle
        return low < len(self.spans) and self.spans[low][0] <= index

    def __or__(self, other: "IndexSet") -> "IndexSet":
        return IndexSet((*self.spans, *other.spans))

    def missing(self, completions: int) -> Iterator[int]:
        """Indexes below `completions` that are not in the set, in order."""
        candidate = 0
        for first, last in self.spans:
            yield from range(candidate, min(first, completions))
            candidate = last + 1
        yield from range(candidate, completions)

    def count_common(self, other: "IndexSet") -> int:
        """How many indexes are in both sets."""
        count = at = 0
        for first, last in self.spans:
            while at < len(other.spans) and other.spans[at][1] < first:
                at += 1
            turn = at
            while turn < len(other.spans) and other.spans[turn][0] <= last:
                low, high = other.spans[turn]
                count += min(last, high) - max(first, low) + 1
                turn += 1
        return count


def _number(text: str) -> int | None:
    """A decimal int32 that is not negative, or None."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        return None
    value = int(text)
    return value if value <= INT32_MAX else None


def index_of(pod: Object) -> int:
    """The completion index of a pod, or UNKNOWN."""
    number = _number((pod["metadata"].get("annotations") or {}).get(INDEX, ""))
    return UNKNOWN if number is None else number


def has_index(pod: Object, completions: int) -> bool:
    """The pod has a completion index that the Job still has."""
    return UNKNOWN != index_of(pod) < completions


def indexes_of(pods: Iterable[Object]) -> IndexSet:
    """The completion indexes of pods."""
    return IndexSet.of(index for index in map(index_of, pods) if index != UNKNOWN)


def failures_of(pod: Object) -> tuple[int, int]:
    """How often the index of a pod had failed before it: counted and ignored failures."""
    notes = pod["metadata"].get("annotations") or {}
    return _number(notes.get(FAILURES, "")) or 0, _number(notes.get(IGNORED_FAILURES, "")) or 0


def select_redundant(
    pods: list[Object], completions: int, now_ns: int
) -> tuple[list[Object], list[Object]]:
    """Splits active pods into those to remove, because they have no valid index or share theirs
    with a pod that is further along, and the rest."""
    of_index: dict[int, list[Object]] = {}
    redundant: list[Object] = []
    for pod in pods:
        if has_index(pod, completions):
            of_index.setdefault(index_of(pod), []).append(pod)
        else:
            redundant.append(pod)
    left: list[Object] = []
    for index in sorted(of_index):
        *surplus, last = order_for_deletion(of_index[index], (), now_ns)
        redundant += surplus
        left.append(last)
    return redundant, left


def match_success_policy(policy: Any, completions: int, succeeded: IndexSet) -> str | None:
    """The message about the first rule that is met, or None."""
    if not succeeded:
        return None
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        reached, wanted = len(succeeded), count
        if text is not None:
            required = IndexSet.parse(text, completions)
            if not required:
                continue
            reached = required.count_common(succeeded)
            wanted = len(required) if count is None else min(count, len(required))
        if wanted is not None and reached >= wanted:
            return f"Matched rules at index {number}"
    return None
