"""Settings that all tests share."""

from hypothesis import settings

# The same examples every time: a failure on one machine is a failure on all.
settings.register_profile("stower", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("stower")
