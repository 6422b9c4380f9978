"""What the API server has answered to a write of a controller."""

from typing import Final, NamedTuple

from stower.controllers.objects import Object, name_of

NOT_FOUND: Final = 404


class WriteAnswer(NamedTuple):
    """The answer to a write of a controller."""

    kind: str  # the plural
    method: str
    target: Object | None  # as it was seen before, None of a creation
    status: int  # 0: there was no answer
    body: Object  # an object, or a Status that says what was wrong; empty where neither came

    @property
    def is_good(self) -> bool:
        """The write was carried out."""
        return 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """The object to write to was there no more."""
        return self.status == NOT_FOUND and self.method != "POST"

    @property
    def is_notable(self) -> bool:
        """Whether to record an Event. Users need not know of a write that nothing is known of, to
        an object that is gone, or that was refused because the namespace is terminating."""
        if self.is_good:
            return True
        causes = (self.body.get("details") or {}).get("causes") or ()
        is_closing = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
        return bool(self.status) and not self.is_gone and not is_closing

    @property
    def name(self) -> str:
        """The object's name; empty where the server was to make one and did not."""
        if self.target is not None:
            return name_of(self.target)
        found = self.body.get("metadata" if self.is_good else "details") or {}
        return str(found.get("name") or "")

    @property
    def failure(self) -> str:
        """Why the write was refused; empty where it was carried out."""
        return "" if self.is_good else str(self.body.get("message") or f"status {self.status}")
