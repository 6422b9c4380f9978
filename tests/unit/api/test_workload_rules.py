"""Rules of the API for workloads, their status and ControllerRevisions.

Source: pkg/apis/apps/validation, Kubernetes 1.36; the messages are a real server's.
"""

import json
from typing import Any

import pytest

from stower.api.requests import MERGE_PATCH, STRATEGIC_PATCH
from tests.unit.api.one_client import Client, Object

APPS = "/apis/apps/v1/namespaces/default"
DEPLOYMENTS, REPLICA_SETS = f"{APPS}/deployments", f"{APPS}/replicasets"
STATEFUL_SETS, DAEMON_SETS = f"{APPS}/statefulsets", f"{APPS}/daemonsets"
REVISIONS = f"{APPS}/controllerrevisions"
CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
MISMATCH = 'Invalid value: {"a":"b"}: `selector` does not match template `labels`'
ALWAYS = 'Unsupported value: "Never": supported values: "Always"'
ABOVE = "cannot be greater than status.replicas"
CLAIM = {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
         "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip


@pytest.fixture
def client() -> Client:
    return Client()


def template(**spec: Any) -> Object:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, **spec}}


def workload(**spec: Any) -> Object:
    own = {"selector": {"matchLabels": {"a": "b"}}, "template": template()}
    return {"metadata": {"name": "w"}, "spec": {**own, **spec}}


def rolling(kind: str = "RollingUpdate", **bounds: Any) -> Object:
    return {"type": kind, "rollingUpdate": bounds}


def mounting(*volumes: str) -> Object:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in volumes]
    container = {"name": "c", "image": "i", "volumeMounts": mounts}
    return template(containers=[container], volumes=[{"name": "v", "emptyDir": {}}])


def details(
    client: Client, method: str, path: str, body: Object, form: str = "application/json"
) -> list[tuple[str, str]]:
    """Fields and messages of the causes in their order; empty where the write is carried out."""
    status, answer = client.send(method, path, body, form)
    if status in (200, 201):
        return []
    assert 422 == status, answer
    return [(c["field"], c["message"]) for c in answer["details"]["causes"]]


ROLLING = "spec.strategy.rollingUpdate"
DEPLOYMENT_CASES: list[tuple[Object, list[tuple[str, str]]]] = [
    ({"strategy": rolling("Recreate", maxSurge=1)}, [
        (ROLLING, "Forbidden: may not be specified when strategy `type` is 'Recreate'")]),
    ({"strategy": rolling("Recreate")}, [
        (ROLLING, "Forbidden: may not be specified when strategy `type` is 'Recreate'")]),
    ({"strategy": {"type": "Recreate"}}, []),
    ({"strategy": rolling(maxSurge=0, maxUnavailable=0)}, [
        (f"{ROLLING}.maxUnavailable", "Invalid value: 0: may not be 0 when `maxSurge` is 0")]),
    ({"strategy": rolling(maxSurge="0%", maxUnavailable="00%")}, [
        (f"{ROLLING}.maxUnavailable", 'Invalid value: "00%": may not be 0 when `maxSurge` is 0')]),
    ({"strategy": rolling(maxSurge="101%")}, []),
    ({"strategy": rolling(maxUnavailable="101%")}, [
        (f"{ROLLING}.maxUnavailable", 'Invalid value: "101%": must not be greater than 100%')]),
    ({"strategy": rolling(maxUnavailable="x", maxSurge=0)}, [
        (f"{ROLLING}.maxUnavailable", f'Invalid value: "x": {PERCENT}'),
        (f"{ROLLING}.maxUnavailable", 'Invalid value: "x": may not be 0 when `maxSurge` is 0')]),
    ({"strategy": rolling(maxUnavailable="-5", maxSurge=0)}, [
        (f"{ROLLING}.maxUnavailable", f'Invalid value: "-5": {PERCENT}')]),
    ({"strategy": rolling(maxUnavailable=-1, maxSurge=-1)}, [
        (f"{ROLLING}.maxUnavailable", NEGATIVE), (f"{ROLLING}.maxSurge", NEGATIVE)]),
    ({"strategy": {"type": "Foo"}}, [
        ("spec.strategy", 'Unsupported value: {"Type":"Foo","RollingUpdate":null}: supported '
         'values: "Recreate", "RollingUpdate"')]),
    ({"strategy": rolling("Foo", maxSurge=3)}, [
        ("spec.strategy", 'Unsupported value: {"Type":"Foo","RollingUpdate":{"MaxUnavailable":0,'
         '"MaxSurge":3}}: supported values: "Recreate", "RollingUpdate"')]),
    ({"progressDeadlineSeconds": 5, "minReadySeconds": 5}, [
        ("spec.progressDeadlineSeconds", "Invalid value: 5: must be greater than "
         "minReadySeconds")]),
    ({"minReadySeconds": 600}, [
        ("spec.progressDeadlineSeconds", "Invalid value: 600: must be greater than "
         "minReadySeconds")]),
    ({"progressDeadlineSeconds": -1}, [
        ("spec.progressDeadlineSeconds", NEGATIVE),
        ("spec.progressDeadlineSeconds", "Invalid value: -1: must be greater than "
         "minReadySeconds")]),
    ({"selector": {}}, [
        ("spec.selector", "Invalid value: {}: empty selector is invalid for deployment")]),
    ({"selector": None}, [
        ("spec.selector", "Required value"), ("spec.template.metadata.labels", MISMATCH)]),
    ({"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}}, [
        ("spec.template.metadata.labels", MISMATCH)]),
    ({"selector": {"matchExpressions": [{"values": ["b"], "operator": "Foo", "key": "a"}]}}, [
        ("spec.selector.matchExpressions[0].operator",
         'Invalid value: "Foo": not a valid selector operator'),
        ("spec.selector", 'Invalid value: {"matchExpressions":[{"key":"a","operator":"Foo",'
         '"values":["b"]}]}: invalid label selector')]),
    ({"template": None}, [
        ("spec.template.metadata.labels",
         "Invalid value: null: `selector` does not match template `labels`"),
        ("spec.template.spec.containers", "Required value")]),
    ({"template": template(activeDeadlineSeconds=5, restartPolicy="Never")}, [
        ("spec.template.spec.restartPolicy", ALWAYS),
        ("spec.template.spec.activeDeadlineSeconds",
         "Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported")]),
    ({"replicas": -1, "revisionHistoryLimit": -1, "minReadySeconds": -1}, [
        ("spec.replicas", NEGATIVE), ("spec.minReadySeconds", NEGATIVE),
        ("spec.revisionHistoryLimit", NEGATIVE)]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "faults"), DEPLOYMENT_CASES)
def test_deployments(client: Client, spec: Object, faults: list[tuple[str, str]]) -> None:
    assert faults == details(client, "POST", DEPLOYMENTS, workload(**spec))


def test_replica_sets(client: Client) -> None:
    given = workload(replicas=-1, minReadySeconds=-1, selector={},
                     template=template(restartPolicy="Never"))  # fmt: skip
    assert [
        ("spec.replicas", NEGATIVE),
        ("spec.minReadySeconds", NEGATIVE),
        ("spec.selector", "Invalid value: {}: empty selector is invalid for deployment"),
        ("spec.template.spec.restartPolicy", ALWAYS),
    ] == details(client, "POST", REPLICA_SETS, given)


UPDATE = "spec.updateStrategy"
RETENTION = "spec.persistentVolumeClaimRetentionPolicy"
STATEFUL_CASES: list[tuple[Object, list[tuple[str, str]]]] = [
    ({"podManagementPolicy": "Foo"}, [
        ("spec.podManagementPolicy",
         "Invalid value: \"Foo\": must be 'OrderedReady' or 'Parallel'")]),
    ({UPDATE[5:]: rolling(partition=-1)}, [(f"{UPDATE}.rollingUpdate.partition", NEGATIVE)]),
    ({UPDATE[5:]: rolling("OnDelete", partition=1)}, [
        (f"{UPDATE}.rollingUpdate", 'Invalid value: {"Partition":1,"MaxUnavailable":null}: only '
         "allowed for updateStrategy 'RollingUpdate'")]),
    ({UPDATE[5:]: {"type": "OnDelete"}}, []),
    ({UPDATE[5:]: rolling("Foo", partition=1)}, [
        (UPDATE, 'Invalid value: {"Type":"Foo","RollingUpdate":{"Partition":1,'
         '"MaxUnavailable":null}}: must be \'RollingUpdate\' or \'OnDelete\'')]),
    ({RETENTION[5:]: {"whenDeleted": "Foo", "whenScaled": "Bar"}}, [
        (f"{RETENTION}.whenDeleted",
         'Unsupported value: "Foo": supported values: "Retain", "Delete"'),
        (f"{RETENTION}.whenScaled",
         'Unsupported value: "Bar": supported values: "Retain", "Delete"')]),
    ({"serviceName": "a.b"}, [
        ("spec.serviceName", 'Invalid value: "a.b": must not contain dots')]),
    ({"replicas": -1, "minReadySeconds": -1, "ordinals": {"start": -1}}, [
        ("spec.replicas", NEGATIVE), ("spec.minReadySeconds", NEGATIVE),
        ("spec.ordinals.start", NEGATIVE)]),
    ({"revisionHistoryLimit": -1}, []),
    ({"selector": {}}, [
        ("spec.selector", "Invalid value: {}: empty selector is invalid for statefulset")]),
    ({"selector": None}, [
        ("spec.selector", "Required value"), ("spec.template.metadata.labels", MISMATCH)]),
    ({"template": template(restartPolicy="Never", activeDeadlineSeconds=5)}, [
        ("spec.template.spec.restartPolicy", ALWAYS),
        ("spec.template.spec.activeDeadlineSeconds",
         "Forbidden: activeDeadlineSeconds in StatefulSet is not Supported")]),
    ({"template": template(subdomain="A_", hostname="B_")}, []),  # each pod has its own
    ({"template": template(dnsPolicy="Foo")}, [
        ("spec.template.spec.dnsPolicy", 'Unsupported value: "Foo": supported values: '
         '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"')]),
    ({"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}, [
        ("spec.volumeClaimTemplates[0].spec.accessModes",
         "Required value: at least 1 access mode is required"),
        ("spec.volumeClaimTemplates[0].spec.resources[storage]", "Required value")]),
    ({"volumeClaimTemplates": [CLAIM], "template": mounting("v")}, []),
    ({"volumeClaimTemplates": [CLAIM], "template": mounting("v", "u")}, [
        ("spec.template.spec.containers[0].volumeMounts[1].name", 'Not found: "u"')]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "faults"), STATEFUL_CASES)
def test_stateful_sets(client: Client, spec: Object, faults: list[tuple[str, str]]) -> None:
    assert faults == details(client, "POST", STATEFUL_SETS, workload(**spec))


DAEMON_CASES: list[tuple[Object, list[tuple[str, str]]]] = [
    (rolling(maxUnavailable=0), [
        (".rollingUpdate.maxUnavailable", "Required value: cannot be 0 when maxSurge is 0")]),
    (rolling(maxUnavailable=1, maxSurge=1), [
        (".rollingUpdate.maxSurge",
         "Invalid value: 1: may not be set when maxUnavailable is non-zero")]),
    (rolling(maxUnavailable=0, maxSurge=1), []),
    (rolling(maxUnavailable=0, maxSurge="101%"), [
        (".rollingUpdate.maxSurge", 'Invalid value: "101%": must not be greater than 100%')]),
    (rolling(maxUnavailable="x"), [
        (".rollingUpdate.maxUnavailable", f'Invalid value: "x": {PERCENT}'),
        (".rollingUpdate.maxUnavailable", "Required value: cannot be 0 when maxSurge is 0")]),
    ({"type": "Foo"}, [
        ("", 'Unsupported value: {"Type":"Foo","RollingUpdate":null}: supported values: '
         '"RollingUpdate", "OnDelete"')]),
    (rolling("OnDelete", maxUnavailable=-1), []),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "faults"), DAEMON_CASES)
def test_strategies_of_daemon_sets(
    client: Client, strategy: Object, faults: list[tuple[str, str]]
) -> None:
    wanted = [(UPDATE + field, message) for field, message in faults]
    assert wanted == details(client, "POST", DAEMON_SETS, workload(updateStrategy=strategy))


def test_selectors_and_templates_of_daemon_sets(client: Client) -> None:
    assert [("spec.template.metadata.labels", MISMATCH)] == details(
        client, "POST", DAEMON_SETS, workload(selector=None)
    )
    assert [
        ("spec.selector", "Invalid value: {}: empty selector is invalid for daemonset"),
        ("spec.template.spec.activeDeadlineSeconds",
         "Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"),
    ] == details(client, "POST", DAEMON_SETS,
                 workload(selector={}, template=template(activeDeadlineSeconds=5)))  # fmt: skip


def test_replication_controllers(client: Client) -> None:
    given = workload(selector={"a": "c"}, minReadySeconds=-1, replicas=-1,
                     template=template(activeDeadlineSeconds=5, restartPolicy="Never"))  # fmt: skip
    assert [
        ("spec.minReadySeconds", NEGATIVE),
        ("spec.replicas", NEGATIVE),
        ("spec.template.metadata.labels", MISMATCH),
        ("spec.template.spec.restartPolicy", ALWAYS),
        ("spec.template.spec.activeDeadlineSeconds",
         "Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"),
    ] == details(client, "POST", CONTROLLERS, given)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "faults"),
    [
        ({"data": {"a": 1}, "revision": -1}, [("revision", NEGATIVE)]),
        ({}, [("data", "Required value: data is mandatory")]),
        ({"data": None}, [("data", "Required value: data is mandatory")]),
        ({"data": [1]}, [("data", "Required value: data must be a valid JSON object")]),
        ({"data": {}}, []),
    ],
)
def test_revisions(client: Client, more: Object, faults: list[tuple[str, str]]) -> None:
    body = {"metadata": {"name": "r"}, "revision": 1, **more}
    assert faults == details(client, "POST", REVISIONS, body)


@pytest.mark.parametrize("form", [MERGE_PATCH, STRATEGIC_PATCH])
def test_another_strategy_does_not_keep_the_bounds_of_the_old_one(
    client: Client, form: str
) -> None:
    client.send("POST", DEPLOYMENTS, workload())
    client.send("POST", STATEFUL_SETS, workload())
    client.send("POST", DAEMON_SETS, workload())
    change = {"spec": {"strategy": {"type": "Recreate"}}}
    text = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
    assert [(ROLLING, text)] == details(client, "PATCH", f"{DEPLOYMENTS}/w", change, form)
    change["spec"]["strategy"]["rollingUpdate"] = None  # type: ignore[assignment]
    assert [] == details(client, "PATCH", f"{DEPLOYMENTS}/w", change, form)
    change = {"spec": {"updateStrategy": {"type": "OnDelete"}}}
    text = ('Invalid value: {"Partition":0,"MaxUnavailable":null}: only allowed for '
            "updateStrategy 'RollingUpdate'")  # fmt: skip
    assert [(f"{UPDATE}.rollingUpdate", text)] == details(
        client, "PATCH", f"{STATEFUL_SETS}/w", change, form
    )
    assert [] == details(client, "PATCH", f"{DAEMON_SETS}/w", change, form)


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({"serviceName": "x"}, False),
        ({"podManagementPolicy": "Parallel"}, False),
        ({"volumeClaimTemplates": []}, False),
        ({"volumeClaimTemplates": [CLAIM]}, True),  # as it is
        ({"ordinals": {"start": 3}}, True),
        ({"revisionHistoryLimit": -3}, True),
        ({"minReadySeconds": 3}, True),
        ({"replicas": 3}, True),
        ({RETENTION[5:]: {"whenScaled": "Delete"}}, True),
        ({UPDATE[5:]: {"rollingUpdate": {"partition": 1}}}, True),
    ],
)
def test_most_of_a_stateful_set_stays(client: Client, change: Object, is_allowed: bool) -> None:
    client.send("POST", STATEFUL_SETS, workload(volumeClaimTemplates=[CLAIM]))
    text = (
        "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', "
        "'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    found = details(client, "PATCH", f"{STATEFUL_SETS}/w", {"spec": change}, MERGE_PATCH)
    assert found == ([] if is_allowed else [("spec", text)])


def test_what_a_revision_holds_stays(client: Client) -> None:
    client.send("POST", REVISIONS, {"metadata": {"name": "r"}, "revision": 1, "data": {"a": 1}})
    assert [("data", 'Invalid value: {"a":2}: field is immutable')] == details(
        client, "PATCH", f"{REVISIONS}/r", {"data": {"a": 2}}, MERGE_PATCH
    )


STATUS_CASES: list[tuple[str, Object, list[tuple[str, str]]]] = [
    (DEPLOYMENTS, {"replicas": 1, "updatedReplicas": 2, "availableReplicas": 3,
                   "unavailableReplicas": -1, "terminatingReplicas": -1}, [
        ("unavailableReplicas", NEGATIVE), ("terminatingReplicas", NEGATIVE),
        ("updatedReplicas", f"Invalid value: 2: {ABOVE}"),
        ("availableReplicas", f"Invalid value: 3: {ABOVE}"),
        ("availableReplicas", "Invalid value: 3: cannot be greater than readyReplicas")]),
    (REPLICA_SETS, {"replicas": 1, "readyReplicas": 2, "fullyLabeledReplicas": 3}, [
        ("fullyLabeledReplicas", f"Invalid value: 3: {ABOVE}"),
        ("readyReplicas", f"Invalid value: 2: {ABOVE}")]),
    (STATEFUL_SETS, {"replicas": 1, "currentReplicas": 2, "availableReplicas": 1,
                     "collisionCount": -1}, [
        ("collisionCount", NEGATIVE), ("currentReplicas", f"Invalid value: 2: {ABOVE}"),
        ("availableReplicas", "Invalid value: 1: cannot be greater than status.readyReplicas")]),
    (DAEMON_SETS, {"numberReady": -1, "numberUnavailable": -1}, [
        ("numberReady", NEGATIVE), ("numberUnavailable", NEGATIVE)]),
    (CONTROLLERS, {"replicas": -1}, [
        ("replicas", NEGATIVE), ("fullyLabeledReplicas", f"Invalid value: 0: {ABOVE}"),
        ("readyReplicas", f"Invalid value: 0: {ABOVE}"),
        ("availableReplicas", f"Invalid value: 0: {ABOVE}")]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "status", "faults"), STATUS_CASES)
def test_status(client: Client, path: str, status: Object, faults: list[tuple[str, str]]) -> None:
    selector = {"a": "b"} if path == CONTROLLERS else {"matchLabels": {"a": "b"}}
    client.send("POST", path, workload(selector=selector))
    found = details(client, "PATCH", f"{path}/w/status", {"status": status}, MERGE_PATCH)
    assert found == [(f"status.{field}", message) for field, message in faults]


@pytest.mark.parametrize("path", [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS])
def test_collisions_are_not_forgotten(client: Client, path: str) -> None:
    client.send("POST", path, workload())
    where = f"{path}/w/status"
    assert [] == details(client, "PATCH", where, {"status": {"collisionCount": 3}}, MERGE_PATCH)
    for count, shown in ((2, 2), (None, 0)):
        change = {"status": {"collisionCount": count}}
        assert [
            ("status.collisionCount", f"Invalid value: {shown}: cannot be decremented")
        ] == details(client, "PATCH", where, change, MERGE_PATCH)


def test_an_endless_history_is_warned_of(client: Client) -> None:
    body = json.dumps(workload(revisionHistoryLimit=-1)).encode()
    assert (
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= "
        "0 is recommended",
    ) == client.ask("POST", STATEFUL_SETS, body).warnings


def test_templates_of_daemon_sets_are_warned_of(client: Client) -> None:
    body = json.dumps(workload(template=template(nodeSelector={"beta.kubernetes.io/os": "linux"})))
    (text,) = client.ask("POST", DAEMON_SETS, body.encode()).warnings
    assert text.startswith("spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated")
