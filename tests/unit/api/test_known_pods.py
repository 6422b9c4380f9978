"""What was found valid is not looked through again, and nothing else is taken for it."""

import copy
from typing import Any

import pytest

from stower.api import byte_cache
from stower.api.registry import Registry
from stower.api.requests import JSON, MERGE_PATCH, Request, Response
from stower.api.schema import Reading
from stower.api.server import Api
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
    found = byte_cache.ByteCache()
    for number in range(byte_cache.COUNT_MAX + 50):
        found.put(b"%d" % number, number)
    assert found.get(b"0") is None
    assert byte_cache.COUNT_MAX + 49 == found.get(b"%d" % (byte_cache.COUNT_MAX + 49))
    found.put(b"x" * (byte_cache.BYTES_MAX + 1), 1)
    assert found.get(b"x" * (byte_cache.BYTES_MAX + 1)) is None


BODIES: list[Object] = [
    {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "0.5"}}}]},
    {"containers": [{"name": "c", "image": "i", "odd": 1}]},  # warned of
    {"containers": [{"name": "c", "image": "i", "ports": 1}]},  # of the wrong type
    {"containers": [{"name": "c", "image": ""}]},  # not valid
    {"containers": [{"name": "c", "image": "i"}], "hostNetwork": True, "nodeSelector": {"a": "b"}},
]


@pytest.mark.parametrize("spec", BODIES)
def test_the_second_of_a_kind_is_answered_as_the_first(spec: Object) -> None:
    """Nor does it matter that the first was changed since: what is kept is nobody's to change."""
    answers: list[Any] = []
    for _ in range(3):
        api = Api(REGISTRY, seed=1)
        api.bootstrap(0)
        path = "/api/v1/namespaces/default/pods"
        body = byte_cache.encode({"metadata": {"name": "p"}, "spec": spec})
        response = api.handle(Request("POST", path, 0, body=body, content_type=JSON))
        assert isinstance(response, Response)
        answers.append((response.status, response.warnings, response.body))
        patch = Request("PATCH", f"{path}/p", 0, content_type=MERGE_PATCH,
                        body=b'{"spec":{"containers":null,"activeDeadlineSeconds":1}}')  # fmt: skip
        api.handle(patch)
        twice = body.replace(b'"spec":', b'"spec":1,"spec":')
        doubled = api.handle(Request("POST", path, 0, body=twice, content_type=JSON))
        assert isinstance(doubled, Response)
        answers[-1] += (doubled.status, doubled.warnings)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] in (201, 400, 422)
