"""Collects the outputs of one step of a driver's controller and assigns their ids; also creates
Events about claims.

Must not know which operation an output belongs to (operations.py).
"""

from typing import Final

from stower.driver.messages import Output
from stower.framework.writes import CreateEvent
from stower.model.kinds import ResourceClaim

NOTE_BYTES_MAX: Final = 1024  # limit of the API for an Event's note


class Outbox:
    """The outputs of the current step. `now_ns` is the time of the step."""

    def __init__(self, driver: str) -> None:
        self.now_ns = 0
        self.outputs: list[Output] = []
        self._driver = driver
        self._next_id = 1

    def start_step(self, now_ns: int) -> None:
        """Clears the outputs and sets the time, which never decreases even if the caller's clock
        does."""
        self.now_ns = max(self.now_ns, now_ns)
        self.outputs = []

    def next_id(self) -> int:
        """Returns an id for an output, unique over writes, calls and Events."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def send(self, output: Output) -> None:
        """Adds an output to the current step."""
        self.outputs.append(output)

    def record_warning(self, claim: ResourceClaim, reason: str, note: str) -> None:
        """Creates a Warning Event about a claim."""
        meta = claim.metadata
        note = note.encode()[:NOTE_BYTES_MAX].decode(errors="ignore")
        self.send(
            CreateEvent(
                self.next_id(), meta.namespace, meta.name, meta.uid, "Warning", reason,
                "Allocating", note, self.now_ns, ("resource.k8s.io/v1", "ResourceClaim"),
                self._driver,
            )
        )  # fmt: skip
