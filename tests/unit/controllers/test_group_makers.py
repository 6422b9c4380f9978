"""Groups that are made for pods which ask for it: by Jobs, JobSets, LeaderWorkerSets, labels."""

from typing import Any

import pytest

from stower.assembly import build_engine
from stower.cli.configuration_files import InputError
from stower.cli.group_making import kinds_of, with_group_making
from stower.controllers.group_makers import GATE
from stower.model.gang_kinds import KINDS
from tests.unit.controllers.cluster import Cluster, Object, pools

ASKS = {"schedulingGates": [{"name": GATE}]}
LWS = "leaderworkerset.sigs.k8s.io"
JOB_SET = "jobset.sigs.k8s.io"


@pytest.fixture(params=["1.36", "1.37"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(pools(2, capacity={"cpu": "2"}), version=request.param)


def asking(name: str, meta: Any = None, cpu: str = "1") -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **ASKS}
    return {"metadata": {"name": name, **(meta or {})}, "spec": spec}


def job(name: str, parallelism: int, meta: Any = None, **spec: Any) -> Object:
    template = asking("", meta)
    del template["metadata"]["name"]
    template["spec"]["restartPolicy"] = "Never"
    made = {"parallelism": parallelism, "completions": parallelism, "template": template, **spec}
    return {"metadata": {"name": name}, "spec": made}


def placed(cluster: Cluster) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in cluster.all("pods").values())


def minimum(cluster: Cluster, name: str) -> int:
    return int(cluster.one("podgroups", name)["spec"]["schedulingPolicy"]["gang"]["minCount"])


def test_a_job_gets_a_gang_of_its_pods(cluster: Cluster) -> None:
    cluster.create("jobs", job("train", 5))
    cluster.advance(10)
    assert (5, 5, 0) == (len(cluster.all("pods")), minimum(cluster, "train"), placed(cluster))
    cluster.create("jobs", job("small", 3))
    cluster.advance(10)
    assert 3 == placed(cluster)
    cluster.delete("jobs", "small", propagationPolicy="Background")
    cluster.until(lambda: [*cluster.all("podgroups")] == ["train"])


def test_a_job_of_fewer_completions_needs_fewer_pods(cluster: Cluster) -> None:
    cluster.create("jobs", job("train", 9, completions=2))
    cluster.advance(10)
    assert (2, 2) == (minimum(cluster, "train"), placed(cluster))


@pytest.mark.parametrize(
    ("labels", "annotations", "name"),
    [
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "2"},
         "g"),
        ({"scheduling.x-k8s.io/pod-group": "g"}, {"stower.dev/min-count": "2"}, "g"),
        ({"pod-group.scheduling.sigs.k8s.io": "g",
          "pod-group.scheduling.sigs.k8s.io/min-available": "2"}, {}, "g"),
        ({f"{LWS}/name": "llm", f"{LWS}/group-index": "3"}, {f"{LWS}/size": "2"}, "llm-3"),
    ],
)  # fmt: skip
def test_pods_with_labels_of_others_get_their_group(
    cluster: Cluster, labels: Any, annotations: Any, name: str
) -> None:
    meta = {"labels": labels, "annotations": annotations}
    cluster.create("pods", asking("p0", meta))
    cluster.advance(10)
    assert (2, 0) == (minimum(cluster, name), placed(cluster))
    cluster.create("pods", asking("p1", meta))
    cluster.advance(10)
    assert 2 == placed(cluster)
    for pod in ("p0", "p1"):
        cluster.delete("pods", pod)
    cluster.until(lambda: not cluster.all("podgroups"))


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_a_replica_with_a_domain_for_itself_begins_with_its_leader(version: str) -> None:
    """Its workers are created once the leader has a node."""
    zone = "topology.kubernetes.io/zone"
    cluster = Cluster(pools(2, capacity={"cpu": "2"}, labels={zone: "a"}), version=version)
    meta = {
        "labels": {f"{LWS}/name": "llm", f"{LWS}/group-index": "0"},
        "annotations": {f"{LWS}/size": "3", f"{LWS}/exclusive-topology": zone},
    }
    cluster.create("pods", asking("llm-0", meta))
    cluster.advance(10)
    assert (1, 1) == (minimum(cluster, "llm-0"), placed(cluster))
    spec = cluster.one("podgroups", "llm-0")["spec"]
    assert [{"key": zone}] == spec["schedulingConstraints"]["topology"]
    for i in (1, 2):
        cluster.create("pods", asking(f"llm-0-{i}", meta))
    cluster.advance(10)
    assert 3 == placed(cluster)


def test_a_group_that_somebody_else_made_stays(cluster: Cluster) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    cluster.create("podgroups", {"metadata": {"name": "g"}, "spec": policy})
    meta = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    cluster.create("pods", asking("p0", meta))
    cluster.advance(10)
    assert (1, 1) == (minimum(cluster, "g"), placed(cluster))
    cluster.delete("pods", "p0")
    cluster.advance(100)
    assert ["g"] == [*cluster.all("podgroups")]


def test_topology_is_taken_over(cluster: Cluster) -> None:
    notes = {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "kueue.x-k8s.io/podset-preferred-topology": "switch",
    }
    cluster.create("jobs", job("train", 2, {"annotations": notes}))
    group = cluster.one("podgroups", "train")
    assert [{"key": "rack"}] == group["spec"]["schedulingConstraints"]["topology"]
    assert {"stower.dev/preferred-topology": "switch"} == group["metadata"]["annotations"]


def test_a_pod_that_does_not_say_in_which_group_it_is_waits_and_is_told_once(
    cluster: Cluster,
) -> None:
    cluster.create("pods", asking("p0"))
    cluster.create("pods", asking("p1", {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}))
    bad = {"labels": {f"{LWS}/name": "llm"}, "annotations": {f"{LWS}/size": "many"}}
    cluster.create("pods", asking("p2", bad))
    odd = {
        "labels": {"scheduling.x-k8s.io/pod-group": "g"},
        "annotations": {
            "stower.dev/min-count": "1", "kueue.x-k8s.io/podset-required-topology": "a b",
        },
    }  # fmt: skip
    cluster.create("pods", asking("p3", odd))
    cluster.advance(60)
    assert ({}, 0) == (cluster.all("podgroups"), placed(cluster))
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    told = {
        e["involvedObject"]["name"]: e["message"] for e in events if e["reason"] == "NoPodGroup"
    }
    assert 4 == len([e for e in events if e["reason"] == "NoPodGroup"])
    assert 'kueue.x-k8s.io/podset-required-topology: got "a b"' in told["p3"]
    assert "has no Job as controller" in told["p0"]
    assert "set the annotation stower.dev/min-count" in told["p1"]
    assert f'{LWS}/size: got "many", want a number' in told["p2"]
    # And once it says it, it goes on.
    cluster.patch("pods", "p1", {"metadata": {"annotations": {"stower.dev/min-count": "1"}}})
    cluster.advance(10)
    assert 1 == placed(cluster)


def test_a_job_set_gets_a_tree() -> None:
    """All its Jobs at once, each Job a gang."""
    cluster = Cluster(pools(2, capacity={"cpu": "2"}), version="1.37")
    labels = {f"{JOB_SET}/jobset-name": "set", f"{JOB_SET}/global-replicas": "2"}
    cluster.create("jobs", job("set-a-0", 2, {"labels": labels}))
    cluster.advance(10)
    assert ["set"] == [*cluster.all("compositepodgroups")]
    assert ({"set-a-0"}, 0) == (set(cluster.all("podgroups")), placed(cluster))
    cluster.create("jobs", job("set-b-0", 2, {"labels": labels}))
    cluster.advance(10)
    assert 4 == placed(cluster)
    root = cluster.one("compositepodgroups", "set")
    assert 2 == root["spec"]["schedulingPolicy"]["gang"]["minGroupCount"]


def test_the_last_pods_of_a_job_do_not_wait_for_those_that_have_ended() -> None:
    """Two at a time, three in all; and a Job that is made smaller needs fewer."""
    cluster = Cluster(pools(2, capacity={"cpu": "2"}), version="1.37")
    notes = {"annotations": {"stower.dev/run-seconds": "3"}}
    cluster.create("jobs", job("train", 2, notes, completions=3))
    cluster.until(lambda: [*cluster.phases().values()].count("Succeeded") == 3, 120)
    cluster.create("jobs", job("shrinks", 2))
    cluster.advance(5)
    assert 2 == minimum(cluster, "shrinks")
    cluster.patch("jobs", "shrinks", {"spec": {"parallelism": 1}})
    cluster.advance(5)
    assert 1 == minimum(cluster, "shrinks")


def test_a_group_whose_pod_was_linked_elsewhere_goes(cluster: Cluster) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    cluster.create("podgroups", {"metadata": {"name": "g"}, "spec": policy})
    spec = {"containers": [{"name": "c", "image": "i"}]}
    meta = {"name": "p", "labels": {"stower.dev/pod-group": "g"}}
    cluster.create("pods", {"metadata": meta, "spec": spec})
    cluster.delete("podgroups", "g")
    cluster.advance(5)
    assert ["g"] == [*cluster.all("podgroups")]
    cluster.patch("pods", "p", {"metadata": {"labels": {"stower.dev/pod-group": None}}})
    cluster.until(lambda: not cluster.all("podgroups"))


@pytest.fixture(params=["1.36", "1.37"])
def making(request: pytest.FixtureRequest) -> Cluster:
    """A cluster in which pods of all kinds of gangs get a group without asking."""
    room = pools(2, capacity={"cpu": "2"})
    return Cluster(room, version=request.param, gang_kinds=KINDS)


def plain(name: str, labels: Any, annotations: Any = None, **spec: Any) -> Object:
    """A pod as operators make it: it has no scheduling gate."""
    made = asking(name, {"labels": labels, "annotations": annotations or {}})
    del made["spec"]["schedulingGates"]
    made["spec"] |= spec
    return made


def test_pods_of_gangs_need_no_gate(making: Cluster) -> None:
    """A LeaderWorkerSet's: the first pod is held until its group is made, and the gang is whole."""
    labels = {f"{LWS}/name": "llm", f"{LWS}/group-index": "0"}
    making.create("pods", plain("llm-0", labels, {f"{LWS}/size": "2"}))
    making.advance(10)
    assert (2, 0) == (minimum(making, "llm-0"), placed(making))
    making.create("pods", plain("llm-0-1", labels, {f"{LWS}/size": "2"}))
    making.advance(10)
    assert 2 == placed(making)


@pytest.mark.parametrize("value", ["2", "2:4"])
def test_a_pytorch_job_says_how_many_pods_it_has_in_their_environment(
    making: Cluster, value: str
) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "u",
             "controller": True}  # fmt: skip
    for i in range(2):
        pod = plain(f"bert-worker-{i}", {"training.kubeflow.org/job-name": "bert"})
        pod["spec"]["containers"][0]["env"] = [{"name": "PET_NNODES", "value": value}]
        pod["metadata"]["ownerReferences"] = [owner]
        making.create("pods", pod)
        making.advance(10)
        assert (2, 2 * i) == (minimum(making, "bert"), placed(making))


def test_a_plain_job_is_a_gang_where_it_says_so(making: Cluster) -> None:
    for name, meta in (("plain", {}), ("gang", {"annotations": {"stower.dev/gang": "true"}})):
        made = job(name, 2, meta)
        del made["spec"]["template"]["spec"]["schedulingGates"]
        making.create("jobs", made)
    making.advance(20)
    assert ["gang"] == [*making.all("podgroups")]
    assert 4 == placed(making)


def test_a_pod_may_say_that_it_is_no_gangs(making: Cluster) -> None:
    """A gang waits for all pods; those of this set start one after another."""
    labels = {f"{LWS}/name": "llm", f"{LWS}/group-index": "0"}
    notes = {f"{LWS}/size": "2", "stower.dev/gang": "false"}
    making.create("pods", plain("llm-0", labels, notes))
    making.advance(10)
    assert {} == making.all("podgroups")
    assert 1 == placed(making)


def test_a_held_pod_is_told_what_is_missing(making: Cluster) -> None:
    making.create("pods", plain("p", {"kueue.x-k8s.io/pod-group-name": "g"}))
    making.advance(10)
    assert 0 == placed(making)
    events = making.get("/api/v1/namespaces/default/events")["items"]
    (said,) = [event["message"] for event in events if event["reason"] == "NoPodGroup"]
    assert "kueue.x-k8s.io/pod-group-total-count does not give the number of pods" in said


def test_pods_on_nodes_and_pods_in_groups_are_left_alone(making: Cluster) -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    making.create("pods", plain("on-node", labels, nodeName="node-1"))
    making.advance(10)
    assert {} == making.all("podgroups")


def test_kinds_are_named_or_all() -> None:
    assert KINDS == kinds_of("all")
    assert ("job", "jobset") == kinds_of("job,jobset,job")
    assert () == kinds_of("")
    with pytest.raises(InputError, match="got 'jobs', want all or some of jobset,"):
        kinds_of("jobs")
    profile = {"schedulerName": "s", "plugins": {"score": {"disabled": [{"name": "*"}]}}}
    document = with_group_making({"profiles": [profile]}, ("job",))
    assert document is not None
    engine = build_engine(document)
    assert "GroupMaking" in engine.profiles["s"].plugins
