"""Reads quantities, and what pods request, from plain JSON."""

import json
from fractions import Fraction
from typing import Any, Final

Object = dict[str, Any]
SUFFIXES: Final = {
    "m": Fraction(1, 1000), "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip
USAGE: Final = "vm.neon.tech/usage"
APPROVED: Final = "internal.autoscaling.neon.tech/resources-approved"
Amounts = tuple[Fraction, Fraction]  # CPUs and bytes


def quantity(value: Any) -> Fraction:
    """Returns the value of a quantity such as `500m`, `1Gi` or 0.25."""
    text = str(value)
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * SUFFIXES[suffix]
    return Fraction(text)


def requests_of(pod: Object) -> Amounts:
    """Returns what the containers of a pod request."""
    sums = [Fraction(0), Fraction(0)]
    for container in pod["spec"]["containers"]:
        asked = (container.get("resources") or {}).get("requests") or {}
        for i, name in enumerate(("cpu", "memory")):
            sums[i] += quantity(asked.get(name, 0))
    return sums[0], sums[1]


def use_of(pod: Object) -> Amounts:
    """Returns what a pod holds for certain: a VM's size, or the requests of another pod."""
    own = pod["metadata"].get("annotations") or {}
    if USAGE not in own:
        return requests_of(pod)
    size = json.loads(own[USAGE])
    return quantity(size["cpu"]), quantity(size["memory"])


def approval_of(pod: Object) -> Amounts:
    """Returns what is set aside for a pod: a VM's approval, or the requests of another pod."""
    own = pod["metadata"].get("annotations") or {}
    size = use_of(pod)
    if APPROVED not in own:
        return size
    approved = json.loads(own[APPROVED])
    return max(size[0], quantity(approved["vCPUs"])), max(size[1], quantity(approved["mem"]))
