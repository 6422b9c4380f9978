"""Defines Call: one request for a resource, with the data that operations need to carry it out.

Must not know the operations.
"""

from dataclasses import dataclass, field
from typing import Any

from stower.api.context import Context
from stower.api.errors import ApiError, already_exists, conflict, forbidden, not_found
from stower.api.registry import Resource
from stower.api.requests import Request
from stower.api.store import Collection, Record
from stower.api.strategies import CUSTOM, CUSTOM_WITH_STATUS, Strategy, strategy_of
from stower.model.times import time_text

Object = dict[str, Any]


@dataclass(slots=True)
class Call:
    """A request and the resource, namespace, name and subresource of its path."""

    context: Context
    request: Request
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    strategy: Strategy = field(init=False)  # of the resource's kind
    collection: Collection = field(init=False)  # stores the resource's objects
    _now: str = field(init=False, default="")

    def __post_init__(self) -> None:
        resource = self.resource
        if (custom := resource.custom) is not None:
            self.strategy = CUSTOM_WITH_STATUS if custom.has_status else CUSTOM
        else:
            self.strategy = strategy_of(resource.key)
        self.collection = self.context.store.collection(resource.key)

    @property
    def now(self) -> str:
        """The time of the request, as metadata has it."""
        if not self._now:
            self._now = time_text(self.request.now_ns)
        return self._now

    def key(self, name: str = "") -> str:
        """Returns the key in the collection of an object, by default the one of the path."""
        name = name or self.name
        return f"{self.namespace}/{name}" if self.resource.namespaced else name

    def record(self) -> Record:
        """Returns the object that the request names. Raises ApiError 404."""
        found = self.collection.records.get(self.key())
        if found is None:
            raise self.not_found()
        return found

    def decode(self, record: Record) -> Object:
        """Returns a copy of a stored object, as the version of the path has it."""
        item, custom = record.decode(), self.resource.custom
        return custom.show(item) if custom is not None and custom.converts else item

    def as_stored(self, item: Object) -> Object:
        """Returns an object of the path's version as it is stored."""
        custom = self.resource.custom
        return item if custom is None else custom.store(item)

    def not_found(self) -> ApiError:
        """Returns the error for an object that does not exist (404)."""
        return not_found(self.resource.group, self.resource.plural, self.name)

    def already_exists(self, name: str) -> ApiError:
        """Returns the error for the creation of an object that exists (409)."""
        return already_exists(self.resource.group, self.resource.plural, name)

    def conflict(self, why: str) -> ApiError:
        """Returns the error for an object in another state than the request expects (409)."""
        return conflict(self.resource.group, self.resource.plural, self.name, why)

    def forbidden(self, name: str, why: str) -> ApiError:
        """Returns the error for an object that admission rejects (403)."""
        return forbidden(self.resource.group, self.resource.plural, name, why)
