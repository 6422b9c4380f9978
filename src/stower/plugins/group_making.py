"""GroupMaking: holds pods of gangs until their pod group is made and they are linked to it.

Not part of the default profile: `stower run --make-groups` enables it, and makes the groups. The
pods' templates need no scheduling gate.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.args import Args, convert_args, unsupported
from stower.framework.cluster_events import Change
from stower.framework.plugin import Features, Plugin
from stower.framework.reasons import Rejection
from stower.model.gang_kinds import KINDS, gang_kind
from stower.model.kinds import Pod

WAITS: Final = "waiting for its pod group to be made"


class GroupMakingArgs(Args, frozen=True):
    """Arguments of the plugin: `kinds`, of which pods are held; none: of all."""

    kinds: tuple[str, ...] = ()


class GroupMaking(Plugin):
    """Gates pods that get a group, and have none yet."""

    name = "GroupMaking"
    events_to_register = Change.OWN_LABELS

    def __init__(self, kinds: tuple[str, ...] = ()) -> None:
        self._kinds = frozenset(kinds or KINDS)

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "GroupMaking":
        """Reads GroupMakingArgs: kinds."""
        parsed = convert_args(args, GroupMakingArgs, path)
        for i, kind in enumerate(parsed.kinds):
            if kind not in KINDS:
                raise unsupported(f"{path}.kinds[{i}]", kind, sorted(KINDS))
        return cls(parsed.kinds)

    def pre_enqueue(self, pod: Pod) -> Rejection | None:
        """Rejects a pod of these kinds that is in no group."""
        if pod.group_name:
            return None
        meta = pod.metadata
        owner = next((o.kind for o in meta.owner_references or () if o.controller), "")
        if gang_kind(meta.labels or {}, meta.annotations or {}, owner) not in self._kinds:
            return None
        return Rejection((WAITS,))
