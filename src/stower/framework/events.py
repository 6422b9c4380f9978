"""Events: the inputs of the engine (`Engine.step`). The engine has no other input."""

from enum import Enum

import msgspec

from stower.model.kinds import ApiObject


class WatchType(Enum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Observed(msgspec.Struct, frozen=True, gc=False):
    """A watch event: an object was added, modified or deleted."""

    type: WatchType
    object: ApiObject


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A list of all objects: at the start, and again after a watch was lost.

    An object that the state has and the list does not have was deleted. Scheduling starts only
    after the whole list has been applied.
    """

    objects: tuple[ApiObject, ...]


class WriteOk(msgspec.Struct, frozen=True, gc=False):
    """The API server carried out the write. `resource_version`: the object's version after the
    write, "" where unknown."""

    id: int
    resource_version: str = ""


class WriteFailed(msgspec.Struct, frozen=True, gc=False):
    """The API server refused the write, or the outcome is unknown. `code`: the HTTP status, 0 where
    no response came."""

    id: int
    code: int = 0
    message: str = ""


class ExtenderAnswered(msgspec.Struct, frozen=True, gc=False):
    """The response of an extender: `body`, its JSON, or `error`, why there is no response."""

    id: int
    body: bytes = b""
    error: str = ""


class Solved(msgspec.Struct, frozen=True, gc=False):
    """The answer to a Solve: `body`, or `error`, why there is none."""

    id: int
    body: bytes = b""
    error: str = ""


class AgentAsked(msgspec.Struct, frozen=True, gc=False):
    """An agent's HTTP request to a companion. The AgentAnswer to it has the same id."""

    id: int
    method: str
    body: bytes


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed, and nothing else has happened."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Stops scheduling where `is_on`, else resumes it. A shell stops an engine so that another one
    can take over once no work is in progress."""

    is_on: bool


Event = (
    Observed | Listed | WriteOk | WriteFailed | ExtenderAnswered | Solved | AgentAsked | Tick | Hold
)
