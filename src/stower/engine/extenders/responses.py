"""Decodes extender responses; rejects every other shape.

Must not know nodes, pods or queries. Source: k8s.io/kube-scheduler/extender/v1.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec

# Far beyond any real score; sums of such numbers fit into 64 bits.
NUMBER_MAX: Final = 1 << 40
T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]


class ObjectName(msgspec.Struct, frozen=True):
    """The name in an object's metadata."""

    name: str = ""


class NamedObject(msgspec.Struct, frozen=True):
    """An object; only its name is decoded."""

    metadata: ObjectName = ObjectName()


class NodeList(msgspec.Struct, frozen=True):
    """A NodeList."""

    items: tuple[NamedObject, ...] | None = None


class FilterResult(msgspec.Struct, frozen=True):
    """ExtenderFilterResult."""

    nodes: NodeList | None = None
    nodenames: tuple[str, ...] | None = None
    failednodes: dict[str, str | None] | None = None
    failedandunresolvablenodes: dict[str, str | None] | None = None
    error: str | None = None

    def names(self, by_name: bool) -> tuple[str, ...]:
        """Returns the names of the nodes left. `by_name`: the extender is nodeCacheCapable, and
        sends names alone."""
        if by_name and self.nodenames is not None:
            return self.nodenames
        items = self.nodes.items if self.nodes is not None else None
        return tuple(item.metadata.name for item in items or ())


class MetaPod(msgspec.Struct, frozen=True):
    """A pod; only its uid is decoded."""

    uid: str = ""


class MetaVictims(msgspec.Struct, frozen=True):
    """The victims on a node."""

    pods: tuple[MetaPod, ...] | None = None
    numpdbviolations: Number | None = None


class PreemptionResult(msgspec.Struct, frozen=True):
    """ExtenderPreemptionResult."""

    nodenametometavictims: dict[str, MetaVictims] | None = None
    error: str | None = None


class HostPriority(msgspec.Struct, frozen=True):
    """A node's score."""

    host: str
    score: int


class BindingResult(msgspec.Struct, frozen=True):
    """ExtenderBindingResult."""

    error: str | None = None


class UnreadableResponse(Exception):
    """The response has another shape; the text names the field."""


def read_response(body: bytes, form: type[T]) -> T:
    """Decodes a response; field names match in any case, as in Go. Raises UnreadableResponse."""
    try:
        return msgspec.convert(_lower_names(msgspec.json.decode(body)), form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableResponse(f"invalid response: {error}") from None


# Fields whose keys are node names: their case stays.
_NAMED_BY_NODE: Final = ("failednodes", "failedandunresolvablenodes", "nodenametometavictims")


def _lower_names(value: Any, names: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            k if names else k.lower(): _lower_names(v, not names and k.lower() in _NAMED_BY_NODE)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_lower_names(v) for v in value]
    return value


def bind_error(body: bytes) -> str:
    """Returns the error of a response to the verb bind, or ""."""
    try:
        return read_response(body or b"{}", BindingResult).error or ""
    except UnreadableResponse as error:
        return str(error)
