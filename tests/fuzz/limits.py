"""How long one example may take, and how many there are.

`make test` runs a sample, `make test-more` some 20,000 examples, `make long ROWS=fuzz` more than
100,000."""

import gc
import os
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS_MAX: Final = 1.0
WALL_SECONDS_MAX: Final = 20.0  # on a machine with other things to do
SAMPLE: Final = 150
PART: Final = 1 if os.environ.get("FUZZ") == "all" else 6  # of the long run


def in_time(work: Callable[[], None]) -> None:
    """Nothing holds up others for a second. Of the CPU's time, as machines of tests are busy; and
    not by chance, as when garbage of other examples is collected just then."""
    for is_last in (False, True):
        began, wall = time.process_time(), time.monotonic()
        work()
        took = time.process_time() - began
        assert time.monotonic() - wall < WALL_SECONDS_MAX, "it waits for something"
        if took < SECONDS_MAX:
            return
        assert not is_last, f"{took:.1f} s"
        gc.collect()


def fuzzed(test: Callable[..., None], more: int, **drawn: st.SearchStrategy[Any]) -> list[Any]:
    """The test over a sample of examples, and over so many as a long one, for parametrize-less
    modules: `test_x, test_x_long = fuzzed(...)`."""

    def of(count: int) -> Any:
        def body(**given_: Any) -> None:
            in_time(lambda: test(**given_))

        body.__name__ = test.__name__
        checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
        found = settings(max_examples=count, suppress_health_check=checks)(given(**drawn)(body))
        found.__doc__ = test.__doc__
        return found

    return [of(SAMPLE), pytest.mark.more(of(more // PART))]
