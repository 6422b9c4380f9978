"""Shortens messages of refused pods for tables."""

from typing import Final

# What preemption came to says nothing of why: kube-scheduler adds it to every refusal.
TAILS: Final = (" no new claims to deallocate", " still not schedulable", " preemption: ")


def without_preemption(message: str) -> str:
    """Returns the message of a refusal without what preemption came to."""
    for tail in TAILS:
        message = message.partition(tail)[0]
    return message
