"""When schedules are due, in UTC and where clocks change. Values: robfig/cron v3.0.1 itself."""

from datetime import datetime

import pytest

from stower.model.cron import Schedule, find_zone, zone_fault

S = 1_000_000_000


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * S


@pytest.mark.parametrize(
    ("line", "after", "due"),
    [
        ("*/15 * * * *", "2026-11-21T10:07:30Z", "2026-11-21T10:15:00Z"),
        ("0 9 * * mon-fri", "2026-11-21T10:00:00Z", "2026-11-23T09:00:00Z"),
        ("30 4 1,15 * 5", "2026-11-21T10:00:00Z", "2026-11-27T04:30:00Z"),
        ("0 0 */1 * 5", "2026-11-21T10:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 */2 * 5", "2026-11-21T10:00:00Z", "2026-11-23T00:00:00Z"),
        ("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("@hourly", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
        ("5-59/20 22 * * SUN", "2026-11-21T10:00:00Z", "2026-11-22T22:05:00Z"),
        ("@every 90m", "2026-11-21T10:00:00Z", "2026-11-21T11:30:00Z"),
        ("@every 1ms", "2026-11-21T10:00:00Z", "2026-11-21T10:00:01Z"),
        ("TZ=Asia/Tokyo 0 6 * * ?", "2026-11-21T10:00:00Z", "2026-11-21T21:00:00Z"),
    ],
)
def test_schedules(line: str, after: str, due: str) -> None:
    assert ns(due) == Schedule(line).next_ns(ns(after))


@pytest.mark.parametrize(
    ("zone", "line", "after", "due"),
    [
        ("Asia/Kolkata", "0 * * * *", "2026-11-21T10:00:30Z", "2026-11-21T10:30:00Z"),
        # The hour that is skipped has no such time; the one that is repeated has it twice.
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ("America/New_York", "45 1 1 nov ?", "2026-11-01T01:45:00-04:00",
         "2026-11-01T01:45:00-05:00"),
        # A day without midnight.
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00Z", "2018-11-05T02:00:00Z"),
        ("America/Sao_Paulo", "0 9 22 * ?", "2018-02-14T05:00:00Z", "2018-02-22T12:00:00Z"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-04-04T12:00:00Z", "2026-04-05T15:45:00Z"),
    ],
)  # fmt: skip
def test_schedules_of_a_time_zone(zone: str, line: str, after: str, due: str) -> None:
    found = find_zone(zone)
    assert found is not None
    assert ns(due) == Schedule(line, found).next_ns(ns(after))


@pytest.mark.parametrize("line", ["0 0 31 2 *", ", * * * *", "* , * * *", "* * 31 2,4 ?"])
def test_schedules_that_are_never_due(line: str) -> None:
    assert Schedule(line).next_ns(ns("2026-11-21T10:00:00Z")) is None


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * mo", 'failed to parse int from mo: strconv.Atoi: parsing "mo": invalid syntax'),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("@DAILY", "unrecognized descriptor: @DAILY"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("TZ=No/Where * * * * *", "provided bad location No/Where: unknown time zone No/Where"),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
    ],
)
def test_lines_that_are_no_schedule(line: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r".*") as refused:
        Schedule(line)
    assert fault == str(refused.value)


@pytest.mark.parametrize("name", ["Europe", "../etc/passwd", "/etc/passwd", "a\0b", "Europe/B"])
def test_names_that_are_no_time_zone(name: str) -> None:
    assert f"unknown time zone {name}" == zone_fault(name)


def test_without_a_database_only_utc_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr("stower.model.cron.ZoneInfo", missing)
    assert "" == zone_fault("UTC") == zone_fault("")
    assert "this machine has no time zone database" in zone_fault("Europe/Berlin")
