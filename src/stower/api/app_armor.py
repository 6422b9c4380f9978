"""Copies AppArmor profiles of new pods from annotations into the fields of their containers.

Source: applyAppArmorVersionSkew in pkg/registry/core/pod/strategy.go, Kubernetes 1.36.
"""

from typing import Any

from stower.api.validation.pod_annotations import APP_ARMOR, DEFAULT, LOCAL, UNCONFINED
from stower.api.validation.security_contexts import app_armor_faults, containers_of

Object = dict[str, Any]


def copy_profiles(item: Object) -> None:
    """Fills in the profiles of containers that only annotations name."""
    spec = item["spec"]
    annotations = item["metadata"].get("annotations") or {}
    if (spec.get("os") or {}).get("name") == "windows":
        return
    own = (spec.get("securityContext") or {}).get("appArmorProfile")
    for _, container in containers_of("", spec):
        text = annotations.get(APP_ARMOR + container.get("name", ""))
        context = container.get("securityContext") or {}
        if text is None or "appArmorProfile" in context:
            continue
        profile = _profile(text)
        if profile is not None and profile != own and not app_armor_faults(profile):
            container["securityContext"] = {**context, "appArmorProfile": profile}


def _profile(text: str) -> Object | None:
    """The profile that an annotation names; None: none that is known."""
    if text == UNCONFINED:
        return {"type": "Unconfined"}
    if text == DEFAULT:
        return {"type": "RuntimeDefault"}
    if text.startswith(LOCAL) and text != LOCAL:
        return {"type": "Localhost", "localhostProfile": text.removeprefix(LOCAL)}
    return None
