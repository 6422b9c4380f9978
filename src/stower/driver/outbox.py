"""Outputs of one step of a driver's controller, numbered; also records Events about claims."""

from typing import Final

from stower.driver.messages import Output
from stower.framework.writes import CreateEvent
from stower.model.kinds import ResourceClaim

NOTE_BYTES_MAX: Final = 1024  # limit of the API for an Event's note


class Outbox:
    """Collects what a step returns. `now_ns` is the time of the step."""

    def __init__(self, driver: str) -> None:
        self.now_ns = 0
        self.outputs: list[Output] = []
        self._driver = driver
        self._next_id = 1

    def start_step(self, now_ns: int) -> None:
        """Begin with no outputs. Time never goes back, even if the caller's clock does."""
        self.now_ns = max(self.now_ns, now_ns)
        self.outputs = []

    def next_id(self) -> int:
        """An id for an output. Ids are unique over writes, calls and Events."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def send(self, output: Output) -> None:
        """Add an output to this step's."""
        self.outputs.append(output)

    def record_warning(self, claim: ResourceClaim, reason: str, note: str) -> None:
        """Create a Warning Event about a claim."""
        meta = claim.metadata
        note = note.encode()[:NOTE_BYTES_MAX].decode(errors="ignore")
        self.send(
            CreateEvent(
                self.next_id(), meta.namespace, meta.name, meta.uid, "Warning", reason,
                "Allocating", note, self.now_ns, ("resource.k8s.io/v1", "ResourceClaim"),
                self._driver,
            )
        )  # fmt: skip
