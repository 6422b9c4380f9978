"""Orders suitable devices at random, with equal chances, without a generator.

The order is by a hash of the device's name and the claims' uids, so that the same claims get the
same devices from every engine with the same state.
"""

from collections.abc import Iterable
from hashlib import blake2b

from stower.devices.allocator import Candidate, Prefer
from stower.devices.capacity import Amount
from stower.devices.fit_cache import Rules
from stower.devices.requests import Alternative
from stower.model.kinds import ResourceClaim


def random_rank(alternative: Alternative, candidate: Candidate, amounts: dict[str, Amount]) -> int:
    """All are alike as long as nobody in particular asks: whether there are devices does not depend
    on their order."""
    return 0


def with_random_order(rules: Rules, claims: Iterable[ResourceClaim]) -> Rules:
    """The rules with an order of these claims' own, if it is by chance."""
    if rules.prefer is not random_rank:
        return rules
    return rules._replace(
        prefer=_make_random_rank(" ".join(claim.metadata.uid for claim in claims))
    )


def _make_random_rank(uids: str) -> Prefer:
    def number(alternative: Alternative, candidate: Candidate, amounts: dict[str, Amount]) -> bytes:
        return blake2b(f"{uids} {candidate.record.key}".encode(), digest_size=8).digest()

    return number
