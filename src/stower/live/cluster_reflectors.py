"""The reflectors of all resources that scheduling reads: nodes, pods, and the background kinds.

Defines which resources these are, and which of them a server need not serve or show. Does not know
what happens to the objects.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from stower.live.availability import Availability
from stower.live.client import Client, collection_path
from stower.live.outages import Outages
from stower.live.reflector import Changes, MalformedObject, Reflector, TypedDecoder
from stower.model.kinds import (
    BACKGROUND,
    DEVICES,
    GROUPS,
    KINDS,
    NEGOTIATING,
    ApiObject,
    Kind,
    Node,
    Pod,
    VirtualMachine,
    VirtualMachineMigration,
    VolumeAttachment,
    WarmPool,
)

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
VMS: Final = (VirtualMachine, VirtualMachineMigration)
# Terminated pods hold no room.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
# If one of these kinds is not served, or this account may not list it, it counts as empty. Not
# every server serves them (though all serve VolumeAttachment), and a scheduler's role may be older
# than the kinds. Pods that need such objects wait, and nothing of the objects is allocated.
OPTIONAL_VIEWS: Final = (
    *DEVICES,
    *GROUPS,
    *NEGOTIATING,
    VirtualMachine,
    VirtualMachineMigration,
    WarmPool,
    VolumeAttachment,
)


def background_kinds(groups: bool, vms: bool, warm: bool) -> list[Kind]:
    """Returns the kinds besides nodes and pods that decisions depend on.

    `groups`, `vms`, `warm`: whether pod groups, VMs and their migrations, and WarmPools are among
    them.
    """
    kinds = [kind for kind in KINDS if kind.view in BACKGROUND]
    kinds = [kind for kind in kinds if groups or kind.view not in GROUPS]
    kinds = [kind for kind in kinds if vms or kind.view not in VMS]
    return [kind for kind in kinds if warm or kind.view is not WarmPool]


class ClusterReflectors:
    """Owns the reflectors of nodes, of pods that have not terminated, and of background kinds."""

    def __init__(
        self,
        client: Client,
        kinds: Sequence[Kind],
        rng: random.Random,
        required_views: Sequence[type] = (),
        *,
        on_list: Callable[[], None],
        on_changes: Callable[[Changes], None],
        on_malformed_pod: Callable[[MalformedObject, str], None],
        has_room: asyncio.Event,
        outages: Outages,
    ) -> None:
        """`kinds`: the background kinds; `required_views`: see Availability. The other parameters
        go to each Reflector (see there), `on_malformed_pod` to that of pods alone."""

        def make_reflector(path: str, view: type[Any], **options: Any) -> Reflector:
            return Reflector(
                client,
                path,
                TypedDecoder(view),
                rng,
                on_list=on_list,
                on_changes=on_changes,
                has_room=has_room,
                outages=outages,
                **options,
            )

        optional = [kind for kind in kinds if kind.view in OPTIONAL_VIEWS]
        self.availability = Availability(client, optional, rng, required_views, outages)
        self.nodes = make_reflector(NODES, Node)
        self.pods = make_reflector(PODS, Pod, selector=LIVE_PODS, on_malformed=on_malformed_pod)
        self._background = {
            kind: make_reflector(
                collection_path(kind),
                kind.view,
                available=self.availability.of(kind) if kind in optional else None,
            )
            for kind in kinds
        }

    def __iter__(self) -> Iterator[Reflector]:
        yield from (self.nodes, self.pods, *self._background.values())

    @property
    def have_synced(self) -> bool:
        """Whether all resources have been listed."""
        return all(reflector.has_synced for reflector in self)

    def objects(self) -> Iterator[ApiObject]:
        """Yields all observed objects: those of background kinds, then nodes, then pods."""
        for reflector in (*self._background.values(), self.nodes, self.pods):
            yield from reflector.objects.values()

    def api_versions(self) -> dict[type, str]:
        """Returns by view the apiVersion in which a kind is served, if that is not its own."""
        return {
            kind.view: version
            for kind, reflector in self._background.items()
            for version in kind.also
            if collection_path(kind, version=version) == reflector.path
        }
