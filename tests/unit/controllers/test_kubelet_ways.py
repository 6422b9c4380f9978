"""What kubelets do as real ones: rejections, resizes that never can be, hooks before a stop, images
that cannot be pulled, extended resources that somebody patches into a node."""

from typing import Any

from stower.controllers.runtime import STRATEGIC
from tests.unit.controllers.cluster import Cluster, Object, pools

SLOW: Object = {"lifecycle": {"preStop": {"sleep": {"seconds": 10}}}}


def pod(name: str, cpu: str = "1", **spec: Any) -> Object:
    container = {"name": "c", "image": "busy", "resources": {"requests": {"cpu": cpu}}}
    container |= spec.pop("container", {})
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def patch_status(cluster: Cluster, path: str, status: Object) -> None:
    code, answer = cluster.ask("PATCH", f"{path}/status", {"status": status}, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()


def resize(cluster: Cluster, name: str, cpu: str) -> None:
    own = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    path = f"/api/v1/namespaces/default/pods/{name}/resize"
    code, answer = cluster.ask("PATCH", path, own, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()


def waits_for(cluster: Cluster, name: str) -> str:
    told = cluster.one("pods", name)["status"]["containerStatuses"][0]["state"]
    return str((told.get("waiting") or {}).get("reason"))


def test_a_resize_that_never_can_be_takes_nothing_from_others() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod("a"))
    cluster.advance(5)
    resize(cluster, "a", "30")
    pending = next(
        c for c in cluster.one("pods", "a")["status"]["conditions"] if "Pending" in c["type"]
    )
    assert "Infeasible" == pending["reason"]
    assert "requested: 30000, capacity: 4000" in pending["message"]
    cluster.create("pods", pod("b", "2", nodeName="node-1"))
    cluster.advance(5)
    assert {"a": "Running", "b": "Running"} == cluster.phases()
    cluster.restart()
    cluster.create("pods", pod("c", "1", nodeName="node-1"))
    cluster.advance(5)
    assert "Running" == cluster.phases()["c"], "the pod's status says what it has"
    cluster.create("pods", pod("d", "1", nodeName="node-1"))
    cluster.advance(5)
    assert "Failed" == cluster.phases()["d"]


def test_a_pod_starts_with_what_it_had_when_it_was_admitted() -> None:
    cluster = Cluster({**pools(1), "startSeconds": 5})
    cluster.create("pods", pod("a", "2"))
    cluster.create("pods", pod("b", "1"))
    resize(cluster, "b", "3")
    cluster.advance(10)
    status = cluster.one("pods", "b")["status"]["containerStatuses"][0]
    assert {"cpu": "1"} == status["allocatedResources"]
    told = {c["type"]: c.get("reason") for c in cluster.one("pods", "b")["status"]["conditions"]}
    assert "Deferred" == told["PodResizePending"]


def test_rejections_say_what_they_are_about() -> None:
    cluster = Cluster(pools(1), scheduler=False)
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    cluster.create("pods", pod("first", container=port, nodeName="node-1"))
    cluster.advance(1)
    cluster.create("pods", pod("second", container=port, nodeName="node-1"))
    cluster.create("pods", pod("large", "9", nodeName="node-1"))
    cluster.create("pods", pod("apart", nodeName="node-1", nodeSelector={"zone": "moon"}))
    cluster.advance(1)
    told = {n: (p["status"].get("reason"), p["status"].get("message"))
            for n, p in cluster.all("pods").items()}  # fmt: skip
    assert {
        "first": (None, None),
        "second": (
            "NodePorts",
            "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the "
            "requested pod ports",
        ),
        "large": (
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 9000, used: 1000, "
            "capacity: 4000",
        ),
        "apart": (
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node "
            "affinity/selector",
        ),
    } == told
    cluster.delete("pods", "first")
    cluster.create("pods", pod("third", container=port, nodeName="node-1"))
    cluster.advance(1)
    assert "Running" == cluster.phases()["third"], "the port is free again"


def test_hooks_before_a_stop_take_their_time_but_not_more_than_the_grace() -> None:
    cluster = Cluster()
    sleep = {"lifecycle": {"preStop": {"sleep": {"seconds": 10}}}}
    script = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep 8"]}}}}
    cluster.create("pods", pod("sleep", container=sleep))
    cluster.create("pods", pod("script", container=script))
    cluster.create("pods", pod("short", container=script, terminationGracePeriodSeconds=4))
    cluster.create("pods", pod("plain"))
    cluster.advance(5)
    for name in ("sleep", "script", "short", "plain"):
        cluster.delete("pods", name)
    gone = {}
    for second in range(1, 16):
        cluster.advance(1)
        for name in ("sleep", "script", "short", "plain"):
            if name not in cluster.phases():
                gone.setdefault(name, second)
    assert gone.pop("plain") <= 1
    assert {"sleep": 10, "script": 8, "short": 4} == gone


def test_who_waits_for_a_deleted_pod_sees_how_it_ended() -> None:
    cluster = Cluster()
    cluster.create("pods", {**pod("p"), "metadata": {"name": "p", "finalizers": ["own.dev/x"]}})
    cluster.advance(5)
    cluster.delete("pods", "p")
    cluster.advance(5)
    status = cluster.one("pods", "p")["status"]
    assert "Failed" == status["phase"]
    assert 143 == status["containerStatuses"][0]["state"]["terminated"]["exitCode"]


def test_an_image_that_cannot_be_pulled() -> None:
    document = {**pools(1), "images": [{"name": "broken:1", "pullable": False}]}
    cluster = Cluster(document)
    cluster.create("pods", pod("p", container={"image": "broken:1"}))
    assert "ErrImagePull" == waits_for(cluster, "p")
    cluster.advance(2)
    assert "ImagePullBackOff" == waits_for(cluster, "p")
    assert {"p": "Pending"} == cluster.phases()
    cluster.advance(8.5)
    assert "ErrImagePull" == waits_for(cluster, "p"), "it is tried again after 10 s"
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    assert ["Failed", "Failed"] == [e["reason"] for e in events]
    assert 'Failed to pull image "broken:1"' in events[0]["message"]
    cluster.patch("pods", "p", {"spec": {"containers": [{**pod("p")["spec"]["containers"][0],
                                                         "image": "good:1"}]}})  # fmt: skip
    cluster.advance(20)
    assert {"p": "Running"} == cluster.phases()


def test_an_image_that_is_not_to_be_pulled() -> None:
    cluster = Cluster(pools(1, images=["there:1"]))
    never = {"imagePullPolicy": "Never"}
    cluster.create("pods", pod("there", container={"image": "there:1", **never}))
    cluster.create("pods", pod("away", container={"image": "away:1", **never}))
    cluster.advance(5)
    assert {"there": "Running", "away": "Pending"} == cluster.phases()
    assert "ErrImageNeverPull" == waits_for(cluster, "away")


def test_a_rollout_stops_at_an_image_that_cannot_be_pulled() -> None:
    document = {**pools(1), "images": [{"name": "web:2", "pullable": False}]}
    cluster = Cluster(document)
    template = {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "web:1"}]}}  # fmt: skip
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.create("deployments", {"metadata": {"name": "web"}, "spec": spec})
    cluster.advance(10)
    template["spec"]["containers"][0]["image"] = "web:2"  # type: ignore[index]
    cluster.patch("deployments", "web", {"spec": {"template": template}})
    cluster.advance(60)
    status = cluster.one("deployments", "web")["status"]
    assert (3, 1) == (status["availableReplicas"], status["updatedReplicas"])


def test_extended_resources_of_the_capacity_appear_in_allocatable() -> None:
    cluster = Cluster(pools(1))
    path = "/api/v1/nodes/node-1"
    patch_status(cluster, path, {"capacity": {"example.com/foo": "5", "hugepages-1Gi": "2Gi"}})
    allocatable = cluster.one("nodes", "node-1")["status"]["allocatable"]
    assert "5" == allocatable["example.com/foo"]
    assert "hugepages-1Gi" not in allocatable
    patch_status(cluster, path, {"allocatable": {"example.com/foo": "3"}})
    assert "3" == cluster.one("nodes", "node-1")["status"]["allocatable"]["example.com/foo"]
    patch_status(cluster, path, {"capacity": {"example.com/foo": "8"}})
    assert "8" == cluster.one("nodes", "node-1")["status"]["allocatable"]["example.com/foo"]
    patch_status(cluster, path, {"capacity": {"example.com/foo": None}})
    assert "example.com/foo" not in cluster.one("nodes", "node-1")["status"]["allocatable"]


def test_nodes_have_the_version_of_the_server() -> None:
    cluster = Cluster(pools(1), server_version="v1.37.0")
    assert "v1.37.0" == cluster.one("nodes", "node-1")["status"]["nodeInfo"]["kubeletVersion"]
    patch_status(cluster, "/api/v1/nodes/node-1", {"nodeInfo": {"kubeletVersion": "v1.36.0"}})
    info = cluster.one("nodes", "node-1")["status"]["nodeInfo"]
    assert ("v1.37.0", "simulated") == (info["kubeletVersion"], info["osImage"])


def test_what_containers_do_not_do_is_said_in_one_sentence() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod("p"))
    cluster.advance(1)
    path = "/api/v1/namespaces/default/pods/p"
    for method, sub, why in (
        ("GET", "log", "they write no log"),
        ("POST", "exec", "no command can run in them"),
        ("POST", "attach", "there is no process to attach to"),
        ("POST", "portforward", "they listen on no port"),
    ):
        code, answer = cluster.ask(method, f"{path}/{sub}")
        assert (501, "NotImplemented") == (code, answer["reason"])
        assert f'the containers of pod "p" are simulated: {why}' == answer["message"]
    code, answer = cluster.ask("GET", f"{path}/log", query=(("follow", "true"),))
    assert (200, 'the containers of pod "p" are simulated: they write no log\n') == (
        code, answer["message"]
    )  # fmt: skip
    assert 501 == cluster.ask("GET", f"{path}/log", query=(("follow", "false"),))[0]
    cluster.create("pods", pod("waits", "100"))
    code, answer = cluster.ask("POST", "/api/v1/namespaces/default/pods/waits/exec")
    assert (400, "pod waits does not have a host assigned") == (code, answer["message"])
    code, answer = cluster.ask("GET", "/api/v1/namespaces/default/pods/waits/log")
    assert (204, {}) == (code, answer), "nothing was written yet"


def test_the_status_has_seen_each_generation_of_the_pod() -> None:
    cluster = Cluster(pools(1))

    def seen() -> tuple[int, int]:
        found = cluster.one("pods", "a")
        return found["metadata"]["generation"], found["status"].get("observedGeneration")

    cluster.create("pods", pod("a", container=SLOW))
    cluster.advance(5)
    assert (1, 1) == seen()
    resize(cluster, "a", "30")
    assert (2, 2) == seen(), "although it never can be"
    cluster.patch("pods", "a", {"spec": {"activeDeadlineSeconds": 3_000}})
    assert (3, 3) == seen()
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    assert (3, 3) == seen()
    cluster.delete("pods", "a")
    assert (4, 4) == seen(), "while it ends"


def test_pods_that_wait_or_are_rejected_have_been_seen_too() -> None:
    document = {**pools(1), "images": [{"name": "broken:1", "pullable": False}]}
    cluster = Cluster(document)
    cluster.create("pods", pod("a", container={"image": "broken:1"}))
    cluster.create("pods", pod("large", "9", nodeName="node-1"))
    cluster.advance(5)
    cluster.patch("pods", "a", {"spec": {"activeDeadlineSeconds": 3_000}})
    found = {n: p["status"]["observedGeneration"] for n, p in cluster.all("pods").items()}
    assert {"a": 2, "large": 1} == found


def test_a_pod_that_was_created_with_its_node_is_scheduled() -> None:
    document = {**pools(1), "images": [{"name": "broken:1", "pullable": False}]}
    cluster = Cluster(document, scheduler=False)
    cluster.create("pods", pod("runs", nodeName="node-1"))
    cluster.create("pods", pod("waits", nodeName="node-1", container={"image": "broken:1"}))
    cluster.create("pods", pod("large", "9", nodeName="node-1"))
    cluster.advance(5)
    for name, found in cluster.all("pods").items():
        told = {c["type"]: c for c in found["status"].get("conditions") or ()}
        if name == "large":
            assert {} == told
            continue
        scheduled = told["PodScheduled"]
        assert {"type", "status", "lastTransitionTime"} <= scheduled.keys()
        assert ("True", None) == (scheduled["status"], scheduled.get("reason"))
