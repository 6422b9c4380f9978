"""Amounts in words, and pods that ask for less."""

import pytest
from msgspec.structs import replace

from stower.framework.fixes import format_amount, with_smaller_requests
from stower.model.kinds import Pod
from stower.model.resources import amounts, pod_requests
from tests.builders import make_pod


@pytest.mark.parametrize(
    ("name", "amount", "said"),
    [
        ("cpu", 0, "0"), ("cpu", 200, "200m"), ("cpu", 2_200, "2200m"), ("cpu", 3_000, "3"),
        ("cpu", 9_998_100, "9998.1"), ("cpu", 100_000, "100"), ("cpu", 123_456_789, "123456.789"),
        ("memory", 0, "0"), ("memory", 3 << 30, "3Gi"), ("memory", 1, "1 bytes of"),
        ("pods", 7, "7"), ("nvidia.com/gpu", 2, "2"),
    ],
)  # fmt: skip
def test_amounts_are_told_in_common_units(name: str, amount: int, said: str) -> None:
    assert said == format_amount(name, amount)


def two_containers() -> Pod:
    pod = make_pod(cpu="3", requests={"nvidia.com/gpu": "2"})
    other = make_pod(cpu="500m").spec.containers
    spec = type(pod.spec)(containers=(*other, *pod.spec.containers))
    return type(pod)(pod.metadata, spec, pod.status)


@pytest.mark.parametrize("missing", [1, 999, 3_000, 3_200, 3_500])
def test_the_largest_containers_ask_for_less_first(missing: int) -> None:
    before = two_containers()
    pod = with_smaller_requests(before, {"cpu": missing, "nvidia.com/gpu": 1})
    assert pod is not None
    asked = amounts(pod_requests(pod))
    assert (3_500 - missing, 1) == (asked["cpu"], asked["nvidia.com/gpu"])
    spec = type(pod.spec)(containers=pod.spec.containers[:1])
    small = amounts(pod_requests(Pod(pod.metadata, spec)))
    assert small["cpu"] == (500 if missing <= 3_000 else 3_500 - missing)


def test_who_does_not_ask_for_so_much_cannot_ask_for_less() -> None:
    assert with_smaller_requests(make_pod(cpu="1"), {"cpu": 1_001}) is None
    assert with_smaller_requests(make_pod(), {"pods": 1}) is None


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "hugepages-2Mi"])
def test_limits_that_have_to_equal_requests_become_smaller_too(name: str) -> None:
    pod = make_pod(requests={name: "4"})
    (container,) = pod.spec.containers
    assert container.resources is not None
    same = replace(container.resources, limits={name: "4", "cpu": "100m"})
    spec = replace(pod.spec, containers=(replace(container, resources=same),))
    smaller = with_smaller_requests(replace(pod, spec=spec), {name: 3, "cpu": 50})
    assert smaller is not None
    found = smaller.spec.containers[0].resources
    assert found is not None
    assert ({name: "1", "cpu": "100m"}, "1", "50m") == (
        found.limits, (found.requests or {})[name], (found.requests or {})["cpu"]
    )  # fmt: skip
