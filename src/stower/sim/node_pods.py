"""Pods that belong to a node: those of DaemonSets, and of the kubelet's own manifests."""

from collections.abc import Iterable
from typing import Final

import msgspec

from stower.model.kinds import Pod
from stower.model.kinds.pod import PodStatus
from stower.model.selectors import NODE_NAME_FIELD, NodeSelectorTerm

MIRROR: Final = "kubernetes.io/config.mirror"


def belongs_to_node(pod: Pod) -> bool:
    """Of a DaemonSet, or of the kubelet's own manifests: it goes with its node."""
    owners = pod.metadata.owner_references or ()
    return MIRROR in (pod.metadata.annotations or {}) or any(o.kind == "DaemonSet" for o in owners)


def pods_of_node(pods: Iterable[Pod], model: str, node_name: str) -> list[Pod]:
    """Returns pods like those that belong to the node `model`, for another node: those of
    DaemonSets without a node yet, those of the kubelet's own manifests on it."""
    return [
        _pod_on(pod, node_name)
        for pod in pods
        if belongs_to_node(pod) and model in (pod.spec.node_name, daemon_node_of(pod))
    ]


def daemon_node_of(pod: Pod) -> str:
    """Returns the node that a pod of a DaemonSet is made for, "" for another pod. Source:
    pkg/controller/daemon/util (ReplaceDaemonSetPodNodeNameNodeAffinity)."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required
    for term in (required.node_selector_terms or ()) if required else ():
        for field in term.match_fields or ():
            if field.key == NODE_NAME_FIELD and len(field.values or ()) == 1:
                return (field.values or ("",))[0]
    return ""


def _pod_on(pod: Pod, node_name: str) -> Pod:
    """Returns a pod like one that belongs to a node, for another node: without a node yet where it
    is a DaemonSet's."""
    name = f"{pod.metadata.name}-on-{node_name}"
    meta = msgspec.structs.replace(pod.metadata, name=name, uid=f"{pod.metadata.namespace}/{name}")
    is_mirror = MIRROR in (pod.metadata.annotations or {})
    spec = msgspec.structs.replace(pod.spec, node_name=node_name if is_mirror else "")
    affinity = spec.affinity
    own = affinity and affinity.node_affinity
    if not is_mirror and affinity and own and own.required:
        terms = tuple(_term_for(t, node_name) for t in own.required.node_selector_terms or ())
        required = msgspec.structs.replace(own.required, node_selector_terms=terms)
        own = msgspec.structs.replace(own, required=required)
        affinity = msgspec.structs.replace(affinity, node_affinity=own)
        spec = msgspec.structs.replace(spec, affinity=affinity)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus("Pending"))


def _term_for(term: NodeSelectorTerm, node_name: str) -> NodeSelectorTerm:
    fields = tuple(
        msgspec.structs.replace(field, values=(node_name,))
        if field.key == NODE_NAME_FIELD
        else field
        for field in term.match_fields or ()
    )
    return msgspec.structs.replace(term, match_fields=fields or None)
