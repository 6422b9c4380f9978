"""What the API server has answered to a write of a controller."""

from typing import NamedTuple

from stower.controllers.objects import Object


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
