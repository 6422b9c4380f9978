"""When a CronJob is due: the last scheduled time that was missed, and the next one.

Source: pkg/controller/cronjob/utils.go.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from stower.controllers.objects import Object, created_ns
from stower.model.cron import EPOCH, Schedule, find_zone
from stower.model.times import SECOND_NS, time_ns

MANY_MISSED: Final = 100


class DueTimes(NamedTuple):
    """What a schedule says at one moment."""

    last_ns: int | None  # the last scheduled time that is not later than now
    next_ns: int | None  # the first one after now
    is_many_missed: bool


def find_schedule(spec: Object) -> Schedule:
    """The schedule of a CronJob, whose time zone there is. Raises ValueError."""
    zone = find_zone(spec.get("timeZone") or "")
    if zone is None or "TZ" in spec["schedule"]:  # the line has a zone of its own
        return Schedule(spec["schedule"])
    return Schedule(spec["schedule"], zone)


def find_due_times(cron_job: Object, schedule: Schedule, now_ns: int) -> DueTimes:
    """The scheduled times around now. Times before the starting deadline are left out. Raises
    ValueError for a schedule that is never due."""
    earliest_ns = time_ns((cron_job.get("status") or {}).get("lastScheduleTime"))
    if earliest_ns is None:
        earliest_ns = created_ns(cron_job)
    base_ns, deadline_s = earliest_ns, cron_job["spec"].get("startingDeadlineSeconds")
    if deadline_s is not None:
        earliest_ns = max(earliest_ns, now_ns - deadline_s * SECOND_NS)
    last_ns, is_many = _last_missed(schedule, earliest_ns, now_ns)
    # Whatever was missed, the next time follows the last one: @every counts from there.
    from_ns = last_ns
    if from_ns is None and earliest_ns != base_ns:
        from_ns, _ = _last_missed(schedule, base_ns, now_ns)
    next_ns = schedule.next_ns(base_ns if from_ns is None else from_ns)
    if next_ns is not None and next_ns <= now_ns:
        next_ns = schedule.next_ns(now_ns)
    return DueTimes(last_ns, next_ns, is_many)


def _last_missed(schedule: Schedule, earliest_ns: int, now_ns: int) -> tuple[int | None, bool]:
    """The last scheduled time after `earliest_ns` and until now, and whether there were many."""
    first_ns = schedule.next_ns(earliest_ns)
    second_ns = None if first_ns is None else schedule.next_ns(first_ns)
    if first_ns is None or second_ns is None:
        raise ValueError("time difference between two schedules is less than 1 second")
    if now_ns < first_ns:
        return None, False
    if now_ns < second_ns:
        return first_ns, False
    # Of a regular schedule, most of what was missed is skipped at once.
    gap_ns = second_ns - first_ns
    missed = (now_ns - first_ns) // gap_ns + 1
    found_ns, due_ns = None, schedule.next_ns(first_ns + (missed - 2) * gap_ns)
    while due_ns is not None and due_ns <= now_ns:
        found_ns, due_ns = due_ns, schedule.next_ns(due_ns)
    return found_ns, missed > MANY_MISSED


def timestamp_text(spec: Object, at_ns: int) -> str:
    """A scheduled time in the CronJob's time zone, as RFC 3339."""
    zone = find_zone(spec.get("timeZone") or "")
    moment = (EPOCH + timedelta(seconds=at_ns // SECOND_NS)).replace(tzinfo=find_zone(""))
    text = moment.astimezone(zone).isoformat() if zone is not None else moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def timestamp_ns(text: str) -> int | None:
    """Reads what `timestamp_text` has written; None of any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int(moment.timestamp()) * SECOND_NS if moment.tzinfo is not None else None
