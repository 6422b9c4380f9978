"""Stores the API objects that a driver's controller watches, in the versions that the watch last
delivered, with an index from claims to pods.

Must not know rules, operations or the ledger.
"""

from collections.abc import Sequence

from stower.model.kinds import ApiObject, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.state.devices import claim_keys

Key = tuple[type, str]  # view, and namespace/name


class Objects:
    """The watched objects by kind and key; implements rules.ObjectReader."""

    def __init__(self) -> None:
        self.by_key: dict[Key, ApiObject] = {}
        self.classes: dict[str, ResourceClass] = {}
        self._users: dict[str, dict[str, None]] = {}

    def put(self, obj: ApiObject) -> None:
        key = (type(obj), obj.metadata.key)
        old = self.by_key.get(key)
        if isinstance(old, Pod):
            self._use(old, False)
        self.by_key[key] = obj
        if isinstance(obj, ResourceClass):
            self.classes[obj.metadata.name] = obj
        elif isinstance(obj, Pod):
            self._use(obj, True)

    def drop(self, obj: ApiObject) -> None:
        old = self.by_key.pop((type(obj), obj.metadata.key), None)
        if isinstance(old, Pod):
            self._use(old, False)
        elif isinstance(old, ResourceClass):
            del self.classes[old.metadata.name]

    def _use(self, pod: Pod, uses: bool) -> None:
        for claim in claim_keys(pod):
            users = self._users.setdefault(claim, {})
            if uses:
                users[pod.metadata.key] = None
            else:
                users.pop(pod.metadata.key, None)
                if not users:
                    del self._users[claim]

    def pod(self, key: str) -> Pod | None:
        found = self.by_key.get((Pod, key))
        return found if isinstance(found, Pod) else None

    def claim(self, key: str) -> ResourceClaim | None:
        found = self.by_key.get((ResourceClaim, key))
        return found if isinstance(found, ResourceClaim) else None

    def claims(self) -> list[ResourceClaim]:
        """Returns all ResourceClaims."""
        return [obj for obj in self.by_key.values() if isinstance(obj, ResourceClaim)]

    def scheduling(self, key: str) -> PodScheduling | None:
        found = self.by_key.get((PodScheduling, key))
        return found if isinstance(found, PodScheduling) else None

    def pods_of(self, claim_key: str) -> Sequence[str]:
        return [*self._users.get(claim_key, ())]
