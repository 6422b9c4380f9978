"""WarmPool (stower.dev/v1): selects users, sets the number of placeholders and node readiness.

Source: seed 001; zero-to-jupyterhub-k8s.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from stower.model.kinds.pod import PodSpec
from stower.model.meta import ObjectMeta
from stower.model.selectors import LabelSelector, label_key_fault, label_value_fault
from stower.model.times import parse_time

REPLICAS_MAX: Final = 5_000
DAY_SECONDS: Final = 86_400
LECTURES_MAX: Final = 1_000
IMAGES_MAX: Final = 64
NAME_MAX: Final = 63  # of a pool: its placeholders have it as a label's value
# Labels of Kubernetes' own are not a pool's to set.
RESERVED: Final = ("kubernetes.io", "k8s.io")
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Seconds = Annotated[int, msgspec.Meta(ge=0, le=DAY_SECONDS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=REPLICAS_MAX)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
ZoneName = Annotated[str, msgspec.Meta(max_length=64)]
AnnotationName = Annotated[str, msgspec.Meta(max_length=317)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=10_000)]


class Lecture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An announced arrival of many users. `start`: RFC 3339, or HH:MM on `days` (Mon to Sun,
    default: every day) by the clocks of `time_zone`, an IANA name (default: UTC); `percent`: the
    share of the enrolled users that is expected; `selector`: the users of the lecture (default:
    all)."""

    start: str = ""
    enrolment: Count = 0
    percent: Percent = 95
    lead_seconds: Seconds = 600
    tail_seconds: Seconds = 300
    days: tuple[str, ...] | None = None
    time_zone: ZoneName = ""
    selector: LabelSelector | None = None


class Surge(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Users that arrive in large numbers at once: room is reserved for `hold_seconds` times the
    arrivals per second of the last `window_seconds`, if at least `arrivals_least` arrived in 10 s.
    """

    hold_seconds: Seconds = 0
    window_seconds: Seconds = 30
    arrivals_least: Count = 2


class Weights(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Weights of `placement: Spread`, counted for each pod on the node."""

    user_to_user: Weight = 100
    user_to_placeholder: Weight = 10
    placeholder_to_user: Weight = 10
    placeholder_to_placeholder: Weight = 1
    newest_node: Weight = 5


class Placeholders(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that reserve room: pods that `selector` matches, and the wanted number of pods created
    from `template`.

    The wanted number is the largest of `replicas`, `percent_of_users`, the arrivals per second of
    the last hour times `readiness_seconds`, and what those want who came within `profile_seconds`
    of this time on other days; plus lectures and surges. At most `replicas_max`. Placeholders on
    nodes that users cannot use (cordoned, lost, or without images after `stuck_after_seconds`) do
    not count: others are created beside them.
    """

    selector: LabelSelector | None = None
    template: dict[str, Any] | None = None
    replicas: Count = 0
    percent_of_users: Percent = 0
    readiness_seconds: Seconds = 0
    profile_seconds: Seconds = 0
    lectures: tuple[Lecture, ...] | None = None
    surge: Surge = Surge()
    stuck_after_seconds: Seconds = 300
    replicas_max: Count = 500
    placement: Literal["Fill", "Spread"] = "Fill"
    weights: Weights = Weights()


class Images(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The images that a node must have before users are placed there: these `names`; or the images
    of the puller pods that `pullers` matches; or the users' own images. `label`: set to "true" on
    nodes that are ready, for other tools."""

    names: tuple[str, ...] | None = None
    pullers: LabelSelector | None = None
    of_users: bool = False
    label: str = ""
    wait_seconds: Seconds = 300
    then: Literal["Soonest", "Wait"] = "Soonest"


class Repositioning(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Moves placeholders from nodes without users (Drain), from all nodes but the newest (Newest),
    or after `lifetime_seconds` (Lifetime). The number of moves is limited per minute, at once, in
    flight, and per node; a placeholder is not moved again within `rest_seconds`."""

    mode: Literal["Drain", "Newest", "Lifetime", "Off"] = "Drain"
    per_minute: Count = 6
    burst: Count = 6
    in_flight: Count = 6
    per_node: Count = 6
    rest_seconds: Seconds = 60
    lifetime_seconds: Seconds = 3_600


class Packing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where users gather: `mode` Users: beside the most users; Leaving: on the node that is in use
    for one more for the shortest time, by when users are expected to leave: the same as Users where
    no pod has the annotation. `last_activity_annotation`: of users' pods, an RFC 3339 time, as
    last_activity of JupyterHub; who was last active longer ago than `idle_after_seconds` leaves
    `cull_seconds` after that, or up to `cull_every_seconds` later; half of all are active for
    `session_seconds` or longer, and `stop_percent` of them stop their servers themselves."""

    mode: Literal["Leaving", "Users"] = "Leaving"
    last_activity_annotation: AnnotationName = "hub.jupyter.org/last-activity"
    idle_after_seconds: Seconds = 300
    cull_seconds: Seconds = 3_600
    cull_every_seconds: Annotated[int, msgspec.Meta(ge=1, le=DAY_SECONDS)] = 600
    session_seconds: Annotated[int, msgspec.Meta(ge=60, le=DAY_SECONDS)] = 3_600
    stop_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 30


class WarmPoolSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Users and placeholders are pods of the pool's namespace; nodes are those with the labels of
    `node_selector`."""

    users: LabelSelector | None = None
    node_selector: dict[str, str] | None = None
    placeholders: Placeholders = Placeholders()
    images: Images = Images()
    repositioning: Repositioning = Repositioning()
    packing: Packing = Packing()


class Move(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A move of a placeholder: the pod, the time, its old node, the node chosen for it."""

    pod: str = ""
    at: str = ""
    to: str = ""
    from_node: str = ""


class WarmNodeStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a node is for the pool's users: ready, full, draining, pulling, stuck, cordoned or not
    ready. `since`: since when it pulls; `reason`: why its placeholders do not leave it."""

    name: str = ""
    state: str = ""
    since: str = ""
    reason: str = ""


class DayProfile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When users arrive. `hours`: the mean number for each hour of the day (UTC), in hundredths;
    `days`: of how many days that is; `count`: arrivals of the hour that runs, up to `until`."""

    hours: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    count: int = 0
    until: str = ""


class WarmPoolStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the pool. Numbers are None before a scheduler has looked at the pool, never
    after: a column of kubectl shows 0. `placed`: placeholders on nodes that users can use;
    `unusable`: those on other nodes; `node_states`: of nodes that are not ready, or are not
    emptied, 100 at most; `expected`: which scaling is expected, and what pods wait for; `problem`:
    why placeholders are missing, if the API rejects them; `profile`: what was learned, with
    `profile_seconds` alone."""

    nodes: int | None = None
    ready_nodes: int | None = None
    users: int | None = None
    waiting_users: int | None = None
    wanted: int | None = None
    placed: int | None = None
    pending: int | None = None
    unusable: int | None = None
    node_states: tuple[WarmNodeStatus, ...] | None = None
    expected: str = ""
    problem: str = ""
    draining: tuple[str, ...] | None = None
    moves: tuple[Move, ...] | None = None
    profile: DayProfile | None = None


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


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of an IANA name, UTC for ""; None where there is none."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


Faults = Iterator[tuple[str, object, str]]


def pool_faults(spec: WarmPoolSpec, name: str = "") -> Faults:
    """What types and bounds do not say: path below the spec, value and what it must be. `name`: the
    pool's, of which its path says so."""
    if len(name) > NAME_MAX:
        yield "metadata.name", name, f"must have at most {NAME_MAX} characters"
    placeholders = spec.placeholders
    if spec.users is None:
        yield "users", None, "must be a label selector for the pods of users"
    elif spec.users == LabelSelector():
        yield "users", {}, "must not be empty: every pod of the namespace would be a user"
    yield from _selector_faults("users", spec.users)
    yield from _selector_faults("placeholders.selector", placeholders.selector)
    yield from _selector_faults("images.pullers", spec.images.pullers)
    if placeholders.template is not None:
        yield from _template_faults("placeholders.template", placeholders.template)
    for i, lecture in enumerate(placeholders.lectures or ()):
        at = f"placeholders.lectures[{i}]"
        yield from _selector_faults(f"{at}.selector", lecture.selector)
        if parse_time(lecture.start) is None and starts_at(lecture.start) is None:
            yield f"{at}.start", lecture.start, "must be an RFC 3339 time, or HH:MM"
        if lecture.time_zone and zone_of(lecture.time_zone) is None:
            yield f"{at}.timeZone", lecture.time_zone, "must be an IANA name, as Europe/Berlin"
        for day in lecture.days or ():
            if day not in DAYS:
                yield f"{at}.days", day, f"must be one of {', '.join(DAYS)}"
    if spec.images.label:
        yield from _node_label_faults(spec)
    name = spec.packing.last_activity_annotation
    fault = label_key_fault(name)
    if fault is not None:
        yield "packing.lastActivityAnnotation", name, f"must be {fault}"


def _node_label_faults(spec: WarmPoolSpec) -> Faults:
    label = spec.images.label
    domain = label.rpartition("/")[0]
    fault = label_key_fault(label)
    if fault is not None:
        yield "images.label", label, f"must be {fault}"
    elif not domain:
        yield "images.label", label, "must have a domain as prefix, such as example.com/warm"
    elif any(domain == one or domain.endswith(f".{one}") for one in RESERVED):
        yield "images.label", label, f"must not have the domain {' or '.join(RESERVED)}"
    elif label in (spec.node_selector or {}):
        yield "images.label", label, "must not be a label of nodeSelector"


def _selector_faults(path: str, selector: LabelSelector | None) -> Faults:
    if selector is None:
        return
    for key, value in (selector.match_labels or {}).items():
        yield from _label_faults(f"{path}.matchLabels", key, value)
    for i, term in enumerate(selector.match_expressions or ()):
        at = f"{path}.matchExpressions[{i}]"
        values = term.values or ()
        if term.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield f"{at}.operator", term.operator, "must be In, NotIn, Exists or DoesNotExist"
        elif (term.operator in ("In", "NotIn")) != bool(values):
            yield f"{at}.values", [*values], "must be set for In and NotIn, and only for these"
        for value in values or ("",):
            yield from _label_faults(at, term.key, value)


def _label_faults(path: str, key: str, value: str) -> Faults:
    for fault in (label_key_fault(key), label_value_fault(value)):
        if fault is not None:
            yield path, f"{key}={value}", f"must be {fault}"


def _template_faults(path: str, template: dict[str, Any]) -> Faults:
    """What would make no pod. What else is wrong the API says when one is made."""
    spec, meta = template.get("spec"), template.get("metadata", {})
    if not isinstance(spec, dict) or not spec:
        yield f"{path}.spec", spec, "must be a pod spec"
        return
    if not isinstance(meta, dict):
        yield f"{path}.metadata", meta, "must be an object"
        return
    for name in ("labels", "annotations"):
        texts = meta.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
            yield f"{path}.metadata.{name}", texts, "must map names to strings"
        elif name == "labels":
            for key, value in texts.items():
                yield from _label_faults(f"{path}.metadata.labels", key, value)
    try:
        found = msgspec.convert(spec, PodSpec)
    except msgspec.ValidationError as error:
        yield f"{path}.spec", "(not shown)", f"must be a pod spec: {error}"
        return
    if not found.containers:
        yield f"{path}.spec.containers", [], "must not be empty"
