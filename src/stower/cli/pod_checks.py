"""Refuses pods and nodes with amounts or tolerations that an API server would refuse."""

from typing import Final

from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.kinds.pod import ResourceList
from stower.model.resources import parse_list
from stower.model.taints import TOLERATION_OPERATORS

SOUND_MAX: Final = 10_000
_SOUND: Final = set[str | int | float]()  # quantities that are valid, and not below zero


def check_tolerations(pod: Pod) -> None:
    """Raise InvalidObject for an operator that no API server knows."""
    for i, toleration in enumerate(pod.spec.tolerations or ()):
        if toleration.operator not in TOLERATION_OPERATORS:
            known = " or ".join(filter(None, TOLERATION_OPERATORS))
            raise InvalidObject(f"spec.tolerations[{i}].operator", toleration.operator, known)


def check_pod_amounts(pod: Pod) -> None:
    """Raise InvalidObject for a request, limit or overhead that an API server would refuse."""
    spec = pod.spec
    if not spec.containers:
        raise InvalidObject("spec.containers", [], "at least one container")
    owners = [("spec", spec.resources)]
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers or ()),
    ):
        owners += [(f"spec.{field}[{i}]", c.resources) for i, c in enumerate(containers)]
    for path, resources in owners:
        if resources is not None:
            check_amounts(resources.requests, f"{path}.resources.requests")
            check_amounts(resources.limits, f"{path}.resources.limits")
    check_amounts(spec.overhead, "spec.overhead")


def check_amounts(resources: ResourceList | None, path: str) -> None:
    """Raise InvalidObject for what is no quantity, or below zero."""
    if not resources or _SOUND.issuperset(resources.values()):
        return
    for name, quantity in parse_list(resources, path).items():
        if quantity.sign < 0:
            raise InvalidObject(f"{path}.{name}", str(quantity), "a quantity of at least 0")
    if len(_SOUND) < SOUND_MAX:
        _SOUND.update(resources.values())
