"""What was found valid is not looked through again, and nothing else is taken for it."""

import copy
from typing import Any

from stower.api.registry import Registry
from stower.api.schema import Reading
from stower.api.validation import pods
from stower.apiserver.tables import load_registry

Object = dict[str, Any]
REGISTRY: Registry = load_registry()


def made(name: str) -> Object:
    kind = REGISTRY.type_of_kind("", "v1", "Pod")
    spec = {"containers": [{"name": "c", "image": "i", "terminationMessagePolicy": "File"}]}
    item: Object = kind.clean({"metadata": {"name": name}, "spec": spec}, Reading())
    return item


def test_a_pod_like_one_before_is_valid_and_a_changed_one_is_looked_at() -> None:
    assert [] == pods.new_pod(made("a")) == pods.new_pod(made("b"))
    for change in (
        lambda p: p["spec"]["containers"][0].pop("image"),
        lambda p: p["spec"].update(restartPolicy="Sometimes"),
        lambda p: p["metadata"].update(
            annotations={"controller.kubernetes.io/pod-deletion-cost": "much"}
        ),
        lambda p: p["spec"].update(nodeName="n", schedulingGates=[{"name": "g"}]),
    ):
        bad = copy.deepcopy(made("c"))
        change(bad)
        assert pods.new_pod(bad)
        assert pods.new_pod(bad), "again: what is wrong is not remembered as right"


def test_what_is_remembered_is_bounded() -> None:
    for number in range(pods.VALID_MAX + 50):
        pod = made("p")
        pod["metadata"]["labels"] = {"n": str(number)}
        assert [] == pods.new_pod(pod)
    assert pods.VALID_MAX >= len(pods._valid)
