"""Ids of shares: UUIDs that a claim, and the version of it that was decided on, determine."""

from collections.abc import Callable
from hashlib import blake2b

from stower.model.kinds import ResourceClaim


def share_ids(claim: ResourceClaim) -> Callable[[int], str]:
    """The id of the claim's n-th device (KEP-5075 `shareID`): of the form of a UUID of version 4.

    No two are alike: another claim has another uid, another allocation of it another version. One
    that is still to be made has no uid, and a name of its own.
    """
    meta = claim.metadata

    def share_id(number: int) -> str:
        key = f"{meta.uid or meta.key}\0{meta.resource_version}\0{number}".encode()
        digits = blake2b(key, digest_size=16).hexdigest()
        variant = "89ab"[int(digits[16], 16) % 4]
        parts = (digits[:8], digits[8:12], f"4{digits[13:16]}", f"{variant}{digits[17:20]}")
        return f"{'-'.join(parts)}-{digits[20:]}"

    return share_id
