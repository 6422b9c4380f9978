"""Workloads, PodGroups and CompositePodGroups as Kubernetes 1.37 checks them."""

import copy
import json
from typing import Any

import pytest

from stower.api.requests import Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry

V1BETA1 = "/apis/scheduling.k8s.io/v1beta1/namespaces/default"
V1ALPHA3 = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GANG = {"gang": {"minCount": 2}}
GANGS = {"gang": {"minGroupCount": 1}}
ALL: dict[str, Any] = {"disruptionMode": {"all": {}}}
REFERENCE = {"workloadRef": {"workloadName": "job", "templateName": "workers"}}


class Cluster:
    """An API server of that version."""

    def __init__(self) -> None:
        self.api = Api(load_registry("1.37"), seed=1)
        self.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else b""
        answer = self.api.handle(Request(method, path, 0, body=data, content_type=form))
        assert isinstance(answer, Response)
        return answer.status, json.loads(answer.body)

    def make(self, path: str, name: str, **spec: Any) -> tuple[int, Any]:
        return self.send("POST", path, {"metadata": {"name": name}, "spec": spec})

    def faults(self, path: str, name: str, **spec: Any) -> list[str]:
        """The fields and what is wrong with them; empty where the object was made."""
        status, said = self.make(path, name, **spec)
        return [] if status == 201 else _told(said)

    def changed(self, path: str, spec: Any) -> list[str]:
        status, said = self.send("PATCH", path, {"spec": spec})
        return [] if status == 200 else _told(said)


def _told(said: Any) -> list[str]:
    return [f"{c['field']}: {c['message']}" for c in (said.get("details") or {}).get("causes", ())]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def leaf(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": GANG, **more}


def node(name: str, *groups: Any, pods: Any = (), **more: Any) -> dict[str, Any]:
    """A template of a group of groups."""
    made = {"name": name, "schedulingPolicy": GANGS, **more}
    if groups:
        made["compositePodGroupTemplates"] = [*groups]
    if pods:
        made["podGroupTemplates"] = [*pods]
    return made


@pytest.mark.behaviour("S3.1")
def test_a_workload_has_one_of_the_two_lists(cluster: Cluster) -> None:
    both = {
        "podGroupTemplates": [leaf("a")],
        "compositePodGroupTemplates": [node("b", pods=[leaf("c")])],
    }
    lists = "`podGroupTemplates`, `compositePodGroupTemplates`"
    assert [f'spec: Invalid value: "": must specify one of: {lists}'] == cluster.faults(
        f"{V1BETA1}/workloads", "w"
    )
    (told,) = cluster.faults(f"{V1BETA1}/workloads", "w", **both)
    assert told.endswith(f"must specify exactly one of: {lists}")
    mixed = node("top", node("inner", pods=[leaf("x")]), pods=[leaf("y")])
    for path, name in ((V1BETA1, "w0"), (V1ALPHA3, "w1")):
        assert [] == cluster.faults(
            f"{path}/workloads", name, compositePodGroupTemplates=[mixed]
        )  # within a template both lists may be there
    status, seen = cluster.send("GET", f"{V1ALPHA3}/workloads/w0")
    assert (200, "scheduling.k8s.io/v1alpha3") == (status, seen["apiVersion"])


def deep(levels: int) -> dict[str, Any]:
    """So many templates of groups on top of each other, and pods below."""
    made = node(f"level-{levels}", pods=[leaf("leaf")])
    for level in range(levels - 1, 0, -1):
        made = node(f"level-{level}", made)
    return made


@pytest.mark.behaviour("S3.2")
@pytest.mark.parametrize(
    ("templates", "told"),
    [
        ([deep(3)], []),
        ([deep(4)], ["spec.compositePodGroupTemplates[0]"]),
        ([node(f"g{i}", pods=[leaf(f"p{i}")]) for i in range(9)],
         ["spec.compositePodGroupTemplates"]),
        ([node("g", pods=[leaf(f"p{i}") for i in range(9)])],
         ["spec.compositePodGroupTemplates[0].podGroupTemplates"]),
        ([node("g", pods=[leaf("g")])],
         ["spec.compositePodGroupTemplates[0].podGroupTemplates[0].name"]),
        ([node("g", pods=[leaf("x")]), node("h", pods=[leaf("x")])],
         ["spec.compositePodGroupTemplates[1].podGroupTemplates[0].name"]),
        ([node("g", node("h", pods=[leaf("x")]), pods=[leaf("h")])],
         ["spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0].name"]),
        ([node("g", pods=[leaf("x"), leaf("x")])],
         ["spec.compositePodGroupTemplates[0].podGroupTemplates[1]"]),
        ([node("g")], ["spec.compositePodGroupTemplates[0]"]),
    ],
)  # fmt: skip
def test_trees_of_templates_have_limits_and_names_of_their_own(
    cluster: Cluster, templates: list[Any], told: list[str]
) -> None:
    found = cluster.faults(f"{V1BETA1}/workloads", "w", compositePodGroupTemplates=templates)
    assert told == [text.partition(": ")[0] for text in found]


@pytest.mark.behaviour("S3.22", "S3.26")
@pytest.mark.parametrize(
    ("template", "told"),
    [
        (node("g", pods=[leaf("x", **ALL)], **ALL), ""),
        (node("g", pods=[leaf("x", **ALL), leaf("y")]), ""),
        (node("g", pods=[leaf("x")], **ALL), "podGroupTemplates[0].disruptionMode"),
        (node("g", node("h", pods=[leaf("x", **ALL)]), **ALL),
         "compositePodGroupTemplates[0].disruptionMode"),
        (node("g", pods=[leaf("x", disruptionMode={"all": {}, "single": {}})]),
         "podGroupTemplates[0].disruptionMode"),
        (node("g", pods=[leaf("x", priority=5)], priority=5), ""),
        (node("g", pods=[leaf("x", priority=5)]), "spec"),
        (node("g", pods=[leaf("x", priorityClassName="high")]), "spec"),
        (node("g", pods=[leaf("x", preemptionPolicy="Always")]),
         "podGroupTemplates[0].preemptionPolicy"),
    ],
)  # fmt: skip
def test_modes_nest_and_a_tree_has_one_priority(cluster: Cluster, template: Any, told: str) -> None:
    found = cluster.faults(f"{V1BETA1}/workloads", "w", compositePodGroupTemplates=[template])
    at = [text.partition(": ")[0] for text in found]
    assert ([told] if told else []) == [text[len(text) - len(told) :] for text in at]


@pytest.mark.behaviour("S3.3", "S3.4", "S3.5")
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, []),
        (REFERENCE, []),
        ({"parentCompositePodGroupName": "root", **REFERENCE}, []),
        ({"parentCompositePodGroupName": "root"},
         ["spec.workloadRef: Required value: "
          "required when `parentCompositePodGroupName` is specified"]),
        ({"parentCompositePodGroupName": "Root/x", **REFERENCE},
         ["spec.parentCompositePodGroupName"]),
        ({"workloadRef": {"workloadName": "job"}}, ["spec.workloadRef.templateName"]),
        ({"workloadRef": {"workloadName": "job", "templateName": "a/b"}},
         ["spec.workloadRef.templateName"]),
        ({"podGroupTemplateRef": {"workload": {}}}, []),  # v1alpha2's: dropped
    ],
)  # fmt: skip
def test_a_group_names_its_parent_and_its_template(
    cluster: Cluster, spec: Any, told: list[str]
) -> None:
    found = cluster.faults(f"{V1BETA1}/podgroups", "g", schedulingPolicy=GANG, **spec)
    assert told == [text[: len(want)] for text, want in zip(found, told, strict=True)]


@pytest.mark.behaviour("S3.5", "S3.6")
def test_a_group_of_groups_needs_a_template_and_a_minimum_of_at_least_one(
    cluster: Cluster,
) -> None:
    path = f"{V1ALPHA3}/compositepodgroups"
    assert ["spec.workloadRef: Required value"] == [
        text[:32] for text in cluster.faults(path, "g", schedulingPolicy=GANGS)
    ]
    for count, told in ((0, "Required value"), (-1, "must be greater than or equal to 1")):
        policy = {"gang": {"minGroupCount": count}}
        (found,) = cluster.faults(path, "g", schedulingPolicy=policy, **REFERENCE)
        assert "spec.schedulingPolicy.gang.minGroupCount" == found.partition(": ")[0]
        assert told in found
    (found,) = cluster.faults(path, "g", schedulingPolicy={}, **REFERENCE)
    assert "must specify one of: `basic`, `gang`" in found
    assert [] == cluster.faults(path, "g", schedulingPolicy=GANGS, **REFERENCE)
    leaf_of = {"parentCompositePodGroupName": "g", "schedulingPolicy": {"basic": {}}, **REFERENCE}
    assert [] == cluster.faults(f"{V1BETA1}/podgroups", "below", **leaf_of)  # independent of it


@pytest.mark.behaviour("S3.4", "S3.6")
@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({"schedulingPolicy": {"gang": {"minGroupCount": 3}}},
         ["spec.schedulingPolicy: Invalid value: null: field is immutable"]),
        ({"schedulingPolicy": {"gang": None, "basic": {}}},
         ["spec.schedulingPolicy: Invalid value: null: field is immutable"]),
        ({"parentCompositePodGroupName": "other"},
         ["spec.parentCompositePodGroupName: Invalid value: null: field is immutable"]),
        ({"workloadRef": {"templateName": "other"}},
         ["spec.workloadRef: Invalid value: null: field is immutable"]),
        ({"disruptionMode": {"single": None, "all": {}}},
         ["spec.disruptionMode: Invalid value: null: field is immutable"]),
        ({"schedulingConstraints": {"topology": [{"key": "rack"}]}},
         ["spec.schedulingConstraints: Invalid value: null: field is immutable"]),
        ({"priority": 7}, ["spec.priority: Invalid value: null: field is immutable"]),
    ],
)  # fmt: skip
def test_of_a_group_of_groups_nothing_can_change(
    cluster: Cluster, patch: Any, told: list[str]
) -> None:
    path = f"{V1ALPHA3}/compositepodgroups"
    cluster.make(path, "g", schedulingPolicy=GANGS, **REFERENCE)
    found = cluster.changed(f"{path}/g", patch)
    assert told == [text.replace("Invalid value: :", "Invalid value: null:") for text in found]


@pytest.mark.behaviour("S3.6")
def test_of_a_group_of_pods_its_minimum_alone_can_change(cluster: Cluster) -> None:
    path = f"{V1BETA1}/podgroups"
    cluster.make(path, "g", schedulingPolicy=GANG)
    assert [] == cluster.changed(f"{path}/g", {"schedulingPolicy": {"gang": {"minCount": 3}}})
    found = cluster.changed(f"{path}/g", {"schedulingPolicy": {"gang": None, "basic": {}}})
    assert [
        "spec.schedulingPolicy.basic: Invalid value: null: field is immutable",
        "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set",
    ] == found


@pytest.mark.behaviour("S3.28")
def test_nobody_comes_into_a_group_that_is_being_deleted(cluster: Cluster) -> None:
    cluster.make(f"{V1ALPHA3}/compositepodgroups", "root", schedulingPolicy=GANGS, **REFERENCE)
    cluster.make(f"{V1BETA1}/podgroups", "g", schedulingPolicy=GANG)
    cluster.send("DELETE", f"{V1ALPHA3}/compositepodgroups/root")
    cluster.send("DELETE", f"{V1BETA1}/podgroups/g")
    spec = {"parentCompositePodGroupName": "root", "schedulingPolicy": GANG, **REFERENCE}
    container = {"name": "c", "image": "i"}
    pod = {"containers": [container], "schedulingGroup": {"podGroupName": "g"}}
    for path, body, what, around in (
        (f"{V1BETA1}/podgroups", spec, "PodGroup", 'CompositePodGroup "root"'),
        ("/api/v1/namespaces/default/pods", pod, "Pod", 'PodGroup "g"'),
    ):
        status, said = cluster.make(path, "x", **body)
        text = f"cannot create {what} referencing {around} because it is being deleted"
        assert (403, True) == (status, text in said["message"])


@pytest.mark.behaviour("S3.2")
def test_templates_come_and_go_with_their_workload(cluster: Cluster) -> None:
    tree = [node("g", pods=[leaf("x"), leaf("y")])]
    cluster.make(f"{V1BETA1}/workloads", "w", compositePodGroupTemplates=tree)

    def after(change: Any) -> list[str]:
        changed = copy.deepcopy(tree)
        change(changed[0])
        found = cluster.changed(f"{V1BETA1}/workloads/w", {"compositePodGroupTemplates": changed})
        return [text.removeprefix("spec.compositePodGroupTemplates[0].") for text in found]

    assert ["podGroupTemplates[2]: Forbidden: item may not be added"] == after(
        lambda g: g["podGroupTemplates"].append(leaf("z"))
    )
    assert ["podGroupTemplates: Forbidden: item may not be removed"] == after(
        lambda g: g["podGroupTemplates"].pop()
    )
    assert [] == after(
        lambda g: g["podGroupTemplates"][0].update(schedulingPolicy={"gang": {"minCount": 9}})
    )
    (told,) = after(lambda g: g["podGroupTemplates"][0].update(ALL))
    assert told.startswith("podGroupTemplates[0].disruptionMode")


@pytest.mark.behaviour("S3.26", "S3.28")
def test_admission_sets_priorities_defaults_and_finalizers(cluster: Cluster) -> None:
    high = {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
    cluster.send("POST", CLASSES, high)
    path = f"{V1ALPHA3}/compositepodgroups"
    given = {"schedulingPolicy": GANGS, "priorityClassName": "high", **REFERENCE}
    status, made = cluster.make(path, "g", **given)
    assert (201, 100, "Never") == (
        status, made["spec"]["priority"], made["spec"]["preemptionPolicy"],
    )  # fmt: skip
    assert {"single": {}} == made["spec"]["disruptionMode"]
    assert ["scheduling.k8s.io/compositepodgroup-protection"] == made["metadata"]["finalizers"]
    status, said = cluster.make(path, "h", **given, priority=7)
    text = "priority set in the composite pod group (7) must match the priority computed (100)"
    assert (403, True) == (status, text in said["message"])


def test_kubectl_prints_groups_of_groups(cluster: Cluster) -> None:
    path = f"{V1ALPHA3}/compositepodgroups"
    cluster.make(path, "g", schedulingPolicy=GANGS, **REFERENCE)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = cluster.api.handle(Request("GET", path, 0, accept=accept))
    assert isinstance(answer, Response)
    table = json.loads(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
    names = [column["name"] for column in table["columnDefinitions"]]
    assert ["Name", "Policy", "Workload", "Status", "Age"] == names
    assert ["g", "Gang", "job", "Pending"] == table["rows"][0]["cells"][:4]
