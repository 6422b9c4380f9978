"""Workload objects in INPUT: their pods, as controllers would create them."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stower.cli.configuration_files import InputError
from stower.cli.inputs import LoadedWorkload, load
from stower.model.kinds import PersistentVolumeClaim, Pod
from tests.unit.cli.test_cluster_inputs import node
from tests.unit.cli.test_what_if import ask, pairs, stower

Object = dict[str, Any]


def template(app: str, cpu: str = "100m", **spec: Any) -> Object:
    container = {"name": "c", "image": "c:1", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def owner(kind: str, name: str = "web", **spec: Any) -> Object:
    is_job = kind in ("Job", "CronJob")
    rest = {} if is_job else {"selector": {"matchLabels": {"app": name}}}
    if kind != "CronJob":
        made = template(name, **({"restartPolicy": "Never"} if is_job else {}))
        rest["template"] = made
    return {
        "apiVersion": "batch/v1" if is_job else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**rest, **spec},
    }


def cron_job(name: str = "nightly", **spec: Any) -> Object:
    return owner("CronJob", name, schedule="0 3 * * *", jobTemplate=owner("Job", name), **spec)


def write(path: Path, *objects: Object) -> str:
    path.write_text("\n".join(json.dumps(obj) for obj in objects))
    return str(path)


def read(tmp_path: Path, *objects: Object) -> LoadedWorkload:
    return load([write(tmp_path / "cluster.json", *objects)])


def pods_of(loaded: LoadedWorkload) -> list[Pod]:
    work = loaded.workload
    return [*work.placed, *(arrival.pod for arrival in work.arrivals)]


def owners_of(loaded: LoadedWorkload) -> Counter[str]:
    pods = (pod.metadata.owner_references or () for pod in pods_of(loaded))
    return Counter(owners[0].kind if owners else "" for owners in pods)


def test_each_kind_gets_the_pods_that_its_controller_creates(tmp_path: Path) -> None:
    tainted = node("n2")
    tainted["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    loaded = read(
        tmp_path, node("n1"), tainted, owner("Deployment", replicas=3),
        owner("StatefulSet", "db", replicas=2, serviceName="db"), owner("DaemonSet", "agent"),
        owner("ReplicaSet", "old", replicas=1), owner("Job", "train", completions=5, parallelism=2),
        cron_job(),
    )  # fmt: skip
    assert {"ReplicaSet": 4, "StatefulSet": 2, "DaemonSet": 1, "Job": 3} == owners_of(loaded)
    assert {"Deployment": 3, "StatefulSet": 2, "DaemonSet": 1, "ReplicaSet": 1, "Job": 2,
            "CronJob": 1} == loaded.created  # fmt: skip
    names = [pod.metadata.name for pod in pods_of(loaded)]
    assert names[0].startswith("agent-")  # nodes have these before other pods come
    assert {"db-0", "db-1"} <= {*names}


def test_what_is_written_is_read_again_without_more_pods(tmp_path: Path) -> None:
    given = write(
        tmp_path / "given.json", node("n1"), owner("Deployment", replicas=3), cron_job(),
        owner("DaemonSet", "agent"), owner("StatefulSet", "db", replicas=2),
    )  # fmt: skip
    out = str(tmp_path / "out.json")
    run = stower("simulate", given, "--objects", out)
    assert 0 == run.exit_code, run.stderr
    assert "1 of CronJobs, 1 of DaemonSets, 3 of Deployments, 2 of StatefulSets" in run.stderr
    again = load([out])
    assert ({}, 7, 0) == (again.created, len(again.workload.placed), len(again.workload.arrivals))


def drawn(seed: int) -> tuple[list[Object], Counter[str]]:
    """Objects, and how many pods each is to get, by name."""
    draw = random.Random(seed)
    objects, wanted = [], Counter[str]()
    nodes = draw.randrange(4)
    for i in range(nodes):
        objects.append(node(f"n{i}"))
    for i in range(draw.randrange(1, 6)):
        kind = draw.choice(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job"))
        name, count = f"{kind.lower()}-{i}", draw.choice((None, 0, 1, 7, 600))
        want = 1 if count is None else count
        if kind == "DaemonSet":
            objects.append(owner(kind, name))
            want = nodes
        elif kind == "Job":
            completions = draw.choice((None, 1, 3, 800))
            fields = {"parallelism": count, "completions": completions}
            if draw.random() < 0.3 and completions:
                fields["completionMode"] = "Indexed"
            given = {key: value for key, value in fields.items() if value is not None}
            objects.append(owner(kind, name, **given))
            # Without both, a Job has one completion; without completions, a work queue.
            want = min(want, completions) if completions else want
        else:
            objects.append(owner(kind, name, **({} if count is None else {"replicas": count})))
        wanted[name] += want
    draw.shuffle(objects)
    return objects, +wanted


@pytest.mark.parametrize("seed", range(40))
def test_as_many_pods_as_are_wanted(seed: int, tmp_path: Path) -> None:
    objects, wanted = drawn(seed)
    if not any(obj["kind"] == "Node" for obj in objects) and not wanted:
        return
    pods = pods_of(read(tmp_path, *objects))
    assert wanted == Counter((pod.metadata.labels or {})["app"] for pod in pods)
    assert len(pods) == len({pod.key for pod in pods})


def stored(obj: Object) -> Object:
    """The object as in a dump."""
    meta = {**obj["metadata"], "resourceVersion": "7", "uid": f"uid-{obj['metadata']['name']}"}
    return {**obj, "metadata": {**meta, "namespace": "default"}}


def stored_pod(name: str, kind: str, owner_name: str, app: str) -> Object:
    reference: Object = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name}
    reference |= {"uid": f"uid-{owner_name}", "controller": True}
    made = stored({"apiVersion": "v1", "kind": "Pod", **template(app), "metadata": {"name": name}})
    made["metadata"] |= {"labels": {"app": app}, "ownerReferences": [reference]}
    return made


def test_a_dump_is_left_as_it_is(tmp_path: Path) -> None:
    """Of three pods, one is missing, as quota may keep it; the CronJob waits for its time."""
    loaded = read(
        tmp_path, node("n1"), stored(owner("Deployment", replicas=3)), stored(cron_job()),
        stored_pod("web-a-1", "ReplicaSet", "web-a", "web"),
        stored_pod("web-a-2", "ReplicaSet", "web-a", "web"),
    )  # fmt: skip
    assert ({}, 2) == (loaded.created, len(pods_of(loaded)))


def test_a_manifest_counts_the_pods_of_a_dump(tmp_path: Path) -> None:
    loaded = read(
        tmp_path, node("n1"), owner("Deployment", replicas=3),
        stored_pod("web-a-1", "ReplicaSet", "web-a", "web"),
    )  # fmt: skip
    assert {"Deployment": 2} == loaded.created


def test_objects_of_a_dump_without_pods_get_them(tmp_path: Path) -> None:
    loaded = read(tmp_path, node("n1"), stored(owner("Deployment", replicas=3)))
    assert {"Deployment": 3} == loaded.created


def test_nothing_is_created_for_what_rests(tmp_path: Path) -> None:
    done = owner("Job", "done")
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    loaded = read(tmp_path, node("n1"), cron_job(suspend=True), owner("Job", suspend=True), done)
    assert [] == pods_of(loaded)


def test_helm_tests_are_left_out_and_told(tmp_path: Path) -> None:
    test = {"apiVersion": "v1", "kind": "Pod", **template("t")}
    test["metadata"] = {"name": "t", "annotations": {"helm.sh/hook": "test"}}
    given = write(tmp_path / "c.json", node("n1"), owner("Deployment"), test)
    run = stower("simulate", given)
    assert "ignored, as helm install does not create them: 1 Pod (helm test)" in run.stderr
    assert 1 == len(pods_of(load([given])))


def test_claims_of_a_stateful_set_have_the_default_class(tmp_path: Path) -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
               "resources": {"requests": {"storage": "1Gi"}}}}]  # fmt: skip
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "a",
         "volumeBindingMode": "WaitForFirstConsumer",
         "metadata": {"name": name, "annotations": marks}}
        for name, marks in (("slow", {}), ("fast", default))
    ]  # fmt: skip
    db = owner("StatefulSet", "db", replicas=2, volumeClaimTemplates=claims)
    loaded = read(tmp_path, node("n1"), *classes, db)
    found = {
        obj.metadata.name: obj.spec.storage_class_name
        for obj in loaded.workload.related
        if isinstance(obj, PersistentVolumeClaim)
    }
    assert {"data-db-0": "fast", "data-db-1": "fast"} == found


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"replicas": -1}, "spec.replicas: got -1, want greater than or equal to 0"),
        ({"replicas": 10**6}, "spec.replicas: got 1000000, want at most 150000"),
        ({"replicas": "three"}, 'spec.replicas: got "three", want int32'),
        ({"selector": None}, 'spec.selector: got "", want a value'),
        ({"selector": {"matchLabels": {"app": "b"}}}, "spec.template.metadata.labels: got"),
        ({"template": {"spec": {"containers": []}}}, "spec.template"),
    ],
)
def test_faults_name_the_object_and_the_field(change: Object, error: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, node("n1"), owner("Deployment", **change))
    assert f"cluster.json: document 2: {error}" in str(caught.value)


def test_a_stateful_set_begins_with_its_first_ordinal(tmp_path: Path) -> None:
    db = owner("StatefulSet", "db", replicas=2, ordinals={"start": 5})
    assert {"db-5", "db-6"} == {p.metadata.name for p in pods_of(read(tmp_path, node("n1"), db))}
    with pytest.raises(InputError) as caught:
        read(tmp_path, owner("StatefulSet", "db", ordinals={"start": -1}))
    assert "spec.ordinals.start: got -1, want greater than or equal to 0" in str(caught.value)


def test_a_pod_of_another_owner_keeps_its_name(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "Pod", **template("x"), "metadata": {"name": "db-0"}}
    loaded = read(tmp_path, node("n1"), other, owner("StatefulSet", "db", replicas=2))
    assert {"db-0", "db-1"} == {pod.metadata.name for pod in pods_of(loaded)}


def test_pods_of_one_object_and_of_another_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, node("n1"), owner("Deployment"), owner("Deployment"))
    assert "document 3: metadata.name" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "command"),
    [("kustomization.yaml", "kubectl kustomize"), ("Chart.yaml", "helm template")],
)
def test_sources_of_manifests_name_the_command(name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("resources: []")
    with pytest.raises(InputError) as caught:
        load([str(tmp_path)])
    assert f"want its output: {command} {tmp_path} | stower" in str(caught.value)


def test_a_dump_folder_of_cluster_info_is_read(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    nodes = [{k: v for k, v in node("n1").items() if k not in ("kind", "apiVersion")}]
    listed = {"apiVersion": "v1", "metadata": {}}
    (tmp_path / "nodes.json").write_text(json.dumps({**listed, "kind": "NodeList", "items": nodes}))
    pods = [{**template("a"), "metadata": {"name": "a", "namespace": "team"}}]
    text = json.dumps({**listed, "kind": "PodList", "items": pods})
    (tmp_path / "team" / "pods.json").write_text(text)
    (tmp_path / "team" / "a-logs.txt").write_text("started")
    loaded = load([str(tmp_path)])
    assert (1, ["team/a"]) == (len(loaded.workload.nodes), [p.key for p in pods_of(loaded)])


def test_a_dump_with_logs_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(node("n1")) + "\n==== START logs for container c of pod a/b ====\n")
    with pytest.raises(InputError) as caught:
        load([str(path)])
    assert "--output-directory" in str(caught.value)


# What-if


def test_daemon_pods_are_on_copied_nodes_too(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    mirror = {"apiVersion": "v1", "kind": "Pod", **template("proxy")}
    mirror["metadata"] = {"name": "proxy-n1", "annotations": {"kubernetes.io/config.mirror": "x"}}
    mirror["spec"]["nodeName"] = "n1"
    write(cluster, node("n1"), owner("DaemonSet", "agent"), mirror)
    found = ask(cluster, "--add-nodes", "2")
    places = Counter(after for _, after in pairs(found, "added").values())
    assert {"n1-copy-1": 2, "n1-copy-2": 2} == places


def test_daemon_pods_are_on_added_nodes_too(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    write(cluster, node("n1"), owner("DaemonSet", "agent"))
    more = write(tmp_path / "more.json", node("n2"), owner("Deployment", replicas=2))
    found = ask(cluster, "--add", more)
    apps = Counter(key.partition("/")[2].partition("-")[0] for key in pairs(found, "added"))
    assert {"agent": 1, "web": 2} == apps
    assert ["n2"] == [after for key, (_, after) in pairs(found, "added").items() if "agent" in key]


def test_an_added_daemon_set_is_on_all_nodes(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    write(cluster, node("n1"), node("n2"))
    more = write(tmp_path / "more.json", owner("DaemonSet", "agent"))
    places = {after for _, after in pairs(ask(cluster, "--add", more), "added").values()}
    assert {"n1", "n2"} == places


def test_pods_of_a_removed_node_are_removed_before_they_have_it(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    write(cluster, node("n1"), node("n2"), owner("DaemonSet", "agent"))
    found = ask(cluster, "--remove-node", "n1")
    assert ([], 1) == (found["newlyPending"], len(found["removed"]))


def test_claims_of_added_pods_have_the_default_class_of_the_cluster(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    standard = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "a",
                "volumeBindingMode": "WaitForFirstConsumer",
                "metadata": {"name": "standard", "annotations": marks}}  # fmt: skip
    write(cluster, node("n1"), standard)
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
               "resources": {"requests": {"storage": "1Gi"}}}}]  # fmt: skip
    db = owner("StatefulSet", "db", replicas=2, volumeClaimTemplates=claims)
    found = ask(cluster, "--add", write(tmp_path / "more.json", db))
    assert {"n1"} == {after for _, after in pairs(found, "added").values()}


@pytest.mark.parametrize(
    ("metadata", "said"),
    [(["d"], "metadata: got"), ({"name": "d", "resourceVersion": "5"}, "spec.selector")],
)
def test_odd_objects_are_told(metadata: Any, said: str, tmp_path: Path) -> None:
    odd = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {}}
    with pytest.raises(InputError) as caught:
        load([write(tmp_path / "odd.json", odd)])
    assert said in str(caught.value)


def test_other_versions_name_the_one_that_is_read(tmp_path: Path) -> None:
    old = {**owner("Deployment"), "apiVersion": "extensions/v1beta1"}
    run = stower(
        "simulate",
        write(tmp_path / "c.json", node("n1"), old, owner("Deployment", "d", replicas=0)),
    )
    assert "ignored, want apps/v1: 1 Deployment (extensions/v1beta1)" in run.stderr
    assert "pods created" not in run.stderr


def test_an_object_that_exists_is_not_added(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    write(cluster, node("n1"), owner("Deployment"))
    run = stower("what-if", str(cluster), "--add", str(cluster))
    assert 2 == run.exit_code
    assert "metadata.name" in run.stderr


def scratching(**spec: Any) -> Object:
    """A pod with a generic ephemeral volume."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"labels": {"kind": "scratch"}}
    source = {"volumeClaimTemplate": {"metadata": meta, "spec": {**wanted, **spec}}}
    volumes = [{"name": "tmp", "ephemeral": source}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": template("p", volumes=volumes)["spec"]}  # fmt: skip


FAST: Object = {
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/p",
    "volumeBindingMode": "WaitForFirstConsumer",
    "metadata": {"name": "fast",
                 "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
}  # fmt: skip


def test_ephemeral_volumes_of_pods_have_claims(tmp_path: Path) -> None:
    """As the controller makes them: the pod's own, of the default class, once."""
    loaded = read(tmp_path, node("n1"), FAST, scratching())
    (claim,) = (o for o in loaded.workload.related if isinstance(o, PersistentVolumeClaim))
    (pod,) = pods_of(loaded)
    meta = claim.metadata
    assert ("default/p-tmp", pod.metadata.uid) == (meta.key, meta.controller_uid)
    assert ("fast", {"kind": "scratch"}) == (claim.spec.storage_class_name, meta.labels)
    run = stower("simulate", str(tmp_path / "cluster.json"), "--output", "json")
    assert (1, 0) == tuple(json.loads(run.stdout)["reports"][0][k] for k in ("placed", "pending"))
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "other"}
    there = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p-tmp"},
             "spec": spec}  # fmt: skip
    loaded = read(tmp_path, node("n1"), FAST, scratching(), there)
    (claim,) = (o for o in loaded.workload.related if isinstance(o, PersistentVolumeClaim))
    assert "other" == claim.spec.storage_class_name
    with pytest.raises(InputError, match=r"volumeClaimTemplate\.spec\.accessModes"):
        read(tmp_path, node("n1"), scratching(accessModes="ReadWriteOnce"))


def test_copies_and_moved_pods_have_volume_claims_of_their_own(tmp_path: Path) -> None:
    """They waited for a controller, which files do not have."""
    pod = tmp_path / "pod.json"
    write(pod, scratching())
    cluster = write(tmp_path / "c.json", node("n1"), node("n2"), FAST)
    run = stower("fit", str(pod), cluster)
    assert 0 == run.exit_code, run.stdout
    there = scratching()
    there["spec"]["nodeName"] = "n1"
    placed = write(tmp_path / "p.json", node("n1"), node("n2"), FAST, there)
    assert {"default/p": ("n1", "n2")} == pairs(ask(Path(placed), "--remove-node", "n1"), "moved")
    made = tmp_path / "made.json"
    stower("simulate", cluster, str(pod), "--objects", str(made))
    (claim,) = (one for one in map(json.loads, made.read_text().splitlines())
                if one["kind"] == "PersistentVolumeClaim")  # fmt: skip
    assert "p-tmp" == claim["metadata"]["name"]


def test_a_pod_can_be_replaced_with_its_claims(tmp_path: Path) -> None:
    """What a deleted pod owns goes with it."""
    other = tmp_path / "other.json"
    write(other, scratching())
    cluster = write(tmp_path / "c.json", node("n1"), FAST, scratching())
    found = ask(Path(cluster), "--delete", "pod/default/p", "--add", str(other))
    assert 1 == found["after"]["running"]


def test_claims_of_templates_leave_the_names_of_others_alone(tmp_path: Path) -> None:
    """A cluster's have random letters."""
    version = "resource.k8s.io/v1"
    devices = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    entries = [{"name": "a", "resourceClaimTemplateName": "t"}]
    objects = [
        {"apiVersion": version, "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
         "spec": {"spec": devices}},
        {"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": "p-a"},
         "spec": devices},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
         "spec": template("p", resourceClaims=entries)["spec"]},
    ]  # fmt: skip
    related = read(tmp_path, node("n1"), *objects).workload.related
    assert ["p-a", "p-a-1"] == sorted(o.metadata.name for o in related)
