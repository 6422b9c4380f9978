"""A driver that answers at once, and on some nodes never allocates."""

from collections.abc import Iterable

import msgspec

from stower.devices.negotiation.claims import is_pending
from stower.framework.writes import patch_of
from stower.model.kinds import Pod, PodScheduling, ResourceClaim
from stower.state.devices import distinct_claim_refs
from tests.negotiation.scenes import Scene


class Hanging:
    """Calls all nodes unsuitable but these: `good`, on which it allocates, and `hung`, on which it
    never does."""

    def __init__(self, scene: Scene, name: str, good: Iterable[str], hung: Iterable[str]) -> None:
        self._scene, self._name = scene, name
        self._good, self._hung = {*good}, {*hung}
        scene.class_of(name)
        scene.others.append(self.work)

    def work(self) -> bool:
        """Answers, or allocates. Returns whether there was something to do."""
        server = self._scene.server
        return any(self._deal_with(said) for said in [*server.all(PodScheduling).values()])

    def _deal_with(self, said: PodScheduling) -> bool:
        pod = self._scene.server.get(Pod, said.metadata.key)
        for ref in distinct_claim_refs(pod) if pod is not None and not pod.spec.node_name else ():
            claim = self._scene.server.get(ResourceClaim, f"default/{ref.name}")
            if claim is None or not is_pending(claim) or not self._is_own(claim):
                continue
            if self._answer(said, ref.entry_name, claim):
                return True
            if said.spec.selected_node in self._good and pod is not None:
                self._scene.allocate(
                    claim.metadata.name, said.spec.selected_node, pod.metadata.name,
                    driver=f"{self._name}.example.com",
                )  # fmt: skip
                return True
        return False

    def _is_own(self, claim: ResourceClaim) -> bool:
        (request,) = claim.spec.devices.requests or ()
        return request.exactly is not None and request.exactly.device_class_name == self._name

    def _answer(self, said: PodScheduling, entry: str, claim: ResourceClaim) -> bool:
        usable = self._good | self._hung
        bad = [name for name in said.spec.potential_nodes or () if name not in usable]
        own = {"name": entry, "claimUID": claim.metadata.uid, "unsuitableNodes": bad or None,
               "observedRound": said.spec.round}  # fmt: skip
        answers = msgspec.to_builtins(said.status.resource_claims or ())
        others = [answer for answer in answers if answer["name"] != entry]
        status = {"resourceClaims": [*others, own]}
        patch = patch_of(said, {"status": status}, "status")
        before = msgspec.convert(own, type(said.status.resource_claims[0])) if answers else None  # type: ignore[index]
        if before in (said.status.resource_claims or ()):
            return False
        self._scene.write(patch)
        return True
