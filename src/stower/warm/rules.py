"""What a pool's settings must be, beyond their types and bounds."""

from collections.abc import Iterator

from stower.framework.args import FieldFault, invalid, raise_faults, required
from stower.model.kinds.warm_pool import WarmPoolSpec
from stower.model.times import parse_time
from stower.warm.target import DAYS, minutes_of


def raise_pool_faults(spec: WarmPoolSpec, path: str) -> None:
    """Raise InvalidObject for all that is wrong."""
    raise_faults(_faults(spec, path))


def _faults(spec: WarmPoolSpec, path: str) -> Iterator[FieldFault]:
    placeholders = spec.placeholders
    if spec.users is None:
        yield required(f"{path}.users", "which pods are users, as a label selector")
    if placeholders.template is not None and not placeholders.template.get("spec"):
        yield required(f"{path}.placeholders.template.spec")
    for i, lecture in enumerate(placeholders.lectures or ()):
        at = f"{path}.placeholders.lectures[{i}]"
        if parse_time(lecture.start) is None and minutes_of(lecture.start) is None:
            yield invalid(f"{at}.start", lecture.start, "must be an RFC 3339 time, or HH:MM")
        for day in lecture.days or ():
            if day not in DAYS:
                yield invalid(f"{at}.days", day, f"must be one of {', '.join(DAYS)}")
