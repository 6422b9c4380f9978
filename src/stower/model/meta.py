"""Metadata of API objects: names, labels, owner references; keys derived from them."""

import msgspec

from stower.model.numbers import Int64


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The object that this one belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Names, version and labels. Times are RFC 3339 text, as sent."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """namespace/name, or the name alone where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages the object."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    @property
    def controller_uid(self) -> str:
        """Its uid, or ""."""
        owner = self.controller
        return owner.uid if owner is not None else ""
