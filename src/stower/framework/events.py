"""What goes into the engine. Nothing else does."""

from enum import Enum

import msgspec

from stower.model.kinds import ApiObject


class WatchType(Enum):
    """What a watch says has happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Observed(msgspec.Struct, frozen=True, gc=False):
    """A watch event."""

    type: WatchType
    object: ApiObject


class Listed(msgspec.Struct, frozen=True, gc=False):
    """All objects there are: at the start, and again after a watch was lost.

    What is known but not among them is gone. Scheduling starts only after all have been taken in.
    """

    objects: tuple[ApiObject, ...]


class WriteOk(msgspec.Struct, frozen=True, gc=False):
    """The API carried out the write. `resource_version`: of the object since, "" where unknown."""

    id: int
    resource_version: str = ""


class WriteFailed(msgspec.Struct, frozen=True, gc=False):
    """The API refused the write, or nobody knows. `code` is the HTTP status, 0 where none came."""

    id: int
    code: int = 0
    message: str = ""


class ExtenderAnswered(msgspec.Struct, frozen=True, gc=False):
    """What an extender said: its JSON; or why there is no answer."""

    id: int
    body: bytes = b""
    error: str = ""


class AgentAsked(msgspec.Struct, frozen=True, gc=False):
    """An agent asks a companion for something over HTTP; `AgentAnswer` has the same id."""

    id: int
    method: str
    body: bytes


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Nothing but time has passed."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Try no more pods, as another engine is to take over once nothing is under way; or go on."""

    is_on: bool


Event = Observed | Listed | WriteOk | WriteFailed | ExtenderAnswered | AgentAsked | Tick | Hold
