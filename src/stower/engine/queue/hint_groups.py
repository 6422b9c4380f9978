"""Unschedulable entities in groups with equal hint keys, and which groups an event may help.

Plugins are asked once per group whether an event helps, however many entities it has. Must not know
the other parts of the queue.
"""

from collections.abc import Callable, Iterable

from stower.engine.queue.entities import (
    HintKey,
    QueuedEntity,
    QueuedPod,
    concerned_plugins,
    is_help_on_one_row,
    may_help,
)
from stower.framework.cluster_events import RESOURCE_CLAIM_CHANGES, ClusterEvent
from stower.framework.profile import Profile
from stower.state.pod_entry import PodEntry

# Returns the plugins that refuse a row for a pod; none where a change there may help.
CheckRow = Callable[[Profile, PodEntry, int], frozenset[str]]
# Reports an entity whose queueing hint raised an error.
HintFailed = Callable[[QueuedEntity, Exception], None]


class HintGroups:
    """All unschedulable entities, in groups by hint key."""

    def __init__(
        self, hint_failed: HintFailed | None = None, check_row: CheckRow | None = None
    ) -> None:
        """See SchedulingQueue."""
        self._hint_failed = hint_failed
        self._check_row = check_row
        self.by_key: dict[HintKey, dict[str, QueuedEntity]] = {}
        # Groups by the claims of their pods, and those that any claim's change may help.
        self._by_claim: dict[str, dict[HintKey, None]] = {}
        self._by_any_claim: dict[HintKey, None] = {}
        self._claims_of: dict[HintKey, list[str]] = {}
        self._changes: dict[tuple[str, frozenset[str]], int] = {}

    def add(self, entity: QueuedEntity) -> None:
        """Adds an unschedulable entity to the group of its hint key."""
        key = entity.hint_key = entity.make_hint_key()
        group = self.by_key.get(key)
        if group is None:
            self._index(entity, key)
            group = self.by_key[key] = {}
        group[entity.uid] = entity

    def remove(self, entity: QueuedEntity) -> None:
        """Removes an entity from its group, where it is in one."""
        key = entity.hint_key
        if key is not None:
            group = self.by_key[key]
            del group[entity.uid]
            if not group:
                del self.by_key[key]
                self._unindex(key)
            entity.hint_key = None

    def find_helped(self, event: ClusterEvent, claim_key: str) -> list[list[QueuedEntity]]:
        """Returns the groups that the event may help, as lists. `claim_key`: the claim that the
        event is about, where it can help only pods that use it."""
        change = event.change.value
        found = []
        for key in self._groups_for(claim_key):
            group = self.by_key.get(key)  # None: its pods have other keys by now
            if group is not None and self._changes_for(key) & change:
                first = next(iter(group.values()))
                try:
                    if first.is_helped_by(event):
                        found.append(self._pods_near(group.values(), event))
                except Exception as error:
                    # As upstream where a hint fails: the event may help.
                    _report(self._hint_failed, first, error)
                    found.append(list(group.values()))
        return found

    def _pods_near(self, group: Iterable[QueuedEntity], event: ClusterEvent) -> list[QueuedEntity]:
        """Returns those that the event may help, of entities that the hints say it may help. What
        refuses the others on the row of the event is kept, as after an attempt: from now on they
        wait for that as well."""
        if event.row < 0 or self._check_row is None:
            return list(group)
        checked, found, refused = dict[object, frozenset[str]](), [], []
        for queued in group:
            if isinstance(queued, QueuedPod) and is_help_on_one_row(queued, event):
                pod, shape = queued.pod, queued.entry.shape
                # Claims for extended resources, and annotations, tell pods of one class apart.
                is_one = shape.extended_requests or pod.metadata.annotations
                key = (
                    *queued.class_key, pod.priority, pod.spec.preemption_policy,
                    queued.uid if is_one else "",
                )  # fmt: skip
                if key not in checked:
                    checked[key] = self._check_row(queued.profile, queued.entry, event.row)
                if refusing := checked[key]:
                    refused.append((queued, refusing))
                    continue
            found.append(queued)
        for queued, refusing in refused:
            if not refusing <= queued.refused_by:
                self.remove(queued)
                queued.refused_by |= refusing
                self.add(queued)
        return found

    def _groups_for(self, claim_key: str) -> list[HintKey]:
        if claim_key:
            return [*{**self._by_claim.get(claim_key, {}), **self._by_any_claim}]
        return list(self.by_key)

    def _changes_for(self, group: HintKey) -> int:
        """Returns the changes that one of the refusing plugins registered for, as a bit set."""
        key = (group.scheduler_name, group.refused_by)
        known = self._changes.get(key)
        if known is None:
            entity = next(iter(self.by_key[group].values()))
            found = [entity.profile.plugins.get(name) for name in sorted(group.refused_by)]
            known = 0 if found else -1
            for plugin in found:
                known |= plugin.events_to_register.value if plugin is not None else -1
            self._changes[key] = known
        return known

    def _index(self, entity: QueuedEntity, group: HintKey) -> None:
        """Indexes a new group by the claims that all its pods share."""
        plugins = [entity.profile.plugins.get(name) for name in sorted(group.refused_by)]
        of_claims = [
            p for p in plugins if p is None or p.events_to_register & RESOURCE_CLAIM_CHANGES
        ]
        keys = entity.claim_keys
        if keys is None or not all(p is not None and p.is_own_claims_only for p in of_claims):
            self._by_any_claim[group] = None
        elif of_claims:
            self._claims_of[group] = keys
            for key in keys:
                self._by_claim.setdefault(key, {})[group] = None

    def _unindex(self, group: HintKey) -> None:
        self._by_any_claim.pop(group, None)
        for key in dict.fromkeys(self._claims_of.pop(group, ())):
            groups = self._by_claim[key]
            del groups[group]
            if not groups:
                del self._by_claim[key]


def is_helped(
    entity: QueuedEntity,
    event: ClusterEvent,
    hint_failed: HintFailed | None,
    plugins: frozenset[str] | None = None,
) -> bool:
    """Returns whether the event may help the entity: by the hints of these plugins, or of those
    that refused it. A hint that raises counts as "may help"."""
    try:
        if plugins is not None and isinstance(entity, QueuedPod):
            concerned = concerned_plugins(entity.profile, plugins, event)
            return may_help(entity, concerned, event)
        return entity.is_helped_by(event)
    except Exception as error:
        _report(hint_failed, entity, error)
        return True


def _report(hint_failed: HintFailed | None, entity: QueuedEntity, error: Exception) -> None:
    if hint_failed is None:
        raise error
    hint_failed(entity, error)
