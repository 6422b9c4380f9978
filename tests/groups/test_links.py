"""How pods are linked to groups, and groups to each other, where the API has no field for it."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.plugin import read_features
from stower.framework.writes import CreateEvent
from stower.model.kinds import KIND_BY_NAME, Pod, PodGroup
from stower.model.kinds.pod import POD_GROUP
from stower.model.kinds.pod_group import PARENT_GROUP, is_whole
from stower.model.raw import decode
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing
from tests.group_builders import make_composite, make_group, members


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def labelled(of: str, count: int, first: int = 0, **fields: Any) -> list[Pod]:
    """Pods that name their group by a label."""
    return [
        make_pod(f"{of}-{i}", labels={POD_GROUP: of}, **fields) for i in range(first, first + count)
    ]


def relabelled(pod: Pod, **labels: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)


@pytest.mark.behaviour("S3.40")
def test_pods_are_linked_by_a_label() -> None:
    api = cluster(make_node("n1"), make_group("g", 3), *labelled("g", 2))
    assert {} == api.bound
    for pod in labelled("g", 1, first=2):
        api.put(pod)
    assert 3 == len(api.bound)


def test_the_field_counts_more_than_the_label() -> None:
    (pod,) = members("g", 1, labels={POD_GROUP: "other"})
    api = cluster(make_node("n1"), make_group("g", 1), pod)
    assert ["g-0"] == [*api.bound]


def test_a_pod_that_gets_a_label_waits_with_its_group_and_one_that_loses_it_goes_alone() -> None:
    """It is done while a gate keeps the pod from being tried."""
    gates = {"schedulingGates": [{"name": "example.com/wait"}]}
    pods = [make_pod(f"p{i}", **gates) for i in range(3)]
    api = cluster(make_node("n1"), make_group("g", 2), *pods)
    assert {} == api.bound
    open_pods = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=None))
        for pod in pods
    ]
    api.put(relabelled(open_pods[0], **{POD_GROUP: "g"}))
    assert {} == api.bound
    api.put(relabelled(open_pods[1], **{POD_GROUP: "g"}))
    assert {"p0", "p1"} == set(api.bound)
    api.put(relabelled(open_pods[2], **{POD_GROUP: "nobody"}))
    assert {"p0", "p1"} == set(api.bound)
    api.put(relabelled(open_pods[2]))
    assert {"p0", "p1", "p2"} == set(api.bound)


def test_a_pod_that_runs_can_change_its_group() -> None:
    """Those of its old group that are still to come do not count it any more."""
    api = cluster(make_node("n1"), make_group("g", 2), make_group("h", 2), *labelled("g", 2))
    moved = api.get(make_pod("g-0"))
    api.put(relabelled(moved, **{POD_GROUP: "h"}))
    for pod in labelled("h", 1):
        api.put(pod)
    assert {"g-0", "g-1", "h-0"} == set(api.bound)  # two are in h: one runs already
    groups = api.engine.state.groups
    assert (1, 2) == tuple(len(groups.members[f"default/{name}"]) for name in ("g", "h"))


@pytest.mark.behaviour("S3.40")
def test_a_parent_can_be_named_by_a_label() -> None:
    """A PodGroup in v1alpha2 has no field for it."""
    group = make_group("g", 1)
    meta = msgspec.structs.replace(group.metadata, labels={PARENT_GROUP: "root"})
    group = msgspec.structs.replace(group, metadata=meta)
    api = cluster(make_node("n1"), group, *members("g", 1))
    assert {} == api.bound
    api.put(make_composite("root", 1))
    assert ["g-0"] == [*api.bound]


@pytest.mark.behaviour("S3.40")
@pytest.mark.parametrize(
    ("version", "spec", "whole", "workload"),
    [
        ("scheduling.k8s.io/v1alpha2", {"disruptionMode": "PodGroup", "podGroupTemplateRef":
         {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}}, True, "w"),
        ("scheduling.k8s.io/v1alpha2", {"disruptionMode": "Pod"}, False, ""),
        ("scheduling.k8s.io/v1alpha3", {"disruptionMode": {"all": {}}, "workloadRef":
         {"workloadName": "w", "templateName": "t"}}, True, "w"),
        ("scheduling.k8s.io/v1beta1", {"disruptionMode": {"single": {}}}, False, ""),
        ("stower.dev/v1", {"disruptionMode": {"all": {}}}, True, ""),
    ],
)  # fmt: skip
def test_all_versions_say_the_same(version: str, spec: Any, whole: bool, workload: str) -> None:
    view = KIND_BY_NAME[version, "PodGroup"].view
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}, **spec}
    data = {"metadata": {"name": "g", "namespace": "default", "uid": "u"}, "spec": spec}
    group = decode(msgspec.json.encode(data), view)
    assert isinstance(group, PodGroup)
    assert (4, whole, workload) == (
        group.minimum,
        is_whole(group.spec.disruption_mode),
        group.workload_name,
    )


@pytest.mark.behaviour("S3.31")
def test_without_groups_of_groups_each_group_is_its_own_root() -> None:
    """The gate is off: a parent is named, and counts for nothing; no crash, and no waiting."""
    features, _ = read_features("CompositePodGroup=false")
    api = Agreeing(
        build_engine(features=features),
        make_node("n1"),
        make_composite("root", 2),
        make_group("g", 1, parent="root"),
        make_group("h", 2, parent="nobody"),
        *members("g", 1),
        *members("h", 1),
    )
    assert ["g-0"] == [*api.bound]
    assert "waiting for minCount pods" in api.engine.tree_attempts.waiting_reason(
        next(queued.tree for queued in api.engine.queue.pods() if queued.tree is not None)
    )


@pytest.mark.behaviour("S3.31")
def test_where_nobody_has_groups_of_groups_it_is_said_what_is_waited_for() -> None:
    """A server that has PodGroups alone: nothing crashes, and the tree says what is missing."""
    api = cluster(make_node("n1"), make_group("g", 1, parent="root"), *members("g", 1))
    (queued,) = api.engine.queue.pods()
    assert queued.tree is not None
    assert 'waiting for composite pod group "root" to appear' == queued.tree.waits_for


def test_a_root_has_events() -> None:
    """Those in it have none: what is said of one is said of all."""
    api = cluster(
        make_node("n1", cpu="1"),
        make_composite("root", 1),
        make_group("g", 2, parent="root"),
        *members("g", 2, cpu="1"),
    )
    api.put(make_node("n2", cpu="1"))
    api.wait(10)
    assert 2 == len(api.bound)
    told = [w for w in api.writes if isinstance(w, CreateEvent) and w.about[1] != "Pod"]
    assert [
        ("root", "Warning", "FailedScheduling", "Scheduling"),
        ("root", "Normal", "Scheduled", "Binding"),
    ] == [(w.name, w.type, w.reason, w.action) for w in told]
    assert ("scheduling.k8s.io/v1alpha3", "CompositePodGroup") == told[0].about
    assert "needs 2 pods" in told[0].note
