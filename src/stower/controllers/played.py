"""How the containers of simulated pods play their part: when each ends, and with which exit code.

Said by, the first that is there:

    play.stower.dev/CONTAINER: "after=5s exit=3"        an annotation of the pod
    stower.dev/run-seconds, stower.dev/exit-code        the same for all containers of the pod
    command (and args) that is `true`, `false`, `sleep N` or `exit N` alone, also within `sh -c`

Every other container runs until it is deleted; an init container has done its work at once.
"""

import math
import shlex
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from stower.controllers.objects import Object
from stower.model.times import SECOND_NS, duration_ns

PLAY: Final = "play.stower.dev/"
RUN: Final = "stower.dev/run-seconds"
EXIT: Final = "stower.dev/exit-code"
SHELLS: Final = ("sh", "bash", "ash", "dash")
UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}  # of sleep
SECONDS_MAX: Final = 1e9
CODE_MAX: Final = 255
TEXT_MAX: Final = 200  # a longer script is none of those that are played
WANT: Final = 'want "after=DURATION exit=CODE", such as "after=5s exit=3"'


class Play(NamedTuple):
    """A container ends so long after its start, never without a time, and with this exit code."""

    after_ns: int | None
    code: int = 0


ENDLESS: Final = Play(None)
AT_ONCE: Final = Play(0)


def seconds_of(pod: Object, name: str) -> float | None:
    """A time that an annotation of the pod gives; None where it gives none."""
    value = _number((pod["metadata"].get("annotations") or {}).get(name, ""))
    return value if value is not None and 0 <= value < SECONDS_MAX else None


def plays_of(pod: Object) -> dict[str, Play]:
    """By name of the container. Init containers and sidecars are among them."""
    told = pod["metadata"].get("annotations") or {}
    runs_s = seconds_of(pod, RUN)
    whole = None
    if runs_s is not None:
        whole = Play(round(runs_s * SECOND_NS), int(seconds_of(pod, EXIT) or 0))
    found = {}
    for container in pod["spec"].get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        own = _told(told, container) or _of_command(container)
        found[container["name"]] = own or (ENDLESS if is_sidecar else AT_ONCE)
    for container in pod["spec"]["containers"]:
        own = _told(told, container) or whole or _of_command(container)
        found[container["name"]] = own or ENDLESS
    for container in pod["spec"].get("ephemeralContainers") or ():
        found[container["name"]] = _told(told, container) or _of_command(container) or ENDLESS
    return found


def faults_of(pod: Object) -> Iterable[str]:
    """What is wrong with the annotations that say how containers play."""
    spec = pod["spec"]
    names = {c["name"] for c in (*(spec.get("initContainers") or ()), *spec["containers"])}
    for key, text in (pod["metadata"].get("annotations") or {}).items():
        if not key.startswith(PLAY):
            continue
        name = key.removeprefix(PLAY)
        if name not in names:
            yield f"annotation {key}: the pod has no container {name!r}"
        elif parse_play(text) is None:
            yield f"annotation {key}: {text!r}: {WANT}"


def parse_play(text: str) -> Play | None:
    """What an annotation says; None where that is nothing."""
    after_ns: int | None = 0
    code = 0
    words = dict(word.partition("=")[::2] for word in text.split())
    if not words or not words.keys() <= {"after", "exit"}:
        return None
    if "after" in words:
        after_ns = duration_ns(words["after"])
        if after_ns is None or after_ns < 0:
            return None
    if "exit" in words:
        if not words["exit"].isdecimal() or int(words["exit"]) > CODE_MAX:
            return None
        code = int(words["exit"])
    return Play(after_ns, code)


def _told(annotations: Object, container: Object) -> Play | None:
    text = annotations.get(f"{PLAY}{container['name']}")
    return None if text is None else parse_play(text)


def _of_command(container: Object) -> Play | None:
    if not container.get("command") and not container.get("args"):
        return None
    return play_of_words([*(container.get("command") or ()), *(container.get("args") or ())])


def play_of_words(words: list[Any]) -> Play | None:
    """What a command does; None for every command that is not played."""
    is_script = False
    if len(words) == 3 and _base(words[0]) in SHELLS and _is_script_flag(words[1]):
        is_script = True
        try:
            words = shlex.split(words[2]) if len(words[2]) <= TEXT_MAX else []
        except ValueError:
            return None
    if not words:
        return None
    name, values = _base(words[0]), words[1:]
    if name in ("true", "false") and not values:
        return Play(0, int(name == "false"))
    if name == "sleep" and len(values) == 1:
        return _sleep(values[0])
    if name == "exit" and is_script and len(values) <= 1:
        code = values[0] if values else "0"
        return Play(0, int(code) % (CODE_MAX + 1)) if code.isdecimal() and len(code) < 10 else None
    return None


def _is_script_flag(text: str) -> bool:
    return text.startswith("-") and text.endswith("c") and text[1:].isalpha()


def _sleep(text: str) -> Play | None:
    if text in ("inf", "infinity"):
        return ENDLESS
    unit = UNITS.get(text[-1:], 0)
    value = _number(text[:-1] if unit else text)
    if value is None or value < 0:
        return None
    seconds = value * (unit or 1)
    return Play(round(seconds * SECOND_NS)) if seconds < SECONDS_MAX else ENDLESS


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
