"""What the scheduler asks for in all tests, held against the roles under deploy/.

Each server that tests start writes an audit log into a folder that all workers share; at the end
of the session everything that a scheduler asked for must be in a role. `--all-rights`, for runs of
the whole suite, wants the other direction too: what a role allows was asked for.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.make_roles import PARTS

VARIABLE: Final = "STOWER_TEST_AUDIT"
AGENT: Final = "stower-scheduler"


class Right(NamedTuple):
    """A verb on a resource (with its subresource) of a group."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group or 'core'}"


# By system:basic-user everybody may ask what they may do.
EVERYBODYS: Final = {Right("authorization.k8s.io", "selfsubjectaccessreviews", "create")}


def new_log() -> Path | None:
    """Where one more server writes its log; None outside of a session of tests."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    handle, path = tempfile.mkstemp(".ndjson", dir=folder)
    os.close(handle)
    return Path(path)


def used(folder: Path) -> set[Right]:
    """What schedulers asked these servers for."""
    found: set[Right] = set()
    for path in folder.glob("*.ndjson"):
        for line in path.read_bytes().splitlines():
            if AGENT.encode() not in line:
                continue
            event = json.loads(line)
            about = event.get("objectRef")
            if about is None or not event["userAgent"].startswith(AGENT):
                continue  # discovery, which everybody may read
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            found.add(Right(about.get("apiGroup", ""), resource, event["verb"]))
    return found


def granted(implied: bool) -> Iterator[Right]:
    """What the roles allow the scheduler. `implied`: with what the API server asks for by
    itself."""
    for part in PARTS:
        if part.of_maker:
            continue  # test_rights.py has it make groups with these rights alone
        for rule in part.rules:
            if rule.implied and not implied:
                continue
            for group in rule.group.split(" "):
                for resource in rule.resources.split():
                    for verb in rule.verbs.split():
                        yield Right(group, resource, verb)


def faults(folder: Path, whole: bool) -> list[str]:
    """What the roles lack, and what they allow for nothing."""
    asked = used(folder)
    lacking = sorted(asked - {*granted(True)} - EVERYBODYS)
    idle = sorted({*granted(False)} - asked) if whole else []
    return [
        *(f"no role under deploy/ allows the scheduler to {right}" for right in lacking),
        *(f"a role under deploy/ allows to {right}, and no test does" for right in idle),
    ]
