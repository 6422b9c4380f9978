"""What an API server serves of what a scheduler would use, said at the start: which features are
on, and which definitions are missing, or older than this program.

Kinds that are not served are done without, and looked for again while running (reflect.py). Source:
aggregated discovery (KEP-3352), OpenAPI v3.
"""

import types
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from stower.live.access import AccessError
from stower.live.client import JSON, Client, Response
from stower.model.kinds import (
    KIND_BY_VIEW,
    CompositePodGroup,
    DeviceTaintRule,
    Kind,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
    VirtualMachineMigration,
    WarmPool,
)

OWN_GROUP: Final = "stower.dev"
AGGREGATED_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DEPTH_MAX: Final = 12


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: list[_Resource] = []


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    versions: list[_Version] = []


class _Groups(msgspec.Struct, frozen=True):
    items: list[_Group]


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    """What is looked at of a schema in OpenAPI."""

    properties: dict[str, "_Schema"] | None = None
    items: "_Schema | None" = None
    preserves_unknown_fields: bool = msgspec.field(
        default=False, name="x-kubernetes-preserve-unknown-fields"
    )


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, msgspec.Raw] = {}


class _OpenApi(msgspec.Struct, frozen=True):
    components: _Components = _Components()


T = TypeVar("T")


class Feature(NamedTuple):
    """Something that needs kinds which not every server has. `apply`: the folder of manifests that
    defines them, "" where they are Kubernetes' own."""

    name: str
    views: tuple[type[Any], ...]
    apply: str = ""


FEATURES: Final = (
    Feature("devices (ResourceClaims)", (ResourceClaim,)),
    Feature("device taint rules", (DeviceTaintRule,)),
    Feature("pod groups", (PodGroup,), "deploy/groups/crds"),
    Feature("composite groups", (CompositePodGroup,), "deploy/groups/crds"),
    Feature("negotiated devices", (ResourceClass, PodScheduling), "deploy/crds"),
    Feature("warm pools", (WarmPool,), "deploy/warm/crds"),
    Feature("migration of VMs", (VirtualMachineMigration,), "deploy/vms/crds"),
)


class FeatureReport(NamedTuple):
    """What came of a look. `on`, `off`: names of features; `faults`: what somebody should mend."""

    served: tuple[str, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]


async def check_features(client: Client, required_views: Iterable[type[Any]]) -> FeatureReport:
    """At a server. `wanted`: views of kinds that the configuration relies on."""
    needed = {*required_views}
    served = await _get_served_resources(client)
    if served is None:
        return FeatureReport((), (), ())
    on: list[str] = []
    off: list[str] = []
    faults: list[str] = []
    for feature in FEATURES:
        missing = [
            view for view in feature.views if _preferred_version(KIND_BY_VIEW[view], served) is None
        ]
        (off if missing else on).append(feature.name)
        if needed.intersection(missing):
            names = ", ".join(f"{k.plural}.{k.api_version}" for k in map(_kind, missing))
            hint = f"kubectl apply -k {feature.apply}" if feature.apply else "it is too old"
            faults.append(f"{feature.name}: {names} is not served: {hint}")
    faults += await _find_outdated_definitions(client, served)
    return FeatureReport(tuple(on), tuple(off), tuple(faults))


def _kind(view: type[Any]) -> Kind:
    return KIND_BY_VIEW[view]


def _preferred_version(kind: Kind, served: frozenset[tuple[str, str]]) -> str | None:
    """In which the kind is served, the one that is liked best."""
    versions = (kind.api_version, *kind.also)
    return next((v for v in versions if (v, kind.plural) in served), None)


async def _get(client: Client, path: str, response_type: type[T], accept: str = JSON) -> T | None:
    """What an answer says; None where there is none of this form."""
    try:
        answer: Response = await client.request("GET", path, accept=accept)
    except AccessError:
        return None
    return _decode(answer.body, response_type) if answer.status == 200 else None


def _decode(data: bytes, response_type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=response_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def _get_served_resources(client: Client) -> frozenset[tuple[str, str]] | None:
    """Resources by apiVersion; None where the server does not say."""
    found = set()
    for path in ("/api", "/apis"):
        listed = await _get(client, path, _Groups, AGGREGATED_DISCOVERY)
        if listed is None:
            return None
        for group in listed.items:
            name = group.metadata.name
            for version in group.versions:
                full = f"{name}/{version.version}" if name else version.version
                found |= {(full, one.resource) for one in version.resources}
    return frozenset(found)


async def _find_outdated_definitions(
    client: Client, served: frozenset[tuple[str, str]]
) -> list[str]:
    """Kinds of our own group whose definitions lack what is read or written here."""
    document = await _get(client, f"/openapi/v3/apis/{OWN_GROUP}/v1", _OpenApi)
    schemas = document.components.schemas if document is not None else {}
    faults = []
    for feature in FEATURES:
        for kind in map(_kind, feature.views):
            version = _preferred_version(kind, served)
            raw = schemas.get(f"dev.stower.v1.{kind.name}")
            schema = _decode(bytes(raw), _Schema) if raw is not None else None
            if version is None or not version.startswith(OWN_GROUP) or schema is None:
                continue
            lacks = [*_find_missing_fields(kind.view, schema, "", 0)]
            if lacks:
                named = ", ".join(lacks[:3])
                faults.append(
                    f"{kind.plural}.{OWN_GROUP} is older than this scheduler and has no {named}: "
                    f"kubectl apply -k {feature.apply}"
                )
    return faults


def _find_missing_fields(view: Any, schema: _Schema, path: str, depth: int) -> Iterator[str]:
    """Fields of the struct that the schema does not have. What keeps unknown fields has them all;
    `metadata` is every object's."""
    if schema.preserves_unknown_fields or depth > DEPTH_MAX:
        return
    properties = (schema.items or schema).properties
    if properties is None:
        return
    hints = get_type_hints(view)
    for field in msgspec.structs.fields(view):
        at = f"{path}.{field.encode_name}" if path else field.encode_name
        if at in ("metadata", "apiVersion", "kind"):
            continue
        if field.encode_name not in properties:
            yield at
            continue
        for inner in _find_struct_types(hints[field.name]):
            yield from _find_missing_fields(inner, properties[field.encode_name], at, depth + 1)


def _find_struct_types(hint: Any) -> Iterator[type[Any]]:
    """Struct types in an annotation that are its value, or the items of its list."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif get_origin(hint) in (Union, types.UnionType, tuple):
        for part in get_args(hint):
            yield from _find_struct_types(part)
