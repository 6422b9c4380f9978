"""Answers discovery requests: the served groups and resources, plain and aggregated; the version.

Source: KEP-3352 for the aggregated form.
"""

from typing import Any, Final

from stower.api import health
from stower.api.content_negotiation import not_acceptable
from stower.api.registry import Registry, Resource
from stower.api.requests import Request, Response, answer, encode

Object = dict[str, Any]
AGGREGATED: Final = "APIGroupDiscoveryList"
AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(request: Request) -> bool:
    """Whether the client takes the aggregated form. Raises ApiError 406."""
    if not request.accept:
        return False
    for media in request.accept.split(","):
        kind, *parameters = (p.strip() for p in media.split(";"))
        named = dict(p.split("=", 1) for p in parameters if "=" in p)
        if kind not in ("application/json", "*/*", "application/*", "application/yaml"):
            continue
        if named.get("as") == AGGREGATED:
            if named.get("g") == "apidiscovery.k8s.io" and named.get("v") == "v2":
                return True
        elif "as" not in named:
            return False
    raise not_acceptable(request)


def aggregate(registry: Registry, root: str) -> Response:
    """Everything under /api or /apis in one answer."""
    items = [
        _group(registry, group) for group in registry.groups if (group == "") == (root == "/api")
    ]
    body = {
        "kind": AGGREGATED,
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }
    return Response(200, [encode(body)], content_type=AGGREGATED_TYPE)


def _group(registry: Registry, group: str) -> Object:
    versions = [
        {
            "version": version,
            "resources": [r.entry for r in _resources(registry, group, version)],
            "freshness": "Current",
        }
        for version in registry.groups[group]
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _resources(registry: Registry, group: str, version: str) -> list[Resource]:
    return [r for r in registry.resources() if (r.group, r.version) == (group, version)]


def api_versions(request: Request) -> Response:
    """/api in the plain form."""
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": request.server}
    return answer(
        200,
        {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]},
    )


def _group_versions(registry: Registry, group: str) -> Object:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in registry.groups[group]
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_groups(registry: Registry) -> Response:
    """/apis in the plain form."""
    groups = [_group_versions(registry, group) for group in registry.groups if group]
    return answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def api_group(registry: Registry, group: str) -> Response | None:
    """/apis/GROUP."""
    if not group or group not in registry.groups:
        return None
    found = _group_versions(registry, group)
    return answer(200, {"kind": "APIGroup", "apiVersion": "v1", **found})


def api_resources(registry: Registry, group: str, version: str) -> Response | None:
    """/api/v1 or /apis/GROUP/VERSION in the plain form."""
    if version not in registry.groups.get(group, ()):
        return None
    listed: list[Object] = []
    for resource in _resources(registry, group, version):
        listed.append(_plain(resource))
        for sub in resource.subresources.values():
            entry = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": list(sub.verbs),
            }
            if sub.group or sub.version:
                entry |= {"group": sub.group, "version": sub.version}
            listed.append(entry)
    listed.sort(key=lambda r: r["name"])
    return answer(
        200,
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": listed,
        },
    )


def _plain(resource: Resource) -> Object:
    entry = resource.entry
    kind = entry["responseKind"]
    found = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if kind["group"] or kind["version"]:
        found |= {"group": kind["group"], "version": kind["version"]}
    for name in ("shortNames", "categories"):
        if entry.get(name):
            found[name] = entry[name]
    return found


def version(registry: Registry) -> Response:
    """/version."""
    major, minor = registry.version.split(".")[:2]
    return answer(
        200,
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{major}.{minor}.0+stower",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "",
        },
    )


def paths(registry: Registry) -> Response:
    """What is served, for whoever asks at the door."""
    found = ["/api", "/api/v1", "/apis"]
    for group, versions in registry.groups.items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{v}" for v in versions)]
    found += [*health.PATHS, *health.CHECK_PATHS, "/openapi/v2", "/openapi/v3", "/version"]
    return answer(200, {"paths": sorted(found)})
