"""Generates share IDs of allocated devices (KEP-5075): UUIDs derived from claim and version."""

from collections.abc import Callable
from hashlib import blake2b

from stower.model.kinds import ResourceClaim


def share_ids(claim: ResourceClaim) -> Callable[[int], str]:
    """Returns a function that returns the `shareID` of the claim's device with an index.

    IDs have the form of a version 4 UUID. No two are equal: another claim has another uid, and
    another allocation of the same claim another version. A claim that does not exist yet has no
    uid, but a unique name.
    """
    meta = claim.metadata

    def share_id(index: int) -> str:
        """Returns the ID of the device with this index."""
        key = f"{meta.uid or meta.key}\0{meta.resource_version}\0{index}".encode()
        digits = blake2b(key, digest_size=16).hexdigest()
        variant = "89ab"[int(digits[16], 16) % 4]
        parts = (digits[:8], digits[8:12], f"4{digits[13:16]}", f"{variant}{digits[17:20]}")
        return f"{'-'.join(parts)}-{digits[20:]}"

    return share_id
