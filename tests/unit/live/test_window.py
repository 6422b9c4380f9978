"""How many requests may be in flight, after given answers at given times."""

from stower.live.window import IN_FLIGHT_FIRST, IN_FLIGHT_SLOW_MIN, Window


def answers(window: Window, count: int, latency_s: float, start_s: float = 0.0) -> float:
    now_s = start_s
    for _ in range(count):
        now_s += latency_s / window.size
        window.observe_response(latency_s, now_s)
    return now_s


def test_a_quick_server_gets_all() -> None:
    window = Window(64)
    answers(window, 10_000, 0.01)
    assert 64 == window.size


def test_a_server_that_says_so_gets_half_once_per_round_trip() -> None:
    window = Window(64)
    now_s = answers(window, 3_000, 0.01)
    for _ in range(40):
        window.observe_response(0.01, now_s, is_throttled=True)
    assert 32 == window.size
    for turn in range(20):
        window.observe_response(0.01, now_s + turn, is_throttled=True)
    assert window.min_size == window.size
    answers(window, 10_000, 0.01, now_s + 100)
    assert 64 == window.size, "it recovers"


def test_a_server_that_grows_slow_gets_less_but_not_too_little() -> None:
    window = Window(64)
    now_s = answers(window, 1_000, 0.01)
    answers(window, 10_000, 2.0, now_s)
    assert IN_FLIGHT_SLOW_MIN == window.size


def test_a_server_that_was_always_slow_gets_all() -> None:
    window = Window(64)
    answers(window, 3_000, 0.4)
    assert 64 == window.size


def test_it_begins_small_and_grows_where_that_is_no_slower() -> None:
    window = Window(64)
    assert IN_FLIGHT_FIRST == window.size
    answers(window, 3_000, 0.01)
    assert 64 == window.size


def test_a_server_that_is_busy_gets_no_more() -> None:
    window, now_s = Window(64), 0.0
    for _ in range(1_000):  # one core: more in flight only wait for longer
        latency_s = 0.001 * window.size
        now_s += 0.001
        window.observe_response(latency_s, now_s)
    assert IN_FLIGHT_FIRST <= window.size <= 2 * IN_FLIGHT_FIRST


def test_a_busy_server_gets_more_in_time_as_there_may_be_other_reasons() -> None:
    window, now_s = Window(64), 0.0
    for _ in range(20_000):
        now_s += 0.001
        window.observe_response(0.001 * window.size, now_s)
    assert 64 == window.size


def test_a_quick_refusal_at_the_start_is_no_measure() -> None:
    window = Window(64)
    window.observe_response(0.002, 0.0)
    answers(window, 3_000, 0.06)
    assert 64 == window.size


def test_one_at_a_time_is_possible() -> None:
    window = Window(1)
    for turn in range(10):
        window.observe_response(0.01, float(turn), is_throttled=True)
    assert 1 == window.size
