"""One request on its way: what it is about, with everything that operations need at hand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stower.api.errors import ApiError, already_exists, conflict, forbidden, not_found
from stower.api.registry import Resource
from stower.api.requests import Request
from stower.api.store import Collection, Record
from stower.api.strategies import CUSTOM, CUSTOM_WITH_STATUS, Strategy, strategy_of
from stower.model.times import time_text

if TYPE_CHECKING:
    from stower.api.server import Api

Object = dict[str, Any]


@dataclass(slots=True)
class Call:
    """A request for a resource."""

    api: "Api"
    request: Request
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def strategy(self) -> Strategy:
        """How its kind lives."""
        if (custom := self.resource.custom) is not None:
            return CUSTOM_WITH_STATUS if custom.has_status else CUSTOM
        return strategy_of(self.resource.key)

    @property
    def collection(self) -> Collection:
        """Where its objects are."""
        return self.api.store.collection(self.resource.key)

    @property
    def now(self) -> str:
        """The time of the request."""
        return time_text(self.request.now_ns)

    def key(self, name: str = "") -> str:
        """The key of an object in the collection."""
        name = name or self.name
        return f"{self.namespace}/{name}" if self.resource.namespaced else name

    def record(self) -> Record:
        """The object that the request names, or ApiError 404."""
        found = self.collection.records.get(self.key())
        if found is None:
            raise self.not_found()
        return found

    def for_kind(self, group: str, plural: str, namespace: str = "", name: str = "") -> "Call":
        """A call about another resource, on behalf of this one."""
        resource = self.api.registry.by_key((group, plural))
        return Call(self.api, self.request, resource, namespace, name)

    def not_found(self) -> ApiError:
        """No such object."""
        return not_found(self.resource.group, self.resource.plural, self.name)

    def already_exists(self, name: str) -> ApiError:
        """There is one."""
        return already_exists(self.resource.group, self.resource.plural, name)

    def conflict(self, why: str) -> ApiError:
        """It is not as supposed."""
        return conflict(self.resource.group, self.resource.plural, self.name, why)

    def forbidden(self, name: str, why: str) -> ApiError:
        """Admission refuses."""
        return forbidden(self.resource.group, self.resource.plural, name, why)
