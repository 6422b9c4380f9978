"""Makes the claims of generic ephemeral volumes for pods of files, as a cluster's controller would.

Source: pkg/controller/volume/ephemeral (KEP-1698).
"""

from collections.abc import Container, Iterator, Mapping

import msgspec

from stower.model.kinds import PersistentVolumeClaim, Pod
from stower.model.kinds.storage import ClaimSpec
from stower.model.meta import ObjectMeta
from stower.model.raw import decode
from stower.sim.claim_lifecycle import make_volume_claim


class ClaimTemplate(msgspec.Struct):
    """What the claim is made from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()


class _Source(msgspec.Struct, rename="camel"):
    volume_claim_template: ClaimTemplate = msgspec.field(default_factory=ClaimTemplate)


class _Volume(msgspec.Struct):
    name: str = ""
    ephemeral: _Source | None = None


class _Spec(msgspec.Struct):
    volumes: tuple[_Volume, ...] = ()


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def ephemeral_templates(data: bytes) -> dict[str, ClaimTemplate]:
    """Returns the templates of a pod's ephemeral volumes, by volume. Raises InvalidObject."""
    volumes = decode(data, _Pod).spec.volumes
    return {v.name: v.ephemeral.volume_claim_template for v in volumes if v.ephemeral is not None}


def ephemeral_claims(
    pod: Pod,
    templates: Mapping[str, ClaimTemplate],
    known: Container[tuple[str, str]],
    default_class: str,
) -> Iterator[PersistentVolumeClaim]:
    """Yields the claims that the pod's ephemeral volumes lack. `known`: kinds and keys of objects
    that are there; `default_class`: of claims that name none, "" for none."""
    for volume, template in templates.items():
        spec, meta = template.spec, template.metadata
        if spec.storage_class_name is None:
            spec = msgspec.structs.replace(spec, storage_class_name=default_class or None)
        claim = make_volume_claim(pod, volume, spec, meta.labels, meta.annotations)
        if (PersistentVolumeClaim.__name__, claim.key) not in known:
            yield claim
