"""Decides which objects of a resource a list or watch selects."""

from stower.api.registry import Resource
from stower.api.requests import ListOptions
from stower.api.selectors import (
    FieldRequirement,
    Selector,
    check_custom_fields,
    check_fields,
    matches,
    parse_fields,
    parse_labels,
)
from stower.api.store import Record


class Selection:
    """A namespace, a name, a label selector and a field selector; an empty one selects all."""

    __slots__ = ("custom", "fields", "labels", "name", "namespace")

    def __init__(self, resource: Resource, namespace: str, name: str, options: ListOptions) -> None:
        """Raises ApiError 400 for selectors that cannot be parsed or fields that are not served."""
        self.namespace = namespace
        self.labels: Selector = parse_labels(options.labels) if options.labels else ()
        self.fields: tuple[FieldRequirement, ...] = ()
        self.name = name
        self.custom = resource.custom  # whose versions have fields of their own
        if options.fields:
            self.fields = parse_fields(options.fields)
            if resource.custom is not None:
                check_custom_fields(self.fields, resource.custom.selectable, resource.namespaced)
            else:
                check_fields(self.fields, resource.key, resource.group)

    def __bool__(self) -> bool:
        """Whether the selection leaves any object out."""
        return bool(self.namespace or self.labels or self.fields or self.name)

    def selects(self, record: Record) -> bool:
        """Returns whether the object is selected."""
        key = record.key
        if self.namespace and not key.startswith(f"{self.namespace}/"):
            return False
        if self.name and key.rpartition("/")[2] != self.name:
            return False
        if self.labels and not matches(self.labels, record.labels):
            return False
        for field, equal, value in self.fields:
            if field == "metadata.name":
                found = record.key.rpartition("/")[2]
            elif field == "metadata.namespace":
                found = record.key.rpartition("/")[0]
            elif self.custom is not None:
                found = self.custom.select_text(record.decode(), field)
            else:
                found = record.fields.get(field, "")
            if (found == value) != equal:
                return False
        return True
