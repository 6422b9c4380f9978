"""A cluster of fuzzed objects: an engine with all parts, an API server that carries out its writes
or does not, and pods of a namespace that has nothing to do with the rest.

What happens is a list of acts, each a few small numbers, so that a failure shrinks.
"""

import contextlib
import cProfile
from collections import deque
from typing import Any, Final, NamedTuple

import msgspec

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import (
    AgentAsked,
    Event,
    Hold,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.plugin import Features, read_features
from stower.framework.writes import AgentAnswer, Bind, CreateEvent, Write
from stower.model.errors import InvalidObject
from stower.model.kinds import KINDS, ApiObject, Kind, Pod
from stower.model.raw import decode
from stower.sim.server import OK, Change, Server
from tests.builders import make_node, make_pod
from tests.fuzz.mutants import Change as Mutation
from tests.fuzz.mutants import changed, text_of
from tests.fuzz.objects import MAKERS, SCENES, WEIGHTS, make_document

ENFORCER: Final = {"name": "AutoscaleEnforcer", "args": {"schedulerName": "default-scheduler"}}
LABELS: Final = {"name": "WarmCapacity", "args": {"nodeLabels": ["example.com/warm"]}}
CONFIG: Final = {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
            "pluginConfig": [ENFORCER, LABELS],
        },
        {"schedulerName": "second"},
    ]
}
FEATURES, _ = read_features("AllAlpha=true,WarmPools=true", Features())
ELSEWHERE: Final = "elsewhere"
OWN: Final = {"example.com/own": "yes"}
OWN_TAINT: Final = {"key": "example.com/own", "effect": "NoSchedule"}
ROOM: Final = make_node(
    "own", cpu="100000", memory="100000Gi", pods="100000", labels=OWN, taints=[OWN_TAINT]
)
KIND_OF: Final = {kind.name: kind for kind in KINDS}
DRAWN: Final = tuple(kind for kind in KINDS for _ in range(WEIGHTS.get(kind.name, 1)))
# What becomes of a write. None: no answer yet; LOST: it is carried out, and the answer is lost.
LOST: Final = -1
CODES: Final = (OK, OK, OK, OK, OK, 409, 404, 403, 422, 500, 0, LOST, None)
WAITS_S: Final = (0, 0.1, 1, 10, 60, 301, 3_700)
WHATS: Final = (
    "scene", "scene", "put", "put", "put", "put", "put", "change", "change", "change", "delete",
        "delete", "end",
    "recreate", "late", "gone", "answer", "answer", "answer", "tick", "tick", "wake", "hold",
    "deaf", "list", "agent", "bystander", "bystander",
)  # fmt: skip
STEPS_CALM: Final = 60
# Functions of Python that one step may call, in the mean over the steps of an act. The most of
# 2,000 histories is 10,000: there are 20 pods at most.
CALLS_MAX: Final = 100_000


class Act(NamedTuple):
    """Something that happens. `kind`, `number`, `variant`, `oddity`: the object, see make_document;
    `mutations`: of its JSON, after which it may not decode; `code`: an index into CODES."""

    what: str
    kind: int = 0
    number: int = 0
    variant: int = 0
    oddity: int = 0
    code: int = 0
    mutations: tuple[Mutation, ...] = ()


class Laws(AssertionError):
    """A law is broken."""


class Cluster:
    """See the module. Raises Laws from `act`, `calm` and `empty`."""

    def __init__(self) -> None:
        self.now_ns = SECOND_NS
        self.engine: Engine = build_engine(CONFIG, features=FEATURES)
        self.server = Server(lambda: self.now_ns)
        self.server.tell.append(self._hear)
        self.unanswered: deque[Write] = deque()
        self.bound: dict[str, None] = {}
        self.bystanders: list[Pod] = []
        self._inbox: deque[Observed] = deque()
        self._incarnations: dict[tuple[str, str, str], int] = {}
        self._is_deaf = False
        self.is_held = False
        self._steps = 0
        self._calls = cProfile.Profile(subcalls=False, builtins=False)
        self.server.put(ROOM)
        self._inbox.clear()
        self.step(Listed((ROOM,)))

    # Steps

    def step(self, event: Event) -> list[Write]:
        """One event; what is written waits for `answer`."""
        self._steps += 1
        self._calls.enable()
        try:
            writes = self.engine.step(event, self.now_ns)
        finally:
            self._calls.disable()
        self.engine.drain()
        for write in writes:
            if isinstance(write, Bind):
                self.bound[write.uid] = None
            if not isinstance(write, AgentAnswer):
                self.unanswered.append(write)
        self._check_errors()
        self.engine.notes()
        return writes

    def _check_errors(self) -> None:
        if self.engine.errors.counts:
            lines = "\n".join(text for level, text, _ in self.engine.notes() if level == "error")
            raise Laws(f"internal errors: {dict(self.engine.errors.counts)}\n{lines}")

    def _hear(self, change: Change) -> None:
        _, kind, obj = change
        if not self._is_deaf:
            self._inbox.append(Observed(kind, obj))

    def deliver(self) -> None:
        """What watches show."""
        while self._inbox:
            self.step(self._inbox.popleft())

    # Acts

    def act(self, act: Act) -> None:
        """One of WHATS."""
        self._steps = 0
        getattr(self, f"_{act.what}")(act)
        self.deliver()
        self._check_calls(act.what)

    def _check_calls(self, about: str) -> None:
        calls = sum(one.callcount for one in self._calls.getstats())
        self._calls.clear()
        if calls > CALLS_MAX * max(self._steps, 1):
            raise Laws(f"{calls:,} calls in {self._steps} steps: {about}")

    def _object(self, act: Act) -> ApiObject | None:
        """The object of an act, with a uid of its own; None where it does not decode."""
        kind = DRAWN[act.kind % len(DRAWN)]
        document = make_document(kind, act.number, act.variant, act.oddity)
        return self._decoded(kind, changed(document, [*act.mutations]))

    def _decoded(self, kind: Kind, document: Any) -> ApiObject | None:
        obj: ApiObject | None = None
        with contextlib.suppress(InvalidObject):
            obj = decode(text_of(document), kind.view)
        return self._admitted(obj) if obj is not None else None

    def _admitted(self, obj: ApiObject) -> ApiObject:
        meta = obj.metadata
        number = self._incarnations.setdefault(_place(obj), 0)
        uid = f"{type(obj).__name__}-{meta.name}-{number}"
        meta = msgspec.structs.replace(
            meta, uid=f"{meta.namespace}/{uid}" if meta.namespace == "b" else uid
        )
        obj = msgspec.structs.replace(obj, metadata=meta)
        return _away(obj) if isinstance(obj, Pod) else obj

    def _put(self, act: Act) -> None:
        obj = self._object(act)
        if obj is not None:
            self._put_object(obj)

    def _scene(self, act: Act) -> None:
        """Nodes, all objects of some kinds that go together, and pods. Some are odd."""
        kinds = ("Node", *SCENES[act.kind % len(SCENES)], "Pod")
        every = 2 + act.code % 9
        for i, (name, number) in enumerate((k, n) for k in kinds for n in range(len(MAKERS[k][1]))):
            kind = KIND_OF[name]
            oddity = act.oddity if i % every == 1 else 0
            document = make_document(kind, number, act.variant + i, oddity)
            obj = self._decoded(kind, document)
            if obj is not None:
                self._put_object(obj)
                self.deliver()

    def _put_object(self, obj: ApiObject) -> None:
        found = self.server.get(type(obj), obj.metadata.key)
        if found is not None:  # a server knows the uid
            meta = msgspec.structs.replace(obj.metadata, uid=found.metadata.uid)
            obj = msgspec.structs.replace(obj, metadata=meta)
        self.server.put(obj)

    def _found(self, act: Act) -> ApiObject | None:
        """Some object that there is, of anybody but the bystanders."""
        everything = [
            obj for obj in self.server.list_objects()
            if obj.metadata.namespace != ELSEWHERE and obj.metadata.name != "own"
        ]  # fmt: skip
        return everything[act.number % len(everything)] if everything else None

    def _change(self, act: Act) -> None:
        """An object becomes what its maker draws next, in one field."""
        found = self._found(act)
        if found is None:
            return
        kind = next(kind for kind in KINDS if kind.view is type(found))
        document = msgspec.to_builtins(found)
        meta = document["metadata"]
        names = {name: meta.get(name, "") for name in ("name", "namespace", "uid")}
        fresh = make_document(kind, act.number, act.variant, act.oddity)
        for part in ("spec", "status", "metadata"):
            inner = fresh.get(part)
            if isinstance(inner, dict) and inner and act.variant % 3 != len(part) % 3:
                name = sorted(inner)[act.variant % len(inner)]
                document.setdefault(part, {})[name] = inner[name]
        document["metadata"] = {**document["metadata"], **names}
        obj = self._decoded(kind, document)
        if obj is not None:
            self._put_object(obj)

    def _delete(self, act: Act) -> None:
        found = self._found(act)
        if found is not None:
            self.server.remove(found)

    def _end(self, act: Act) -> None:
        """As DELETE does: gracefully where it is a pod with a node or has a finalizer."""
        found = self._found(act)
        if isinstance(found, Pod):
            self.server.delete_pod(found)
        elif found is not None:
            self.server.delete(found)

    def _recreate(self, act: Act) -> None:
        """Another object of the name of one that is there. Its deletion is shown, or not."""
        found = self._found(act)
        if found is None:
            return
        self._incarnations[_place(found)] = self._incarnations.get(_place(found), 0) + 1
        if act.variant % 2:
            self.server.remove(found)
        self.server.put(self._admitted(found))

    def _late(self, act: Act) -> None:
        """An event of which the server knows nothing."""
        obj = self._object(act)
        if obj is not None:
            kinds = (WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED)
            self.step(Observed(kinds[act.code % 3], obj))

    def _gone(self, act: Act) -> None:
        """The deletion of what was never seen, or is still there."""
        obj = self._object(act)
        if obj is not None:
            self.step(Observed(WatchType.DELETED, obj))

    def _answer(self, act: Act) -> None:
        if self.unanswered:
            index = act.number % min(len(self.unanswered), 3)
            write = self.unanswered[index]
            del self.unanswered[index]
            self._answer_write(write, CODES[act.code % len(CODES)], act.variant % 2 == 0)

    def _answer_write(self, write: Any, code: int | None, is_first: bool) -> None:
        """`is_first`: whether the answer comes before what watches show of it."""
        if code is None:
            self.unanswered.append(write)
            return
        status, version = code, ""
        if code in (OK, LOST):
            status, version = self._carried_out(write)
        if not is_first:
            self.deliver()
        if status == OK and code == OK:
            self.step(WriteOk(write.id, version))
        else:
            self.step(WriteFailed(write.id, 0 if code == LOST else status, "no"))

    def _carried_out(self, write: Any) -> tuple[int, str]:
        """A body that makes no object is refused, as an API server does."""
        if isinstance(write, CreateEvent):
            return OK, ""
        try:
            return self.server.carry_out(write)
        except msgspec.ValidationError:
            return 422, ""

    def _tick(self, act: Act) -> None:
        self.now_ns += int(WAITS_S[act.variant % len(WAITS_S)] * SECOND_NS)
        self.step(Tick())

    def _wake(self, act: Act) -> None:
        wake_ns = self.engine.next_wake_ns
        if wake_ns is not None:
            self.now_ns = max(self.now_ns, wake_ns)
            self.step(Tick())

    def _hold(self, act: Act) -> None:
        self.is_held = act.variant % 3 == 0
        self.step(Hold(self.is_held))

    def _deaf(self, act: Act) -> None:
        """Watches are lost until the next list."""
        self._is_deaf = True

    def _list(self, act: Act) -> None:
        self._inbox.clear()
        self._is_deaf = False
        self.step(Listed(tuple(self.server.list_objects())))

    def _agent(self, act: Act) -> None:
        body: Any = {
            "protoVersion": 5, "computeUnit": {"vCPUs": 250, "mem": 1 << 30},
            "resources": {"vCPUs": 500, "mem": 2 << 30}, "lastPermit": None,
            "pod": {"name": f"p{act.number % 6}", "namespace": "a"}, "metrics": None,
        }  # fmt: skip
        self.step(AgentAsked(1_000 + act.variant, "POST", text_of(changed(body, [*act.mutations]))))

    def _bystander(self, act: Act) -> None:
        """A pod of another namespace comes. It is bound in this step, or when the engine next
        wakes."""
        number = len(self.bystanders)
        pod = make_pod(
            f"bystander-{number}", namespace=ELSEWHERE, nodeSelector=OWN, labels={"app": "x"},
            tolerations=[{"key": OWN_TAINT["key"], "operator": "Exists"}],
        )  # fmt: skip
        self.bystanders.append(pod)
        was_deaf, self._is_deaf = self._is_deaf, True
        self.server.put(pod)
        self._is_deaf = was_deaf
        self.step(Observed(WatchType.ADDED, self.server.get(Pod, pod.metadata.key)))
        self._check_bystander(pod.metadata.uid, act)

    def _check_bystander(self, uid: str, act: Act) -> None:
        if not self.is_held and uid not in self.bound:
            self._wake(act)
            if uid not in self.bound:
                raise Laws(f"{uid} came and was not bound in its step or the next")

    # Endings

    def calm(self) -> None:
        """Everything works again: watches, the server, time. Afterwards all bystanders are on their
        node."""
        self.step(Hold(False))
        self.is_held = False
        self._list(Act("list"))
        for _ in range(STEPS_CALM):
            self.settle()
            waiting = [p for p in self.bystanders
                       if not self.server.get(Pod, p.metadata.key).spec.node_name]  # fmt: skip
            if not waiting:
                self._check_calls("calm")
                return
            self.now_ns += 5 * SECOND_NS
            self.step(Tick())
        raise Laws(f"{[p.key for p in waiting]} wait though all is well")

    def settle(self) -> None:
        """All writes are carried out, as long as there are any, within reason."""
        for _ in range(200):
            self.deliver()
            if not self.unanswered:
                return
            self._answer_write(self.unanswered.popleft(), OK, True)

    def empty(self, by_list: bool) -> None:
        """Everything is deleted: one after the other, or with a list of nothing."""
        for obj in [*self.server.list_objects()]:
            self._is_deaf = by_list
            self.server.remove(obj)
        self._is_deaf = False
        for _ in range(20):
            left = [*self.server.list_objects()]
            for obj in left:  # what was created meanwhile
                self.server.remove(obj)
            if by_list:
                self.step(Listed(()))
            self.settle()
            self.now_ns += 400 * SECOND_NS
            self.step(Tick())
            if not self.unanswered and not left:
                self._check_calls("empty")
                return
        raise Laws(f"writes without end about nothing: {[*self.unanswered][:3]}")


def _place(obj: ApiObject) -> tuple[str, str, str]:
    return (type(obj).__name__, obj.metadata.namespace, obj.metadata.name)


def _away(pod: Pod) -> Pod:
    """The pod without tolerations of the bystanders' taint: what it occupies there it may."""
    kept = tuple(
        one for one in pod.spec.tolerations or ()
        if one.key not in ("", OWN_TAINT["key"])
    )  # fmt: skip
    spec = msgspec.structs.replace(pod.spec, tolerations=kept or None)
    return msgspec.structs.replace(pod, spec=spec)
