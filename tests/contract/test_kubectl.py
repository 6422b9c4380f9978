"""kubectl against the server, driven as users drive it: real output."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stower.apiserver.server_process import Options
from tests.contract.kubectl import Kubectl
from tests.contract.servers import in_thread

pytestmark = pytest.mark.behaviour("X2")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    },
}
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """A server in memory and kubectl for it."""
    options = Options(tmp_path / "state", memory=True)
    with in_thread(options) as (_, client):
        yield Kubectl(client, tmp_path)


def test_objects_come_and_go(kubectl: Kubectl) -> None:
    """create, get in all forms, selectors, replace, delete."""
    assert "pod/p1 created" in kubectl("create", "-f", kubectl.file(POD))
    again = kubectl.run("create", "-f", kubectl.file(POD))
    assert "AlreadyExists" in again.stderr
    rows = kubectl("get", "pods", "-o", "wide").splitlines()
    assert ["NAME", "READY", "STATUS"] == rows[0].split()[:3]
    assert ["p1", "0/1", "Pending", "0"] == rows[1].split()[:4]
    assert "p1" == kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
    assert "kind: Pod" in kubectl("get", "pod", "p1", "-o", "yaml")
    shown = kubectl("get", "pods", "-A", "-l", "app=x", "--field-selector", "status.phase=Pending")
    assert "default     p1" in shown
    assert "pod/p1\n" == kubectl("get", "pods", "-o", "name", "--chunk-size=1")
    assert "NotFound" in kubectl.run("get", "pod", "nope").stderr
    changed = json.loads(kubectl("get", "pod", "p1", "-o", "json"))
    changed["metadata"]["labels"]["app"] = "y"
    assert "pod/p1 replaced" in kubectl("replace", "-f", kubectl.file(changed))
    assert "deleted" in kubectl("delete", "pod", "p1")
    assert "NotFound" in kubectl.run("delete", "pod", "p1").stderr


def test_logs_say_once_that_there_are_none(kubectl: Kubectl) -> None:
    """kubectl repeats a request that follows a log after an error."""
    kubectl("create", "-f", kubectl.file(NODE))
    placed = {**POD, "spec": {**POD["spec"], "nodeName": "n1"}}  # type: ignore[dict-item]
    kubectl("create", "-f", kubectl.file(placed))
    sentence = 'the containers of pod "p1" are simulated: they write no log'
    done = kubectl.run("logs", "p1")
    assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count(sentence))
    for more in ((), ("--all-containers",), ("-c", "c", "--prefix")):
        done = kubectl.run("logs", "--follow", "p1", *more)
        assert (0, 1, "") == (done.returncode, done.stdout.count(sentence), done.stderr)
    assert "container d is not valid" in kubectl.run("logs", "--follow", "p1", "-c", "d").stderr


def test_generators_that_speak_protobuf(kubectl: Kubectl) -> None:
    """create namespace and others send protobuf, and do not fall back."""
    assert "namespace/ns1 created" in kubectl("create", "namespace", "ns1")
    assert "created" in kubectl("create", "configmap", "c1", "--from-literal=a=b", "-n", "ns1")
    assert "b" == kubectl("get", "configmap", "c1", "-n", "ns1", "-o", "jsonpath={.data.a}")
    assert "created" in kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert "created" in kubectl("create", "priorityclass", "hi", "--value=10")
    assert "10" == kubectl("get", "priorityclass", "hi", "-o", "jsonpath={.value}")
    assert "created" in kubectl("create", "serviceaccount", "sa")
    assert "created" in kubectl("create", "quota", "q", "--hard=pods=3")
    assert "created" in kubectl("create", "deployment", "web", "--image=i", "--replicas=2")
    assert "created" in kubectl("create", "job", "j", "--image=i")
    assert "created" in kubectl("create", "service", "clusterip", "s", "--tcp=80:8080")
    assert "created" in kubectl("create", "poddisruptionbudget", "p", "--selector=a=b",
                                "--min-available=1")  # fmt: skip
    assert "yes" in kubectl("auth", "can-i", "create", "pods")
    assert "admin" in kubectl("auth", "whoami")
    assert "*.*" in kubectl("auth", "can-i", "--list")


def test_apply_on_both_sides(kubectl: Kubectl) -> None:
    """Client-side apply, diff, server-side apply and its conflicts."""
    assert "deployment.apps/web created" in kubectl("apply", "-f", kubectl.file(WEB))
    assert "deployment.apps/web unchanged" in kubectl("apply", "-f", kubectl.file(WEB))
    more = {**WEB, "spec": {**WEB["spec"], "replicas": 3}}  # type: ignore[dict-item]
    assert 1 == kubectl.run("diff", "-f", kubectl.file(more)).returncode
    assert "deployment.apps/web configured" in kubectl("apply", "-f", kubectl.file(more))
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "1"}}
    side = ("apply", "--server-side", "-f")
    assert "configmap/m serverside-applied" in kubectl(*side, kubectl.file(data))
    kubectl("patch", "configmap", "m", "--type=merge", "-p", '{"data":{"k":"2"}}')
    refused = kubectl.run(*side, kubectl.file(data))
    assert 'conflict with "kubectl-patch" using v1' in refused.stderr
    assert ".data.k" in refused.stderr
    forced = kubectl("apply", "--server-side", "--force-conflicts", "-f", kubectl.file(data))
    assert "serverside-applied" in forced


def test_changes_in_place(kubectl: Kubectl) -> None:
    """label, annotate, patch in three kinds, set image, scale."""
    kubectl("create", "-f", kubectl.file(POD))
    kubectl("create", "-f", kubectl.file(WEB))
    assert "labeled" in kubectl("label", "pod", "p1", "k=v", "--overwrite")
    assert "annotated" in kubectl("annotate", "pod", "p1", "k=v")
    assert "patched" in kubectl("patch", "pod", "p1", "-p", '{"metadata":{"labels":{"s":"1"}}}')
    add = '[{"op":"add","path":"/metadata/labels/j","value":"1"}]'
    assert "patched" in kubectl("patch", "pod", "p1", "--type=json", "-p", add)
    running = '{"status":{"phase":"Running"}}'
    done = kubectl("patch", "pod", "p1", "--subresource=status", "--type=merge", "-p", running)
    assert "patched" in done
    labels = json.loads(kubectl("get", "pod", "p1", "-o", "jsonpath={.metadata.labels}"))
    assert {"app": "x", "k": "v", "s": "1", "j": "1"} == labels
    assert "scaled" in kubectl("scale", "deployment", "web", "--replicas=3")
    assert "3" == kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
    assert "image updated" in kubectl("set", "image", "deployment/web", "c=j:2")


def test_nodes_are_cordoned_tainted_and_drained(kubectl: Kubectl) -> None:
    """cordon, taint, drain (an eviction), describe; the test is the kubelet."""
    kubectl("create", "-f", kubectl.file(NODE))
    assert "Ready" in kubectl("get", "nodes")
    assert "n1 cordoned" in kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    assert "n1 uncordoned" in kubectl("uncordon", "n1")
    assert "n1 tainted" in kubectl("taint", "nodes", "n1", "k=v:NoSchedule")
    described = kubectl("describe", "node", "n1")
    assert "k=v:NoSchedule" in described
    assert "n1 untainted" in kubectl("taint", "nodes", "n1", "k-")
    bound = {**POD, "spec": {**POD["spec"], "nodeName": "n1",  # type: ignore[dict-item]
                             "terminationGracePeriodSeconds": 0}}  # fmt: skip
    kubectl("create", "-f", kubectl.file(bound))
    assert "p1" in kubectl("describe", "node", "n1")
    drained = kubectl("drain", "n1", "--force", "--ignore-daemonsets")
    assert "pod/p1 evicted" in drained
    assert "node/n1 drained" in drained


def test_waits_and_events(kubectl: Kubectl) -> None:
    """wait, rollout status, describe pod, events; the test is the controller."""
    kubectl("create", "-f", kubectl.file(POD))
    kubectl("create", "-f", kubectl.file(WEB))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    path = "/api/v1/namespaces/default/pods/p1/status"
    kubectl.client.call("PATCH", path, ready, "application/merge-patch+json")
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p1", "--timeout=10s")
    done = {"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                       "readyReplicas": 1, "availableReplicas": 1}}  # fmt: skip
    path = "/apis/apps/v1/namespaces/default/deployments/web/status"
    kubectl.client.call("PATCH", path, done, "application/merge-patch+json")
    status = kubectl("rollout", "status", "deployment/web", "--timeout=10s")
    assert "successfully rolled out" in status
    uid = kubectl("get", "pod", "p1", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p1", "namespace": "default", "uid": uid,
                           "apiVersion": "v1"},
        "reason": "Scheduled",
        "message": "Successfully assigned",
        "type": "Normal",
        "source": {"component": "test"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }  # fmt: skip
    kubectl.client.call("POST", "/api/v1/namespaces/default/events", event)
    assert "Scheduled" in kubectl("describe", "pod", "p1")
    assert "Successfully assigned" in kubectl("get", "events")
    assert "Successfully assigned" in kubectl("events", "--for", "pod/p1")


def test_what_the_server_says_of_itself(kubectl: Kubectl) -> None:
    """explain, api-resources, api-versions, version, healthz."""
    assert "FIELDS:" in kubectl("explain", "pod.spec")
    resources = kubectl("api-resources")
    assert "deviceclasses" in resources
    assert "deploy" in resources
    assert "resource.k8s.io/v1" in kubectl("api-versions")
    assert "v1.36" in kubectl("version")
    assert "ok" == kubectl("get", "--raw", "/healthz")
    bad = {**POD, "spec": {**POD["spec"], "bogus": 1}}  # type: ignore[dict-item]
    refused = kubectl.run("create", "-f", kubectl.file(bad))
    assert 'unknown field "spec.bogus"' in refused.stderr


def test_watch_shows_changes(kubectl: Kubectl) -> None:
    """get -w prints a row for each change."""
    kubectl("create", "-f", kubectl.file(POD))
    process = subprocess.Popen(
        ["kubectl", "get", "pods", "-w"], stdout=subprocess.PIPE, text=True,
        env=kubectl.environment,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert "NAME" in process.stdout.readline()
        assert "Pending" in process.stdout.readline()
        running = '{"status":{"phase":"Running"}}'
        kubectl("patch", "pod", "p1", "--subresource=status", "--type=merge", "-p", running)
        assert "Running" in process.stdout.readline()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def test_lists_and_older_versions(kubectl: Kubectl) -> None:
    """What get -o yaml prints goes back in; autoscalers of version 1 are those of version 2."""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": POD["spec"]},
        },
    }
    kubectl("create", "-f", kubectl.file(deployment))
    kubectl("create", "configmap", "m", "--from-literal=a=b")
    shown = kubectl("get", "configmap/m", "deployment/web", "-o", "yaml")
    assert "kind: List" in shown
    assert "deployment.apps/web" in kubectl("apply", "-f", "-", stdin=shown)
    bad = kubectl.run("apply", "-f", "-", stdin=shown.replace("replicas: 2", "replicas: two"))
    assert "replicas" in bad.stderr
    kubectl("autoscale", "deployment", "web", "--cpu-percent=50", "--max=4")
    assert "/50%" in kubectl("get", "hpa", "web")
    path = "{.spec.metrics[0].resource.target.averageUtilization}"
    assert "50" == kubectl("get", "hpa", "web", "-o", f"jsonpath={path}")
    old = kubectl(
        "get", "--raw", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/web"
    )
    assert 50 == json.loads(old)["spec"]["targetCPUUtilizationPercentage"]
    rows = kubectl("get", "deployment", "web", "--subresource=scale").splitlines()
    assert [["NAME", "DESIRED", "AVAILABLE", "AGE"], ["web", "2", "0"]] == [
        rows[0].split(), rows[1].split()[:3],
    ]  # fmt: skip
