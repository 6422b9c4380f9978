"""Tracks operations: the writes and driver calls that a driver's controller has sent for a set of
objects and that are not answered yet.

An object is in at most one operation. After an operation, its objects stay blocked until the watch
has delivered the versions that its writes made, so that no decision is based on objects older than
the controller's own writes. Must not know why an operation was started (rules.py).
"""

from typing import Final

import msgspec

from stower.driver.messages import Output
from stower.driver.objects import Key, Objects
from stower.driver.outbox import Outbox
from stower.driver.rules import Take
from stower.driver.work_queue import WorkQueue
from stower.framework.events import WriteFailed, WriteOk
from stower.framework.writes import PatchObject
from stower.model.kinds import Pod, PodScheduling
from stower.model.times import SECOND_NS
from stower.state.devices import is_same_or_newer

OWN_WRITE_NS: Final = 30 * SECOND_NS  # wait at most so long for the watch event of our own write
CONFLICT_NS: Final = 3 * SECOND_NS  # and so long for the version that ours conflicted with


class Operation:
    """Outputs in flight for the objects `keys`. The first key is the object that it was started
    for."""

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        # Devices to allocate once a no-op write has confirmed that the pod still asks for them.
        self.take: Take | None = None
        self.unanswered = 0  # number of outputs
        self.failed = False


class Operations:
    """Operations by the ids of their outputs and by the keys of their objects."""

    def __init__(self, outbox: Outbox, queue: WorkQueue, objects: Objects) -> None:
        self._outbox = outbox
        self._queue = queue
        self._objects = objects
        # By output id: the operation; for a write also its object, and the version it relied on.
        self._by_id: dict[int, tuple[Operation, Key | None, str]] = {}
        self._by_key: dict[Key, Operation] = {}
        self._expected: dict[Key, tuple[str, int]] = {}  # (version, until when to wait for it)

    @property
    def is_empty(self) -> bool:
        """Whether no output is unanswered."""
        return not self._by_id

    def is_blocked(self, key: Key) -> bool:
        """Returns whether no operation may start for the object now, because an operation is in
        flight, or because the watch has not delivered the controller's own write. A pod is also
        blocked by its PodScheduling."""
        if key in self._by_key or key in self._expected:
            return True
        return key[0] is Pod and (PodScheduling, key[1]) in self._expected

    def start(self, keys: tuple[Key, ...]) -> Operation:
        """Starts an operation that blocks these objects until `finish`. None of them may be
        blocked."""
        operation = Operation(keys)
        for key in keys:
            self._by_key[key] = operation
        return operation

    def call(self, operation: Operation) -> int:
        """Returns the id for a new call of the driver, which belongs to the operation."""
        return self._register(operation, None, "")

    def send(self, operation: Operation, output: Output) -> None:
        """Sends an output of the operation, with an id from `call`."""
        operation.unanswered += 1
        self._outbox.send(output)

    def write(self, operation: Operation, patch: PatchObject) -> None:
        """Sends a write of the operation."""
        key = (patch.view, f"{patch.namespace}/{patch.name}")
        id = self._register(operation, key, patch.resource_version)
        self.send(operation, msgspec.structs.replace(patch, id=id))

    def _register(self, operation: Operation, key: Key | None, relied_on: str) -> int:
        id = self._outbox.next_id()
        self._by_id[id] = (operation, key, relied_on)
        return id

    def pop_call(self, id: int) -> Operation:
        """Returns the operation of a call that was answered."""
        operation, _, _ = self._by_id.pop(id)
        operation.unanswered -= 1
        return operation

    def pop_write(self, event: WriteOk | WriteFailed) -> tuple[Operation, Key, str] | None:
        """Returns (operation, object, version that the write was based on) of a write that was
        answered; None for Events, whose results are ignored."""
        operation, key, relied_on = self._by_id.pop(event.id, (None, None, ""))
        if operation is None or key is None:
            return None
        operation.unanswered -= 1
        return operation, key, relied_on

    def finish(self, operation: Operation) -> None:
        """Releases the objects of the operation."""
        for key in operation.keys:
            if self._by_key.get(key) is operation:
                del self._by_key[key]

    # Versions that the watch must deliver

    def expect_own_write(self, key: Key, version: str) -> None:
        """Blocks the object until the watch delivers the version that the controller's write
        made."""
        self._expect(key, version, OWN_WRITE_NS)

    def expect_newer(self, key: Key, version: str) -> None:
        """Blocks the object until the watch delivers a newer version than this one, after a write
        conflict."""
        if version.isdigit():
            self._expect(key, str(int(version) + 1), CONFLICT_NS)

    def _expect(self, key: Key, version: str, timeout_ns: int) -> None:
        known = self._objects.by_key.get(key)
        if known is None or is_same_or_newer(known.metadata.resource_version, version):
            return
        self._expected[key] = (version, self._outbox.now_ns + timeout_ns)
        self._queue.add_after(key, timeout_ns)

    def observe(self, key: Key, version: str | None) -> None:
        """Records that the watch has delivered this version of the object; None for its
        deletion."""
        expected, _ = self._expected.get(key, ("", 0))
        if version is None:
            self._expected.pop(key, None)
        elif expected and is_same_or_newer(version, expected):
            del self._expected[key]

    def expire(self, key: Key) -> None:
        """Unblocks the object if the watch has not delivered the expected version in time."""
        _, until_ns = self._expected.get(key, ("", self._outbox.now_ns + 1))
        if until_ns <= self._outbox.now_ns:
            del self._expected[key]
