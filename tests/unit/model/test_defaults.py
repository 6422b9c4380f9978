"""Defaults of an API server, for objects that come straight from a file."""

import json
from typing import Any

import pytest

from stower.model.defaults import with_node_defaults, with_pod_defaults
from stower.model.kinds import Node, Pod, PriorityClass
from stower.model.meta import ObjectMeta
from stower.model.raw import decode


def pod_of(spec: dict[str, Any], **metadata: str) -> Pod:
    data = {"metadata": {"name": "p", **metadata}, "spec": spec}
    return decode(json.dumps(data).encode(), Pod)


def node_of(status: dict[str, Any], **metadata: str) -> Node:
    data = {"metadata": {"name": "n", **metadata}, "status": status}
    return decode(json.dumps(data).encode(), Node)


def class_of(name: str, value: int, default: bool = False, policy: str | None = None) -> Any:
    return PriorityClass(ObjectMeta(name), value, default, policy)


def defaulted(spec: dict[str, Any], *classes: PriorityClass) -> Pod:
    return with_pod_defaults(pod_of(spec), {c.metadata.name: c for c in classes}, "u")


def test_a_pod_gets_the_namespace_and_uid_that_it_lacks() -> None:
    metadata = with_pod_defaults(pod_of({}), {}, "u1").metadata
    assert ("default", "u1") == (metadata.namespace, metadata.uid)
    metadata = with_pod_defaults(pod_of({}, namespace="team", uid="own"), {}, "u1").metadata
    assert ("team", "own") == (metadata.namespace, metadata.uid)


@pytest.mark.parametrize("spec", [{}, {"schedulerName": ""}, {"schedulerName": None}])
def test_a_pod_without_a_scheduler_is_the_default_schedulers(spec: dict[str, Any]) -> None:
    assert "default-scheduler" == defaulted(spec).spec.scheduler_name


def test_a_pod_keeps_the_scheduler_that_it_names() -> None:
    assert "other" == defaulted({"schedulerName": "other"}).spec.scheduler_name


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_limit_is_the_request_where_none_is_written(field: str) -> None:
    """Resource by resource: a written request stays, even one of zero."""
    resources = {
        "limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": 1},
        "requests": {"cpu": "0"},
    }
    pod = defaulted({field: [{"name": "a", "resources": resources}, {"name": "b"}]})
    containers = pod.spec.containers or pod.spec.init_containers or ()
    assert containers[0].resources is not None
    expected = {"cpu": "0", "memory": "1Gi", "example.com/gpu": 1}
    assert expected == containers[0].resources.requests
    assert containers[1].resources is None


def level(pod: Pod) -> dict[str, str | int | float] | None:
    assert pod.spec.resources is not None
    return pod.spec.resources.requests


def test_pod_level_requests_come_from_the_containers_first_and_then_from_the_limits() -> None:
    """defaultPodRequests: a written one stays, and huge pages always come from the limit."""
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m"}}},
            {"resources": {"limits": {"cpu": "1", "example.com/gpu": "1"}}},
        ],
        "overhead": {"cpu": "7"},
        "resources": {"limits": {"cpu": "4", "memory": "2Gi", "hugepages-2Mi": "4Mi"}},
    }
    assert {"cpu": "1500m", "memory": "2Gi", "hugepages-2Mi": "4Mi"} == level(defaulted(spec))
    spec["resources"] = {"limits": {"cpu": "4"}, "requests": {"cpu": "3"}}
    assert {"cpu": "3"} == level(defaulted(spec))


def test_a_pod_without_limits_of_its_own_gets_no_requests_of_its_own() -> None:
    container = {"resources": {"requests": {"cpu": "1"}}}
    assert defaulted({"containers": [container]}).spec.resources is None
    spec = {"containers": [container], "resources": {"requests": {"memory": "1Gi"}}}
    assert {"memory": "1Gi"} == level(defaulted(spec))


def test_on_the_hosts_network_every_port_is_a_host_port() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}]
    spec = {"hostNetwork": True, "containers": [{"ports": ports}], "initContainers": [{}]}
    found = defaulted(spec).spec.containers[0].ports or ()
    assert [80, 9] == [port.host_port for port in found]
    spec["hostNetwork"] = False
    found = defaulted(spec).spec.containers[0].ports or ()
    assert [0, 9] == [port.host_port for port in found]


def test_a_priority_that_was_resolved_already_stays() -> None:
    pod = defaulted({"priority": 5, "priorityClassName": "gone"}, class_of("high", 9, True))
    assert 5 == pod.priority


def test_the_named_class_gives_priority_and_policy() -> None:
    classes = class_of("high", 9, policy="Never"), class_of("low", -1, True)
    spec = defaulted({"priorityClassName": "high"}, *classes).spec
    assert (9, "Never") == (spec.priority, spec.preemption_policy)


def test_the_global_default_class_applies_where_none_is_named() -> None:
    """Of several, the one of the lowest value."""
    classes = class_of("b", 7, True, "Never"), class_of("a", 8, True), class_of("c", 1)
    spec = defaulted({}, *classes).spec
    assert (7, "Never") == (spec.priority, spec.preemption_policy)


def test_without_any_class_the_priority_is_zero() -> None:
    spec = defaulted({}).spec
    assert (0, None) == (spec.priority, spec.preemption_policy)


def test_system_classes_are_always_there() -> None:
    assert 2_000_001_000 == defaulted({"priorityClassName": "system-node-critical"}).priority
    assert 2_000_000_000 == defaulted({"priorityClassName": "system-cluster-critical"}).priority


def test_a_class_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError) as error:
        defaulted({"priorityClassName": "gone"})
    assert "gone" == error.value.args[0]


def test_a_node_without_allocatable_offers_its_capacity() -> None:
    node = with_node_defaults(node_of({"capacity": {"cpu": "4"}}), "u")
    assert {"cpu": "4"} == node.status.allocatable
    node = with_node_defaults(node_of({"capacity": {"cpu": "4"}, "allocatable": {}}), "u")
    assert {} == node.status.allocatable


def test_a_node_gets_a_uid_and_never_a_namespace() -> None:
    metadata = with_node_defaults(node_of({}, namespace="default"), "u").metadata
    assert ("", "u") == (metadata.namespace, metadata.uid)
    assert "own" == with_node_defaults(node_of({}, uid="own"), "u").metadata.uid
