"""Keeps the templates that a StatefulSet or DaemonSet has had as ControllerRevisions.

A revision holds a strategic merge patch that brings the template back; equal templates have one
revision, whose number grows when it is wanted again.

Source: pkg/controller/history, and getPatch of statefulset and daemon.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.objects import (
    Object,
    ObjectStore,
    age,
    is_ending,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import LETTERS, REVISION_HASH, reference_to
from stower.controllers.runtime import ReconcileResult

KIND: Final = "controllerrevisions"
PREFIX_LENGTH: Final = 223  # of a name, so that the hash has room (ControllerRevisionName)
COLLISIONS_MAX: Final = 1_000  # names that are tried at one turn


def number_of(revision: Object) -> int:
    """Its number: the greatest is the newest."""
    return int(revision.get("revision") or 0)


def snapshot(owner: Object) -> Object:
    """The patch that brings the owner's template back. Clients compare its bytes with their own,
    whose keys are in order."""
    return {"spec": {"template": _sorted({**owner["spec"]["template"], "$patch": "replace"})}}


def template_of(revision: Object) -> Object:
    """The template that a revision holds."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def hash_of_data(data: Object, collisions: int) -> str:
    """Names data: FNV-1 of its JSON, as Go writes it, and of the collisions before."""
    text = msgspec.json.encode(data, order="sorted").decode()
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    value = 0x811C9DC5
    for byte in f"{text}{collisions}".encode():
        value = (value * 0x01000193 & 0xFFFFFFFF) ^ byte
    return "".join(LETTERS[ord(digit) % len(LETTERS)] for digit in str(value))


class RevisionHistory:
    """The revisions of one kind of owners (its plural)."""

    def __init__(self, owners: str) -> None:
        self._owners = owners
        self.adoption = ControllerRefManager(owners, KIND)

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """Owners that would take a revision that nobody owns."""
        return self.adoption.keys(seen, kind, old, obj)

    def list(self, seen: ObjectStore, owner: Object) -> list[Object]:
        """The owner's revisions that its selector takes, oldest first."""
        found = [r for r in seen.list_owned(uid_of(owner), KIND) if self.adoption.matches(owner, r)]
        return sorted(found, key=_rank)

    def create(
        self, seen: ObjectStore, owner: Object, number: int, todo: ReconcileResult
    ) -> Object | None:
        """Make a revision of the owner's template, under a name that is free: how many names other
        data had goes into the owner's status. Returns a revision of that data that is there
        already, or None once it is to be written."""
        data, namespace = snapshot(owner), namespace_of(owner)
        collisions = int((owner.get("status") or {}).get("collisionCount") or 0)
        for tried in range(collisions, collisions + COLLISIONS_MAX):
            hashed = hash_of_data(data, tried)
            name = f"{name_of(owner)[:PREFIX_LENGTH]}-{hashed}"
            known = seen.get(KIND, f"{namespace}/{name}")
            if known is None:
                break
            if known.get("data") == data:
                return known
        labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        meta = {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, REVISION_HASH: hashed},
            "annotations": owner["metadata"].get("annotations") or {},
            "ownerReferences": [reference_to(owner, self._owners)],
        }
        todo.create(KIND, {"metadata": meta, "data": data, "revision": number})
        if tried > collisions:
            todo.patch(self._owners, owner, {"status": {"collisionCount": tried}}, "status")
        return None

    def renumber(self, revision: Object, number: int, todo: ReconcileResult) -> None:
        """Make a revision that is there the newest."""
        todo.patch(KIND, revision, {"revision": number})

    def truncate(
        self, revisions: Iterable[Object], live: set[str], limit: int, todo: ReconcileResult
    ) -> None:
        """Delete the oldest beyond the limit, which is none where it is negative.

        `live`: names that stay and do not count.
        """
        if limit < 0:
            return
        old = [r for r in revisions if name_of(r) not in live and not is_ending(r)]
        for revision in old[: max(0, len(old) - limit)]:
            todo.delete(KIND, revision)


def _rank(revision: Object) -> tuple[int, str, str]:
    return number_of(revision), *age(revision)


def _sorted(value: Any) -> Any:
    """The value with its keys in order, and without nulls."""
    if isinstance(value, dict):
        return {k: _sorted(v) for k, v in sorted(value.items()) if v is not None}
    if isinstance(value, list):
        return [_sorted(v) for v in value]
    return value
