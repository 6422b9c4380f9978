"""How long one example may take, and how many there are.

`make test` runs a sample, `make test-more` at least 100,000 examples in all."""

import gc
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS_MAX: Final = 1.0
SAMPLE: Final = 150


def in_time(work: Callable[[], None]) -> None:
    """Nothing holds up others for a second. Of the CPU's time, as machines of tests are busy; and
    not by chance, as when garbage of other examples is collected just then."""
    for is_last in (False, True):
        began = time.process_time()
        work()
        took = time.process_time() - began
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

    return [of(SAMPLE), pytest.mark.more(of(more))]
