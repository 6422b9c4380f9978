"""Says which nodes a DaemonSet's pods fit, and builds the pod for a node.

Source: pkg/controller/daemon (NodeShouldRunDaemonPod) and its util.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.controllers.objects import Object, name_of
from stower.controllers.pods import REVISION_HASH, pod_of
from stower.model.selectors import NodeSelector, node_selector_matches
from stower.model.taints import Taint, Toleration, is_tolerated

# What every pod of a DaemonSet tolerates (daemon/util.AddOrUpdateDaemonPodTolerations).
TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
NETWORK: Final = {
    "key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"
}  # fmt: skip
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
GENERATION: Final = "deprecated.daemonset.template.generation"  # annotation of a DaemonSet
GENERATION_LABEL: Final = "pod-template-generation"


def node_of(pod: Object) -> str:
    """The node that a pod is bound to or made for, or empty."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""


def generation_of(obj: Object) -> str:
    """How often the template has changed, or empty."""
    text = str((obj["metadata"].get("annotations") or {}).get(GENERATION) or "")
    return text if text.isdecimal() else ""


def is_updated(pod: Object, hashed: str, generation: str) -> bool:
    """The pod is of the revision with that hash, or of that generation of the template."""
    labels = pod["metadata"].get("labels") or {}
    if hashed and labels.get(REVISION_HASH) == hashed:
        return True
    return bool(generation) and labels.get(GENERATION_LABEL) == generation


def build_pod(obj: Object, node: str, hashed: str) -> Object:
    """The pod for a node: the scheduler binds it there."""
    labels = {REVISION_HASH: hashed}
    if generation := generation_of(obj):
        labels[GENERATION_LABEL] = generation
    pod = pod_of(obj["spec"]["template"], obj, "daemonsets", "", labels)
    spec = dict(pod["spec"])
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = dict(spec.get("affinity") or {})
    own = dict(affinity.get("nodeAffinity") or {})
    own[REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {**affinity, "nodeAffinity": own}
    spec["tolerations"] = _tolerations(spec)
    return {**pod, "spec": spec}


def placement_fields(node: Object) -> tuple[object, ...]:
    """What a pod may ask of a node."""
    return node["metadata"].get("labels"), node["spec"].get("taints")


def make_fits(obj: Object) -> Callable[[Object], tuple[bool, bool]]:
    """Whether the template's pods may start on a node, and whether they may stay there."""
    spec = obj["spec"]["template"]["spec"]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    selector = None if affinity is None else msgspec.convert(affinity, NodeSelector)
    tolerations = tuple(msgspec.convert(t, Toleration) for t in _tolerations(spec))

    def fits(node: Object) -> tuple[bool, bool]:
        labels, name = node["metadata"].get("labels") or {}, name_of(node)
        if spec.get("nodeName") not in (None, "", name):
            return False, False
        if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
            return False, False
        if selector is not None and not node_selector_matches(selector, labels, name):
            return False, False
        taints = [msgspec.convert(t, Taint) for t in node["spec"].get("taints") or ()]
        borne = dict.fromkeys(("NoSchedule", "PreferNoSchedule", "NoExecute"), True)
        for taint in taints:
            borne[taint.effect] &= is_tolerated(tolerations, taint)
        return borne["NoSchedule"] and borne["NoExecute"], borne["NoExecute"]

    return fits


def _tolerations(spec: Object) -> list[Object]:
    """The template's, with those of every DaemonSet; each is there once."""
    found = list(spec.get("tolerations") or ())
    for more in (*TOLERATIONS, *((NETWORK,) if spec.get("hostNetwork") else ())):
        alike = [t for t in found if all(t.get(k) == v for k, v in more.items())]
        if not alike:
            found.append(more)
        for known in alike:
            found[found.index(known)] = more
    return found
