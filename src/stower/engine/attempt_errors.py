"""Errors that end one scheduling attempt without a result; other pods are tried all the same."""

from typing import Final

from stower.framework.plugin_guard import PluginError
from stower.state.tallies import TooManyVisits

# A plugin failed, or its limit of work for one pod was reached; or the attempt took too much work.
ATTEMPT_ERRORS: Final = (PluginError, TooManyVisits)
