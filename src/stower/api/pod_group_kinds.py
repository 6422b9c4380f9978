"""Serves the kinds of Kubernetes 1.37 for groups of pods, in place of v1alpha2 of Kubernetes 1.36.

Workload and PodGroup are in scheduling.k8s.io/v1beta1 and v1alpha3, CompositePodGroup is in
v1alpha3. Both versions of a kind have the same fields, and one store. The rest of 1.37's API is
not included. Source: staging/src/k8s.io/api/scheduling, Kubernetes 1.37; KEP-6012, KEP-5832.
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
        (
            "Policy",
            "The scheduling policy: Basic, or Gang (a minimum of members together, or none).",
        ),
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


class _Version:
    """Builds the definitions of one version. `base`: the prefix of the names of its types."""

    def __init__(self, base: str) -> None:
        self.base = base
        shared = {
            "schedulingConstraints": self._own("PodGroupSchedulingConstraints"),
            "disruptionMode": self._own("DisruptionMode"),
            "priorityClassName": TEXT,
            "priority": INT32,
            "preemptionPolicy": TEXT,
        }
        self._of_pods = {
            **shared,
            "schedulingPolicy": self._own("PodGroupSchedulingPolicy"),
            "resourceClaims": self._list("PodGroupResourceClaim", "merge,retainKeys"),
        }
        policy = self._own("CompositePodGroupSchedulingPolicy")
        self._of_groups = {**shared, "schedulingPolicy": policy}
        self._templates = {
            "podGroupTemplates": self._list("PodGroupTemplate"),
            "compositePodGroupTemplates": self._list("CompositePodGroupTemplate"),
        }
        self._place = {
            "parentCompositePodGroupName": TEXT,
            "workloadRef": self._own("WorkloadReference"),
        }

    def definitions(self) -> dict[str, Object]:
        """Returns all types of the version. CompositePodGroup is in v1alpha3 alone."""
        made = {**self._workloads(), **self._pod_groups(), **self._parts()}
        if self.base.endswith(f".{ALPHA}."):
            made |= self._composites()
        return {self.base + name: definition for name, definition in made.items()}

    def _own(self, name: str) -> Object:
        """Returns a reference to a type of the same version."""
        return ref(self.base + name)

    def _list(self, name: str, strategy: str = "") -> Object:
        """Returns a list of a type of the same version, keyed by the name of its items."""
        return by_key(self._own(name), "name", strategy)

    def _kind(self, name: str, **parts: Object) -> dict[str, Object]:
        """Returns a kind and the list of its objects."""
        meta, spec = ref(f"{META}ObjectMeta"), self._own(f"{name}Spec")
        kind = struct(("spec",), apiVersion=TEXT, kind=TEXT, metadata=meta, spec=spec, **parts)
        items = {"type": "array", "items": self._own(name)}
        meta = ref(f"{META}ListMeta")
        listed = struct(("items",), apiVersion=TEXT, kind=TEXT, metadata=meta, items=items)
        return {name: kind, f"{name}List": listed}

    def _workloads(self) -> dict[str, Object]:
        controller = self._own("TypedLocalObjectReference")
        return {
            **self._kind("Workload"),
            "WorkloadSpec": struct((), controllerRef=controller, **self._templates),
        }

    def _pod_groups(self) -> dict[str, Object]:
        own = self._own
        return {
            **self._kind("PodGroup", status=own("PodGroupStatus")),
            "PodGroupSpec": struct(("schedulingPolicy",), **self._place, **self._of_pods),
            "PodGroupStatus": struct(
                conditions=conditions(),
                resourceClaimStatuses=self._list("PodGroupResourceClaimStatus", "merge,retainKeys"),
            ),
            "PodGroupTemplate": struct(("name", "schedulingPolicy"), name=TEXT, **self._of_pods),
            "PodGroupResourceClaim": struct(
                ("name",), name=TEXT, resourceClaimName=TEXT, resourceClaimTemplateName=TEXT
            ),
            "PodGroupResourceClaimStatus": struct(("name",), name=TEXT, resourceClaimName=TEXT),
            "PodGroupSchedulingConstraints": struct(topology=atomic(own("TopologyConstraint"))),
            "PodGroupSchedulingPolicy": struct(
                basic=own("Empty"), gang=own("GangSchedulingPolicy")
            ),
            "GangSchedulingPolicy": struct(("minCount",), minCount=INT32),
        }

    def _parts(self) -> dict[str, Object]:
        """Returns the types of templates of composite groups, and those that several kinds use."""
        own = self._own
        return {
            "CompositePodGroupTemplate": struct(
                ("name", "schedulingPolicy"), name=TEXT, **self._of_groups, **self._templates
            ),
            "CompositePodGroupSchedulingPolicy": struct(
                basic=own("Empty"), gang=own("CompositeGangSchedulingPolicy")
            ),
            "CompositeGangSchedulingPolicy": struct(("minGroupCount",), minGroupCount=INT32),
            "DisruptionMode": struct(single=own("Empty"), all=own("Empty")),
            "TopologyConstraint": struct(("key",), key=TEXT),
            "TypedLocalObjectReference": struct(
                ("kind", "name"), apiGroup=TEXT, kind=TEXT, name=TEXT
            ),
            "WorkloadReference": struct(
                ("workloadName", "templateName"), workloadName=TEXT, templateName=TEXT
            ),
            "Empty": struct(),
        }

    def _composites(self) -> dict[str, Object]:
        return {
            **self._kind("CompositePodGroup", status=self._own("CompositePodGroupStatus")),
            "CompositePodGroupSpec": struct(
                ("schedulingPolicy", "workloadRef"), **self._place, **self._of_groups
            ),
            "CompositePodGroupStatus": struct(conditions=conditions()),
        }


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
            definitions = _Version(base).definitions()
            facts = {base + n: row for n, row in _FACTS.items() if base + n in definitions}
            registry.schema.add(definitions, facts)
        registry.kinds[f"{GROUP}/{version}/{kind}"] = base + kind
        registry.kinds[f"{GROUP}/{version}/{kind}List"] = f"{base}{kind}List"
        resource = Resource(GROUP, version, served, registry.schema.type_of(base + kind))
        resource.columns = _COLUMNS[plural]
        registry.add(resource)
