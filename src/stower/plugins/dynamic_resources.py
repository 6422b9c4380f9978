"""DynamicResources: what it says of pods without resource claims.

Source: kube-scheduler plugins/dynamicresources.
"""

from stower.framework.plugin import Plugin
from stower.framework.post_filter import Failure, Remedy


class DynamicResources(Plugin):
    """A pod without claims has none that could be given back for it."""

    name = "DynamicResources"

    def post_filter(self, failure: Failure) -> Remedy:
        """Nothing to be done, in upstream's words."""
        return Remedy("no new claims to deallocate")
