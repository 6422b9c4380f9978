"""What an attempt may end in, beside an answer: one pod fails, and the loop goes on."""

from typing import Final

from stower.framework.plugin_guard import PluginError
from stower.state.tallies import TooManyVisits

# A plugin has failed, or said that the pod is too much; or this attempt has taken long enough.
FAULTS: Final = (PluginError, TooManyVisits)
