"""Makes the claims of generic ephemeral volumes for pods of files, as a cluster's controller would.

Source: pkg/controller/volume/ephemeral (KEP-1698).
"""

from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from stower.cli.default_class import default_class
from stower.model.kinds import PersistentVolumeClaim, Pod, StorageClass
from stower.model.kinds.storage import ClaimSpec
from stower.model.meta import ObjectMeta, OwnerReference
from stower.model.raw import decode


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
    classes: Iterable[StorageClass],
) -> Iterator[PersistentVolumeClaim]:
    """Yields the claims that the pod's ephemeral volumes lack. `known`: kinds and keys of objects
    that are there."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    owner = OwnerReference("Pod", name, pod.metadata.uid, "v1", True)
    for volume, template in templates.items():
        key = f"{namespace}/{name}-{volume}"
        if ("PersistentVolumeClaim", key) in known:
            continue
        spec = template.spec
        if spec.storage_class_name is None:
            spec = msgspec.structs.replace(spec, storage_class_name=default_class(classes) or None)
        meta = ObjectMeta(
            f"{name}-{volume}", namespace, f"volume-claim/{key}", "1",
            labels=template.metadata.labels, annotations=template.metadata.annotations,
            owner_references=(owner,),
        )  # fmt: skip
        yield PersistentVolumeClaim(meta, spec)
