"""What Kubernetes 1.37 serves of groups of pods, in place of 1.36's v1alpha2: Workload and PodGroup
in scheduling.k8s.io/v1beta1 and v1alpha3, CompositePodGroup in v1alpha3.

Both versions of a kind have the same fields, and one store. The rest of 1.37's API is not here.
Source: staging/src/k8s.io/api/scheduling, Kubernetes 1.37; KEP-6012, KEP-5832.
"""

from typing import Final

from stower.api.registry import Registry, Resource
from stower.api.schema_parts import (
    INT32,
    META,
    TEXT,
    Object,
    atomic,
    by_key,
    columns,
    conditions,
    entry,
    ref,
    struct,
)

GROUP: Final = "scheduling.k8s.io"
BETA: Final = "v1beta1"
ALPHA: Final = "v1alpha3"
_WORKLOADS: Final = entry("Workload", "workloads", "Namespaced", status=False)
_POD_GROUPS: Final = entry("PodGroup", "podgroups", "Namespaced")
_COMPOSITES: Final = entry("CompositePodGroup", "compositepodgroups", "Namespaced")
SERVED: Final = (
    (BETA, _WORKLOADS), (BETA, _POD_GROUPS),
    (ALPHA, _WORKLOADS), (ALPHA, _POD_GROUPS), (ALPHA, _COMPOSITES),
)  # fmt: skip

_NAME: Final = ("Name", "Name must be unique within a namespace.")
_AGE: Final = ("Age", "When the object was created.")
_OF_GROUPS: Final = columns(
    (
        _NAME,
        ("Policy", "Basic, or Gang: all at once or none."),
        ("Workload", "Name of the referenced Workload object"),
        ("Status", "Whether the group was scheduled."),
        _AGE,
    )
)
_COLUMNS: Final = {
    "workloads": columns((_NAME, _AGE)),
    "podgroups": _OF_GROUPS,
    "compositepodgroups": _OF_GROUPS,
}


def _definitions(base: str) -> dict[str, Object]:
    """All types of one version."""

    def own(name: str) -> Object:
        return ref(base + name)

    def kind(name: str, **parts: Object) -> Object:
        meta, spec = ref(f"{META}ObjectMeta"), own(f"{name}Spec")
        return struct(("spec",), apiVersion=TEXT, kind=TEXT, metadata=meta, spec=spec, **parts)

    def kinds(name: str) -> Object:
        items = {"type": "array", "items": own(name)}
        meta = ref(f"{META}ListMeta")
        return struct(("items",), apiVersion=TEXT, kind=TEXT, metadata=meta, items=items)

    shared = {
        "schedulingConstraints": own("PodGroupSchedulingConstraints"),
        "disruptionMode": own("DisruptionMode"),
        "priorityClassName": TEXT,
        "priority": INT32,
        "preemptionPolicy": TEXT,
    }
    of_pods = {
        **shared,
        "schedulingPolicy": own("PodGroupSchedulingPolicy"),
        "resourceClaims": by_key(own("PodGroupResourceClaim"), "name", "merge,retainKeys"),
    }
    of_groups = {**shared, "schedulingPolicy": own("CompositePodGroupSchedulingPolicy")}
    templates = {
        "podGroupTemplates": by_key(own("PodGroupTemplate"), "name"),
        "compositePodGroupTemplates": by_key(own("CompositePodGroupTemplate"), "name"),
    }
    place = {
        "parentCompositePodGroupName": TEXT,
        "workloadRef": own("WorkloadReference"),
    }
    made = {
        "Workload": kind("Workload"),
        "WorkloadList": kinds("Workload"),
        "WorkloadSpec": struct((), controllerRef=own("TypedLocalObjectReference"), **templates),
        "PodGroup": kind("PodGroup", status=own("PodGroupStatus")),
        "PodGroupList": kinds("PodGroup"),
        "PodGroupSpec": struct(("schedulingPolicy",), **place, **of_pods),
        "PodGroupStatus": struct(
            conditions=conditions(),
            resourceClaimStatuses=by_key(
                own("PodGroupResourceClaimStatus"), "name", "merge,retainKeys"
            ),
        ),
        "PodGroupTemplate": struct(("name", "schedulingPolicy"), name=TEXT, **of_pods),
        "PodGroupResourceClaim": struct(
            ("name",), name=TEXT, resourceClaimName=TEXT, resourceClaimTemplateName=TEXT
        ),
        "PodGroupResourceClaimStatus": struct(("name",), name=TEXT, resourceClaimName=TEXT),
        "PodGroupSchedulingConstraints": struct(topology=atomic(own("TopologyConstraint"))),
        "PodGroupSchedulingPolicy": struct(basic=own("Empty"), gang=own("GangSchedulingPolicy")),
        "GangSchedulingPolicy": struct(("minCount",), minCount=INT32),
        "CompositePodGroupTemplate": struct(
            ("name", "schedulingPolicy"), name=TEXT, **of_groups, **templates
        ),
        "CompositePodGroupSchedulingPolicy": struct(
            basic=own("Empty"), gang=own("CompositeGangSchedulingPolicy")
        ),
        "CompositeGangSchedulingPolicy": struct(("minGroupCount",), minGroupCount=INT32),
        "DisruptionMode": struct(single=own("Empty"), all=own("Empty")),
        "TopologyConstraint": struct(("key",), key=TEXT),
        "TypedLocalObjectReference": struct(("kind", "name"), apiGroup=TEXT, kind=TEXT, name=TEXT),
        "WorkloadReference": struct(
            ("workloadName", "templateName"), workloadName=TEXT, templateName=TEXT
        ),
        "Empty": struct(),
    }
    if base.endswith(f".{ALPHA}."):
        made |= {
            "CompositePodGroup": kind("CompositePodGroup", status=own("CompositePodGroupStatus")),
            "CompositePodGroupList": kinds("CompositePodGroup"),
            "CompositePodGroupSpec": struct(
                ("schedulingPolicy", "workloadRef"), **place, **of_groups
            ),
            "CompositePodGroupStatus": struct(conditions=conditions()),
        }
    return {base + name: definition for name, definition in made.items()}


# Which fields are pointers and which values; see tools/make_api_tables.py.
_FACTS: Final = {
    "Workload": "metadata:s spec:s",
    "WorkloadList": "metadata:s",
    "PodGroup": "metadata:s spec:s status:s",
    "PodGroupList": "metadata:s",
    "PodGroupSpec": "parentCompositePodGroupName:p priority:p preemptionPolicy:p "
    "schedulingPolicy:s",
    "PodGroupTemplate": "priority:p preemptionPolicy:p schedulingPolicy:s",
    "PodGroupResourceClaim": "resourceClaimName:p resourceClaimTemplateName:p",
    "PodGroupResourceClaimStatus": "resourceClaimName:p",
    "CompositePodGroup": "metadata:s spec:s status:s",
    "CompositePodGroupList": "metadata:s",
    "CompositePodGroupSpec": "parentCompositePodGroupName:p priority:p preemptionPolicy:p "
    "schedulingPolicy:s",
    "CompositePodGroupTemplate": "priority:p preemptionPolicy:p schedulingPolicy:s",
}


def serve_pod_groups(registry: Registry) -> None:
    """Serve them, and v1alpha2 no longer."""
    for plural in ("workloads", "podgroups"):
        registry.remove(GROUP, plural)
    for version, served in SERVED:
        base = f"io.k8s.api.scheduling.{version}."
        kind, plural = served["responseKind"]["kind"], served["resource"]
        if base + kind not in registry.schema.definitions:
            definitions = _definitions(base)
            facts = {base + n: row for n, row in _FACTS.items() if base + n in definitions}
            registry.schema.add(definitions, facts)
        registry.kinds[f"{GROUP}/{version}/{kind}"] = base + kind
        registry.kinds[f"{GROUP}/{version}/{kind}List"] = f"{base}{kind}List"
        resource = Resource(GROUP, version, served, registry.schema.type_of(base + kind))
        resource.columns = _COLUMNS[plural]
        registry.add(resource)
