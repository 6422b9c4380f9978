"""How much of something a pod may ask for, before it would hold up all others.

Kubernetes sets no such bounds. These are many times what anybody needs; a pod beyond them is not
scheduled, and told why.
"""

from typing import Final

from stower.framework.plugin_guard import PluginError

TERMS_MAX: Final = 100  # of affinity and anti-affinity to pods; the same of spread constraints
TOLERATIONS_MAX: Final = 1_000
VOLUMES_MAX: Final = 1_000


def check_count(count: int, most: int, noun: str) -> None:
    """Raises PluginError."""
    if count > most:
        raise PluginError(f"the pod has {count:,} {noun}, and at most {most:,} are looked at")
