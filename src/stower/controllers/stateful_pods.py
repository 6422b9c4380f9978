"""Builds the pods of a StatefulSet and their claims, and says what identity each should have.

Source: pkg/controller/statefulset/stateful_set_utils.go.
"""

import re
from typing import Final

from stower.controllers.objects import Object, name_of, namespace_of
from stower.controllers.pods import REVISION_HASH, pod_of

NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_NAME: Final = re.compile(r"(.*)-([0-9]+)", re.DOTALL)
ORDINAL_MAX: Final = 2**31 - 1


def ordinal(pod: Object) -> int:
    """The number at the end of its name, or -1."""
    found = _NAME.fullmatch(name_of(pod))
    number = int(found[2][:11]) if found is not None else -1
    return number if number <= ORDINAL_MAX else -1


def is_member(owner: Object, pod: Object) -> bool:
    """The pod's name is one that the set gives."""
    found = _NAME.fullmatch(name_of(pod))
    return found is not None and found[1] == name_of(owner)


def pod_revision(pod: Object) -> str:
    """The name of the revision that a pod was made of."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


def identity_labels(pod: Object) -> Object:
    """The labels that say which pod it is."""
    return {NAME_LABEL: name_of(pod), INDEX_LABEL: str(ordinal(pod))}


def claim_name(template: Object, owner: Object, number: int) -> str:
    """The claim of a claim template for the pod of that number."""
    return f"{name_of(template)}-{name_of(owner)}-{number}"


def claim_templates(owner: Object) -> list[Object]:
    """The set's claim templates."""
    return list(owner["spec"].get("volumeClaimTemplates") or ())


def build_claim(template: Object, owner: Object, number: int) -> Object:
    """The claim itself; it has the labels that the set selects by."""
    own = template["metadata"]
    selected = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    meta: Object = {
        "name": claim_name(template, owner, number),
        "namespace": namespace_of(owner),
        "labels": {**(own.get("labels") or {}), **selected},
    }
    for field in ("annotations", "finalizers", "ownerReferences"):
        if own.get(field):
            meta[field] = own[field]
    return {"metadata": meta, "spec": template["spec"]}


def build_pod(owner: Object, template: Object, revision: str, number: int) -> Object:
    """The pod of that number, of a template and the name of its revision."""
    name = f"{name_of(owner)}-{number}"
    labels = {REVISION_HASH: revision, NAME_LABEL: name, INDEX_LABEL: str(number)}
    pod = pod_of(template, owner, "statefulsets", name, labels)
    claims = [
        {
            "name": name_of(each),
            "persistentVolumeClaim": {"claimName": claim_name(each, owner, number)},
        }
        for each in claim_templates(owner)
    ]
    taken = {claim["name"] for claim in claims}
    rest = [v for v in pod["spec"].get("volumes") or () if v["name"] not in taken]
    more: Object = {"hostname": name, "subdomain": owner["spec"].get("serviceName") or ""}
    if claims or rest:
        more["volumes"] = [*claims, *rest]
    return {**pod, "spec": {**pod["spec"], **more}}
