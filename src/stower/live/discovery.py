"""Checks at the start which features an API server supports, and which CustomResourceDefinitions
are missing or lack fields that this program uses.

The scheduler runs without kinds that are not served; the reflector looks for them again
(reflector.py). Source: aggregated discovery (KEP-3352), OpenAPI v3.
"""

import types
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from stower.live.access import AccessError
from stower.live.client import JSON, Client, Response, read_json
from stower.model.kinds import (
    KIND_BY_VIEW,
    CompositePodGroup,
    DeviceTaintRule,
    Kind,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
    VirtualMachine,
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
    """The fields of an OpenAPI schema that a check needs."""

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
# Resources that a server serves: apiVersion and plural.
Served = frozenset[tuple[str, str]]


class Feature(NamedTuple):
    """A feature that needs kinds which not every server serves. `apply`: the folder of manifests
    that defines them; "" for Kubernetes' own kinds. `rights`: that of the scheduler's rights to
    them."""

    name: str
    views: tuple[type[Any], ...]
    apply: str = ""
    rights: str = "deploy/scheduler"


FEATURES: Final = (
    Feature("devices (ResourceClaims)", (ResourceClaim,)),
    Feature("device taint rules", (DeviceTaintRule,)),
    Feature("pod groups", (PodGroup,), "deploy/groups/crds", "deploy/groups"),
    Feature("composite groups", (CompositePodGroup,), "deploy/groups/crds", "deploy/groups"),
    Feature(
        "negotiated devices", (ResourceClass, PodScheduling), "deploy/crds", "deploy/negotiation"
    ),
    Feature("warm pools", (WarmPool,), "deploy/warm/crds", "deploy/warm"),
    Feature(
        "VMs and their migrations",
        (VirtualMachine, VirtualMachineMigration),
        "deploy/vms/crds",
        "deploy/vms",
    ),
)


class FeatureReport(NamedTuple):
    """The result of a check. `served`, `missing`: names of features; `problems`: what to repair."""

    served: tuple[str, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]


async def check_features(
    client: Client, served: Served | None, required_views: Iterable[type[Any]]
) -> FeatureReport:
    """Returns which features the server supports; empty if it does not answer discovery.

    `served`: see `get_served_resources`; `required_views`: views of the kinds that the
    configuration relies on.
    """
    required = {*required_views}
    if served is None:
        return FeatureReport((), (), ())
    served_features: list[str] = []
    missing_features: list[str] = []
    problems: list[str] = []
    for feature in FEATURES:
        missing_views = [
            view for view in feature.views if _preferred_version(KIND_BY_VIEW[view], served) is None
        ]
        (missing_features if missing_views else served_features).append(feature.name)
        if required.intersection(missing_views):
            names = ", ".join(
                f"{kind.plural}.{kind.api_version}" for kind in map(_kind, missing_views)
            )
            hint = (
                f"kubectl apply -k {feature.apply}"
                if feature.apply
                else "use a newer server, or enable the API"
            )
            problems.append(f"{feature.name}: the API server does not serve {names}: {hint}")
    problems += await _find_outdated_definitions(client, served)
    return FeatureReport(tuple(served_features), tuple(missing_features), tuple(problems))


def _kind(view: type[Any]) -> Kind:
    return KIND_BY_VIEW[view]


def _preferred_version(kind: Kind, served: Served) -> str | None:
    """Returns the most preferred apiVersion in which the kind is served, or None."""
    versions = (kind.api_version, *kind.also)
    return next((version for version in versions if (version, kind.plural) in served), None)


async def _get(client: Client, path: str, response_type: type[T], accept: str = JSON) -> T | None:
    """Sends a GET and returns the decoded body; None if there is none of this type."""
    try:
        answer: Response = await client.request("GET", path, accept=accept)
    except AccessError:
        return None
    return answer.read(response_type)


async def get_served_resources(client: Client) -> Served | None:
    """Returns the served resources as apiVersion and plural; None if the server does not answer
    discovery."""
    resources = set()
    for path in ("/api", "/apis"):
        groups = await _get(client, path, _Groups, AGGREGATED_DISCOVERY)
        if groups is None:
            return None
        for group in groups.items:
            name = group.metadata.name
            for version in group.versions:
                api_version = f"{name}/{version.version}" if name else version.version
                resources |= {(api_version, resource.resource) for resource in version.resources}
    return frozenset(resources)


async def _find_outdated_definitions(client: Client, served: Served) -> list[str]:
    """Returns a problem for each definition of our own group that lacks fields which this program
    reads or writes."""
    document = await _get(client, f"/openapi/v3/apis/{OWN_GROUP}/v1", _OpenApi)
    schemas = document.components.schemas if document is not None else {}
    problems = []
    for feature in FEATURES:
        for kind in map(_kind, feature.views):
            version = _preferred_version(kind, served)
            raw = schemas.get(f"dev.stower.v1.{kind.name}")
            schema = read_json(bytes(raw), _Schema) if raw is not None else None
            if version is None or not version.startswith(OWN_GROUP) or schema is None:
                continue
            missing_fields = [*_find_missing_fields(kind.view, schema, "", 0)]
            if missing_fields:
                names = ", ".join(missing_fields[:3])
                problems.append(
                    f"the definition of {kind.plural}.{OWN_GROUP} is outdated and lacks {names}: "
                    f"kubectl apply -k {feature.apply}"
                )
    return problems


def _find_missing_fields(view: Any, schema: _Schema, path: str, depth: int) -> Iterator[str]:
    """Yields the paths of fields that the struct has and the schema lacks.

    A schema that preserves unknown fields lacks none. `metadata`, `apiVersion` and `kind` are part
    of every object and not looked at.
    """
    if schema.preserves_unknown_fields or depth > DEPTH_MAX:
        return
    properties = (schema.items or schema).properties
    if properties is None:
        return
    hints = get_type_hints(view)
    for field in msgspec.structs.fields(view):
        field_path = f"{path}.{field.encode_name}" if path else field.encode_name
        if field_path in ("metadata", "apiVersion", "kind"):
            continue
        if field.encode_name not in properties:
            yield field_path
            continue
        for struct_type in _find_struct_types(hints[field.name]):
            yield from _find_missing_fields(
                struct_type, properties[field.encode_name], field_path, depth + 1
            )


def _find_struct_types(hint: Any) -> Iterator[type[Any]]:
    """Yields the struct types of an annotation: of the value itself, or of its items."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif get_origin(hint) in (Union, types.UnionType, tuple):
        for member in get_args(hint):
            yield from _find_struct_types(member)
