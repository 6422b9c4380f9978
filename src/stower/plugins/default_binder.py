"""DefaultBinder: binds a pod to its node by creating a Binding.

Source: kube-scheduler plugins/defaultbinder.
"""

from stower.framework.plugin import Plugin
from stower.model.kinds import Pod


class DefaultBinder(Plugin):
    """Accepts all pods; the engine writes the Binding."""

    name = "DefaultBinder"

    def bind(self, pod: Pod) -> bool:
        """Returns True."""
        return True
