"""The workload controller of a run with faults: recreates pods that ended or were deleted.

It may be down; afterwards it catches up.
"""

import random
from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import PersistentVolumeClaim, Pod
from stower.model.kinds.storage import ClaimSpec
from stower.model.meta import ObjectMeta, OwnerReference
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.claims import Claims
from stower.sim.link import MILLI_NS
from stower.sim.nodes import Kubelets
from stower.sim.server import Change, Server
from stower.sim.storage_driver import CLASS
from stower.state.volumes import claims_of, is_made_for

REPLACE_NS: Final = (SECOND_NS // 10, 5 * SECOND_NS)


class PodTemplate(Protocol):
    """Pods that are alike."""

    @property
    def name(self) -> str:
        """Their label `app`."""

    @property
    def spec(self) -> dict[str, Any]:
        """Of each."""

    @property
    def is_replaced(self) -> bool:
        """Whether one that is gone is made anew."""

    @property
    def claim(self) -> dict[str, Any] | None:
        """The spec of the claims that are made for each."""

    @property
    def claims(self) -> dict[str, dict[str, Any]] | None:
        """The same by entry, where they differ."""

    @property
    def gives_up_ms(self) -> int:
        """After how long one without a node is deleted, 0 for never."""


class Controller:
    """Of all templates of a run."""

    def __init__(
        self,
        agenda: Agenda,
        server: Server,
        kubelets: Kubelets,
        templates: Iterable[PodTemplate],
        seed: str,
        active_ns: int,
        claims: Claims,
    ) -> None:
        """`active_ns`: until when pods are replaced; `claims`: who makes claims for devices."""
        self._claims = claims
        self._agenda = agenda
        self._server = server
        self._kubelets = kubelets
        self._templates = {template.name: template for template in templates}
        self._seed = seed
        self._active_ns = active_ns
        self._made = 0
        self._is_up = True
        self._missed: list[Pod] = []
        server.tell.append(self._on_change)

    def scale_up(self, template: str, priority: int, lasts_ns: int) -> None:
        """One pod more. What is of no template is left alone."""
        found = self._templates.get(template)
        if found is None:
            return
        self._made += 1
        document = {
            "metadata": {"name": f"{template}-{self._made}", "namespace": "default",
                         "uid": f"uid-{self._made}", "labels": {"app": template}},
            "spec": {**found.spec, "priority": priority},
            "status": {"phase": "Pending"},
        }  # fmt: skip
        pod = msgspec.convert(document, Pod)
        if lasts_ns:
            self._kubelets.lifetime_ns[pod.metadata.uid] = lasts_ns
        self._server.put(pod)
        if found.gives_up_ms:
            self._agenda.schedule_after(found.gives_up_ms * MILLI_NS, lambda: self._give_up(pod))
        for name, is_ephemeral in claims_of(pod):
            if is_ephemeral:
                self._server.put(_claim(pod, name))
        specs = found.claims or {}
        if found.claim is not None:
            entries = pod.spec.resource_claims or ()
            specs = {entry.name: found.claim for entry in entries}
        if specs:
            self._claims.make(pod, specs)

    def _give_up(self, pod: Pod) -> None:
        """Its user has waited long enough, if it has no node."""
        if pod.metadata.key in self._server.pods_on(""):
            self._server.delete_pod(pod)

    def stop(self) -> None:
        """It is down: what is gone meanwhile is not replaced yet."""
        self._is_up = False

    def start(self) -> None:
        """It is back, and sees what is missing."""
        self._is_up = True
        missed, self._missed = self._missed, []
        for pod in missed:
            self._replace(pod)

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if kind is not WatchType.DELETED or not isinstance(obj, Pod):
            return
        for name, _ in claims_of(obj):
            claim = self._server.get(PersistentVolumeClaim, f"{obj.metadata.namespace}/{name}")
            if claim is not None and is_made_for(claim, obj):
                self._agenda.schedule_after(0, lambda claim=claim: self._server.remove(claim))  # type: ignore[misc]
        template = self._templates.get((obj.metadata.labels or {}).get("app", ""))
        if template is None or not template.is_replaced or self._agenda.now_ns >= self._active_ns:
            return
        if self._is_up:
            self._replace(obj)
        else:
            self._missed.append(obj)

    def _replace(self, pod: Pod) -> None:
        """By one like it, which takes a while."""
        template = (pod.metadata.labels or {})["app"]
        # Of its own: a run with fewer pods is the same for the others.
        chance = random.Random(f"{self._seed}:{pod.metadata.uid}")
        lasts_ns = self._kubelets.lifetime_ns.get(pod.metadata.uid, 0)
        self._agenda.schedule_after(
            chance.randint(*REPLACE_NS), lambda: self.scale_up(template, pod.priority, lasts_ns)
        )


def _claim(pod: Pod, name: str) -> PersistentVolumeClaim:
    """A claim of the pod's own, for a volume that is made for it (KEP-1698)."""
    owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", True)
    meta = ObjectMeta(
        name, pod.metadata.namespace, f"claim-of-{pod.metadata.uid}", owner_references=(owner,)
    )
    return PersistentVolumeClaim(meta, ClaimSpec(("ReadWriteOnce",), storage_class_name=CLASS))
