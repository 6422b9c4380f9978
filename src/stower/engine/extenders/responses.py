"""Answers of extenders as JSON, read into what they mean; whatever else they hold is an error.

Must not know of nodes, pods or talks. Source: k8s.io/kube-scheduler/extender/v1.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec

# Far beyond what any answer says, and such that sums of them are whole numbers of 64 bits.
NUMBER_MAX: Final = 1 << 40
T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]


class Named(msgspec.Struct, frozen=True):
    """An object's metadata."""

    name: str = ""


class NamedObject(msgspec.Struct, frozen=True):
    """An object of which only the name is read."""

    metadata: Named = Named()


class NodeList(msgspec.Struct, frozen=True):
    """Nodes, whole."""

    items: tuple[NamedObject, ...] | None = None


class FilterResult(msgspec.Struct, frozen=True):
    """ExtenderFilterResult."""

    nodes: NodeList | None = None
    nodenames: tuple[str, ...] | None = None
    failednodes: dict[str, str | None] | None = None
    failedandunresolvablenodes: dict[str, str | None] | None = None
    error: str | None = None

    def names(self, by_name: bool) -> tuple[str, ...]:
        """Of the nodes left. `by_name`: the extender is nodeCacheCapable and tells names alone."""
        if by_name and self.nodenames is not None:
            return self.nodenames
        items = self.nodes.items if self.nodes is not None else None
        return tuple(item.metadata.name for item in items or ())


class MetaPod(msgspec.Struct, frozen=True):
    """A pod by its uid."""

    uid: str = ""


class MetaVictims(msgspec.Struct, frozen=True):
    """Who leaves a node."""

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


class Unreadable(Exception):
    """The answer is of another form; the text says where."""


def read(body: bytes, form: type[T]) -> T:
    """The answer in this form, names of fields in any case. Raises Unreadable."""
    try:
        return msgspec.convert(_lowered(msgspec.json.decode(body)), form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"no answer that can be read: {error}") from None


# Names of fields that a Go program reads whatever their case; keys that are names stay as they are.
_NAMED_BY_NODE: Final = ("failednodes", "failedandunresolvablenodes", "nodenametometavictims")


def _lowered(value: Any, names: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            k if names else k.lower(): _lowered(v, not names and k.lower() in _NAMED_BY_NODE)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_lowered(v) for v in value]
    return value
