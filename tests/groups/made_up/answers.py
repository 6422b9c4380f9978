"""What an engine does with a made-up problem, and what the oracle says about it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from stower.assembly import build_engine
from stower.framework.events import Listed
from stower.model.kinds import KIND_BY_NAME
from stower.model.raw import decode
from tests.device_builders import Agreeing
from tests.groups.made_up.instances import Instance, documents

PLACED, IMPOSSIBLE, NOT_FOUND = "placed", "impossible", "not found yet"
WAITS_S: Final = (1, 3, 10, 30, 120)  # until later attempts have come
ROOT: Final = Path(__file__).parents[3]


class Result(NamedTuple):
    """One of the three answers; where the pods are; what one of them is told; and the CPU time that
    the search took, in seconds."""

    answer: str
    bound: dict[str, str]
    message: str
    seconds: float


def viewed(data: dict[str, Any]) -> Any:
    """The typed view of an object."""
    kind = KIND_BY_NAME[data["apiVersion"], data["kind"]]
    return decode(json.dumps(data).encode(), kind.view)


def result_of(instance: Instance) -> Result:
    """What becomes of the tree."""
    objects = [viewed(data) for data in documents(instance)]
    api = Agreeing(build_engine())
    api.objects = {obj.metadata.uid: obj for obj in objects}
    before = time.process_time()
    api.tell(Listed(tuple(objects)))
    for seconds in WAITS_S:
        if api.bound or "not found yet" not in str(api.messages):
            break
        api.wait(seconds)
    taken = time.process_time() - before
    assert not api.engine.errors.counts, api.engine.notes()
    message = next(iter(api.messages.values()), "")
    answer = PLACED if api.bound else NOT_FOUND if "not found yet" in message else IMPOSSIBLE
    return Result(answer, api.bound, message, taken)


def truths(instances: Iterable[Instance]) -> list[bool | None]:
    """What the oracle says, of each whether there is a placement; None where it does not know."""
    lines = b"\n".join(msgspec.json.encode(instance) for instance in instances)
    oracle = [sys.executable, "-m", "tests.groups.made_up.oracle"]
    done = subprocess.run(oracle, input=lines, capture_output=True, check=True, cwd=ROOT)
    return [{"true": True, "false": False}.get(line) for line in done.stdout.decode().split()]
