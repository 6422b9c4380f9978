"""Errors that end one scheduling attempt without an answer; other pods are tried all the same."""

from typing import Final

from stower.framework.plugin_guard import PluginError
from stower.state.tallies import TooManyVisits

# A plugin failed, or refused to do that much for one pod; or the attempt took too much work.
ATTEMPT_ERRORS: Final = (PluginError, TooManyVisits)
