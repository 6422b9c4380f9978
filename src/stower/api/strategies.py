"""Lists how kinds differ in their life cycle: status, generation, names, permitted updates.

Source: pkg/registry/*/strategy.go, Kubernetes 1.36. Values alone; validation is elsewhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from stower.model import names

Object = dict[str, Any]
Faults = Callable[[str], Iterator[str]]


@dataclass(frozen=True)
class Strategy:
    """What is particular to a kind."""

    name_faults: Faults = names.subdomain_faults
    status: bool = False  # status is written through its subresource alone
    status_on_create: bool = False  # ... but may be set on creation
    generation: bool = False  # counts changes of everything but metadata and status
    generation_first: int = 1
    generation_once: bool = False  # is 1 for good
    create_on_update: bool = False
    update_needs_version: bool = False
    returns_deleted: bool = False
    orphans: bool = False  # dependents are orphaned where the client does not say
    finalizers: tuple[str, ...] = ()
    metadata_last: bool = False  # looked at where the object's own rules find nothing wrong
    plain_finalizers: bool = False  # the names of finalizers need no slash
    alike: bool = False  # specs are written once, in a template, and come by the thousand


def _namespace_faults(text: str) -> Iterator[str]:
    return names.label_faults(text)


_APPS: Final = Strategy(status=True, generation=True)
_RBAC: Final = Strategy(names.path_segment_faults, create_on_update=True)
_POLICY: Final = Strategy(generation=True, update_needs_version=True, plain_finalizers=True)
PLAIN: Final = Strategy()
CUSTOM: Final = Strategy(generation=True, update_needs_version=True, plain_finalizers=True)
CUSTOM_WITH_STATUS: Final = replace(CUSTOM, status=True)

STRATEGIES: Final[dict[tuple[str, str], Strategy]] = {
    ("", "endpoints"): Strategy(create_on_update=True),
    ("", "events"): Strategy(names.path_segment_faults, create_on_update=True, metadata_last=True),
    ("", "limitranges"): Strategy(create_on_update=True),
    ("", "namespaces"): Strategy(_namespace_faults, status=True, returns_deleted=True),
    ("", "nodes"): Strategy(status=True, status_on_create=True),
    ("", "persistentvolumeclaims"): Strategy(status=True, returns_deleted=True),
    ("", "persistentvolumes"): Strategy(status=True, returns_deleted=True),
    ("", "pods"): Strategy(status=True, generation=True, returns_deleted=True, alike=True),
    ("", "podtemplates"): Strategy(generation=True, returns_deleted=True),
    ("", "replicationcontrollers"): Strategy(status=True, generation=True, orphans=True),
    ("", "resourcequotas"): Strategy(status=True, returns_deleted=True),
    ("", "serviceaccounts"): Strategy(returns_deleted=True),
    ("", "services"): Strategy(
        names.label_faults, status=True, create_on_update=True, returns_deleted=True
    ),
    ("apps", "daemonsets"): _APPS,
    ("apps", "deployments"): _APPS,
    ("apps", "replicasets"): _APPS,
    ("apps", "statefulsets"): Strategy(names.label_faults, status=True, generation=True),
    ("autoscaling", "horizontalpodautoscalers"): Strategy(status=True),
    ("batch", "cronjobs"): _APPS,
    ("batch", "jobs"): Strategy(status=True, generation=True, orphans=True),
    ("certificates.k8s.io", "certificatesigningrequests"): Strategy(status=True),
    ("coordination.k8s.io", "leases"): Strategy(
        create_on_update=True, update_needs_version=True, plain_finalizers=True
    ),
    ("discovery.k8s.io", "endpointslices"): Strategy(generation=True),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): _APPS,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): _APPS,
    ("networking.k8s.io", "ingresses"): _APPS,
    ("networking.k8s.io", "ingressclasses"): Strategy(generation=True),
    ("networking.k8s.io", "networkpolicies"): Strategy(generation=True),
    ("networking.k8s.io", "servicecidrs"): Strategy(status=True),
    ("node.k8s.io", "runtimeclasses"): Strategy(create_on_update=True, update_needs_version=True),
    ("policy", "poddisruptionbudgets"): Strategy(
        names.path_segment_faults,
        status=True,
        generation=True,
        update_needs_version=True,
        metadata_last=True,
    ),
    ("rbac.authorization.k8s.io", "clusterroles"): _RBAC,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _RBAC,
    ("rbac.authorization.k8s.io", "roles"): _RBAC,
    ("rbac.authorization.k8s.io", "rolebindings"): _RBAC,
    ("resource.k8s.io", "deviceclasses"): Strategy(
        names.long_name_faults, generation=True, returns_deleted=True
    ),
    ("resource.k8s.io", "devicetaintrules"): Strategy(
        status=True, generation=True, returns_deleted=True
    ),
    ("resource.k8s.io", "resourceclaims"): Strategy(status=True, returns_deleted=True),
    ("resource.k8s.io", "resourceclaimtemplates"): Strategy(returns_deleted=True),
    ("resource.k8s.io", "resourceslices"): Strategy(generation=True, returns_deleted=True),
    ("scheduling.k8s.io", "compositepodgroups"): Strategy(
        status=True, finalizers=("scheduling.k8s.io/compositepodgroup-protection",)
    ),
    ("scheduling.k8s.io", "podgroups"): Strategy(
        status=True, finalizers=("scheduling.k8s.io/podgroup-protection",)
    ),
    ("scheduling.k8s.io", "priorityclasses"): Strategy(generation_once=True),
    ("storage.k8s.io", "csidrivers"): Strategy(
        generation=True, generation_first=0, update_needs_version=True, returns_deleted=True
    ),
    ("storage.k8s.io", "csinodes"): Strategy(update_needs_version=True, returns_deleted=True),
    ("storage.k8s.io", "csistoragecapacities"): Strategy(update_needs_version=True),
    ("storage.k8s.io", "storageclasses"): Strategy(returns_deleted=True),
    ("storage.k8s.io", "volumeattachments"): Strategy(
        status=True, update_needs_version=True, returns_deleted=True
    ),
    ("storage.k8s.io", "volumeattributesclasses"): Strategy(returns_deleted=True),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _POLICY,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _POLICY,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): Strategy(
        status=True, generation=True, update_needs_version=True, plain_finalizers=True
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): _POLICY,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): _POLICY,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): _POLICY,
    ("apiextensions.k8s.io", "customresourcedefinitions"): replace(
        _APPS, update_needs_version=True, plain_finalizers=True
    ),
    ("apiregistration.k8s.io", "apiservices"): Strategy(status=True, plain_finalizers=True),
}


def strategy_of(key: tuple[str, str]) -> Strategy:
    """The strategy of a resource."""
    return STRATEGIES.get(key, PLAIN)
