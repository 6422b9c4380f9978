"""Types of what `stower explain pod --output json` prints: the explanation of the engine, who
negotiates for the pod's devices, and what a running scheduler knows of the pod.
"""

import msgspec

from stower.devices.negotiation.overview import Negotiation
from stower.engine.explain.explanation import Explanation


class LastAttempt(msgspec.Struct, frozen=True):
    """An attempt of a running scheduler."""

    outcome: str
    node: str = ""
    message: str = ""
    nominated: str = ""
    victims: tuple[str, ...] = ()
    scores: dict[str, int] = {}


class KnownPod(msgspec.Struct, frozen=True, rename="camel"):
    """What a running scheduler knows of a pod."""

    place: str
    attempts: int = 0
    refused_by: tuple[str, ...] = ()
    awaits_victims: int = 0
    decisions: tuple[LastAttempt, ...] = ()


class ExplainedPod(Explanation, frozen=True, rename="camel"):
    """The explanation of a pod. `negotiation`: where its devices are negotiated; `scheduler`: with
    --port."""

    negotiation: Negotiation | msgspec.UnsetType = msgspec.UNSET
    scheduler: KnownPod | msgspec.UnsetType = msgspec.UNSET
