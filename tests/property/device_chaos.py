"""An API that answers late, loses answers and refuses, people who delete and make again, and an
engine in the middle of it. Everything happens in an order that a seed draws."""

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.retries import UNKNOWN
from stower.framework.writes import (
    Bind,
    CreateEvent,
    DeleteObject,
    DeletePod,
    PatchObject,
    PatchPodStatus,
    Write,
)
from stower.model.kinds import ApiObject, Pod, ResourceClaim, ResourceSlice
from stower.model.kinds.resource_claim import ResourceClaimStatus
from stower.sim.changes import bound, merged, patched
from stower.sim.device_model import World
from tests.builders import make_node
from tests.device_builders import (
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)

Key = tuple[type, str]
CLASS = device_class()
PODS = 6
replace = msgspec.structs.replace


class Chaos:
    """The API's objects, what is on its way to and from it, and the engine."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = build_engine()
        self.objects: dict[Key, Any] = {}
        self.now_ns = 0
        self._version = self._uids = 0
        self._asked: list[Write] = []
        self._answers: list[Event] = []
        self._news: dict[type, deque[Event]] = {}
        self.withdrawn: Counter[str] = Counter()  # how often a preemptor took its node, by pod
        self._claims = self.chance.randint(2, 5)
        for name in ("n1", "n2"):
            self._put(make_node(name))
            count = self.chance.randint(1, 2)
            shared = [self.chance.random() < 0.5 for _ in range(count)]
            of_node = (device(f"g{i}", "10Gi", shared=each) for i, each in enumerate(shared))
            self._put(device_slice(name, *of_node))
        self._put(CLASS)
        for i in range(self._claims):
            self._make_claim(i)
        for i in range(PODS):
            self._make_pod(i)
        self._step(Listed(tuple(self.objects.values())))
        self._news.clear()

    # What people and controllers do

    def _make_claim(self, i: int) -> None:
        if (ResourceClaim, f"default/c{i}") not in self.objects:
            asked = (
                {"memory": self.chance.choice(["4Gi", "6Gi"])} if self.chance.random() < 0.5 else {}
            )
            self._put(resource_claim(f"c{i}", request(**asked), meta={"uid": self._uid()}))

    def _make_pod(self, i: int) -> None:
        if (Pod, f"default/p{i}") not in self.objects:
            numbers = sorted({self.chance.randrange(self._claims) for _ in range(2)})
            names = [f"c{n}" for n in numbers[: self.chance.choice([1, 1, 2])]]
            pod = claiming(f"p{i}", *names, priority=self.chance.choice([0, 0, 10]))
            self._put(replace(pod, metadata=replace(pod.metadata, uid=self._uid())))

    def _delete_claim(self, key: Key) -> None:
        claim = self.objects[key]
        if not claim.metadata.finalizers:
            self._remove(key)
        elif claim.metadata.deletion_timestamp is None:
            gone = replace(claim.metadata, deletion_timestamp="2024-01-01T00:00:00Z")
            self._put(replace(claim, metadata=gone))

    def _give_back(self) -> None:
        """The claim controller: who is gone has no reservation, and nobody no devices."""
        for key, claim in [*self.objects.items()]:
            if key[0] is not ResourceClaim:
                continue
            reserved = claim.status.reserved_for or ()
            left = tuple(c for c in reserved if self._lives(c.name, c.uid))
            if left != reserved:
                status = replace(claim.status, reserved_for=left or None)
                status = status if left else replace(status, allocation=None)
                self._put(replace(claim, status=status))
            elif claim.metadata.deletion_timestamp is not None and not reserved:
                if claim.status.allocation is not None:
                    self._put(replace(claim, status=ResourceClaimStatus()))
                else:
                    self._remove(key)

    def _lives(self, name: str, uid: str) -> bool:
        pod = self.objects.get((Pod, f"default/{name}"))
        return pod is not None and pod.metadata.uid == uid

    def _meddle(self) -> None:
        """Somebody deletes, makes again, touches."""
        claim = (ResourceClaim, f"default/c{self.chance.randrange(self._claims)}")
        pod = (Pod, f"default/p{self.chance.randrange(PODS)}")
        the_class = (type(CLASS), "gpu")
        found = self.objects.get(claim)
        deeds: list[Callable[[], None]] = [
            lambda: self._remove(pod) if pod in self.objects else None,
            lambda: self._make_pod(self.chance.randrange(PODS)),
            lambda: self._delete_claim(claim) if found is not None else None,
            lambda: self._make_claim(int(claim[1][-1])),
            self._give_back,
            lambda: self._remove(the_class) if the_class in self.objects else None,
            lambda: self._put(CLASS) if the_class not in self.objects else None,
            lambda: self._put(found) if found is not None else None,
        ]
        self.chance.choice(deeds)()

    # What the API does

    def _uid(self) -> str:
        self._uids += 1
        return f"u{self._uids}"

    def _put(self, obj: ApiObject) -> str:
        self._version += 1
        key = (type(obj), obj.metadata.key)
        kind = WatchType.MODIFIED if key in self.objects else WatchType.ADDED
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=str(self._version)))
        self.objects[key] = obj
        self._tell(Observed(kind, obj))
        self._check()
        return obj.metadata.resource_version

    def _remove(self, key: Key) -> None:
        self._version += 1
        obj = self.objects.pop(key)
        meta = replace(obj.metadata, resource_version=str(self._version))
        self._tell(Observed(WatchType.DELETED, replace(obj, metadata=meta)))

    def _tell(self, event: Observed) -> None:
        self._news.setdefault(type(event.object), deque()).append(event)

    def _check(self) -> None:
        """No device is given to more than it is enough for."""
        slices = [msgspec.to_builtins(o) for k, o in self.objects.items() if k[0] is ResourceSlice]
        alone: set[tuple[str, str, str]] = set()
        shares: dict[tuple[str, str, str], list[Any]] = {}
        for key, claim in self.objects.items():
            given = claim.status.allocation if key[0] is ResourceClaim else None
            for result in (given.devices.results or ()) if given is not None else ():
                id = (result.driver, result.pool, result.device)
                assert id not in alone, f"{id} is given twice"
                if result.share_id is None:
                    assert id not in shares, f"{id} is given twice"
                    alone.add(id)
                else:
                    shares.setdefault(id, []).append(result.consumed_capacity)
        for id in shares:
            model = World({"metadata": {"name": id[1]}}, slices, {}, alone, shares)
            assert model.room(id, {}), f"{id} is oversold"

    def _carry_out(self, write: Any) -> Event:
        view = getattr(write, "view", Pod)
        key = (view, f"{write.namespace}/{write.name}")
        found = self.objects.get(key)
        if found is None or found.metadata.uid != write.uid:
            return WriteFailed(write.id, 404, "gone")
        if isinstance(write, DeleteObject):
            self._delete_claim(key)
        elif isinstance(write, DeletePod):
            self._remove(key)
        elif isinstance(write, PatchPodStatus):
            self._put(patched(found, write))
        elif isinstance(write, Bind):
            if found.spec.node_name:
                return WriteFailed(write.id, 409, "bound")
            self._put(bound(found, write))
        elif isinstance(write, PatchObject):
            if found.metadata.resource_version != write.resource_version:
                return WriteFailed(write.id, 409, "conflict")
            new: Any = merged(found, write)
            known = found.status.allocation
            if known is not None and new.status.allocation not in (None, known):
                return WriteFailed(write.id, 422, "immutable")
            return WriteOk(write.id, self._put(new))
        return WriteOk(write.id)

    # What happens

    def _step(self, event: Event) -> None:
        for write in self.engine.step(event, self.now_ns):
            if isinstance(write, CreateEvent):
                self._answers.append(WriteOk(write.id))
            else:
                self._asked.append(write)
        for decision in self.engine.drain():
            if "preempted by" in decision.message:
                self.withdrawn[decision.uid] += 1

    def happen(self, chaos: bool) -> None:
        """One thing. Without `chaos` nobody meddles, and nothing is lost or refused."""
        self.now_ns += self.chance.randint(0, SECOND_NS // 20)
        drawn = self.chance.random()
        if drawn < 0.12 and chaos:
            self._meddle()
        elif drawn < 0.16:
            self._give_back()
        elif drawn < 0.45 and self._asked:
            self._answer(self._asked.pop(self.chance.randrange(len(self._asked))), chaos)
        elif drawn < 0.65 and self._answers:
            self._step(self._answers.pop(self.chance.randrange(len(self._answers))))
        elif drawn < 0.95 and (news := [each for each in self._news.values() if each]):
            self._step(self.chance.choice(news).popleft())
        else:
            self.now_ns += self.chance.choice([0, SECOND_NS // 2, SECOND_NS])
            self._step(Tick())

    def _answer(self, write: Write, chaos: bool) -> None:
        drawn = self.chance.random() if chaos else 1.0
        if drawn < 0.08:
            if self.chance.random() < 0.5:
                self._carry_out(write)
            self._answers.append(WriteFailed(write.id, UNKNOWN, "lost"))
        elif drawn < 0.12:
            code = self.chance.choice([403, 409, 422, 500, 503])
            self._answers.append(WriteFailed(write.id, code, "no"))
        else:
            self._answers.append(self._carry_out(write))

    def settle(self) -> None:
        """All is there again, and everybody has time; less than it takes until pods are tried again
        whatever has happened."""
        self.withdrawn.clear()
        for _ in range(30):
            if (type(CLASS), "gpu") not in self.objects:
                self._put(CLASS)
            for i in range(self._claims):
                self._make_claim(i)
            self._give_back()
            while self._asked or self._answers or any(self._news.values()):
                self.happen(chaos=False)
            self.now_ns += 2 * SECOND_NS
            self._step(Tick())
        while self._asked or self._answers or any(self._news.values()):
            self.happen(chaos=False)
