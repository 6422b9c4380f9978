"""Gives back allocations of waiting pods that another scheduler's allocation was before.

A claim is given back in two steps. Each pod for which it is reserved is touched: it gets a
condition that names this version of the claim, so that a binding which a former process has sent is
refused, and so that nobody binds the pod after a restart. Then the claim is deallocated, in the
version that was looked at. What to do follows from the objects alone. Claims of bound pods, of
other schedulers' pods, and of drivers that allocate them are left alone. The protocol is explored
in tests/device_race_model.py.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from stower.devices.negotiation.claims import driver_of
from stower.devices.overcommits import GIVEN_BACK, Overcommits, mark_of
from stower.engine.context import Context
from stower.engine.due_work import DueWork
from stower.engine.outbox import UNTRACKED
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.writes import patch_of
from stower.model.kinds import Pod, ResourceClaim, ResourceSlice
from stower.model.kinds.pod import PodCondition
from stower.model.kinds.pod_group import API_GROUP
from stower.model.times import SECOND_NS
from stower.state.devices import claim_keys, extended_claim_owner
from stower.state.pod_entry import PodEntry

# What was written and does not show is written again after this time.
NEWS_NS: Final = 3 * SECOND_NS
DEALLOCATED: Final = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
REASON: Final = "DeviceOvercommitted"


class OvercommittedClaims:
    """The claims that may have to be given back. `open`: by key, when to look again (0: now)."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._context = context
        self._state = context.state
        self._queue = queue
        self.open: dict[str, int] = {}
        # What was written for each open claim: by the key or uid of the object, on which version,
        # and until when the effect is waited for.
        self._written: dict[str, dict[str, tuple[str, int]]] = {}
        # For each open claim: the marks with which its pods were touched, as answers have said.
        self._touched: dict[str, dict[str, str]] = {}
        self.given_back_count = 0

    # What happens

    def on_claim(self, claim: ResourceClaim, is_deleted: bool) -> None:
        """Takes a claim that has changed: what is seen last is what may not hold."""
        meta = claim.metadata
        overcommits = self._state.devices.extension(Overcommits)
        overcommits.forget_mark(meta.key, "" if is_deleted else meta.resource_version)
        if meta.key in self.open:
            self.open[meta.key] = 0
        if not is_deleted:
            self._open_if_overcommitted(claim, overcommits)

    def check_all(self) -> None:
        """Takes all claims, whose order has become known."""
        overcommits = self._state.devices.extension(Overcommits)
        for marks in self._touched.values():  # which pods may not show yet
            for mark in marks.values():
                overcommits.observe_mark(mark)
        for claim in self._state.devices.api_claims():
            self._open_if_overcommitted(claim, overcommits)

    def on_slice(self, slice_: ResourceSlice) -> None:
        """Takes a slice that has changed: there may be less of a device."""
        devices, spec = self._state.devices, slice_.spec
        overcommits = devices.extension(Overcommits)
        for key in [*devices.claims_of_pool((spec.driver, spec.pool.name))]:
            claim = devices.api_claim(key)
            if claim is not None:
                self._open_if_overcommitted(claim, overcommits)

    def _open_if_overcommitted(self, claim: ResourceClaim, overcommits: Overcommits) -> None:
        if overcommits.has_overcommitted(claim):
            self.open[claim.metadata.key] = 0

    def on_pod(self, pod: Pod) -> None:
        """Takes a waiting pod with claims that was added or changed."""
        condition = pod.condition(GIVEN_BACK)
        if condition is not None:
            self._state.devices.extension(Overcommits).observe_mark(condition.message)
            self.open[condition.message.partition(" ")[0]] = 0
        for key in claim_keys(pod):
            claim = self._state.devices.api_claim(key)
            if key in self.open:
                self.open[key] = 0
            elif claim is not None and claim.status.allocation is not None:
                self._open_if_overcommitted(claim, self._state.devices.extension(Overcommits))

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which to look again at a claim."""
        return min(self.open.values(), default=None)

    def due_work(self) -> Iterator[DueWork]:
        """Looks at the claims that are due."""
        now_ns = self._state.now_ns
        for key in [key for key, due_ns in self.open.items() if due_ns <= now_ns]:
            yield DueWork(key, partial(self._look, key), partial(self.open.__setitem__, key))

    # What to do

    def _look(self, key: str) -> None:
        devices = self._state.devices
        claim, overcommits = devices.api_claim(key), devices.extension(Overcommits)
        users = self._waiting_users(claim) if claim is not None else None
        if claim is None or users is None or not overcommits.reason(claim):
            del self.open[key]
            self._written.pop(key, None)
            self._touched.pop(key, None)
            return
        self.open[key] = self._state.now_ns + NEWS_NS
        if any(entry.is_assumed for entry in users):
            return  # their reservations will fail
        untouched = [entry for entry in users if not self._is_touched(entry, claim)]
        for entry in untouched:
            self._touch(entry, claim)
        if not untouched:
            self._give_back(claim)

    def _waiting_users(self, claim: ResourceClaim) -> list[PodEntry] | None:
        """Returns the pods for which the claim is reserved; None if it is not ours to give back."""
        state, key = self._state, claim.metadata.key
        if claim.status.allocation is None or extended_claim_owner(claim):
            return None
        if driver_of(claim, state.negotiations.classes) or state.devices.has_bound_users(key):
            return None
        users = []
        for consumer in claim.status.reserved_for or ():
            if consumer.api_group == API_GROUP:
                members = [
                    queued.entry
                    for queued in self._queue.pods()
                    if queued.entry.pod.group_name == consumer.name
                    and key in claim_keys(queued.entry.pod)
                ]
                if not members:
                    return None
                users += members
                continue
            queued = self._queue.get(consumer.uid)
            if queued is None:
                return None
            users.append(queued.entry)
        return users

    def _touch(self, entry: PodEntry, claim: ResourceClaim) -> None:
        """Touches a pod for the claim, once it is no longer touched for another one."""
        version, uid = entry.pod.metadata.resource_version, entry.uid
        if entry.pending_write_count or self._has_prior_mark(entry, claim):
            return
        if not self._may_write(claim.metadata.key, uid, version):
            return
        message = mark_of(claim)

        def on_done() -> None:
            self._touched.setdefault(claim.metadata.key, {})[uid] = message
            self._state.devices.extension(Overcommits).observe_mark(message)
            self.open[claim.metadata.key] = 0

        condition = PodCondition(GIVEN_BACK, "True", REASON, message)
        self._context.reporter.touch(entry, condition, on_done)

    def _has_prior_mark(self, entry: PodEntry, claim: ResourceClaim) -> bool:
        """Returns whether the pod is touched for another claim that is given back first: all its
        pods are touched, so that its deallocation may be on its way, or its key comes first."""
        condition = entry.pod.condition(GIVEN_BACK)
        key = condition.message.partition(" ")[0] if condition is not None else ""
        other = self._state.devices.api_claim(key) if key != claim.metadata.key else None
        if other is None or condition is None or mark_of(other) != condition.message:
            return False
        users = self._waiting_users(other)
        if users is None:
            return False
        return key < claim.metadata.key or all(self._is_touched(user, other) for user in users)

    def _give_back(self, claim: ResourceClaim) -> None:
        key, version = claim.metadata.key, claim.metadata.resource_version
        if not self._may_write(key, key, version):
            return
        write = patch_of(claim, DEALLOCATED, "status")
        outbox = self._context.outbox
        outbox.send(msgspec.structs.replace(write, id=outbox.next_id()), UNTRACKED)
        self.given_back_count += 1

    def _may_write(self, key: str, what: str, version: str) -> bool:
        """Returns whether to write on this version of an object: nothing was written on it before,
        or the effect does not come."""
        written, now_ns = self._written.setdefault(key, {}), self._state.now_ns
        written_on, until_ns = written.get(what, ("", 0))
        if written_on == version and now_ns < until_ns:
            return False
        written[what] = (version, now_ns + NEWS_NS)
        return True

    def _is_touched(self, entry: PodEntry, claim: ResourceClaim) -> bool:
        """Returns whether the pod was touched for this version of the claim, and had no node."""
        condition, mark = entry.pod.condition(GIVEN_BACK), mark_of(claim)
        is_shown = condition is not None and condition.message == mark
        return is_shown or self._touched.get(claim.metadata.key, {}).get(entry.uid) == mark
