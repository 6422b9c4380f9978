"""WarmPool (stower.dev/v1): which pods are users, how much room is held for those to come, and when
a node is ready for them. Source: seed 001; zero-to-jupyterhub-k8s.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.selectors import LabelSelector
from stower.model.times import parse_time

REPLICAS_MAX: Final = 5_000
DAY_SECONDS: Final = 86_400
LECTURES_MAX: Final = 1_000
IMAGES_MAX: Final = 64
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Seconds = Annotated[int, msgspec.Meta(ge=0, le=DAY_SECONDS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=REPLICAS_MAX)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class Lecture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Users who come at a time that is known. `start`: RFC 3339, or HH:MM in UTC on `days` (Mon to
    Sun, all where there are none); `percent`: how many of those that have enrolled are expected;
    `selector`: which users are theirs, all where there is none."""

    start: str = ""
    enrolment: Count = 0
    percent: Percent = 95
    lead_seconds: Seconds = 600
    tail_seconds: Seconds = 300
    days: tuple[str, ...] | None = None
    selector: LabelSelector | None = None


class Surge(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Users who come in numbers all at once: room is held for `hold_seconds` times the arrivals a
    second, by those of the last `window_seconds`, where there are at least so many in 10 s."""

    hold_seconds: Seconds = 0
    window_seconds: Seconds = 30
    arrivals_least: Count = 2


class Weights(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of `placement: Spread`, counted for each pod on the node."""

    user_to_user: Weight = 100
    user_to_placeholder: Weight = 10
    placeholder_to_user: Weight = 10
    placeholder_to_placeholder: Weight = 1
    newest_node: Weight = 5


class Placeholders(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that hold room: those that `selector` finds, and as many as are wanted of `template`.

    Wanted: `replicas`, or `percent_of_users`, or the arrivals a second of the last hour times
    `readiness_seconds`, whichever is most; with lectures and surges on top; and a node's worth for
    each that has not got its images after `stuck_after_seconds`. At most `replicas_max`.
    """

    selector: LabelSelector | None = None
    template: dict[str, Any] | None = None
    replicas: Count = 0
    percent_of_users: Percent = 0
    readiness_seconds: Seconds = 0
    lectures: tuple[Lecture, ...] | None = None
    surge: Surge = Surge()
    stuck_after_seconds: Seconds = 330
    replicas_max: Count = 500
    placement: Literal["Fill", "Spread"] = "Fill"
    weights: Weights = Weights()


class Images(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a node must have before users go there: these `names`; or what the puller pods that
    `pullers` finds have pulled; or the users' own images. `label`: set to "true" on nodes that are
    ready, for others to see."""

    names: tuple[str, ...] | None = None
    pullers: LabelSelector | None = None
    of_users: bool = False
    label: str = ""
    wait_seconds: Seconds = 300
    then: Literal["Soonest", "Wait"] = "Soonest"


class Repositioning(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Placeholders leave nodes without users (Drain), or all nodes but the newest (Newest), or
    after a while (Lifetime). Never more than so many in a minute, at once, on their way, from one
    node at a time; and none that was moved less than `rest_seconds` ago."""

    mode: Literal["Drain", "Newest", "Lifetime", "Off"] = "Drain"
    per_minute: Count = 6
    burst: Count = 6
    in_flight: Count = 6
    per_node: Count = 6
    rest_seconds: Seconds = 60
    lifetime_seconds: Seconds = 3_600


class WarmPoolSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """See the module. Pods are those of the pool's namespace; nodes those with these labels."""

    users: LabelSelector | None = None
    node_selector: dict[str, str] | None = None
    placeholders: Placeholders = Placeholders()
    images: Images = Images()
    repositioning: Repositioning = Repositioning()


class Move(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A placeholder was moved: which pod, when, and where it is to go."""

    pod: str = ""
    at: str = ""
    to: str = ""


class WarmPoolStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How things stand."""

    nodes: int = 0
    ready_nodes: int = 0
    users: int = 0
    waiting_users: int = 0
    wanted: int = 0
    placed: int = 0
    pending: int = 0
    expected: str = ""
    draining: tuple[str, ...] | None = None
    moves: tuple[Move, ...] | None = None


class WarmPool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pool of users and of the room that is held for them."""

    metadata: ObjectMeta
    spec: WarmPoolSpec = WarmPoolSpec()
    status: WarmPoolStatus = WarmPoolStatus()


def starts_at(text: str) -> int | None:
    """Minutes since midnight of HH:MM; None where it is none."""
    hours, _, minutes = text.partition(":")
    if len(hours) != 2 or len(minutes) != 2 or not (hours + minutes).isdecimal():
        return None
    return 60 * int(hours) + int(minutes) if int(minutes) < 60 and int(hours) < 24 else None


def pool_faults(spec: WarmPoolSpec) -> Iterator[tuple[str, object, str]]:
    """What types and bounds do not say: path below the spec, value and what it must be."""
    placeholders = spec.placeholders
    if spec.users is None:
        yield "users", None, "must say which pods are users, as a label selector"
    if placeholders.template is not None and not placeholders.template.get("spec"):
        yield "placeholders.template.spec", None, "must be that of a pod"
    for i, lecture in enumerate(placeholders.lectures or ()):
        at = f"placeholders.lectures[{i}]"
        if parse_time(lecture.start) is None and starts_at(lecture.start) is None:
            yield f"{at}.start", lecture.start, "must be an RFC 3339 time, or HH:MM"
        for day in lecture.days or ():
            if day not in DAYS:
                yield f"{at}.days", day, f"must be one of {', '.join(DAYS)}"
