"""The objects that controllers have seen, as dictionaries, by key, owner, node and namespace."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from stower.api.native_kinds import NATIVE
from stower.model.times import time_ns

Object = dict[str, Any]


class Resource(NamedTuple):
    """One kind of object that actors look at or write."""

    plural: str
    kind: str
    api_version: str
    namespaced: bool = True
    optional: bool = False  # a server that does not know it has none of it
    custom: bool = False  # no strategic merge patches
    also: tuple[str, ...] = ()  # versions in which a server may have it instead


def _make_resource(definition: Object) -> Resource:
    """A kind that our API server serves by itself."""
    spec = definition["spec"]
    api_version = f"{spec['group']}/{spec['versions'][0]['name']}"
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    return Resource(names["plural"], names["kind"], api_version, namespaced, True, True)


RESOURCES: Final = {
    resource.plural: resource
    for resource in (
        Resource("pods", "Pod", "v1"),
        Resource("nodes", "Node", "v1", False),
        Resource("namespaces", "Namespace", "v1", False),
        Resource("services", "Service", "v1"),
        Resource("configmaps", "ConfigMap", "v1"),
        Resource("secrets", "Secret", "v1"),
        Resource("serviceaccounts", "ServiceAccount", "v1"),
        Resource("persistentvolumeclaims", "PersistentVolumeClaim", "v1"),
        Resource("persistentvolumes", "PersistentVolume", "v1", False),
        Resource("storageclasses", "StorageClass", "storage.k8s.io/v1", False),
        Resource("replicasets", "ReplicaSet", "apps/v1"),
        Resource("deployments", "Deployment", "apps/v1"),
        Resource("statefulsets", "StatefulSet", "apps/v1"),
        Resource("daemonsets", "DaemonSet", "apps/v1"),
        Resource("jobs", "Job", "batch/v1"),
        Resource("cronjobs", "CronJob", "batch/v1"),
        Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"),
        Resource("leases", "Lease", "coordination.k8s.io/v1"),
        # The rest for garbage collection and quotas alone.
        Resource("controllerrevisions", "ControllerRevision", "apps/v1"),
        Resource("resourcequotas", "ResourceQuota", "v1"),
        Resource("limitranges", "LimitRange", "v1"),
        Resource("podtemplates", "PodTemplate", "v1"),
        Resource("csistoragecapacities", "CSIStorageCapacity", "storage.k8s.io/v1"),
        Resource("replicationcontrollers", "ReplicationController", "v1"),
        Resource("endpoints", "Endpoints", "v1"),
        Resource("endpointslices", "EndpointSlice", "discovery.k8s.io/v1"),
        Resource("ingresses", "Ingress", "networking.k8s.io/v1"),
        Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io/v1"),
        Resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling/v2"),
        Resource("roles", "Role", "rbac.authorization.k8s.io/v1"),
        Resource("rolebindings", "RoleBinding", "rbac.authorization.k8s.io/v1"),
        Resource("clusterroles", "ClusterRole", "rbac.authorization.k8s.io/v1", False),
        Resource("clusterrolebindings", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1",
                 False),
        Resource("resourceclaims", "ResourceClaim", "resource.k8s.io/v1"),
        Resource("resourceclaimtemplates", "ResourceClaimTemplate", "resource.k8s.io/v1"),
        Resource("resourceslices", "ResourceSlice", "resource.k8s.io/v1", False),
        Resource("deviceclasses", "DeviceClass", "resource.k8s.io/v1", False),
        Resource("podgroups", "PodGroup", "scheduling.k8s.io/v1beta1", True, True, False,
                 ("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2", "stower.dev/v1")),
        Resource("compositepodgroups", "CompositePodGroup", "scheduling.k8s.io/v1alpha3", True,
                 True, False, ("stower.dev/v1",)),
        Resource("devicetaintrules", "DeviceTaintRule", "resource.k8s.io/v1beta2", False, True),
        Resource(
            "customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io/v1",
            False,
        ),
        *map(_make_resource, NATIVE),
    )
}  # fmt: skip
PLURAL_OF: Final = {
    (version, r.kind): r.plural for r in RESOURCES.values() for version in (r.api_version, *r.also)
}


def versions_of(served: Iterable[tuple[str, str]]) -> dict[str, str]:
    """In which version kinds are served, of which there is more than one. served: apiVersion and
    plural of all that there is."""
    there = set(served)
    return {
        r.plural: next((v for v in r.also if (v, r.plural) in there), r.api_version)
        for r in RESOURCES.values()
        if r.also and (r.api_version, r.plural) not in there
    }


def name_of(obj: Object) -> str:
    """Its name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Object) -> str:
    """Its namespace, or empty."""
    return str(obj["metadata"].get("namespace") or "")


def uid_of(obj: Object) -> str:
    """Its uid."""
    return str(obj["metadata"]["uid"])


def key_of(obj: Object) -> str:
    """namespace/name, or the name alone."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def version_of(obj: Object) -> int:
    """Its revision as a number: all objects here are of one server that counts."""
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def created_ns(obj: Object) -> int:
    """When it was created, in nanoseconds since 1970; 0 where that is not known."""
    return time_ns(obj["metadata"].get("creationTimestamp")) or 0


def age(obj: Object) -> tuple[str, str]:
    """Orders objects by age, the oldest first."""
    return str(obj["metadata"].get("creationTimestamp") or ""), name_of(obj)


def owner_of(obj: Object) -> Object | None:
    """The reference to its controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def is_ending(obj: Object) -> bool:
    """It is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


class ObjectStore:
    """All objects by kind: its plural, of a custom kind the name of its definition.

    `custom`: the kinds of definitions, see custom_kinds.py; `unlisted`: those that have not been
    listed yet, and since when.
    """

    def __init__(self) -> None:
        self.custom: dict[str, Resource] = {}
        self.unlisted: dict[str, int] = {}
        self._by_key: dict[str, dict[str, Object]] = {plural: {} for plural in RESOURCES}
        self._owned: dict[str, dict[str, dict[str, Object]]] = {}
        self._on_node: dict[str, dict[str, Object]] = {}
        self._in_namespace: dict[tuple[str, str], dict[str, Object]] = {}
        self._orphans: dict[tuple[str, str], dict[str, Object]] = {}
        self._gone: dict[str, int] = {}  # uids that a late answer must not bring back

    def resource(self, kind: str) -> Resource:
        """Returns what is known of a kind."""
        return RESOURCES.get(kind) or self.custom[kind]

    def find_kind(self, api_version: str, kind: str) -> str | None:
        """Returns the kind that objects of this apiVersion and kind are of; None: not known."""
        found = PLURAL_OF.get((api_version, kind))
        if found is None and self.custom:
            for name, resource in self.custom.items():
                if resource.kind == kind and api_version in (resource.api_version, *resource.also):
                    return name
        return found

    def add_kind(self, kind: str, resource: Resource, now_ns: int) -> None:
        """Adds a custom kind, of which no objects are known yet."""
        self.custom[kind] = resource
        self.unlisted[kind] = now_ns
        self._by_key[kind] = {}

    def drop_kind(self, kind: str) -> None:
        """Removes a custom kind of which no objects are left."""
        del self.custom[kind], self._by_key[kind]
        self.unlisted.pop(kind, None)

    def get(self, kind: str, key: str) -> Object | None:
        """The object of that key."""
        return self._by_key[kind].get(key)

    def all(self, kind: str) -> list[Object]:
        """All of a kind, in the order in which they were first seen."""
        return list(self._by_key[kind].values())

    def list_owned(self, uid: str, kind: str) -> list[Object]:
        """Those whose controller has the uid."""
        return list(self._owned.get(uid, {}).get(kind, {}).values())

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node."""
        return list(self._on_node.get(node, {}).values())

    def list_namespace(self, kind: str, namespace: str) -> list[Object]:
        """Those of a namespace."""
        return list(self._in_namespace.get((kind, namespace), {}).values())

    def orphans(self, kind: str, namespace: str) -> list[Object]:
        """Those of a namespace that have no controller."""
        return list(self._orphans.get((kind, namespace), {}).values())

    def put(self, kind: str, obj: Object) -> tuple[bool, Object | None]:
        """Take in what was seen: whether it is news, and what was known before."""
        key, uid = key_of(obj), uid_of(obj)
        if uid in self._gone:
            return False, None
        old = self._by_key[kind].get(key)
        if old is not None:
            if version_of(old) >= version_of(obj):
                return False, old
            self._forget(kind, key, old)
        self._by_key[kind][key] = obj
        for index in self._indices(kind, obj):
            index[key] = obj
        return True, old

    def drop(self, kind: str, obj: Object) -> Object | None:
        """It is gone; returns what was known, or None where nothing was."""
        key, uid = key_of(obj), uid_of(obj)
        self._gone[uid] = 0
        while len(self._gone) > 20_000:
            del self._gone[next(iter(self._gone))]
        old = self._by_key[kind].get(key)
        if old is None or uid_of(old) != uid:
            return None
        del self._by_key[kind][key]
        self._forget(kind, key, old)
        return old

    def is_gone(self, uid: str) -> bool:
        """An object of that uid was seen to go. Of those that went long ago nobody knows."""
        return uid in self._gone

    def _forget(self, kind: str, key: str, old: Object) -> None:
        for index in self._indices(kind, old):
            index.pop(key, None)

    def _indices(self, kind: str, obj: Object) -> Iterator[dict[str, Object]]:
        owner = owner_of(obj)
        if owner is not None:
            yield self._owned.setdefault(owner["uid"], {}).setdefault(kind, {})
        namespace = namespace_of(obj)
        if namespace and owner is None:
            yield self._orphans.setdefault((kind, namespace), {})
        if namespace:
            yield self._in_namespace.setdefault((kind, namespace), {})
        if kind == "pods" and obj["spec"].get("nodeName"):
            yield self._on_node.setdefault(obj["spec"]["nodeName"], {})
