"""The controller: a driver on the API's objects, sans I/O. Events go in, writes and calls of the
driver come out, each answered by its id.

One thing at a time for each claim and each pod; what comes next is decided on what was seen to come
of the last (driver/rules.py). Nothing is remembered but the ledger.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from stower.devices.negotiation.claims import driver_of, is_leaving
from stower.driver.ledger import Entry
from stower.driver.messages import (
    Adopted,
    Adopting,
    Event,
    Examination,
    Examined,
    Freed,
    Freeing,
    Output,
    Taken,
    Taking,
)
from stower.driver.objects import Key, Objects
from stower.driver.rules import (
    NOTHING,
    Action,
    Free,
    Rules,
    Seen,
    Take,
    Write,
    abandoned,
    adopted,
    allocated,
    claim_actions,
    is_allocated_by,
    pod_actions,
)
from stower.framework.events import Listed, Observed, WatchType, WriteFailed, WriteOk
from stower.framework.retries import CONFLICT
from stower.framework.writes import CreateEvent, PatchObject, no_op_patch
from stower.model.kinds import ApiObject, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.state.devices import claim_keys, is_same_or_newer

VIEWS: Final = (Pod, ResourceClaim, ResourceClass, PodScheduling)
REFRESH_NS: Final = 30 * SECOND_NS  # between looks at what could be allocated where
ECHO_NS: Final = 30 * SECOND_NS
NEWS_NS: Final = 3 * SECOND_NS
PAUSE_NS: Final = SECOND_NS
PAUSE_NS_MAX: Final = 60 * SECOND_NS
NOTE_BYTES_MAX: Final = 1024  # of an Event
COALESCED_NS: Final = SECOND_NS  # after a change of the ledger, before all is asked anew
REFRESH: Final[tuple[type, str]] = (object, "refresh")
ADOPT: Final[tuple[type, str]] = (object, "adopt")
# What another try may cure, or what is gone.
NOT_FOR_GOOD: Final = (404, 429)


class _Work:
    """Something under way for some objects: until the end of it, nothing else is done for them."""

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        self.take: Take | None = None  # what is to be taken, once it is seen that it is asked for
        self.open = 0  # outputs that are not answered
        self.failed = False


class _Known(NamedTuple):
    """What the driver has said of nodes. `is_old`: it is to be asked again, and this will do until
    it has answered."""

    what: object
    nodes: frozenset[str]
    refused: frozenset[str]
    serial: int
    is_old: bool = False


class Counts(msgspec.Struct):
    """What was done so far."""

    answers: int = 0
    allocations: int = 0
    refusals: int = 0
    deallocations: int = 0
    conflicts: int = 0
    errors: int = 0


class Controller:
    """One driver."""

    def __init__(
        self, driver: str, entries: Mapping[str, Entry], rules: Rules | None = None
    ) -> None:
        """`entries`: of its ledger, kept up to date by whoever carries out what is said here."""
        self.driver = driver
        self.counts = Counts()
        self.seen: Seen = (objects := Objects())
        self._objects = objects
        self._entries = entries
        self._uids: dict[str, dict[str, None]] = {}  # by claim's key: those that may have entries
        for entry in entries.values():
            self._noted(entry)
        self._rules = rules or Rules()
        self._now_ns = 0
        self._next_id = 1
        self._is_listed = False
        self._out: list[Output] = []
        self._due: dict[Key, None] = {}  # pods and claims to look at
        # By id of what is not answered; with the object and its version that was relied on.
        self._work: dict[int, tuple[_Work, Key | None, str]] = {}
        self._busy: dict[Key, _Work] = {}
        self._awaited: dict[Key, tuple[str, int]] = {}  # versions that have to be seen, until when
        self._timers: list[tuple[int, int, Key]] = []
        self._tries: dict[Key, int] = {}
        self._paused: dict[Key, int] = {}  # until when: what was done last has failed
        self._adopting: Adopting | None = None
        self._turn = 0
        # What the driver said of nodes, by pod: of all that it is asked about, or of the selected.
        self._examined: dict[tuple[str, bool], _Known] = {}
        self._asking: dict[tuple[str, bool], int] = {}
        self._asked: dict[int, tuple[_Known, tuple[str, bool], tuple[ResourceClaim, ...]]] = {}
        self._serial = 0  # grows with the ledger's changes
        self._valid = 0  # since when what was said can be used
        self._refresh_ns = 1 << 62  # when all is asked anew
        self._failed: dict[str, dict[str, int]] = {}  # by pod's uid: nodes, until when

    @property
    def next_wake_ns(self) -> int | None:
        """When to send a Tick if nothing happens before."""
        return self._timers[0][0] if self._timers else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._work or self._asked or self._due or self._adopting)

    def step(self, event: Event, now_ns: int) -> list[Output]:
        """Take in one event; what is to be done now."""
        self._now_ns = max(self._now_ns, now_ns)
        self._out = []
        if isinstance(event, Observed):
            self._observed(event.object, event.type is WatchType.DELETED)
        elif isinstance(event, Listed):
            self._listed(event)
        elif isinstance(event, Examined):
            self._was_examined(event)
        elif isinstance(event, Taken):
            self._was_taken(event)
        elif isinstance(event, Freed):
            self._was_freed(event)
        elif isinstance(event, Adopted):
            self._were_adopted(event)
        elif isinstance(event, WriteOk | WriteFailed):
            self._answered(event)
        self._wake()
        self._look()
        return self._out

    # What is seen

    def _listed(self, event: Listed) -> None:
        keys = {(type(obj), obj.metadata.key) for obj in event.objects}
        for key, obj in [*self._objects.by_key.items()]:
            if key not in keys:
                self._observed(obj, True)
        for obj in event.objects:
            if isinstance(obj, VIEWS):
                self._observed(obj, False)
        if not self._is_listed and self._adopting is None:
            self._adopt()
        for entry in self._entries.values():
            self._due[ResourceClaim, f"{entry.namespace}/{entry.name}"] = None

    def _adopt(self) -> None:
        """Claims that were allocated by a driver of this name, of which the ledger knows nothing:
        it was lost, or the last process ended before it could clear them. Devices of theirs are
        nobody else's, and are given back as any others, before anything is taken."""
        found = [
            adopted(claim)
            for claim in self._objects.claims()
            if claim.metadata.uid not in self._entries
            and is_allocated_by(claim, self.driver, self.seen.classes)
        ]
        if found:
            self._next_id += 1
            self._adopting = Adopting(self._next_id - 1, tuple(found))
            self._out.append(self._adopting)
        else:
            self._is_listed = True
            self._changed()

    def _were_adopted(self, event: Adopted) -> None:
        adopting, self._adopting = self._adopting, None
        if event.error:
            self.counts.errors += 1
            self._again(ADOPT, PAUSE_NS)
            return
        for entry in adopting.entries if adopting is not None else ():
            self._noted(entry)
        self._is_listed = True
        self._changed()
        self._all_due()

    def _observed(self, obj: ApiObject, gone: bool) -> None:
        key = (type(obj), obj.metadata.key)
        if isinstance(obj, Pod) and not obj.spec.resource_claims:
            return
        if gone:
            self._objects.drop(obj)
            self._awaited.pop(key, None)
        else:
            self._objects.put(obj)
            version, _ = self._awaited.get(key, ("", 0))
            if version and is_same_or_newer(obj.metadata.resource_version, version):
                del self._awaited[key]
        if isinstance(obj, ResourceClaim):
            self._due[key] = None
            for pod_key in self._objects.pods_of(obj.metadata.key):
                self._due[Pod, pod_key] = None
        elif isinstance(obj, Pod | PodScheduling):
            pod_key = obj.metadata.key
            self._due[Pod, pod_key] = None
            if isinstance(obj, Pod) and (gone or obj.spec.node_name):
                self._examined.pop((pod_key, True), None)
                self._examined.pop((pod_key, False), None)
            pod = obj if isinstance(obj, Pod) else self._objects.pod(pod_key)
            for claim_key in claim_keys(pod) if pod is not None else ():
                self._due[ResourceClaim, claim_key] = None
        elif isinstance(obj, ResourceClass):
            self._all_due()

    def _all_due(self) -> None:
        for key in self._objects.by_key:
            if key[0] in (Pod, ResourceClaim):
                self._due[key] = None

    # What is to be done

    def _look(self) -> None:
        if not self._is_listed:
            return
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            if key in self._busy or self._is_awaited(key) or self._is_paused(key):
                continue  # it is looked at again when that is over
            view, name = key
            if view is ResourceClaim:
                actions = self._for_claim(name)
            else:
                actions = pod_actions(
                    self.seen,
                    self.driver,
                    name,
                    self._entries,
                    self._examine,
                    self._rules,
                    self._failed_for(name),
                )
            self._begin(key, actions)

    def _for_claim(self, name: str) -> list[Action]:
        found = claim_actions(self.seen, self.driver, name, self._entries, self._rules)
        lost: list[Action] = [
            free for free in abandoned(self.seen, self._entries_of(name)) if free not in found
        ]
        return lost or found

    def _entries_of(self, name: str) -> dict[str, Entry]:
        """Of claims that have or had the name."""
        found = {
            uid: self._entries[uid] for uid in self._uids.pop(name, ()) if uid in self._entries
        }
        for entry in found.values():
            self._noted(entry)
        return found

    def _noted(self, entry: Entry) -> None:
        self._uids.setdefault(f"{entry.namespace}/{entry.name}", {})[entry.uid] = None

    def _is_awaited(self, key: Key) -> bool:
        """Whether a change is still to be seen: of the object, or of what is said about the pod."""
        if key in self._awaited:
            return True
        return key[0] is Pod and (PodScheduling, key[1]) in self._awaited

    def _is_paused(self, key: Key) -> bool:
        """Whether what was done last has failed a moment ago."""
        until_ns = self._paused.get(key)
        if until_ns is not None and until_ns <= self._now_ns:
            del self._paused[key]
        return key in self._paused

    def _failed_once_more(self, key: Key) -> None:
        """Nothing is done about it for a while, which grows."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        pause_ns = min(PAUSE_NS << min(tries - 1, 10), PAUSE_NS_MAX)
        self._paused[key] = self._now_ns + pause_ns
        self._again(key, pause_ns)

    def _begin(self, key: Key, actions: Sequence[Action]) -> None:
        if not actions:
            return
        keys = [key]
        for action in actions:
            if isinstance(action, Write):
                patch = action.patch
                keys.append((patch.view, f"{patch.namespace}/{patch.name}"))
            elif isinstance(action, Take):
                keys += [(ResourceClaim, claim.metadata.key) for claim in action.claims]
        if any(one in self._busy or self._is_awaited(one) for one in keys):
            self._again(key, NEWS_NS)  # whoever has it will be done by then
            return
        work = _Work(tuple(dict.fromkeys(keys)))
        for one in work.keys:
            self._busy[one] = work
        for action in actions:
            if isinstance(action, Write):
                self.counts.answers += action.patch.view is PodScheduling
                self._write(work, action.patch)
            elif isinstance(action, Free):
                self._do(work, Freeing(self._id(work), action.entry))
            else:
                work.take = action
                if action.on is not None:
                    self._write(work, no_op_patch(action.on, "status"))
                else:
                    self._take(work, action)

    def _take(self, work: _Work, take: Take) -> None:
        """All of them in one transaction."""
        known = [self._entries.get(claim.metadata.uid) for claim in take.claims]
        if all(entry is not None and entry.allocation is not None for entry in known):
            self._write_allocations(work, take)
            return
        entries = tuple(
            Entry(claim.metadata.uid, claim.metadata.namespace, claim.metadata.name, take.node)
            for claim in take.claims
        )
        for entry in entries:
            self._noted(entry)
        self._do(work, Taking(self._id(work), take.claims, take.node, entries))

    def _write_allocations(self, work: _Work, take: Take) -> None:
        work.take = None
        for claim in take.claims:
            entry = self._entries[claim.metadata.uid]
            self.counts.allocations += 1
            self._write(work, allocated(claim, entry, take.pod))

    def _write(self, work: _Work, patch: PatchObject) -> None:
        key = (patch.view, f"{patch.namespace}/{patch.name}")
        id = self._id(work, key, patch.resource_version)
        self._do(work, msgspec.structs.replace(patch, id=id))

    def _do(self, work: _Work, output: Output) -> None:
        work.open += 1
        self._out.append(output)

    def _id(self, work: _Work, key: Key | None = None, version: str = "") -> int:
        id = self._next_id
        self._next_id = id + 1
        self._work[id] = (work, key, version)
        return id

    # What came of it

    def _answered(self, event: WriteOk | WriteFailed) -> None:
        work, key, relied_on = self._work.pop(event.id, (None, None, ""))
        if work is None or key is None:
            return
        work.open -= 1
        if isinstance(event, WriteFailed) and event.code == CONFLICT:
            # Something newer is there: it is here already, or on its way.
            self.counts.conflicts += 1
            work.take = None
            if relied_on.isdigit():
                self._await(key, str(int(relied_on) + 1), NEWS_NS)
        elif isinstance(event, WriteFailed):
            work.failed = True
            work.take = None
            self.counts.errors += 1
            self._tell_refusal(work, event)
        elif work.take is not None:
            self._take(work, work.take)  # it was seen that the selection stands
        elif event.resource_version:
            self._await(key, event.resource_version, ECHO_NS)
        self._end(work)

    def _await(self, key: Key, version: str, for_ns: int) -> None:
        """This version is to be seen before anything else is done about the object."""
        known = self._objects.by_key.get(key)
        if known is None or is_same_or_newer(known.metadata.resource_version, version):
            return
        self._awaited[key] = (version, self._now_ns + for_ns)
        self._again(key, for_ns)

    def _was_taken(self, event: Taken) -> None:
        work, _, _ = self._work.pop(event.id)
        work.open -= 1
        take = work.take
        self._changed()
        if take is not None and event.error:
            work.take = None
            self.counts.refusals += 1
            if take.pod is not None:
                failed = self._failed.setdefault(take.pod.metadata.uid, {})
                failed[take.node] = self._now_ns + REFRESH_NS
            else:
                work.failed = True
            for claim in take.claims:
                where = f" on {take.node}" if take.node else ""
                self._tell(claim, "AllocationFailed", f"cannot allocate{where}: {event.error}")
        elif take is not None:
            self._write_allocations(work, take)
        self._end(work)

    def _was_freed(self, event: Freed) -> None:
        work, _, _ = self._work.pop(event.id)
        work.open -= 1
        self._changed()
        if event.error:
            work.failed = True
            claim = self._objects.claim(work.keys[0][1])
            if claim is not None:
                self._tell(claim, "DeallocationFailed", event.error)
        else:
            self.counts.deallocations += 1
        self._end(work)

    def _end(self, work: _Work) -> None:
        """Once all is answered, its objects are looked at again: at once, or where it did not work,
        after a pause that grows."""
        if work.open:
            return
        for key in work.keys:
            if self._busy.get(key) is work:
                del self._busy[key]
        first = work.keys[0]
        if work.failed:
            self._failed_once_more(first)
        else:
            self._tries.pop(first, None)
            self._due[first] = None
        for view, name in work.keys:
            # Whoever had to wait for it.
            if view is PodScheduling:
                self._due[Pod, name] = None
            elif view is ResourceClaim and (view, name) != first:
                self._due[view, name] = None
                self._due.update(((Pod, pod), None) for pod in self._objects.pods_of(name))

    def _tell_refusal(self, work: _Work, event: WriteFailed) -> None:
        """Of a write that the API server will not have, on the claims that it was for."""
        if not 400 <= event.code < 500 or event.code in NOT_FOR_GOOD:
            return
        names = [name for view, name in work.keys if view is ResourceClaim]
        pod = self._objects.pod(work.keys[0][1]) if not names else None
        for name in names or (claim_keys(pod) if pod is not None else ()):
            claim = self._objects.claim(name)
            if claim is not None and driver_of(claim, self.seen.classes) == self.driver:
                what = "DeallocationFailed" if is_leaving(claim) else "AllocationFailed"
                self._tell(claim, what, f"the API server refuses a write: {event.message}")

    def _tell(self, claim: ResourceClaim, reason: str, note: str) -> None:
        meta, id = claim.metadata, self._next_id
        self._next_id = id + 1
        note = note.encode()[:NOTE_BYTES_MAX].decode(errors="ignore")
        self._out.append(
            CreateEvent(
                id, meta.namespace, meta.name, meta.uid, "Warning", reason, "Allocating", note,
                self._now_ns, ("resource.k8s.io/v1", "ResourceClaim"), self.driver,
            )
        )  # fmt: skip

    # Time

    def _again(self, key: Key, after_ns: int) -> None:
        self._turn += 1
        heappush(self._timers, (self._now_ns + after_ns, self._turn, key))

    def _wake(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_ns:
            _, _, key = heappop(self._timers)
            if key == REFRESH:
                if self._refresh_ns <= self._now_ns:
                    self._refresh()
                continue
            if key == ADOPT:
                self._adopt()
                continue
            _, due_ns = self._awaited.get(key, ("", self._now_ns + 1))
            if due_ns <= self._now_ns:
                del self._awaited[key]  # it does not come: what is known now has to do
            self._due[key if key[0] is not PodScheduling else (Pod, key[1])] = None

    def _refresh(self) -> None:
        """Ask the driver anew about all nodes that somebody wants to know of. What it said before
        holds until then, but for what was said before a change of the ledger: it may take longer to
        answer than this takes to come again."""
        self._refresh_ns = 1 << 62
        self._valid = self._serial
        if self._examined:
            self._refresh_in(REFRESH_NS)
        for key, known in self._examined.items():
            self._examined[key] = known._replace(is_old=True)
            self._due[Pod, key[0]] = None
        for uid, failed in [*self._failed.items()]:
            if max(failed.values()) <= self._now_ns:
                del self._failed[uid]

    def _changed(self) -> None:
        """The ledger has changed: so may have what the driver said, before long."""
        self._serial += 1
        self._refresh_in(COALESCED_NS)

    def _refresh_in(self, after_ns: int) -> None:
        if self._refresh_ns > self._now_ns + after_ns:
            self._refresh_ns = self._now_ns + after_ns
            self._again(REFRESH, after_ns)

    # What the driver says

    def _examine(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> frozenset[str] | None:
        """What is known; where that is not enough or too old, the driver is asked. About the node
        that is selected (alone), nothing that was said before the last change will do."""
        key = (pod.metadata.key, len(nodes) == 1)
        what = (pod.metadata.uid, tuple(claim.metadata.uid for claim in claims))
        known = self._examined.get(key)
        oldest = self._serial if key[1] else self._valid
        if (
            known is None
            or known.what != what
            or known.serial < oldest
            or not known.nodes.issuperset(nodes)
        ):
            known = None
        if known is None or known.is_old:
            self._ask(key, what, pod, claims, nodes)
        if known is None:
            return None
        self._examined[key] = known._replace(is_old=False)
        return (known.refused | self._failed_for(pod.metadata.key)).intersection(nodes)

    def _ask(
        self,
        key: tuple[str, bool],
        what: object,
        pod: Pod,
        claims: Sequence[ResourceClaim],
        nodes: Sequence[str],
    ) -> None:
        if key not in self._asking:
            id = self._next_id
            self._next_id = id + 1
            self._asking[key] = id
            known = _Known(what, frozenset(nodes), NOTHING, self._serial)
            self._asked[id] = known, key, tuple(claims)
            self._out.append(Examination(id, pod, tuple(claims), tuple(nodes)))

    def _failed_for(self, pod_key: str) -> frozenset[str]:
        """Nodes on which nothing could be taken for the pod a moment ago."""
        pod = self._objects.pod(pod_key)
        failed = self._failed.get(pod.metadata.uid) if pod is not None else None
        if failed is None:
            return NOTHING
        return frozenset(node for node, until_ns in failed.items() if until_ns > self._now_ns)

    def _was_examined(self, event: Examined) -> None:
        known, key, claims = self._asked.pop(event.id)
        del self._asking[key]
        pod_key = (Pod, key[0])
        if event.error:
            self.counts.errors += 1
            self._failed_once_more(pod_key)
            for claim in claims:
                self._tell(claim, "AllocationFailed", f"cannot say where: {event.error}")
            return
        self._tries.pop(pod_key, None)
        if self._objects.pod(key[0]) is None:
            return
        self._examined[key] = known = known._replace(refused=event.refused)
        all_nodes = (key[0], False)
        if key[1] and (last := self._examined.get(all_nodes)) and last.what == known.what:
            # Of the selected node this is the last word, until all are asked about anew.
            refused = (last.refused - known.nodes) | known.refused
            self._examined[all_nodes] = last._replace(refused=refused)
        self._refresh_in(REFRESH_NS)
        self._due[pod_key] = None
