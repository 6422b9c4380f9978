"""Applies the steps of an explanation's change to objects as the API has them."""

import copy
import re
from collections.abc import Iterable
from typing import Any, Final

from stower.framework.explanation import ChangeCode, ChangeStep

Object = dict[str, Any]
# A name, a key in brackets, or an index.
PART: Final = re.compile(r"\.?(\w+)|\[([^\]]+)\]")


def key_of(obj: Object) -> tuple[str, str]:
    """The kind, and namespace/name or the name alone."""
    meta = obj["metadata"]
    namespace = meta.get("namespace") or ("default" if obj["kind"] == "Pod" else "")
    return obj["kind"], f"{namespace}/{meta['name']}" if namespace else meta["name"]


def apply_steps(objects: Iterable[Object], steps: Iterable[ChangeStep]) -> list[Object]:
    """The objects after the steps; these are complete, so nothing else is needed."""
    by_key = {key_of(obj): copy.deepcopy(obj) for obj in objects}
    for step in steps:
        key = step.kind, step.object
        if step.code is ChangeCode.CREATE_OBJECT:
            by_key[key] = copy.deepcopy(step.after)
        elif step.code is ChangeCode.REMOVE_POD:
            uid = by_key.pop(key)["metadata"].get("uid")
            for obj in by_key.values():
                if obj["kind"] == "ResourceClaim":
                    release(obj, uid)
        else:
            set_field(by_key[key], step.field, step.after)
    return [*by_key.values()]


def release(claim: Object, uid: str | None) -> None:
    """What the controller of claims does when a pod is gone."""
    reserved = (claim.get("status") or {}).get("reservedFor") or []
    left = [user for user in reserved if user["uid"] != uid]
    if reserved and not left:
        claim["status"] = {}
    elif left != reserved:
        claim["status"]["reservedFor"] = left


def set_field(obj: Object, field: str, value: Any) -> None:
    """Sets the field of a path; None removes it."""
    *parents, last = [name or key for name, key in PART.findall(field)]
    at: Any = obj
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    if isinstance(at, list):
        at[int(last)] = value
    elif value is None:
        at.pop(last, None)
    else:
        at[last] = copy.deepcopy(value)
