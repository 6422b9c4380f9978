"""Limits on the terms, tolerations and volumes of a pod, which bound the cost of an attempt.

Without them one pod could delay all others. Kubernetes has no such limits; these are many times
what real pods use. A pod beyond a limit is not scheduled, and its condition gives the reason.
"""

from typing import Final

from stower.framework.plugin_guard import PluginError

# Applies to required pod (anti-)affinity terms, to preferred ones, and to spread constraints.
TERMS_MAX: Final = 100
TOLERATIONS_MAX: Final = 1_000
VOLUMES_MAX: Final = 1_000


def check_count(count: int, limit: int, noun: str) -> None:
    """Raises PluginError if the pod has more than `limit` of `noun`."""
    if count > limit:
        raise PluginError(f"the pod has {count:,} {noun}, the limit is {limit:,}")
