"""DefaultBinder: bind a pod by creating its Binding.

Source: kube-scheduler plugins/defaultbinder.
"""

from stower.framework.plugin import Plugin
from stower.model.kinds import Pod


class DefaultBinder(Plugin):
    """Let the engine write the binding."""

    name = "DefaultBinder"

    def bind(self, pod: Pod) -> bool:
        """Every pod."""
        return True
